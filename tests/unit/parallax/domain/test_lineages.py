"""What lineages tell of a target that lost its tail."""

from __future__ import annotations

import pytest

from parallax.domain.ids import (
    UNKNOWN_EPOCH,
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
from parallax.domain.index_rows import LineageRecord, RouteTopic, StampedRow
from parallax.domain.lineages import lineages_that_count
from parallax.domain.progress import TargetTruncation
from parallax.domain.runs import Run

ROUTE = Route(RegionName("x"), RegionName("y"))
PARTITION = RoutePartition(ROUTE, TopicPartition(TopicName("trips"), 0))


def lineage(generation: int) -> Lineage:
    return Lineage(TopicId("x-1"), TopicId("y-1"), generation)


def record(generation: int, target_first: int, lost_epoch: int = UNKNOWN_EPOCH) -> LineageRecord:
    first = SourceOffset(0), TargetOffset(target_first)
    return LineageRecord(PARTITION, lineage(generation), generation, *first, None, 1, lost_epoch)


@pytest.mark.parametrize(
    ("end", "lost_epoch", "told"),
    [
        (9, 3, TargetTruncation(TargetOffset(4), TargetOffset(9), 3)),
        (9, UNKNOWN_EPOCH, TargetTruncation(TargetOffset(4), TargetOffset(9), UNKNOWN_EPOCH)),
        # The rows of what was lost have expired.
        (4, 3, TargetTruncation(TargetOffset(4), TargetOffset(4), 3)),
        (None, 3, TargetTruncation(TargetOffset(4), TargetOffset(4), 3)),
        # The source lost its tail.
        (4, UNKNOWN_EPOCH, None),
        (None, UNKNOWN_EPOCH, None),
    ],
)
def test_a_loss_is_told_by_rows_or_by_the_lineage_that_it_began(
    end: int | None, lost_epoch: int, told: TargetTruncation | None
) -> None:
    newest = {}
    if end is not None:
        row = Run(SourceOffset(0), TargetOffset(0), end, SourceOffset(0), 0)
        newest = {(0, lineage(0)): StampedRow(row, 1_000)}
    topics = {ROUTE: RouteTopic([record(0, 0), record(1, 4, lost_epoch)], newest)}
    found = lineages_that_count(topics, TopicId("y-1")).truncations(0)
    assert found == ([] if told is None else [told])
