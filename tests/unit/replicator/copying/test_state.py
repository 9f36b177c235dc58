from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallax.domain.ids import (
    NO_TOPIC,
    UNKNOWN_EPOCH,
    Lineage,
    Route,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.runs import LostRange, Run
from parallax.errors import InvariantError
from parallax.ports.clusters import TopicInfo
from replicator.copying import reconcile
from replicator.copying.open_transaction import OpenTransaction
from replicator.copying.ports import LogEnd, OutOfRange, ReadFrom, RecordBlock, Survey, TargetEnd
from replicator.copying.reconcile import PartitionDecision, begin, changes_for, decide, lose, read_from
from replicator.copying.state import (
    LARGEST_PIECE_BYTES,
    PartitionChange,
    PartitionState,
    encode,
    fold,
    lost_of,
    pieces_of,
    rows_of,
    state_of,
    whole_entry,
)
from replicator.lease import PartitionStatus, shard_of, transactional_id

ITEM = TopicPartition(TopicName("t"), 0)
LINEAGE = Lineage(TopicId("s1"), TopicId("d1"))


def state(
    source_next: int = 10, floor: int = 20, lineage: Lineage = LINEAGE, epoch: int = 3
) -> PartitionState:
    return PartitionState(ITEM, lineage, 0, 0, 0, source_next, source_next, floor, epoch)


def survey(
    *, source_id: str | None = "s1", target_id: str = "d1", log: LogEnd | None = None, partitions: int = 1
) -> Survey:
    topic = ITEM.topic
    return Survey(
        1,
        {} if source_id is None else {topic: TopicInfo(topic, TopicId(source_id), partitions)},
        {} if log is None else {ITEM: log},
        {topic: TopicInfo(topic, TopicId(target_id), 1)},
    )


def decision(
    looked: Survey, known: PartitionState | None, position: int = 10, unreadable: OutOfRange | None = None
) -> PartitionDecision:
    states = {} if known is None else {ITEM: known}
    found = decide(
        looked,
        states,
        positions=dict.fromkeys(states, position),
        out_of_range={} if unreadable is None else {ITEM: unreadable},
        shard=0,
        shard_count=1,
    )
    [only] = [item for item in found if item.topic_partition == ITEM]
    return only


# --- what a survey means


def test_a_partition_seen_for_the_first_time_begins_where_the_sources_log_does() -> None:
    found = decision(survey(log=LogEnd(4, 9, 9)), None)
    assert found.begins is not None
    assert (found.begins.lineage, found.begins.source_first) == (LINEAGE, 4)
    [opened] = begin(ITEM, found.begins, None, TargetEnd(7, 4))
    assert opened.rows == (Run(4, 7, 0, 0),)
    assert opened.lost == (LostRange(0, 4, 7),)
    assert opened.state.last_run_end == 4


def test_what_a_route_leaves_at_its_start_is_told_as_lost() -> None:
    looked = survey(log=LogEnd(4, 9, 9, begins_at=SourceOffset(8)))
    nothing_copied = state(lineage=Lineage(NO_TOPIC, TopicId("d1")))
    for known in (None, nothing_copied):
        found = decision(looked, known)
        assert found.begins is not None
        assert found.begins.source_first == 8
        *_, opened = begin(ITEM, found.begins, known, TargetEnd(TargetOffset(7), 4))
        assert opened.lost == (LostRange(SourceOffset(0), SourceOffset(8), TargetOffset(7)),)


def test_a_topic_that_was_copied_is_never_left_out_by_a_start() -> None:
    looked = survey(source_id="anew", log=LogEnd(0, 9, 9, begins_at=SourceOffset(8)))
    found = decision(looked, state())
    assert found.begins is not None
    assert found.begins.source_first == 0


def test_a_known_partition_goes_on() -> None:
    found = decision(survey(log=LogEnd(0, 12, 12)), state())
    assert (found.status, found.begins, found.lost_up_to) == (PartitionStatus.COPYING, None, None)


def test_a_source_without_the_topic_is_absent_and_has_a_lineage_all_the_same() -> None:
    found = decision(survey(source_id=None), None)
    assert found.status is PartitionStatus.ABSENT
    assert found.begins is not None
    assert (found.begins.lineage.source_topic_id, found.begins.source_first) == ("", 0)
    assert decision(survey(source_id=None), state()).begins is None  # deleted there: nothing more can come


# --- topics whose sources have different partition counts

BEYOND = TopicPartition(ITEM.topic, 1)


def counted(
    *, source: int | None, target: int, logs: dict[TopicPartition, LogEnd] | None = None, refused: str = ""
) -> Survey:
    """A topic with so many partitions on each side; None: the source does not answer."""
    topic = ITEM.topic
    return Survey(
        1,
        None if source is None else {topic: TopicInfo(topic, TopicId("s1"), source)},
        logs or {},
        {topic: TopicInfo(topic, TopicId("d1"), target)},
        {topic: refused} if refused else {},
    )


def decided(
    looked: Survey, known: dict[TopicPartition, PartitionState] | None = None
) -> dict[TopicPartition, PartitionDecision]:
    found = decide(looked, known or {}, positions={}, out_of_range={}, shard=0, shard_count=1)
    return {item.topic_partition: item for item in found}


def absent(item: TopicPartition) -> PartitionState:
    """A partition of which nothing was ever copied."""
    return replace(state(0, 7, Lineage(TopicId(""), TopicId("d1")), -1), topic_partition=item)


def test_a_partition_that_the_sources_topic_does_not_have_is_absent_and_has_a_lineage_all_the_same() -> None:
    found = decided(counted(source=1, target=2, logs={ITEM: LogEnd(0, 9, 9)}))
    assert found[ITEM].status is PartitionStatus.COPYING
    beyond = found[BEYOND]
    assert (beyond.status, beyond.begins and beyond.begins.lineage) == (
        PartitionStatus.ABSENT,
        Lineage(TopicId(""), TopicId("d1")),
    )
    assert beyond.begins is not None
    [opened] = begin(BEYOND, beyond.begins, None, TargetEnd(7, 4))
    assert (opened.rows, opened.lost) == ((Run(0, 7, 0, 0),), ())


def test_a_partition_that_the_sources_topic_gets_later_is_first_seen_then() -> None:
    before = absent(BEYOND)
    assert decided(counted(source=1, target=2), {BEYOND: before})[BEYOND].begins is None
    logs = {BEYOND: LogEnd(0, 3, 3)}
    found = decided(counted(source=2, target=2, logs=logs), {BEYOND: before})[BEYOND]
    assert (found.status, found.begins and found.begins.lineage) == (PartitionStatus.COPYING, LINEAGE)
    assert found.begins is not None
    closed, opened = begin(BEYOND, found.begins, before, TargetEnd(9, 4))
    assert closed.closed
    assert opened.rows == (Run(0, 9, 0, 0),)


def test_a_known_partition_is_kept_where_the_source_shows_fewer_for_a_while() -> None:
    known = replace(state(), topic_partition=BEYOND)
    found = decided(counted(source=1, target=2), {BEYOND: known})[BEYOND]
    assert (found.status, found.begins) == (PartitionStatus.ABSENT, None)


def test_nothing_of_a_source_that_never_answered_was_copied() -> None:
    found = decided(counted(source=None, target=2), {ITEM: state()})
    # What was copied of it stands, and goes on once it answers.
    assert (found[ITEM].status, found[ITEM].begins) == (PartitionStatus.WAITING, None)
    assert (found[BEYOND].status, found[BEYOND].begins and found[BEYOND].begins.lineage.source_topic_id) == (
        PartitionStatus.WAITING,
        "",
    )
    found = decided(counted(source=None, target=1), {ITEM: absent(ITEM)})
    assert (found[ITEM].status, found[ITEM].begins) == (PartitionStatus.WAITING, None)


def test_a_target_that_does_not_grow_with_its_source_stops_what_it_lacks_and_nothing_else() -> None:
    looked = counted(source=2, target=1, logs={ITEM: LogEnd(0, 9, 9), BEYOND: LogEnd(0, 5, 5)})
    found = decided(looked, {ITEM: state()})
    assert found[ITEM].status is PartitionStatus.COPYING
    assert found[BEYOND].status is PartitionStatus.STOPPED
    assert "PARTITION_MISMATCH" in found[BEYOND].reason
    assert found[BEYOND].begins is None  # where should its watermark lie?


@pytest.mark.parametrize("known", [{}, {ITEM: absent(ITEM)}], ids=["first seen", "seen before"])
def test_a_topic_that_can_not_grow_waits_as_a_whole_and_says_that_nothing_of_it_was_copied(
    known: dict[TopicPartition, PartitionState],
) -> None:
    looked = counted(source=2, target=1, logs={ITEM: LogEnd(0, 9, 9)}, refused="may not grow")
    found = decided(looked, known)[ITEM]
    assert (found.status, found.reason) == (PartitionStatus.STOPPED, "may not grow")
    begun = found.begins and found.begins.lineage.source_topic_id
    assert begun == (None if known else "")


@pytest.mark.parametrize(
    "test",
    [
        test_a_partition_that_the_sources_topic_does_not_have_is_absent_and_has_a_lineage_all_the_same,
        test_nothing_of_a_source_that_never_answered_was_copied,
        lambda: test_a_topic_that_can_not_grow_waits_as_a_whole_and_says_that_nothing_of_it_was_copied({}),
    ],
    ids=["fewer partitions", "away", "no growth"],
)
def test_a_partition_without_a_row_is_noticed(
    test: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = reconcile._nothing_copied
    monkeypatch.setattr(reconcile, "_nothing_copied", lambda *asked: replace(right(*asked), begins=None))
    with pytest.raises(AssertionError):
        test()


def test_another_source_id_is_another_source_from_its_start() -> None:
    found = decision(survey(source_id="s2", log=LogEnd(0, 3, 3)), state())
    assert found.begins is not None
    closed, opened = begin(ITEM, found.begins, state(), TargetEnd(25, 4))
    assert (closed.closed, closed.state.source_next) == (True, 10)
    assert opened.rows == (Run(0, 25, 0, 0),)
    assert (opened.state.sequence, opened.state.target_floor) == (1, 25)


def test_another_target_id_voids_every_position() -> None:
    found = decision(survey(target_id="d2", log=LogEnd(2, 12, 12)), state())
    assert found.begins is not None
    assert (found.begins.lineage.target_topic_id, found.begins.source_first) == ("d2", 2)


def test_retention_that_overtook_the_reader_is_a_loss_only_once_the_reader_has_met_it() -> None:
    ahead = survey(log=LogEnd(15, 30, 30))
    assert decision(ahead, state()).lost_up_to is None
    assert decision(ahead, state(), unreadable=OutOfRange(ITEM, None)).lost_up_to == 15
    change = lose(state(), 15, TargetEnd(22, 4))
    assert change.lost == (LostRange(10, 15, 22),)
    assert change.rows == (Run(15, 22, 0, 15, 3),)
    assert change.state.source_next == 15


def test_a_log_that_diverged_cuts_the_lineage_and_begins_the_next_generation() -> None:
    found = decision(survey(log=LogEnd(0, 30, 30, 5)), state(), unreadable=OutOfRange(ITEM, 6, 2))
    assert found.begins is not None
    assert (found.begins.lineage.generation, found.begins.source_first, found.begins.leader_epoch) == (
        5,
        6,
        2,
    )
    closed, opened = begin(ITEM, found.begins, state(), TargetEnd(25, 4))
    assert closed.state.source_next == 10, "its rows are all there"
    assert opened.rows == (Run(6, 25, 0, 6, 2),)
    assert opened.lost == ()


def test_where_everything_is_lost_below_the_log_start_reading_asks_for_the_epoch_all_the_same() -> None:
    assert read_from(state(), 8, 10) == ReadFrom(10, 3, LINEAGE.source_topic_id)
    behind = replace(state(), source_next=14)
    assert read_from(behind, 8, 14) == ReadFrom(10, 3, LINEAGE.source_topic_id)
    assert read_from(behind, 12, 14) == ReadFrom(12, 3, LINEAGE.source_topic_id)
    assert read_from(behind, 20, 14) == ReadFrom(14, 3, LINEAGE.source_topic_id)


def test_a_log_of_an_older_leader_that_does_not_end_below_the_position_is_another_log() -> None:
    found = decision(survey(log=LogEnd(0, 30, 30, 5)), state(), unreadable=OutOfRange(ITEM, 15, 2))
    assert found.begins is not None
    assert (
        decision(survey(log=LogEnd(0, 30, 30, 5)), state(), unreadable=OutOfRange(ITEM, 15, 3)).begins is None
    )
    rows = [Run(0, 0, 4, 0, 1), Run(4, 4, 6, 4, 3)]
    _, opened = changes_for(
        [found],
        {ITEM: state()},
        {ITEM: TargetEnd(25)},
        history=whole_history((state(), rows)),
        undone=lambda *_: False,
    )
    assert opened.rows == (Run(4, 25, 0, 4, 1),)
    # Without any row that tells, everything is copied again.
    _, opened = changes_for(
        [found], {ITEM: state()}, {ITEM: TargetEnd(25)}, history=whole_history(), undone=lambda *_: False
    )
    assert opened.rows == (Run(0, 25, 0, 0, -1),)


def test_an_end_below_the_position_proves_a_cut_only_where_nothing_was_copied() -> None:
    short = survey(log=LogEnd(0, 7, 7))
    assert decision(short, state()).begins is None
    found = decision(short, state(epoch=-1))
    assert found.begins is not None
    assert found.begins.source_first == 0


def test_fewer_partitions_on_the_target_stop_the_topic() -> None:
    found = decision(survey(partitions=2, log=LogEnd(0, 1, 1)), None)
    assert found.status is PartitionStatus.STOPPED
    assert "PARTITION_MISMATCH" in found.reason


def test_a_target_that_lost_its_tail_sets_the_position_back_to_the_source_of_the_cut() -> None:
    rows = [Run(0, 0, 5, 0, 3), Run(5, 12, 5, 5, 3)]
    going_on = PartitionDecision(ITEM, PartitionStatus.COPYING)
    known = state(10, 17)
    closed, opened = changes_for(
        [going_on],
        {ITEM: known},
        {ITEM: TargetEnd(14)},
        history=whole_history((known, rows)),
        undone=lambda *_: False,
    )
    assert closed.state.source_next == 7
    assert (opened.state.source_next, opened.state.lineage.generation, opened.state.target_first) == (
        7,
        1,
        14,
    )


def whole_history(
    *parts: tuple[PartitionState, list[Run]],
) -> Callable[[TopicPartition, Lineage], list[PartitionChange]]:
    return lambda _item, _lineage: [PartitionChange(at, tuple(rows)) for at, rows in parts]


def changes(known: PartitionState, end: TargetEnd, *parts: tuple[PartitionState, list[Run]]) -> list[Any]:
    going_on = PartitionDecision(ITEM, PartitionStatus.COPYING)
    return changes_for(
        [going_on], {ITEM: known}, {ITEM: end}, history=whole_history(*parts), undone=lambda *_: False
    )


def test_a_cut_is_told_by_the_leader_epoch_though_others_have_filled_the_log_up_again() -> None:
    known = replace(state(10, 17), target_leader_epoch=4)
    rows = [Run(0, 0, 5, 0, 3), Run(5, 12, 5, 5, 3)]
    closed, opened = changes(known, TargetEnd(40, 5, kept_to=3), (known, rows))
    assert (closed.closed, closed.state.source_next) == (True, 3)
    assert opened.rows == (Run(3, 3, 0, 3, 3),)
    assert opened.state.target_first == 3, "what others wrote above the cut is none of the old rows' any more"
    assert (opened.state.target_leader_epoch, opened.state.lost_epoch) == (5, 5)


def test_a_new_leader_that_has_kept_everything_is_committed_and_nothing_else_changes() -> None:
    known = replace(state(10, 17), target_leader_epoch=4)
    assert changes(known, TargetEnd(40, 4), (known, [])) == []
    [change] = changes(known, TargetEnd(40, 6, kept_to=20), (known, []))
    assert change == PartitionChange(replace(known, target_leader_epoch=6))


@pytest.mark.parametrize("end", [TargetEnd(40, 3), TargetEnd(40, 5), TargetEnd(12, 3, kept_to=12)])
def test_a_target_that_does_not_tell_what_it_has_kept_is_waited_for(end: TargetEnd) -> None:
    known = replace(state(10, 17), target_leader_epoch=4)
    assert changes(known, end, (known, [])) == []
    assert end.has_kept(known.target_floor, known.target_leader_epoch) is None


def test_a_run_log_from_before_leader_epochs_were_written_goes_by_the_end_and_takes_the_epoch() -> None:
    [change] = changes(state(10, 17), TargetEnd(40, 5), (state(), []))
    assert change.state.target_leader_epoch == 5
    closed, _ = changes(state(10, 17), TargetEnd(14, 5), (state(10, 17), [Run(0, 0, 5, 0, 3)]))
    assert closed.closed


def test_a_target_that_lost_its_tail_is_cut_while_the_source_is_away() -> None:
    known = replace(state(10, 17), target_leader_epoch=4)
    here = TopicInfo(ITEM.topic, LINEAGE.target_topic_id, 1)
    [waiting] = decide(
        Survey(1, None, {}, {ITEM.topic: here}),
        {ITEM: known},
        positions={ITEM: 10},
        out_of_range={},
        shard=0,
        shard_count=1,
    )
    assert (waiting.status, waiting.begins) == (PartitionStatus.WAITING, None)
    history = whole_history((known, [Run(0, 0, 5, 0, 3), Run(5, 12, 5, 5, 3)]))
    end = TargetEnd(40, 5, kept_to=3)
    closed, opened = changes_for(
        [waiting], {ITEM: known}, {ITEM: end}, history=history, undone=lambda *_: False
    )
    assert (closed.closed, opened.state.source_next) == (True, 3)


def test_a_cut_below_the_present_generation_goes_back_to_the_last_row_of_an_earlier_one() -> None:
    first = state(100, 100, epoch=0)
    present = PartitionState(ITEM, LINEAGE._replace(generation=1), 1, 90, 101, 90, 90, 101, 0)
    rows = [(first, [Run(0, 0, 0, 0), Run(0, 0, 100, 0, 0)]), (present, [Run(90, 101, 0, 90, 0)])]
    _, opened = changes(present, TargetEnd(80, 5), *rows)
    assert (opened.state.source_next, opened.state.source_leader_epoch) == (80, 0)
    assert opened.state.lineage.generation == 2
    [kept] = changes(present, TargetEnd(101, 5), *rows)
    assert not kept.closed


def test_rows_of_an_earlier_generation_that_an_earlier_cut_made_void_are_not_gone_by() -> None:
    first = state(100, 100, epoch=0)
    second = PartitionState(ITEM, LINEAGE._replace(generation=1), 1, 80, 80, 85, 85, 95, 0, 5, 5)
    rows = [(first, [Run(0, 0, 100, 0, 0)]), (second, [Run(80, 80, 0, 80, 0), Run(80, 90, 5, 80, 0)])]
    _, opened = changes(second, TargetEnd(200, 7, kept_to=90), *rows)
    assert opened.state.source_next == 80


# --- states and entries

LINEAGES = st.builds(
    Lineage, st.sampled_from(["", "s"]).map(TopicId), st.just(TopicId("d")), st.integers(0, 9)
)
STATES = st.builds(
    PartitionState,
    st.builds(TopicPartition, st.sampled_from(["t", "u"]).map(TopicName), st.integers(0, 3)),
    LINEAGES,
    st.integers(0, 5),
    *[st.integers(0, 2**40)] * 5,
    *[st.integers(-1, 100)] * 3,
)


@given(STATES, st.booleans())
def test_an_entry_says_all_of_a_state(known: PartitionState, snapshot: bool) -> None:  # noqa: FBT001 - hypothesis
    rows = (Run(1, 2, 3, 1, 4), Run(9, 9, 0, 4, 4))
    change = PartitionChange(known, rows, (LostRange(1, 2, 3),))
    encoded = encode(
        run_log_id=TopicId("log"),
        layout=1,
        shard=0,
        path="record",
        changes=[change],
        everything={known.topic_partition: known} if snapshot else None,
        committed_at_ms=1,
    )
    decoded = type(encoded).FromString(encoded.SerializeToString())
    assert fold({}, [decoded]) == {known.topic_partition: known}
    [part] = decoded.partitions
    assert (rows_of(part), lost_of(part)) == (rows, change.lost)


def test_a_snapshot_forgets_what_it_does_not_name_and_a_closed_lineage_is_gone() -> None:
    def entry(changes: list[PartitionChange], everything: dict[TopicPartition, PartitionState] | None = None):  # noqa: ANN202
        return encode(
            run_log_id=TopicId("log"),
            layout=1,
            shard=0,
            path="record",
            changes=changes,
            everything=everything,
            committed_at_ms=1,
        )

    assert fold({ITEM: state()}, [entry([], {})]) == {}
    assert fold({ITEM: state()}, [entry([PartitionChange(state(), closed=True)])]) == {}
    newer = state(11)
    assert fold({}, [entry([PartitionChange(state(), closed=True), PartitionChange(newer)])]) == {ITEM: newer}


def many_states(topics: int, partitions: int) -> dict[TopicPartition, PartitionState]:
    drawn = Random(7)
    found = {}
    for number in range(topics):
        lineage = Lineage(TopicId(f"{drawn.getrandbits(128):x}"), TopicId(f"{drawn.getrandbits(128):x}"))
        for partition in range(partitions):
            item = TopicPartition(TopicName(f"payments.tenant-{number:06d}.orders-v2"), partition)
            end = drawn.randrange(10**9, 10**11)
            found[item] = PartitionState(item, lineage, 0, 0, 0, end, end, 2 * end, 12)
    return found


def test_a_snapshot_of_any_number_of_partitions_becomes_records_that_a_broker_takes() -> None:
    known = many_states(400, 32)
    entry = encode(
        run_log_id=TopicId("log"),
        layout=1,
        shard=0,
        path="batch",
        changes=(),
        everything=known,
        committed_at_ms=1,
    )
    assert entry.ByteSize() > 1_048_588, "as one record it would be refused"
    pieces = pieces_of(entry)
    assert all(piece.ByteSize() < LARGEST_PIECE_BYTES + 100 for piece in pieces)
    assert fold({ITEM: state()}, pieces) == known
    assert whole_entry(pieces) == entry
    assert whole_entry(pieces[:-1]) is None
    assert whole_entry(pieces[1:]) is None
    assert pieces_of(pieces[0]) == [pieces[0]], "what fits stays as it is"
    small = encode(
        run_log_id=TopicId("log"),
        layout=1,
        shard=0,
        path="batch",
        changes=[PartitionChange(state())],
        everything=None,
        committed_at_ms=1,
    )
    assert pieces_of(small) == [small]
    assert whole_entry([small]) == small


def test_rows_that_go_back_are_refused() -> None:
    with pytest.raises(InvariantError, match="B"):
        state().after([Run(10, 19, 1, 10, 3)], 11)
    with pytest.raises(InvariantError, match="E"):
        state().after([Run(10, 20, 1, 10, 2)], 11)
    with pytest.raises(InvariantError, match="A"):
        state().after([], 9)


# --- the open transaction


def block(offsets: list[int], epoch: int = 3) -> RecordBlock:
    return RecordBlock(ITEM, epoch, offsets, offsets, 10, 1_000)


def test_runs_break_at_gaps_on_either_side_and_at_leader_epochs() -> None:
    opened = OpenTransaction(0)
    opened.add(block([10, 11, 13]), sent_at_ms=0)
    opened.add(block([14, 15], epoch=4), sent_at_ms=0)
    opened.reached_end(ITEM, 17)
    change = opened.change(state(), [20, 21, 22, 23, 30])
    assert change.rows == (
        Run(10, 20, 2, 10, 3),
        Run(13, 22, 1, 12, 3),
        Run(14, 23, 1, 14, 4),
        Run(15, 30, 1, 15, 4),
    )
    assert (change.state.source_next, change.state.last_run_end, change.state.target_floor) == (17, 16, 31)
    assert opened.record_offset(ITEM, 3) == 14


def test_an_end_told_before_further_records_counts_no_more() -> None:
    opened = OpenTransaction(0)
    opened.add(block([10]), sent_at_ms=0)
    opened.reached_end(ITEM, 17)
    opened.add(block([18]), sent_at_ms=0)
    assert opened.source_next(ITEM) == 19


def test_records_without_acknowledgement_are_never_taken_for_copied() -> None:
    opened = OpenTransaction(0)
    opened.add(block([10, 11]), sent_at_ms=0)
    with pytest.raises(InvariantError):
        opened.change(state(), [20])


# --- leases


def test_shards_and_transactional_ids_never_change_from_release_to_release() -> None:
    assert [shard_of(TopicPartition(TopicName("trips"), number), 3) for number in range(6)] == SHARDS_OF_TRIPS
    assert transactional_id(Route.parse("a->b"), 2, 5) == "parallax.a.b.2.5.record"


SHARDS_OF_TRIPS = [0, 1, 2, 0, 1, 2]


def test_reading_goes_on_behind_what_was_passed_over() -> None:
    passed = replace(state(), source_next=SourceOffset(20), passed_leader_epoch=5)
    assert read_from(passed, 8, 20) == ReadFrom(20, 5, LINEAGE.source_topic_id)
    assert read_from(passed, 25, 30) == ReadFrom(25, 5, LINEAGE.source_topic_id)
    assert state_of(PartitionChange(passed).encoded()) == passed
    assert (
        lose(passed, SourceOffset(30), TargetEnd(TargetOffset(99))).state.passed_leader_epoch == UNKNOWN_EPOCH
    )
