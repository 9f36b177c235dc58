"""What only the real store can show: expired rows, several schemas at once, and a store that is away."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from parallax.adapters.cassandra.connection import CassandraConnection
from parallax.adapters.cassandra.migrations import LATEST_VERSION
from parallax.adapters.cassandra.schema import Schema
from parallax.adapters.cassandra.stores import CassandraStores
from parallax.cli.main import app
from parallax.config.config import Cassandra, Index
from parallax.domain.block_rows import SECTION
from parallax.domain.history import History
from parallax.domain.ids import Lineage, RoutePartition, SourceOffset, TargetOffset
from parallax.errors import ConfigError, StoreUnavailableError
from parallax.runtime.deadline import wall_clock_ms
from tests.support import Stack, unique_name
from tests.worlds.histories import START_MS, Naive, batch, run
from tests.worlds.row_owner import RowOwner


def _forget_blocks(settings: Cassandra, partition: RoutePartition, end: int) -> None:
    """As if all blocks that begin below a target offset had expired."""
    with closing(CassandraConnection(settings, lambda _session: None)) as connection:
        for section in range(end // SECTION + 1):
            connection.run(
                f"DELETE FROM {settings.keyspace}.blocks USING TIMESTAMP {1 << 62} "  # noqa: S608 - a keyspace of our own
                "WHERE target = ? AND topic = ? AND partition = ? AND section = ?",
                partition.route.target,
                *partition.topic_partition,
                section,
            )


def test_where_blocks_have_expired_answers_are_coarser_and_never_wrong(
    cassandra_stores: CassandraStores,
    cassandra_settings: Cassandra,
    partition: RoutePartition,
    lineage: Lineage,
) -> None:
    rows = [run(10 * i, 20 * i, 10, 10 * i) for i in range(1_200)]
    owner = RowOwner(cassandra_stores.index, most_runs=10)
    for i in range(0, len(rows), 100):
        owner.write_rows(
            [batch(partition, lineage, rows[i : i + 100], at_ms=START_MS + 6_000 * i, version=i)],
            all_in_blocks=True,
        )
    _forget_blocks(cassandra_settings, partition, 24_000)
    stores = CassandraStores(cassandra_settings, Index())
    naive = Naive(rows)
    kept = set()
    with stores:
        for offset in range(3, 24_000, 397):
            found = Naive(stores.index.rows_at_target(partition, lineage, TargetOffset(offset)))
            floor, exact = found.floor_by_target(offset), naive.floor_by_target(offset)
            assert floor in rows
            assert exact is not None
            # One row of each block is left.
            assert exact.target_start - 20 * 10 <= floor.target_start <= exact.target_start
            kept.add(floor)
            source = offset // 2
            by_source = Naive(stores.index.rows_at_source(partition, lineage, SourceOffset(source)))
            floor, exact = by_source.floor_by_source(source), naive.floor_by_source(source)
            assert floor is not None
            assert exact is not None
            assert exact.source_start - 10 * 10 <= floor.source_start <= exact.source_start
            History(lineage, by_source.rows)
        assert len(kept) > 20
        page = stores.index.rows_from_target(partition, lineage, TargetOffset(0), 10_000)
        assert kept <= set(page.rows)


@pytest.fixture
def new_keyspace(infrastructure: Stack) -> Iterator[Cassandra]:
    settings = Cassandra(
        contact_points=(infrastructure.cassandra_address(),),
        keyspace=unique_name("schema").replace("-", "_"),
        request_timeout_ms=20_000,
    )
    yield settings
    with closing(CassandraConnection(settings, lambda _session: None)) as connection:
        connection.run_plain(f"DROP KEYSPACE IF EXISTS {settings.keyspace}")


def test_two_applies_at_once_leave_one_schema(new_keyspace: Cassandra) -> None:
    def apply(_: int) -> int:
        with closing(Schema(new_keyspace)) as schema:
            return len(schema.apply())

    with ThreadPoolExecutor(3) as pool:
        taken = list(pool.map(apply, range(3)))
    assert sorted(taken) == [0, 0, LATEST_VERSION]
    with closing(Schema(new_keyspace)) as schema:
        assert schema.status().version == LATEST_VERSION
        assert schema.planned() == ()
        assert schema.apply() == ()


def test_a_store_without_schema_says_what_to_run(new_keyspace: Cassandra) -> None:
    with CassandraStores(new_keyspace, Index()) as stores:
        with pytest.raises(ConfigError, match="parallax schema apply"):
            stores.groups.groups()
        with pytest.raises(ConfigError, match="parallax schema apply"):  # at once, from memory
            stores.connect()


def test_the_command_plans_applies_and_shows(new_keyspace: Cassandra, tmp_path: Path) -> None:
    config = tmp_path / "parallax.yaml"
    cluster = {"bootstrap_servers": "127.0.0.1:1"}
    values = {
        "regions": {"a": {"regional": cluster, "aggregate": cluster}},
        "cassandra": {
            "contact_points": list(new_keyspace.contact_points),
            "keyspace": new_keyspace.keyspace,
            "request_timeout_ms": new_keyspace.request_timeout_ms,
        },
    }
    config.write_text(yaml.safe_dump(values), encoding="utf-8")

    def parallax(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["schema", *arguments, "--config", str(config)])
        return result.exit_code, result.stdout

    code, shown = parallax("apply", "--dry-run")
    assert code == 0
    assert f"CREATE TABLE IF NOT EXISTS {new_keyspace.keyspace}.blocks" in shown
    code, shown = parallax("status")
    assert code == 1
    assert "schema version 0" in shown
    code, shown = parallax("apply")
    assert code == 0
    assert "applied 1" in shown
    code, shown = parallax("status", "--json")
    assert code == 0
    assert f'"version": {LATEST_VERSION}' in shown
    assert parallax("apply", "--dry-run") == (0, "nothing to do\n")


def test_its_clock_is_the_stores(cassandra_settings: Cassandra, monkeypatch: pytest.MonkeyPatch) -> None:
    before_ms, true_ns = wall_clock_ms(), time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: true_ns() + 10**18)
    with CassandraStores(cassandra_settings, Index()) as stores:
        assert abs(stores.clock.now_ms() - before_ms) < 60_000


def test_a_datacenter_that_the_store_does_not_have_is_named(new_keyspace: Cassandra) -> None:
    elsewhere = new_keyspace.model_copy(update={"local_datacenter": "nowhere"})
    with CassandraStores(elsewhere, Index()) as stores, pytest.raises(ConfigError) as caught:
        stores.connect()
    told = "cassandra.local_datacenter: the store has no datacenter 'nowhere'; it has "
    assert str(caught.value).startswith(told)


def _away(port: int) -> Cassandra:
    return Cassandra(contact_points=(f"127.0.0.1:{port}",), keyspace="nowhere", request_timeout_ms=500)


def test_a_closed_port_is_reported_within_the_time_out(partition: RoutePartition, lineage: Lineage) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with CassandraStores(_away(port), Index()) as stores:
        begun = time.monotonic()
        with pytest.raises(StoreUnavailableError, match=str(port)):
            stores.index.write_newest([batch(partition, lineage, [run(0, 0, 1)])])
        with pytest.raises(StoreUnavailableError):
            stores.groups.groups()
        assert time.monotonic() - begun < 10


def test_a_silent_port_is_reported_within_the_time_out() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with CassandraStores(_away(silent.getsockname()[1]), Index()) as stores:
            begun = time.monotonic()
            with pytest.raises(StoreUnavailableError):
                stores.connect()
            assert time.monotonic() - begun < 10


def test_a_schema_of_another_release_is_used_if_it_only_adds(new_keyspace: Cassandra) -> None:
    keyspace = new_keyspace.keyspace
    newer = LATEST_VERSION + 1
    insert = f"INSERT INTO {keyspace}.schema_version (part, version, description, needs) VALUES ('parallax', %s, '', %s)"  # noqa: S608 - a keyspace of our own
    with closing(Schema(new_keyspace)) as schema:
        schema.apply()
    with closing(CassandraConnection(new_keyspace, lambda _session: None)) as connection:
        # As a release from before steps said what they need has left it: the next apply adds the column.
        connection.run_plain(f"ALTER TABLE {keyspace}.schema_version DROP needs")
        with CassandraStores(new_keyspace, Index()) as stores:
            assert stores.groups.groups() == []
        connection.run_plain(
            f"DELETE FROM {keyspace}.schema_version WHERE part = 'parallax' AND version = %s",  # noqa: S608 - as above
            (LATEST_VERSION,),
        )
        with closing(Schema(new_keyspace)) as schema:
            assert [step.version for step in schema.apply()] == [LATEST_VERSION]

        connection.run_plain(f"ALTER TABLE {keyspace}.group_progress ADD of_release_2 text")
        connection.run_plain(insert, (newer, 1))
        with CassandraStores(new_keyspace, Index()) as stores:
            assert stores.groups.groups() == []
        connection.run_plain(insert, (newer, newer))
        with (
            CassandraStores(new_keyspace, Index()) as stores,
            pytest.raises(ConfigError, match=f"programs that know version {newer} can use"),
        ):
            stores.groups.groups()
        with closing(Schema(new_keyspace)) as schema:
            assert (schema.apply(), schema.status().version) == ((), newer)
