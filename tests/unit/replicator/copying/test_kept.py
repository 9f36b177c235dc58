"""Up to where a target holds what run-log entries tell, once another leader leads it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

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
from parallax.domain.runs import Run
from replicator.copying.kept import RunHistory, UndoneRecords, kept_to, record_end
from replicator.copying.ports import TargetEnd, TargetLog
from replicator.copying.state import PartitionChange, PartitionState

ITEM, OTHER = (TopicPartition(TopicName("trips"), number) for number in range(2))
LINEAGE = Lineage(TopicId("s"), TopicId("t"))


def state(floor: int, records_end: int, *, epoch: int = 3, item: TopicPartition = ITEM) -> PartitionState:
    zero = SourceOffset(0)
    return PartitionState(
        item,
        LINEAGE,
        0,
        zero,
        TargetOffset(0),
        zero,
        zero,
        TargetOffset(floor),
        target_leader_epoch=epoch,
        target_record_end=TargetOffset(records_end),
    )


def run(source: int, target: int, count: int) -> Run:
    return Run(SourceOffset(source), TargetOffset(target), count, SourceOffset(source), 0)


def transaction(*rows: Run, sequence: int = 0, target_first: int = 0) -> PartitionChange:
    at = replace(state(0, 0), sequence=sequence, target_first=TargetOffset(target_first))
    return PartitionChange(at, rows)


def history_of(*changes: PartitionChange) -> RunHistory:
    return lambda *_: changes


TRANSACTIONS = (
    transaction(run(0, 0, 5)),  # 5 is its marker
    transaction(run(5, 6, 2), run(7, 10, 2)),  # another route's lie in between, and its marker at 12
    transaction(Run(SourceOffset(9), TargetOffset(15), 0, SourceOffset(9))),
)


@pytest.mark.parametrize(
    ("end", "kept", "undone", "found"),
    [
        (20, 20, (), 15),
        (20, 20, (11,), 6),  # from the first record of the transaction on
        (20, 20, (4, 11), 0),
        (20, 20, (4,), 15),  # the one behind it has shown that it ended
        (13, 13, (), 13),  # a marker and no record is lost
        (13, 13, (11,), 6),
        (9, 9, (), 9),  # of a transaction that lost its end and its marker
        (9, 9, (7,), 6),
        (7, 7, (6,), 6),
        (6, 6, (4,), 0),
        (6, 6, (), 6),
    ],
)
def test_the_last_transaction_that_was_kept_counts_unless_it_was_undone(
    end: int, kept: int, undone: Collection[int], found: int
) -> None:
    told = TargetEnd(TargetOffset(end), 4, TargetOffset(kept))
    asked: list[int] = []

    def is_undone(item: TopicPartition, offset: TargetOffset) -> bool:
        assert item == ITEM
        asked.append(offset)
        return offset in undone

    assert kept_to(state(15, 12), told, history=history_of(*TRANSACTIONS), undone=is_undone) == found
    assert len(asked) <= len(undone) + 2


def test_nothing_is_read_where_the_last_transaction_stands_or_the_leader_is_the_same() -> None:
    def unread(*_: object) -> list[PartitionChange]:
        raise AssertionError("the whole run log is read for nothing")

    same, another = TargetEnd(TargetOffset(20), 3), TargetEnd(TargetOffset(20), 4, TargetOffset(20))
    assert kept_to(state(15, 12), same, history=unread, undone=lambda *_: True) == 15
    assert kept_to(state(15, 12), another, history=unread, undone=lambda *_: False) == 15
    assert kept_to(state(15, 0), another, history=unread, undone=lambda *_: True) == 15, "nothing was copied"
    assert record_end(state(15, 12), TargetOffset(12), unread) == 12


@pytest.mark.parametrize("kept", [20, 9])
def test_a_leader_that_does_not_tell_is_waited_for(kept: int) -> None:
    told = TargetEnd(TargetOffset(20), 4, TargetOffset(kept))
    assert kept_to(state(15, 12), told, history=history_of(*TRANSACTIONS), undone=lambda *_: None) is None
    unknown = TargetEnd(TargetOffset(20), 4)
    assert kept_to(state(15, 12), unknown, history=history_of(), undone=lambda *_: False) is None


def test_what_a_later_lineage_has_made_void_is_no_transaction_that_was_told() -> None:
    changes = (*TRANSACTIONS, transaction(sequence=1, target_first=7), transaction(run(6, 13, 1), sequence=1))
    present = replace(state(14, 14), sequence=1, target_first=TargetOffset(7))
    told = TargetEnd(TargetOffset(20), 4, TargetOffset(12))
    asked: list[int] = []
    kept_to(present, told, history=history_of(*changes), undone=lambda _, at: bool(asked.append(at)))
    assert asked == [6]
    assert record_end(present, TargetOffset(12), history_of(*changes)) == 7


@pytest.mark.parametrize(
    ("below", "found"), [(15, 12), (12, 12), (11, 11), (10, 8), (8, 8), (7, 7), (6, 5), (0, 0)]
)
def test_the_last_record_below_a_cut(below: int, found: int) -> None:
    assert record_end(state(15, 12), TargetOffset(below), history_of(*TRANSACTIONS)) == found


def test_leaders_are_asked_once_for_all_partitions_that_they_lead_anew() -> None:
    asked: list[Mapping[TopicPartition, tuple[TargetLog, TargetOffset]]] = []

    class Target:
        def undone(
            self, records: Mapping[TopicPartition, tuple[TargetLog, TargetOffset]]
        ) -> Mapping[TopicPartition, bool]:
            asked.append(records)
            return {item: offset == 4 for item, (_, offset) in records.items() if item == ITEM}

    third, fourth, fifth = (TopicPartition(TopicName("trips"), number) for number in range(2, 5))
    states = {
        ITEM: state(15, 12),
        OTHER: state(15, 10, item=OTHER),
        third: state(15, 12, epoch=4, item=third),
        fourth: state(15, 0, item=fourth),
        fifth: state(15, 7, epoch=UNKNOWN_EPOCH, item=fifth),
    }
    target: Any = Target()
    undone = UndoneRecords(target, states, dict.fromkeys(states, TargetEnd(TargetOffset(20), 4)))
    log = TargetLog(TopicId("t"), 4)
    assert asked == [{ITEM: (log, 11), OTHER: (log, 9), fifth: (log, 6)}]
    assert undone(ITEM, TargetOffset(11)) is False
    assert len(asked) == 1
    assert undone(ITEM, TargetOffset(4)) is True
    assert undone(OTHER, TargetOffset(9)) is None, "its leader does not tell"
