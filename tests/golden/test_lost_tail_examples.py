"""Drawn examples of logs that lost their tail or their beginning: what a copy claims, and what it can't know.

Each was a random world once (tests/worlds) that lost a record, or held a group back, and was drawn as small as it goes.
`a5'` is what the source wrote at offset 5 in a later leader epoch, after it had thrown a5 away. `|8` is a watermark that
says: copied up to source offset 8.
"""

from __future__ import annotations

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
from replicator.copying import reconcile
from replicator.copying.state import PartitionState
from tests.golden.drawing import A, ask, log, mark, of, run

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
    beginning = reconcile.cut_by_target(copied(10, 10, 9, epoch=1), TargetOffset(7), lambda *_: rows)
    assert (beginning.source_first, beginning.leader_epoch) == (5, 0)
    _, opened = reconcile.begin(ITEM, beginning, copied(10, 10, 9, epoch=1), 7)
    on_x = [of(A, *rows[:3], closed_at=5), of(A, *opened.rows, generation=1)]
    assert ask(7, on_x, [of(A, run(0, 0, 8))], log(0, 8), [A]).resume_offset == 5


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
    assert moved_back.positions[SOURCE].ends == {0: 2, 1: 1, 2: 1}
    answer = ask(3, on_x, on_y, log(0, 4), [A], progress_at(2, moved_back.positions[SOURCE]))
    assert Outcome.NEVER_DELIVERED in answer.notes
    assert answer.sources[0].lost == (lost(1, 2, 2),)


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
    change = reconcile.lose(copied(4, 2, 2), SourceOffset(6), 2)
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
