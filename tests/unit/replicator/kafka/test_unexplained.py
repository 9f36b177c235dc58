"""Records that no row explains, by offsets."""

from __future__ import annotations

import pytest

from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    Lineage,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.v1.runlog_pb2 import Entry, PartitionEntry
from replicator.copying.state import PartitionState
from replicator.kafka.spans import spans_of
from replicator.kafka.unexplained import counted, floor_of, loses_by_election, without_rows

ITEM, OTHER = (TopicPartition(TopicName("trips"), number) for number in range(2))


TOPIC_ID = TopicId("trips' id")


def entry(
    *rows: tuple[int, int], partition: int = 0, topic_id: str = TOPIC_ID, epoch: int | None = None
) -> Entry:
    part = PartitionEntry(
        topic="trips", partition=partition, target_topic_id=topic_id, target_leader_epoch=epoch
    )
    for start, count in rows:
        part.source_start.append(start)
        part.target_start.append(start)
        part.count.append(count)
        part.previous_source_end.append(start)
        part.run_leader_epoch.append(0)
    return Entry(partitions=[part])


TOPIC_IDS = {ITEM: TOPIC_ID, OTHER: TOPIC_ID}


def ends(_item: TopicPartition, epoch: int) -> int:
    """Leader epoch 5 begins at offset 10."""
    return 10 if epoch < 5 else 100


def test_ascending_offsets_are_spans() -> None:
    assert spans_of([3, 4, 5, 7, 9, 10]) == [(3, 6), (7, 8), (9, 11)]


@pytest.mark.parametrize(
    ("rows", "left"),
    [
        ([], [(3, 6), (7, 8), (9, 12)]),
        ([(0, 100)], []),
        ([(3, 3), (7, 1), (9, 3)], []),
        ([(7, 1), (3, 2)], [(5, 6), (9, 12)]),
        ([(10, 1)], [(3, 6), (7, 8), (9, 10), (11, 12)]),
        ([(0, 4), (2, 1)], [(4, 6), (7, 8), (9, 12)]),
        ([(3, 0)], [(3, 6), (7, 8), (9, 12)]),
    ],
)
def test_what_no_row_holds_is_left(rows: list[tuple[int, int]], left: list[tuple[int, int]]) -> None:
    records = {ITEM: [(3, 6), (7, 8), (9, 12)], OTHER: [(1, 2)]}
    found = without_rows(records, [entry(*rows), entry((1, 1), partition=1)], TOPIC_IDS, ends)
    assert found == {ITEM: left, OTHER: []}


@pytest.mark.parametrize(
    ("topic_id", "epoch", "left"),
    [
        (TOPIC_ID, 4, [(10, 12)]),
        (TOPIC_ID, 5, []),
        ("another topic's id", 99, [(3, 6), (9, 12)]),
    ],
)
def test_rows_of_what_the_target_has_lost_explain_nothing(
    topic_id: str, epoch: int, left: list[tuple[int, int]]
) -> None:
    rows = entry((3, 3), (9, 3), topic_id=topic_id, epoch=epoch)
    found = without_rows({ITEM: [(3, 6), (9, 12)], OTHER: []}, [rows], TOPIC_IDS, ends)
    assert found == {ITEM: left, OTHER: []}


@pytest.mark.parametrize(
    ("epoch", "topic_id", "floor"),
    [(4, TOPIC_ID, 10), (5, TOPIC_ID, 12), (UNKNOWN_EPOCH, TOPIC_ID, 12), (4, "another topic's id", 0)],
)
def test_entries_tell_of_no_more_than_the_target_has_kept(epoch: int, topic_id: str, floor: int) -> None:
    zero = SourceOffset(0)
    lineage = Lineage(TopicId("source's id"), TopicId(topic_id))
    state = PartitionState(
        ITEM, lineage, 0, zero, TargetOffset(0), zero, zero, TargetOffset(12), target_leader_epoch=epoch
    )
    assert floor_of({ITEM: state}, ITEM, TOPIC_ID, ends) == floor


def test_partitions_without_any_are_not_named() -> None:
    assert counted({ITEM: [(3, 6), (9, 10)], OTHER: []}) == {ITEM: 4}


@pytest.mark.parametrize(
    ("settings", "replicas", "loses"),
    [
        ({"unclean.leader.election.enable": "false"}, 3, False),
        ({"unclean.leader.election.enable": "true"}, 3, True),
        ({"unclean.leader.election.enable": "false"}, 1, True),
        ({}, 3, True),  # not told: its settings may not be read
    ],
)
def test_only_a_run_log_that_can_lose_entries_is_suspected(
    settings: dict[str, str], replicas: int, *, loses: bool
) -> None:
    assert loses_by_election(settings, replicas) is loses
