"""Drawn examples of logs that lost their tail or their beginning: what a copy claims, and what it can't know.

Each was a random world once (tests/worlds) that lost a record, or held a group back, and was drawn as small as it goes.
`a5'` is what the source wrote at offset 5 in a later leader epoch, after it had thrown a5 away. `|8` is a watermark that
says: copied up to source offset 8.
"""

from __future__ import annotations

from dataclasses import replace

from parallax.domain.ids import ClusterName, Lineage, SourceId, SourceOffset, TargetOffset, TopicId, TopicName
from parallax.domain.ids import TopicPartition as Partition
from parallax.domain.outcome import Outcome
from parallax.domain.progress import (
    MAX_EPOCH_ENDS,
    Progress,
    SourcePosition,
    TargetTruncation,
    settled_commit,
)
from parallax.domain.runs import LostRange, Run
from parallax.ports.clusters import TopicInfo
from replicator.copying import kept, reconcile
from replicator.copying.ports import LogEnd, OutOfRange, Survey, TargetEnd
from replicator.copying.state import PartitionChange, PartitionState
from tests.golden.drawing import A, ask, log, mark, of, run, skips

SOURCE = SourceId(A, TopicId("1"))
ITEM = Partition(TopicName("t"), 0)


def lost(source_start: int, source_end: int, target_at: int) -> LostRange:
    return LostRange(SourceOffset(source_start), SourceOffset(source_end), TargetOffset(target_at))


def progress_at(resume_offset: int, position: SourcePosition) -> Progress:
    return Progress(ClusterName("aggregate-x"), TopicId("t"), TargetOffset(resume_offset), {SOURCE: position})


def position(epoch: int, source_next: int, *ends: tuple[int, int]) -> SourcePosition:
    return SourcePosition(
        epoch, SourceOffset(source_next), tuple((of_epoch, SourceOffset(end)) for of_epoch, end in ends)
    )


def history_of(*parts: tuple[PartitionState, list[Run]]) -> kept.RunHistory:
    """What the run log holds, generation by generation."""
    return lambda *_: [PartitionChange(state, (row,)) for state, rows in parts for row in rows]


def source_told(
    state: PartitionState, rows: list[Run], *, epoch: int, ends_at: int, target_end: int
) -> tuple[PartitionChange, ...]:
    """What a replicator commits when its source says: the epoch up to the one you read is this, and ends here."""
    end = SourceOffset(100)
    survey = Survey(
        0,
        {ITEM.topic: TopicInfo(ITEM.topic, state.lineage.source_topic_id, 1)},
        {ITEM: LogEnd(SourceOffset(0), end, end, 9)},
        {ITEM.topic: TopicInfo(ITEM.topic, state.lineage.target_topic_id, 1)},
    )
    decisions = reconcile.decide(
        survey,
        {ITEM: state},
        positions={ITEM: state.source_next},
        out_of_range={ITEM: OutOfRange(ITEM, SourceOffset(ends_at), epoch)},
        shard=0,
        shard_count=1,
    )
    ends = {ITEM: TargetEnd(TargetOffset(target_end), 0)}
    return tuple(
        reconcile.changes_for(
            decisions, {ITEM: state}, ends, history=history_of((state, rows)), undone=lambda *_: False
        )
    )


def copied(source_next: int, last_run_end: int, target_floor: int, epoch: int = 0) -> PartitionState:
    """A replicator's state of region a's partition, which it has copied from the first record on."""
    return PartitionState(
        ITEM,
        Lineage(TopicId("1"), TopicId("t")),
        0,
        SourceOffset(0),
        TargetOffset(0),
        SourceOffset(source_next),
        SourceOffset(last_run_end),
        TargetOffset(target_floor),
        epoch,
    )


def test_watermark_over_what_a_later_epoch_wrote() -> None:
    """The source lost a5 to a7, and epoch 1 began with markers that no consumer sees: X never copied a5 to a7.

    ::

        X   0  1  2  3  4 |8  *   commit 6     Y   0  1  2  3  4  5  6  7
            a0 a1 a2 a3 a4                         a0 a1 a2 a3 a4 a5 a6 a7

    That X has copied up to source offset 8 does not mean that the group has consumed epoch 0 up to there.
    """
    on_x = [of(A, mark(0, 0), run(0, 0, 5), mark(8, 5, 5))]
    answer = ask(6, on_x, [of(A, mark(0, 0), run(0, 0, 8))], log(0, 8), [A])
    assert answer.resume_offset == 5
    assert answer.positions[SOURCE] == position(0, 5, (0, 5))


def test_target_cut_behind_a_watermark() -> None:
    """The same, and then X loses its tail from 7 on, behind the watermark: copying goes on at a5, not at 8.

    ::

        X   0  1  2  3  4 |8  *  * [7 lost: a8 and later of epoch 1
            a0 a1 a2 a3 a4
    """
    rows = [mark(0, 0), run(0, 0, 5), mark(8, 5, 5), run(8, 7, 2, previous=5, epoch=1)]
    state = copied(10, 10, 9, epoch=1)
    beginning = reconcile.cut_by_target(state, TargetOffset(7), history_of((state, rows)))
    assert (beginning.source_first, beginning.leader_epoch) == (5, 0)
    _, opened = reconcile.begin(ITEM, beginning, state, TargetEnd(TargetOffset(7)))
    on_x = [of(A, *rows[:3], closed_at=5), of(A, *opened.rows, generation=1)]
    assert ask(7, on_x, [of(A, run(0, 0, 8))], log(0, 8), [A]).resume_offset == 5


def test_target_cut_below_the_opening_of_a_generation() -> None:
    """The source loses a90 to a99, and generation 1 begins at 101 of X; then X loses its tail from 80 on.

    ::

        X   0  ..  79 [80 .. 99  *  101 lost      commit 85     Y   0  ..  89  90   ..
            a0 .. a79  a80 a99     a90'                             a0 .. a89  a90'

    No row of generation 1 is left. Copying goes on behind the last record that is, of whichever generation: at a80.
    """
    rows = [mark(0, 0), run(0, 0, 100)]
    first = copied(100, 100, 100)
    (closed, opened) = source_told(first, rows, epoch=0, ends_at=90, target_end=101)
    present = opened.state
    assert (closed.closed, present.source_next, present.target_first) == (True, 90, 101)
    history = history_of((first, rows), (present, [*opened.rows]))
    beginning = reconcile.cut_by_target(present, TargetOffset(80), history)
    _, again = reconcile.begin(ITEM, beginning, present, TargetEnd(TargetOffset(80)))
    assert (again.state.source_next, again.rows[0].source_leader_epoch) == (80, 0)
    on_x = [
        of(A, run(0, 0, 80), closed_at=100),
        of(A, *again.rows, run(80, 80, 5), generation=again.state.lineage.generation),
    ]
    on_y = [of(A, run(0, 0, 90), run(90, 90, 5, epoch=1))]
    assert ask(85, on_x, on_y, log(0, 95), [A]).resume_offset == 85


def began_behind_a_lost_range(target_first: int) -> tuple[PartitionState, tuple[PartitionChange, ...]]:
    """Retention took a0 to a2 before X copied anything."""
    first = reconcile.Beginning(copied(0, 0, 0).lineage, SourceOffset(3), "first seen")
    changes = reconcile.begin(ITEM, first, None, TargetEnd(TargetOffset(target_first)))
    return changes[-1].state, changes


def test_target_cut_below_where_copying_began_behind_a_lost_range() -> None:
    """Retention took a0 to a2 before X copied anything: it began at 3, at 17 of X. Then X loses its tail from 7 on.

    ::

        X   0 .. 6 [ .. 17 lost     |3 at 7   commit 9     Y   0  1  2
                         |3                                    a0 a1 a2

    Nobody has read a0 to a2 on X, be it before the loss or after it.
    """
    state, changes = began_behind_a_lost_range(17)
    beginning = reconcile.cut_by_target(state, TargetOffset(7), lambda *_: changes)
    _, opened = reconcile.begin(ITEM, beginning, state, TargetEnd(TargetOffset(7)))
    assert (opened.state.source_next, opened.rows[0].previous_source_end) == (0, 0)
    late = reconcile.lose(opened.state, SourceOffset(3), TargetEnd(TargetOffset(8)))  # again
    on_x = [of(A, closed_at=3), of(A, *opened.rows, *late.rows, lost=late.lost, generation=1)]
    answer = ask(9, on_x, [of(A, mark(0, 0), run(0, 0, 3))], log(0, 3), [A])
    assert answer.resume_offset == 0


def test_target_cut_above_where_copying_began_behind_a_lost_range() -> None:
    """The same, but what X keeps goes on to 20: the opening at 17 is there, and says as little of a0 to a2."""
    state, changes = began_behind_a_lost_range(17)
    beginning = reconcile.cut_by_target(state, TargetOffset(20), lambda *_: changes)
    assert (beginning.source_first, beginning.parted_at) == (0, 0)


def test_source_cut_where_copying_began_behind_a_lost_range() -> None:
    """X had seen markers at 3 to 7, and then the source ends at 6: the generation that begins has lost a0 to a2, too."""
    state, changes = began_behind_a_lost_range(17)
    parted = reconcile.Beginning(
        Lineage(TopicId("1"), TopicId("t"), 1), SourceOffset(3), "", parted_at=SourceOffset(3)
    )
    beginning = reconcile.cut_by_source(parted, state, 3, lambda *_: changes)
    _, opened = reconcile.begin(ITEM, beginning, state, TargetEnd(TargetOffset(19)))
    assert (opened.state.source_next, opened.lost) == (3, (lost(0, 3, 19),))
    on_x = [
        of(A, *changes[-1].rows, lost=changes[-1].lost),
        of(A, *opened.rows, lost=opened.lost, generation=1),
    ]
    answer = ask(20, on_x, [of(A, mark(0, 0), run(0, 0, 3))], log(0, 3), [A])
    assert answer.resume_offset == 0


def test_source_cut_where_the_opening_is_gone_from_the_run_log() -> None:
    """The same, long after: retention has taken the run log's head, and with it that a0 to a2 were lost."""
    state, changes = began_behind_a_lost_range(17)
    parted = reconcile.Beginning(
        Lineage(TopicId("1"), TopicId("t"), 1), SourceOffset(3), "", parted_at=SourceOffset(3)
    )
    beginning = reconcile.cut_by_source(parted, state, 3, lambda *_: [])
    _, opened = reconcile.begin(ITEM, beginning, state, TargetEnd(TargetOffset(19)))
    assert (opened.state.source_next, opened.lost) == (3, (lost(0, 3, 19),))
    on_x = [
        of(A, *changes[-1].rows, lost=changes[-1].lost),
        of(A, *opened.rows, run(3, 19, 2, previous=3), lost=opened.lost, generation=1),
    ]
    answer = ask(19, on_x, [of(A, mark(0, 0), run(0, 0, 5))], log(0, 5), [A])
    assert answer.resume_offset == 0


def test_source_that_ends_below_where_copying_began() -> None:
    """Copying began at 3, behind what retention had taken; a leader with an older log ends at 2 and writes on there."""
    state, changes = began_behind_a_lost_range(17)
    survey = Survey(
        0,
        {ITEM.topic: TopicInfo(ITEM.topic, TopicId("1"), 1)},
        {ITEM: LogEnd(SourceOffset(0), SourceOffset(2), SourceOffset(2), 1)},
        {ITEM.topic: TopicInfo(ITEM.topic, TopicId("t"), 1)},
    )
    decisions = reconcile.decide(
        survey, {ITEM: state}, positions={ITEM: SourceOffset(3)}, out_of_range={}, shard=0, shard_count=1
    )
    ends = {ITEM: TargetEnd(TargetOffset(19), 0)}
    _, opened = reconcile.changes_for(
        decisions, {ITEM: state}, ends, history=lambda *_: changes, undone=lambda *_: False
    )
    assert (opened.state.source_next, opened.lost) == (2, (lost(0, 2, 19),))


def test_source_cut_where_the_rows_of_the_older_epoch_are_gone() -> None:
    """As in the next one the source comes back with epoch 0 alone; the run log's head, with the rows of it, is gone.

    Where X's copy of epoch 0 ends is not known any more. The source holds a1 and later: they are all copied again, and
    a0, of which nobody knows whether X ever had this log's, is told as lost.
    """
    rows = [run(3, 3, 2, epoch=1)]
    state = copied(5, 5, 5, epoch=1)
    parted = reconcile.Beginning(
        Lineage(TopicId("1"), TopicId("t"), 1), SourceOffset(5), "", parted_at=SourceOffset(5), leader_epoch=0
    )
    beginning = reconcile.cut_by_source(parted, state, 1, history_of((state, rows)))
    closed, opened = reconcile.begin(ITEM, beginning, state, TargetEnd(TargetOffset(6)))
    assert (opened.state.source_next, opened.lost) == (1, (lost(0, 1, 6),))
    assert closed.state.source_next == 5, "its rows are all there"


def test_target_cut_where_the_rows_are_gone_from_the_run_log() -> None:
    """X loses its tail from 8 on, and retention has taken what the run log said of it. Of X's rows the index has one.

    ::

        X   0  1  2  3  4  5  6  7 [8 lost      Y   0  1  2  3  4  5  6  7   commit 5
            a0 a1 a2 a3 a4 a5 a6 a7                 a0 a1 a2 a3 a4 a5 a6 a7

    Everything is copied again. But a5 to a7 lie below the cut, too: nobody may take a2 for the last record there.
    """
    state = replace(copied(9, 9, 9), lineage=Lineage(TopicId("1"), TopicId("t"), 1))
    beginning = reconcile.cut_by_target(state, TargetOffset(8), lambda *_: [])
    closed, opened = reconcile.begin(ITEM, beginning, state, TargetEnd(TargetOffset(8)))
    assert (opened.state.source_next, opened.rows[0].previous_source_end) == (0, 0)
    on_x = [
        of(A, mark(0, 0), run(0, 0, 3), closed_at=closed.state.source_next, generation=1),
        of(A, *opened.rows, generation=2),
    ]
    answer = ask(5, [of(A, run(0, 0, 8))], on_x, log(0, 8), [A])
    assert answer.resume_offset <= 5


def test_leader_that_returns_with_a_log_of_its_own() -> None:
    """Epoch 1 began at a3 while the leader of epoch 0 was away; that one comes back, leads again, and keeps a3 and a4.

    ::

        source before   a0 a1 a2 a3' a4'           source now   a0 a1 a2 a3 a4 a5"
        X               a0 a1 a2 a3' a4'

    Asked for epoch 1 it says: mine is epoch 0, and ends at 5. That lies not below what X has copied, but what X has of
    epoch 0 ends at 3: from there on all is to be copied.
    """
    rows = [mark(0, 0), run(0, 0, 3), run(3, 3, 2, epoch=1)]
    closed, opened = source_told(copied(5, 5, 5, epoch=1), rows, epoch=0, ends_at=5, target_end=6)
    assert (opened.state.source_next, opened.state.source_leader_epoch) == (3, 0)
    assert closed.state.source_next == 5, "its rows are all there"
    on_x = [of(A, *rows, closed_at=5), of(A, *opened.rows, generation=1)]
    on_y = [of(A, run(0, 0, 5), run(5, 5, 1, epoch=2))]
    answer = ask(6, on_x, on_y, log(0, 6), [A])
    assert answer.resume_offset == 3


def test_log_that_parted_where_nothing_was_to_be_seen() -> None:
    """X had read markers of epoch 1 at 3 to 7. The source has another log now: epoch 0 goes on to 6, with a3 to a5.

    ::

        source before   a0 a1 a2 *  *  *  *  *      source now   a0 a1 a2 a3 a4 a5 (epoch 2)
        X               a0 a1 a2 |8

    It says: mine is epoch 0, and ends at 6. But X has nothing of epoch 0 from 3 on, whatever it has read there.
    """
    rows = [mark(0, 0), run(0, 0, 3), mark(8, 4, 3)]
    _, opened = source_told(copied(8, 3, 4), rows, epoch=0, ends_at=6, target_end=4)
    assert (opened.state.source_next, opened.state.source_leader_epoch) == (3, 0)


def test_tail_lost_within_an_epoch_needs_no_rows_from_before() -> None:
    """The source lost a3 and a4 of epoch 1. Retention had taken X's rows with the head of the run log: a snapshot is left.

    ::

        X   0  1  2   3   4   |5  *      source   0  1  2   3
            a0 a1 a2' a3' a4'                     a0 a1 a2' b3

    It says: mine is epoch 1, too, and ends at 3. Up to there two logs of the same epoch are the same.
    """
    _, opened = source_told(copied(5, 5, 6, epoch=1), [mark(5, 5, 5)], epoch=1, ends_at=3, target_end=7)
    assert (opened.state.source_next, opened.state.source_leader_epoch) == (3, 1)


def test_group_that_passed_a_lost_range_of_another_epoch_is_told_so() -> None:
    """The source threw a1 away and wrote a1' (epoch 1), which retention took before X copied it; then a2 (epoch 2).

    ::

        X   0  1 (a1' lost)  2    commit 3     Y   0  1  2   3
            a0 a1            a2                    a0 a1 a1' a2

    The group came to X, at 2, having consumed a0 and a1. The watermark after the range says nothing of epoch 0 there,
    else a1' would seem to have been consumed before: it is lost to the group, and the answer says so.
    """
    on_x = [
        of(A, mark(0, 0), run(0, 0, 2), mark(2, 2, 2), closed_at=2),
        of(A, mark(1, 2), mark(2, 2), run(2, 2, 1, epoch=2), generation=1, lost=[lost(1, 2, 2)]),
    ]
    on_y = [
        of(A, mark(0, 0), run(0, 0, 2), mark(2, 2, 2), closed_at=2),
        of(A, mark(1, 2), run(1, 2, 1, epoch=1), run(2, 3, 1, epoch=2), generation=1),
    ]
    came_with = position(0, 2, (0, 2), (1, 1))
    moved_back = ask(2, on_x, on_y, log(0, 4), [A], progress_at(2, came_with))
    assert moved_back.resume_offset == 2
    assert moved_back.positions[SOURCE].ends == {0: 2, 1: 1}
    answer = ask(3, on_x, on_y, log(0, 4), [A], progress_at(2, moved_back.positions[SOURCE]))
    assert Outcome.NEVER_DELIVERED in answer.notes
    assert answer.sources[0].lost == (lost(1, 2, 2),)


def test_place_before_a_lost_range_says_nothing_of_the_epoch_behind_it() -> None:
    """The source threw a2 away and wrote a2' and a3' (epoch 1), which retention took before X looked; then a4'.

    ::

        X   0  1  2 (3 lost)  3     commit 3     Y   0  1  2   3   4
            a0 a1 a2          a4'                    a0 a1 a2' a3' a4'

    The next record of X is one of epoch 1. But what the group has read below is not known to be of a4's log: nothing but
    a3' is lost for certain, and a2' is to be delivered.
    """
    on_x = [of(A, run(0, 0, 3), mark(4, 3, 4), run(4, 3, 1, epoch=1), lost=[lost(3, 4, 3)])]
    on_y = [of(A, run(0, 0, 2), run(2, 2, 3, epoch=1))]
    answer = ask(3, on_x, on_y, log(0, 5), [A])
    assert answer.positions[SOURCE] == position(0, 3, (0, 3))
    assert answer.resume_offset == 2
    # With the rows from before the range missing nothing is known of what was read.
    on_x = [of(A, run(4, 3, 1, 4, epoch=1), lost=[lost(3, 4, 3)])]
    assert ask(3, on_x, on_y, log(0, 5), [A]).resume_offset == 0


def test_record_behind_a_lost_range_says_nothing_of_the_log_before_it() -> None:
    """The same, and the group has read a4', too. It is told that a3' is lost, and gets a2' all the same."""
    on_x = [of(A, run(0, 0, 3), mark(4, 3, 4), run(4, 3, 1, epoch=1), lost=[lost(3, 4, 3)])]
    on_y = [of(A, run(0, 0, 2), run(2, 2, 3, epoch=1))]
    answer = ask(4, on_x, on_y, log(0, 5), [A])
    assert answer.positions[SOURCE] == position(1, 5, (0, 3), (1, 3), (1, 5))
    assert (answer.resume_offset, answer.sources[0].lost) == (2, (lost(3, 4, 3),))
    # What it moves away with says so still, on a third cluster.
    moved = progress_at(2, answer.positions[SOURCE])
    assert ask(2, on_y, on_y, log(0, 5), [A], moved).resume_offset == 2
    # Where the source has thrown nothing away both logs are the same up to the range: nothing is read twice.
    for on_z in (
        [of(A, run(0, 0, 4), run(4, 4, 1, epoch=1))],
        [of(A, run(0, 0, 3), run(3, 3, 2, epoch=1))],
        [of(A, run(0, 0, 2), run(4, 2, 3, previous=2, epoch=1))],  # compaction took a2 and a3'
    ):
        answer = ask(4, on_x, on_z, log(0, 6), [A])
        assert answer.resume_offset == on_z[0].history.rows[-1].to_target(SourceOffset(5))


def test_record_behind_a_lost_range_is_skipped_though_the_log_before_it_is_not_known() -> None:
    """Y has copied a2 and a3, which nothing proves to be of the log that X had behind its second lost range.

    ::

        X   0  1 (2, 3 lost) 2 (5 lost) 3  4     commit 5     Y   0  1  2  3 (4, 5 lost)  4   5   6
            a0 a1            a4'        a6" a7"                   a0 a1 a2 a3             a6" a7" a8"

    a2 and a3 are to be delivered there, a6" and a7" not again.
    """
    rows = [
        run(0, 0, 2),
        mark(4, 2, 4),
        run(4, 2, 1, epoch=1),
        mark(6, 3, 6, epoch=1),
        run(6, 3, 2, epoch=2),
    ]
    on_x = [of(A, *rows, lost=[lost(2, 4, 2), lost(5, 6, 3)])]
    on_y = [of(A, run(0, 0, 4), mark(6, 4, 6), run(6, 4, 3, epoch=2), lost=[lost(4, 6, 4)])]
    answer = ask(5, on_x, on_y, log(0, 7), [A])
    assert answer.positions[SOURCE] == position(2, 8, (0, 2), (1, 2), (1, 5), (2, 5), (2, 8))
    assert (answer.resume_offset, skips(answer, on_y, 7)) == (2, [(4, 6)])


def test_record_before_a_lost_range_is_not_skipped_for_an_epoch_behind_it() -> None:
    """The group has read epoch 1 from offset 2 on. Y has it behind a lost range; a2 and a3 before that may be another log's."""
    read = position(1, 8, (1, 2), (1, 8))
    on_y = [of(A, run(0, 0, 4), mark(6, 4, 6), run(6, 4, 3, epoch=1), lost=[lost(4, 6, 4)])]
    answer = ask(0, [], on_y, log(0, 7), [A], progress_at(0, read))
    assert (answer.resume_offset, skips(answer, on_y, 7)) == (0, [(4, 6)])
    # With the rows around the range missing nothing is known of where that log begins.
    on_y = [of(A, run(8, 6, 1, epoch=1), lost=[lost(4, 6, 4), lost(9, 10, 7)])]
    assert skips(answer, on_y, 7) == []


def test_lost_beginning_that_was_passed_over_was_not_read() -> None:
    """The group came to X with a0 to a2, and with a5' to a9' (epoch 1), told that a3' and a4' are lost. X lost all before a5'.

    ::

        X   (0 to 4 lost) 0  ..  5      commit 6     Y   0  1  2   3   ..  10
                          a5' .. a10'                    a0 a1 a2' a3' ..  a10'

    It passed over X's lost range with what it had read behind it. Nobody told it that a2' is lost, nor has it read that.
    """
    came_with = position(1, 10, (0, 3), (1, 3), (1, 10))
    on_x = [of(A, mark(5, 0, 5, epoch=-1), run(5, 0, 6, epoch=1), lost=[lost(0, 5, 0)])]
    on_y = [of(A, run(0, 0, 2), run(2, 2, 9, epoch=1))]
    answer = ask(6, on_x, on_y, log(0, 11), [A], progress_at(5, came_with))
    assert answer.positions[SOURCE] == position(1, 11, (0, 3), (1, 3), (1, 11))
    assert (answer.resume_offset, skips(answer, on_y, 11)) == (2, [(3, 11)])


def test_generation_behind_a_lost_range_was_read_from_the_range_on() -> None:
    """The same, and then the source lost its tail from 7 on: generation 1 of X begins there, and has lost nothing itself.

    ::

        X   (0 to 4 lost) 0  ..  5   | 6   7      commit 8     Y   0  1  2   ..  6   7   8
                          a5' .. a10'  a7" a8"                     a0 a1 a2' ..  a6' a7" a8"
    """
    came_with = position(1, 10, (0, 3), (1, 3), (1, 10))
    on_x = [
        of(A, mark(5, 0, 5, epoch=-1), run(5, 0, 6, epoch=1), lost=[lost(0, 5, 0)], closed_at=11),
        of(A, mark(7, 6, 7, epoch=1), run(7, 6, 2, epoch=2), generation=1),
    ]
    on_y = [of(A, run(0, 0, 2), run(2, 2, 5, epoch=1), run(7, 7, 2, epoch=2))]
    answer = ask(8, on_x, on_y, log(0, 9), [A], progress_at(5, came_with))
    assert answer.positions[SOURCE] == position(2, 9, (0, 3), (1, 3), (1, 11), (2, 5), (2, 9))
    assert (answer.resume_offset, skips(answer, on_y, 9)) == (2, [(3, 9)])


def test_lost_ranges_without_a_record_between_them_are_one() -> None:
    """Retention took a0 to a4, and then a5 to a7, before X copied a8: of epoch 0 it has read all that there is."""
    on_x = [
        of(
            A,
            mark(5, 0, 5, epoch=-1),
            mark(8, 0, 8, epoch=-1),
            run(8, 0, 2),
            lost=[lost(0, 5, 0), lost(5, 8, 0)],
        )
    ]
    assert on_x[0].history.read_below(SourceOffset(10)) == ((0, 10),)
    answer = ask(2, on_x, [of(A, run(6, 0, 4))], log(0, 4), [A])
    assert (answer.resume_offset, answer.outcome) == (4, Outcome.NEVER_DELIVERED)


def test_spans_of_one_epoch_are_kept_apart() -> None:
    """The group came to X with a0 to a2, which Y had shown to be epoch 1's log; on X it read a3, and a6' behind a lost range.

    ::

        X   0  1  2  3 (4, 5 lost)  4     commit 5     Y   0  1  2  3  4  5
            a0 a1 a2 a3             a6'                    a0 a1 a2 a3 a4 a6'
    """
    came_with = position(0, 3, (0, 3), (1, 3))
    on_x = [of(A, run(0, 0, 4), mark(6, 4, 6), run(6, 4, 1, epoch=1), lost=[lost(4, 6, 4)])]
    on_y = [of(A, run(0, 0, 5), run(6, 5, 1, previous=5, epoch=1))]
    answer = ask(5, on_x, on_y, log(0, 6), [A], progress_at(3, came_with))
    assert answer.positions[SOURCE] == position(1, 7, (0, 4), (1, 3), (1, 4), (1, 7))
    assert (answer.resume_offset, skips(answer, on_y, 6)) == (6, [])


def test_what_leads_up_to_a_lost_range_is_not_forgotten() -> None:
    """Behind the range the group has read as many epochs as a position keeps; epoch 0 leads up to it."""
    behind = [pair for epoch in range(1, 1 + MAX_EPOCH_ENDS) for pair in ((epoch, 4), (epoch, 5 + epoch))]
    stored = position(MAX_EPOCH_ENDS, 5 + MAX_EPOCH_ENDS, (0, 4), *behind).bounded()
    assert sorted(stored.ends) == [0, *range(2, 1 + MAX_EPOCH_ENDS)]
    end = 5 + MAX_EPOCH_ENDS
    on_y = [of(A, run(0, 0, 5), run(5, 5, MAX_EPOCH_ENDS, epoch=MAX_EPOCH_ENDS))]
    answer = ask(2, [], on_y, log(0, end), [A], progress_at(2, stored))
    assert answer.resume_offset == end


def test_records_behind_a_lost_range_are_read_where_another_cluster_has_them() -> None:
    """Retention took a2 and a3 before X copied them. The group has read X to its end.

    ::

        X   0  1 (a2, a3 lost) |4   commit 2     Y   0  1  2  3
            a0 a1                                    a0 a1 a2 a3
    """
    on_x = [of(A, run(0, 0, 2), mark(4, 2, 4), lost=[lost(2, 4, 2)])]
    answer = ask(2, on_x, [of(A, run(0, 0, 4))], log(0, 4), [A])
    assert (answer.resume_offset, answer.outcome) == (2, Outcome.OK)


def test_lost_range_is_told_though_the_rows_around_it_are_missing() -> None:
    """Retention took a2 and a3 before X copied them; a4 came after, and then the source lost its tail.

    ::

        X   0  1 (a2, a3 lost)  2 |5   commit 3     Y   0  1  2  3  4
            a0 a1               a4                      a0 a1 a2 a3 a4

    Of X's rows the index has the first and the next generation's. The range's place on X tells that it was passed.
    """
    on_x = [
        of(A, run(0, 0, 2), closed_at=5, lost=[lost(2, 4, 2)]),
        of(A, mark(5, 3, epoch=1), generation=1),
    ]
    on_y = [of(A, run(0, 0, 2), run(2, 2, 3, epoch=1))]
    answer = ask(3, on_x, on_y, log(0, 5), [A])
    assert Outcome.NEVER_DELIVERED in answer.notes
    assert answer.sources[0].lost == (lost(2, 4, 2),)


def test_lost_range_that_was_passed_is_told_where_its_own_watermark_is_the_newest_row() -> None:
    """Retention took a2 and a3 before X copied them; a4 and a5 came after, and then the source lost its tail.

    ::

        X   0  1 (a2, a3 lost) 2  3 |6   commit 4     Y   0  1  2   3   4  5
            a0 a1              a4 a5                      a0 a1 a2  a3  a4 a5

    Of the range's generation the index has all but the row of a4 and a5. The watermark at the range's end holds no record
    behind it: that the range was passed is told by its place on X.
    """
    on_x = [
        of(A, run(0, 0, 2), mark(4, 2, 4), closed_at=6, lost=[lost(2, 4, 2)]),
        of(A, mark(6, 4, epoch=1), generation=1),
    ]
    on_y = [of(A, run(0, 0, 2), run(2, 2, 4, epoch=1))]
    answer = ask(4, on_x, on_y, log(0, 6), [A])
    assert (answer.outcome, answer.resume_offset) == (Outcome.NEVER_DELIVERED, 6)
    assert answer.sources[0].lost == (lost(2, 4, 2),)


def test_of_a_lost_range_what_was_read_is_not_told() -> None:
    """Retention took a2 to a5 before Y copied them. The group has read a2 and a3 in X.

    ::

        X   0  1  2  3 | 4  5  6     commit 4     Y   0  1 (a2 to a5 lost) 2
            a0 a1 a2 a3  a4 a5 a6                     a0 a1                a6
    """
    on_y = [of(A, run(0, 0, 2), mark(6, 2, 6), run(6, 2, 1), lost=[lost(2, 6, 2)])]
    answer = ask(4, [of(A, run(0, 0, 7))], on_y, log(0, 3), [A])
    assert answer.sources[0].lost == (lost(4, 6, 2),)
    answer = ask(6, [of(A, run(0, 0, 7))], on_y, log(0, 3), [A])
    assert (answer.sources[0].lost, answer.outcome) == ((), Outcome.OK)


def test_lost_range_that_is_passed_over_is_told() -> None:
    """The group goes to X with a0 to a2, and with a5' to a9' (epoch 1), told that a3' and a4' are lost. X lost all before a5'.

    ::

        X   (0 to 4 lost) 0  ..  5      Z   (0 to 4 lost) 0  ..  5
                          a5' .. a10'                     a5' .. a10'

    Nobody knows whether a0' to a2' are a0 to a2, and the group passes over the range: it is told at once. So it is when it goes
    on to Z: it has left the range of X behind, as nothing would tell later on.
    """
    came_with = position(1, 10, (0, 3), (1, 3), (1, 10))
    rows = [mark(5, 0, 5, epoch=-1), run(5, 0, 6, epoch=1)]
    on_x, on_z = [of(A, *rows, lost=[lost(0, 5, 0)])], [of(A, *rows, lost=[lost(0, 5, 0)])]
    answer = ask(0, [], on_x, log(0, 6), [A], progress_at(0, came_with))
    assert (answer.outcome, answer.sources[0].lost) == (Outcome.NEVER_DELIVERED, (lost(0, 3, 0),))
    answer = ask(6, on_x, on_z, log(0, 6), [A], progress_at(5, came_with))
    assert answer.sources[0].lost == (lost(0, 3, 0),)


def test_lost_range_that_was_passed_is_told_though_a_later_leader_epoch_was_read_elsewhere() -> None:
    """The source threw a2 to a5 of epoch 2 away, which the group had read, and epoch 1 went on: a2', a3', which retention took, a4'.

    ::

        X   0  1 | (a2', a3' lost) 2  |3     commit 3     Y   0  1  2  3  4  5   6   7   8
            a0 a1                  a4'                        a0 a1 a2 a3 a4 a5  a2' a3' a4'

    X lost its tail behind a4', so another lineage tells of that. Going on at Y the group counts a2' and a3' as consumed: it is
    told so, although the last record that it has read of the source is still a5.
    """
    on_x = [
        of(A, mark(0, 0), run(0, 0, 2), closed_at=5, lost=[lost(2, 4, 2)]),
        of(A, mark(5, 3, 5, epoch=1), generation=1),
    ]
    on_y = [
        of(A, mark(0, 0), run(0, 0, 2), run(2, 2, 4, epoch=2), closed_at=6),
        of(A, mark(2, 6, 2), run(2, 6, 3, epoch=1), generation=1),
    ]
    came_with = position(2, 6, (0, 2), (1, 2), (2, 6))
    answer = ask(3, on_x, on_y, log(0, 9), [A], progress_at(0, came_with))
    assert (answer.resume_offset, answer.sources[0].consumed.ends[1]) == (9, 5)
    assert answer.sources[0].lost == (lost(2, 4, 2),)


def test_lost_range_that_was_passed_is_told_where_no_leader_epoch_is_known() -> None:
    """Retention took a2 and a3 before X copied them; brokers tell no leader epochs, and X lost its tail behind a4.

    ::

        X   0  1 | (a2, a3 lost) 2  |3     commit 3     Y   0  1  2  3  4
            a0 a1                a4                         a0 a1 a2 a3 a4

    A group that had read a2 at Y before is told of a3 alone.
    """
    on_x = [
        of(A, mark(0, 0, epoch=-1), run(0, 0, 2, epoch=-1), closed_at=5, lost=[lost(2, 4, 2)]),
        of(A, mark(5, 3, 5, epoch=-1), generation=1),
    ]
    on_y = [of(A, mark(0, 0, epoch=-1), run(0, 0, 5, epoch=-1))]
    for read, told in ((0, lost(2, 4, 2)), (3, lost(3, 4, 2))):
        answer = ask(3, on_x, on_y, log(0, 5), [A], progress_at(0, position(-1, read)))
        assert (answer.resume_offset, answer.sources[0].lost) == (5, (told,))


def test_lost_range_that_lies_before_the_group_in_both_clusters_is_told_when_it_has_passed() -> None:
    """Retention took a2 and a3 before X copied them, and a2 to a5 before Y did.

    ::

        X   0  1 | (a2, a3 lost) 2  3  4     commit 2     Y   0  1 (a2 to a5 lost) 2
            a0 a1                a4 a5 a6                     a0 a1                a6

    To stay would not deliver a2 and a3 either.
    """
    on_x = [of(A, run(0, 0, 2), mark(4, 2, 4), run(4, 2, 3), lost=[lost(2, 4, 2)])]
    on_y = [of(A, run(0, 0, 2), mark(6, 2, 6), run(6, 2, 1), lost=[lost(2, 6, 2)])]
    answer = ask(2, on_x, on_y, log(0, 3), [A])
    assert answer.sources[0].lost == (lost(4, 6, 2),)
    answer = ask(3, on_x, on_y, log(0, 3), [A])
    assert answer.sources[0].lost == (lost(5, 6, 2), lost(2, 4, 2))


def test_lost_range_in_which_an_epoch_ended_is_told() -> None:
    """The source threw a2 to a4 away, which the group has read in X, and wrote others (epoch 1); retention took a2' and a3'.

    ::

        X   0  1  2  3  4     commit 5     Y   0  1 (2, 3 lost) 2
            a0 a1 a2 a3 a4                     a0 a1            a4'

    As long as Y ends with the range, nothing tells that it is not what the group has read.
    """
    on_x, gap = [of(A, run(0, 0, 5))], lost(2, 4, 2)
    rows = [run(0, 0, 2), mark(4, 2, 4)]
    answer = ask(5, on_x, [of(A, *rows, lost=[gap])], log(0, 2), [A])
    assert answer.sources[0].lost == ()
    read = answer.positions[SOURCE]
    on_y = [of(A, *rows, run(4, 2, 1, epoch=1), lost=[gap])]
    answer = ask(5, on_x, on_y, log(0, 3), [A])
    assert (answer.resume_offset, answer.sources[0].lost) == (2, (gap,))
    # The group that came before it was known is told when it leaves.
    answer = ask(3, on_y, on_x, log(0, 5), [A], progress_at(2, read))
    assert answer.sources[0].lost == (gap,)


def test_lineage_that_ended_with_a_lost_range_holds_nothing_back() -> None:
    """Retention took a2 and a3 everywhere, Y's replicator met it, and topic 1 was deleted; topic 2 followed (A0).

    ::

        X   0  1  2    commit 3     Y   0  1 (a2, a3 lost)  2
            a0 a1 A0                    a0 a1               A0
    """
    following = of(A, mark(0, 2, 0), run(0, 2, 1), topic="2")
    on_x = [of(A, run(0, 0, 2), mark(2, 2, 2), closed_at=2), following]
    on_y = [of(A, run(0, 0, 2), mark(4, 2, 4), closed_at=4, lost=[lost(2, 4, 2)]), following]
    answer = ask(3, on_x, on_y, log(0, 3), [A])
    assert (answer.resume_offset, answer.complete_to) == (3, None)


def test_lost_range_leads_up_from_the_last_record() -> None:
    """Offsets 2 and 3 of the source are markers; retention took 4 and 5 before Y got to them.

    ::

        X   0  1 |4   commit 2     Y   0  1 (4, 5 lost)  2  3
            a0 a1                      a0 a1             *  a6

    What is lost, and what nobody could see before it, hides nothing: a1 is followed by a6.
    """
    change = reconcile.lose(copied(4, 2, 2), SourceOffset(6), TargetEnd(TargetOffset(2)))
    assert change.lost == (lost(2, 6, 2),)
    rows: list[Run] = [run(0, 0, 2), *change.rows, run(6, 3, 1)]
    answer = ask(2, [of(A, run(0, 0, 2), mark(4, 2, 2))], [of(A, *rows, lost=change.lost)], log(0, 4), [A])
    assert answer.resume_offset == 3


def test_epochs_that_were_read_are_kept_before_those_that_were_not() -> None:
    """Of epochs 0 to 2 the group has read records; X's rows know many later ones. Y has seen the first two alone.

    ::

        Y   0  1  2  3  4  5
            a0 a1 a2 a3 a4 a5 (epoch 1)
    """
    later = [(epoch, 9) for epoch in range(3, 3 + MAX_EPOCH_ENDS)]
    stored = position(2, 9, (0, 5), (1, 7), (2, 9), *later).bounded()
    assert len(stored.epoch_ends) == MAX_EPOCH_ENDS
    on_y = [of(A, run(0, 0, 5), run(5, 5, 1, epoch=1))]
    answer = ask(2, [], on_y, log(0, 6), [A], progress_at(2, stored))
    assert answer.resume_offset == 6


def test_tail_that_another_route_hid_is_known_by_the_epoch_alone() -> None:
    """X lost its tail from 4 on. This route's last row ended at 6; the log had reached 10, by other routes.

    What no row tells of can't be told by rows: a commit at 8 counts as made after the loss, and what other routes
    wrote at 6 and 7 before it as what lies there now. The leader epochs of the loss and of the commit settle it.
    """
    unrecorded = TargetTruncation(TargetOffset(4), TargetOffset(6), leader_epoch=-1)
    assert settled_commit(TargetOffset(6), [unrecorded]) == 4
    assert settled_commit(TargetOffset(8), [unrecorded], commit_leader_epoch=2) == 8
    recorded = TargetTruncation(TargetOffset(4), TargetOffset(6), leader_epoch=3)
    assert settled_commit(TargetOffset(8), [recorded], commit_leader_epoch=2) == 4
    assert settled_commit(TargetOffset(8), [recorded], commit_leader_epoch=3) == 8
