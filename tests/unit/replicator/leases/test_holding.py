"""Copying goes on over the border of two epochs, for a bounded time, and is fenced like any other owner."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from parallax.config.config import Config
from parallax.domain.ids import RegionName, Route
from parallax.errors import ClusterUnavailableError, FencedError
from replicator.kafka.connector import Connector
from replicator.lease import Lease, LeaseProgress, PartitionProgress, PartitionStatus
from replicator.leases.holding import OVERTIME_MS, Holding
from replicator.shard import copy_until_over
from tests.support import poll_until

LEASE = Lease(Route(RegionName("a"), RegionName("b")), 0, 1, layout=3, epoch=1, deadline_unix_ms=1_000)
NEXT = replace(LEASE, epoch=2, deadline_unix_ms=2_000)
WITHIN_S = 10.0


def progress(lease: Lease, records: int, status: PartitionStatus = PartitionStatus.COPYING) -> LeaseProgress:
    partition = PartitionProgress("trips", 0, records, 10 * records, records, 0, None, status, "")
    return LeaseProgress(lease, (partition,), transactions=records, aborts=1, index_lag_ms=0)


class Copying:
    """Stands for the copy loop: does what the test says, until the holding is over."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.lease: Lease | None = None
        self.error: Exception | None = None
        self._turn = threading.Event()
        self.holding = Holding(LEASE, self, lambda: self.now_ms)

    def __call__(self, lease: Lease, holding: Holding) -> None:
        self.lease = lease
        while not holding.over():
            self._turn.wait(0.01)
            if self.error is not None:
                raise self.error

    def end(self) -> None:
        """Let it end by itself, in good time."""
        self.now_ms = 10**9
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
