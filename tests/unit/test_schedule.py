"""What is done by the clock."""

from __future__ import annotations

import asyncio

from services.chassis.schedule import every


async def test_an_action_that_fails_in_any_way_is_tried_again() -> None:
    done = asyncio.Event()
    faults = iter([KeyError("unexpected"), OSError("the database is away")])

    async def action() -> None:
        for fault in faults:
            raise fault
        done.set()

    task = asyncio.create_task(every(0.0, "action", action))
    async with asyncio.timeout(20):
        await done.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
