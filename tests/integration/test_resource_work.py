"""Resources from an event to a vector, on the real tables."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from contracts.events.envelope import Event
from services.chassis.kernel.scope import AccessScope
from services.chassis.postgres.pool import create_pool
from services.embeddings.domain import resource_text
from services.embeddings.domain.errors import LeaseLostError
from services.files.adapters.postgres.resources import PostgresResources
from tests.support.postgres import Database
from tests.support.resources import REFUSED, TENANT, ResourceWorld, resource_world, vector_of

BATCH = 100


@pytest.fixture
async def world(database: Database) -> AsyncIterator[ResourceWorld]:
    async with resource_world(database) as world:
        yield world


async def test_a_changed_resource_ends_with_its_text_its_vector_and_an_event(world: ResourceWorld) -> None:
    await world.mark_and_drain(await world.put("variable", 5, "Inlet flow", unit="m3/h"))
    row = await world.admin.fetchrow("SELECT * FROM module_embeddings_variable")
    assert (row["entity_type"], row["entity_id"], row["tenant_id"], row["name"]) == (
        "variable",
        5,
        "default",
        "Inlet flow",
    )
    assert row["embedding_text"] == "# Inlet flow\n\n- Unit: m3/h"
    assert (await world.state("variable", 5))["status"] == "COMPLETED"
    assert await world.events() == [("VariableEmbedded", 5)]


async def test_the_vector_stored_is_the_one_of_the_text(world: ResourceWorld) -> None:
    await world.mark_and_drain(await world.put("variable", 5, "Inlet flow"))
    async with world.pool.acquire() as connection:
        stored = await connection.fetchval("SELECT embedding FROM module_embeddings_variable")
    assert stored.to_list() == pytest.approx(vector_of("# Inlet flow").tolist())


async def test_an_unchanged_text_costs_no_call_and_announces_nothing(world: ResourceWorld) -> None:
    await world.mark_and_drain(await world.put("variable", 5, "Inlet flow"))
    before = await world.admin.fetchval("SELECT updated_at FROM module_embeddings_variable")
    await world.mark_and_drain(await world.put("variable", 5, "Inlet flow"))
    assert len(world.embedder.calls) == 1
    assert await world.events() == [("VariableEmbedded", 5)]
    assert await world.admin.fetchval("SELECT updated_at FROM module_embeddings_variable") == before
    assert (await world.state("variable", 5))["status"] == "COMPLETED"


async def test_the_same_text_under_another_name_costs_no_call(world: ResourceWorld) -> None:
    await world.mark_and_drain(await world.put("variable", 5, "Inlet  flow"))
    await world.mark_and_drain(await world.put("variable", 5, "Inlet flow "))
    assert len(world.embedder.calls) == 1
    assert await world.admin.fetchval("SELECT name FROM module_embeddings_variable") == "Inlet flow "
    assert await world.events() == [("VariableEmbedded", 5)] * 2
    assert await world.mirror.sweep() == {}


async def test_a_vector_of_another_space_is_made_again(world: ResourceWorld) -> None:
    await world.mark_and_drain(await world.put("variable", 5, "Inlet flow"))
    other = await world.admin.fetchval(
        "INSERT INTO module_embeddings_space (name, provider, model, native_dimensions, convention, state)"
        " VALUES ('other', 'x', 'x', 768, 'x', 'BUILDING') RETURNING id"
    )
    await world.admin.execute("UPDATE module_embeddings_space SET state = 'RETIRED' WHERE id <> $1", other)
    await world.admin.execute("UPDATE module_embeddings_space SET state = 'ACTIVE' WHERE id = $1", other)
    world.embed = replace(world.embed, space_id=other)
    await world.mark_and_drain(await world.put("variable", 5, "Inlet flow"))
    assert len(world.embedder.calls) == 2
    assert await world.admin.fetchval("SELECT space_id FROM module_embeddings_variable") == other


async def test_a_hundred_of_one_type_take_one_context_query_and_one_call(world: ResourceWorld) -> None:
    events = [await world.put("customer", number, f"Customer {number}") for number in range(1, BATCH + 2)]
    assert await world.mark_and_drain(*events) == 2
    assert sorted(len(call) for call in world.embedder.calls) == [1, BATCH]


async def test_statements_per_resource_stay_few(world: ResourceWorld) -> None:
    """The gate on the costs of a batch: a statement is a round trip, BEGIN and COMMIT included."""
    acme = await world.put("customer", 1, "Acme")
    warm_up = [acme, await world.put("variable", 1_000, "Lets the connection learn its types", customer=1)]
    await world.mark_and_drain(*warm_up, await world.delete("variable", 999))
    events = [await world.put("variable", number, f"Variable {number}", customer=1) for number in range(1, BATCH + 1)]
    counts = {}
    for occasion in ("made", "changed", "asked for again"):
        counts[occasion] = await count_statements(world, events)
        await world.source.execute("UPDATE module_variable_variable SET unit = 'bar'")
    mark = 3
    assert counts == {"made": (mark, 12), "changed": (mark, 10), "asked for again": (mark, 7)}


async def count_statements(world: ResourceWorld, events: list[Event]) -> tuple[int, int]:
    """How many statements it takes to mark a hundred resources, and to reconcile them."""
    world.statements.clear()
    await world.mirror.mark(events)
    marking = len(world.statements)
    (batch,) = await world.work.claim(1)
    assert len(batch.resources) == BATCH
    await world.embed(batch)
    return marking, len(world.statements) - marking


async def test_a_burst_of_changes_of_one_resource_costs_one_call(world: ResourceWorld) -> None:
    for start in range(0, 1_000, 250):
        await world.mirror.mark(
            [await world.put("variable", 5, f"Name {number}") for number in range(start, start + 250)]
        )
    await world.drain()
    assert world.embedder.calls == [["# Name 999"]]


async def test_a_resource_rests_between_two_reconciles(database: Database) -> None:
    async with resource_world(database, rest_seconds=60) as world:
        await world.mark_and_drain(await world.put("variable", 5, "One"))
        assert await world.mark_and_drain(await world.put("variable", 5, "Two")) == 0
        # Its rest is over.
        await world.admin.execute("UPDATE module_embeddings_resource SET available_at = now()")
        batch = await world.claim_one()
        await world.mirror.mark([await world.put("variable", 5, "Three")])
        await world.embed(batch)
        assert await world.drain() == 0
        assert (await world.state("variable", 5))["status"] == "PENDING"


async def test_a_change_during_the_reconcile_is_reconciled_after_it(world: ResourceWorld) -> None:
    await world.mirror.mark([await world.put("variable", 5, "Old")])
    batch = await world.claim_one()
    await world.mirror.mark([await world.put("variable", 5, "New")])
    assert await world.work.claim(1) == []
    await world.embed(batch)
    assert (await world.state("variable", 5))["status"] == "PENDING"
    await world.drain()
    assert await world.text("variable", 5) == "# New"


async def test_a_lease_that_ran_out_spends_an_attempt_unless_the_database_was_away_meanwhile(
    world: ResourceWorld,
) -> None:
    await world.mirror.mark([await world.put("variable", 5, "Flow")])
    await world.claim_one()
    await world.expire_leases()
    assert (await world.claim_one()).attempts == 2
    await world.expire_leases()
    await world.admin.execute(
        "UPDATE module_embeddings_resource SET updated_at = pg_postmaster_start_time() - interval '1 second'"
    )
    assert (await world.claim_one()).attempts == 2


async def test_a_worker_that_lost_its_lease_writes_nothing(world: ResourceWorld) -> None:
    await world.mirror.mark([await world.put("variable", 5, "Old")])
    late = await world.claim_one()
    await world.expire_leases()
    await world.drain()
    await world.put("variable", 5, "Newer than what the late worker may store")
    await world.embed(late)
    assert await world.text("variable", 5) == "# Old"
    assert (await world.state("variable", 5))["status"] == "COMPLETED"


async def test_only_the_rows_whose_lease_holds_are_written(world: ResourceWorld) -> None:
    await world.mirror.mark([await world.put("variable", number, f"V{number}") for number in (1, 2)])
    batch = await world.claim_one()
    await world.admin.execute("UPDATE module_embeddings_resource SET lease_token = $1 WHERE entity_id = 2", uuid4())
    await world.embed(batch)
    assert await world.text("variable", 1) == "# V1"
    assert await world.text("variable", 2) is None
    assert (await world.state("variable", 2))["status"] == "PROCESSING"


async def test_a_lease_that_was_lost_cannot_be_renewed(world: ResourceWorld) -> None:
    await world.mirror.mark([await world.put("variable", 5, "Flow")])
    batch = await world.claim_one()
    await world.work.renew(batch)
    await world.expire_leases()
    await world.claim_one()
    with pytest.raises(LeaseLostError):
        await world.work.renew(batch)


async def test_a_deleted_resource_leaves_nothing_behind(world: ResourceWorld) -> None:
    await world.mark_and_drain(await world.put("query", 7, "Total", variables=[5, 6]))
    await world.mirror.mark([await world.delete("query", 7)])
    assert await world.state("query", 7) is None
    assert await world.text("query", 7) is None
    assert await world.admin.fetchval("SELECT count(*) FROM module_embeddings_dependency") == 0
    assert await world.events() == [("QueryEmbedded", 7), ("QueryEmbeddingRemoved", 7)]


async def test_a_resource_deleted_while_it_is_embedded_leaves_nothing_behind(world: ResourceWorld) -> None:
    await world.mirror.mark([await world.put("variable", 5, "Flow")])
    batch = await world.claim_one()
    await world.mirror.mark([await world.delete("variable", 5)])
    await world.embed(batch)
    assert await world.state("variable", 5) is None
    assert await world.text("variable", 5) is None


async def test_a_resource_whose_deletion_was_never_announced_is_removed_when_it_is_read(world: ResourceWorld) -> None:
    await world.mark_and_drain(await world.put("variable", 5, "Flow"))
    await world.mirror.mark([await world.put("variable", 5, "Flow")])
    await world.delete("variable", 5)
    await world.drain()
    assert await world.state("variable", 5) is None
    assert await world.text("variable", 5) is None


async def test_a_resource_made_again_while_its_absence_is_settled_is_embedded(world: ResourceWorld) -> None:
    event = await world.put("variable", 5, "First life")
    await world.mirror.mark([event])
    batch = await world.claim_one()
    await world.delete("variable", 5)
    contexts = await world.work.read("variable", batch.entity_ids)
    await world.mirror.mark([await world.put("variable", 5, "Second life")])
    assert contexts == []
    # The worker that saw nothing settles after the resource is back and its event was taken.
    world.embed = replace(world.embed, work=_StaleRead(world.work))
    await world.embed(batch)
    assert (await world.state("variable", 5))["status"] == "PENDING"
    world.embed = replace(world.embed, work=world.work)
    await world.drain()
    assert await world.text("variable", 5) == "# Second life"


class _StaleRead:
    """Finds nothing, as a read did a moment ago."""

    def __init__(self, work: object) -> None:
        self._work = work

    def __getattr__(self, name: str) -> object:
        return getattr(self._work, name)

    async def read(self, entity_type: str, entity_ids: object) -> list[object]:
        return []


async def test_a_text_that_is_too_long_fails_alone_and_loses_its_vector(
    world: ResourceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_text, "MAX_PARTS", 1)
    await world.mark_and_drain(await world.put("rule", 1, "Long"), await world.put("rule", 2, "Short"))
    long = {"description": "x" * 4_000, "condition": "y" * 4_000}
    await world.mark_and_drain(
        await world.put("rule", 1, "Long", **long), await world.put("rule", 2, "Short", action="stop")
    )
    state = await world.state("rule", 1)
    assert (state["status"], state["error_code"]) == ("FAILED", "TEXT_TOO_LONG")
    assert await world.text("rule", 1) is None
    assert await world.text("rule", 2) == "# Short\n\n## Action\n\nstop"
    assert ("RuleEmbeddingFailed", 1) in await world.events()


async def test_who_read_what_a_worker_finds_gone_follows(world: ResourceWorld) -> None:
    await world.mark_and_drain(
        await world.put("variable", 5, "Flow"), await world.put("query", 7, "Total", variables=[5])
    )
    await world.delete("variable", 5)
    await world.admin.execute("UPDATE module_embeddings_resource SET status = 'PENDING' WHERE entity_id = 5")
    await world.drain()
    assert await world.state("variable", 5) is None
    assert await world.text("query", 7) == "# Total"


async def test_a_failed_resource_is_embedded_when_it_is_mended(world: ResourceWorld) -> None:
    await world.mark_and_drain(await world.put("rule", 1, "Long", description="x" * 4_000, condition="y" * 4_000))
    await world.mark_and_drain(await world.put("rule", 1, "Long"))
    state = await world.state("rule", 1)
    assert (state["status"], state["error_code"]) == ("COMPLETED", None)


async def test_a_long_text_is_embedded_in_parts_where_its_type_says_so(world: ResourceWorld) -> None:
    for number in range(1, 61):
        await world.put("user", number, f"{number:03} {'n' * 200}")
    await world.mark_and_drain(await world.put("group", 1, "Everybody", users=list(range(1, 61))))
    (parts,) = world.embedder.calls
    assert len(parts) > 1
    assert "\n".join(parts).split() == (await world.text("group", 1)).split()


async def test_a_text_that_the_model_refuses_fails_alone(world: ResourceWorld) -> None:
    names = {number: REFUSED if number == 3 else f"Fine {number}" for number in range(1, 8)}
    await world.mark_and_drain(*[await world.put("customer", number, name) for number, name in names.items()])
    state = await world.state("customer", 3)
    assert (state["status"], state["error_code"]) == ("FAILED", "MODEL_REJECTED_INPUT")
    assert [await world.text("customer", number) for number in names if number != 3] == [
        f"# {name}" for number, name in names.items() if number != 3
    ]


async def test_a_resource_of_which_nothing_is_known_is_called_by_its_name(world: ResourceWorld) -> None:
    for position, name in enumerate(world.types):
        await world.mark_and_drain(await world.put(name, position + 1, "Just a name"))
    rows = await world.admin.fetch("SELECT DISTINCT embedding_text FROM module_embeddings_unified")
    assert [row["embedding_text"] for row in rows] == ["# Just a name"]


async def test_a_batch_given_back_waits_and_shows_its_fault(world: ResourceWorld) -> None:
    await world.mirror.mark([await world.put("variable", 5, "Flow")])
    batch = await world.claim_one()
    await world.work.give_back(batch, "EMBEDDER_UNAVAILABLE", "429", delay_seconds=30, counts=False)
    state = await world.state("variable", 5)
    assert (state["status"], state["error_code"], state["attempts"]) == ("PENDING", "EMBEDDER_UNAVAILABLE", 0)
    assert await world.work.claim(1) == []


async def test_a_change_that_came_during_an_attempt_has_nothing_of_that_attempt(world: ResourceWorld) -> None:
    await world.mirror.mark([await world.put("variable", 5, "Flow")])
    for end in (
        lambda batch: world.work.give_back(batch, "TRANSIENT_FAULT", "?", delay_seconds=600, counts=True),
        lambda batch: world.work.fail(batch, "ATTEMPTS_EXHAUSTED", "gave up"),
    ):
        batch = await world.claim_one()
        await world.mirror.mark([await world.put("variable", 5, "Another flow")])
        await end(batch)
        state = await world.state("variable", 5)
        assert (state["status"], state["error_code"], state["attempts"]) == ("PENDING", None, 0)
    await world.drain()
    assert (await world.state("variable", 5))["status"] == "COMPLETED"


async def test_a_repeated_event_takes_nothing_from_an_attempt_and_gives_no_new_ones(world: ResourceWorld) -> None:
    variable = await world.put("variable", 5, "Flow")
    query = await world.put("query", 7, "Total", variables=[5])
    await world.mark_and_drain(variable, query)
    await world.mirror.mark([await world.put("variable", 5, "Another flow")])  # and so the query, which reads it
    for batch in await world.work.claim(2):
        await world.work.give_back(batch, "TRANSIENT_FAULT", "boom", delay_seconds=0, counts=True)
    under_way = await world.work.claim(2)

    await world.mirror.mark([variable, query, world.changed("variable", 5)])

    states = [await world.state("variable", 5), await world.state("query", 7)]
    assert [(state["attempts"], state["error_message"]) for state in states] == [(2, "boom")] * 2
    for batch in under_way:
        await world.embed(batch)
    assert await world.text("query", 7) == "# Total\n\n## Uses\n\n- Another flow"
    assert [(await world.state(*key))["status"] for key in (("variable", 5), ("query", 7))] == ["COMPLETED"] * 2


@pytest.mark.parametrize("end", ["COMPLETED", "FAILED"])
async def test_what_ended_is_looked_at_again_on_retry_and_not_by_a_repeated_event(
    world: ResourceWorld, database: Database, end: str
) -> None:
    event = await world.put("variable", 5, "Flow")
    await world.mirror.mark([event])
    batch = await world.claim_one()
    await (world.embed(batch) if end == "COMPLETED" else world.work.fail(batch, "ATTEMPTS_EXHAUSTED", "gave up"))

    await world.mirror.mark([event])
    assert (await world.state("variable", 5))["status"] == end
    async with await create_pool(database.files_url, application_name="files") as pool:
        catalogue = PostgresResources(pool)
        assert await catalogue.announce(AccessScope(TENANT), world.types["variable"], 5)
        assert not await catalogue.announce(AccessScope("other"), world.types["variable"], 5)
    await world.mirror.mark([event])

    assert (await world.claim_one()).attempts == 1


async def test_a_newer_event_without_a_new_revision_has_what_failed_tried_again(world: ResourceWorld) -> None:
    """As a retry that a release before revisions grew by it announces, while others are of this one."""
    first = await world.put("variable", 5, "Flow")
    await world.mirror.mark([first])
    await world.work.fail(await world.claim_one(), "ATTEMPTS_EXHAUSTED", "gave up")

    await world.mirror.mark([first, world.changed("variable", 5)])

    assert await world.drain() == 1
    assert (await world.state("variable", 5))["status"] == "COMPLETED"


async def test_a_resource_that_failed_twice_is_tried_alone(world: ResourceWorld) -> None:
    await world.mirror.mark([await world.put("variable", number, f"V{number}") for number in range(1, 6)])
    for _ in range(2):
        batch = await world.claim_one()
        assert len(batch.resources) == 5
        await world.work.give_back(batch, "TRANSIENT_FAULT", "?", delay_seconds=0, counts=True)
    assert [len(batch.resources) for batch in await world.work.claim(10)] == [1] * 5


async def test_an_exhausted_batch_ends_failed_and_is_not_stale(world: ResourceWorld) -> None:
    await world.mirror.mark([await world.put("variable", 5, "Flow")])
    batch = await world.claim_one()
    await world.work.fail(batch, "ATTEMPTS_EXHAUSTED", "gave up")
    state = await world.state("variable", 5)
    assert (state["status"], state["error_code"]) == ("FAILED", "ATTEMPTS_EXHAUSTED")
    await world.admin.execute("UPDATE module_variable_variable SET created_at = created_at")
    assert state["revision"] is not None
    assert await world.events() == [("VariableEmbeddingFailed", 5)]


async def test_the_type_that_waits_longest_goes_first(world: ResourceWorld) -> None:
    for type_name in ("variable", "customer", "tag"):
        await world.mirror.mark([await world.put(type_name, 1, "One")])
    await world.mirror.mark([await world.put("variable", 2, "Two")])
    assert [batch.entity_type for batch in await world.work.claim(10)] == ["variable", "customer", "tag"]


async def test_a_clock_that_is_far_behind_makes_no_change_older_than_a_week(world: ResourceWorld) -> None:
    event = await world.put("variable", 5, "One")
    await world.mirror.mark([replace(event, time=datetime(1970, 1, 1, tzinfo=UTC))])
    batch = await world.claim_one()
    assert timedelta(days=6) < event.time - batch.resources[0].requested_at < timedelta(days=8)


async def test_what_is_asked_for_first_counts_for_freshness(world: ResourceWorld) -> None:
    first = await world.put("variable", 5, "One")
    await world.mirror.mark([first])
    await world.mirror.mark([await world.put("variable", 5, "Two")])
    batch = await world.claim_one()
    assert batch.resources[0].requested_at == first.time
    later = await world.put("variable", 5, "Three")
    await world.mirror.mark([later])
    await world.mirror.mark([await world.put("variable", 5, "Four")])
    await world.embed(batch)
    assert (await world.claim_one()).resources[0].requested_at == later.time
