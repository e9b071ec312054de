"""The mirror of resources as the intake and the sweep see it, on the real tables."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from services.embeddings.application.resource_ports import Fan
from services.embeddings.domain import resource_text
from services.embeddings.domain.errors import SweepIncompleteError
from services.embeddings.domain.resource_work import Source
from tests.support.postgres import Database
from tests.support.resources import TENANT, ResourceWorld, resource_world


@pytest.fixture
async def world(database: Database) -> AsyncIterator[ResourceWorld]:
    async with resource_world(database) as world:
        yield world


async def let_changes_settle(world: ResourceWorld) -> None:
    """As if every change had happened long ago, so that none counts as on its way."""
    for type_ in world.types.values():
        await world.admin.execute(f"ALTER TABLE {type_.source_table} DISABLE TRIGGER USER")
        await world.admin.execute(f"UPDATE {type_.source_table} SET updated_at = now() - interval '1 hour'")
        await world.admin.execute(f"ALTER TABLE {type_.source_table} ENABLE TRIGGER USER")


async def pending(world: ResourceWorld) -> list[tuple[str, int]]:
    rows = await world.admin.fetch(
        "SELECT entity_type, entity_id FROM module_embeddings_resource WHERE status = 'PENDING' ORDER BY 1, 2"
    )
    return [tuple(row) for row in rows]


async def test_an_event_of_a_resource_that_nobody_has_leaves_nothing(world: ResourceWorld) -> None:
    await world.mirror.mark([world.changed("variable", 5)])
    assert await pending(world) == []


async def test_the_name_and_tenant_are_those_of_the_source_of_record(world: ResourceWorld) -> None:
    await world.mirror.mark([await world.put("variable", 5, "Inlet flow")])
    state = await world.state("variable", 5)
    assert (state["tenant_id"], state["name"]) == (TENANT, "Inlet flow")


async def test_a_change_marks_what_is_made_from_it_once(world: ResourceWorld) -> None:
    await world.mark_and_drain(
        await world.put("variable", 5, "Inlet flow"),
        await world.put("query", 7, "Total", variables=[5]),
        await world.put("rule", 8, "Alarm", variables=[5]),
    )
    world.embedder.calls.clear()
    fans = await world.mirror.mark([await world.put("variable", 5, "Outlet flow")])
    assert fans == [Fan(Source("variable", 5), 2)]
    assert await pending(world) == [("query", 7), ("rule", 8), ("variable", 5)]
    await world.drain()
    assert sorted(world.embedder.texts) == [
        "# Alarm\n\n## Watches\n\n- Outlet flow",
        "# Outlet flow",
        "# Total\n\n## Uses\n\n- Outlet flow",
    ]
    assert await pending(world) == []


async def test_a_change_two_steps_away_marks_nothing(world: ResourceWorld) -> None:
    await world.mark_and_drain(
        await world.put("customer", 1, "Acme"),
        await world.put("variable", 5, "Flow", customer=1),
        await world.put("query", 7, "Total", variables=[5]),
    )
    await world.mirror.mark([await world.put("customer", 1, "Acme and Sons")])
    assert await pending(world) == [("customer", 1), ("variable", 5)]


async def test_a_cycle_ends_by_itself(world: ResourceWorld) -> None:
    """Each of two queries uses the other; a tag is shown in the variable that it marks, and shows it."""
    events = [
        await world.put("query", 1, "First", queries=[2]),
        await world.put("query", 2, "Second", queries=[1]),
        await world.put("tag", 1, "water", variables=[5]),
        await world.put("variable", 5, "Flow"),
    ]
    await world.mark_and_drain(*events)
    assert await world.mark_and_drain(await world.put("query", 1, "Renamed")) == 1
    assert await world.text("query", 2) == "# Second\n\n## Uses\n\n- Renamed"
    assert await pending(world) == []
    assert await world.text("variable", 5) == "# Flow\n\n- Tags: water"
    assert await world.text("tag", 1) == "# water\n\n## Marks\n\n- Flow"


async def test_what_a_resource_refers_to_follows_where_it_reads_it_back(world: ResourceWorld) -> None:
    """The variable cannot know of a tag that is yet to come: the tag's event finds it."""
    await world.mark_and_drain(await world.put("variable", 5, "Flow"), await world.put("variable", 6, "Level"))
    await world.mark_and_drain(await world.put("tag", 1, "water", variables=[5]))
    assert await world.text("variable", 5) == "# Flow\n\n- Tags: water"
    await world.mark_and_drain(await world.put("tag", 1, "water", variables=[6]))
    assert await world.text("variable", 5) == "# Flow"
    assert await world.text("variable", 6) == "# Level\n\n- Tags: water"
    await world.mark_and_drain(await world.delete("tag", 1))
    assert await world.text("variable", 6) == "# Level"


async def test_a_resource_that_comes_later_is_shown_where_it_was_looked_for(world: ResourceWorld) -> None:
    await world.mark_and_drain(await world.put("query", 7, "Total", variables=[5]))
    await world.mark_and_drain(await world.put("variable", 5, "Flow"))
    assert await world.text("query", 7) == "# Total\n\n## Uses\n\n- Flow"
    await world.mark_and_drain(await world.delete("variable", 5))
    assert await world.text("query", 7) == "# Total"


async def test_what_is_not_read_any_more_is_forgotten(world: ResourceWorld) -> None:
    await world.mark_and_drain(await world.put("query", 7, "Total", variables=[5, 6]))
    await world.mark_and_drain(await world.put("query", 7, "Total", variables=[6]))
    rows = await world.admin.fetch("SELECT source_type, source_id FROM module_embeddings_dependency")
    assert [tuple(row) for row in rows] == [("variable", 6)]


async def test_a_change_between_the_read_and_the_note_of_what_was_read_is_not_missed(world: ResourceWorld) -> None:
    await world.mark_and_drain(await world.put("variable", 5, "Old"))
    await world.mirror.mark([await world.put("query", 7, "Total", variables=[5])])
    batch = await world.claim_one()
    remember = world.work.remember

    async def change_first(*arguments: object) -> list[int]:
        # The event is taken while nobody knows yet that the query reads the variable.
        world.work.remember = remember  # type: ignore[method-assign]
        await world.mirror.mark([await world.put("variable", 5, "New")])
        return await remember(*arguments)  # type: ignore[arg-type]

    world.work.remember = change_first  # type: ignore[method-assign]
    await world.embed(batch)
    assert await world.text("query", 7) == "# Total\n\n## Uses\n\n- New"


async def test_another_tenants_resource_is_never_shown(world: ResourceWorld) -> None:
    await world.put("variable", 5, "Secret")
    await world.admin.execute("UPDATE module_variable_variable SET tenant_id = 'other'")
    await world.mark_and_drain(await world.put("query", 7, "Total", variables=[5]))
    assert await world.text("query", 7) == "# Total"


async def test_a_wide_fan_is_marked_in_one_statement(world: ResourceWorld) -> None:
    await world.put("customer", 1, "Acme")
    await world.source.execute(
        "INSERT INTO module_variable_variable (id, tenant_id, name, customer)"
        " SELECT id, $1, 'Variable ' || id, 1 FROM generate_series(1, 3000) AS id",
        TENANT,
    )
    await world.mirror.mark([world.changed("variable", number) for number in range(1, 3_001)])
    await world.admin.execute(
        "INSERT INTO module_embeddings_dependency SELECT entity_type, entity_id, 'customer', 1"
        " FROM module_embeddings_resource"
    )
    world.statements.clear()
    assert await world.mirror.mark([world.changed("customer", 1)]) == [Fan(Source("customer", 1), 3_000)]
    assert len(world.statements) == 3


async def test_a_change_goes_ahead_of_what_follows_from_an_earlier_one(world: ResourceWorld) -> None:
    await world.put("customer", 1, "Acme")
    variables = [await world.put("variable", number, f"Variable {number}", customer=1) for number in range(1, 151)]
    await world.mark_and_drain(*variables)
    await world.mirror.mark([await world.put("customer", 1, "Acme and Sons")])
    await world.mirror.mark([await world.put("variable", 150, "Changed itself")])
    await world.drain()
    own, first, rest = world.embedder.calls[-3:]
    assert own == ["# Acme and Sons"]
    assert len(first) > len(rest)
    assert any(text.startswith("# Changed itself") for text in first)


class TestSweep:
    async def test_a_healthy_system_has_nothing_to_mark(self, world: ResourceWorld) -> None:
        await world.mark_and_drain(
            await world.put("variable", 5, "Flow"), await world.put("query", 7, "Total", variables=[5])
        )
        await let_changes_settle(world)
        assert await world.mirror.sweep() == {}

    async def test_a_change_on_its_way_is_not_missing(self, world: ResourceWorld) -> None:
        await world.put("variable", 5, "Flow")
        assert await world.mirror.sweep() == {}

    async def test_a_resource_whose_event_was_lost_is_missing(self, world: ResourceWorld) -> None:
        await world.put("variable", 5, "Flow")
        await let_changes_settle(world)
        assert await world.mirror.sweep() == {"variable": {"MISSING": 1}}
        await world.drain()
        assert await world.text("variable", 5) == "# Flow"
        assert await world.mirror.sweep() == {}

    async def test_a_resource_without_its_vector_is_missing(self, world: ResourceWorld) -> None:
        await world.mark_and_drain(await world.put("variable", 5, "Flow"))
        await let_changes_settle(world)
        await world.admin.execute("DELETE FROM module_embeddings_variable")
        assert await world.mirror.sweep() == {"variable": {"MISSING": 1}}
        await world.drain()
        assert await world.text("variable", 5) == "# Flow"

    async def test_a_lost_change_is_stale_and_its_readers_follow(self, world: ResourceWorld) -> None:
        await world.mark_and_drain(
            await world.put("variable", 5, "Old"), await world.put("query", 7, "Total", variables=[5])
        )
        await world.put("variable", 5, "New")
        await let_changes_settle(world)
        assert await world.mirror.sweep() == {"variable": {"STALE": 1}}
        await world.drain()
        assert await world.text("query", 7) == "# Total\n\n## Uses\n\n- New"

    async def test_readers_follow_a_lost_change_of_what_waits_already(self, world: ResourceWorld) -> None:
        await world.mark_and_drain(
            await world.put("variable", 5, "Inlet flow"), await world.put("query", 7, "Total", variables=[5])
        )
        await world.mirror.mark([await world.put("variable", 5, "Outlet flow")])
        later = "UPDATE module_embeddings_resource SET available_at = now() + interval '1 hour' WHERE entity_id = 5"
        await world.admin.execute(later)
        await world.drain()
        await world.put("variable", 5, "Total flow")
        await let_changes_settle(world)
        assert await world.mirror.sweep() == {"variable": {"STALE": 1}}
        await world.drain()
        assert await world.text("query", 7) == "# Total\n\n## Uses\n\n- Total flow"
        assert await world.mirror.sweep() == {}

    async def test_a_lost_deletion_is_orphaned(self, world: ResourceWorld) -> None:
        await world.mark_and_drain(await world.put("variable", 5, "Flow"))
        await world.delete("variable", 5)
        assert await world.mirror.sweep() == {"variable": {"ORPHANED": 1}}
        assert await world.state("variable", 5) is None
        assert await world.text("variable", 5) is None

    async def test_a_resource_deleted_and_made_again_unseen_is_stale(self, world: ResourceWorld) -> None:
        await world.mark_and_drain(await world.put("variable", 5, "First life"))
        await world.delete("variable", 5)
        await world.put("variable", 5, "Second life")
        await let_changes_settle(world)
        assert await world.mirror.sweep() == {"variable": {"STALE": 1}}

    async def test_another_recipe_makes_every_text_stale_and_costs_a_call_only_for_new_texts(
        self, world: ResourceWorld
    ) -> None:
        await world.mark_and_drain(await world.put("variable", 5, "Flow"))
        await let_changes_settle(world)
        await world.admin.execute("UPDATE module_embeddings_resource SET recipe = 'of yesterday'")
        assert await world.mirror.sweep() == {"variable": {"STALE": 1}}
        await world.drain()
        assert len(world.embedder.calls) == 1
        assert await world.mirror.sweep() == {}

    async def test_a_lease_that_nobody_took_over_is_stuck(self, world: ResourceWorld) -> None:
        await world.mirror.mark([await world.put("variable", 5, "Flow")])
        await world.claim_one()
        await let_changes_settle(world)
        await world.expire_leases(seconds=1)
        assert await world.mirror.sweep() == {}
        await world.expire_leases(seconds=1_000)
        assert await world.mirror.sweep() == {"variable": {"STUCK": 1}}
        assert await pending(world) == [("variable", 5)]

    @pytest.mark.parametrize(
        ("reason", "tampering"),
        [
            ("OTHER_SPACE", "UPDATE module_embeddings_variable SET space_id = $1"),
            ("STALE", "UPDATE module_embeddings_variable SET name = 'x', space_id = space_id + 0 * $1"),
            ("STALE", "UPDATE module_embeddings_variable SET tenant_id = 'x', space_id = space_id + 0 * $1"),
            ("STALE", "UPDATE module_embeddings_resource SET tenant_id = 'x' WHERE entity_id <> $1"),
            ("STALE", "UPDATE module_embeddings_resource_lexemes SET tenant_id = 'x' WHERE entity_id <> $1"),
            ("MISSING", "DELETE FROM module_embeddings_variable WHERE space_id <> $1"),
            ("MISSING", "DELETE FROM module_embeddings_resource_lexemes WHERE entity_id <> $1"),
        ],
    )
    async def test_a_vector_that_is_not_as_it_was_made_is_made_again(
        self, world: ResourceWorld, reason: str, tampering: str
    ) -> None:
        await world.mark_and_drain(await world.put("variable", 5, "Flow"))
        await let_changes_settle(world)
        other = await world.admin.fetchval(
            "INSERT INTO module_embeddings_space (name, provider, model, native_dimensions, convention, state)"
            " VALUES ('other', 'x', 'x', 768, 'x', 'BUILDING') RETURNING id"
        )
        await world.admin.execute(tampering, other)
        assert await world.mirror.sweep() == {"variable": {reason: 1}}
        await world.drain()
        assert await world.text("variable", 5) == "# Flow"
        assert await world.mirror.sweep() == {}

    async def test_a_text_has_its_own_hash_and_no_other(self, world: ResourceWorld) -> None:
        await world.mark_and_drain(await world.put("variable", 5, "Flow"))
        with pytest.raises(asyncpg.CheckViolationError, match="hash_is_of_the_text"):
            await world.admin.execute("UPDATE module_embeddings_variable SET embedding_text = 'x'")

    async def test_what_waits_for_ever_is_stuck(self, world: ResourceWorld) -> None:
        await world.mirror.mark([await world.put("variable", 5, "Flow")])
        await let_changes_settle(world)
        await world.admin.execute("UPDATE module_embeddings_resource SET available_at = '2099-01-01'")
        assert await world.mirror.sweep() == {"variable": {"STUCK": 1}}
        await world.drain()
        assert await world.text("variable", 5) == "# Flow"

    async def test_a_lease_that_ends_in_days_is_stuck(self, world: ResourceWorld) -> None:
        await world.mirror.mark([await world.put("variable", 5, "Flow")])
        await world.claim_one()
        await let_changes_settle(world)
        await world.expire_leases(seconds=-100_000)
        assert await world.mirror.sweep() == {"variable": {"STUCK": 1}}
        await world.drain()
        assert await world.text("variable", 5) == "# Flow"

    async def test_a_change_that_no_event_told_of_is_as_old_as_it_is(self, world: ResourceWorld) -> None:
        await world.mark_and_drain(await world.put("variable", 5, "Flow"))
        await world.put("variable", 5, "Outflow")
        await let_changes_settle(world)
        assert await world.mirror.sweep() == {"variable": {"STALE": 1}}
        changed_at = await world.admin.fetchval("SELECT updated_at FROM module_variable_variable")
        assert (await world.claim_one()).resources[0].requested_at == changed_at

    async def test_what_has_no_tenant_is_removed_and_told(self, world: ResourceWorld) -> None:
        await world.mark_and_drain(await world.put("variable", 5, "Flow"))
        await world.admin.execute("ALTER TABLE module_variable_variable ALTER tenant_id DROP NOT NULL")
        await world.admin.execute("ALTER TABLE module_variable_variable DROP CONSTRAINT IF EXISTS tenant_named")
        await world.admin.execute("UPDATE module_variable_variable SET tenant_id = NULL")
        await let_changes_settle(world)
        assert await world.mirror.sweep() == {"variable": {"ORPHANED": 1}}
        assert await world.state("variable", 5) is None
        assert await world.mirror.sweep() == {"variable": {"UNOWNED": 1}}

    async def test_a_type_that_cannot_be_read_keeps_no_other_from_being_swept(self, world: ResourceWorld) -> None:
        await world.put("variable", 5, "Flow")
        await let_changes_settle(world)
        await world.admin.execute("REVOKE SELECT ON module_embeddings_query_context FROM cauce_embeddings")
        with pytest.raises(SweepIncompleteError, match="query: InsufficientPrivilegeError") as caught:
            await world.mirror.sweep()
        assert caught.value.found == {"variable": {"MISSING": 1}}
        assert await pending(world) == [("variable", 5)]

    async def test_a_failed_resource_is_left_alone_until_it_changes(
        self, world: ResourceWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(resource_text, "MAX_PARTS", 1)
        long = {"description": "x" * 4_000, "condition": "y" * 4_000}
        await world.mark_and_drain(await world.put("rule", 1, "Long", **long))
        await let_changes_settle(world)
        assert await world.mirror.sweep() == {}
        await world.put("rule", 1, "Short")
        await let_changes_settle(world)
        assert await world.mirror.sweep() == {"rule": {"STALE": 1}}

    async def test_an_exhausted_resource_is_left_alone_for_an_hour(self, world: ResourceWorld) -> None:
        await world.mirror.mark([await world.put("rule", 1, "Kills workers")])
        await world.work.fail(await world.claim_one(), "ATTEMPTS_EXHAUSTED", "gave up")
        await let_changes_settle(world)
        assert await world.mirror.sweep() == {}
        await world.admin.execute(
            "UPDATE module_embeddings_resource SET finished_at = finished_at - interval '2 hours'"
        )
        assert await world.mirror.sweep() == {"rule": {"EXHAUSTED": 1}}
        await world.drain()
        assert await world.text("rule", 1) == "# Kills workers"


async def test_the_queue_is_measured_by_state(world: ResourceWorld) -> None:
    event = await world.put("variable", 5, "Flow")
    object.__setattr__(event, "time", datetime.now(UTC) - timedelta(seconds=100))
    await world.mirror.mark([event])
    (depth,) = await world.mirror.measure()
    assert (depth.status, depth.depth) == ("PENDING", 1)
    assert depth.oldest_age >= 100
