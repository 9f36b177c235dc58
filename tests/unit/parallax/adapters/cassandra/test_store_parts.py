"""The pure parts of the stores: packing, the choice of coarse rows, and the table of errors."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import cassandra
import cassandra.cluster
import cassandra.connection
import cassandra.pool
import cassandra.protocol
import cassandra.query
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallax.adapters.cassandra.coarse import CoarseChooser
from parallax.adapters.cassandra.codec import pack, unpack
from parallax.adapters.cassandra.connection import BY_TYPE, contact_points, translated, wrong_datacenter
from parallax.adapters.cassandra.schema import keyspace_of, keyspace_statement
from parallax.config.config import Cassandra
from parallax.domain.ids import (
    Lineage,
    RegionName,
    Route,
    RoutePartition,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.index_rows import RowBatch
from parallax.domain.runs import Run
from parallax.errors import ConfigError, InvariantError, StoreUnavailableError

OFFSETS = st.integers(0, 2**62)


@st.composite
def any_run(draw: st.DrawFn) -> Run:
    source = draw(OFFSETS)
    return Run(
        SourceOffset(source),
        TargetOffset(draw(OFFSETS)),
        draw(OFFSETS),
        SourceOffset(draw(st.integers(0, source))),
        draw(st.integers(-1, 2**31 - 1)),
    )


def run(source: int, target: int, count: int) -> Run:
    return Run(SourceOffset(source), TargetOffset(target), count, SourceOffset(source), 0)


class TestPacking:
    @given(rows=st.lists(any_run(), max_size=20), committed_at_ms=st.integers(0, 2**48))
    def test_what_was_packed_comes_out(self, rows: list[Run], committed_at_ms: int) -> None:
        found = unpack(pack(rows, committed_at_ms))
        assert (list(found.rows), found.committed_at_ms) == (rows, committed_at_ms)

    def test_runs_in_a_row_take_few_bytes(self) -> None:
        rows = [run(1_000_000 + 100 * i, 2_000_000 + 350 * i, 100) for i in range(100)]
        assert len(pack(rows, 1_800_000_000_000)) < 8 * len(rows)

    @given(rows=st.lists(any_run(), min_size=1, max_size=3), data=st.data())
    def test_a_blob_that_was_cut_or_grew_is_refused(self, rows: list[Run], data: st.DataObject) -> None:
        blob = pack(rows, 5)
        cut = data.draw(st.integers(0, len(blob) - 1))
        with pytest.raises(InvariantError):
            unpack(blob[:cut])
        with pytest.raises(InvariantError, match="unknown bytes"):
            unpack(blob + b"\x00")

    def test_another_format_is_refused(self) -> None:
        with pytest.raises(InvariantError, match="unknown format: 63"):
            unpack(b"c\x00")


PARTITION = RoutePartition(Route(RegionName("a"), RegionName("b")), TopicPartition(TopicName("trips"), 0))
LINEAGE = Lineage(TopicId("s"), TopicId("t"))


def batch(at_s: int, *rows: Run) -> RowBatch:
    return RowBatch(PARTITION, LINEAGE, rows, (), at_s * 1_000, at_s)


def chosen(chooser: CoarseChooser, *batches: RowBatch) -> list[Run]:
    plan = chooser.plan(batches)
    chooser.done(plan)
    return [item.row for item in plan.rows]


class TestCoarseRows:
    def test_the_newest_run_of_the_first_batch_of_each_interval(self) -> None:
        runs = [run(i, i, 1) for i in range(6)]
        chooser = CoarseChooser(60)
        assert chosen(chooser, batch(1, runs[0], runs[1]), batch(2, run(2, 2, 0))) == [runs[1]]
        assert chosen(chooser, batch(61, run(2, 2, 0))) == [run(2, 2, 0)]

    def test_the_last_run_before_an_idle_stretch_is_kept_when_it_ends_or_goes_on(self) -> None:
        first, last, mark = run(0, 0, 1), run(1, 1, 1), run(2, 2, 0)
        chooser = CoarseChooser(60)
        assert chosen(chooser, batch(1, first), batch(2, last)) == [first]
        assert chosen(chooser, batch(61, mark)) == [last, mark]

    def test_a_new_hour_begins_a_new_interval(self) -> None:
        chooser = CoarseChooser(7 * 60)
        assert chosen(chooser, batch(3_599, run(0, 0, 1))) == [run(0, 0, 1)]
        assert chosen(chooser, batch(3_600, run(1, 1, 1))) == [run(1, 1, 1)]

    def test_a_plan_that_was_not_written_is_made_again(self) -> None:
        chooser = CoarseChooser(60)
        batches = [batch(1, run(0, 0, 1)), batch(2, run(1, 1, 1)), batch(70, run(2, 2, 1))]
        assert chooser.plan(batches) == chooser.plan(batches)
        assert chosen(chooser, *batches) == [run(0, 0, 1), run(1, 1, 1), run(2, 2, 1)]


class TestErrors:
    @pytest.mark.parametrize(
        "module",
        [
            cassandra,
            cassandra.cluster,
            cassandra.connection,
            cassandra.pool,
            cassandra.query,
        ],
    )
    def test_every_error_of_the_driver_has_a_meaning(self, module: object) -> None:
        own = [
            item
            for item in vars(module).values()
            if inspect.isclass(item) and issubclass(item, Exception) and item.__module__ == module.__name__  # type: ignore[attr-defined] # it is a module
        ]
        assert own
        assert [item for item in own if item not in BY_TYPE] == []

    def test_every_answer_of_a_server_has_a_meaning(self) -> None:
        answers = [
            item
            for item in vars(cassandra.protocol).values()
            if inspect.isclass(item) and issubclass(item, Exception)
        ]
        assert answers
        unknown = [item for item in answers if not any(base in BY_TYPE for base in item.__mro__)]
        assert unknown == []

    def test_the_message_names_what_was_done_and_what_came_back(self) -> None:
        error = translated(cassandra.OperationTimedOut(), "3 request(s)")
        assert isinstance(error, StoreUnavailableError)
        assert str(error).startswith("store: 3 request(s): OperationTimedOut")

    def test_a_wrong_password_is_a_matter_of_configuration(self) -> None:
        refused = {"127.0.0.1:1": cassandra.AuthenticationFailed("bad credentials")}
        error = translated(cassandra.cluster.NoHostAvailable("none", refused), "connecting")
        assert isinstance(error, ConfigError)


class TestSettings:
    def test_a_contact_point_may_leave_out_the_port(self) -> None:
        settings = Cassandra(contact_points=("db1", "db2:19042"))
        assert contact_points(settings) == [("db1", 9042), ("db2", 19042)]

    @pytest.mark.parametrize("point", [":9042", "db:", "db:port"])
    def test_a_contact_point_that_can_not_be_is_refused(self, point: str) -> None:
        with pytest.raises(ConfigError, match=point):
            contact_points(Cassandra(contact_points=(point,)))

    @pytest.mark.parametrize("name", ["Parallax", "p; DROP", "1p", "p" * 49, ""])
    def test_a_keyspace_is_a_plain_name(self, name: str) -> None:
        with pytest.raises(ConfigError, match=r"cassandra\.keyspace"):
            keyspace_of(Cassandra(contact_points=("db",), keyspace=name))

    def test_the_keyspace_is_copied_to_every_datacenter_named(self) -> None:
        settings = Cassandra(contact_points=("db",), replication={"east": 3, "west": 2})
        assert keyspace_statement(settings).endswith(
            "{'class': 'NetworkTopologyStrategy', 'east': 3, 'west': 2}"
        )

    @pytest.mark.parametrize(
        ("known", "wrong"),
        [([], False), ([None], False), (["dc1", "dc2", None], False), (["dc2", "dc3", "dc2"], True)],
    )
    def test_a_datacenter_is_wrong_if_others_are_known(self, known: list[str | None], *, wrong: bool) -> None:
        hosts = [SimpleNamespace(datacenter=name) for name in known]
        cluster = SimpleNamespace(metadata=SimpleNamespace(all_hosts=lambda: hosts))
        settings = Cassandra(contact_points=("127.0.0.1",), local_datacenter="dc1")
        found = wrong_datacenter(settings, cluster)  # type: ignore[arg-type] # what is asked of it is there
        assert (found is not None) == wrong
        if found is not None:
            assert "no datacenter 'dc1'; it has dc2, dc3" in str(found)

    def test_a_datacenter_with_a_quote_is_refused(self) -> None:
        settings = Cassandra(contact_points=("db",), replication={"e'ast": 3})
        with pytest.raises(ConfigError, match="datacenter"):
            keyspace_statement(settings)
