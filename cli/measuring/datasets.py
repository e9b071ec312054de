"""Reads question sets: the SQuAD layout, BEIR folders, and JSON lines.

JSON lines hold documents and questions in any order, one object a line::

    {"id": "manual", "text": "The valve opens at 11.5 bar."}
    {"id": "parts", "passages": ["P-4711: filter", "P-4712: gasket"]}
    {"question": "When does the valve open?", "relevant": ["manual"]}
    {"question": "P-4711", "relevant": ["parts#0"], "id": "q2", "history": [{"role": "user", "text": "..."}]}

A document has a text, or passages that are kept apart and judged one by one as ``<id>#<number from 0>``; a set has one
kind. ``relevant`` lists ids, or is an object of ids and grades. A set that is not as it should be is refused, with the
line or the place in it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from re import fullmatch
from typing import Any, TypeAlias

from cli.errors import CommandError
from services.chassis.kernel.text import sanitise

Grades: TypeAlias = dict[str, int]

JSON_LINES = (".jsonl", ".ndjson")
QUESTION_CHARACTERS_MAX = 2_000
TURN_CHARACTERS_MAX = 4_000
TURNS_MAX = 20
"""What a search takes: a set with a longer question or history is refused before anything of it is sent."""

GRADE_MAX = 100
"""More than anybody judges by; nDCG doubles its weight with each."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text, or passages that are kept apart."""

    id: str
    text: str = ""
    passages: tuple[str, ...] = ()

    @property
    def unit_ids(self) -> tuple[str, ...]:
        """What of it is judged."""
        return tuple(f"{self.id}#{at}" for at in range(len(self.passages))) if self.passages else (self.id,)


@dataclass(frozen=True, slots=True)
class JudgedQuestion:
    """A question and what answers it: ids of documents, or of passages, with grades; 0 is judged irrelevant."""

    id: str
    text: str
    relevant: Grades
    history: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Dataset:
    """A set; ``notes`` say what of its source was left out, and why."""

    name: str
    documents: tuple[Document, ...]
    questions: tuple[JudgedQuestion, ...]
    notes: tuple[str, ...] = ()

    @property
    def by_passage(self) -> bool:
        """Whether passages are judged, not documents."""
        return bool(self.documents[0].passages)

    def sample(self, count: int, seed: int) -> Dataset:
        """So many of the questions, by chance; all when there are no more."""
        if count >= len(self.questions):
            return self
        chosen = sorted(random.Random(seed).sample(range(len(self.questions)), count))  # noqa: S311 - no secret
        note = f"{count} of {len(self.questions)} questions, chosen by chance"
        questions = tuple(self.questions[at] for at in chosen)
        return replace(self, questions=questions, notes=(*self.notes, note))


def read_dataset(path: Path, *, questions: Path | None = None, split: str = "test") -> Dataset:
    """Read a set.

    Args:
        path: a folder in the BEIR layout, a file of JSON lines, or a file in the SQuAD layout.
        questions: a parallel file in the SQuAD layout, whose questions of the same ids are asked instead.
        split: which of a BEIR folder's judgements.

    Raises:
        CommandError: ``DATASET_UNREADABLE`` or ``DATASET_INVALID``, saying where.
    """
    if questions is not None and (path.is_dir() or path.suffix in JSON_LINES):
        raise CommandError(
            "CONTRADICTORY_OPTIONS", "parallel questions go with the SQuAD layout", remedy="leave --questions out"
        )
    if path.is_dir():
        found = _read_beir(path, split)
    elif path.suffix in JSON_LINES:
        found = _read_json_lines(path)
    else:
        found = _read_squad(path, questions)
    return _checked(found, path)


def _checked(dataset: Dataset, path: Path) -> Dataset:
    if not dataset.documents or not dataset.questions:
        missing = "questions with an answer" if dataset.documents else "documents"
        raise _invalid(f"there are no {missing}", str(path), "is this the right file?")
    if len({bool(document.passages) for document in dataset.documents}) > 1:
        raise _invalid("some documents have passages, some have not", str(path), "give all of them passages, or none")
    return dataset


@dataclass(slots=True)
class _Builder:
    """Collects a set and sees that its ids are unique and known."""

    documents: dict[str, Document] = field(default_factory=dict)
    questions: dict[str, JudgedQuestion] = field(default_factory=dict)
    unjudged: int = 0

    def add_document(self, document: Document, where: str) -> None:
        if document.id in self.documents:
            raise _invalid(f"the document {document.id!r} is there twice", where, "give each an id of its own")
        self.documents[document.id] = document

    def add_question(self, question: JudgedQuestion, where: str) -> None:
        if question.id in self.questions:
            raise _invalid(f"the question {question.id!r} is there twice", where, "give each an id of its own")
        if len(question.text) > QUESTION_CHARACTERS_MAX:
            detail = f"the question {question.id!r} has {len(question.text)} characters"
            raise _invalid(detail, where, f"leave it out: a search takes {QUESTION_CHARACTERS_MAX}")
        if any(grade > 0 for grade in question.relevant.values()):
            self.questions[question.id] = question
        else:
            self.unjudged += 1

    def build(self, name: str) -> Dataset:
        notes = (f"{self.unjudged} questions without an answer are left out",) if self.unjudged else ()
        return Dataset(name, tuple(self.documents.values()), tuple(self.questions.values()), notes)


def _read_squad(path: Path, questions_path: Path | None) -> Dataset:
    """A paragraph is a document; where it has ``sentence_breaks``, as in XQuAD-R, its sentences are its passages."""
    builder = _Builder()
    known: dict[tuple[str, tuple[str, ...]], str] = {}
    asked = None if questions_path is None else _squad_questions(questions_path)
    for where, paragraph in _squad_paragraphs(path):
        context = _text(paragraph, "context", where)
        breaks = _sentence_breaks(paragraph, len(context), where)
        passages = tuple(" ".join(context[start:end].split()) for start, end in breaks)
        if not all(passages):
            raise _invalid("a sentence is empty", f"{where}.sentence_breaks", "let each hold some text")
        # The same paragraph twice is one document, or the answer would be right at one place and wrong at another.
        id_ = known.setdefault((context, passages), str(len(known)))
        if id_ not in builder.documents:
            builder.add_document(Document(id_, "" if passages else context, passages), where)
        for at, qa in enumerate(_list(paragraph, "qas", where)):
            place = f"{where}.qas[{at}]"
            id_of_question = _text(qa, "id", place)
            text = _text(qa, "question", place)
            if asked is not None:
                if id_of_question not in asked:
                    raise _invalid(
                        f"the question {id_of_question!r} is not in {questions_path}", place, "give its parallel file"
                    )
                text = asked[id_of_question]
            starts = [_answer_start(answer, len(context), place) for answer in _list(qa, "answers", place)]
            units = {_unit(id_, breaks, start, place) for start in starts}
            builder.add_question(JudgedQuestion(id_of_question, text, dict.fromkeys(sorted(units), 1)), place)
    name = path.stem if questions_path is None else f"{questions_path.stem} on {path.stem}"
    return builder.build(name)


def _squad_paragraphs(path: Path) -> Iterator[tuple[str, Any]]:
    whole = _parse(_read(path), str(path))
    for at, article in enumerate(_list(whole, "data", str(path))):
        place = f"{path}, data[{at}]"
        for number, paragraph in enumerate(_list(article, "paragraphs", place)):
            yield f"{place}.paragraphs[{number}]", paragraph


def _squad_questions(path: Path) -> dict[str, str]:
    return {
        _text(qa, "id", where): _text(qa, "question", where)
        for where, paragraph in _squad_paragraphs(path)
        for qa in _list(paragraph, "qas", where)
    }


def _sentence_breaks(paragraph: Any, length: int, where: str) -> list[tuple[int, int]]:
    if "sentence_breaks" not in paragraph:
        return []
    breaks = []
    for pair in _list(paragraph, "sentence_breaks", where):
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(edge, int) for edge in pair)):
            raise _invalid("a sentence break is not a pair of offsets", where, "write [start, end]")
        start, end = pair
        if not 0 <= start < end <= length:
            raise _invalid(f"the sentence {start} to {end} is not within its paragraph", where, "mend its offsets")
        breaks.append((start, end))
    return breaks


def _answer_start(answer: Any, length: int, where: str) -> int:
    start = answer.get("answer_start") if isinstance(answer, dict) else None
    if not isinstance(start, int) or not 0 <= start < length:
        raise _invalid(
            f"answer_start is {start!r}; it must be an offset in the paragraph, 0 to {length - 1}",
            f"{where}.answers",
            "mend the offset, or leave the question out",
        )
    return start


def _unit(document_id: str, breaks: Sequence[tuple[int, int]], answer_start: int, where: str) -> str:
    if not breaks:
        return document_id
    for at, (start, end) in enumerate(breaks):
        if start <= answer_start < end:
            return f"{document_id}#{at}"
    raise _invalid(f"the answer at {answer_start} is in no sentence", where, "mend sentence_breaks or answer_start")


def _read_beir(folder: Path, split: str) -> Dataset:
    builder = _Builder()
    for where, line in _json_lines(folder / "corpus.jsonl"):
        title, text = line.get("title") or "", _text(line, "text", where, empty=True)
        builder.add_document(Document(_text(line, "_id", where), f"{title}\n\n{text}".strip()), where)
    queries = _json_lines(folder / "queries.jsonl")
    texts = {_text(line, "_id", where): _text(line, "text", where) for where, line in queries}
    judgements = folder / "qrels" / f"{split}.tsv"
    if not judgements.exists():
        splits = sorted(path.stem for path in (folder / "qrels").glob("*.tsv"))
        raise CommandError(
            "DATASET_UNREADABLE",
            f"there are no judgements named {split!r}",
            where=str(judgements),
            remedy=f"choose one with --split: {', '.join(splits) or 'the folder has none'}",
        )
    grades: dict[str, Grades] = {}
    for number, row in enumerate(_read(judgements).splitlines(), start=1):
        where = f"{judgements}, line {number}"
        if (number == 1 and row.startswith("query-id")) or not row.strip():
            continue
        fields = row.split("\t")
        if len(fields) != 3 or not fullmatch(r"-?\d{1,3}", fields[2]) or int(fields[2]) > GRADE_MAX:
            remedy = f"write query-id, corpus-id and a score up to {GRADE_MAX}, with tabs between"
            raise _invalid("this is no judgement", where, remedy)
        question, document, grade = fields
        if question not in texts:
            raise _invalid(f"the question {question!r} is not in queries.jsonl", where, "add it, or remove the line")
        if document not in builder.documents:
            raise _invalid(f"the document {document!r} is not in corpus.jsonl", where, "add it, or remove the line")
        grades.setdefault(question, {})[document] = max(0, int(grade))
    for question, relevant in grades.items():
        builder.add_question(JudgedQuestion(question, texts[question], relevant), str(judgements))
    dataset = builder.build(f"{folder.name} {split}")
    silent = len(texts) - len(grades)
    notes = (f"{silent} questions without judgements in {split!r} are left out",) if silent else ()
    return replace(dataset, notes=(*dataset.notes, *notes))


def _read_json_lines(path: Path) -> Dataset:
    builder = _Builder()
    units: set[str] = set()
    asked: list[tuple[str, JudgedQuestion]] = []
    for where, line in _json_lines(path):
        if "question" in line:
            id_ = line.get("id", f"q{len(asked) + 1}")
            if not isinstance(id_, str):
                raise _invalid("the id of a question is not a text", where, "write it in quotes")
            question = JudgedQuestion(
                id_, _text(line, "question", where), _relevant(line, where), _history(line, where)
            )
            asked.append((where, question))
        else:
            document = _json_document(line, where)
            builder.add_document(document, where)
            units.update(document.unit_ids)
    for where, question in asked:
        for unit in question.relevant:
            if unit not in units:
                raise _invalid(
                    f"there is no document {unit!r}", where, "name a document, or a passage as id#number from 0"
                )
        builder.add_question(question, where)
    return builder.build(path.stem)


def _json_document(line: Any, where: str) -> Document:
    id_ = _text(line, "id", where)
    if "passages" not in line:
        return Document(id_, _text(line, "text", where))
    passages = [sanitise(passage) if isinstance(passage, str) else "" for passage in _list(line, "passages", where)]
    if not passages or not all(passage.strip() for passage in passages):
        raise _invalid("passages must be texts that are not empty", where, "leave empty ones out")
    return Document(id_, "", tuple(" ".join(passage.split()) for passage in passages))


def _history(line: Any, where: str) -> tuple[Mapping[str, str], ...]:
    turns = _list(line, "history", where) if "history" in line else []
    sound = len(turns) <= TURNS_MAX and all(
        isinstance(turn, dict)
        and turn.keys() <= {"role", "text"}
        and turn.get("role", "user") in ("user", "assistant")
        and isinstance(turn.get("text"), str)
        and 1 <= len(sanitise(turn["text"]).strip()) <= TURN_CHARACTERS_MAX
        for turn in turns
    )
    if not sound:
        remedy = (
            f"write up to {TURNS_MAX} turns of 1 to {TURN_CHARACTERS_MAX} characters:"
            ' {"role": "user", "text": "..."}, the role "user" or "assistant"'
        )
        raise _invalid("the history is not a list of turns", where, remedy)
    return tuple({**turn, "text": sanitise(turn["text"])} for turn in turns)


def _relevant(line: Any, where: str) -> Grades:
    relevant = line.get("relevant")
    if isinstance(relevant, list) and all(isinstance(id_, str) for id_ in relevant):
        return dict.fromkeys(relevant, 1)
    if isinstance(relevant, dict) and all(
        type(grade) is int and 0 <= grade <= GRADE_MAX for grade in relevant.values()
    ):
        return relevant
    raise _invalid(
        f"relevant is neither a list of ids nor an object of ids and grades from 0 to {GRADE_MAX}",
        where,
        'write "relevant": ["id"]',
    )


def _json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, row in enumerate(_read(path).split("\n"), start=1):
        if row.strip():
            where = f"{path}, line {number}"
            line = _parse(row, where)
            if not isinstance(line, dict):
                raise _invalid("the line is not a JSON object", where, "write one object a line")
            yield where, line


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as fault:
        raise CommandError("DATASET_UNREADABLE", fault.strerror or str(fault), where=str(path)) from fault
    except UnicodeDecodeError as fault:
        raise _invalid(f"byte {fault.start} is not UTF-8", str(path), "save the file as UTF-8") from fault


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise _invalid(
            f"this is not JSON: {fault}",
            where,
            f"give the SQuAD layout, a BEIR folder, or JSON lines in a file named *{JSON_LINES[0]}",
        ) from fault


def _text(holder: Any, name: str, where: str, *, empty: bool = False) -> str:
    value = holder.get(name) if isinstance(holder, dict) else None
    text = sanitise(value) if isinstance(value, str) else None
    if text is None or not (empty or text.strip()):
        raise _invalid(f"{name} is missing, or no text", where, f'give "{name}" a text')
    return text


def _list(holder: Any, name: str, where: str) -> list[Any]:
    value = holder.get(name) if isinstance(holder, dict) else None
    if not isinstance(value, list):
        raise _invalid(f"{name} is missing, or no list", where, f'give "{name}" a list')
    return value


def _invalid(detail: str, where: str, remedy: str) -> CommandError:
    return CommandError("DATASET_INVALID", detail, where=where, remedy=remedy)
