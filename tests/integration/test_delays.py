"""A delay on real brokers shows where somebody would look for it: in histograms, and in what the copier waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.stack.links import WHOLE, LinkState
from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack
from parallax.config.config import MetricsSettings
from parallax.domain.latencies import BOUNDS_S
from replicator.lease import LeaseKey, LeaseProgress
from replicator.leases.board import LeaseReport, ProgressBoard
from replicator.leases.metrics import ReplicationMetrics
from tests.support import poll_until
from tests.worlds.shard_harness import Harness, until

DELAY_S = 5.0
SHOWS_WITHIN_S = 15.0
PREFIX = "parallax_replicator_"


def scraped(harness: Harness, progress: LeaseProgress) -> dict[str, float]:
    board = ProgressBoard([LeaseKey(harness.route, 0)])
    board.record(LeaseReport(progress, "one"))
    labels = ("le", "side")
    return {
        ",".join(
            [
                sample.name.removeprefix(PREFIX),
                *(sample.labels[name] for name in labels if name in sample.labels),
            ]
        ): sample.value
        for family in ReplicationMetrics(board, MetricsSettings(partitions="none")).collect()
        for sample in family.samples
    }


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[LocalStack]:
    """One region, whose clusters are reached over links that can be made slow."""
    with LocalStack(
        StackSpec(regions=("a",), services=False, store=False, steerable=True), tmp_path
    ) as stack:
        yield stack


@pytest.mark.heavy
@pytest.mark.stack
def test_five_seconds_on_the_way_to_the_source_show_within_fifteen(slow: LocalStack, topic_name: str) -> None:
    harness = Harness(slow, topic_name, clusters=("regional-a", "aggregate-a"))
    harness.create()
    owner, over = (
        harness.own(harness.config(source=slow.layout.far_bootstrap("regional-a"))),
        threading.Event(),
    )

    def produce() -> None:
        number = 0
        while not over.wait(0.2):
            harness.produce([f"v{number}"])
            number += 1

    producing = threading.Thread(target=produce, daemon=True)
    producing.start()
    latency = "replication_latency_seconds"

    def late(progress: LeaseProgress) -> float:
        """How many records took longer than the last bound below the delay."""
        bound = max(bound for bound in BOUNDS_S if bound < DELAY_S)
        found = scraped(harness, progress)
        return found[f"{latency}_count"] - found[f"{latency}_bucket,{bound}"]

    try:
        until(lambda: owner.progress and sum(owner.progress[-1].latencies.counts) >= 20, "a stream of copies")
        before = owner.progress[-1]
        began_s = time.monotonic()
        slow.link("regional-a", LinkState(round_trip_ms=DELAY_S * 1_000))
        poll_until(
            lambda: late(owner.progress[-1]) > late(before), SHOWS_WITHIN_S, "the delay in the histogram"
        )
        took_s = time.monotonic() - began_s
        waited = [
            scraped(harness, item)["waited_seconds_total,source"] for item in (before, owner.progress[-1])
        ]
        assert waited[1] - waited[0] > 0.8 * (took_s - 2), "it is the source that the copier waits for"
    finally:
        slow.link("regional-a", WHOLE)
        over.set()
        producing.join()
    owner.finish()
