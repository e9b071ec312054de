"""Question sets as they are read, and what a bad one is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.errors import CommandError
from cli.measuring.datasets import Dataset, Document, read_dataset
from cli.measuring.scratch import passages_of

SENTENCE_A, SENTENCE_B = "La bomba pesa 3 kg. ", "El filtro se cambia en mayo."


def squad(tmp_path: Path, *paragraphs: dict[str, Any], name: str = "set.json") -> Path:
    path = tmp_path / name
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": list(paragraphs)}]}), encoding="utf-8")
    return path


def paragraph(**changes: Any) -> dict[str, Any]:
    qa = {"id": "q1", "question": "¿Cuándo?", "answers": [{"text": "mayo", "answer_start": 43}]}
    return {"context": SENTENCE_A + SENTENCE_B, "qas": [qa]} | changes


def lines(tmp_path: Path, *rows: Any) -> Path:
    path = tmp_path / "set.jsonl"
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def beir(tmp_path: Path, **changes: str) -> Path:
    files = {
        "corpus.jsonl": '{"_id": "d1", "title": "Bomba", "text": "Pesa 3 kg."}\n{"_id": "d2", "text": "Otra."}\n',
        "queries.jsonl": '{"_id": "q1", "text": "¿Cuánto pesa?"}\n{"_id": "q2", "text": "nadie la juzgó"}\n',
        "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\n",
    } | changes
    (tmp_path / "qrels").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def fault_of(path: Path, **options: Any) -> CommandError:
    with pytest.raises(CommandError) as caught:
        read_dataset(path, **options)
    return caught.value


def units(dataset: Dataset) -> list[str]:
    return [unit for document in dataset.documents for unit in document.unit_ids]


def test_a_squad_paragraph_is_a_document(tmp_path: Path) -> None:
    dataset = read_dataset(squad(tmp_path, paragraph(), paragraph(context="Otro párrafo.", qas=[])))
    assert (units(dataset), dataset.by_passage) == (["0", "1"], False)
    assert [(question.id, question.relevant) for question in dataset.questions] == [("q1", {"0": 1})]


def test_the_same_paragraph_twice_is_one_document(tmp_path: Path) -> None:
    second = {"id": "q2", "question": "¿Y?", "answers": [{"text": "La", "answer_start": 0}]}
    dataset = read_dataset(squad(tmp_path, paragraph(), paragraph(qas=[second])))
    assert (units(dataset), len(dataset.questions)) == (["0"], 2)


def test_sentences_are_passages_where_the_set_says_where_they_break(tmp_path: Path) -> None:
    breaks = [[0, len(SENTENCE_A)], [len(SENTENCE_A), len(SENTENCE_A + SENTENCE_B)]]
    dataset = read_dataset(squad(tmp_path, paragraph(sentence_breaks=breaks)))
    assert dataset.documents[0].passages == (SENTENCE_A.strip(), SENTENCE_B)
    assert dataset.questions[0].relevant == {"0#1": 1}


def test_questions_of_a_parallel_file_are_asked_instead(tmp_path: Path) -> None:
    other = {"id": "q1", "question": "When?", "answers": [{"text": "", "answer_start": 0}]}
    parallel = squad(tmp_path, paragraph(qas=[other]), name="en.json")
    assert read_dataset(squad(tmp_path, paragraph()), questions=parallel).questions[0].text == "When?"
    missing = squad(tmp_path, paragraph(qas=[{**other, "id": "q9"}]), name="other.json")
    assert "'q1'" in fault_of(squad(tmp_path, paragraph()), questions=missing).detail


def test_questions_without_an_answer_are_left_out_and_counted(tmp_path: Path) -> None:
    impossible = {"id": "q2", "question": "¿?", "answers": []}
    dataset = read_dataset(squad(tmp_path, paragraph(qas=[*paragraph()["qas"], impossible])))
    assert [question.id for question in dataset.questions] == ["q1"]
    assert dataset.notes == ("1 questions without an answer are left out",)


def test_a_beir_folder_is_read_with_its_grades(tmp_path: Path) -> None:
    dataset = read_dataset(beir(tmp_path))
    assert [document.text for document in dataset.documents] == ["Bomba\n\nPesa 3 kg.", "Otra."]
    assert [question.relevant for question in dataset.questions] == [{"d1": 2, "d2": 0}]
    assert dataset.notes == ("1 questions without judgements in 'test' are left out",)


def test_json_lines_hold_documents_and_questions_in_any_order(tmp_path: Path) -> None:
    turn = {"role": "user", "text": "Hablemos de filtros"}
    dataset = read_dataset(
        lines(
            tmp_path,
            {"question": "¿Cuál?", "relevant": {"a#1": 2}, "history": [turn]},
            "",
            {"id": "a", "passages": ["uno", "dos\ntres"]},
        )
    )
    assert dataset.documents[0].passages == ("uno", "dos tres")
    assert (dataset.questions[0].relevant, dataset.questions[0].history) == ({"a#1": 2}, (turn,))


@pytest.mark.parametrize(
    ("change", "where", "detail"),
    [
        ({"context": 7}, "paragraphs[0]", "context is missing"),
        ({"qas": None}, "paragraphs[0]", "qas is missing"),
        ({"qas": [{"id": "q1", "question": " "}]}, "qas[0]", "question is missing"),
        ({"qas": [{"id": "q", "question": "x", "answers": [{"answer_start": 999}]}]}, "answers", "999"),
        ({"qas": [{"id": "q", "question": "x", "answers": ["mayo"]}]}, "answers", "None"),
        ({"qas": paragraph()["qas"] * 2}, "qas[1]", "twice"),
        ({"sentence_breaks": [[0, 999]]}, "paragraphs[0]", "not within"),
        ({"sentence_breaks": ["x"]}, "paragraphs[0]", "not a pair"),
        ({"sentence_breaks": [[0, 5]]}, "qas[0]", "in no sentence"),
    ],
)
def test_a_bad_squad_file_is_told_where(tmp_path: Path, change: dict[str, Any], where: str, detail: str) -> None:
    fault = fault_of(squad(tmp_path, paragraph(**change)))
    assert (fault.code, where in str(fault.where), detail in fault.detail) == ("DATASET_INVALID", True, True), fault
    assert fault.remedy


@pytest.mark.parametrize(
    ("row", "detail"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ({"text": "sin id"}, "id is missing"),
        ({"id": "a"}, "text is missing"),
        ({"id": "d", "text": "otra vez"}, "twice"),
        ({"id": "p", "passages": []}, "passages must be"),
        ({"question": "x", "relevant": "d"}, "neither a list"),
        ({"question": "x", "relevant": ["nada"]}, "'nada'"),
        ({"question": "x", "relevant": {"d": -1}}, "neither a list"),
        ({"question": "x", "relevant": {"d": 10**20}}, "neither a list"),
        ({"question": "x", "relevant": {"d": True}}, "neither a list"),
        ({"question": "x", "relevant": ["d"], "history": "?"}, "history"),
        ({"question": "x", "relevant": ["d"], "history": ["?"]}, "list of turns"),
        ({"question": "x", "relevant": ["d"], "history": [{"role": "system", "text": "x"}]}, "list of turns"),
        ({"question": "x", "relevant": ["d"], "history": [{"text": " "}]}, "list of turns"),
        ({"question": "x", "relevant": ["d"], "id": 7}, "not a text"),
        ({"question": "\x00\ud800", "relevant": ["d"]}, "question is missing"),
        ({"question": "x" * 2_001, "relevant": ["d"]}, "2001 characters"),
        ({"id": "p", "passages": ["\ud800"]}, "passages must be"),
    ],
)
def test_a_bad_line_is_told_by_its_number(tmp_path: Path, row: Any, detail: str) -> None:
    fault = fault_of(lines(tmp_path, {"id": "d", "text": "uno"}, {"question": "¿?", "relevant": ["d"]}, row))
    assert (fault.code, fault.where) == ("DATASET_INVALID", f"{tmp_path / 'set.jsonl'}, line 3")
    assert detail in fault.detail
    assert fault.remedy


@pytest.mark.parametrize(
    ("changes", "where", "detail"),
    [
        ({"corpus.jsonl": '{"_id": 1, "text": "x"}\n'}, "corpus.jsonl, line 1", "_id is missing"),
        ({"queries.jsonl": '{"_id": "q1"}\n'}, "queries.jsonl, line 1", "text is missing"),
        ({"qrels/test.tsv": "q1 d1 1\n"}, "test.tsv, line 1", "no judgement"),
        ({"qrels/test.tsv": "q1\td1\tuno\n"}, "test.tsv, line 1", "no judgement"),
        ({"qrels/test.tsv": "q1\td1\t--5\n"}, "test.tsv, line 1", "no judgement"),
        ({"qrels/test.tsv": "q1\td1\t101\n"}, "test.tsv, line 1", "no judgement"),
        ({"qrels/test.tsv": "q1\td9\t1\n"}, "test.tsv, line 1", "'d9'"),
        ({"qrels/test.tsv": "q9\td1\t1\n"}, "test.tsv, line 1", "'q9'"),
        ({"qrels/test.tsv": "query-id\tcorpus-id\tscore\n"}, "", "no questions with an answer"),
    ],
)
def test_a_bad_beir_folder_is_told_where(tmp_path: Path, changes: dict[str, str], where: str, detail: str) -> None:
    fault = fault_of(beir(tmp_path, **changes))
    assert (fault.code, where in str(fault.where), detail in fault.detail) == ("DATASET_INVALID", True, True), fault


def test_a_split_that_is_not_there_is_told_which_are(tmp_path: Path) -> None:
    fault = fault_of(beir(tmp_path), split="dev")
    assert (fault.code, "test" in str(fault.remedy)) == ("DATASET_UNREADABLE", True)


@pytest.mark.parametrize("content", [b"no JSON", b"[]", b'{"data": 7}', b"\xff\xfe", b""])
def test_what_is_no_set_at_all_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "set.json"
    path.write_bytes(content)
    assert fault_of(path).code == "DATASET_INVALID"
    assert fault_of(tmp_path / "absent.json").code == "DATASET_UNREADABLE"


def test_documents_with_and_without_passages_do_not_mix(tmp_path: Path) -> None:
    path = lines(
        tmp_path, {"id": "a", "text": "x"}, {"id": "b", "passages": ["y"]}, {"question": "?", "relevant": ["a"]}
    )
    assert "some documents have passages" in fault_of(path).detail


def test_a_sample_is_the_same_for_the_same_seed_and_says_so(tmp_path: Path) -> None:
    rows = [{"question": f"¿{number}?", "relevant": ["d"]} for number in range(50)]
    dataset = read_dataset(lines(tmp_path, {"id": "d", "text": "uno"}, *rows))
    assert dataset.sample(5, 1) == dataset.sample(5, 1) != dataset.sample(5, 2)
    assert dataset.sample(5, 1).notes == ("5 of 50 questions, chosen by chance",)
    assert dataset.sample(50, 1) is dataset


@pytest.mark.parametrize(
    ("passages", "chunks", "places"),
    [
        (["Junta P-47110 de goma", "P-4711"], ["Junta P-47110 de goma", "P-4711"], [0, 1]),
        (["El motor gira", "El motor gira"], ["El motor gira", "El motor gira"], [0, 1]),
        (["uno dos tres", "dos tres", "tres"], ["uno dos", "dos tres", "dos tres", "tres"], [0, 0, 1, 2]),
        (["man\u00adteni\u00admiento de  bombas", "—"], ["mantenimiento de bombas", "—"], [0, 1]),
        (["\u200b", "visible"], ["visible"], [1]),
    ],
    ids=["within the one before", "twice", "several chunks", "soft hyphens", "nothing to see"],
)
def test_each_chunk_is_of_the_passage_that_it_was_cut_from(
    passages: list[str], chunks: list[str], places: list[int]
) -> None:
    assert passages_of(chunks, Document("a", "", tuple(passages))) == places


def test_a_chunk_of_no_passage_ends_the_measurement_with_its_document() -> None:
    with pytest.raises(CommandError) as caught:
        passages_of(["uno", "nothing of it"], Document("a", "", ("uno", "dos")))
    assert (caught.value.code, caught.value.where) == ("PASSAGES_CHANGED", "document a")
