"""What lineages tell of a target that lost its tail."""

from __future__ import annotations

import pytest

from parallax.domain.ids import (
    NO_TOPIC,
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
from parallax.domain.lineages import latest_source_id, lineages_that_count
from parallax.domain.progress import TargetTruncation
from parallax.domain.runs import Run, watermark
from parallax.errors import UnreadableRowError

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


@pytest.mark.parametrize("with_rows", [False, True])
def test_a_partition_of_which_nothing_was_copied_tells_no_id_of_the_source(*, with_rows: bool) -> None:
    """It is idle, so that its watermark may be the newest row of all."""
    beyond = RoutePartition(ROUTE, TopicPartition(TopicName("trips"), 1))
    none = Lineage(NO_TOPIC, TopicId("y-1"))
    first = SourceOffset(0), TargetOffset(0)
    records = [record(0, 0), LineageRecord(beyond, none, 7, *first, None, 1, UNKNOWN_EPOCH)]
    copied = StampedRow(Run(SourceOffset(0), TargetOffset(0), 3, SourceOffset(0), 0), 1_000)
    idle = StampedRow(
        watermark(source_next=SourceOffset(0), target_end=TargetOffset(0), last_run_end=SourceOffset(0)),
        2_000,
    )
    rows = {(0, lineage(0)): copied, (1, none): idle} if with_rows else {}
    assert latest_source_id({ROUTE: RouteTopic(records, rows)}) == "x-1"
    assert latest_source_id({ROUTE: RouteTopic(records[1:], {})}) is None


# --- newest rows that can't be read -------------------------------------------------------------------------------


def with_unreadable(target: str, source: str = "x-1") -> dict[Route, RouteTopic]:
    """A row of partition 0; that of a lineage of partition 1 can't be read."""
    other = Lineage(TopicId(source), TopicId(target))
    moved = RoutePartition(ROUTE, TopicPartition(TopicName("trips"), 1))
    row = StampedRow(Run(SourceOffset(0), TargetOffset(0), 5, SourceOffset(0)), 1_000)
    return {
        ROUTE: RouteTopic(
            [record(0, 0), LineageRecord(moved, other, 0, SourceOffset(0), TargetOffset(0), None, 1)],
            {(0, lineage(0)): row},
            {(1, other): "newest_told of x->y, trips-1"},
        )
    }


@pytest.mark.parametrize("topic_id", [TopicId("y-1"), None])
def test_only_questions_about_the_partition_hear_of_it(topic_id: TopicId | None) -> None:
    found = lineages_that_count(with_unreadable("y-1"), topic_id)
    assert (found.topic_id, found.partitions, found.void_partitions) == ("y-1", 2, frozenset())
    assert [view.lineage for view in found.of(0)] == [lineage(0)]
    assert found.of(2) == ()
    for ask in (found.of, found.truncations):
        with pytest.raises(UnreadableRowError, match="newest_told of x->y, trips-1"):
            ask(1)


def test_of_an_earlier_incarnation_it_is_no_matter_unless_it_may_be_the_present_one() -> None:
    topics = with_unreadable("y-2")
    assert lineages_that_count(topics, TopicId("y-1")).of(1) == ()
    with pytest.raises(UnreadableRowError):
        lineages_that_count(topics, None)


def test_the_id_of_the_topic_copied_last_is_not_taken_from_rows_beside_one_that_cant_be_read() -> None:
    assert latest_source_id(with_unreadable("y-1")) == "x-1"
    assert latest_source_id(with_unreadable("y-1", source=NO_TOPIC)) == "x-1"
    with pytest.raises(UnreadableRowError):
        latest_source_id(with_unreadable("y-1", source="x-2"))
