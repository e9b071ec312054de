"""The loop that claims work."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from services.embeddings.domain.file_work import ClaimedFile
from services.embeddings.entrypoints import worker
from services.embeddings.entrypoints.worker import Label, Worker
from tests.support.in_memory_work import claimed


async def test_a_claim_that_fails_in_any_way_is_tried_again_and_what_is_in_hand_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "RETRY_SECONDS", 0.0)
    answers = iter([[claimed()], KeyError("unexpected"), OSError("the database is away"), [claimed()]])
    faults: list[str | None] = []
    done: list[ClaimedFile] = []
    stop, last = asyncio.Event(), asyncio.Event()

    class Queue:
        async def claim(self, limit: int, *, large: int) -> Sequence[ClaimedFile]:
            faults.append(working.fault)
            answer = next(answers, [])
            if isinstance(answer, Exception):
                raise answer
            return answer

    async def process(claim: ClaimedFile) -> None:
        if working.fault is None and len(faults) == 4:
            last.set()
        await last.wait()
        done.append(claim)
        if len(done) == 2:
            stop.set()

    working = Worker(
        Queue(), process, kind="file", label=Label.of_file, concurrency=3, poll_seconds=0.0, shutdown_seconds=20
    )
    async with asyncio.timeout(60):
        await working.run(stop)
    assert len(done) == 2
    assert faults[:4] == [None, None, "KeyError: 'unexpected'", "OSError: the database is away"]
    assert working.fault is None
