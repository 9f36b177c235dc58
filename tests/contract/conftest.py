"""Both stores, behind the fixtures of one suite; and clients of the service that a file serves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest

from parallax.adapters.cassandra.schema import Schema
from parallax.adapters.cassandra.stores import CassandraStores
from parallax.client.client import OffsetClient
from parallax.config.config import Cassandra, Index
from parallax.domain.ids import Lineage, RegionName, Route, RoutePartition, TopicId, TopicName, TopicPartition
from parallax.ports.audit import AuditLog
from parallax.ports.blocks import BlockWriterStore
from parallax.ports.groups import GroupStore, OperationJournal, PrimaryStore
from parallax.ports.index import MappingIndex
from parallax.ports.status import StatusStore
from tests.memory.audit import MemoryAuditLog
from tests.memory.blocks import MemoryBlockStore
from tests.memory.cql import MemoryKeyspace, WrittenStores
from tests.memory.groups import MemoryGroupStore, MemoryOperationJournal, MemoryPrimaryStore
from tests.memory.index import MemoryMappingIndex
from tests.support import Stack, unique_name
from tests.worlds.offset_servers import Served
from tests.worlds.row_owner import RowOwner

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


@pytest.fixture(params=["memory", "written", *STORES[1:]])
def stores(request: pytest.FixtureRequest) -> CassandraStores | WrittenStores | None:
    """The stores in Cassandra; its adapters on a keyspace in memory; None for those in memory."""
    if request.param == "memory":
        return None
    if request.param == "written":
        return WrittenStores(MemoryKeyspace())
    stores: CassandraStores = request.getfixturevalue("cassandra_stores")
    return stores


@pytest.fixture(params=STORES)
def index(request: pytest.FixtureRequest) -> MappingIndex:
    """The mapping index in memory, and in Cassandra."""
    if request.param == "memory":
        return MemoryMappingIndex()
    stores: CassandraStores = request.getfixturevalue("cassandra_stores")
    return stores.index


@pytest.fixture
def owner(index: MappingIndex) -> RowOwner:
    return RowOwner(index)


@pytest.fixture(params=STORES)
def blocks(request: pytest.FixtureRequest) -> BlockWriterStore:
    """Blocks in memory, and in Cassandra."""
    if request.param == "memory":
        return MemoryBlockStore()
    stores: CassandraStores = request.getfixturevalue("cassandra_stores")
    return stores.index


@pytest.fixture
def groups(stores: CassandraStores | WrittenStores | None) -> GroupStore:
    return MemoryGroupStore() if stores is None else stores.groups


@pytest.fixture
def primaries(stores: CassandraStores | WrittenStores | None) -> PrimaryStore:
    return MemoryPrimaryStore() if stores is None else stores.primaries


@pytest.fixture
def journal(stores: CassandraStores | WrittenStores | None) -> OperationJournal:
    return MemoryOperationJournal() if stores is None else stores.operations


@pytest.fixture(params=STORES)
def status(request: pytest.FixtureRequest) -> StatusStore:
    """The adapter on a keyspace in memory, and on Cassandra's."""
    if request.param == "memory":
        return WrittenStores(MemoryKeyspace()).status
    stores: CassandraStores = request.getfixturevalue("cassandra_stores")
    return stores.status


@pytest.fixture
def audit(stores: CassandraStores | WrittenStores | None) -> AuditLog:
    return MemoryAuditLog() if stores is None else stores.audit


@pytest.fixture
def partition() -> RoutePartition:
    """A partition that no other test uses."""
    route = Route(RegionName(unique_name("a")), RegionName("b"))
    return RoutePartition(route, TopicPartition(TopicName(unique_name("trips")), 0))


@pytest.fixture
def lineage() -> Lineage:
    return Lineage(TopicId("source_id-1"), TopicId("target_id-1"))


@pytest.fixture
def client(served: Served) -> Iterator[OffsetClient]:
    """Asks what the file's own fixture `served` serves, by gRPC."""
    with served.client() as found:
        yield found


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    """The same by REST."""
    with served.http() as found:
        yield found
