"""The catalogue from outside: what it answers, what it stores, what it announces."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from services.chassis.resource_types import FieldKind, load_resource_types
from services.files.application.import_resources import GROUP
from services.files.entrypoints.http.resources import MAX_IMPORTS, MAX_RESOURCE_BYTES
from tests.support.files import TENANT, FilesServer, eventually, raw_request, read_answer, running_files
from tests.support.postgres import Database

TYPE = "variable"
TABLE = "module_variable_variable"
DEFINITION = {
    "name": "Caudal de entrada",
    "description": "Caudal medido a la entrada de la planta 🌊",
    "unit": "m³/h",
    "minimum": 0.1,
    "aliases": ["FT-101", "ft 101"],
    "customer": 3,
}

BAD_PUTS: list[tuple[str, str | bytes, int, str, str]] = [
    ("variable/1", '{"units": "m"}', 422, "INVALID_RESOURCE", "units"),
    ("variable/1", '{"id": 1}', 422, "INVALID_RESOURCE", "id"),
    ("variable/1", '{"minimum": "low"}', 422, "INVALID_RESOURCE", "minimum"),
    ("variable/1", '{"minimum": NaN}', 422, "INVALID_RESOURCE", "minimum"),
    ("variable/1", '{"minimum": 1e999}', 422, "INVALID_RESOURCE", "minimum"),
    ("variable/1", json.dumps({"unit": "x" * 61}), 422, "INVALID_RESOURCE", "unit"),
    ("variable/1", '{"unit": "\\u0000"}', 422, "INVALID_RESOURCE", "unit"),
    ("variable/1", '{"unit": "\\ud83d"}', 422, "INVALID_RESOURCE", "unit"),
    ("variable/1", '{"\\ud83d\\u0000": 1}', 422, "INVALID_RESOURCE", "\\ud83d\\x00"),
    ("variable/1", '{"aliases": ["a", "\\u0000"]}', 422, "INVALID_RESOURCE", "aliases[1]"),
    ("variable/1", '{"name": ""}', 422, "INVALID_RESOURCE", "name"),
    ("variable/0", "{}", 422, "INVALID_RESOURCE", "id"),
    ("variable/-1", "{}", 422, "INVALID_RESOURCE", "id"),
    (f"variable/{2**63}", "{}", 422, "INVALID_RESOURCE", "id"),
    (f"variable/{'9' * 3000}", "{}", 422, "INVALID_RESOURCE", "id"),
    ("variable/one", "{}", 422, "INVALID_REQUEST", "path.id"),
    ("variable/1", "", 422, "INVALID_REQUEST", "body"),
    ("variable/1", "{", 422, "INVALID_REQUEST", "body"),
    ("variable/1", b"\xff", 422, "INVALID_REQUEST", "body"),
    ("variable/1", "[" * 100_000, 422, "INVALID_REQUEST", "body"),
    ("variable/1", "[]", 422, "INVALID_RESOURCE", "body"),
    ("variable/1", json.dumps({"unit": "x" * MAX_RESOURCE_BYTES}), 422, "INVALID_REQUEST", "body"),
    ("variable/1?name=a", "{}", 422, "INVALID_REQUEST", "query.name"),
    ("valve/1", "{}", 404, "UNKNOWN_RESOURCE_TYPE", "type"),
    ("files/1", "{}", 404, "UNKNOWN_RESOURCE_TYPE", "type"),
    ("%00%ff'%22;/1", "{}", 404, "UNKNOWN_RESOURCE_TYPE", "type"),
]


@pytest.fixture
async def files(database: Database, tmp_path: Path) -> AsyncIterator[FilesServer]:
    async with running_files(database, tmp_path / "objects") as server:
        yield server


@pytest.fixture
async def others(database: Database, tmp_path: Path) -> AsyncIterator[FilesServer]:
    """The same catalogue, as another tenant sees it."""
    async with running_files(database, tmp_path / "objects", tenant="other") as server:
        yield server


async def put(server: FilesServer, resource_id: int, **definition: Any) -> dict[str, Any]:
    answer = await server.http.put(f"/resources/{TYPE}/{resource_id}", json=definition)
    assert answer.status_code in {200, 201}, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def batch(server: FilesServer, rows: Iterable[object], type_name: str = TYPE) -> dict[str, Any]:
    content = "\n".join(json.dumps(row) for row in rows)
    answer = await server.http.post(f"/resources/{type_name}:batch", content=content)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def stored(server: FilesServer) -> dict[int, str]:
    rows = await server.query(f"SELECT id, name FROM {TABLE} ORDER BY id")
    return {row["id"]: row["name"] for row in rows}


def counts(report: dict[str, Any]) -> dict[str, int]:
    return {name: count for name, count in report.items() if name not in {"errors", "errors_not_listed"} and count}


def changed(resource_id: int, name: str, kind: str = "VariableChanged") -> tuple[str, dict[str, Any]]:
    return kind, {"id": resource_id, "name": name, "tenant": TENANT}


async def test_a_resource_is_made_announced_and_read_back(files: FilesServer) -> None:
    answer = await files.http.put(f"/resources/{TYPE}/7", json=DEFINITION)

    assert answer.status_code == 201
    body = answer.json()
    absent = {field.name: None for field in load_resource_types()[TYPE].fields}
    system = {key: body[key] for key in ("revision", "created_at", "updated_at")}
    assert body == {"type": TYPE, "id": 7, **absent, **DEFINITION, **system}
    assert body["created_at"] <= body["updated_at"]
    assert (await files.http.get(f"/resources/{TYPE}/7")).json() == body
    assert await files.events() == [changed(7, "Caudal de entrada")]


async def test_every_field_of_every_type_is_stored_as_it_was_sent(files: FilesServer) -> None:
    values = {
        FieldKind.TEXT: "á\n'\"\\",
        FieldKind.INTEGER: -(2**63),
        FieldKind.NUMBER: 5e-324,
        FieldKind.BOOLEAN: True,
        FieldKind.TIMESTAMP: "0001-01-01T00:00:00Z",
        FieldKind.REFERENCE: 2**63 - 1,
        FieldKind.REFERENCES: [2, 1, 2**63 - 1],
        FieldKind.TEXTS: ["b, {c}", "", "a"],
    }
    for type_name, type_ in load_resource_types().items():
        definition = {field.name: values[field.kind] for field in type_.fields}
        url = f"/resources/{type_name}/{2**63 - 1}"

        first = await files.http.put(url, json=definition)
        again = await files.http.put(url, json=definition)

        assert (first.status_code, again.status_code) == (201, 200)
        assert {name: first.json()[name] for name in definition} == definition
        assert first.json() == again.json()
        assert first.json()["name"] == f"{type_name} {2**63 - 1}"
        assert (await files.events())[-1][0] == f"{type_.event_stem}Changed"
    assert len(await files.events()) == len(load_resource_types())


async def test_putting_what_is_there_changes_nothing(files: FilesServer) -> None:
    before = await put(files, 7, **DEFINITION)
    assert await put(files, 7, **DEFINITION, path=None) == before
    assert counts(await batch(files, [{"id": 7, **DEFINITION}])) == {"unchanged": 1}
    assert await files.events() == [changed(7, "Caudal de entrada")]


async def test_a_put_replaces_the_whole_definition(files: FilesServer) -> None:
    before = await put(files, 7, **DEFINITION)

    after = await put(files, 7, unit="l/s")

    assert after == {
        **dict.fromkeys(before),
        "type": TYPE,
        "id": 7,
        "name": "variable 7",
        "unit": "l/s",
        "revision": after["revision"],
        "created_at": before["created_at"],
        "updated_at": after["updated_at"],
    }
    assert after["revision"] > before["revision"]
    assert after["updated_at"] > before["updated_at"]
    assert await files.events() == [changed(7, "Caudal de entrada"), changed(7, "variable 7")]


async def test_a_deleted_resource_is_gone_and_announced_once(files: FilesServer) -> None:
    before = await put(files, 7, name="a")

    first = await files.http.delete(f"/resources/{TYPE}/7")
    second = await files.http.delete(f"/resources/{TYPE}/7")

    assert first.status_code == 204
    assert (second.status_code, second.json()["code"]) == (404, "RESOURCE_NOT_FOUND")
    assert (await files.http.get(f"/resources/{TYPE}/7")).json()["code"] == "RESOURCE_NOT_FOUND"
    assert await files.events() == [changed(7, "a"), changed(7, "a", "VariableDeleted")]
    assert (await put(files, 7, name="a"))["revision"] > before["revision"]


async def test_the_list_is_paged_in_order_of_id(files: FilesServer) -> None:
    await batch(files, [{"id": number, "name": f"n{number}"} for number in (5, 3, 9, 1)])

    first = (await files.http.get(f"/resources/{TYPE}", params={"limit": 3})).json()
    second = (await files.http.get(f"/resources/{TYPE}", params={"limit": 3, "after": first["next"]})).json()

    assert [one["id"] for one in first["resources"]] == [1, 3, 5]
    assert first["next"] == 5
    assert first["resources"][0] == (await files.http.get(f"/resources/{TYPE}/1")).json()
    assert ([one["id"] for one in second["resources"]], second["next"]) == ([9], None)


async def test_another_tenants_resource_is_neither_seen_nor_touched(files: FilesServer, others: FilesServer) -> None:
    mine = await put(files, 7, name="mine")

    answers = [
        await others.http.get(f"/resources/{TYPE}/7"),
        await others.http.delete(f"/resources/{TYPE}/7"),
        await others.http.put(f"/resources/{TYPE}/7", json={"name": "mine"}),
    ]
    report = await batch(others, [{"id": 7, "name": "theirs"}, {"id": 7, "deleted": True}, {"id": 8}])

    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [
        (404, "RESOURCE_NOT_FOUND"),
        (404, "RESOURCE_NOT_FOUND"),
        (409, "RESOURCE_ID_TAKEN"),
    ]
    assert all("mine" not in answer.text and TENANT not in answer.text for answer in answers)
    assert counts(report) == {"created": 1, "unchanged": 1, "failed": 1}
    assert [(error["line"], error["id"], error["code"]) for error in report["errors"]] == [(1, 7, "RESOURCE_ID_TAKEN")]
    assert [one["id"] for one in (await others.http.get(f"/resources/{TYPE}")).json()["resources"]] == [8]
    assert (await files.http.get(f"/resources/{TYPE}/7")).json() == mine

    await files.http.delete(f"/resources/{TYPE}/7")
    assert (await put(others, 7, name="theirs"))["name"] == "theirs"


async def test_a_bad_put_is_a_clear_error_and_changes_nothing(files: FilesServer) -> None:
    for path, content, status, code, where in BAD_PUTS:
        answer = await files.http.put(f"/resources/{path}", content=content)

        body = answer.json()
        assert (path[:99], body["code"], body["where"]) == (path[:99], code, where), body
        assert answer.status_code == status
        assert len(answer.text) < 1_000
    assert await files.events() == []
    assert await stored(files) == {}


async def test_what_is_not_there_is_not_found(files: FilesServer) -> None:
    absent = {
        "variable/0": (422, "INVALID_RESOURCE"),
        f"variable/{2**63}": (422, "INVALID_RESOURCE"),
        "variable/9": (404, "RESOURCE_NOT_FOUND"),
        "valve/9": (404, "UNKNOWN_RESOURCE_TYPE"),
    }
    for method in ("GET", "DELETE"):
        for path, expected in absent.items():
            answer = await files.http.request(method, f"/resources/{path}")
            assert (answer.status_code, answer.json()["code"]) == expected


async def test_a_resource_is_announced_again_as_it_is_under_a_new_revision(files: FilesServer) -> None:
    created = (await files.http.put("/resources/variable/1", json=DEFINITION)).json()
    answer = await files.http.post("/resources/variable/1/retry")
    assert answer.status_code == 202, answer.text
    first, second = await files.events()
    assert first == second
    now = (await files.http.get("/resources/variable/1")).json()
    assert now.pop("revision") > created.pop("revision")
    assert now.pop("updated_at") > created.pop("updated_at")
    assert now == created
    assert (await files.http.post("/resources/variable/2/retry")).json()["code"] == "RESOURCE_NOT_FOUND"


@pytest.mark.parametrize("written", ["1.0", "1_0", "+1", "%201", "१"])
async def test_an_id_is_written_in_digits(files: FilesServer, written: str) -> None:
    answer = await files.http.put(f"/resources/variable/{written}", json=DEFINITION)
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST")


async def test_a_bad_page_is_refused(files: FilesServer) -> None:
    for query in ("limit=0", "limit=1001", "after=0", "page=1"):
        answer = await files.http.get(f"/resources/{TYPE}?{query}")
        assert (answer.status_code, answer.json()["where"]) == (422, f"query.{query.partition('=')[0]}")


async def test_an_unknown_type_is_answered_with_the_known(files: FilesServer) -> None:
    answers = [await files.http.get("/resources/valve"), await files.http.post("/resources/valve:batch", content="{}")]
    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (404, "UNKNOWN_RESOURCE_TYPE")
        assert answer.json()["remedy"] == f"known are: {', '.join(load_resource_types())}"


async def test_of_writers_at_once_the_last_wins_and_every_change_is_announced_in_order(files: FilesServer) -> None:
    names = [f"name {number}" for number in range(20)]

    async def delete() -> None:
        await files.http.delete(f"/resources/{TYPE}/7")

    answers = await asyncio.gather(*(put(files, 7, name=name) for name in names))
    events = await files.events()
    assert sorted(event[1]["name"] for event in events) == sorted(names)
    assert await stored(files) == {7: events[-1][1]["name"]}
    by_revision = sorted(answers, key=lambda answer: int(answer["revision"]))
    assert [answer["name"] for answer in by_revision] == [event[1]["name"] for event in events]

    await asyncio.gather(*(put(files, 7, name=name) if number % 3 else delete() for number, name in enumerate(names)))
    kind, payload = (await files.events())[-1]
    assert await stored(files) == ({7: payload["name"]} if kind == "VariableChanged" else {})


async def test_good_rows_of_a_batch_go_on_when_others_are_bad(files: FilesServer) -> None:
    await put(files, 3, name="three")
    await put(files, 4, name="four")
    lines = [
        b'{"id": 1, "name": "one", "unit": "m"}\r',
        b"",
        b'{"id": 2, "minimum": "low"}',
        b"not json",
        b'{"id": 5, "name": "\xff"}',
        b'{"id": 6, "unit": "' + b"x" * MAX_RESOURCE_BYTES + b'"}',
        b'  {"id": 3, "name": "tres"}  ',
        b'{"id": 4, "deleted": true}',
        b'{"id": 8, "deleted": true}',
        b'{"id": 1, "name": "uno"}',
        b'{"id": 9, "name": "nine", "name": "ten"}',
        b'{"id": 3, "deleted": 1}',
    ]

    answer = await files.http.post(f"/resources/{TYPE}:batch", content=b"\n".join(lines))

    report = answer.json()
    assert counts(report) == {"created": 1, "updated": 2, "deleted": 1, "unchanged": 1, "failed": 6}
    assert [(error["line"], error["id"], error["code"]) for error in report["errors"]] == [
        (3, 2, "INVALID_RESOURCE"),
        (4, None, "INVALID_REQUEST"),
        (5, None, "INVALID_REQUEST"),
        (6, None, "INVALID_REQUEST"),
        (11, None, "INVALID_REQUEST"),
        (12, 3, "INVALID_RESOURCE"),
    ]
    assert report["errors"][0] == {
        "line": 3,
        "id": 2,
        "code": "INVALID_RESOURCE",
        "detail": "it must be a finite number; an integer beyond 2^53 only where it is a double as well",
        "where": "minimum",
    }
    assert await stored(files) == {1: "uno", 3: "tres"}
    assert await files.events() == [
        changed(3, "three"),
        changed(4, "four"),
        changed(1, "one"),
        changed(3, "tres"),
        changed(4, "four", "VariableDeleted"),
        changed(1, "uno"),
    ]


async def test_a_batch_of_tens_of_thousands_is_applied_while_it_arrives(files: FilesServer) -> None:
    rows = 20_000

    async def body() -> AsyncIterator[bytes]:
        for start in range(1, rows, 250):
            numbers = range(start, start + 250)
            yield b"".join(b'{"id": %d, "unit": %s}\n' % (n, b'"m"' if n % 100 else b"5") for n in numbers)
            if start == 2 * GROUP + 1:
                await eventually(lambda: files.query(f"SELECT FROM {TABLE} WHERE id = 1"))

    report = (await files.http.post(f"/resources/{TYPE}:batch", content=body())).json()

    assert counts(report) == {"created": 19_800, "failed": 200}
    assert [error["line"] for error in report["errors"]] == list(range(100, rows + 1, 100))
    ((resources, events),) = await files.query(
        f"SELECT (SELECT count(*) FROM {TABLE}), (SELECT count(DISTINCT aggregate_id) FROM module_files_outbox)"
    )
    assert (resources, events) == (19_800, 19_800)


async def test_a_batch_that_breaks_off_can_be_sent_again(files: FilesServer) -> None:
    rows = [{"id": number} for number in range(1, GROUP + 10)]
    content = "\n".join(json.dumps(row) for row in rows).encode()
    head = f"POST /resources/{TYPE}:batch HTTP/1.1\nHost: a\nContent-Length: {len(content) + 1}"
    async with raw_request(files, head) as (_, writer):
        writer.write(content)
        await eventually(lambda: stored(files))

    assert await stored(files) == {number: f"variable {number}" for number in range(1, GROUP + 1)}
    assert counts(await batch(files, rows)) == {"unchanged": GROUP, "created": 9}
    assert len(await files.events()) == GROUP + 9


async def test_a_batch_in_which_nothing_comes_ends_and_says_how_far_it_got(database: Database, tmp_path: Path) -> None:
    async with running_files(database, tmp_path / "objects", upload_idle_seconds=1.0) as files:
        head = f"POST /resources/{TYPE}:batch HTTP/1.1\nHost: a\nContent-Length: 100000"
        async with raw_request(files, head) as (reader, writer):
            writer.write(b"".join(b'{"id": %d}\n' % number for number in range(GROUP + 2)))
            status, body = await read_answer(reader)

    assert (status, body["code"]) == (408, "UPLOAD_INCOMPLETE")
    assert f"{GROUP} rows were applied before and stay so, 1 were refused" in body["detail"]


async def test_a_database_that_goes_away_is_told_with_what_was_applied(files: FilesServer) -> None:
    blocker = await asyncpg.connect(files.database.admin_url)
    try:
        await blocker.execute(f"INSERT INTO {TABLE} (id, tenant_id, name) VALUES ({GROUP + 1}, '{TENANT}', 'a')")
        await blocker.execute("BEGIN")
        await blocker.execute(f"SELECT FROM {TABLE} WHERE id = {GROUP + 1} FOR UPDATE")
        sending = asyncio.create_task(
            files.http.post(
                f"/resources/{TYPE}:batch",
                content="\n".join(json.dumps({"id": number}) for number in range(1, GROUP + 2)),
            )
        )
        waiting = "SELECT pid FROM pg_stat_activity WHERE application_name = 'cauce-files' AND wait_event_type = 'Lock'"
        ((pid,),) = await eventually(lambda: files.query(waiting))
        await files.query("SELECT pg_terminate_backend($1)", pid)
        answer = await sending
    finally:
        await blocker.close()

    assert (answer.status_code, answer.json()["code"]) == (503, "DATABASE_UNAVAILABLE")
    assert f"{GROUP} rows were applied before and stay so" in answer.json()["detail"]
    assert (await stored(files))[GROUP + 1] == "a"


async def test_batches_that_cross_one_another_do_not_deadlock(files: FilesServer) -> None:
    ids = list(range(1, 3 * GROUP))
    forwards = [{"id": number, "name": "forwards"} for number in ids]
    backwards = [{"id": number, "deleted": True} if number % 2 else {"id": number} for number in reversed(ids)]

    reports = await asyncio.gather(*(batch(files, rows) for rows in (forwards, backwards, forwards)))

    assert all(report["failed"] == 0 for report in reports)
    last = {payload["id"]: (kind, payload["name"]) for kind, payload in await files.events()}
    assert await stored(files) == {number: name for number, (kind, name) in last.items() if kind == "VariableChanged"}


async def test_too_many_batches_at_once_are_refused(files: FilesServer) -> None:
    ended = asyncio.Event()

    async def body(batch: int) -> AsyncIterator[bytes]:
        first = 1 + batch * (GROUP + 1)
        yield b"".join(b'{"id": %d}\n' % number for number in range(first, first + GROUP + 1))
        await ended.wait()

    async def are_all_under_way() -> bool:
        return len(await stored(files)) == MAX_IMPORTS * GROUP

    url = f"/resources/{TYPE}:batch"
    sending = [asyncio.create_task(files.http.post(url, content=body(batch))) for batch in range(MAX_IMPORTS)]
    await eventually(are_all_under_way)
    answer = await files.http.post(url, content="")
    ended.set()

    assert (answer.status_code, answer.json()["code"]) == (503, "TOO_MANY_REQUESTS")
    assert [(await each).status_code for each in sending] == [200] * MAX_IMPORTS
