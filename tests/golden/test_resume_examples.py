"""Drawn examples of the resume rule. Each picture shows the partition on both sides; `a0` is region a's record 0."""

from __future__ import annotations

from parallax.domain.ids import (
    ClusterName,
    SourceId,
    SourceOffset,
    TargetOffset,
    TopicId,
)
from parallax.domain.nearest_checkpoint import nearest_checkpoint_minimum
from parallax.domain.outcome import Outcome
from parallax.domain.place import Via
from parallax.domain.progress import Progress, SourcePosition, TargetTruncation, settled_commit
from parallax.domain.resume import Resume
from parallax.domain.runs import LostRange
from parallax.domain.skips import SkipRange, after_skips
from tests.golden.drawing import REGIONS, A, B, ask, log, mark, of, run, skips


def left_by(answer: Resume) -> Progress:
    return Progress(ClusterName("aggregate-x"), TopicId("t"), answer.resume_offset, answer.positions)


def test_ubers_published_example() -> None:
    """Known on both sides: one record of each region.

    ::

        aggregate B   0  1  2  3  4  5 | commit 6
                               a1    b3
        aggregate A   0  1  2  3  4  5  6  7
                         a1                b3

    Uber's rule takes the place of the checkpoint itself: a1, at 1. Consumed is a1 itself too: 2.
    """
    on_b = [of(A, run(1, 3, 1)), of(B, run(3, 5, 1))]
    on_a = [of(A, run(1, 1, 1)), of(B, run(3, 7, 1))]
    answer = ask(6, on_b, on_a, log(0, 8))
    assert [part.position for part in answer.sources] == [2, 8]
    assert answer.resume_offset == 2
    published = nearest_checkpoint_minimum(
        commit=TargetOffset(6), regions=REGIONS, origin=on_b, destination=on_a, log_start=TargetOffset(0)
    )
    assert published == 1


def test_checkpoint_rule_without_a_checkpoint_takes_the_log_start() -> None:
    on_x = [of(A, run(5, 5, 1))]
    answer = nearest_checkpoint_minimum(
        commit=TargetOffset(9), regions=REGIONS, origin=on_x, destination=on_x, log_start=TargetOffset(4)
    )
    assert answer == 4


IDLE_X = [of(A, run(0, 0, 2), run(2, 3, 4)), of(B, run(0, 2, 1))]
IDLE_Y = [of(A, run(0, 1, 6)), of(B, run(0, 0, 1))]


def test_idle_source_without_watermark_holds_the_answer_back() -> None:
    """Region b has been idle since b0, and no row says so.

    ::

        X   0  1  2  3  4  5  6 | commit 7          Y   0  1  2  3  4  5  6 | end 7
            a0 a1 b0 a2 a3 a4 a5                        b0 a0 a1 a2 a3 a4 a5

    For all that is known b1 could lie at 1; a's consumed records above are skipped.
    """
    answer = ask(7, IDLE_X, IDLE_Y, log(0, 7))
    assert answer.resume_offset == 1
    assert skips(answer, IDLE_Y, 7) == [(1, 7)]
    assert after_skips(answer.resume_offset, [SkipRange(TargetOffset(1), TargetOffset(7))]) == 7


def test_idle_source_with_a_watermark_holds_nothing_back() -> None:
    """The same, and a watermark of b on Y at its end: b1 and all after it come at 7 or later."""
    answer = ask(7, IDLE_X, [IDLE_Y[0], of(B, run(0, 0, 1), mark(1, 7, 1))], log(0, 7))
    assert answer.resume_offset == 7
    assert answer.outcome is Outcome.OK


def test_newest_watermark_counts_although_its_source_offset_has_moved_on() -> None:
    """b's position passed control records at 1 to 4, so its watermarks stand at source offsets 3 and 5.

    ::

        Y   0  1  ...  7  ...  9
            b0         |b 3    |b 5      commit on X just above b0
    """
    on_y = [of(B, run(0, 0, 1), mark(3, 7, 1), mark(5, 9, 1))]
    answer = ask(1, [of(B, run(0, 0, 1))], on_y, log(0, 9), [B])
    assert answer.resume_offset == 9


def test_gap_closed_by_previous_source_end() -> None:
    """Source offsets 3 and 4 are a transaction's marker and an aborted record; a5 follows a2.

    ::

        X   0  1  2 | commit 3       Y   0  1  2  3  4  5
            a0 a1 a2                     a0 a1 a2 b0 b1 a5
    """
    on_x = [of(A, run(0, 0, 3)), of(B, mark(0, 3, 0))]
    on_y = [of(A, run(0, 0, 3), run(5, 5, 1, previous=3)), of(B, run(0, 3, 2))]
    answer = ask(3, on_x, on_y, log(0, 6))
    assert answer.sources[0].position == 5
    assert answer.sources[0].via is Via.BEFORE
    assert answer.resume_offset == 3  # b0


def test_gap_of_unknown_content_is_not_crossed() -> None:
    """The same gap, but the row of a5 does not know its predecessor: a3 may lie right above a2."""
    on_x = [of(A, run(0, 0, 3))]
    on_y = [of(A, run(0, 0, 3), run(5, 5, 1))]
    answer = ask(3, on_x, on_y, log(0, 6), [A])
    assert answer.resume_offset == 3
    assert answer.sources[0].via is Via.AFTER


def test_pending_records_keep_skipping_open() -> None:
    """a2 and a3 were consumed on X and have not reached Y.

    ::

        X   0  1  2  3  4 | commit 5     Y   0  1  2 | complete to 3
            a0 a1 b0 a2 a3                   a0 a1 b0
    """
    on_x = [of(A, run(0, 0, 2), run(2, 3, 2)), of(B, run(0, 2, 1), mark(1, 5, 1))]
    on_y = [of(A, run(0, 0, 2), mark(2, 3, 2)), of(B, run(0, 2, 1), mark(1, 3, 1))]
    answer = ask(5, on_x, on_y, log(0, 3))
    assert answer.outcome is Outcome.PENDING
    assert answer.sources[0].pending == (2, 4)
    assert answer.resume_offset == 3
    assert answer.complete_to == 3
    grown = [of(A, run(0, 0, 2), run(2, 5, 3)), of(B, run(0, 2, 1), run(1, 3, 2))]
    assert skips(answer, grown, 8) == [(5, 7)]  # b1 and b2 at 3 and 4 are new, a2 and a3 are not, a4 is


def test_commit_in_a_gap_of_the_target() -> None:
    """X's offsets 2 and 3 are transaction markers; a commit there has consumed a0 and a1.

    ::

        X   0  1  2  3  4      commit 3     Y   0  1  2
            a0 a1 *  *  a2                      a0 a1 a2
    """
    on_x = [of(A, run(0, 0, 2), run(2, 4, 1))]
    on_y = [of(A, run(0, 0, 3))]
    answer = ask(3, on_x, on_y, log(0, 3), [A])
    assert answer.resume_offset == 2
    assert answer.sources[0].via is Via.EXACT
    assert answer.origin_known_to == 5


def test_clamped_to_the_end() -> None:
    """Y's rows reach 6, but its log ends at 4: it has lost its tail, and nobody has cut the rows yet."""
    answer = ask(6, [of(A, run(0, 0, 6))], [of(A, run(0, 0, 6))], log(0, 4), [A])
    assert answer.resume_offset == 4
    assert answer.outcome is Outcome.CLAMPED_TO_END


def test_trimmed_below_the_log_start() -> None:
    """Y's retention has reached 4; a2 and a3 at 2 and 3 are gone there, unconsumed.

    ::

        X   0  1 | commit 2      Y   .  .  .  . [4  5
            a0 a1                    a0 a1 a2 a3 a4 a5
    """
    answer = ask(2, [of(A, run(0, 0, 2))], [of(A, run(0, 0, 6))], log(4, 6), [A])
    assert answer.resume_offset == 4
    assert answer.outcome is Outcome.TRIMMED
    assert answer.sources[0].trimmed == (2, 4)


def test_consumed_records_below_the_log_start_are_no_loss() -> None:
    answer = ask(5, [of(A, run(0, 0, 6))], [of(A, run(0, 0, 6))], log(4, 6), [A])
    assert answer.resume_offset == 5
    assert answer.outcome is Outcome.OK


def test_recreated_topic_is_a_new_source() -> None:
    """Topic 1 of region a was deleted after a2 and created again as topic 2 (records A0, A1).

    ::

        X   0  1  2 | commit 3           Y   0  1  2  3  4
            a0 a1 A0                         a0 a1 a2 A0 A1

    X never had a2, so Y resumes at it; A0 was consumed and is skipped.
    """
    on_x = [
        of(A, run(0, 0, 2), mark(2, 2, 2), closed_at=2),
        of(A, mark(0, 2, 0), run(0, 2, 1), topic="2"),
    ]
    on_y = [
        of(A, run(0, 0, 3), mark(3, 3, 3), closed_at=3),
        of(A, mark(0, 3, 0), run(0, 3, 2), topic="2"),
    ]
    answer = ask(3, on_x, on_y, log(0, 5), [A])
    assert answer.resume_offset == 2
    assert answer.outcome is Outcome.LINEAGE_CHANGED
    assert skips(answer, on_y, 5) == [(3, 4)]


def test_recreated_topic_consumed_to_its_end_holds_nothing_back() -> None:
    """The same, but a2 never existed: the old incarnation is done, and nothing is noted."""
    on_x = [of(A, run(0, 0, 2), mark(2, 2, 2), closed_at=2), of(A, run(0, 2, 1), topic="2")]
    on_y = [of(A, run(0, 0, 2), mark(2, 2, 2), closed_at=2), of(A, run(0, 2, 3), topic="2")]
    answer = ask(3, on_x, on_y, log(0, 5), [A])
    assert answer.resume_offset == 3
    assert answer.outcome is Outcome.OK


def test_incarnation_that_one_cluster_missed_is_remembered_as_the_older_one() -> None:
    """W has the topic's first two incarnations, of the second no record yet. X and Y missed that one and have the third.

    ::

        W   0  1                 X   0  1  2  3            Y   0  1  2  3
            a0 a1 |2nd begins        a0 a1 A0 A1              a0 a1 A0 A1

    The group goes from W to X, from there to Y when it has read all, and back to W. No cluster tells which of the second and the
    third came first; that the group knew the second before it came to X, which had no third then, does. So A0 and A1 are yet to
    come to W, and are to be skipped there.
    """
    on_w = [of(A, run(0, 0, 2), closed_at=2), of(A, mark(0, 2), topic="2")]
    on_x = [of(A, run(0, 0, 2))]
    at_x = ask(2, on_w, on_x, log(0, 2), [A])
    on_x = [of(A, run(0, 0, 2), closed_at=2), of(A, mark(0, 2), run(0, 2, 2), topic="3")]
    at_y = ask(4, on_x, on_x, log(0, 4), [A], left_by(at_x))
    assert [source.topic_id for source in at_y.positions] == ["1", "2", "3"]
    back = ask(4, on_x, on_w, log(0, 2), [A], left_by(at_y))
    assert (back.outcome, back.complete_to) == (Outcome.PENDING, 2)
    on_w = [*on_w, of(A, mark(0, 2), run(0, 2, 2), topic="3")]
    assert skips(back, on_w, 4) == [(2, 4)]


def test_incarnation_that_the_destination_alone_has_is_remembered_as_the_older_one() -> None:
    """X has one incarnation of the topic, and Y another: it may have missed the later one, or the earlier one.

    The group has read X's. What Y is asked by what the group remembers alone is answered alike: those records may still come.
    """
    on_x = [of(A, run(0, 0, 2), topic="1")]
    on_y = [of(A, run(0, 0, 2), topic="2")]
    at_y = ask(2, on_x, on_y, log(0, 2), [A])
    assert (at_y.outcome, at_y.complete_to) == (Outcome.EARLIEST_FALLBACK, 2)
    again = ask(0, [], on_y, log(0, 2), [A], left_by(at_y))
    assert again.complete_to == 2


def test_topic_that_one_side_saw_before_its_source_had_it() -> None:
    """Region b's topic came after region a's: its route to X was there before it, that to Y was not.

    ::

        X   0  1  2  3 | commit 2          Y   0  1  2  3
            a0 a1 b0 b1                        a0 a1 b0 b1
    """
    before = of(B, mark(0, 0), topic="", closed_at=0)
    on_x = [of(A, run(0, 0, 2)), before, of(B, run(0, 2, 2), topic="2")]
    on_y = [of(A, run(0, 0, 2)), of(B, run(0, 2, 2), topic="2")]
    answer = ask(2, on_x, on_y, log(0, 4))
    assert (answer.resume_offset, answer.notes) == (2, (Outcome.OK,))
    back = ask(2, on_y, on_x, log(0, 4))
    assert (back.resume_offset, back.notes) == (2, (Outcome.OK,))
    # Nobody knows what Y holds of region b: what is known of X does not tell.
    unknown = ask(2, on_x, on_y[:1], log(0, 4))
    assert (unknown.resume_offset, unknown.notes[0]) == (0, Outcome.EARLIEST_FALLBACK)


def test_topic_that_the_destination_has_not_seen_is_still_to_come() -> None:
    """The route to Y saw the time before region b had the topic, and is behind.

    ::

        X   0  1  2  3  4 | commit 5       Y   0  1  2 ...
            a0 a1 a2 b0 b1                     a0 a1 a2
    """
    on_x = [of(A, run(0, 0, 3)), of(B, run(0, 3, 2), topic="2")]
    for closed_at in (None, 0):
        on_y = [of(A, run(0, 0, 3)), of(B, mark(0, 3), topic="", closed_at=closed_at)]
        answer = ask(5, on_x, on_y, log(0, 3))
        assert (answer.complete_to, answer.resume_offset) == (3, 3)
        assert Outcome.PENDING in answer.notes
        assert [part.pending for part in answer.sources if part.source.topic_id == "2"] == [(0, 2)]


def test_record_that_is_not_indexed_yet_is_not_passed_over_for_a_lineage_that_ended() -> None:
    """Region b's records lie in Y, and its index does not tell of them yet: only that something came before.

    ::

        X   0  1  2  3  4                  Y   0  1  2  3  4
            a0 a1 b0 b1 a2                     a0 b0 b1 a1 a2
               | commit 2: a0, a1
    """
    on_x = [of(A, run(0, 0, 2), run(2, 4, 1)), of(B, mark(0, 2, 0), run(0, 2, 2), topic="2")]
    for before in ("", "1"):
        for closed_at in (None, 0):
            on_y = [of(A, run(0, 0, 1), run(1, 3, 2)), of(B, mark(0, 0), topic=before, closed_at=closed_at)]
            assert ask(2, on_x, on_y, log(0, 5)).resume_offset <= 1


def test_lineage_that_ended_has_a_successor_somewhere() -> None:
    """That of region b has ended in Y; what follows it there the index does not tell yet.

    ::

        X   0  1                           Y   0  1  2  3
            a0 a1 | commit 2                   a0 b0 b1 a1
    """
    on_x = [of(A, run(0, 0, 2)), of(B, mark(0, 2, 0), topic="")]
    on_y = [of(A, run(0, 0, 1), run(1, 3, 1)), of(B, mark(0, 1, 0), topic="", closed_at=0)]
    assert ask(2, on_x, on_y, log(0, 4)).resume_offset == 1


def test_never_delivered_names_the_range() -> None:
    """Retention took a2 and a3 before Y's replicator got to them; X has them, the group has not read them.

    ::

        X   0  1 | 2  3  4     commit 2     Y   0  1  2
            a0 a1  a2 a3 a4                     a0 a1 a4
    """
    lost = LostRange(SourceOffset(2), SourceOffset(4), TargetOffset(2))
    on_y = [of(A, run(0, 0, 2), run(4, 2, 1, previous=4), lost=[lost])]
    answer = ask(2, [of(A, run(0, 0, 5))], on_y, log(0, 3), [A])
    assert answer.resume_offset == 2
    assert answer.outcome is Outcome.NEVER_DELIVERED
    assert answer.sources[0].lost == (lost,)


def test_first_commit_ever_is_zero() -> None:
    """Offset 0 is a commit like any other: nothing consumed, so the first record of all is the answer."""
    on_x = [of(A, mark(0, 0, 0), run(0, 0, 3)), of(B, mark(0, 0, 0), run(0, 3, 1))]
    on_y = [of(A, mark(0, 0, 0), run(0, 1, 3)), of(B, mark(0, 0, 0), run(0, 0, 1))]
    answer = ask(0, on_x, on_y, log(0, 4))
    assert answer.resume_offset == 0
    assert answer.outcome is Outcome.OK


def test_source_without_rows_falls_back_to_the_log_start() -> None:
    """Region b is configured, but nothing is known of it on Y: its records may lie anywhere."""
    answer = ask(3, [of(A, run(0, 0, 3))], [of(A, run(0, 0, 3))], log(0, 3))
    assert answer.resume_offset == 0
    assert answer.outcome is Outcome.EARLIEST_FALLBACK


def test_unclean_election_orphans_on_the_origin() -> None:
    """The source lost a3 and a4 after X had copied them, and wrote other records there in epoch 1 (a3', a4').

    ::

        X   0  1  2  3  4 | commit 5           Y   0  1  2  3   4
            a0 a1 a2 a3 a4                         a0 a1 a2 a3' a4'

    The group has consumed up to source offset 5, but not a3' and a4'.
    """
    on_x = [of(A, run(0, 0, 5), closed_at=5), of(A, mark(3, 5, 0, epoch=1), generation=1)]
    on_y = [of(A, run(0, 0, 3), run(3, 3, 2, previous=3, epoch=1))]
    answer = ask(5, on_x, on_y, log(0, 5), [A])
    assert answer.resume_offset == 3
    assert Outcome.LINEAGE_CHANGED in answer.notes
    assert answer.complete_to is None
    assert skips(answer, on_y, 5) == []


def test_commit_above_the_cut_of_a_truncated_origin() -> None:
    """X lost its tail from 4 on, and offsets 4 to 9 were given again. A commit at 7 may mean either."""
    loss = TargetTruncation(TargetOffset(4), TargetOffset(10), leader_epoch=3)
    assert settled_commit(TargetOffset(7), [loss]) == 4
    assert settled_commit(TargetOffset(7), [loss], commit_leader_epoch=2) == 4
    assert settled_commit(TargetOffset(7), [loss], commit_leader_epoch=3) == 7
    assert settled_commit(TargetOffset(11), [loss]) == 11
    assert settled_commit(TargetOffset(3), [loss]) == 3
    unrecorded = TargetTruncation(TargetOffset(4), TargetOffset(10), leader_epoch=-1)
    assert settled_commit(TargetOffset(7), [unrecorded], commit_leader_epoch=3) == 4


def test_progress_of_the_last_move_counts_until_a_rewind() -> None:
    """The group came to X with a0 to a3 consumed elsewhere; X has a0 and a1, and the group resumed at 2."""
    source = SourceId(A, TopicId("1"))
    progress = Progress(
        ClusterName("aggregate-x"),
        TopicId("t"),
        TargetOffset(2),
        {source: SourcePosition(0, SourceOffset(4))},
    )
    on_x, on_y = [of(A, run(0, 0, 2))], [of(A, run(0, 0, 6))]
    kept = ask(2, on_x, on_y, log(0, 6), [A], progress)
    assert kept.resume_offset == 4
    rewound = ask(1, on_x, on_y, log(0, 6), [A], progress)
    assert rewound.resume_offset == 1
    assert rewound.outcome is Outcome.REWOUND
