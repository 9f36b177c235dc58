"""The parts of a replication query that need no Spark to run: plans, epochs, reports, supervision, settings."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from parallax.adapters.spark.java import find_java_home
from parallax.adapters.spark.leases import LeaseMessage, LeaseReader, LeaseRow, LeaseWriter
from parallax.adapters.spark.reporting import HolderReporter, StatusTarget
from parallax.adapters.spark.session import (
    SPARE_SLOTS,
    SessionSettings,
    check_slots,
    is_local,
    local_slots,
    master_of,
    session_options,
)
from parallax.adapters.spark.status_server import StatusServer
from parallax.adapters.spark.supervisor import STEADY_AFTER_S, QueryPlan, Supervisor, first_lines
from parallax.config.config import Config
from parallax.domain.ids import RegionName, Route
from parallax.errors import ClusterUnavailableError, ConfigError, PreflightError
from parallax.runtime.deadline import Deadline
from parallax.runtime.retry import RetryPolicy
from replicator.lease import Lease, LeaseKey, LeaseProgress, lease_from_json, lease_to_json
from replicator.leases.board import LeaseReport, ProgressBoard, RouteSummary
from replicator.leases.claims import Claims
from replicator.leases.console import rates, route_table
from replicator.leases.holder import AggregateHolder, summed
from replicator.leases.planning import LeasePlan, lease_keys
from replicator.leases.query import routes_of
from replicator.leases.status import REPORTS_PATH, LeaseStatus
from tests.support import poll_until

A_TO_B = Route(RegionName("a"), RegionName("b"))
B_TO_B = Route(RegionName("b"), RegionName("b"))
TOKEN = "a-test's-own"  # noqa: S105 - no secret
PASSWORD = "never-to-be-seen"  # noqa: S105 - looked for


def config(**replicator: object) -> Config:
    cluster = {"bootstrap_servers": "127.0.0.1:1"}
    region = {"regional": cluster, "aggregate": cluster}
    return Config.model_validate(
        {
            "regions": {"a": region, "b": region},
            "cassandra": {"contact_points": ["127.0.0.1:2"], "username": "u", "password": PASSWORD},
            "replicator": replicator,
        }
    )


class TestLeases:
    def test_an_epoch_has_one_lease_per_route_and_shard(self) -> None:
        plan = LeasePlan({B_TO_B: 7, A_TO_B: 3}, shard_count=2, epoch_ms=600_000)
        leases = [lease_from_json(json.loads(text)) for text in plan.plan(epoch=5)]
        assert [(lease.route, lease.shard, lease.layout) for lease in leases] == [
            (A_TO_B, 0, 3),
            (A_TO_B, 1, 3),
            (B_TO_B, 0, 7),
            (B_TO_B, 1, 7),
        ]
        assert {(lease.epoch, lease.shard_count, lease.available_now) for lease in leases} == {(5, 2, False)}
        assert len({lease.deadline_unix_ms for lease in leases}) == 1

    def test_an_epoch_s_deadline_counts_from_its_own_plan(self) -> None:
        plan = LeasePlan({A_TO_B: 1}, shard_count=1, epoch_ms=1_000)
        first, second = (json.loads(plan.plan(epoch)[0])["deadline_unix_ms"] for epoch in (1, 2))
        assert second >= first

    def test_a_lease_survives_json(self) -> None:
        lease = Lease(A_TO_B, 1, 2, 3, 4, 5, available_now=True)
        assert lease_from_json(json.loads(json.dumps(lease_to_json(lease)))) == lease

    def test_leases_are_counted_over_all_routes_of_all_regions(self) -> None:
        settings = config(shards_per_route=3)
        routes = routes_of(settings, [RegionName("a"), RegionName("b"), RegionName("a")])
        assert len(routes) == 4
        assert len(set(lease_keys(settings, routes))) == 12


class Planner:
    def plan(self, epoch: int) -> Sequence[str]:
        return [f"{epoch}/0", f"{epoch}/1"]


class Holder:
    def __init__(self) -> None:
        self.ended: list[tuple[int, Sequence[Mapping[str, int]]]] = []
        self.failed: list[tuple[int, Sequence[Mapping[str, int]]]] = []

    def hold(self, lease: str) -> Mapping[str, int]:
        return {"records": len(lease)}

    def epoch_ended(self, epoch: int, counts: Sequence[Mapping[str, int]]) -> None:
        self.ended.append((epoch, counts))

    def epoch_failed(self, epoch: int, counts: Sequence[Mapping[str, int]]) -> None:
        self.failed.append((epoch, counts))


class TestDataSource:
    def test_there_is_always_a_next_epoch(self) -> None:
        reader, offset = LeaseReader(Planner()), LeaseReader(Planner()).initialOffset()
        for epoch in (1, 2, 3):
            offset = reader.latestOffset(offset, ReadAllAvailable())
            assert offset == {"epoch": epoch}

    def test_available_now_is_one_epoch_and_no_more(self) -> None:
        reader = LeaseReader(Planner())
        reader.prepareForTriggerAvailableNow()
        first = reader.latestOffset({"epoch": 4}, ReadAllAvailable())
        assert first == {"epoch": 5}
        assert reader.latestOffset(first, ReadAllAvailable()) == first

    def test_a_task_reads_its_lease_as_one_row(self) -> None:
        reader = LeaseReader(Planner())
        rows = reader.partitions({"epoch": 1}, {"epoch": 2})
        assert [list(reader.read(row)) for row in rows] == [[("2/0",)], [("2/1",)]]
        assert rows[0] == LeaseRow("2/0")

    def test_a_task_says_what_its_lease_counted(self) -> None:
        writer = LeaseWriter(Holder())
        assert writer.write(iter([("2/0",)])) == LeaseMessage(({"records": 3},))

    def test_the_driver_hears_of_the_epoch_that_spark_calls_a_batch(self) -> None:
        holder = Holder()
        writer = LeaseWriter(holder)
        writer.commit([LeaseMessage(({"records": 1},)), LeaseMessage(({"records": 2},))], 0)
        writer.abort([LeaseMessage(({"records": 1},)), None], 1)
        assert holder.ended == [(1, [{"records": 1}, {"records": 2}])]
        assert holder.failed == [(2, [{"records": 1}])]

    def test_counts_add_up_by_name(self) -> None:
        assert summed([{"a": 1}, {"a": 2, "b": 3}, {}]) == {"a": 3, "b": 3}

    def test_neither_holder_nor_target_shows_a_secret(self) -> None:
        target = StatusTarget("127.0.0.1", 1, TOKEN)
        shown = repr(AggregateHolder(config(), target, "b", {})) + repr(target)
        assert TOKEN not in shown
        assert PASSWORD not in shown


class TestReporter:
    def report(self, reporter: HolderReporter, records: int, *, ended: bool = False) -> LeaseReport:
        progress = LeaseProgress(
            Lease(A_TO_B, 0, 1, 1, 1, 0), (), transactions=records, aborts=0, index_lag_ms=0
        )
        return LeaseReport(progress, reporter.attempt, ended)

    def test_the_board_gets_the_newest_report_and_the_goodbye(self) -> None:
        board = ProgressBoard([LeaseKey(A_TO_B, 0)])
        server = StatusServer("127.0.0.1:0", [LeaseStatus(board, Claims([]))], token=TOKEN)
        server.start()
        try:
            target = StatusTarget(*server.address, TOKEN)
            reporter = HolderReporter(target, REPORTS_PATH)
            assert not target.application_ends()
            reporter.put(self.report(reporter, 1))
            poll_until(lambda: board.active() == [LeaseKey(A_TO_B, 0)], 10, "a report")
            server.end_leases()
            assert target.application_ends()
            reporter.put(self.report(reporter, 2))
            poll_until(reporter.end_asked.is_set, 10, "the request to end")
            reporter.close(self.report(reporter, 3, ended=True))
            assert board.active() == []
            assert board.leases()[LeaseKey(A_TO_B, 0)].transactions.value == 3
        finally:
            server.close()

    def test_a_driver_that_does_not_answer_does_not_hurt(self) -> None:
        server = StatusServer("127.0.0.1:0", [], token=TOKEN)
        target = StatusTarget(*server.address, TOKEN)
        server.close()
        reporter = HolderReporter(target, REPORTS_PATH)
        reporter.put(self.report(reporter, 1))
        assert not target.application_ends()
        assert not reporter.end_asked.is_set()
        assert reporter.close(self.report(reporter, 2))

    def test_a_lease_without_any_report_says_no_goodbye(self) -> None:
        board = ProgressBoard([LeaseKey(A_TO_B, 0)])
        server = StatusServer("127.0.0.1:0", [LeaseStatus(board, Claims([]))], token=TOKEN)
        server.start()
        try:
            assert HolderReporter(StatusTarget(*server.address, TOKEN), REPORTS_PATH).close()
            assert board.leases() == {}
        finally:
            server.close()


class FakeQuery:
    def __init__(self) -> None:
        self.isActive = True
        self.status = {"isTriggerActive": True}
        self.error: Exception | None = None
        self.stopped = False

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.isActive, self.stopped = False, True

    def end(self, error: Exception | None = None) -> None:
        self.isActive, self.error = False, error


class World:
    """A clock, and the queries that were started."""

    def __init__(self, *, ends_by_itself: bool = False) -> None:
        self.now_s = 0.0
        self.started: list[FakeQuery] = []
        self.refusals: list[Exception] = []
        policy = RetryPolicy(first_wait_ms=1_000, longest_wait_ms=4_000)
        plan = QueryPlan("replicate-b", self.start, ends_by_itself)
        self.supervisor = Supervisor([plan], policy, clock=lambda: self.now_s)

    def start(self) -> FakeQuery:
        if self.refusals:
            raise self.refusals.pop(0)
        self.started.append(FakeQuery())
        return self.started[-1]

    def seconds_until_start(self, number: int) -> float:
        """Let time pass until the query number ``number`` has started."""
        before_s = self.now_s
        while len(self.started) < number:
            self.now_s += 0.1
            self.supervisor.step()
            assert self.now_s < before_s + 60
        return self.now_s - before_s


class TestSupervisor:
    def test_a_failed_query_starts_again_after_growing_waits(self) -> None:
        world = World()
        world.seconds_until_start(1)
        waits = []
        for number in (2, 3, 4, 5):
            world.started[-1].end(RuntimeError("executor lost"))
            waits.append(world.seconds_until_start(number))
        assert 0.5 <= waits[0] <= 1.3
        assert 2.0 <= waits[3] <= 4.3
        assert world.supervisor.state()[0]["restarts"] == 4

    def test_a_query_that_ran_for_long_begins_with_the_shortest_wait_again(self) -> None:
        world = World()
        world.seconds_until_start(1)
        for number in (2, 3, 4):
            world.started[-1].end(RuntimeError("executor lost"))
            world.seconds_until_start(number)
        world.now_s += STEADY_AFTER_S + 1
        world.started[-1].end(RuntimeError("executor lost"))
        assert world.seconds_until_start(5) <= 1.3

    def test_a_cluster_that_is_away_is_waited_for(self) -> None:
        world = World()
        world.refusals = [ClusterUnavailableError("aggregate-b: no answer")] * 3
        world.seconds_until_start(1)
        assert world.supervisor.state()[0]["restarts"] == 0

    def test_any_other_refusal_is_final(self) -> None:
        world = World()
        world.refusals = [ConfigError("no such thing")]
        with pytest.raises(ConfigError):
            world.supervisor.step()

    def test_a_query_that_ends_by_itself_is_done(self) -> None:
        world = World(ends_by_itself=True)
        assert world.supervisor.step()
        world.started[0].end()
        assert not world.supervisor.step()

    def test_a_query_that_should_go_on_is_started_again_even_if_it_ended_well(self) -> None:
        world = World()
        world.seconds_until_start(1)
        world.started[0].end()
        world.seconds_until_start(2)
        assert len(world.started) == 2

    def test_queries_begin_one_after_the_other(self) -> None:
        first, second = FakeQuery(), FakeQuery()
        first.status["isTriggerActive"] = False
        started = []

        def start(query: FakeQuery) -> FakeQuery:
            started.append(query)
            return query

        supervisor = Supervisor([QueryPlan("1", lambda: start(first)), QueryPlan("2", lambda: start(second))])
        supervisor.step()
        supervisor.step()
        assert started == [first]
        first.status["isTriggerActive"] = True
        supervisor.step()
        assert started == [first, second]

    def test_stop_ends_the_run_and_then_the_queries(self) -> None:
        world = World()
        stop = threading.Event()
        world.supervisor.run(stop, each_time=stop.set)
        assert world.started[0].isActive
        world.supervisor.stop_all()
        assert world.started[0].stopped

    def test_a_long_message_is_cut_to_its_beginning(self) -> None:
        assert first_lines("why\n\n=== plan ===\nmore\nstill more") == "why\n=== plan ==="


class TestSession:
    def test_the_local_master_has_a_slot_for_every_lease_and_some_to_spare(self) -> None:
        assert master_of(SessionSettings("x", leases=4)) == "local[6, 8]"
        assert local_slots("local[6, 8]") == 4 + SPARE_SLOTS
        assert master_of(SessionSettings("x", leases=4, master="spark://h:1")) == "spark://h:1"

    @pytest.mark.parametrize(
        ("master", "slots"),
        [("local", 1), ("local[3]", 3), ("local[4,2]", 4), ("spark://h:7077", None), ("yarn", None)],
    )
    def test_slots_of_a_master(self, master: str, slots: int | None) -> None:
        assert local_slots(master) == slots
        assert is_local(master) == (slots is not None)

    def test_no_lease_is_ever_held_twice_on_purpose(self) -> None:
        options = session_options(SessionSettings("x", leases=1))
        assert options["spark.speculation"] == "false"
        assert options["spark.ui.enabled"] == "false"
        assert options["spark.driver.bindAddress"] == "127.0.0.1"

    def test_a_cluster_s_driver_is_not_bound_to_the_loopback_interface(self) -> None:
        options = session_options(SessionSettings("x", leases=1, master="spark://h:7077"))
        assert "spark.driver.bindAddress" not in options

    def test_slots_are_waited_for(self) -> None:
        seen = iter([0, 2, 4])
        assert check_slots(lambda: next(seen), 4, Deadline.after_ms(60_000), sleep=lambda _s: None) == 4

    def test_too_few_slots_are_refused_at_the_deadline(self) -> None:
        with pytest.raises(PreflightError, match="4 leases need as many task slots, but Spark has 3"):
            check_slots(lambda: 3, 4, Deadline.after_ms(0), sleep=lambda _s: None)


class TestJava:
    def test_java_home_comes_first(self, tmp_path: Path) -> None:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.touch(mode=0o755)
        assert find_java_home({"JAVA_HOME": str(tmp_path), "PATH": ""}) == tmp_path.resolve()

    def test_without_any_other_the_wheel_s_java_is_taken(self) -> None:
        assert (find_java_home({"PATH": ""}) / "bin" / "java").is_file()


def test_rates_are_differences_over_time() -> None:
    def summary(records: int) -> RouteSummary:
        return RouteSummary(A_TO_B, records, records * 100, 3, 12.0, 5.0, 1, "")

    (rate,) = rates({A_TO_B: summary(100)}, [summary(400)], elapsed_s=2.0)
    assert (rate.records_per_s, rate.bytes_per_s) == (150, 15_000)
    (first,) = rates({}, [summary(400)], elapsed_s=2.0)
    assert first.records_per_s == 0
    assert route_table([rate]).row_count == 1
