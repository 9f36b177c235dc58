"""What becomes of a transaction that hangs on a partition of the target, as the run log's entries tell it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from parallax.domain.ids import Lineage, Route, SourceOffset, TargetOffset, TopicId, TopicName, TopicPartition
from parallax.domain.runs import Run
from parallax.errors import ClusterUnavailableError
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.state import PartitionChange, PartitionState
from replicator.kafka.transactions.endings import TransactionEnd
from replicator.kafka.transactions.fates import (
    Fates,
    entry_in_doubt,
    fates_by_entries,
    fates_of,
    fates_with_entry,
    is_settled_change,
)
from replicator.lease import Lease

ITEM = TopicPartition(TopicName("trips"), 0)
IDS = {ITEM.topic: TopicId("t")}


def entry(
    *rows: Run, sequence: int = 0, target_first: int = 0, target_id: str = "t", epoch: int = -1
) -> Entry:
    end = rows[-1]
    state = PartitionState(
        ITEM,
        Lineage(TopicId("s"), TopicId(target_id), sequence),
        sequence,
        SourceOffset(0),
        TargetOffset(target_first),
        SourceOffset(end.source_end),
        SourceOffset(end.source_end),
        TargetOffset(end.target_end),
        target_leader_epoch=epoch,
    )
    return Entry(partitions=[PartitionChange(state, rows).encoded()])


def alone(_ends: Mapping[TopicPartition, TargetOffset]) -> Collection[TopicPartition]:
    """The producer has written nothing that is not told."""
    return ()


OLD = [entry(Run(0, 0, 5, 0, 0)), entry(Run(5, 9, 3, 5, 0))]


@pytest.mark.parametrize(
    ("start", "entries", "committed"),
    [
        (0, OLD, True),
        (9, OLD, True),
        (12, OLD, False),  # above all that was committed
        (6, OLD, False),  # between two rows: an aborted one whose marker is lost
        (9, [*OLD, entry(Run(5, 8, 0, 5), sequence=1, target_first=8)], False),  # void, and given again
        (9, [*OLD, entry(Run(5, 8, 0, 5), Run(5, 9, 2, 5, 0), sequence=1, target_first=8)], True),
        (3, [*OLD, entry(Run(5, 8, 0, 5), sequence=1, target_first=8)], True),  # below the cut
        (3, [*OLD, entry(Run(0, 0, 0, 0), sequence=1, target_id="u")], False),  # of a topic that is gone
        (3, [], False),
        (3, [entry(Run(0, 0, 5, 0, 0), target_id="gone")], False),  # nobody has said yet that it is gone
    ],
)
def test_it_is_committed_if_a_row_that_holds_tells_of_its_first_record(
    start: int,
    entries: list[Entry],
    committed: bool,  # noqa: FBT001 - parametrised
) -> None:
    found = fates_by_entries({ITEM: TargetOffset(start)}, IDS, entries, lambda _epochs: {}, alone)
    assert found == (Fates(commit=(ITEM,)) if committed else Fates(abort=(ITEM,)))


def test_a_row_that_the_target_has_not_kept_is_void_before_anybody_has_said_so() -> None:
    for kept_to, fates in ((9, Fates(abort=(ITEM,))), (10, Fates(commit=(ITEM,)))):
        epochs: dict[TopicPartition, int] = {}

        def ends_of(
            asked: Mapping[TopicPartition, int], end: int = kept_to, told: dict[TopicPartition, int] = epochs
        ) -> Mapping[TopicPartition, TargetOffset]:
            told.update(asked)
            return dict.fromkeys(asked, TargetOffset(end))

        assert (
            fates_by_entries(
                {ITEM: TargetOffset(9)}, IDS, [entry(Run(5, 9, 3, 5, 0), epoch=4)], ends_of, alone
            )
            == fates
        )
        assert epochs == {ITEM: 4}


@pytest.mark.parametrize(
    ("entries", "kept_to", "end"),
    [
        (OLD, 20, 12),
        ([*OLD, entry(Run(8, 15, 0, 8))], 20, 12),  # a watermark is no record
        (OLD, 11, 11),  # its end is lost: what lies there now is something else
        ([*OLD, entry(Run(7, 11, 0, 7), sequence=1, target_first=11)], 20, 11),
        ([*OLD, entry(Run(7, 11, 0, 7), Run(7, 15, 2, 7, 0), sequence=1, target_first=11)], 20, 17),
    ],
)
def test_where_an_untold_transaction_has_joined_one_that_was_told_both_are_aborted(
    entries: list[Entry], kept_to: int, end: int
) -> None:
    """What was told is copied again then: committing both would bring to life what has been copied since, or will be."""
    asked: list[Mapping[TopicPartition, TargetOffset]] = []

    def joined(ends: Mapping[TopicPartition, TargetOffset]) -> Collection[TopicPartition]:
        asked.append(ends)
        return ends.keys()

    for item in entries:
        item.partitions[0].target_leader_epoch = 4
    ends = {ITEM: TargetOffset(kept_to)}
    found = fates_by_entries({ITEM: TargetOffset(9)}, IDS, entries, lambda _epochs: ends, joined)
    assert found == Fates(abort=(ITEM,))
    assert asked == [{ITEM: end}]


RUN_LOG = TopicPartition(TopicName("parallax.runs.a"), 1)
P0, P1, P2 = (TopicPartition(TopicName("trips"), number) for number in range(3))


@pytest.mark.parametrize(
    ("hanging_on", "endings", "joined", "committed"),
    [
        ({P0: 0, P1: 4, P2: 7}, {}, (), {P0, P1, P2}),
        ({P1: 4, P2: 7}, {P0: TransactionEnd.COMMITTED}, (), {P1, P2}),
        ({P1: 4, P2: 7}, {P0: TransactionEnd.ABORTED}, (), None),
        # What has its marker there is not to be seen any more.
        ({P1: 4, P2: 7}, {P0: TransactionEnd.GONE}, (), {P1, P2}),
        ({P2: 7}, {P0: TransactionEnd.GONE, P1: TransactionEnd.ABORTED}, (), None),
        ({P2: 7}, {P0: TransactionEnd.GONE, P1: TransactionEnd.COMMITTED}, (), {P2}),
        ({P1: 4, P2: 7}, {}, (), {P1, P2}),  # P0's topic is gone, or the next one has joined it there
        ({P1: 4, P2: 6}, {P0: TransactionEnd.COMMITTED}, (), {P1}),  # P2 holds the one before as well
        ({P1: 4, TopicPartition(TopicName("other"), 0): 3}, {P0: TransactionEnd.COMMITTED}, (), {P1}),
        # P1 holds the next one as well, which nobody has told of.
        ({P1: 4, P2: 7}, {P0: TransactionEnd.COMMITTED}, (P1,), {P2}),
        ({P1: 4}, {P0: TransactionEnd.COMMITTED}, (P1,), set()),
    ],
)
def test_where_the_run_log_hangs_too_what_is_left_of_the_transaction_decides(
    hanging_on: dict[TopicPartition, int],
    endings: dict[TopicPartition, TransactionEnd],
    joined: Collection[TopicPartition],
    committed: set[TopicPartition] | None,
) -> None:
    whole = Entry()
    for item, start in ((P0, 0), (P1, 4), (P2, 7)):
        part = entry(Run(0, start, 2, 0, 0), Run(2, start + 3, 1, 2, 0), Run(3, start + 9, 0, 3)).partitions[
            0
        ]
        part.partition = item.partition
        whole.partitions.append(part)
    hanging_at = {item: TargetOffset(start) for item, start in ({RUN_LOG: 20} | hanging_on).items()}
    asked: dict[TopicPartition, TargetOffset] = {}

    def endings_of(records: Mapping[TopicPartition, TargetOffset]) -> Mapping[TopicPartition, TransactionEnd]:
        asked.update(records)
        return endings

    def continued(ends: Mapping[TopicPartition, TargetOffset]) -> Collection[TopicPartition]:
        starts = {P0: 0, P1: 4, P2: 7}
        assert ends == {item: start + 4 for item, start in starts.items() if hanging_on.get(item) == start}
        return joined

    expected = set() if committed is None else {RUN_LOG, *committed}
    found = fates_with_entry(hanging_at, RUN_LOG, whole, endings_of, continued)
    assert (set(found.commit), set(found.abort)) == (expected, hanging_at.keys() - expected)
    assert asked == {item: start + 3 for item, start in ((P0, 0), (P1, 4), (P2, 7)) if item not in hanging_on}


OPENING, CLOSING = Entry(piece=0, pieces=2), Entry(piece=1, pieces=2, partitions=OLD[0].partitions)


@pytest.mark.parametrize(
    ("log", "told_by"),
    [
        ([OPENING, CLOSING], CLOSING),
        ([OLD[0]], OLD[0]),
        ([OPENING], None),
        ([OPENING, None], None),  # a marker
        ([OPENING, OPENING, CLOSING], None),  # of two transactions
        ([CLOSING], None),
    ],
)
def test_an_entry_is_in_doubt_only_if_all_of_it_is_there(
    log: list[Entry | None], told_by: Entry | None
) -> None:
    found = entry_in_doubt(lambda offset: log[offset - 7] if offset - 7 < len(log) else None, 7)
    assert (None if found is None else found.partitions) == (None if told_by is None else told_by.partitions)


def test_where_no_entry_begins_nothing_is_decided() -> None:
    with pytest.raises(ClusterUnavailableError, match="no entry at 7"):
        entry_in_doubt(lambda _offset: None, 7)


def test_an_opening_that_hangs_does_not_void_what_was_committed_before_it() -> None:
    asked: list[Mapping[TopicPartition, TargetOffset]] = []

    def by_entries(starts: Mapping[TopicPartition, TargetOffset]) -> Fates:
        asked.append(starts)
        return fates_by_entries(starts, IDS, OLD, lambda _epochs: {}, alone)

    def fates(**starts: int) -> Fates:
        places = {"item": ITEM, "run_log": RUN_LOG}
        return fates_of(
            {places[name]: TargetOffset(start) for name, start in starts.items()},
            RUN_LOG,
            kept_from=7,
            entry_at=lambda offset: OPENING if offset == 7 else None,
            by_entries=by_entries,
            endings_of=lambda _records: pytest.fail("no entry is in doubt"),
            continued=alone,
        )

    assert fates(item=9, run_log=7) == Fates(commit=(ITEM,), abort=(RUN_LOG,))
    assert asked == [{ITEM: 9}]
    assert fates(item=12, run_log=7) == Fates(abort=(RUN_LOG, ITEM))
    assert fates(run_log=7) == Fates(abort=(RUN_LOG,))
    assert fates(item=9) == Fates(commit=(ITEM,))


def test_an_entry_that_retention_has_taken_is_nobodys_any_more() -> None:
    """What else hangs is decided by the entries that are left."""

    def fates(item: int) -> Fates:
        return fates_of(
            {ITEM: TargetOffset(item), RUN_LOG: TargetOffset(6)},
            RUN_LOG,
            kept_from=7,
            entry_at=lambda _offset: pytest.fail("it can't be read"),
            by_entries=lambda starts: fates_by_entries(starts, IDS, OLD, lambda _epochs: {}, alone),
            endings_of=lambda _records: pytest.fail("no entry is in doubt"),
            continued=alone,
        )

    assert fates(9) == Fates(commit=(ITEM,), abort=(RUN_LOG,))
    assert fates(12) == Fates(abort=(RUN_LOG, ITEM))


LEASE = Lease(Route.parse("a->b"), 1, 2, 5, 0, 0)


@pytest.mark.parametrize(
    ("path", "layout", "settled"),
    [("layout", 4, True), ("layout", 5, True), ("layout", 6, False), ("batch", 5, False)],
)
def test_a_change_of_the_layout_is_settled_once_there_are_leases_of_it(
    path: str,
    layout: int,
    settled: bool,  # noqa: FBT001 - parametrised
) -> None:
    assert is_settled_change(Entry(path=path, layout=layout), LEASE) is settled
