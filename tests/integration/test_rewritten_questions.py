"""Whether a rewritten question still asks for the same, in the languages whose words the database knows."""

from __future__ import annotations

import asyncpg

from services.search.adapters.postgres.wordings import PostgresWordings
from services.search.domain.words import keeps_the_point

CONTEXT = "¿Qué incluye el plan mensual?\nIncluye soporte."
SAME = (
    ("¿y en el plan anual?", "¿Qué incluye el plan anual?"),
    ("y eso cuánto cuesta", "¿Cuánto cuesta el plan mensual?"),
    ("¿Y las PRESIONES?", "¿Qué presión tiene la válvula?"),
    ("Sí, la P-4711/B", "¿Qué presión soporta la bomba P-4711/B?"),
    ("¿y eso?", "¿Qué es el soporte?"),
    ("and in 2024?", "What did the monthly plan include in 2024?"),
    ("Et quelle est sa pression ?", "Quelle est la pression de la soupape PSV-204 ?"),
    ("Und bei welchem Druck öffnet es?", "Bei welchem Druck öffnet das Ventil PSV-204?"),
    ("A jakie jest ciśnienie?", "Jakie jest ciśnienie zaworu PSV-204?"),
    ("А какое у него давление?", "Какое давление у клапана PSV-204?"),
    ("它的压力是多少？", "阀门PSV-204的压力是多少？"),
    ("その圧力はいくらですか", "安全弁PSV-204の圧力はいくらですか"),
)
ANOTHER = (
    ("¿y en el plan anual?", "¿Qué tiempo hace?"),
    ("y eso cuánto cuesta", "¿Qué es eso?"),
    ("Sí, la P-4711/B", "¿Qué presión soporta la bomba P-4711?"),
    ("and in 2024?", "What did the monthly plan include in 2023?"),
    ("¿y eso?", "¿Qué es la vida?"),
    ("¿y eso?", "¿?"),
    ("Quelle est la pression de la soupape ?", "Quelle est votre couleur préférée ?"),
    ("Bei welchem Druck öffnet das Ventil?", "Bei welchem Arzt ist das Kind?"),
    ("Was ist der Druck?", "Was ist der Sinn des Lebens?"),
    ("Qual é a pressão da válvula?", "Qual é a sua cor preferida?"),
    ("Qual è la pressione della valvola?", "Qual è il tuo colore preferito?"),
    ("Wat is de druk van de klep?", "Wat is de kleur van de lucht?"),
    ("Jakie jest ciśnienie zaworu?", "Jakie jest twoje ulubione jedzenie?"),
    ("Какое давление у клапана?", "Какое у вас любимое время года?"),
    ("阀门的压力是多少？", "你最喜欢的颜色是什么？"),
)


async def test_a_rewriting_that_keeps_words_codes_and_numbers_may_ask_the_same(search_pool: asyncpg.Pool) -> None:
    assert await kept(search_pool, SAME) == list(SAME)


async def test_a_rewriting_that_loses_what_was_asked_is_known(search_pool: asyncpg.Pool) -> None:
    assert await kept(search_pool, ANOTHER) == []


async def kept(search_pool: asyncpg.Pool, pairs: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    wordings = PostgresWordings(search_pool, timeout_seconds=20)
    (context,) = await wordings.read([CONTEXT])
    read = [await wordings.read(pair) for pair in pairs]
    return [
        pair for pair, (asked, said) in zip(pairs, read, strict=True) if keeps_the_point(asked, said, context=context)
    ]
