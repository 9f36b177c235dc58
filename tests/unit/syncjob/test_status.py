"""The syncjob's state on the driver: totals over holders, readiness, metrics, and how reports come there."""

from __future__ import annotations

import json
import math
import pickle
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import pytest

import syncjob.run
from parallax.adapters.spark.application import Application
from parallax.adapters.spark.reporting import StatusTarget
from parallax.adapters.spark.status_server import StatusServer
from parallax.config.config import Config
from parallax.domain.ids import ClusterName, GroupName, RegionName, Route, TopicName, TopicPartition
from parallax.domain.outcome import Outcome
from parallax.errors import StoreUnavailableError
from parallax.runtime.deadline import Deadline
from replicator import command as replicate
from replicator.lease import LeaseKey
from replicator.leases.board import ProgressBoard
from replicator.leases.claims import Claims
from replicator.leases.status import ReplicationStatus
from syncjob import command as sync
from syncjob.decide import Decision, Reason
from syncjob.query import SyncHolder, SyncPlan
from syncjob.report import CycleReport
from syncjob.status import (
    LATE_AFTER_AT_LEAST_MS,
    LATE_AFTER_INTERVALS,
    REPORTS_PATH,
    SyncBoard,
    SyncReport,
    late_after_ms,
)
from tests.support import poll_until

TOKEN = "token"  # noqa: S105 - a test's own
KEY = LeaseKey(Route(RegionName("a"), RegionName("b")), 0)
CONFIG = Config.model_validate(
    {
        "regions": {
            name: {
                "aggregate": {"bootstrap_servers": "127.0.0.1:1"},
                "offsetsvc": {"grpc": "127.0.0.1:2", "rest": "127.0.0.1:3"},
            }
            for name in ("a", "b")
        },
        "cassandra": {"contact_points": ["127.0.0.1:4"]},
        "sync": {"interval_ms": 100},
    }
)


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def report(attempt: str = "first", problem: str = "", **counts: int) -> dict[str, Any]:
    return SyncReport(attempt, counts, problem).to_json()


def samples(board: SyncBoard) -> dict[str, float]:
    return {
        ".".join((sample.name, *sample.labels.values())): sample.value
        for family in board.collect()
        for sample in family.samples
    }


def test_the_bound_follows_the_interval_and_covers_the_border_of_two_epochs() -> None:
    assert late_after_ms(1_000) == LATE_AFTER_AT_LEAST_MS
    assert late_after_ms(60_000) == 60_000 * LATE_AFTER_INTERVALS


def test_it_is_not_ready_before_a_good_cycle() -> None:
    board = SyncBoard(1_000)
    assert board.missing() == ("has not finished a good cycle yet",)
    board.record(report(problem="[STORE_UNAVAILABLE] nobody answers", failed_cycles=1))
    (problem,) = board.missing()
    assert problem.endswith("yet; its last cycle failed: [STORE_UNAVAILABLE] nobody answers")
    assert "parallax_sync_last_good_cycle_age_ms" not in samples(board)
    board.record(report(cycles=1, failed_cycles=1))
    assert not board.missing()


def test_what_cant_be_read_is_named_and_counted() -> None:
    board = SyncBoard(1_000)
    assert samples(board)["parallax_sync_unreadable_rows"] == 0
    board.record(SyncReport("first", {"cycles": 1}, "", ("group_published of group 'g'",), 30).to_json())
    assert samples(board)["parallax_sync_unreadable_rows"] == 30
    assert board.state()["sync"]["unreadable_rows"] == ["group_published of group 'g'"]
    assert board.missing() == ()  # all others are served
    board.record(report(cycles=2))
    assert samples(board)["parallax_sync_unreadable_rows"] == 0
    assert board.state()["sync"]["unreadable_rows"] == []


def test_it_is_not_ready_once_the_last_good_cycle_is_too_old() -> None:
    clock = FakeClock()
    board = SyncBoard(1_000, clock)
    board.record(report(cycles=1))
    clock.now_s += 29
    board.record(report(problem="away", cycles=1, failed_cycles=1))
    assert not board.missing()
    assert samples(board)["parallax_sync_last_good_cycle_age_ms"] == 29_000
    clock.now_s += 2
    board.record(report(problem="away", cycles=1, failed_cycles=2))
    assert board.missing() == (
        "finished its last good cycle 31 s ago, which may be 30 s at most; its last cycle failed: away",
    )
    board.record(report(cycles=2, failed_cycles=2))
    assert not board.missing()


def test_a_holder_that_has_gone_is_not_ready_either() -> None:
    clock = FakeClock()
    board = SyncBoard(1_000, clock)
    board.record(report(cycles=1))
    clock.now_s += 31
    assert board.missing() == ("finished its last good cycle 31 s ago, which may be 30 s at most",)


def test_counters_go_on_where_a_holder_begins_anew() -> None:
    board = SyncBoard(1_000)
    board.record(report("first", cycles=5, published=3, unchanged=7, moves=1, failed_groups=2))
    board.record(report("second", cycles=1, failed_cycles=1, published=1, failed_groups=1))
    board.record(report("first", cycles=6, published=4))  # late: another has replaced it
    found = samples(board)
    assert found["parallax_sync_cycles_total"] == 6
    assert found["parallax_sync_failed_cycles_total"] == 1
    assert found["parallax_sync_failed_groups_total"] == 3
    assert found["parallax_sync_decisions_total.published"] == 4
    assert found["parallax_sync_decisions_total.unchanged"] == 7


def test_every_reason_is_there_from_the_start_and_nothing_else() -> None:
    board = SyncBoard(1_000)
    wanted = {f"parallax_sync_decisions_total.{reason.value}" for reason in Reason}
    assert {name for name in samples(board) if "decisions" in name} == wanted
    board.record(report(cycles=1, made_up=1))
    assert {name for name in samples(board) if "decisions" in name} == wanted


def test_the_first_report_of_a_holder_that_failed_is_no_good_cycle() -> None:
    clock = FakeClock()
    board = SyncBoard(1_000, clock)
    board.record(report("first", cycles=5))
    clock.now_s += 31
    board.record(report("second", problem="away", failed_cycles=1))
    assert board.missing()


@pytest.fixture
def board() -> SyncBoard:
    return SyncBoard(100)


@pytest.fixture
def server(board: SyncBoard) -> Iterator[StatusServer]:
    running = StatusServer("127.0.0.1:0", [board], token=TOKEN)
    running.start()
    yield running
    running.close()


def get(server: StatusServer, path: str) -> tuple[int, str]:
    status, _, body = server.get(path)
    return status, body.decode()


def test_the_server_of_the_sync_job_alone_is_ready_with_it(server: StatusServer) -> None:
    assert get(server, "/readyz") == (503, "sync has not finished a good cycle yet\n")
    status = json.loads(get(server, "/status")[1])
    assert (status["ready"], status["sync"]["ready"]) == (False, False)
    assert status["sync"]["last_good_cycle_age_ms"] is None
    posted = server.post(REPORTS_PATH, TOKEN, json.dumps(report(cycles=1, published=2)).encode())
    assert posted[0] == HTTPStatus.OK
    assert get(server, "/readyz") == (200, "ready\n")
    status = json.loads(get(server, "/status")[1])
    assert (status["ready"], status["missing"], status["sync"]["missing"]) == (True, {}, [])
    assert (status["sync"]["cycles"], status["sync"]["decisions"]) == (1, {"published": 2})
    metrics = get(server, "/metrics")[1]
    assert "parallax_sync_cycles_total 1.0" in metrics
    assert 'parallax_sync_decisions_total{reason="published"} 2.0' in metrics
    assert "parallax_replicator_" not in metrics


def test_a_replicator_with_the_sync_job_waits_for_both(board: SyncBoard) -> None:
    leases = ReplicationStatus(ProgressBoard([KEY]), Claims([KEY]))
    server = StatusServer("127.0.0.1:0", [leases, board], token=TOKEN)
    try:
        board.record(report(cycles=1))
        assert get(server, "/readyz") == (503, "lease a->b/0 has not reported yet\n")
        assert json.loads(get(server, "/status")[1])["ready"] is False
        board.record(report("next"))
        assert len(get(server, "/readyz")[1].splitlines()) == 1
    finally:
        server.close()


def test_a_replicator_alone_says_nothing_of_the_sync_job() -> None:
    server = StatusServer("127.0.0.1:0", [ReplicationStatus(ProgressBoard([]), Claims([]))], token=TOKEN)
    try:
        assert get(server, "/readyz") == (200, "ready\n")
        assert set(json.loads(get(server, "/status")[1])) == {
            "ready",
            "missing",
            "stopped",
            "leases",
            "queries",
        }
        assert "parallax_sync_" not in get(server, "/metrics")[1]
        assert server.post(REPORTS_PATH, TOKEN, json.dumps(report(cycles=1)).encode())[0] == 404
    finally:
        server.close()


@pytest.mark.parametrize(
    ("body", "token", "expected"),
    [
        (b"{}", TOKEN, 400),
        (b"[]", TOKEN, 400),
        (b'{"attempt": "x", "counts": {"cycles": "many"}, "problem": ""}', TOKEN, 400),
        (b'{"attempt": "x", "counts": {"cycles": 1}, "problem": ""}', "wrong", 403),
    ],
)
def test_bad_reports_are_refused(server: StatusServer, body: bytes, token: str, expected: int) -> None:
    assert server.post(REPORTS_PATH, token, body)[0] == expected
    assert get(server, "/readyz")[0] == 503


def test_a_holder_tells_the_driver_after_each_cycle(
    server: StatusServer, board: SyncBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycles = iter([StoreUnavailableError("nobody answers"), CycleReport(()), CycleReport(())])

    class FakeSyncer:
        def cycle(self) -> CycleReport:
            match next(cycles):
                case CycleReport() as done:
                    poll_until(
                        lambda: board.state()["sync"]["failed_cycles"] == 1, 10, "the failure is told at once"
                    )
                    return done
                case error:
                    raise error

    @contextmanager
    def opened(_: Config) -> Iterator[FakeSyncer]:
        yield FakeSyncer()

    monkeypatch.setattr(syncjob.run, "open_syncer", opened)
    holder = pickle.loads(pickle.dumps(SyncHolder(CONFIG, StatusTarget(*server.address, TOKEN))))  # noqa: S301
    assert TOKEN not in repr(holder)
    counts = holder.hold({"epoch": 1, "deadline_unix_ms": time.time_ns() // 1_000_000 + 250})
    assert counts["failed_cycles"] == 1
    assert counts["cycles"] in {1, 2}
    state = board.state()["sync"]
    assert (state["cycles"], state["failed_cycles"]) == (counts["cycles"], 1)
    assert state["ready"]


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000, 15 * 86_400_000, -15 * 86_400_000])
def test_clocks_that_differ_neither_end_the_lease_at_once_nor_let_it_live_for_days(
    monkeypatch: pytest.MonkeyPatch, server: StatusServer, step_ms: int
) -> None:
    lasted: list[float] = []

    def noted(_config: Config, deadline: Deadline, *_: object) -> Mapping[str, int]:
        lasted.append(deadline.remaining_ms)
        return {}

    monkeypatch.setattr(syncjob.run, "run_until", noted)
    (lease,) = SyncPlan(CONFIG.replicator.lease_epoch_s * 1_000).plan(1)
    stepped = {**lease, "deadline_unix_ms": lease["deadline_unix_ms"] + step_ms}
    SyncHolder(CONFIG, StatusTarget(*server.address, TOKEN)).hold(stepped)
    assert 4_000 < lasted[0] <= CONFIG.replicator.lease_epoch_s * 1_000


def test_both_commands_show_the_sync_job_and_let_it_report(monkeypatch: pytest.MonkeyPatch) -> None:
    alone: list[Application] = []
    monkeypatch.setattr(Application, "run", lambda self: alone.append(self))  # noqa: PLW0108 - it binds
    sync._run_on_spark(CONFIG, json_logs=False)
    target = StatusTarget("127.0.0.1", 1, TOKEN)
    for application in (*alone, replicate._application(CONFIG, [], with_sync=True)):
        (query,) = application.queries
        planner, holder = query.parts(target)
        assert isinstance(planner, SyncPlan)
        assert isinstance(holder, SyncHolder)
        assert holder.status == target
        assert isinstance(application.status[-1], SyncBoard)
    assert len(alone) == 1
    without = replicate._application(CONFIG, [], with_sync=False)
    assert not without.queries
    assert not any(isinstance(part, SyncBoard) for part in without.status)


def test_the_loop_ends_at_its_deadline_without_anybody_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def opened(_: Config) -> Iterator[Any]:
        class FakeSyncer:
            def cycle(self) -> CycleReport:
                return CycleReport(())

        yield FakeSyncer()

    monkeypatch.setattr(syncjob.run, "open_syncer", opened)
    assert syncjob.run.run_until(CONFIG, Deadline.after_ms(50), threading.Event())["cycles"] >= 1


@pytest.mark.parametrize(
    ("unconfirmed", "cycles"),
    [([0, 0, 9], 2), ([1, 1, 0, 0, 9], 4)],
    ids=["nothing gone", "until it is known"],
)
def test_once_waits_until_it_is_known_whether_a_commit_is_gone(
    monkeypatch: pytest.MonkeyPatch, unconfirmed: list[int], cycles: int
) -> None:
    looks = iter(unconfirmed)
    done: list[int] = []

    @contextmanager
    def opened(_: Config, *, dry_run: bool, others_within_s: float) -> Iterator[Any]:
        class FakeSyncer:
            def cycle(self) -> CycleReport:
                done.append(next(looks))
                return CycleReport((), unconfirmed=done[-1])

        assert (dry_run, others_within_s) == (False, math.inf)
        yield FakeSyncer()

    monkeypatch.setattr(syncjob.run, "open_syncer", opened)
    assert syncjob.run.run_once(CONFIG, dry_run=False).unconfirmed == 0
    assert len(done) == cycles


def test_once_goes_on_until_every_group_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [GroupName(name) for name in ("first", "second", "late")]
    where = TopicPartition(TopicName("trips"), 0), ClusterName("aggregate-a"), ClusterName("aggregate-b")
    first, second = (Decision(name, *where, Reason.UNCHANGED, None, Outcome.OK) for name in names[:2])
    cycles = iter(
        [
            CycleReport((first,), waiting=frozenset(names[1:2])),
            CycleReport((second,), {}, waiting=frozenset([names[0], names[2]])),
            CycleReport((), {names[1]: "no answer"}, waiting=frozenset([names[0], names[2]])),
        ]
    )

    @contextmanager
    def opened(_: Config, *, dry_run: bool, others_within_s: float) -> Iterator[Any]:
        class FakeSyncer:
            def cycle(self) -> CycleReport:
                return next(cycles)

        assert (dry_run, others_within_s) == (True, math.inf)
        yield FakeSyncer()

    monkeypatch.setattr(syncjob.run, "open_syncer", opened)
    report = syncjob.run.run_once(CONFIG, dry_run=True)
    assert report.decisions == (first,)  # which waits now
    assert report.failures == {names[1]: "no answer"}
    assert next(cycles, None) is None


def test_but_no_longer_than_that_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def opened(_: Config, *, dry_run: bool, others_within_s: float) -> Iterator[Any]:
        class FakeSyncer:
            def cycle(self) -> CycleReport:
                return CycleReport((), unconfirmed=1)

        assert (dry_run, others_within_s) == (False, math.inf)
        yield FakeSyncer()

    monkeypatch.setattr(syncjob.run, "open_syncer", opened)
    sync_section = CONFIG.sync.model_copy(update={"rewind_confirm_ms": 200})
    config = CONFIG.model_copy(update={"sync": sync_section})
    assert syncjob.run.run_once(config, dry_run=False).unconfirmed == 1
