"""What only the real store can show: expired rows, several schemas at once, and a store that is away."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from parallax.adapters.cassandra.connection import CassandraConnection
from parallax.adapters.cassandra.migrations import LATEST_VERSION
from parallax.adapters.cassandra.schema import Schema
from parallax.adapters.cassandra.stores import CassandraStores
from parallax.cli.main import app
from parallax.config.config import Cassandra, Index
from parallax.domain.history import History
from parallax.domain.ids import Lineage, RoutePartition, SourceOffset, TargetOffset, TopicId
from parallax.domain.index_rows import RowPlace
from parallax.errors import ConfigError, StoreUnavailableError
from parallax.runtime.deadline import wall_clock_ms
from tests.support import Stack, unique_name
from tests.worlds.histories import START_MS, Naive, batch, mark, run

HOUR = START_MS // 3_600_000


def _forget_fine_rows(settings: Cassandra, partition: RoutePartition, lineage: Lineage, hours: range) -> None:
    with closing(CassandraConnection(settings, lambda _session: None)) as connection:
        for hour in hours:
            connection.run(
                f"DELETE FROM {settings.keyspace}.fine_rows WHERE route = ? AND topic = ? AND partition = ? "  # noqa: S608 - a keyspace of our own
                "AND lineage = ? AND hour = ?",
                str(partition.route),
                partition.topic_partition.topic,
                partition.topic_partition.partition,
                str(lineage),
                hour,
            )


def test_where_fine_rows_have_expired_answers_are_coarser_and_never_wrong(
    cassandra_stores: CassandraStores,
    cassandra_settings: Cassandra,
    partition: RoutePartition,
    lineage: Lineage,
) -> None:
    index = cassandra_stores.index
    rows = [run(10 * i, 20 * i, 10, 10 * i) for i in range(1_200)]
    for i in range(0, len(rows), 100):
        index.write_rows(
            [
                batch(partition, lineage, [rows[j]], at_ms=START_MS + 6_000 * j, version=j)
                for j in range(i, i + 100)
            ]
        )
    index.write_rows(
        [batch(partition, lineage, [mark(12_000, 24_000, 12_000)], at_ms=START_MS + 7_300_000, version=9_999)]
    )
    _forget_fine_rows(cassandra_settings, partition, lineage, range(HOUR, HOUR + 3))
    naive = Naive(rows)
    kept = set()
    for offset in range(3, 24_000, 397):
        found = Naive(index.rows_at_target(partition, lineage, TargetOffset(offset)))
        floor, exact = found.floor_by_target(offset), naive.floor_by_target(offset)
        assert floor in rows
        assert exact is not None
        # One coarse row a minute: here every tenth run.
        assert exact.target_start - 20 * 10 <= floor.target_start <= exact.target_start
        kept.add(floor)
        source = offset // 2
        by_source = Naive(index.rows_at_source(partition, lineage, SourceOffset(source)))
        floor, exact = by_source.floor_by_source(source), naive.floor_by_source(source)
        assert floor is not None
        assert exact is not None
        assert exact.source_start - 10 * 10 <= floor.source_start <= exact.source_start
        History(lineage, by_source.rows)
    assert len(kept) > 20
    # The last run before the partition fell idle was kept.
    assert naive.rows[-1] in index.rows_at_target(partition, lineage, TargetOffset(23_999))
    page = index.rows_from_target(partition, lineage, TargetOffset(0), 10_000)
    assert page.complete_to == 24_000
    assert kept <= set(page.rows)


def test_settled_places_of_several_lineages_cost_one_round_trip(
    remembering_stores: CassandraStores, partition: RoutePartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = remembering_stores.index
    lineages = [Lineage(TopicId("s"), TopicId("t"), number) for number in range(3)]
    rows = [run(10 * i, 20 * i, 10, 10 * i) for i in range(2_000)]
    for lineage in lineages:
        index.write_rows(
            [
                batch(partition, lineage, rows[i : i + 20], at_ms=START_MS + 1_500 * i, version=i + 1)
                for i in range(0, len(rows), 20)
            ]
        )
    # The first questions about a day read their way, and learn it.
    for target in (3_000, 17_000, 33_000):
        index.rows_around([RowPlace(partition, lineage, target=TargetOffset(target)) for lineage in lineages])
    trips: list[int] = []
    run_all = CassandraConnection.run_all

    def counted(self: CassandraConnection, requests: Iterable[Any]) -> Any:
        asked = list(requests)
        if asked:
            trips.append(len(asked))
        return run_all(self, asked)

    monkeypatch.setattr(CassandraConnection, "run_all", counted)

    # Of every twenty rows written together, these lie in the middle.
    found = index.rows_around(
        [RowPlace(partition, lineage, target=TargetOffset(20 * 910 + 5)) for lineage in lineages]
        + [RowPlace(partition, lineage, source=SourceOffset(10 * 450 + 5)) for lineage in lineages]
    )
    assert trips == [6]
    assert [Naive(each).floor_by_target(20 * 910 + 5) for each in found[:3]] == [rows[910]] * 3
    assert [Naive(each).floor_by_source(10 * 450 + 5) for each in found[3:]] == [rows[450]] * 3

    trips.clear()
    page = index.rows_from_target(partition, lineages[0], TargetOffset(20 * 905), 128, TargetOffset(20 * 930))
    assert trips == [2]
    assert [row for row in page.rows if row.target_start < 20 * 930] == rows[905:930]
    assert page.complete_to >= 20 * 930


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
    assert f"CREATE TABLE IF NOT EXISTS {new_keyspace.keyspace}.fine_rows" in shown
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
            stores.index.write_rows([batch(partition, lineage, [run(0, 0, 1)])])
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
