"""Passages and resources put together for a prompt: nearest first, nothing twice, never more than the budget.

Pure: what was found comes in, what is quoted comes out. Chunks of one file that follow one another are quoted as one
passage, without the text that they share.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, TypeAlias

from services.search.domain.criteria import TOP_N_MAX, FileChunkSearchCriteria, ResourceSearchCriteria
from services.search.domain.limits import require_between
from services.search.domain.results import Executed, FileChunk, FileChunkMatch, ResourceMatch, Total
from services.search.domain.techniques import TechniqueReport

BUDGET_DEFAULT = 4_000
BUDGET_MAX = 200_000
CHUNKS_PER_FILE_DEFAULT = 3

ALIKE = 0.8
"""The share of a text's word triples that a quoted one has, from which it is a near-duplicate of that; unless it has a
number or a code that is not quoted, or has them in another order."""

_CONSIDERED = (50, 200)
_TOKENS_OF_A_SMALL_TEXT = 100
_HEADING_TOKENS = 8  # of "[1000]" and the blank line before it
_WORD_LETTERS_MAX = 20
_TOKEN = re.compile(r"(?P<word>[A-Za-z\u00c0-\u024f]++)(?![\d_])|[^ ]", re.DOTALL)
_VOWELS = frozenset(
    letter for letter in map(chr, range(0x250)) if unicodedata.normalize("NFD", letter)[0] in "AEIOUYaeiouyÆØŒæøœı"
)
_COMPLETE = re.compile(r"[.!?:;…]['\"»”’)\]]*$")
_NUMBER_OR_CODE = re.compile(r"[-+−]?[A-Za-z\u00c0-\u024f\d_]+(?:[-−_/.,:+#][A-Za-z\u00c0-\u024f\d_]+)*+")

Match: TypeAlias = FileChunkMatch | ResourceMatch
Piece: TypeAlias = FileChunkMatch | FileChunk
Place: TypeAlias = tuple[int, int]
"""A file and a position in it."""
_Gist: TypeAlias = tuple[frozenset[tuple[str, ...]], list[str]]


def count_tokens(text: str) -> int:
    """An estimate on the high side of how many tokens a text has, the same for every model.

    It is no bound (only the text's bytes are one): a few odd words may be more tokens than they count.
    A word of up to 20 Latin letters counts a token for every three of its UTF-8 bytes begun, for every two where there
    are capitals after the first letter, and for every byte where less than a quarter of it are vowels, as in ``VCC``.
    Digits, signs, line ends, other alphabets and longer or mixed words count every byte, which is the most that any
    vocabulary of bytes makes of them; a space counts nothing, for it goes with the word after it.
    """
    return sum(
        -(-len(match[0].encode()) // (_bytes_of_a_token(match[0]) if match["word"] else 1))
        for match in _TOKEN.finditer(text)
    )


def _bytes_of_a_token(word: str) -> int:
    if len(word) > _WORD_LETTERS_MAX or 4 * sum(letter in _VOWELS for letter in word) < len(word):
        return 1
    return 3 if word[1:].islower() or len(word) == 1 else 2


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a file's text, quoted once.

    Attributes:
        file_id, file_name: whose text it is.
        page_from, page_to: that it stands on, None in a format without pages.
        char_start, char_end: where it stands in the file's extracted text.
        chunk_ids: the chunks that it is put together of, in order.
        score: the best cosine among those that were found, None where none was computed.
        text: what is quoted.
    """

    file_id: int
    file_name: str
    page_from: int | None
    page_to: int | None
    char_start: int
    char_end: int
    chunk_ids: tuple[int, ...]
    score: float | None
    text: str
    kind: Literal["passage"] = "passage"

    @property
    def source(self) -> str:
        """Where it stands, in a line."""
        name = " ".join(self.file_name.split())
        if self.page_from is None:
            return name
        pages = f"page {self.page_from}" if self.page_from == self.page_to else f"pages {self.page_from}-{self.page_to}"
        return f"{name}, {pages}"


@dataclass(frozen=True, slots=True)
class QuotedResource:
    """A resource of the catalogue, with its cosine as in ``Passage``."""

    entity_type: str
    entity_id: int
    name: str
    score: float | None
    text: str
    kind: Literal["resource"] = "resource"

    @property
    def source(self) -> str:
        """What it is, in a line."""
        return f"{self.entity_type} {self.entity_id}, {' '.join(self.name.split())}"


Quoted: TypeAlias = Passage | QuotedResource


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How much of what was found is not quoted, by reason.

    Attributes:
        budget: did not fit.
        duplicates: nearly the same as something quoted.
        per_file: of files that had as many chunks quoted as they may.
        beyond: match as well, and come after all that was considered; where ``Found`` is not exact, at least so many.
    """

    budget: int = 0
    duplicates: int = 0
    per_file: int = 0
    beyond: int = 0


@dataclass(frozen=True, slots=True)
class Context:
    """What is quoted, nearest first, and the same as one text for a prompt.

    Attributes:
        text: each quotation under a line with its number and its source.
        tokens: of ``text``, by ``count_tokens``.
        left_out: of what was found.
    """

    items: tuple[Quoted, ...]
    text: str
    tokens: int
    left_out: LeftOut


@dataclass(frozen=True, slots=True)
class ContextFound:
    """How much matches, whether or not it is quoted."""

    passages: Total
    resources: Total


@dataclass(frozen=True, slots=True)
class ContextExecuted:
    """What was done to find it.

    Attributes:
        passages, resources: in each index; of the techniques, what was done with its results.
        techniques: what was made of the question, once for both.
    """

    passages: Executed
    resources: Executed
    techniques: tuple[TechniqueReport, ...]


@dataclass(frozen=True, slots=True)
class ContextResult:
    """A context, and how it came about.

    Attributes:
        items: what is quoted, nearest first.
        text: the same as one text for a prompt, each quotation under a line with its number and its source.
        tokens: of ``text``, estimated on the high side (``count_tokens``), never more than the budget.
    """

    items: tuple[Quoted, ...]
    text: str
    tokens: int
    budget: int
    left_out: LeftOut
    found: ContextFound
    executed: ContextExecuted


@dataclass(frozen=True, slots=True)
class ContextCriteria:
    """What to put together.

    Attributes:
        passages, resources: what to look for: the same question to both, with the same mode, threshold and techniques.
        budget: 1 to 200,000; the most tokens of the text.
        chunks_per_file: 1 to 1,000; the most chunks of one file, with those that complete a passage.

    Raises:
        InvalidInputError: ``INVALID_REQUEST``, with the parameter's wire name.
    """

    passages: FileChunkSearchCriteria
    resources: ResourceSearchCriteria
    budget: int = BUDGET_DEFAULT
    chunks_per_file: int = CHUNKS_PER_FILE_DEFAULT

    def __post_init__(self) -> None:
        require_between("budget", self.budget, 1, BUDGET_MAX)
        require_between("chunksPerFile", self.chunks_per_file, 1, TOP_N_MAX)


def considered(budget: int) -> int:
    """How many passages, and how many resources, a budget is filled from: more than fit into it."""
    return next((some for some in _CONSIDERED if some >= budget / _TOKENS_OF_A_SMALL_TEXT), TOP_N_MAX)


@dataclass(slots=True)
class _File:
    """The chunks of one file that are to be quoted, by position."""

    name: str
    pieces: dict[int, Piece] = field(default_factory=dict)
    scores: dict[int, float | None] = field(default_factory=dict)
    ranks: dict[int, int] = field(default_factory=dict)


def assemble_context(
    passages: Sequence[FileChunkMatch],
    resources: Sequence[ResourceMatch],
    beside: Mapping[Place, FileChunk],
    *,
    budget: int,
    chunks_per_file: int,
) -> Context:
    """Quote what was found, the nearest first, as far as the budget goes; what does not fit makes room for the next.

    Args:
        passages: best first.
        resources: best first.
        beside: chunks before and after the passages; one is quoted where the border cuts a sentence.
        budget: the most tokens.
        chunks_per_file: the most chunks of one file, with those beside.
    """
    draft = _Draft(beside, budget, chunks_per_file)
    for rank, match in enumerate(_nearest_first(passages, resources)):
        draft.add(match, rank)
    return draft.finish()


def _nearest_first(passages: Sequence[FileChunkMatch], resources: Sequence[ResourceMatch]) -> Iterator[Match]:
    """Both rankings as one: each keeps its order, and the one with the higher cosine still to come goes on.

    So a match that is where it is for its words, or by a model's order, holds back nothing. What has words of the
    question does not wait for ever either: the first of a ranking waits for 1 of the other, the second for 3, the third
    for 7, and so on. Fused and BM25 scores of two searches do not compare; where there is no cosine, they take turns.
    """
    nearest, waiting = (_nearest(passages), _nearest(resources)), (_patience(passages), _patience(resources))
    at_passage = at_resource = 0
    while at_passage < len(passages) and at_resource < len(resources):
        passage_is_due = at_resource >= waiting[0][at_passage]
        if passage_is_due != (at_passage >= waiting[1][at_resource]):
            passage_first = passage_is_due
        elif -math.inf in (cosines := (nearest[0][at_passage], nearest[1][at_resource])):
            passage_first = at_passage <= at_resource
        else:
            passage_first = cosines[0] >= cosines[1]
        yield passages[at_passage] if passage_first else resources[at_resource]
        at_passage, at_resource = at_passage + passage_first, at_resource + (not passage_first)
    yield from passages[at_passage:]
    yield from resources[at_resource:]


def _nearest(ranking: Sequence[Match]) -> list[float]:
    """The highest cosine among each match and those after it, minus infinity where there is none."""
    return _from_the_end(max, [-math.inf if match.score is None else match.score for match in ranking])


def _patience(ranking: Sequence[Match]) -> list[float]:
    """How many of the other ranking may come before each match, for its own words or of one that waits behind it."""
    found_by_words = [match.lexical_rank is not None for match in ranking]
    return _from_the_end(min, [2.0**place - 1 if found else math.inf for place, found in enumerate(found_by_words, 1)])


def _from_the_end(choose: Callable[[float, float], float], values: Sequence[float]) -> list[float]:
    return list(accumulate(reversed(values), choose))[::-1]


class _Draft:
    """A context in the making."""

    def __init__(self, beside: Mapping[Place, FileChunk], budget: int, chunks_per_file: int) -> None:
        self._beside = beside
        self._budget = budget
        self._chunks_per_file = chunks_per_file
        self._files: dict[int, _File] = {}
        self._tokens_of_file: dict[int, int] = {}
        self._tokens_of_run: dict[tuple[int, ...], int] = {}
        self._resources: list[tuple[int, QuotedResource]] = []
        self._tokens = 0
        self._quoted: list[tuple[list[str], Place | None]] = []
        self._quoting: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        self._left_out = {"budget": 0, "duplicates": 0, "per_file": 0}

    def add(self, match: Match, rank: int) -> None:
        """Quote a match, or count why not."""
        reason = self._add_chunk(match, rank) if isinstance(match, FileChunkMatch) else self._add_resource(match, rank)
        if reason is not None:
            self._left_out[reason] += 1

    def finish(self) -> Context:
        """What is quoted by now."""
        ranked: list[tuple[int, Quoted]] = [*self._resources]
        for file_id, file in self._files.items():
            ranked += [_passage(file_id, file, run) for run in _runs(file)]
        items = tuple(item for _, item in sorted(ranked, key=lambda one: one[0]))
        text = "\n\n".join(f"[{number}] {item.source}\n{item.text}" for number, item in enumerate(items, start=1))
        return Context(items, text, count_tokens(text), LeftOut(**self._left_out))

    def _add_resource(self, match: ResourceMatch, rank: int) -> str | None:
        gist = _gist(match.embedding_text)
        if self._is_known(gist, None):
            return "duplicates"
        resource = QuotedResource(match.entity_type, match.entity_id, match.name, match.score, match.embedding_text)
        tokens = _tokens_of(resource)
        if self._tokens + tokens > self._budget:
            return "budget"
        self._tokens += tokens
        self._resources.append((rank, resource))
        self._quote(gist, None)
        return None

    def _add_chunk(self, match: FileChunkMatch, rank: int) -> str | None:
        file = self._files.get(match.file_id) or _File(match.file_name)
        if match.position in file.pieces:  # it came along with one beside it
            file.scores[match.position] = match.score
            file.ranks[match.position] = rank
            return None
        gist = _gist(match.text)
        if self._is_known(gist, (match.file_id, match.position)):
            return "duplicates"
        room = self._chunks_per_file - len(file.pieces)
        if room < 1:
            return "per_file"
        companions = self._companions(match, file)[: room - 1]
        while True:
            extended = _File(
                file.name,
                {**file.pieces, match.position: match, **{one.position: one for one in companions}},
                {**file.scores, match.position: match.score},
                {**file.ranks, match.position: rank},
            )
            tokens = sum(self._tokens_of(match.file_id, extended, run) for run in _runs(extended))
            if self._tokens - self._tokens_of_file.get(match.file_id, 0) + tokens <= self._budget:
                break
            if not companions:
                return "budget"
            companions.pop()
        self._tokens += tokens - self._tokens_of_file.get(match.file_id, 0)
        self._tokens_of_file[match.file_id] = tokens
        self._files[match.file_id] = extended
        self._quote(gist, (match.file_id, match.position))
        for piece in companions:
            self._quote(_gist(piece.text), (match.file_id, piece.position))
        return None

    def _tokens_of(self, file_id: int, file: _File, run: Sequence[Piece]) -> int:
        """Counted once for each run: a file has many that another chunk of it does not touch."""
        chunk_ids = tuple(piece.chunk_id for piece in run)
        if chunk_ids not in self._tokens_of_run:
            self._tokens_of_run[chunk_ids] = _tokens_of(_passage(file_id, file, run)[1])
        return self._tokens_of_run[chunk_ids]

    def _companions(self, match: FileChunkMatch, file: _File) -> list[FileChunk]:
        """The chunks after and before that complete the passage's sentences, and are not quoted yet."""
        after = self._beside.get((match.file_id, match.position + 1))
        before = self._beside.get((match.file_id, match.position - 1))
        wanted: list[FileChunk | None] = [
            after if after is not None and not _COMPLETE.search(match.text) else None,
            before if before is not None and not _COMPLETE.search(before.text) else None,
        ]
        return [
            piece
            for piece in wanted
            if piece is not None
            and piece.position not in file.pieces
            and not self._is_known(_gist(piece.text), (match.file_id, piece.position))
        ]

    def _quote(self, gist: _Gist, place: Place | None) -> None:
        triples, codes = gist
        for triple in triples:
            self._quoting[triple].append(len(self._quoted))
        self._quoted.append((codes, place))

    def _is_known(self, gist: _Gist, place: Place | None) -> bool:
        """Whether nearly the same is quoted; chunks that follow one another share text, and are merged instead."""
        triples, codes = gist
        shared = Counter(number for triple in triples for number in self._quoting.get(triple, ()))
        for number, count in shared.items():
            known_codes, other = self._quoted[number]
            if place is not None and other is not None and place[0] == other[0] and abs(place[1] - other[1]) == 1:
                continue
            if count < ALIKE * len(triples):
                continue
            to_match = iter(known_codes)
            if all(code in to_match for code in codes):
                return True
        return False


def _runs(file: _File) -> list[list[Piece]]:
    """The file's chunks, those together that follow one another."""
    runs: list[list[Piece]] = []
    for _, piece in sorted(file.pieces.items()):
        if runs and (piece.position == runs[-1][-1].position + 1 or piece.char_start < runs[-1][-1].char_end):
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return runs


def _passage(file_id: int, file: _File, run: Sequence[Piece]) -> tuple[int, Passage]:
    """Chunks that follow one another as a passage, after its best rank."""
    found = [piece.position for piece in run if piece.position in file.ranks]
    scores = [score for position in found if (score := file.scores[position]) is not None]
    pages_from = [piece.page_from for piece in run if piece.page_from is not None]
    pages_to = [piece.page_to for piece in run if piece.page_to is not None]
    passage = Passage(
        file_id=file_id,
        file_name=file.name,
        page_from=min(pages_from, default=None),
        page_to=max(pages_to, default=None),
        char_start=run[0].char_start,
        char_end=max(piece.char_end for piece in run),
        chunk_ids=tuple(piece.chunk_id for piece in run),
        score=max(scores, default=None),
        text=_merged(run),
    )
    return min(file.ranks[position] for position in found), passage


def _merged(run: Sequence[Piece]) -> str:
    """The text of chunks that follow one another. What lies between two that do not touch is white space."""
    text, end = run[0].text, run[0].char_end
    for piece in run[1:]:
        gap = piece.char_start - end
        if gap >= 0:
            text += ("", "\n")[gap] if gap < 2 else "\n\n"
            text += piece.text
        else:
            text += piece.text[-gap:]
        end = max(end, piece.char_end)
    return text


def _tokens_of(item: Quoted) -> int:
    return _HEADING_TOKENS + count_tokens(item.source) + 1 + count_tokens(item.text)


def _gist(text: str) -> _Gist:
    """The triples of the words of a text, and its numbers and codes (what has a digit or capitals only) in order."""
    words = re.findall(r"\w+", text.lower())
    triples = frozenset(zip(words, words[1:], words[2:], strict=False)) or frozenset([tuple(words)])
    return triples, [one for one in _NUMBER_OR_CODE.findall(text) if one.isupper() or re.search(r"\d", one)]
