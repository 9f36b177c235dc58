from __future__ import annotations

from dataclasses import replace

import pytest

from parallax.domain.commits import ObservedCommit, PublishedOffset
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    RegionName,
    SourceId,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.outcome import Outcome
from parallax.domain.progress import Progress, SourcePosition
from parallax.ports.groups import GroupStore
from tests.support import unique_name

TRIPS = TopicName("trips")
HERE = ClusterName("aggregate-a")
THERE = ClusterName("aggregate-b")


@pytest.fixture
def group() -> GroupName:
    return GroupName(unique_name("group"))


def progress(resume_offset: int) -> Progress:
    """Two incarnations of one region's topic (the older first) and another region."""
    return Progress(
        THERE,
        TopicId("target_id-1"),
        TargetOffset(resume_offset),
        {
            SourceId(RegionName("b"), TopicId("z-older")): SourcePosition(-1, SourceOffset(9)),
            SourceId(RegionName("b"), TopicId("a-newer")): SourcePosition(
                5, SourceOffset(12), ((3, SourceOffset(7)), (5, SourceOffset(12)))
            ),
            SourceId(RegionName("a"), TopicId("s")): SourcePosition(0, SourceOffset(0)),
        },
    )


def observed(group: GroupName, partition: int, next_offset: int, at_ms: int) -> ObservedCommit:
    item = TopicPartition(TRIPS, partition)
    return ObservedCommit(group, HERE, item, TopicId("t"), TargetOffset(next_offset), 4, at_ms)


def published(group: GroupName, partition: int, resume_offset: int, at_ms: int) -> PublishedOffset:
    return PublishedOffset(
        group,
        TopicPartition(TRIPS, partition),
        progress(resume_offset),
        HERE,
        TargetOffset(99),
        Outcome.PENDING,
        at_ms,
    )


class TestProgress:
    def test_is_returned_as_it_was_saved_with_the_order_of_its_sources(
        self, groups: GroupStore, group: GroupName
    ) -> None:
        groups.save_progress(group, TRIPS, {0: progress(5), 3: progress(8)}, moved_at_ms=10)
        stored = groups.progress(group, TRIPS)
        assert stored == {0: progress(5), 3: progress(8)}
        assert list(stored[0].positions) == list(progress(5).positions)

    def test_of_another_topic_or_group_is_empty(self, groups: GroupStore, group: GroupName) -> None:
        groups.save_progress(group, TRIPS, {0: progress(5)}, moved_at_ms=10)
        assert groups.progress(group, TopicName("other")) == {}
        assert groups.progress(GroupName(unique_name("other")), TRIPS) == {}

    def test_a_later_move_replaces_the_partitions_that_it_names(
        self, groups: GroupStore, group: GroupName
    ) -> None:
        groups.save_progress(group, TRIPS, {0: progress(5), 1: progress(6)}, moved_at_ms=10)
        groups.save_progress(group, TRIPS, {1: progress(60)}, moved_at_ms=11)
        assert groups.progress(group, TRIPS) == {0: progress(5), 1: progress(60)}

    def test_an_older_move_is_ignored(self, groups: GroupStore, group: GroupName) -> None:
        groups.save_progress(group, TRIPS, {0: progress(5)}, moved_at_ms=10)
        groups.save_progress(group, TRIPS, {0: progress(3)}, moved_at_ms=9)
        assert groups.progress(group, TRIPS) == {0: progress(5)}

    def test_voided_stays_void_until_a_later_move(self, groups: GroupStore, group: GroupName) -> None:
        groups.save_progress(group, TRIPS, {0: progress(5), 1: progress(6)}, moved_at_ms=10)
        groups.void_progress(group, TRIPS, [0, 7])
        assert groups.progress(group, TRIPS) == {1: progress(6)}
        groups.save_progress(group, TRIPS, {0: progress(5)}, moved_at_ms=9)
        assert groups.progress(group, TRIPS) == {1: progress(6)}
        groups.save_progress(group, TRIPS, {0: progress(70)}, moved_at_ms=11)
        assert groups.progress(group, TRIPS) == {0: progress(70), 1: progress(6)}

    def test_tells_when_the_move_was_remembered(self, groups: GroupStore, group: GroupName) -> None:
        groups.save_progress(group, TRIPS, {0: progress(5)}, moved_at_ms=10)
        assert groups.progress(group, TRIPS)[0].moved_at_ms == 10

    def test_of_two_moves_in_one_millisecond_the_later_counts(
        self, groups: GroupStore, group: GroupName
    ) -> None:
        """Whichever has the greater bytes."""
        for first, second in ((5, 7), (7, 5)):
            groups.save_progress(group, TRIPS, {0: progress(first)}, moved_at_ms=10 + first)
            groups.save_progress(group, TRIPS, {0: progress(second)}, moved_at_ms=10 + first)
            assert groups.progress(group, TRIPS) == {0: progress(second)}

    def test_a_move_in_the_millisecond_of_a_voided_one_counts(
        self, groups: GroupStore, group: GroupName
    ) -> None:
        groups.save_progress(group, TRIPS, {0: progress(5)}, moved_at_ms=10)
        groups.void_progress(group, TRIPS, [0])
        groups.save_progress(group, TRIPS, {0: progress(6)}, moved_at_ms=10)
        assert groups.progress(group, TRIPS) == {0: progress(6)}


class TestObserved:
    def test_is_returned_by_cluster_and_partition(self, groups: GroupStore, group: GroupName) -> None:
        groups.save_observed([observed(group, 2, 50, 1), observed(group, 0, 40, 1)])
        assert groups.observed(group, HERE) == [observed(group, 0, 40, 1), observed(group, 2, 50, 1)]
        assert groups.observed(group, THERE) == []

    def test_the_newest_stays(self, groups: GroupStore, group: GroupName) -> None:
        groups.save_observed([observed(group, 0, 40, 5)])
        groups.save_observed([observed(group, 0, 30, 6)])
        groups.save_observed([observed(group, 0, 90, 4)])
        assert groups.observed(group, HERE) == [observed(group, 0, 30, 6)]

    def test_who_said_it_is_kept(self, groups: GroupStore, group: GroupName) -> None:
        report = replace(observed(group, 0, 40, 5), reported=True)
        groups.save_observed([report])
        assert groups.observed(group, HERE) == [report]

    def test_of_two_sightings_in_one_millisecond_the_later_counts(
        self, groups: GroupStore, group: GroupName
    ) -> None:
        for next_offset in (5, 9, 1):
            groups.save_observed([observed(group, 0, next_offset, 7)])
            assert groups.observed(group, HERE) == [observed(group, 0, next_offset, 7)]

    def test_what_stands_no_more_is_forgotten_until_something_later_is_seen(
        self, groups: GroupStore, group: GroupName
    ) -> None:
        gone = observed(group, 0, 40, 5)
        groups.save_observed([gone, observed(group, 1, 41, 5)])
        groups.void_observed([gone])
        groups.save_observed([observed(group, 0, 39, 4), observed(group, 0, 40, 5)])
        assert groups.observed(group, HERE) == [observed(group, 1, 41, 5)]
        groups.save_observed([observed(group, 0, 3, 6)])
        assert groups.observed(group, HERE) == [observed(group, 0, 3, 6), observed(group, 1, 41, 5)]

    def test_what_was_seen_later_is_kept(self, groups: GroupStore, group: GroupName) -> None:
        groups.save_observed([observed(group, 0, 50, 6)])
        groups.void_observed([observed(group, 0, 40, 5)])
        assert groups.observed(group, HERE) == [observed(group, 0, 50, 6)]


class TestPublished:
    def test_is_returned_by_the_cluster_that_it_was_published_on(
        self, groups: GroupStore, group: GroupName
    ) -> None:
        groups.save_published([published(group, 1, 20, 1), published(group, 0, 10, 1)])
        assert groups.published(group, THERE) == [published(group, 0, 10, 1), published(group, 1, 20, 1)]
        assert groups.published(group, HERE) == []

    def test_the_newest_stays(self, groups: GroupStore, group: GroupName) -> None:
        groups.save_published([published(group, 0, 10, 7)])
        groups.save_published([published(group, 0, 11, 6)])
        assert groups.published(group, THERE) == [published(group, 0, 10, 7)]
        groups.save_published([published(group, 0, 12, 8)])
        assert groups.published(group, THERE) == [published(group, 0, 12, 8)]

    def test_what_stands_no_more_is_forgotten_until_something_later_is_published(
        self, groups: GroupStore, group: GroupName
    ) -> None:
        gone = published(group, 0, 10, 7)
        groups.save_published([gone, published(group, 1, 20, 7)])
        groups.void_published([gone])
        groups.save_published([published(group, 0, 9, 6)])
        assert groups.published(group, THERE) == [published(group, 1, 20, 7)]
        groups.save_published([published(group, 0, 11, 8)])
        assert groups.published(group, THERE) == [published(group, 0, 11, 8), published(group, 1, 20, 7)]


def test_every_group_that_was_saved_anywhere_is_known(groups: GroupStore) -> None:
    moved, seen, sent = (GroupName(unique_name(name)) for name in ("moved", "seen", "sent"))
    groups.save_progress(moved, TRIPS, {0: progress(5)}, moved_at_ms=10)
    groups.save_observed([observed(seen, 0, 40, 1)])
    groups.save_published([published(sent, 0, 10, 1)])
    assert {moved, seen, sent} <= set(groups.groups())
    assert all(groups.knows(name) for name in (moved, seen, sent))
    assert not groups.knows(GroupName(moved[:-1]))


def test_nothing_to_save_is_no_error(groups: GroupStore, group: GroupName) -> None:
    groups.save_progress(group, TRIPS, {}, moved_at_ms=1)
    groups.save_observed([])
    groups.save_published([])
    groups.void_progress(group, TRIPS, [])
    groups.void_observed([])
    groups.void_published([])
    assert groups.progress(group, TRIPS) == {}


def test_when_a_group_was_first_seen_without_a_commit_is_remembered(
    groups: GroupStore, group: GroupName
) -> None:
    other = GroupName(unique_name("other"))
    groups.note_empty(group, 50)
    groups.note_empty(other, 60)
    assert {name: at_ms for name, at_ms in groups.empty_since().items() if name in {group, other}} == {
        group: 50,
        other: 60,
    }
    groups.note_alive(group)
    assert group not in groups.empty_since()


def test_several_groups_are_read_at_once_as_each_is_by_itself(groups: GroupStore) -> None:
    names = [GroupName(unique_name(f"one-{number}")) for number in range(40)]
    payments = TopicName("payments")
    for number, name in enumerate(names):
        groups.save_observed([observed(name, part, number, 5) for part in range(number % 3)])
        groups.save_published([published(name, part, number, 10) for part in range(number % 4)])
        if number % 5 == 0:
            groups.save_progress(name, TRIPS, {0: progress(number), 2: progress(3)}, moved_at_ms=number)
            groups.save_progress(name, payments, {1: progress(number)}, moved_at_ms=number)
    groups.note_standing(HERE, names[::2], 50)
    found = groups.stored([*names, names[0]], [HERE, THERE])
    assert found.keys() == set(names)
    for name, stored in found.items():
        assert {HERE: list(stored.observed[HERE]), THERE: list(stored.observed[THERE])} == {
            cluster: list(groups.observed(name, cluster)) for cluster in (HERE, THERE)
        }
        assert {HERE: list(stored.published[HERE]), THERE: list(stored.published[THERE])} == {
            cluster: list(groups.published(name, cluster)) for cluster in (HERE, THERE)
        }
        assert dict(stored.progress) == {
            topic: moved for topic in (TRIPS, payments) if (moved := groups.progress(name, topic))
        }
    assert groups.stored([], [HERE]) == {}


class TestStanding:
    def test_what_stands_was_seen_later_on_that_cluster_alone(
        self, groups: GroupStore, group: GroupName
    ) -> None:
        other = GroupName(unique_name("other"))
        groups.save_observed(
            [observed(group, 0, 40, 5), observed(group, 1, 41, 90), observed(other, 0, 7, 5)]
        )
        groups.note_standing(HERE, [group], 50)
        groups.note_standing(THERE, [group, other], 60)
        assert groups.observed(group, HERE) == [observed(group, 0, 40, 50), observed(group, 1, 41, 90)]
        assert groups.observed(other, HERE) == [observed(other, 0, 7, 5)]
        groups.note_standing(HERE, [group], 40)  # late
        assert groups.observed(group, HERE)[0].observed_at_ms == 50

    def test_nobody_has_looked_what_a_member_said(self, groups: GroupStore, group: GroupName) -> None:
        report = replace(observed(group, 0, 40, 5), reported=True)
        groups.save_observed([report])
        groups.note_standing(HERE, [group], 50)
        assert groups.observed(group, HERE) == [report]

    def test_it_is_told_when_a_member_last_reported(self, groups: GroupStore, group: GroupName) -> None:
        other = GroupName(unique_name("other"))
        groups.save_observed([observed(group, 0, 40, 5), observed(other, 0, 40, 5)])
        groups.note_standing(HERE, [group, other], 50)
        assert groups.reported(HERE, [group, other]) == {}
        for at_ms in (8, 9, 7):
            groups.save_observed([replace(observed(group, 0, 40, at_ms), reported=True)])
        assert groups.reported(HERE, [group, other]) == {group: 9}
        assert groups.reported(THERE, [group, other]) == {}
        assert groups.reported(HERE, []) == {}

    def test_a_commit_seen_after_a_report_is_told_though_nobody_saw_the_group_stand(
        self, groups: GroupStore, group: GroupName
    ) -> None:
        groups.save_observed([replace(observed(group, 0, 40, 5), reported=True)])
        groups.save_observed([observed(group, 0, 41, 6)])
        assert groups.observed(group, HERE) == [observed(group, 0, 41, 6)]
        assert groups.stored([group], [HERE])[group].observed[HERE] == [observed(group, 0, 41, 6)]

    def test_what_is_seen_or_forgotten_later_counts(self, groups: GroupStore, group: GroupName) -> None:
        groups.save_observed([observed(group, 0, 40, 5), observed(group, 1, 41, 5)])
        groups.note_standing(HERE, [group], 50)
        groups.save_observed([observed(group, 0, 43, 51)])
        gone = [item for item in groups.observed(group, HERE) if item.topic_partition.partition == 1]
        groups.void_observed(gone)
        assert groups.observed(group, HERE) == [observed(group, 0, 43, 51)]

    def test_many_groups_at_once(self, groups: GroupStore) -> None:
        names = [GroupName(unique_name(f"one-{number}")) for number in range(120)]
        groups.save_observed([observed(name, part, 40, 5) for name in names for part in range(3)])
        groups.note_standing(HERE, names, 50)
        assert all(
            groups.observed(name, HERE) == [observed(name, part, 40, 50) for part in range(3)]
            for name in names
        )


def test_a_forgotten_group_is_known_no_more_until_something_later_is_saved(
    groups: GroupStore, group: GroupName
) -> None:
    groups.save_progress(group, TRIPS, {0: progress(5)}, moved_at_ms=10)
    groups.save_observed([observed(group, 0, 40, 10)])
    groups.save_published([published(group, 0, 10, 10)])
    groups.note_empty(group, 10)

    groups.forget(group, at_ms=20)

    assert group not in groups.groups()
    assert not groups.knows(group)
    assert group not in groups.empty_since()
    assert groups.progress(group, TRIPS) == {}
    assert (groups.observed(group, HERE), groups.published(group, THERE)) == ([], [])
    groups.save_observed([observed(group, 0, 41, 21)])
    assert groups.observed(group, HERE) == [observed(group, 0, 41, 21)]
    assert group in groups.groups()
