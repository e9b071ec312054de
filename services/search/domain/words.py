"""What can be told of a question without a dictionary: its codes, and whether another wording can ask for the same."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"\w+(?:[-/.]\w+)*")  # a code like P-4711/B whole
_PIECE = re.compile(rf"{_TOKEN.pattern}|[^\w\s/.-]")
_LETTERS = r"[^\W\d_]{1,4}"
_APART = re.compile(rf"(?<!\S)(?:{_LETTERS}\d* )?\d+(?: {_LETTERS} \d+)*(?: {_LETTERS})?(?!\S)")
_MOST_PARTS = 6
_MOST_CODES = 100
_DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d", "-"))
# Without accents: articles, pronouns, prepositions, conjunctions, question words, auxiliaries.
_SPANISH = (
    "a al algo alguien algun alguna algunas alguno algunos ante aquel aquella aquello aqui asi aun cada como con "
    "contra cual cuales cuando cuanta cuantas cuanto cuantos cuya cuyo de del desde donde e el ella ellas ello "
    "ellos en entre era eran eres es esa esas ese eso esos esta estan estas este esto estos fue fueron ha han hay "
    "hasta la las le les lo los mas me mi mis muy ni no nos o otra otras otro otros para pero por porque que quien "
    "quienes se sea ser si sin sobre son su sus tal tambien te tu tus un una unas uno unos u y ya"
)
_ENGLISH = (
    "about after all also am an and any are as at be been but by can could did do does for from had has have he her "
    "here him his how i if in into is it its just me my not of on or our she should so some than that the their "
    "them then there these they this those to too was we were what when where which who why will with would you "
    "your"
)
_FUNCTION_WORDS = frozenset(f"{_SPANISH} {_ENGLISH}".split())


@dataclass(frozen=True, slots=True)
class Wording:
    """A text, and the words of it that are not among the commonest of any language, each with its forms."""

    text: str
    words: Mapping[str, frozenset[str]]

    @property
    def content(self) -> list[frozenset[str]]:
        """The forms of each word that carries meaning."""
        return [forms for word, forms in self.words.items() if _fold(word) not in _FUNCTION_WORDS]


def keeps_the_point(question: Wording, rewritten: Wording, *, context: Wording) -> bool:
    """Whether a rewritten question may still ask the same.

    It keeps every code and number of the question, and more than half of its words that carry meaning; where it has
    none of all these, a word of the context.
    """
    if not has_the_codes(question.text, rewritten.text):
        return False
    said = frozenset().union(*rewritten.content)
    kept = [bool(forms & said) for forms in question.content]
    if kept:
        return 2 * sum(kept) > len(kept)
    return bool(_codes(question.text)) or any(forms & said for forms in context.content)


def has_the_codes(question: str, wording: str) -> bool:
    """Whether another wording says something at all, and has every code and number of the question."""
    says = any(word not in _FUNCTION_WORDS for word in _WORD.findall(_fold(wording).replace("_", " ")))
    return says and _codes(question) <= _codes(wording)


def with_plain_dashes(question: str) -> str:
    """The question with a hyphen for each sign that is typed, or set by a program, in the place of one."""
    return question.translate(_DASHES)


def codes_apart(question: str) -> list[str]:
    """What may be codes whose parts a question has apart: ``p4711``, ``p4711b`` and ``4711b`` of ``P 4711 B``.

    Letters, up to four, and digits take turns, after a first part that may have both; no part is a function word but in
    capitals, and no sign but a dash, a slash or a point is between them. Where one code ends and the next word begins
    cannot be told, so it is every two to six parts in a row, and the first hundred of these.
    """
    pieces = _PIECE.findall(unicodedata.normalize("NFC", question))
    said = " ".join("," if _fold(piece) in _FUNCTION_WORDS and not piece.isupper() else piece for piece in pieces)
    runs = (found.split() for found in _APART.findall(said))
    found = (
        _fold("".join(parts[start:end]))
        for parts in runs
        for start in range(len(parts))
        for end in range(start + 2, min(start + _MOST_PARTS, len(parts)) + 1)
    )
    return list(islice(dict.fromkeys(found), _MOST_CODES))


def _codes(text: str) -> set[str]:
    return {"".join(_WORD.findall(token)) for token in _TOKEN.findall(_fold(text)) if any(map(str.isdigit, token))}


def _fold(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))
