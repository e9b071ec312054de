"""Measuring on the running stack: figures come out, and nothing of it stays or is seen by others."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.e2e.conftest import CAUCE, CauceStack

PARTS = {
    "bomba": "La bomba centrífuga lleva la referencia P-4711/B y pesa tres kilos.",
    "filtro": "El filtro de aceite se cambia cada mes de mayo, antes de la revisión.",
    "motor": "El motor eléctrico tiene el código IGE12 y gira a mil revoluciones.",
}
QUESTIONS = {"¿Cuánto pesa P-4711/B?": "bomba", "When is the oil filter replaced?": "filtro", "IGE12": "motor"}


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    rows = [{"id": id_, "text": text} for id_, text in PARTS.items()]
    asked = [{"question": text, "relevant": [id_]} for text, id_ in QUESTIONS.items()]
    path = tmp_path / "parts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *asked]), encoding="utf-8")
    return path


def scratch_files(stack: CauceStack) -> int:
    async def count() -> int:
        connection = await asyncpg.connect(stack.state["database_url"])
        found: int = await connection.fetchval(
            "SELECT count(*) FROM module_files_file WHERE tenant_id LIKE 'default/scratch/%'"
        )
        await connection.close()
        return found

    return asyncio.run(count())


def told(stack: CauceStack, *arguments: object) -> dict[str, Any]:
    outcome = stack.cauce(*arguments)
    assert outcome.status == 0, outcome
    (report,) = outcome.lines
    return report


def test_modes_are_measured_compared_and_drawn_and_nothing_stays(stack: CauceStack, parts: Path) -> None:
    saved, plot = parts.with_suffix(".json"), parts.with_suffix(".svg")
    before = stack.cauce("status").lines
    report = told(stack, "eval", parts, "--mode", "hybrid", "--mode", "lexical", "--save", saved, "--plot", plot)

    hybrid, lexical = report["runs"]
    assert (hybrid["mode"], hybrid["metrics"]["nDCG@10"], hybrid["metrics"]["R@1"]) == ("hybrid", 1, 1)
    assert lexical["metrics"]["R@10"] < 1, "no word of the English question is in a text"
    assert hybrid["intervals"]["R@1"] == [1, 1]
    assert 0 < hybrid["latency_ms"]["p50"] <= hybrid["latency_ms"]["p95"]
    assert (hybrid["cost"]["query_vectors"], lexical["cost"]["query_vectors"]) == (3, 0)
    assert report["comparisons"][0]["against"] == "hybrid"
    assert plot.read_text().lstrip().startswith("<?xml")
    assert stack.cauce("status").lines == before
    assert scratch_files(stack) == 0

    again = told(stack, "eval", parts, "--baseline", saved)
    assert again["comparisons"][0]["metrics"]["R@1"]["difference"] == 0


def test_work_that_is_broken_off_leaves_nothing(stack: CauceStack, tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    rows = [{"id": str(number), "text": f"Texto número {number}."} for number in range(40)]
    asked = [{"question": f"¿Cuál es el {number}?", "relevant": [str(number % 40)]} for number in range(1_000)]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *asked]), encoding="utf-8")
    # In the background of a script, where SIGINT is ignored.
    command = ("sh", "-c", 'trap \'\' INT; exec "$0" "$@"', *CAUCE, "eval", path, "--data-dir", stack.data_dir)
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=os.environ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"sent")
        assert scratch_files(stack) == 40
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
    assert process.returncode != 0
    assert b"removed: 40" in said
    assert scratch_files(stack) == 0


def test_scores_are_calibrated_and_languages_are_brought_together(stack: CauceStack, tmp_path: Path) -> None:
    report = told(stack, "calibrate", "--precision", 0.8, "--plot", tmp_path / "scores.png")
    assert report["translations"]["together"] > 0.9
    assert report["translations"]["warning"] is None
    assert 0 < report["min_score"] < 1
    assert report["precision"] >= 0.8
    assert report["relevant"]["p50"] > report["irrelevant"]["p50"]
    assert (tmp_path / "scores.png").stat().st_size > 0
    assert scratch_files(stack) == 0


def test_the_index_is_compared_with_everything(stack: CauceStack, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"La pieza número {number} se revisa cada año.", encoding="utf-8")
    sent = stack.cauce("ingest", *tmp_path.glob("*.txt"), "--wait").lines
    report = told(stack, "recall", "--sample", 2, "--plot", tmp_path / "recall.png")
    assert [row["wanted"] for row in report["selectivities"]] == [1.0, 0.5, 0.1, 0.01, 0.001]
    assert [row["recall"] for row in report["selectivities"]] == [1.0] * 5
    assert all(row["strategies"] == {"exact": 2} for row in report["selectivities"])
    assert (tmp_path / "recall.png").stat().st_size > 0
    for file in sent:
        stack.cauce("delete", file["file_id"])


def test_a_bad_set_ends_before_anything_is_sent(stack: CauceStack, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"id": "a", "text": "x"}\n{"question": "?", "relevant": ["b"]}\n')
    outcome = stack.cauce("eval", path)
    assert outcome.status == 1
    assert outcome.lines[0]["error"]["where"] == f"{path}, line 2"


@pytest.mark.parametrize("command", ["eval", "calibrate"])
def test_a_question_that_the_model_cannot_read_ends_before_anything_is_sent(
    stack: CauceStack, tmp_path: Path, command: str
) -> None:
    path = tmp_path / "long.jsonl"
    rows: list[dict[str, Any]] = [{"id": "a", "text": "水泵"}, {"question": "泵?", "relevant": ["a"]}]
    rows.append({"id": "endless", "question": "".join(map(chr, range(0x4E00, 0x5400))), "relevant": ["a"]})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    outcome = stack.cauce(command, path)

    assert outcome.status == 1
    error = outcome.lines[0]["error"]
    assert (error["code"], error["where"]) == ("QUERY_TOO_LONG", "question endless")
    assert "sent" not in outcome.said
    if command == "eval":
        assert stack.cauce(command, path, "--mode", "lexical").status == 0
