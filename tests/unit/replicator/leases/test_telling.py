"""What a driver tells the store of its leases."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from parallax.config.config import CanarySettings
from parallax.domain.ids import TopicName
from parallax.domain.replication_status import STARTING, ShardReport
from parallax.errors import StoreUnavailableError
from replicator.lease import LeaseKey, PartitionStatus
from replicator.leases import telling as module
from replicator.leases.board import SILENT_AFTER_MS, STARTS_WITHIN_MS, LeaseReport, ProgressBoard
from replicator.leases.canary import CanaryBoard
from replicator.leases.telling import STOPPED, shard_reports, telling
from tests.support import poll_until
from tests.unit.replicator.leases.test_status import KEYS, ROUTE, FakeClock, report


def with_partition(told: LeaseReport, **values: Any) -> LeaseReport:
    (part,) = told.progress.partitions
    return replace(told, progress=replace(told.progress, partitions=(replace(part, **values),)))


NO_CANARY = CanaryBoard({}, CanarySettings())


def shards(board: ProgressBoard, canaries: CanaryBoard = NO_CANARY, **values: Any) -> list[ShardReport]:
    return shard_reports(board, canaries, owner="replicator@x:1", now_ms=9_000, **values)


def test_the_canary_of_its_route_is_told_of_with_each_shard() -> None:
    clock = FakeClock()
    canaries = CanaryBoard({ROUTE: TopicName("trips")}, CanarySettings(late_after_s=60), clock)
    board = ProgressBoard(KEYS, clock, canaries.heard)
    board.record(report())
    clock.now_s += 61

    def told() -> list[tuple[int | None, int | None, bool]]:
        statuses = [item.status for item in shards(board, canaries)]
        return [
            (item.canary_age_ms, item.canary_latency_ms, item.canary_late)
            for item in statuses
            if item.records is not None
        ]

    assert told() == [(61_000, 12, True)]
    board.record(report(records=1))
    assert told() == [(0, 12, False)]
    assert {item.status.canary_age_ms for item in shards(board)} == {None}


def test_of_a_lease_that_never_reported_nothing_is_known() -> None:
    clock = FakeClock()
    board = ProgressBoard([LeaseKey(ROUTE, 0)], clock)
    clock.now_s += STARTS_WITHIN_MS / 1_000
    [told] = shards(board)
    assert (told.status.problem, told.status.shards) == ("has not reported yet", 1)
    assert (told.status.lag_records, told.status.records, told.status.partitions) == (None, None, None)
    assert told.partitions == ()


def test_leases_of_a_driver_that_has_just_begun_start() -> None:
    clock = FakeClock()
    board = ProgressBoard(KEYS, clock)
    clock.now_s += STARTS_WITHIN_MS / 1_000 - 1
    board.record(report())
    assert [told.status.problem for told in shards(board)] == ["", STARTING]
    assert [told.status.problem for told in shards(board, stopped=True)] == [STOPPED, STOPPED]


def test_a_lease_is_told_with_the_sums_of_its_partitions() -> None:
    clock = FakeClock()
    board = ProgressBoard(KEYS, clock)
    board.record(with_partition(report(records=20), watermark_age_ms=400.0, source_next=77))
    board.record(report(shard=1, status=PartitionStatus.STOPPED))
    clock.now_s += 2
    first, second = shards(board)
    assert (first.status.records, first.status.size_bytes, first.status.lag_records) == (20, 2_000, 7)
    assert (first.status.problem, first.status.shards, first.status.told_at_ms) == ("", 2, 9_000)
    [part] = first.partitions
    assert (part.state, part.latency_ms, part.source_next) == ("copying", 12, 77)
    assert part.watermark_age_ms == 2_400  # it has grown older since it was reported
    assert (second.status.stopped, second.partitions[0].reason) == (1, "too large")


def test_what_waits_knows_neither_its_position_nor_its_lag() -> None:
    board = ProgressBoard([LeaseKey(ROUTE, 0)])
    board.record(report(status=PartitionStatus.WAITING))
    [told] = shards(board)
    [part] = told.partitions
    assert (part.lag_records, part.source_next, part.watermark_age_ms) == (None, None, None)
    assert told.status.lag_records is None


def test_a_silent_lease_is_no_running_one() -> None:
    clock = FakeClock()
    board = ProgressBoard([LeaseKey(ROUTE, 0)], clock)
    board.record(report())
    clock.now_s += SILENT_AFTER_MS / 1_000 + 1
    [told] = shards(board)
    assert "silent" in told.status.problem
    assert shards(board, stopped=True)[0].status.problem == STOPPED


class Store:
    """Takes what it is told, and may be away."""

    def __init__(self) -> None:
        self.told: list[Sequence[ShardReport]] = []
        self.away = threading.Event()
        self.status = self
        self.clock = self

    def now_ms(self) -> int:
        return 9_000

    def save_shards(self, reports: Sequence[ShardReport]) -> None:
        if self.away.is_set():
            raise StoreUnavailableError("nobody answers")
        self.told.append(reports)

    @contextmanager
    def opened(self) -> Iterator[Any]:
        yield self


def test_the_store_is_told_until_the_end_and_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TELL_EVERY_S", 0.01)
    board, store = ProgressBoard(KEYS), Store()
    board.record(report())
    with telling(board, NO_CANARY, "replicator@x:1", store.opened):
        poll_until(lambda: len(store.told) > 2, 10, "it is told again and again")
    assert [item.status.problem for item in store.told[0]] == ["", STARTING]
    assert {item.status.problem for item in store.told[-1]} == {STOPPED}


def test_a_store_that_is_away_holds_nothing_up_and_is_told_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TELL_EVERY_S", 0.01)
    store = Store()
    store.away.set()
    with capture_logs() as logs, telling(ProgressBoard(KEYS), NO_CANARY, "replicator@x:1", store.opened):
        poll_until(lambda: bool(logs), 10, "it is said that the store is away")
        store.away.clear()
        poll_until(lambda: bool(store.told), 10, "the store is told")
    assert [entry["event"] for entry in logs] == ["status_not_told"]


def test_a_defect_is_told_of_and_the_store_is_told_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> Any:
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(module, "TELL_EVERY_S", 0.01)
    store = Store()
    with capture_logs() as logs, monkeypatch.context() as defect:
        defect.setattr(module, "shard_reports", broken)
        with telling(ProgressBoard(KEYS), NO_CANARY, "replicator@x:1", store.opened):
            poll_until(lambda: len(logs) > 1, 10, "it is said twice")
            defect.undo()
            poll_until(lambda: bool(store.told), 10, "the store is told")
    assert {entry["event"] for entry in logs} == {"status_not_told"}
    assert all(isinstance(entry["exc_info"], RuntimeError) for entry in logs)
