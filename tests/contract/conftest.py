"""Both stores, behind the fixtures of one suite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.support import Stack, unique_name

from parallax.adapters.cassandra.schema import Schema
from parallax.adapters.cassandra.stores import CassandraStores
from parallax.adapters.memory.groups import MemoryGroupStore
from parallax.adapters.memory.index import MemoryMappingIndex
from parallax.adapters.memory.operations import MemoryOperationJournal
from parallax.adapters.memory.primaries import MemoryPrimaryStore
from parallax.decision_ports import OperationJournal, PrimaryStore
from parallax.domain.ids import Lineage, RegionName, Route, RoutePartition, TopicId, TopicName, TopicPartition
from parallax.ports import GroupStore, MappingIndex
from parallax.runtime.config import Cassandra, Index

STORES = [pytest.param("memory"), pytest.param("cassandra", marks=pytest.mark.stack("infrastructure"))]


@pytest.fixture(scope="session")
def cassandra_settings(infrastructure: Stack) -> Cassandra:
    """A keyspace of this run, with the schema."""
    settings = Cassandra(
        contact_points=(infrastructure.cassandra_address(),),
        keyspace=unique_name("contract").replace("-", "_"),
        request_timeout_ms=20_000,
    )
    with closing(Schema(settings)) as schema:
        schema.apply()
    return settings


@pytest.fixture(scope="session")
def cassandra_stores(cassandra_settings: Cassandra) -> Iterator[CassandraStores]:
    with CassandraStores(cassandra_settings, Index()) as stores:
        yield stores


@pytest.fixture(params=STORES)
def index(request: pytest.FixtureRequest) -> MappingIndex:
    if request.param == "memory":
        return MemoryMappingIndex()
    stores: CassandraStores = request.getfixturevalue("cassandra_stores")
    return stores.index


@pytest.fixture(params=STORES)
def groups(request: pytest.FixtureRequest) -> GroupStore:
    if request.param == "memory":
        return MemoryGroupStore()
    stores: CassandraStores = request.getfixturevalue("cassandra_stores")
    return stores.groups


@pytest.fixture(params=STORES)
def primaries(request: pytest.FixtureRequest) -> PrimaryStore:
    if request.param == "memory":
        return MemoryPrimaryStore()
    stores: CassandraStores = request.getfixturevalue("cassandra_stores")
    return stores.primaries


@pytest.fixture(params=STORES)
def journal(request: pytest.FixtureRequest) -> OperationJournal:
    if request.param == "memory":
        return MemoryOperationJournal()
    stores: CassandraStores = request.getfixturevalue("cassandra_stores")
    return stores.operations


@pytest.fixture
def partition() -> RoutePartition:
    """A partition that no other test uses."""
    route = Route(RegionName("a"), RegionName("b"))
    return RoutePartition(route, TopicPartition(TopicName(unique_name("trips")), 0))


@pytest.fixture
def lineage() -> Lineage:
    return Lineage(TopicId("source_id-1"), TopicId("target_id-1"))
