from __future__ import annotations

from lab.oracle.groups import judge_group
from lab.oracle.logs import Placed, TopicLog
from lab.workload.delivered import DeliveredRecord
from lab.workload.events import RecordId
from tests.worlds.topic_logs import topic_log

ORDER_A = ("b1", "a1", "b2", "a2", "b3", "a3")
ORDER_B = ("b1", "b2", "b3", "a1", "a2", "a3")


def rid(name: str) -> RecordId:
    return RecordId(name[0], int(name[1:]))


def log(cluster: str, names: tuple[str, ...]) -> TopicLog:
    return topic_log(cluster, [(0, Placed(offset, rid(name), 0)) for offset, name in enumerate(names)])


TARGETS = {"aggregate-a": log("aggregate-a", ORDER_A), "aggregate-b": log("aggregate-b", ORDER_B)}
PRODUCED = {rid(name) for name in ORDER_A}


def delivered(*stages: tuple[str, ...]) -> list[DeliveredRecord]:
    """One delivery every 10 ms, stages 0, 1, 2 in turn on a, b, a."""
    found, clock = [], 0
    for stage, names in enumerate(stages):
        cluster, order = (("aggregate-a", ORDER_A), ("aggregate-b", ORDER_B))[stage % 2]
        for name in names:
            clock += 10
            offset = order.index(name) if name in order else 99
            found.append(DeliveredRecord(stage, rid(name), cluster, 0, offset, clock))
    return found


def test_a_perfect_move_loses_and_repeats_nothing() -> None:
    verdict = judge_group(
        delivered(("b1", "a1", "b2"), ("b3", "a2"), ("a3",)), PRODUCED, TARGETS, moved_at_ms=[31, 52]
    )
    assert (verdict.lost_records, verdict.repeated_records, verdict.foreign_records) == (0, 0, 0)
    assert [(move.lost_records, move.redelivered_records) for move in verdict.moves] == [(0, 0)] * 3
    assert [move.failover_ms for move in verdict.moves] == [None, 9, 8]


def test_redelivery_is_counted_in_the_stage_that_repeats() -> None:
    verdict = judge_group(
        delivered(("b1", "a1"), ("b1", "b2", "b3", "a1", "a2"), ("a2", "b3", "a3")),
        PRODUCED,
        TARGETS,
        moved_at_ms=[21, 71],
    )
    assert [move.redelivered_records for move in verdict.moves] == [0, 2, 2]
    assert verdict.lost_records == 0
    # The first record of the stage was an old one; the second one counts.
    assert verdict.moves[1].failover_ms == 40 - 21


def test_a_lost_record_is_charged_to_the_stage_that_passed_over_it() -> None:
    # a1 lies before a2 in b, where the group went on behind it; in a it had not come that far.
    verdict = judge_group(delivered(("b1",), ("b2", "b3", "a2"), ("a3",)), PRODUCED, TARGETS, [11, 42])
    assert verdict.lost_records == 1
    assert [move.lost_records for move in verdict.moves] == [0, 1, 0]


def test_a_record_lost_before_any_move_is_charged_to_nobody_else() -> None:
    verdict = judge_group(delivered(("b1", "b2"), ("b3", "a2"), ("a3",)), PRODUCED, TARGETS, [21, 42])
    assert [move.lost_records for move in verdict.moves] == [1, 0, 0]


def test_records_never_reached_are_charged_to_the_last_stage() -> None:
    verdict = judge_group(delivered(("b1", "a1", "b2"), ("b3",), ()), PRODUCED, TARGETS, [31, 42])
    assert [move.lost_records for move in verdict.moves] == [0, 0, 2]
    assert verdict.moves[2].failover_ms is None


def test_a_repetition_without_a_move_and_a_foreign_record_are_found() -> None:
    verdict = judge_group(
        delivered(("b1", "b1", "a1"), ("b2", "b3", "a2", "a9"), ("a3",)), PRODUCED, TARGETS, [31, 72]
    )
    assert (verdict.repeated_records, verdict.foreign_records, verdict.lost_records) == (1, 1, 0)
