"""Fixtures over real servers. One that cannot start fails the tests that need it, with the end of its log."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import settings

from tests.support.broker import APACHE, EMBEDDED, KINDS, Kafka, running_broker
from tests.support.postgres import Database, PostgresServer, running_postgres

CALLERS_SETTINGS = ("CAUCE_", "OTEL_", "GEMINI_", "GOOGLE_")
TEST_BROKER = "CAUCE_TEST_BROKER"
BROKER_KIND = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of ``tests/faults``."""
    parser.addoption("--faults-seed", type=int, default=1, help="what the faults and their order are chosen by")
    parser.addoption("--faults-long", action="store_true", help="kill at every named step, not at some")


def pytest_configure(config: pytest.Config) -> None:
    """The caller's settings are not the tests': no key of theirs is used, no trace is sent to them."""
    config.addinivalue_line("markers", "broker: talks to a broker (set by itself)")
    config.addinivalue_line("markers", "apache: needs what the Apache broker alone has, and runs on no other")
    given = getattr(config, "workerinput", os.environ)
    kind = given.get(TEST_BROKER, EMBEDDED)
    if kind not in KINDS:
        raise pytest.UsageError(f"{TEST_BROKER}={kind} is unknown; known are: {', '.join(KINDS)}")
    config.stash[BROKER_KIND] = kind
    # A machine at work is slow now and then: how long an example takes says nothing.
    settings.register_profile("cauce", deadline=None)
    settings.load_profile("cauce")
    for name in [name for name in os.environ if name.startswith(CALLERS_SETTINGS)]:
        del os.environ[name]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process that runs a share of the tests what was asked of this one."""
    node.workerinput[TEST_BROKER] = node.config.stash[BROKER_KIND]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that talk to a broker, so that they can be run on another one; leave out those of another."""
    for item in items:
        if "broker_kind" in getattr(item, "fixturenames", ()):
            item.add_marker("broker")
    if config.stash[BROKER_KIND] != APACHE:
        items[:] = [item for item in items if item.get_closest_marker("apache") is None]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server with a migrated template database."""
    with running_postgres() as server:
        yield server


@pytest.fixture
async def database(postgres_server: PostgresServer) -> AsyncIterator[Database]:
    """A migrated, empty database of the test's own."""
    database = await postgres_server.clone()
    yield database
    await postgres_server.drop(database)


@pytest.fixture(scope="session")
def broker_kind(pytestconfig: pytest.Config) -> str:
    """Which broker the tests run on."""
    return pytestconfig.stash[BROKER_KIND]


@pytest.fixture(scope="session")
def kafka(broker_kind: str) -> Iterator[Kafka]:
    """A broker. Tests share it, so each makes its own topics and groups."""
    with running_broker(broker_kind) as broker:
        yield broker
