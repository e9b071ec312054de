"""Which words of a question carry what it asks for, as far as that can be told without a dictionary."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"\w+(?:[-/.]\w+)*")  # a code like P-4711/B whole
_STEM = 5  # letters; enough to take "presiones" for "presión"
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


def keeps_the_point(question: str, rewritten: str, *, context: Iterable[str]) -> bool:
    """Whether a rewritten question may still ask the same.

    It keeps every code and number of the question, and a word that carries meaning: one of the question's, or of the
    context where the question has none.
    """
    asked, said = _content(question), _content(rewritten)
    needed = asked or {word for text in context for word in _content(text)}
    return has_the_codes(question, rewritten) and bool(needed & said)


def has_the_codes(question: str, wording: str) -> bool:
    """Whether another wording says something at all, and has every code and number of the question."""
    said = _content(wording)
    return bool(said) and {word for word in _content(question) if _has_digit(word)} <= said


def _content(text: str) -> set[str]:
    content = set()
    for token in _TOKEN.findall(_fold(text)):
        words = _WORD.findall(token)
        if _has_digit(token):
            content.add("".join(words))
        else:
            content |= {word[:_STEM] for word in words if word not in _FUNCTION_WORDS}
    return content


def _fold(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))


def _has_digit(text: str) -> bool:
    return any(letter.isdigit() for letter in text)
