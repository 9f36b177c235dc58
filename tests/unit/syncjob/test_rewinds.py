"""A group whose commit vanishes or goes back has another life: nothing of its former one is taken for consumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

import pytest

from offsetsvc.messages import failover_to_pb
from offsetsvc.resume import commits as service_commits
from parallax.client.answer import answer_from_pb
from parallax.domain.commits import GroupCommit, ObservedCommit, PublishedOffset
from parallax.domain.ids import GroupName, RegionName, TargetOffset, TopicPartition, aggregate_cluster
from parallax.domain.outcome import Outcome
from parallax.domain.primary import Change
from parallax.errors import StoreUnavailableError
from parallax.runtime.deadline import Deadline
from syncjob import active as active_module
from syncjob import cycle as cycle_module
from syncjob import patience as patience_module
from syncjob import rewinds as rewinds_module
from syncjob.facts import GroupFacts, Place
from syncjob.idle import HOLDS_ALONE_MS
from syncjob.patience import Patience
from syncjob.rewinds import Void, gone_back
from tests.support import poll_until
from tests.worlds.offset_world import GROUP, TOPIC, Record
from tests.worlds.sync_bench import P0, Bench, report, two_sources

P1 = TopicPartition(TOPIC, 1)
A, B = (aggregate_cluster(RegionName(name)) for name in "ab")

Ending = Callable[[Bench], None]


def deleted_everywhere(it: Bench) -> None:
    for region in "ab":
        it.writer(region).commits.pop(GROUP, None)


def deleted(it: Bench) -> None:
    it.writer("a").commits.pop(GROUP)


def reset_to_earliest(it: Bench) -> None:
    it.world.commit("a", 0)


def set_back_a_little(it: Bench) -> None:
    it.world.commit("a", 19)


ENDINGS = [deleted_everywhere, deleted, reset_to_earliest, set_back_a_little]


def first_life(it: Bench) -> None:
    """Consumes b0..9 in region b, moves to a, where these are skipped, and consumes all there is."""
    two_sources(it.world)  # a: a0..9 b0..9; b: b0..9 a0..9
    it.world.commit("b", 10)
    cycles(it)
    it.service.failover.answers(it.world.request("b", "a"), Deadline.after_ms(1_000), record_move=True)
    for at in (10, 20):
        it.world.commit("a", at)
        cycles(it)
    assert it.world.groups.progress(GROUP, TOPIC)[0].cluster == A


def cycles(it: Bench, count: int = 3) -> None:
    for _ in range(count):
        it.cycle()


def long_enough(it: Bench) -> None:
    """For what has vanished, or gone back, to be believed."""
    cycles(it, 1 + it.world.config.sync.rewind_confirm_ms // 1_000)


def passed_over(it: Bench, read: int) -> set[Record]:
    """Records that a group which has read so much of a alone would never get in b, by the service's answer."""
    (answer,) = it.service.failover.answers(it.world.request("a", "b"), Deadline.after_ms(1_000))
    log = it.world.records("b")
    skipped = {log[at] for item in answer.skip_ranges for at in range(*item)}
    passed = {record for record in (*log[: answer.resume_offset], *skipped) if record is not None}
    return passed - set(it.world.records("a")[:read])


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_second_life_inherits_nothing(bench: Callable[..., Bench], ending: Ending) -> None:
    it = bench()
    first_life(it)
    ending(it)
    long_enough(it)

    for at in (1, 5, 10):  # a0..9, from the earliest offset of a on
        it.world.commit("a", at)
        cycles(it)

    assert passed_over(it, 10) == set()
    published = it.commit("b")
    assert published is not None
    assert published.next_offset == 0


@pytest.mark.parametrize("ending", ENDINGS)
def test_nor_if_nobody_looked_between_the_two_lives(bench: Callable[..., Bench], ending: Ending) -> None:
    """The sync job stands still: the service itself holds the commit against what was last seen."""
    it = bench()
    first_life(it)
    ending(it)

    it.world.commit("a", 10)

    assert passed_over(it, 10) == set()
    (answer,) = it.service.failover.answers(it.world.request("a", "b"), Deadline.after_ms(1_000))
    assert Outcome.REWOUND in answer.notes


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("recorded", [False, True])
def test_nor_if_its_cluster_is_lost_after_a_moment(
    bench: Callable[..., Bench], ending: Ending, *, recorded: bool
) -> None:
    it = bench()
    first_life(it)
    if recorded:
        change = Change(GROUP, RegionName("a"))
        it.service.primaries.set(change, Deadline.after_ms(1_000))
        cycles(it)
    ending(it)
    long_enough(it)
    it.world.commit("a", 10)
    it.cycle()
    it.writer("a").away = True
    cycles(it)

    assert passed_over(it, 10) == set()


@pytest.mark.parametrize("ending", [deleted_everywhere, deleted])
def test_a_vanished_commit_is_no_position_of_a_cluster_that_dies_then(
    bench: Callable[..., Bench], ending: Ending
) -> None:
    it = bench()
    first_life(it)
    ending(it)
    long_enough(it)
    it.writer("a").away = True  # before the second life has committed

    request = it.world.request("a", "b")
    (answer,) = it.service.failover.answers(request, Deadline.after_ms(1_000))

    assert Outcome.NO_COMMIT in answer.notes
    assert answer.resume_offset == 0
    assert it.world.groups.observed(GROUP, A) == []


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_offer_that_the_former_life_took_makes_no_move_of_the_second(
    bench: Callable[..., Bench], ending: Ending
) -> None:
    """Region b is gone, so that nothing published there outdates what once was published in a; its last word is from before."""
    it = bench()
    two_sources(it.world)
    it.world.commit("b", 10)
    cycles(it)
    it.writer("b").away = True
    for at in (5, 20):
        it.world.commit("a", at)
        cycles(it)
    assert it.world.groups.progress(GROUP, TOPIC)[0].cluster == A  # it went on from the offer

    ending(it)
    long_enough(it)
    it.world.commit("a", 10)
    cycles(it)

    assert it.world.groups.progress(GROUP, TOPIC)[0].is_set_back
    it.writer("b").away = False
    assert passed_over(it, 10) == set()


def test_a_group_deleted_everywhere_may_begin_anew_where_it_was_passive(
    bench: Callable[..., Bench],
) -> None:
    it = bench()
    two_sources(it.world)
    it.world.commit("a", 15)
    cycles(it)
    assert it.commit("b") is not None

    deleted_everywhere(it)
    long_enough(it)
    for at in (2, 8):
        it.world.commit("b", at)
        cycles(it)

    assert it.world.groups.progress(GROUP, TOPIC) == {}
    (answer,) = it.service.failover.answers(it.world.request("b", "a"), Deadline.after_ms(1_000))
    assert (answer.resume_offset, answer.skip_ranges[0][0]) == (0, 10)


def test_a_new_life_that_has_not_committed_yet_takes_back_what_was_published(
    bench: Callable[..., Bench],
) -> None:
    it = bench()
    first_life(it)
    assert it.commit("b").next_offset == 20  # type: ignore[union-attr]
    deleted(it)
    it.writer("a").commits[GROUP] = {}
    it.writer("a").members[GROUP], it.writer("a").assigned[GROUP] = 1, frozenset({TOPIC})

    long_enough(it)

    assert it.commit("b").next_offset == 0  # type: ignore[union-attr]
    cycles(it)
    assert it.commit("b").next_offset == 0  # type: ignore[union-attr]


def test_one_that_starts_at_the_end_never_moves_it_on(bench: Callable[..., Bench]) -> None:
    it = bench(no_commit="latest")
    two_sources(it.world)
    it.world.commit("a", 15)
    cycles(it)
    assert it.commit("b").next_offset == 5  # type: ignore[union-attr]
    it.writer("a").commits[GROUP] = {}
    it.writer("a").members[GROUP], it.writer("a").assigned[GROUP] = 1, frozenset({TOPIC})

    long_enough(it)

    assert it.commit("b").next_offset == 5  # type: ignore[union-attr]


def test_a_cluster_that_does_not_answer_makes_nothing_void(bench: Callable[..., Bench]) -> None:
    it = bench()
    first_life(it)
    before = it.world.groups.progress(GROUP, TOPIC), it.world.groups.observed(GROUP, A)
    it.writer("a").away = True
    cycles(it)
    assert (it.world.groups.progress(GROUP, TOPIC), it.world.groups.observed(GROUP, A)) == before


def test_nor_does_one_that_may_not_be_asked_about_the_group(bench: Callable[..., Bench]) -> None:
    it = bench()
    first_life(it)
    before = it.world.groups.progress(GROUP, TOPIC)
    it.writer("a").refused[GROUP] = "no right"
    cycles(it)
    assert it.world.groups.progress(GROUP, TOPIC) == before


def test_topics_that_are_not_chosen_any_more_have_not_vanished(bench: Callable[..., Bench]) -> None:
    it = bench()
    first_life(it)
    before = it.world.groups.progress(GROUP, TOPIC)
    it.world.config = it.world.config.model_copy(
        update={"topics": it.world.config.topics.model_copy(update={"exclude": (TOPIC,)})}
    )
    other = it.another(dry_run=False)
    it.world.now_ms += 1_000
    other.cycle()
    other.close()
    assert it.world.groups.progress(GROUP, TOPIC) == before


def test_what_a_member_reports_before_it_commits_is_no_sign_of_a_rewind(bench: Callable[..., Bench]) -> None:
    it = bench()
    first_life(it)
    it.world.copy("a", "a", 5)
    report(it, 24)
    cycles(it)
    assert it.world.groups.progress(GROUP, TOPIC) != {}
    it.world.now_ms += 11_000  # the member has died before it committed
    cycles(it)
    assert it.world.groups.progress(GROUP, TOPIC) != {}


def test_a_commit_that_another_job_has_seen_later_is_asked_for_again(bench: Callable[..., Bench]) -> None:
    """Its clock is behind: what it saw later looks older than this job's reading."""
    it = bench()
    first_life(it)
    (seen,) = it.world.groups.observed(GROUP, A)
    writer = it.writer("a")
    read, reads = writer.committed, 0

    def committed(_group: object) -> object:
        nonlocal reads
        reads += 1
        if reads == 2:  # the job's own reading was the first
            it.world.commit("a", 22)
        return read(GROUP)

    it.world.copy("a", "a", 5)
    writer.committed = committed  # type: ignore[method-assign,assignment]
    it.world.groups.save_observed(
        [
            ObservedCommit(GROUP, A, P0, seen.topic_id, TargetOffset(22), -1, it.world.now_ms + 1),
        ]
    )
    it.world.now_ms += HOLDS_ALONE_MS
    report_of = it.cycle()

    assert reads >= 2
    assert report_of.rewinds == 0
    assert it.world.groups.progress(GROUP, TOPIC) != {}


def set_back_while_the_cluster_that_was_left_is_away(it: Bench) -> None:
    """It still holds a commit of the group's own that stands for everything."""
    two_sources(it.world)
    it.world.commit("b", 20)
    cycles(it)
    it.service.failover.answers(it.world.request("b", "a"), Deadline.after_ms(1_000), record_move=True)
    it.writer("b").away = True
    it.world.commit("a", 20)
    cycles(it)
    it.world.commit("a", 3)
    long_enough(it)
    it.writer("b").away = False
    poll_until(lambda: not it.service.failover.is_away(B), 10, "the service knows it")
    poll_until(lambda: B not in it.cycle().away, 10, "the job's reading in the background has found it")


def set_back_where_it_has_committed_nothing_of_its_own(it: Bench) -> None:
    """A plain consumer began from what was published, and nobody has seen it there."""
    two_sources(it.world)
    it.world.commit("b", 20)
    cycles(it)
    it.world.commit("a", 3)
    long_enough(it)


def set_back_where_nothing_was_published(it: Bench) -> None:
    """It came without a move that anybody knows of: only what was seen there shows that it went back."""
    two_sources(it.world)
    it.world.commit("b", 20)
    it.world.commit("a", 10)
    cycles(it, 1)
    it.world.commit("a", 3)
    long_enough(it)


def set_back_after_a_visit_that_nobody_has_seen(it: Bench) -> None:
    """To a cycle the commit that it left elsewhere is as new as what was set back, and looks like a move there."""
    two_sources(it.world)
    it.world.commit("a", 10)
    cycles(it)
    it.world.commit("b", 20)
    it.world.commit("a", 3)
    long_enough(it)


def set_back_after_a_recorded_move_and_such_a_visit(it: Bench) -> None:
    two_sources(it.world)
    it.world.commit("b", 10)
    cycles(it)
    it.service.failover.answers(it.world.request("b", "a"), Deadline.after_ms(1_000), record_move=True)
    it.world.commit("a", 5)
    cycles(it)
    it.world.commit("b", 20)
    it.world.commit("a", 3)
    long_enough(it)


SETTINGS_BACK = [
    set_back_while_the_cluster_that_was_left_is_away,
    set_back_where_it_has_committed_nothing_of_its_own,
    set_back_where_nothing_was_published,
    set_back_after_a_visit_that_nobody_has_seen,
    set_back_after_a_recorded_move_and_such_a_visit,
]


@pytest.mark.parametrize("set_back", SETTINGS_BACK)
def test_the_cluster_that_was_left_does_not_undo_it(bench: Callable[..., Bench], set_back: Ending) -> None:
    it = bench()
    set_back(it)
    cycles(it, 5)
    here, there = it.commit("a"), it.commit("b")
    assert here is not None
    assert there is not None
    assert (here.next_offset, there.next_offset) == (3, 0), "b0 lies first in b, and is to be read again"
    assert it.world.groups.progress(GROUP, TOPIC)[0].cluster == A


@pytest.mark.parametrize("set_back", SETTINGS_BACK)
def test_and_a_later_move_counts_again(bench: Callable[..., Bench], set_back: Ending) -> None:
    it = bench()
    set_back(it)
    cycles(it, 5)
    it.service.failover.answers(it.world.request("a", "b"), Deadline.after_ms(1_000), record_move=True)
    it.world.commit("b", 15)
    cycles(it, 5)
    assert it.world.groups.progress(GROUP, TOPIC)[0].cluster == B
    here, there = it.commit("a"), it.commit("b")
    assert here is not None
    assert there is not None
    assert there.next_offset == 15
    assert here.next_offset > 3


@pytest.mark.parametrize(
    ("set_back", "module", "names", "wrong"),
    [
        (SETTINGS_BACK[0], active_module, ["_by_setting_back"], lambda *_: None),
        (SETTINGS_BACK[1], rewinds_module, ["_is_set_back", "_is_below_what_was_seen"], lambda *_: False),
        (SETTINGS_BACK[2], rewinds_module, ["_is_below_what_was_seen"], lambda *_: False),
        (SETTINGS_BACK[3], rewinds_module, ["_is_below_what_was_seen"], lambda *_: False),
    ],
)
def test_without_the_mark_it_is_undone(
    bench: Callable[..., Bench],
    monkeypatch: pytest.MonkeyPatch,
    set_back: Ending,
    module: ModuleType,
    names: Sequence[str],
    wrong: Callable[..., object],
) -> None:
    for name in names:
        monkeypatch.setattr(module, name, wrong)
    it = bench()
    set_back(it)
    cycles(it, 5)
    here = it.commit("a")
    assert here is not None
    assert here.next_offset == 20


def at_two_places(it: Bench) -> None:
    """The group has commits of its own in both, and the job has seen them."""
    two_sources(it.world)
    it.world.commit("b", 20)
    it.world.commit("a", 5)
    cycles(it, 1)


def move(it: Bench, origin: str, to: str) -> None:
    it.world.now_ms += 100
    it.service.failover.answers(it.world.request(origin, to), Deadline.after_ms(1_000), record_move=True)


@pytest.mark.parametrize("onward", [False, True])
def test_a_move_to_less_than_was_seen_there_is_no_setting_back(
    bench: Callable[..., Bench], *, onward: bool
) -> None:
    it = bench()
    at_two_places(it)
    move(it, "a", "b")
    it.world.commit("b", 1)
    if onward:
        move(it, "b", "a")
    before = it.world.groups.progress(GROUP, TOPIC)
    long_enough(it)
    assert before[0].cluster == (A if onward else B)
    assert it.world.groups.progress(GROUP, TOPIC) == before


def test_nor_is_what_goes_back_where_the_group_is_not_while_it_has_members_elsewhere(
    bench: Callable[..., Bench],
) -> None:
    it = bench()
    at_two_places(it)
    it.writer("b").members[GROUP] = 1
    it.world.commit("a", 3)
    long_enough(it)
    cycles(it)
    there = it.commit("b")
    assert there is not None
    assert there.next_offset == 20
    assert it.world.groups.progress(GROUP, TOPIC) == {}


def test_nor_is_what_begins_from_less_that_was_published(bench: Callable[..., Bench]) -> None:
    """The job looks again only once the group has gone on from there."""
    it = bench()
    at_two_places(it)
    it.world.now_ms += 100
    (answer,) = it.service.failover.answers(it.world.request("a", "b"), Deadline.after_ms(1_000))
    left = answer_from_pb(failover_to_pb(answer)).progress
    it.world.groups.save_published(
        [PublishedOffset(GROUP, P0, left, A, TargetOffset(5), Outcome.OK, it.world.now_ms)]
    )
    it.world.commit("b", 1)
    long_enough(it)
    assert it.world.groups.progress(GROUP, TOPIC) == {0: left}
    assert not left.is_set_back


@pytest.mark.parametrize("found", [None, 2])
def test_what_has_changed_since_it_was_read_waits_like_anything_that_goes_back(
    bench: Callable[..., Bench], found: int | None
) -> None:
    """Another partition is void, so that all is read again: by then another job has published less, or nothing is there."""
    it = bench(partitions=2)
    two_sources(it.world)
    it.world.commit("b", 20)
    for region, at in (("a", 3), ("b", 4)):  # at work in both, which is left alone
        it.world.copy(region, region, 10, 1)
        it.world.commit(region, at, 1)
    cycles(it)
    it.world.commit("a", 3)
    it.cycle()
    it.confirm()
    writer = it.writer("b")
    read, reads = writer.committed, 0

    def committed(group: GroupName) -> Mapping[TopicPartition, GroupCommit]:
        nonlocal reads
        reads += 1
        if reads == 2:  # the job's own reading was the first
            writer.commits[GROUP].pop(P1)
            if found is not None:
                it.world.commit("b", found, 1)
        return read(group)

    writer.committed = committed  # type: ignore[method-assign]
    it.cycle()
    assert reads >= 2
    progress = it.world.groups.progress(GROUP, TOPIC)
    assert progress[0].is_set_back
    assert 1 not in progress


def test_a_move_told_by_a_clock_that_is_behind_is_later_than_the_one_before(
    bench: Callable[..., Bench],
) -> None:
    it = bench()
    first_life(it)
    before = it.world.groups.progress(GROUP, TOPIC)[0]
    it.world.now_ms -= 3_600_000
    it.service.failover.answers(it.world.request("a", "b"), Deadline.after_ms(1_000), record_move=True)
    after = it.world.groups.progress(GROUP, TOPIC)[0]
    assert (after.cluster, after.moved_at_ms) == (B, before.moved_at_ms + 1)


def test_an_interruption_is_made_up_for(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    it = bench()
    first_life(it)
    reset_to_earliest(it)
    cycles(it, it.world.config.sync.rewind_confirm_ms // 1_000)

    def fail(*_: object, **__: object) -> None:
        raise StoreUnavailableError("away")

    with monkeypatch.context() as patched:
        patched.setattr(it.world.groups, "save_progress", fail)
        assert GROUP in it.cycle().failures
    assert it.world.groups.progress(GROUP, TOPIC) != {}
    it.cycle()
    assert it.world.groups.progress(GROUP, TOPIC)[0].is_set_back


def test_a_dry_run_forgets_nothing(bench: Callable[..., Bench]) -> None:
    it = bench()
    first_life(it)
    before = it.world.groups.progress(GROUP, TOPIC), it.world.groups.observed(GROUP, A)
    reset_to_earliest(it)
    other = it.another(dry_run=True)
    it.world.now_ms += 1_000
    assert other.cycle().rewinds == 1
    other.close()
    assert (it.world.groups.progress(GROUP, TOPIC), it.world.groups.observed(GROUP, A)) == before


LOADING: dict[str, Callable[[Bench], None]] = {
    "nothing": deleted,
    "nothing anywhere": deleted_everywhere,
    "an old commit": lambda it: it.world.commit("a", 3),
    "what was offered before the move": lambda it: (
        it.writer("a").commits[GROUP].update({P0: it.writer("a").written[0][P0]})
    ),
}


def stored(it: Bench) -> object:
    """All that is known of the group, but for when."""
    groups = it.world.groups
    return (
        groups.progress(GROUP, TOPIC),
        [[seen.next_offset for seen in groups.observed(GROUP, cluster)] for cluster in (A, B)],
        [[offer.progress for offer in groups.published(GROUP, cluster)] for cluster in (A, B)],
    )


def a_broker_loads(it: Bench, answers: Callable[[Bench], None], seconds: int) -> None:
    before = [dict(it.writer(region).commits[GROUP]) for region in "ab"]
    answers(it)
    cycles(it, seconds)
    for region, commits in zip("ab", before, strict=True):
        it.writer(region).commits[GROUP] = commits


@pytest.mark.parametrize("answers", LOADING)
@pytest.mark.parametrize("seconds", [1, 2, 9])
def test_a_broker_that_is_loading_makes_nothing_void(
    bench: Callable[..., Bench], answers: str, seconds: int
) -> None:
    it = bench()
    first_life(it)
    before, published = stored(it), it.commit("b")
    a_broker_loads(it, LOADING[answers], seconds)
    assert stored(it) == before
    cycles(it, 12)
    assert (stored(it), it.commit("b")) == (before, published)


def test_nor_does_it_if_a_member_has_reported_more(bench: Callable[..., Bench]) -> None:
    it = bench()
    first_life(it)
    it.world.copy("a", "a", 5)
    report(it, 24)
    cycles(it, 1)
    a_broker_loads(it, LOADING["an old commit"], 3)
    assert [seen.next_offset for seen in it.world.groups.observed(GROUP, A)] == [24]
    cycles(it)
    assert it.world.groups.progress(GROUP, TOPIC) != {}


def test_the_wait_begins_anew_whenever_the_commit_is_back(bench: Callable[..., Bench]) -> None:
    it = bench()
    first_life(it)
    before = stored(it)
    for _ in range(4):
        a_broker_loads(it, deleted, 8)
        cycles(it, 1)
    assert stored(it) == before


def test_and_whenever_the_cluster_does_not_answer_or_the_job_starts(bench: Callable[..., Bench]) -> None:
    it = bench()
    first_life(it)
    before = it.world.groups.progress(GROUP, TOPIC)
    deleted(it)
    cycles(it, 9)
    it.writer("a").refused[GROUP] = "no right"
    cycles(it, 1)
    del it.writer("a").refused[GROUP]
    cycles(it, 9)
    assert it.world.groups.progress(GROUP, TOPIC) == before

    other = it.another(dry_run=False)
    for _ in range(9):
        it.world.now_ms += 1_000
        other.cycle()
    other.close()
    assert it.world.groups.progress(GROUP, TOPIC) == before


def test_a_new_life_confirms_what_it_shows_as_long_as_it_is_behind(bench: Callable[..., Bench]) -> None:
    it = bench()
    first_life(it)
    deleted(it)
    cycles(it, 3)
    for at in range(1, 10):
        it.world.commit("a", at)
        it.cycle()
    assert it.world.groups.progress(GROUP, TOPIC)[0].is_set_back
    assert passed_over(it, 9) == set()


def test_a_move_in_between_goes_by_what_it_sees_and_leaves_the_progress_of_that(
    bench: Callable[..., Bench],
) -> None:
    it = bench()
    first_life(it)
    deleted(it)
    cycles(it, 2)
    it.world.now_ms += 100
    (answer,) = it.service.failover.answers(
        it.world.request("a", "b"), Deadline.after_ms(1_000), record_move=True
    )
    assert answer.resume_offset == 0
    it.world.commit("b", 4)
    cycles(it, 12)
    moved = it.world.groups.progress(GROUP, TOPIC)[0]
    assert (moved.cluster, moved.resume_offset) == (B, 0)
    (back,) = it.service.failover.answers(it.world.request("b", "a"), Deadline.after_ms(1_000))
    assert back.resume_offset == 0  # only b0..3 are read, whatever stood in a


def test_nothing_is_kept_of_groups_that_stand_where_they_stood(bench: Callable[..., Bench]) -> None:
    it = bench()
    first_life(it)
    assert it.syncer._patience._signs == {}
    a_broker_loads(it, deleted, 2)
    assert list(it.syncer._patience._signs) == [GROUP]
    cycles(it, 1)
    assert it.syncer._patience._signs == {}


def _no_void(*_: object) -> Void:
    return Void((), (), ())


def _only_what_has_vanished(
    facts: GroupFacts, stood: Mapping[Place, TargetOffset]
) -> dict[Place, TargetOffset]:
    found = gone_back(facts, stood)
    return {place: at for place, at in found.items() if facts.sides[place[0]].offset(place[1]) is None}


def _never(*_: object) -> bool:
    return False


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the_job_voids_nothing": lambda patch: patch.setattr(cycle_module, "void_of", _no_void),
    "only_progress_is_void": lambda patch: patch.setattr(
        cycle_module, "confirmed", lambda _facts, void, *_: Void(void.progress, (), ())
    ),
    "all_is_believed_at_once": lambda patch: patch.setattr(Patience, "unconfirmed", lambda *_: frozenset()),
    "what_stood_is_written_over": lambda patch: patch.setattr(
        cycle_module, "held", lambda _facts, decisions, _unconfirmed: decisions
    ),
    "only_what_has_vanished_is_doubted": lambda patch: patch.setattr(
        patience_module, "gone_back", _only_what_has_vanished
    ),
    "the_service_holds_nothing_against_it": lambda patch: patch.setattr(service_commits, "went_back", _never),
}

SCENARIOS: dict[str, Callable[[Callable[..., Bench]], None]] = {
    "all_is_believed_at_once": lambda bench: test_a_broker_that_is_loading_makes_nothing_void(
        bench, "nothing", 2
    ),
    "what_stood_is_written_over": lambda bench: test_a_broker_that_is_loading_makes_nothing_void(
        bench, "an old commit", 2
    ),
    "only_what_has_vanished_is_doubted": lambda bench: test_a_broker_that_is_loading_makes_nothing_void(
        bench, "an old commit", 2
    ),
    "the_job_voids_nothing": lambda bench: test_nor_if_its_cluster_is_lost_after_a_moment(
        bench, reset_to_earliest, recorded=False
    ),
    "only_progress_is_void": lambda bench: (
        test_an_offer_that_the_former_life_took_makes_no_move_of_the_second(bench, reset_to_earliest)
    ),
    "the_service_holds_nothing_against_it": lambda bench: test_nor_if_nobody_looked_between_the_two_lives(
        bench, deleted
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_dies(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    MUTANTS[name](monkeypatch)
    with pytest.raises(AssertionError):
        SCENARIOS[name](bench)
