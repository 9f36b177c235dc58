from __future__ import annotations

from lab.oracle.logs import Placed
from lab.oracle.outage import held_back, possibly_unindexed, records_below
from lab.workload.delivered import DeliveredRecord
from lab.workload.events import RecordId
from tests.worlds.topic_logs import topic_log

RETURNED_MS = 500


def told(seq: int, at_ms: int) -> DeliveredRecord:
    return DeliveredRecord(0, RecordId("a", seq), "regional-a", 0, seq, at_ms)


def consumed(stage: int, seq: int, offset: int, partition: int = 0) -> DeliveredRecord:
    return DeliveredRecord(stage, RecordId("a", seq), "aggregate-a", partition, offset, 0)


# In partition 0 of b: a0 b0 | a1 a2, where the bar is the moment of the return.
TARGET = topic_log(
    "aggregate-b",
    [
        (0, Placed(offset, RecordId(region, seq), 0))
        for offset, region, seq in ((0, "a", 0), (2, "b", 0), (4, "a", 1), (5, "a", 2))
    ],
)


def test_below_an_end_is_what_lies_before_it_in_partitions_that_have_one() -> None:
    assert records_below(TARGET, {0: 4}) == {RecordId("a", 0), RecordId("b", 0)}
    assert records_below(TARGET, {1: 9}) == set()


def test_held_back_is_what_was_acknowledged_before_the_return_and_came_after_it() -> None:
    acknowledged = [told(0, 100), told(1, 200), told(2, RETURNED_MS + 1)]
    found = held_back(acknowledged, TARGET, ends={0: 4}, returned_at_ms=RETURNED_MS)
    assert found == {RecordId("a", 1)}


def test_held_back_is_also_what_never_came() -> None:
    found = held_back([told(7, 100)], TARGET, ends={0: 9}, returned_at_ms=RETURNED_MS)
    assert found == {RecordId("a", 7)}


def test_possibly_unindexed_is_what_was_consumed_in_front_of_the_move_at_or_above_a_place() -> None:
    deliveries = [consumed(0, 1, 9), consumed(0, 2, 10), consumed(0, 2, 10), consumed(1, 3, 11)]
    assert possibly_unindexed(deliveries, {0: 10}) == 1
    assert possibly_unindexed([consumed(0, 1, 9, partition=1)], {0: 10}) == 1  # nobody knows since when
