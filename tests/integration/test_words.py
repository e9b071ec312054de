"""What texts are found by, as the database makes it: their language, their words, and how questions meet them."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Literal

import asyncpg
import pytest

from services.chassis.kernel.scope import AccessScope
from services.chassis.postgres.pool import create_pool
from services.embeddings.adapters.postgres.lexical import renew_languages, renew_words
from services.search.adapters.postgres.engine import Bounds
from services.search.adapters.postgres.file_chunks import PostgresFileChunkIndex
from services.search.application.ports import Question
from services.search.domain.criteria import FileChunkSearchCriteria
from services.search.domain.fusion import Fusion
from tests.support.postgres import Database
from tests.support.search import TENANT, Index, IndexedChunk, direction

EAST = direction(1, 0)

SAID = {
    "es": "La bomba está en el sótano de la fábrica, y los técnicos la revisan cada mes.",
    "en": "The pump is in the basement of the plant, and it is checked by the crew every month.",
    "fr": "La pompe est installée dans le sous-sol de l'usine, et les techniciens la vérifient chaque mois.",
    "pt": "A bomba está no porão da fábrica, e os técnicos não a verificam todos os meses.",
    "it": "La pompa si trova nel seminterrato della fabbrica, e i tecnici la controllano ogni mese.",
    "de": "Die Pumpe steht im Keller der Fabrik und wird jeden Monat von den Technikern geprüft.",
    "nl": "De pomp staat in de kelder van de fabriek en wordt elke maand door het team nagekeken.",
    "ca": "La bomba és al soterrani de la fàbrica, i els tècnics la revisen amb cura cada mes.",
    "gl": "A bomba está no soto da fábrica, e os técnicos non a revisan máis ca unha vez ó mes.",
    "ro": "Pompa se află în subsolul fabricii și este verificată de tehnicieni în fiecare lună.",
    "sv": "Pumpen finns i källaren och den ska kontrolleras av teknikerna varje månad, inte oftare.",
    "da": "Pumpen er i kælderen, og den bliver efterset af teknikerne hver måned, men ikke af os.",
    "fi": "Pumppu on kellarissa ja se on myös tarkastettava joka kuukausi, mutta ei useammin.",
    "hu": "A szivattyú az alagsorban van, és minden hónapban ellenőrizni kell, de nem többször.",
    "tr": "Pompa bodrumda ve bu pompa her ay ekip tarafından kontrol edilir, ama daha sık değil.",
    "pl": "Pompa jest w piwnicy i nie jest sprawdzana przez technika, ale tylko przez nas.",
    "cs": "Čerpadlo je ve sklepě a není to jen pro nás, ale také pro ty, kteří ho používají.",
    "ru": "Насос находится в подвале, и его проверяют каждый месяц, но не чаще, так как это дорого.",
    "uk": "Насос є у підвалі, і його перевіряють щомісяця, але не частіше, що теж добре для нас.",
    "el": "Η αντλία είναι στο υπόγειο του εργοστασίου και ελέγχεται κάθε μήνα από τους τεχνικούς.",
    "und": "IGE12 P-4711/B 12 bar",
}
"""The same in many languages."""

UNTOLD = (
    *("", "Estado", "bomba", "Sea water", "La bomba IGE12 de la planta.", "圧力は高い。ポンプを止める", "ปั๊มอยู่ชั้นใต้ดิน"),
    *("Pampu ipo chini ya kiwanda na hukaguliwa kila mwezi.", "the quick la rápida die schnelle"),
)

INFLECTED = (
    *(("es", "bombas", "bomba"), ("en", "pumps", "pump"), ("fr", "usines", "usine"), ("pt", "válvulas", "valvula")),
    *(("it", "pompe", "pompa"), ("de", "Pumpen", "Pumpe"), ("nl", "pompen", "pomp"), ("ca", "bombes", "bomba")),
    *(("ro", "pompe", "pompa"), ("sv", "pumpar", "pump"), ("da", "pumper", "pumpe"), ("no", "pumper", "pumpe")),
    *(("fi", "pumput", "pumpun"), ("hu", "gépek", "gep"), ("tr", "pompalar", "pompa")),
    *(("ru", "насосы", "насос"), ("el", "πόρτες", "πορτα"), ("id", "pompanya", "pompa"), ("xx", "pompa", "pompa")),
)


BESIDE = (
    *(
        "Bomba centrífuga",
        SAID["es"],
        "La bomba de la planta.",
        "Bombas, válvulas",
        "12 345",
        "水泵的压力很高",
        "Насос",
    ),
    *(" ".join(["Pampu ipo chini ya kiwanda, na hukaguliwa."] * 12), SAID["fr"], *[SAID["es"]] * 8),
    *(*[SAID["en"]] * 9, "Relief valves", "Seal, 12 mm", SAID["es"], *[SAID["en"]] * 8),
)
"""A file in two languages, with passages of a few words, of others, of none, and long ones in what is in no row."""


async def language(tables: Index, text: str) -> str:
    told: str = await tables.connection.fetchval("SELECT cauce_language($1)", text)
    return told


async def test_languages_are_told_apart_and_not_where_votes_are_few_or_equal(tables: Index) -> None:
    assert {tag: await language(tables, text) for tag, text in SAID.items()} == {tag: tag for tag in SAID}
    assert {text: await language(tables, text) for text in UNTOLD} == dict.fromkeys(UNTOLD, "und")


async def languages_around(tables: Index, texts: Sequence[str]) -> dict[str, str]:
    rows = await tables.connection.fetch("SELECT * FROM cauce_languages_around($1)", texts)
    return {texts[row["place"] - 1]: row["language"] for row in rows}


async def test_a_passage_that_does_not_tell_its_language_is_in_that_of_the_passages_around_it(tables: Index) -> None:
    assert await languages_around(tables, BESIDE) == {
        **dict.fromkeys(("Bomba centrífuga", "La bomba de la planta.", "Bombas, válvulas"), "es"),
        **dict.fromkeys(("Relief valves", "Seal, 12 mm"), "en"),
    }
    assert await languages_around(tables, ["Bomba centrífuga", "Motor"]) == {}, "nothing tells"
    russian = [SAID["ru"], "Насос", "Pump P-4711", SAID["ru"]]
    assert await languages_around(tables, russian) == {"Насос": "ru"}
    assert await languages_around(tables, []) == {}


async def find(search_pool: asyncpg.Pool, space: int, text: str) -> list[str]:
    index = PostgresFileChunkIndex(search_pool, Bounds(ef_search=200, exact_up_to=2_000, timeout_seconds=20))
    asked = Question(space, None, text)
    found = await index.search(AccessScope(TENANT), asked, FileChunkSearchCriteria(text), Fusion())
    return [match.text for match in found.matches]


async def test_a_word_is_found_in_each_language_by_its_other_forms_and_without_accents(
    tables: Index, search_pool: asyncpg.Pool
) -> None:
    space = await tables.add_space()
    for tag, text, _ in INFLECTED:
        await tables.add_file(space, [IndexedChunk(f"{tag}9 {text}", EAST)], languages=[tag])

    for tag, text, asked in INFLECTED:
        assert f"{tag}9 {text}" in await find(search_pool, space, asked), tag


async def test_a_question_is_asked_in_the_languages_of_the_tenant_only(tables: Index) -> None:
    forms = await tables.connection.fetch("SELECT * FROM cauce_question_forms('bombas antiguas', '{es}')")

    assert {(row["word"], row["form"]) for row in forms} == {
        *{("bombas", "bomb"), ("bombas", "bombas")},
        *{("antiguas", "antigu"), ("antiguas", "antiguas")},
    }


async def test_the_commonest_words_of_a_questions_language_are_not_looked_for_in_any_form(tables: Index) -> None:
    cases = {
        "¿Cuántas bombas hay en el sótano?": {"bombas", "sótano"},
        "Segun el manual, cuanto pesa la bomba": {"manual", "pesa", "bomba"},
        "How many pumps are in the basement?": {"pumps", "basement"},
        "Care sunt pompele din subsol și cum se verifică?": {"pompele", "subsol", "verifică"},
        "cuántas": {"cuántas"},
        "segun la bomba de la planta": {"bomba", "planta"},
        "ventas mes mayo": {"ventas", "mes", "mayo"},
    }
    for text, words in cases.items():
        asked = await tables.connection.fetch("SELECT word FROM cauce_question_forms($1, '{ca,en,es,ro}')", text)
        assert {row["word"] for row in asked} == words, text


async def test_words_that_say_nothing_are_left_out_of_questions_that_have_others(
    tables: Index, search_pool: asyncpg.Pool
) -> None:
    space = await tables.add_space()
    texts = ("Estado", "Sea water", "Hay son cubano en el estado de la sala que es de todos.", "Otra cosa.")
    for text in texts:
        await tables.add_file(space, [IndexedChunk(text, EAST)])
    cases = {
        "Estado": {texts[0], texts[2]},
        "estado": {texts[0], texts[2]},
        "sea": {texts[1]},
        "hay": {texts[2]},
        "son": {texts[2]},
        "cosa de la que": {texts[3]},
        "de la que": set(),
    }

    assert {asked: set(await find(search_pool, space, asked)) for asked in cases} == cases


async def test_languages_that_were_told_alone_are_told_again_by_the_passages_around(
    tables: Index, search_pool: asyncpg.Pool, database: Database
) -> None:
    space = await tables.add_space()
    await tables.add_file(space, [IndexedChunk(text, EAST) for text in BESIDE])
    declared = await tables.add_file(
        space, [IndexedChunk("Bombas", EAST), IndexedChunk(SAID["en"], EAST)], languages=["es"] * 2
    )
    waiting = await tables.add_file(
        space, [IndexedChunk("Bombas", EAST), IndexedChunk(SAID["es"], EAST)], status="PENDING"
    )
    assert "Bombas, válvulas" not in await find(search_pool, space, "válvula")
    before = await tables.connection.fetch("SELECT id, xmin FROM module_embeddings_file_chunk ORDER BY id")

    async with await create_pool(database.embeddings_url, application_name="test") as pool:
        await renew_languages(pool)

    rows = await tables.connection.fetch(
        "SELECT id, xmin, text, language FROM module_embeddings_file_chunk ORDER BY id"
    )
    changed = {
        row["text"]: row["language"] for row, was in zip(rows, before, strict=True) if row["xmin"] != was["xmin"]
    }
    assert changed == await languages_around(tables, BESIDE)
    assert "Bombas, válvulas" in await find(search_pool, space, "válvula")
    files = await tables.connection.fetch("SELECT file_id FROM module_embeddings_files_file WHERE NOT languages_told")
    assert [row["file_id"] for row in files] == [waiting]
    assert declared < waiting


@pytest.mark.parametrize("spelling", ["NFC", "NFD"])
async def test_letters_are_found_however_they_are_composed_and_what_has_no_width_parts_no_word(
    tables: Index, search_pool: asyncpg.Pool, spelling: Literal["NFC", "NFD"]
) -> None:
    space = await tables.add_space()
    plain = "El caudalímetro mide la inyección y la presión vía_3 del señor Núñez."
    written = unicodedata.normalize(spelling, plain.replace("caudal", "cau\u200bdal").replace("ñor", "\u00adñor"))
    await tables.add_file(space, [IndexedChunk(written, EAST)])

    for word in ("caudalímetro", "inyeccion", "presión", "PRESIÓN", "vía_3", "via3", "señor", "Núñez", "pre\u200bsión"):
        for asked in (word, unicodedata.normalize("NFD", word)):
            assert await find(search_pool, space, asked) == [written], asked


async def test_words_of_scripts_without_spaces_are_found_by_pairs_of_signs(
    tables: Index, search_pool: asyncpg.Pool
) -> None:
    space = await tables.add_space()
    texts = ("ポンプの圧力は高い。", "水泵的压力很高", "펌프를 점검한다", "ปั๊มอยู่ชั้นใต้ดิน")
    for text in texts:
        await tables.add_file(space, [IndexedChunk(text, EAST)])
    cases = {"圧力": texts[0], "ポンプ": texts[0], "圧": texts[0], "压力": texts[1], "펌프": texts[2], "ใต้ดิน": texts[3]}

    for asked, text in cases.items():
        assert (await find(search_pool, space, asked))[:1] == [text], asked
    assert await find(search_pool, space, "温度") == []


async def test_words_made_by_the_rules_of_before_are_made_again(tables: Index, database: Database) -> None:
    space = await tables.add_space()
    rules = await tables.connection.fetchval("SELECT pg_get_functiondef('cauce_language(text)'::regprocedure)")
    await tables.connection.execute(
        "CREATE OR REPLACE FUNCTION cauce_language(content text) RETURNS text LANGUAGE sql IMMUTABLE RETURN 'es'"
    )
    await tables.add_file(space, [IndexedChunk(text, EAST) for text in SAID.values()] * 11)
    await tables.connection.execute("UPDATE module_embeddings_file_chunk SET words_edition = 1, text = text")
    await tables.connection.execute(rules)

    async with await create_pool(database.embeddings_url, application_name="test") as pool:
        await renew_words(pool)

    told = await tables.connection.fetch(
        "SELECT language, lexemes FROM module_embeddings_file_chunk ORDER BY position LIMIT $1", len(SAID)
    )
    assert [row["language"] for row in told] == list(SAID)
    assert "usin" in told[list(SAID).index("fr")]["lexemes"].split()
    left = "SELECT count(*) FROM module_embeddings_file_chunk WHERE words_edition < 2"
    assert await tables.connection.fetchval(left) == 0
