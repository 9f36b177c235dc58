"""What a scrape of the leases shows: by route whatever there is, single partitions as many as are asked for."""

from __future__ import annotations

import re
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from parallax.config.config import MetricsSettings
from parallax.domain.ids import RegionName, Route
from parallax.domain.latencies import BOUNDS_S, LatencyCounter
from replicator.lease import Lease, LeaseKey, LeaseProgress, PartitionProgress, PartitionStatus
from replicator.leases.board import LeaseReport, ProgressBoard
from replicator.leases.metrics import ReplicationMetrics

A, B = RegionName("a"), RegionName("b")
ROUTES = (Route(A, B), Route(B, A))
MOST_BYTES = 1_000_000
MOST_SAMPLES = 1_500


def partition(number: int, lag: int, status: PartitionStatus = PartitionStatus.COPYING) -> PartitionProgress:
    return PartitionProgress(
        topic="payments.card-authorisations.v1",
        partition=number,
        records=10 * number,
        size_bytes=1_000 * number,
        source_next=10 * number,
        lag_records=lag,
        replication_latency_ms=12.5,
        status=status,
        reason="a record is larger than the target takes" if status is PartitionStatus.STOPPED else "",
    )


def filled(
    partitions: list[PartitionProgress],
    *,
    epoch: int = 1,
    board: ProgressBoard | None = None,
    **progress: Any,
) -> ProgressBoard:
    """Every route with these partitions in one lease."""
    board = board or ProgressBoard([LeaseKey(route, 0) for route in ROUTES])
    for route in ROUTES:
        lease = Lease(route, 0, shard_count=1, layout=1, epoch=epoch, deadline_unix_ms=0)
        report = LeaseProgress(
            lease, tuple(partitions), transactions=5, aborts=0, index_lag_ms=3.0, **progress
        )
        board.record(LeaseReport(report, attempt=f"epoch {epoch}"))
    return board


def scraped(board: ProgressBoard, **settings: Any) -> dict[str, float]:
    """Samples by their line without the prefix."""
    families = ReplicationMetrics(board, MetricsSettings(**settings)).collect()
    return {
        ",".join((sample.name.removeprefix("parallax_replicator_"), *sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


class _Page:
    def __init__(self, metrics: ReplicationMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Any:
        return self._metrics.collect()


def page(board: ProgressBoard, **settings: Any) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(ReplicationMetrics(board, MetricsSettings(**settings))))
    return generate_latest(registry)


def lines(text: bytes) -> int:
    return sum(not line.startswith(b"#") for line in text.splitlines())


@pytest.fixture(scope="module")
def large() -> ProgressBoard:
    """Two routes of 10,000 partitions each."""
    stopped = [partition(number, 5, PartitionStatus.STOPPED) for number in range(20)]
    return filled([*stopped, *(partition(number, number) for number in range(20, 10_000))])


def test_a_scrape_of_twenty_thousand_partitions_is_small_unless_all_are_asked_for(
    large: ProgressBoard,
) -> None:
    by_default = page(large)
    assert len(by_default) <= MOST_BYTES
    assert lines(by_default) <= MOST_SAMPLES
    assert lines(page(large, partitions="none")) <= 120
    assert lines(page(large, partitions="all", old_names=False)) > 5 * 20_000


def test_the_route_counts_every_partition_whatever_is_shown(large: ProgressBoard) -> None:
    by_route = {
        settings: {
            name: value
            for name, value in scraped(large, partitions=settings).items()
            if name.startswith("route_")
        }
        for settings in ("all", "worst", "none")
    }
    assert by_route["all"] == by_route["worst"] == by_route["none"]
    found = by_route["none"]
    assert found["route_records_total,a,b"] == sum(10 * number for number in range(10_000))
    assert found["route_lag_records,b,a"] == 20 * 5 + sum(range(20, 10_000))
    assert found["route_partitions,a,b,stopped"] == 20
    assert found["route_partitions,a,b,copying"] == 9_980


def test_the_worst_are_those_that_are_stopped_and_then_those_that_lag_most(large: ProgressBoard) -> None:
    found = scraped(large, worst=25, old_names=False)
    shown = [int(name.rsplit(",", 1)[1]) for name in found if name.startswith("lag_records,a,b")]
    assert shown == [*range(20), *range(9_995, 10_000)]
    assert sum(name.startswith("stop_reason,a,b") for name in found) == 20


def test_no_name_and_no_label_is_an_old_one_where_they_are_not_wanted() -> None:
    text = page(filled([partition(0, 3, PartitionStatus.STOPPED)]), old_names=False).decode()
    assert "_ms" not in text
    assert 'route="' not in text
    assert "parallax_replicator_replication_latency_ms{" in page(filled([partition(0, 3)])).decode()
    named = re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE)
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in named)


def test_latencies_are_a_histogram_by_route_that_goes_on_over_leases() -> None:
    counter = LatencyCounter()
    counter.add(4, 10)
    counter.add(700, 3)
    counter.add(7_200_000, 1)
    board = filled([partition(0, 3)], latencies=counter.value())
    filled([partition(0, 3)], epoch=2, board=board, latencies=counter.value(), record_ages=counter.value())
    found = scraped(board)
    assert found["replication_latency_seconds_bucket,a,b,0.005"] == 20
    assert found["replication_latency_seconds_bucket,a,b,0.5"] == 20
    assert found["replication_latency_seconds_bucket,a,b,1.0"] == 26
    assert found["replication_latency_seconds_bucket,a,b,1800.0"] == 26
    assert found["replication_latency_seconds_bucket,a,b,+Inf"] == 28
    assert found["replication_latency_seconds_count,a,b"] == 28
    assert found["replication_latency_seconds_sum,a,b"] == pytest.approx(2 * (0.04 + 2.1 + 7_200))
    assert found["record_age_seconds_count,b,a"] == 14


def test_a_latency_counts_under_the_bound_that_it_does_not_exceed() -> None:
    for place, bound_s in enumerate(BOUNDS_S):
        counter = LatencyCounter()
        counter.add(bound_s * 1_000, 2)
        counter.add(bound_s * 1_000 + 0.001, 1)
        counts = counter.value().counts
        assert (counts[place], counts[place + 1]) == (2, 1)
    counter = LatencyCounter()
    counter.add(-5, 1)  # the producer's clock is ahead
    assert (counter.value().counts[0], counter.value().sum_s) == (1, 0)


def test_what_a_copier_waited_for_is_told_by_side_and_goes_on_over_leases() -> None:
    board = filled([partition(0, 0)], source_wait_ms=1_500, target_wait_ms=250)
    filled([partition(0, 0)], epoch=2, board=board, source_wait_ms=500, target_wait_ms=0)
    found = scraped(board)
    assert (found["waited_seconds_total,a,b,0,source"], found["waited_seconds_total,a,b,0,target"]) == (
        2.0,
        0.25,
    )
