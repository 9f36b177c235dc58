"""Copying goes on over the border of two epochs, for a bounded time, and is fenced like any other owner."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from parallax.config.config import Config
from parallax.domain.ids import RegionName, Route, TopicName
from parallax.errors import ClusterUnavailableError, ConfigError, FencedError, ParallaxError
from parallax.runtime.deadline import SHORTEST_LEASE_MS
from parallax.runtime.retry import RetryPolicy
from replicator.copying.session_end import TopicsRefusedError
from replicator.kafka.connector import Connector
from replicator.kafka.run_log import run_log_topic
from replicator.lease import Lease, LeaseProgress, PartitionProgress, PartitionStatus
from replicator.leases import holding as holding_module
from replicator.leases.holding import OVERTIME_MS, Holding
from replicator.shard import _Holder, copy_until_over
from tests.support import poll_until

LEASE = Lease(Route(RegionName("a"), RegionName("b")), 0, 1, layout=3, epoch=1, deadline_unix_ms=1_000)
NEXT = replace(LEASE, epoch=2, deadline_unix_ms=1_000 + OVERTIME_MS + 50)
EPOCH_MS = 600_000
HOUR_MS = 3_600_000
STEPS_MS = [sign * step for step in (HOUR_MS, 15 * 24 * HOUR_MS) for sign in (1, -1)]
WITHIN_S = 10.0


def progress(lease: Lease, records: int, status: PartitionStatus = PartitionStatus.COPYING) -> LeaseProgress:
    partition = PartitionProgress("trips", 0, records, 10 * records, records, 0, None, status, "")
    return LeaseProgress(lease, (partition,), transactions=records, aborts=1, index_lag_ms=0)


class Copying:
    """Stands for the copy loop: does what the test says, until the holding is over."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.stepped_ms = 0
        self.lease: Lease | None = None
        self.error: Exception | None = None
        self._turn = threading.Event()
        self.holding = Holding(
            LEASE,
            self,
            EPOCH_MS,
            now_ms=lambda: self.now_ms + self.stepped_ms,
            clock=lambda: self.now_ms / 1_000,
        )

    def __call__(self, lease: Lease, holding: Holding) -> None:
        self.lease = lease
        while not holding.over():
            self._turn.wait(0.01)
            if self.error is not None:
                raise self.error

    def end(self) -> None:
        """Let it end by itself, in good time."""
        self.now_ms = 10**12
        poll_until(lambda: not self.holding._thread.is_alive(), WITHIN_S, "the end of copying")


@pytest.fixture
def copying() -> Iterator[Copying]:
    made = Copying()
    yield made
    made.end()


def test_the_next_lease_takes_over_what_goes_on_beyond_the_deadline(copying: Copying) -> None:
    holding = copying.holding
    assert holding.report(progress(LEASE, 5)).lease == LEASE
    copying.now_ms = 1_000
    assert holding.wait() == {
        "records": 5,
        "bytes": 50,
        "transactions": 5,
        "transaction_aborts": 1,
        "stopped_partitions": 0,
    }
    copying.now_ms = 1_000 + OVERTIME_MS - 1
    assert holding.in_overtime()
    assert holding.goes_on(NEXT)
    # What it reports is of the lease that it goes on for; the copy loop itself knows of no deadline.
    assert holding.report(progress(LEASE, 12, PartitionStatus.STOPPED)).lease == NEXT
    assert copying.lease is not None
    assert copying.lease.deadline_unix_ms > 10**15  # milliseconds: not in a thousand years
    counts = holding.wait()
    assert (counts["records"], counts["bytes"], counts["transaction_aborts"]) == (7, 70, 0)
    assert counts["stopped_partitions"] == 1


def test_copying_ends_when_nobody_takes_it_over(copying: Copying) -> None:
    copying.now_ms = 1_000 + OVERTIME_MS
    poll_until(lambda: not copying.holding._thread.is_alive(), WITHIN_S, "the end of copying")
    assert not copying.holding.goes_on(NEXT)


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_step_of_the_clock_neither_ends_a_lease_nor_prolongs_it(copying: Copying, step_ms: int) -> None:
    holding = copying.holding
    copying.stepped_ms = step_ms
    copying.now_ms = 999
    assert not holding.in_overtime()
    assert not holding.over()
    copying.now_ms = 1_000
    assert holding.in_overtime()
    assert holding.wait()["records"] == 0
    copying.now_ms = 1_000 + OVERTIME_MS
    assert holding.over()


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_lease_by_a_clock_that_differs_lasts_for_seconds_at_least_and_an_epoch_at_most(
    copying: Copying, step_ms: int
) -> None:
    """The driver's clock has been stepped, or this one's: which of them can't be told."""
    holding = copying.holding
    copying.now_ms = 500
    assert holding.goes_on(replace(NEXT, deadline_unix_ms=500 + EPOCH_MS + step_ms))
    lasts_ms = EPOCH_MS if step_ms > 0 else SHORTEST_LEASE_MS
    copying.now_ms = 500 + lasts_ms - 1
    assert not holding.in_overtime()
    copying.now_ms += 1
    assert holding.in_overtime()
    assert holding.lasts  # the next epoch goes on with it


MUTANTS: dict[str, tuple[int, Callable[[int, int, int], int]]] = {
    "the deadline alone counts": (HOUR_MS, lambda deadline, now, _longest: deadline - now),
    "a lease may be over as it begins": (
        -HOUR_MS,
        lambda deadline, now, longest: min(deadline - now, longest),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_of_how_long_a_lease_lasts_dies(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    step_ms, mutant = MUTANTS[name]
    monkeypatch.setattr(holding_module, "lease_ms", mutant)
    it = Copying()
    with pytest.raises(AssertionError):
        test_a_lease_by_a_clock_that_differs_lasts_for_seconds_at_least_and_an_epoch_at_most(it, step_ms)
    it.end()


def test_an_end_once_decided_stays(copying: Copying) -> None:
    copying.now_ms = 1_000 + OVERTIME_MS
    assert copying.holding.over()
    copying.now_ms = 0
    assert copying.holding.over()
    assert not copying.holding.goes_on(NEXT)


def test_another_layout_is_another_shard(copying: Copying) -> None:
    assert not copying.holding.goes_on(replace(NEXT, layout=4))


@pytest.mark.parametrize("error", [FencedError("another owner"), ValueError("a defect")])
def test_a_task_that_waits_hears_what_ended_it(copying: Copying, error: Exception) -> None:
    copying.error = error
    with pytest.raises(type(error), match=str(error)):
        copying.holding.wait()
    assert not copying.holding.goes_on(NEXT)


def test_being_fenced_beyond_the_deadline_concerns_nobody(copying: Copying) -> None:
    copying.now_ms = 1_000
    assert copying.holding.wait()["records"] == 0
    copying.error = FencedError("another owner")
    poll_until(lambda: not copying.holding._thread.is_alive(), WITHIN_S, "the end of copying")
    assert not copying.holding.goes_on(NEXT)


class AwayConnector:
    """A target that never answers."""

    def __init__(self) -> None:
        self.asked = 0

    clock = property(lambda self: self)

    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> float:
        return 0.0

    def sleep_ms(self, _duration_ms: float) -> None:
        return

    def foreign_records(self, _lease: Lease) -> None:
        return None

    def run_log(self, _lease: Lease) -> Any:
        self.asked += 1
        raise ClusterUnavailableError("aggregate-b does not answer")


@pytest.mark.parametrize("sessions", [0, 1, 3])
def test_no_session_begins_beyond_the_deadline(sessions: int) -> None:
    connector = AwayConnector()
    config = Config.model_validate({"regions": {}, "cassandra": {"contact_points": ["127.0.0.1:2"]}})
    overtime: Callable[[], bool] = lambda: connector.asked == sessions  # noqa: E731 - with its type
    result = copy_until_over(
        LEASE,
        config,
        cast("Connector", connector),
        feed=None,
        report=lambda _progress: None,
        overtime=overtime,
    )
    assert connector.asked == sessions
    assert result.aborts == sessions


OWN_ID = "RIGHT_MISSING: Write on transactional id parallax.a.b.1.0.batch at aggregate-b"
OWN_RUN_LOG = "RIGHT_MISSING: Write on topic parallax.runs.a at aggregate-b"


@pytest.mark.parametrize(
    "refusal",
    [ConfigError(OWN_ID), TopicsRefusedError({TopicName("parallax.runs.a"): OWN_RUN_LOG})],
    ids=["its id", "its run log"],
)
def test_a_lease_that_is_refused_waits_and_tells_of_it_once(refusal: ParallaxError) -> None:
    class Refusing(AwayConnector):
        def run_log(self, _lease: Lease) -> Any:
            self.asked += 1
            raise refusal

    connector = Refusing()
    reports: list[LeaseProgress] = []
    config = Config.model_validate({"regions": {}, "cassandra": {"contact_points": ["127.0.0.1:2"]}})
    assert run_log_topic(config, LEASE.route.source) == "parallax.runs.a"
    overtime: Callable[[], bool] = lambda: connector.asked == 3  # noqa: E731 - with its type
    with capture_logs() as logs:
        copy_until_over(
            LEASE,
            config,
            cast("Connector", connector),
            feed=None,
            report=reports.append,
            overtime=overtime,
        )
    assert {report.waiting_for for report in reports} == {str(refusal)}
    [told] = [entry for entry in logs if entry["log_level"] in {"warning", "error"}]
    assert (told["event"], told["problem"]) == ("lease_refused", str(refusal))


def test_a_lease_tells_how_many_surveys_failed() -> None:
    reports: list[LeaseProgress] = []
    config = Config.model_validate({"regions": {}, "cassandra": {"contact_points": ["127.0.0.1:2"]}})
    connector = cast("Connector", AwayConnector())
    holder = _Holder(
        LEASE, config, connector, None, reports.append, lambda: True, lambda: True, RetryPolicy()
    )
    holder._counts.survey_failures = 3
    holder._partitions = tuple(
        replace(part, replication_latency_ms=5.0, record_age_ms=4.0) for part in progress(LEASE, 1).partitions
    )
    holder.tell()
    holder.tell()
    assert [report.survey_failures for report in reports] == [3, 3]
    told = [
        (part.records, part.replication_latency_ms, part.record_age_ms)
        for report in reports
        for part in report.partitions
    ]
    assert told == [(1, 5.0, 4.0), (1, None, None)], "what was taken is not taken once more"
