from __future__ import annotations

from parallax.domain.ids import Lineage, TopicId, TopicName, TopicPartition
from parallax.domain.runs import Run
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.state import PartitionChange, PartitionState, encode
from replicator.kafka.foreign_records import Gap, Gaps, unexplained

ITEM = TopicPartition(TopicName("t"), 0)
STRETCH = Gap(ITEM, 10, 20)


def entry(*rows: Run) -> Entry:
    state = PartitionState(ITEM, Lineage(TopicId("s"), TopicId("d")), 0, 0, 0, 99, 99, 99)
    change = PartitionChange(state, rows)
    return encode(
        run_log_id=TopicId("log"),
        layout=1,
        shard=0,
        path="record",
        changes=[change],
        everything=None,
        committed_at_ms=1,
    )


def test_a_single_marker_between_two_runs_is_no_gap_and_a_longer_stretch_is() -> None:
    gaps = Gaps()
    gaps.note(entry(Run(0, 0, 5, 0)))
    gaps.note(entry(Run(5, 6, 4, 5), Run(9, 9, 0, 9)))
    assert gaps.take() == []
    gaps.note(entry(Run(9, 20, 1, 9)))
    assert gaps.take() == [Gap(ITEM, 10, 20)]
    assert gaps.take() == []


def test_what_runs_of_any_route_hold_is_explained() -> None:
    logs = [(0, [(0, 10), (20, 25)]), (5, [(10, 14)])]
    assert unexplained([10, 13, 14, 19], logs, STRETCH) == [(14, 15), (19, 20)]


def test_nothing_is_said_where_a_run_log_does_not_reach_back_far_enough() -> None:
    assert unexplained([14], [(0, []), (11, [(11, 13)])], STRETCH) == []
