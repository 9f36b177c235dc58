"""The syncjob over a world whose every record is known, with the real offset service's use cases."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from offsetsvc.messages import group_to_pb
from offsetsvc.resume.call import FailoverRequest
from parallax.client.answer import Pair, ResumeAnswer, answers_from_pb
from parallax.domain.commits import REPORT_COUNTS_MS, GroupCommit, ObservedCommit
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    RegionName,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.metadata import decode
from parallax.domain.outcome import Outcome
from parallax.domain.primary import Change, Mode, Site, Stage, decide
from parallax.errors import (
    InvariantError,
    ServiceUnavailableError,
    StoreUnavailableError,
    UnknownTopicError,
)
from parallax.ports.clusters import GroupState, TopicInfo
from parallax.ports.groups import Reach
from parallax.runtime.deadline import Deadline
from syncjob import cycle as cycle_module
from syncjob.decide import Reason
from syncjob.idle import HOLDS_ALONE_MS, HOLDS_MS
from tests.support import poll_until
from tests.worlds.offset_world import GROUP, TOPIC, World
from tests.worlds.sync_bench import (
    DAY_MS,
    OTHER,
    P0,
    Bench,
    consuming,
    only,
    partitions_of,
    report,
    two_sources,
)


class TestPublishing:
    def test_the_first_cycle_publishes_where_the_group_never_committed(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = bench()
        two_sources(it.world)
        it.world.commit("a", 15)  # all of a, b0..4
        decision = it.decision("b")
        assert (decision.reason, decision.origin, decision.offset) == (Reason.PUBLISHED, "aggregate-a", 5)
        commit = it.commit("b")
        assert commit is not None
        assert commit.next_offset == 5
        metadata = decode(commit.metadata)
        assert (metadata.resume_offset, metadata.target_topic_id) == (5, "aggregate-b-1")
        assert [(item.start, item.end) for item in metadata.skips] == [(10, 20)]
        told = it.world.groups.published(GROUP, ClusterName("aggregate-b"))
        assert [(item.progress.resume_offset, item.origin_next_offset) for item in told] == [(5, 15)]
        seen = it.world.groups.observed(GROUP, ClusterName("aggregate-a"))
        assert [(item.next_offset, item.topic_id) for item in seen] == [(15, "aggregate-a-1")]

    def test_partitions_without_a_commit_get_the_policys_offset_once(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = bench(partitions=3)
        it.world.commit("a", 0)
        report = it.cycle()
        assert [only(report, "b", p).outcome for p in (1, 2)] == [Outcome.NO_COMMIT] * 2
        assert [it.commit("b", p).next_offset for p in (0, 1, 2)] == [0, 0, 0]  # type: ignore[union-attr]
        assert it.decision("b", 2).reason is Reason.UNCHANGED

    def test_a_topic_that_members_have_but_never_committed_on_gets_an_offset_too(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = bench()
        quiet = TopicName("quiet")
        it.world.empty_topic(quiet, 2)
        two_sources(it.world)
        it.world.commit("a", 15)
        it.writer("a").members[GROUP] = 1
        it.writer("a").assigned[GROUP] = frozenset({quiet, TOPIC})
        it.cycle()
        found = {item.partition: it.writer("b").commits[GROUP].get(item) for item in partitions_of(quiet, 2)}
        assert {key: commit.next_offset for key, commit in found.items() if commit} == {0: 0, 1: 0}
        again = [item for item in it.cycle().decisions if item.topic_partition.topic == quiet]
        assert [(item.origin, item.reason) for item in again] == [("aggregate-a", Reason.UNCHANGED)] * 2

    def test_a_policy_of_latest_is_said_once_and_does_not_run_on(self, bench: Callable[..., Bench]) -> None:
        it = bench(partitions=2, no_commit="latest")
        for source, target in (("a", "a"), ("b", "a"), ("a", "b"), ("b", "b")):
            it.world.copy(source, target, 10, 1)
        it.world.watermarks(1)
        it.world.commit("a", 0)
        it.cycle()
        first = it.commit("b", 1)
        assert first is not None
        assert first.next_offset == 20
        it.world.copy("a", "b", 10, 1)
        it.world.copy("a", "a", 10, 1)
        assert it.decision("b", 1).reason is Reason.UNCHANGED
        assert it.commit("b", 1) == first

    def test_an_offset_that_fell_out_of_retention_is_said_again(self, bench: Callable[..., Bench]) -> None:
        it = bench(partitions=2)
        it.world.copy("a", "b", 10, 1)
        it.world.commit("a", 0)
        it.cycle()
        it.world.trim("b", 4, 1)
        assert it.decision("b", 1).reason is Reason.PUBLISHED
        assert it.commit("b", 1).next_offset == 4  # type: ignore[union-attr]

    def test_unchanged_offsets_are_written_again_only_when_they_might_expire(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = consuming(bench, 15)
        assert it.decision("b").reason is Reason.PUBLISHED
        for _ in range(3):
            assert it.decision("b").reason is Reason.UNCHANGED
        assert len(it.writer("b").written) == 1
        it.world.now_ms += DAY_MS
        assert it.decision("b").reason is Reason.REFRESHED
        assert len(it.writer("b").written) == 2
        assert it.decision("b").reason is Reason.UNCHANGED

    def test_progress_is_followed_every_cycle(self, bench: Callable[..., Bench]) -> None:
        it = bench()
        two_sources(it.world)
        for commit, expected in ((5, 0), (12, 2), (15, 5), (20, 20)):
            it.world.commit("a", commit)
            decision = it.decision("b")
            assert (decision.reason, decision.offset) == (Reason.PUBLISHED, expected)
        assert it.writer("a").written == []

    def test_every_passive_cluster_is_served(self, bench: Callable[..., Bench]) -> None:
        it = bench("a", "b", "c")
        for target in "abc":
            it.world.copy("a", target, 10)
        it.world.watermarks()
        it.world.commit("a", 4)
        it.cycle()
        assert [it.commit(name).next_offset for name in "bc"] == [4, 4]  # type: ignore[union-attr]

    def test_a_dry_run_writes_nothing(self, bench: Callable[..., Bench]) -> None:
        it = bench(dry_run=True)
        two_sources(it.world)
        it.world.commit("a", 15)
        decision = it.decision("b")
        assert (decision.reason, decision.offset) == (Reason.PUBLISHED, 5)
        assert it.commit("b") is None
        assert it.world.groups.groups() == []


class TestReports:
    """What members of a FailoverConsumer group report is ahead of what they have committed."""

    def remembered(self, it: Bench) -> int:
        (seen,) = it.world.groups.observed(GROUP, ClusterName("aggregate-a"))
        return seen.next_offset

    def report(self, it: Bench, next_offset: int, topic_id: str = "aggregate-a-1") -> None:
        it.world.now_ms += 100
        seen = ObservedCommit(
            GROUP,
            ClusterName("aggregate-a"),
            P0,
            TopicId(topic_id),
            TargetOffset(next_offset),
            -1,
            it.world.now_ms,
            reported=True,
        )
        it.world.groups.save_observed([seen])

    def test_a_report_outlives_the_older_commit(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 10, cycles=1)
        self.report(it, 15)
        it.world.commit("a", 12)
        it.cycle()
        assert self.remembered(it) == 15
        it.world.commit("a", 16)
        it.cycle()
        assert self.remembered(it) == 16

    def test_a_dead_cluster_is_left_where_the_report_says(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 10, cycles=1)
        self.report(it, 15)
        it.world.commit("a", 12)
        it.cycle()
        it.cycle()  # has published what follows from 12
        it.writer("a").away = True
        with it.world.service() as service:
            request = FailoverRequest(GROUP, ClusterName("aggregate-a"), ClusterName("aggregate-b"))
            (answer,) = service.failover.answers(request, Deadline.after_ms(10_000))
        assert answer.origin.next_offset == 15

    def test_a_member_that_went_silent_counts_no_more(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 10)
        self.report(it, 15)
        it.world.now_ms += 10_000
        it.cycle()
        assert self.remembered(it) == 10

    def test_a_rewind_counts_once_it_is_believed(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 10, cycles=1)
        self.report(it, 15)
        it.world.commit("a", 4)
        it.cycle()
        it.confirm()
        assert self.remembered(it) == 15
        it.cycle()
        assert self.remembered(it) == 4

    def test_a_report_about_a_deleted_topic_counts_no_more(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 10)
        self.report(it, 15, "aggregate-a-0")
        it.cycle()
        assert self.remembered(it) == 10

    def test_a_report_that_came_while_commits_were_read_is_newer_than_they(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = consuming(bench, 10)
        read = it.writer("a").committed

        def and_a_member_reports(group: GroupName) -> Mapping[TopicPartition, GroupCommit]:
            found = read(group)
            it.world.now_ms += 5
            self.report(it, 11)
            it.world.now_ms += 5
            return found

        it.writer("a").committed = and_a_member_reports  # type: ignore[method-assign] # at the moment in question
        it.cycle()
        assert self.remembered(it) == 11


class TestDirection:
    def test_an_old_commit_of_the_groups_own_is_replaced_after_two_equal_reads(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = consuming(bench, 15)
        it.world.commit("b", 3)  # b0..2, all consumed on a too
        assert it.decision("b").reason is Reason.WAITING
        assert it.commit("b").next_offset == 3  # type: ignore[union-attr]
        report = it.cycle()
        assert only(report, "b").reason is Reason.PUBLISHED
        assert it.commit("b").next_offset == 5  # type: ignore[union-attr]

    def test_the_cluster_that_is_ahead_is_the_active_one_whichever_it_is(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = bench()
        two_sources(it.world)
        it.world.commit("a", 3)  # a0..2
        it.world.commit("b", 16)  # all of b, a0..5
        it.cycle()
        decision = it.decision("a")
        assert (decision.reason, decision.origin, decision.offset) == (Reason.PUBLISHED, "aggregate-b", 6)

    def test_progress_on_both_sides_is_left_alone(self, bench: Callable[..., Bench]) -> None:
        it = bench()
        two_sources(it.world)
        it.world.commit("a", 5)  # a0..4
        it.world.commit("b", 5)  # b0..4
        it.cycle()
        report = it.cycle()
        assert {item.reason for item in report.decisions} == {Reason.DUAL_ACTIVE}
        assert {item.outcome for item in report.decisions} == {Outcome.DUAL_ACTIVE}
        assert it.writer("a").written == it.writer("b").written == []

    def test_without_the_vectors_nothing_is_decided(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 5).apart()
        it.world.commit("b", 3)

        def fail(*_: object) -> Mapping[TopicPartition, ResumeAnswer]:
            raise UnknownTopicError("trips")

        it.syncer._ask = fail
        it.cycle()
        assert {item.reason for item in it.cycle().decisions} == {Reason.UNDECIDED}


class TestSomebodyAtTheTarget:
    def test_a_group_with_members_there_is_left_alone(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 5, cycles=1)
        it.writer("b").members[GROUP] = 1
        it.world.commit("a", 15)
        assert it.decision("b").reason is Reason.ACTIVE_AT_TARGET
        assert it.commit("b").next_offset == 0  # type: ignore[union-attr]

    def test_members_that_join_at_the_last_moment_are_left_alone(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 15).apart()
        original = it.syncer._ask

        def ask(
            group: GroupName, pair: Pair, topics: Sequence[TopicName]
        ) -> Mapping[TopicPartition, ResumeAnswer]:
            it.writer("b").members[GROUP] = 2
            return original(group, pair, topics)

        it.syncer._ask = ask
        assert it.decision("b").reason is Reason.ACTIVE_AT_TARGET
        assert it.commit("b") is None
        assert it.world.groups.published(GROUP, ClusterName("aggregate-b")) == []

    def test_a_commit_that_moves_between_two_reads_is_left_alone(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 15)
        it.world.commit("b", 1)
        it.cycle()
        it.world.commit("b", 2)
        assert it.decision("b").reason is Reason.ACTIVE_AT_TARGET
        assert it.commit("b").next_offset == 2  # type: ignore[union-attr]

    def test_what_another_sync_job_publishes_between_two_reads_is_nobodys(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = consuming(bench, 12, cycles=3)
        with closing(it.another(dry_run=True)) as beside:
            beside.cycle()
            it.world.commit("a", 14)
            it.cycle()
            decision = only(beside.cycle(), "b")
        assert decision.reason in {Reason.UNCHANGED, Reason.KEPT_BETTER, Reason.PUBLISHED}

    def test_a_commit_between_the_decision_and_the_write_is_left_alone(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = consuming(bench, 15).apart()
        original = it.syncer._ask

        def ask(
            group: GroupName, pair: Pair, topics: Sequence[TopicName]
        ) -> Mapping[TopicPartition, ResumeAnswer]:
            it.world.commit("b", 7)
            return original(group, pair, topics)

        it.syncer._ask = ask
        assert it.decision("b").reason is Reason.ACTIVE_AT_TARGET
        assert it.commit("b").next_offset == 7  # type: ignore[union-attr]

    def test_what_was_overwritten_beside_a_foreign_commit_is_restored(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = bench(partitions=2)
        two_sources(it.world)
        for partition in (0, 1):
            it.world.commit("a", 15 if partition == 0 else 0, partition)
            it.world.commit("b", 1 if partition == 0 else 0, partition)
        it.cycle()
        theirs = it.commit("b", 0)

        def commit_on_the_other_partition() -> None:
            it.writer("b").after_write = lambda: None
            it.world.commit("b", 9, 1)

        it.writer("b").after_write = commit_on_the_other_partition
        report = it.cycle()
        assert only(report, "b", 0).reason is Reason.ACTIVE_AT_TARGET
        assert it.commit("b", 0) == theirs
        assert it.commit("b", 1).next_offset == 9  # type: ignore[union-attr]
        assert it.world.groups.published(GROUP, ClusterName("aggregate-b")) == []


class TestMoves:
    def test_a_plain_group_that_goes_on_from_the_published_offset_has_moved(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = bench()
        two_sources(it.world)
        it.world.commit("a", 15)  # all of a, b0..4
        it.cycle()
        it.world.commit("b", 8)  # b5..7 read here
        report = it.cycle()
        assert report.moves == 1
        progress = it.world.groups.progress(GROUP, TOPIC)[0]
        assert (progress.cluster, progress.resume_offset) == ("aggregate-b", 5)
        decision = only(report, "a")
        # What it read on a before counts: not a0, but b8 is the first record that it has not read.
        assert (decision.reason, decision.origin, decision.offset) == (Reason.PUBLISHED, "aggregate-b", 18)
        assert it.commit("a").next_offset == 18  # type: ignore[union-attr]
        assert it.cycle().moves == 0

    def test_it_may_move_back_and_forth(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 15, cycles=1)
        it.world.commit("b", 8)
        it.cycle()
        it.cycle()
        it.world.commit("a", 19)  # b8
        assert it.cycle().moves == 1
        assert it.decision("b").offset == 9
        assert it.world.groups.progress(GROUP, TOPIC)[0].cluster == "aggregate-a"
        it.world.commit("b", 10)  # b9: the rest is skipped by those who can
        assert it.cycle().moves == 1
        assert it.decision("a").offset == 20

    def test_a_commit_exactly_at_the_published_offset_is_still_ours(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = consuming(bench, 15, cycles=1)
        it.world.commit("b", 5)  # a consumer that has read nothing commits without metadata
        it.cycle()
        report = it.cycle()
        assert report.moves == 0
        assert only(report, "b").reason is Reason.PUBLISHED

    def test_a_crash_before_the_store_was_written_leaves_the_offset_ours(
        self, bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        it = consuming(bench, 15)

        def fail(*_: object) -> None:
            raise StoreUnavailableError("away")

        with monkeypatch.context() as patched:
            patched.setattr(it.world.groups, "save_published", fail)
            assert GROUP in it.cycle().failures
        assert it.commit("b").next_offset == 5  # type: ignore[union-attr]
        it.world.commit("a", 17)
        it.cycle()
        report = it.cycle()
        assert (report.moves, only(report, "b").offset) == (0, 7)


class TestRewinds:
    def _moved(self, it: Bench) -> None:
        two_sources(it.world)
        it.world.commit("a", 15)
        it.cycle()
        it.world.commit("b", 8)
        it.cycle()
        it.cycle()

    def test_a_commit_below_the_last_moves_resume_offset_voids_its_progress(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = bench()
        self._moved(it)
        it.world.commit("b", 2)  # b0, b1: as if a had never been read
        assert it.cycle().rewinds == 0
        it.confirm()
        assert it.world.groups.progress(GROUP, TOPIC) != {}
        assert it.cycle().rewinds == 1
        assert it.world.groups.progress(GROUP, TOPIC)[0].is_set_back
        decision = it.decision("a")
        assert decision.offset == 0
        assert it.commit("a").next_offset == 0  # type: ignore[union-attr]

    def test_a_rewind_is_followed_or_refused_by_configuration(self, bench: Callable[..., Bench]) -> None:
        for on_rewind, reason, offset in (
            ("propagate", Reason.PUBLISHED, 2),
            ("refuse", Reason.REWIND_REFUSED, 5),
        ):
            it = bench(on_rewind=on_rewind)
            two_sources(it.world)
            it.world.commit("a", 15)
            it.cycle()
            it.world.commit("a", 12)
            it.cycle()
            it.confirm()
            assert it.commit("b").next_offset == 5  # type: ignore[union-attr]
            decision = it.decision("b")
            assert (decision.reason, decision.outcome) == (reason, Outcome.REWOUND)
            assert it.commit("b").next_offset == offset  # type: ignore[union-attr]


FROZEN_BEFORE = ["the primary is read", "the commits are read", "the write"]


class TestFrozen:
    """The job stands still for a moment, in which a planned move to b takes place from beginning to end."""

    def frozen(self, bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, before: str) -> Bench:
        it = consuming(bench, 5, cycles=3).apart()
        it.world.commit("a", 15)
        writer, decisions, commits_of = (
            it.writer("b"),
            it.world.primaries.decisions,
            it.writer("b").committed,
        )
        moved = GroupCommit(TargetOffset(20), -1, "the move's")
        reads = 0

        def freeze() -> None:
            monkeypatch.undo()
            writer.commits[GROUP][P0] = moved
            it.world.now_ms += 60_000

        def read_primary(groups: Any) -> Any:
            nonlocal reads
            reads += 1
            found = decisions(groups)
            if reads == 2 and before == "the commits are read":
                freeze()
            return found

        def read_commits(group: GroupName) -> Any:
            found = commits_of(group)
            if reads == 2 and before == "the write":
                freeze()
            return found

        monkeypatch.setattr(it.world.primaries, "decisions", read_primary)
        monkeypatch.setattr(writer, "committed", read_commits)
        if before == "the primary is read":
            asks = it.syncer._ask
            monkeypatch.setattr(it.syncer, "_ask", lambda *args: (asks(*args), freeze())[0])
        decision = it.decision("b")
        assert decision.reason in {Reason.WRITE_FAILED, Reason.ACTIVE_AT_TARGET}
        assert it.commit("b") == moved
        return it

    @pytest.mark.parametrize("before", FROZEN_BEFORE)
    def test_it_writes_nothing_by_what_it_read_before(
        self, bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, before: str
    ) -> None:
        it = self.frozen(bench, monkeypatch, before)
        told = it.world.groups.published(GROUP, ClusterName("aggregate-b"))
        assert [item.progress.resume_offset for item in told] == [0]

    def test_it_would_without_the_bound(
        self, bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cycle_module, "WRITE_WITHIN_MS", 10**9)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(AssertionError):
            self.frozen(bench, patch, "the write")


class TestAsking:
    def test_a_group_that_stands_still_is_looked_at_now_and_then(
        self, bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        it = consuming(bench, 15)
        assert it.decision("b").reason is Reason.PUBLISHED
        assert it.decision("b").reason is Reason.UNCHANGED  # the offset that was published is new here
        with monkeypatch.context() as patched:
            for read in ("observed", "published", "progress", "save_observed"):
                patched.delattr(type(it.world.groups), read)
            assert it.decision("b").reason is Reason.UNCHANGED
        assert len(it.asked) == 2
        it.world.now_ms += HOLDS_MS
        assert it.decision("b").reason is Reason.UNCHANGED
        assert len(it.asked) == 2
        it.world.now_ms += HOLDS_ALONE_MS
        assert it.decision("b").reason is Reason.UNCHANGED
        assert len(it.asked) == 3

    def test_a_group_with_members_is_looked_at_more_often(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 15, cycles=3)
        it.writer("a").members[GROUP] = 1
        it.cycle()
        asked = len(it.asked)
        it.cycle()
        assert len(it.asked) == asked
        it.world.now_ms += HOLDS_MS
        it.cycle()
        assert len(it.asked) == asked + 1

    def test_commits_that_are_the_same_are_not_stored_again(
        self, bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        it = bench(partitions=3)
        for partition in range(3):
            for source, target in (("a", "a"), ("b", "a"), ("b", "b"), ("a", "b")):
                it.world.copy(source, target, 10, partition)
            it.world.watermarks(partition)
            it.world.commit("a", 10, partition)
        for _ in range(3):
            it.cycle()
        saved: list[tuple[ClusterName, int, TargetOffset]] = []
        save = it.world.groups.save_observed

        def looked_on(commits: Sequence[ObservedCommit]) -> None:
            saved.extend((item.cluster, item.topic_partition.partition, item.next_offset) for item in commits)
            save(commits)

        monkeypatch.setattr(it.world.groups, "save_observed", looked_on)
        it.world.commit("a", 15, 1)
        it.cycle()
        assert saved == [("aggregate-a", 1, 15)]
        seen = it.world.groups.observed(GROUP, ClusterName("aggregate-a"))
        assert [(item.next_offset, item.observed_at_ms) for item in seen] == [
            (offset, it.world.now_ms) for offset in (10, 15, 10)
        ]

    def test_commits_that_stand_do_not_grow_old(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 15, cycles=3)
        asked = len(it.asked)
        for _ in range(3):
            it.world.now_ms += HOLDS_MS
            it.cycle()
            (seen,) = it.world.groups.observed(GROUP, ClusterName("aggregate-a"))
            assert it.world.now_ms - seen.observed_at_ms < HOLDS_MS
        assert len(it.asked) == asked

    def test_a_report_about_a_group_without_members_is_not_passed_over(
        self, bench: Callable[..., Bench]
    ) -> None:
        """A consumer that assigns its partitions itself is no member."""
        it = consuming(bench, 10, cycles=3)
        asked = len(it.asked)
        report(it, 15)
        it.world.now_ms += HOLDS_MS
        it.cycle()
        (seen,) = it.world.groups.observed(GROUP, ClusterName("aggregate-a"))
        assert seen.next_offset == 15
        assert len(it.asked) == asked + 1

    def test_a_dead_cluster_does_not_make_standing_groups_dearer(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 15, cycles=3)
        it.writer("a").away = True
        asked = len(it.asked)
        for _ in range(4):
            assert it.decision("b").reason is Reason.UNCHANGED
        assert len(it.asked) == asked + 1

    @pytest.mark.parametrize("region", ["a", "b"])
    def test_a_cluster_is_away_to_a_group_that_may_not_be_seen_there_and_to_no_other(
        self, bench: Callable[..., Bench], region: str
    ) -> None:
        it = consuming(bench, 15, cycles=2)
        it.writer("a").commits[OTHER] = dict(it.writer("a").commits[GROUP])
        assert it.commit("b", group=OTHER) is None
        before = it.commit("b")
        it.writer(region).refused[GROUP] = "not allowed"
        it.world.commit("a", 17)
        report = it.cycle()
        assert (report.away, report.failures) == ((), {})
        assert only(report, "b", group=OTHER).reason is Reason.PUBLISHED
        assert it.commit("b") == before
        it.writer(region).refused.clear()
        for _ in range(4):
            it.cycle()
        assert it.commit("b") != before

    def test_only_chosen_groups_are_asked_about(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 15)
        asked: list[object] = []
        groups = it.writer("a").groups

        def looked_on(chosen: Callable[[GroupName], bool] | None = None, **_: object) -> Sequence[GroupState]:
            asked.append(chosen)
            return groups(chosen)

        it.writer("a").groups = looked_on  # type: ignore[method-assign] # looks on
        it.cycle()
        assert asked == [it.world.config.groups.chosen]

    def test_a_sight_that_comes_again_is_looked_at(self, bench: Callable[..., Bench]) -> None:
        """What was seen in between counts: here more was remembered of the group than it has now."""
        it = bench()
        two_sources(it.world)
        it.writer("b").members[GROUP] = 1  # nothing can be written there
        it.world.commit("a", 10)
        for _ in range(3):
            it.cycle()
        it.world.commit("a", 15)
        it.cycle()
        it.world.commit("a", 10)  # an operator sets it back
        it.cycle()
        it.confirm()
        it.cycle()
        (seen,) = it.world.groups.observed(GROUP, ClusterName("aggregate-a"))
        assert seen.next_offset == 10

    def test_a_report_that_no_commit_follows_counts_no_longer_than_it_should(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = consuming(bench, 10, cycles=3)
        reported_at_ms = report(it, 15)
        while it.world.groups.observed(GROUP, ClusterName("aggregate-a"))[0].next_offset == 15:
            it.cycle()
        assert it.world.now_ms - reported_at_ms <= REPORT_COUNTS_MS + 1_000

    def test_reports_go_on_while_the_cluster_is_away(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 10, cycles=1)
        report(it, 12)
        it.writer("a").away = True
        for _ in range(3):
            it.cycle()
        report(it, 18)
        assert it.decision("b").offset == 8

    def test_topics_that_are_left_out_do_not_matter(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 15)
        left_out = TopicPartition(TopicName("__internal"), 0)
        for offset in range(6):
            it.writer("a").commits[GROUP][left_out] = GroupCommit(TargetOffset(offset), -1, "")
            it.cycle()
        assert len(it.asked) == 2

    def test_a_group_without_an_answer_is_asked_about_in_every_cycle(
        self, bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        it = consuming(bench, 15, cycles=1).apart()

        def silent(*_: object) -> Mapping[TopicPartition, ResumeAnswer]:
            it.asked.append((ClusterName("aggregate-a"), ClusterName("aggregate-b")))
            raise ServiceUnavailableError("no offset service answered")

        monkeypatch.setattr(it.syncer, "_ask", silent)
        for asked in (2, 3, 4):
            assert it.decision("b").reason is Reason.NO_ANSWER
            assert len(it.asked) == asked

    def test_a_group_that_somebody_joins_is_looked_at_at_once(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 15, cycles=3)
        it.writer("b").members[GROUP] = 1
        assert it.decision("b").reason is Reason.ACTIVE_AT_TARGET
        assert len(it.asked) == 3

    def test_a_group_that_goes_on_is_asked_about_at_once(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 15, cycles=1)
        it.world.commit("a", 20)
        decision = it.decision("b")
        assert (decision.reason, decision.offset) == (Reason.PUBLISHED, 20)
        assert len(it.asked) == 2

    def test_a_group_is_asked_about_until_all_that_it_consumed_has_arrived(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = bench()
        it.world.copy("a", "a", 10)
        it.world.copy("b", "a", 10)
        it.world.copy("b", "b", 10)
        it.world.watermarks()
        it.world.commit("a", 15)
        for asked in (1, 2, 3):
            it.cycle()
            assert len(it.asked) == asked
        it.world.copy("a", "b", 10)
        it.world.watermarks()
        for _ in range(3):
            it.cycle()
        assert len(it.asked) == 5

    def test_an_answer_about_a_commit_that_the_cycle_did_not_see_does_not_outlive_it(
        self, bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        it = consuming(bench, 15)
        real = it.syncer._ask

        def ask(
            group: GroupName, pair: Pair, topics: Sequence[TopicName]
        ) -> Mapping[TopicPartition, ResumeAnswer]:
            it.world.commit("a", 20)
            answers = real(group, pair, topics)
            it.world.commit("a", 15)  # set back by an operator
            return answers

        with monkeypatch.context() as patched:
            patched.setattr(it.syncer, "_ask", ask)
            it.cycle()
        it.cycle()
        assert len(it.asked) == 2

    def test_a_topic_made_anew_at_the_target_is_asked_about_at_once(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = consuming(bench, 15, cycles=1).apart()
        it.writer("b").infos[TOPIC] = replace(it.writer("b").infos[TOPIC], topic_id=TopicId("another"))
        it.cycle()
        assert it.asked.count((ClusterName("aggregate-a"), ClusterName("aggregate-b"))) == 2


class TestFaults:
    def test_a_dead_clusters_last_known_commits_are_used(self, bench: Callable[..., Bench]) -> None:
        it = bench("a", "b", "c")
        for target in "abc":
            it.world.copy("a", target, 10)
        it.world.watermarks()
        it.world.commit("a", 4)
        it.cycle()
        it.writer("a").away = True
        it.writer("c").commits.clear()
        it.cycle()
        it.confirm()
        report = it.cycle()
        assert report.away == ("aggregate-a",)
        assert only(report, "c").offset == 4
        assert it.commit("c").next_offset == 4  # type: ignore[union-attr]

    def test_a_dead_target_does_not_stop_the_others_and_is_served_when_it_returns(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = bench("a", "b", "c")
        for target in "abc":
            it.world.copy("a", target, 10)
        it.world.watermarks()
        it.world.commit("a", 4)
        it.writer("b").away = True
        report = it.cycle()
        assert only(report, "b").reason is Reason.TARGET_AWAY
        assert it.commit("c").next_offset == 4  # type: ignore[union-attr]
        it.writer("b").away = False

        def published() -> bool:  # the cluster is asked again in the background
            it.cycle()
            return it.commit("b") is not None

        poll_until(published, 5, "the cluster that returned gets its offsets")
        assert it.commit("b").next_offset == 4  # type: ignore[union-attr]

    def test_a_target_whose_reading_takes_long_is_served_by_what_two_readings_have_seen(
        self, bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        it = consuming(partial(bench, timeout_ms=200), 12, cycles=3)
        published = it.commit("b")
        assert published is not None
        target, at_once = it.writer("b"), it.writer("b").groups

        def late(*chosen: Any, **options: Any) -> Sequence[GroupState]:
            time.sleep(0.3)  # one and a half times as long as a cycle waits
            return at_once(*chosen, **options)

        monkeypatch.setattr(target, "groups", late)
        it.world.commit("a", 14)

        def follows() -> bool:
            it.cycle()
            commit = it.commit("b")
            return commit is not None and commit.next_offset > published.next_offset

        poll_until(follows, 10, "the slow cluster gets the newer offset")

    def test_a_reading_that_fails_in_an_unknown_way_is_made_again(
        self, bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        it = consuming(bench, 12, cycles=3)
        with monkeypatch.context() as broken:
            broken.setattr(it.writer("b"), "groups", lambda *_, **_options: {}["no such key"])
            assert it.cycle().away == ("aggregate-b",)
        poll_until(lambda: it.cycle().away == (), 5, "the cluster is read again")

    def test_the_group_goes_on_elsewhere_and_the_dead_cluster_returns(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = consuming(bench, 15, cycles=1)
        it.writer("a").away = True
        it.world.commit("b", 8)
        assert it.cycle().moves == 1
        assert it.decision("a").reason is Reason.TARGET_AWAY
        it.writer("a").away = False

        def published() -> bool:  # the service too asks the cluster again after a while
            it.cycle()
            commit = it.commit("a")
            return commit is not None and commit.next_offset == 18

        poll_until(published, 5, "the cluster that returned gets its offsets")

    def test_one_group_that_can_not_be_served_does_not_stop_the_others(
        self, bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        it = consuming(bench, 15)
        broken = GroupName("a-broken-one")
        it.writer("a").commits[broken] = {P0: GroupCommit(TargetOffset(3), -1, "")}
        published = it.world.groups.published

        def fail(group: GroupName, cluster: ClusterName) -> object:
            if group == broken:
                raise StoreUnavailableError("away")
            return published(group, cluster)

        monkeypatch.setattr(it.world.groups, "published", fail)
        report = it.cycle()
        assert report.failures == {broken: "[STORE_UNAVAILABLE] away"}
        assert only(report, "b").reason is Reason.PUBLISHED

    def test_a_fallback_to_the_log_start_does_not_replace_a_better_offset(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = consuming(bench, 15, cycles=1)
        it.world.index.__init__()  # type: ignore[misc]  # the index was lost
        it.world.now_ms += HOLDS_ALONE_MS
        decision = it.decision("b")
        assert (decision.reason, decision.offset) == (Reason.KEPT_BETTER, 5)
        assert it.commit("b").next_offset == 5  # type: ignore[union-attr]

    def test_a_topic_that_the_target_lacks_is_said(self, bench: Callable[..., Bench]) -> None:
        it = bench()
        it.world.commit("a", 0)
        del it.writer("b").infos[TOPIC]
        report = it.cycle()
        assert [item.reason for item in report.decisions] == [Reason.NO_ANSWER]
        assert it.writer("b").written == []

    def test_a_recreated_target_topic_gets_new_offsets(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 15, cycles=1)
        del it.writer("b").commits[GROUP]  # Kafka deletes offsets with the topic
        it.world.create_topic("b", generation="2")
        it.world.copy("a", "b", 10)
        it.world.watermarks()
        decision = it.decision("b")
        assert decision.reason is Reason.PUBLISHED
        told = it.world.groups.published(GROUP, ClusterName("aggregate-b"))
        assert [item.progress.topic_id for item in told] == ["aggregate-b-2"]


def decide_primary(world: World, change: Change, decided_in: str = "a") -> None:
    site = Site(frozenset(world.regions), frozenset(world.clusters), RegionName(decided_in))
    log = world.primaries.read_log(change.group, Reach.HERE)
    decision = decide(change, log.decisions, site, world.now_ms)
    assert world.primaries.append(decision, log=log, reach=Reach.HERE)


def move(it: Bench, origin: str, target: str) -> None:
    """What a failover leaves: offsets at the target, and the move recorded."""
    with it.world.service() as service:
        request = FailoverRequest(
            GROUP, ClusterName(f"aggregate-{origin}"), ClusterName(f"aggregate-{target}")
        )
        (found,) = service.failover.answers(request, Deadline.after_ms(10_000), record_move=True)
    (answer,) = answers_from_pb(group_to_pb([found])).values()
    it.writer(target).commits.setdefault(GROUP, {})[P0] = answer.commit()


class TestPrimaries:
    def test_progress_on_both_sides_goes_by_the_recorded_primary(self, bench: Callable[..., Bench]) -> None:
        it = bench()
        two_sources(it.world)
        it.world.commit("a", 7)  # a0..6
        it.world.commit("b", 7)  # b0..6
        it.cycle()
        assert it.decision("b").reason is Reason.DUAL_ACTIVE
        decide_primary(it.world, Change(GROUP, RegionName("a")))
        decision = it.decision("b")
        assert (decision.reason, decision.origin, decision.offset) == (
            Reason.PUBLISHED,
            "aggregate-a",
            0,
        )
        assert it.commit("a").next_offset == 7  # type: ignore[union-attr]

    def test_a_move_is_followed_at_once_and_its_way_back_is_exact(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 15, cycles=1)
        move(it, "a", "b")
        decide_primary(it.world, Change(GROUP, RegionName("b")))
        it.cycle()
        decision = it.decision("a")
        assert decision.origin == "aggregate-b"
        assert it.commit("a").next_offset == 15  # type: ignore[union-attr]
        assert it.commit("b").next_offset == 5  # type: ignore[union-attr]

    def test_a_stale_client_at_the_former_primary_is_never_taken_for_the_truth(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = consuming(bench, 15, cycles=1)
        move(it, "a", "b")
        decide_primary(it.world, Change(GROUP, RegionName("b")))
        it.cycle()
        it.world.commit("a", 18)
        assert it.decision("a").reason is Reason.ACTIVE_AT_TARGET
        it.cycle()
        assert it.commit("a").next_offset == 15  # type: ignore[union-attr]
        assert it.commit("b").next_offset == 5  # type: ignore[union-attr]
        assert it.world.groups.progress(GROUP, TOPIC)[0].cluster == "aggregate-b"

    def test_a_primary_that_has_not_begun_publishes_nothing(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 15, cycles=1)
        decide_primary(it.world, Change(GROUP, RegionName("b")))
        it.asked.clear()
        assert it.decision("a").reason is Reason.UNBEGUN
        assert it.asked == []
        assert it.commit("a").next_offset == 15  # type: ignore[union-attr]

    def test_a_group_that_goes_on_elsewhere_is_told_to_somebody(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 15, cycles=1)
        decide_primary(it.world, Change(GROUP, RegionName("b")))
        it.writer("a").members[GROUP] = 1
        report = it.cycle()
        found = [only(report, "a"), only(report, "b")]
        assert {(item.reason, item.outcome, item.origin) for item in found} == {
            (Reason.ACTIVE_ELSEWHERE, Outcome.DUAL_ACTIVE, "aggregate-a")
        }
        it.writer("a").members.clear()
        assert it.decision("b").reason is Reason.UNBEGUN
        it.world.commit("a", 17)  # without joining
        assert [it.decision("b").reason for _ in range(3)] == [Reason.ACTIVE_ELSEWHERE] * 3
        assert it.commit("b").next_offset == 5  # type: ignore[union-attr]

    def test_a_group_whose_decisions_cant_be_read_fails_alone(
        self, bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        it = consuming(bench, 15)
        it.writer("a").commits[OTHER] = dict(it.writer("a").commits[GROUP])
        monkeypatch.setattr(
            it.world.primaries,
            "decisions",
            lambda _groups: {GROUP: InvariantError("written by a newer release")},
        )
        report = it.cycle()
        assert report.failures == {GROUP: "[INVARIANT] written by a newer release"}
        assert only(report, "b", group=OTHER).reason is Reason.PUBLISHED

    def test_a_primary_without_any_commit_is_still_given_offsets(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 15)
        decide_primary(it.world, Change(GROUP, RegionName("b")))
        assert it.decision("b").reason is Reason.PUBLISHED
        assert it.commit("b").next_offset == 5  # type: ignore[union-attr]

    @pytest.mark.parametrize(
        ("changes", "reason", "outcome"),
        [
            (
                [Change(GROUP, RegionName("a"), mode=Mode.ACTIVE_ACTIVE)],
                Reason.ACTIVE_ACTIVE,
                Outcome.OK,
            ),
            (
                [
                    Change(GROUP, RegionName("a")),
                    Change(GROUP, RegionName("b"), stage=Stage.MOVING),
                ],
                Reason.MOVING,
                Outcome.OK,
            ),
        ],
    )
    def test_groups_that_nobody_publishes_for(
        self, bench: Callable[..., Bench], changes: list[Change], reason: Reason, outcome: Outcome
    ) -> None:
        it = consuming(bench, 15)
        for change in changes:
            decide_primary(it.world, change)
        decision = it.decision("b")
        assert (decision.reason, decision.outcome) == (reason, outcome)
        assert it.asked == []
        assert it.writer("a").written == it.writer("b").written == []

    def test_decisions_made_apart_stop_publishing_until_one_knows_both(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = consuming(bench, 15)
        decide_primary(it.world, Change(GROUP, RegionName("a"), disaster=True))
        other = World()
        decide_primary(other, Change(GROUP, RegionName("b"), disaster=True), "b")
        it.world.primaries.absorb(other.primaries)
        report = it.cycle()
        assert {item.reason for item in report.decisions} == {Reason.DUAL_ACTIVE}
        assert report.counts["dual_active"] == 2
        assert it.writer("b").written == []
        decide_primary(it.world, Change(GROUP, RegionName("a")))
        assert it.decision("b").reason is Reason.PUBLISHED

    def test_a_decision_during_the_cycle_stops_its_writes(self, bench: Callable[..., Bench]) -> None:
        it = consuming(bench, 15)
        read = it.world.groups.groups

        def decide_meanwhile(group: GroupName, cluster: ClusterName) -> Any:
            decide_primary(it.world, Change(GROUP, RegionName("b"), renew=True))
            return published(group, cluster)

        published = it.world.groups.published
        it.world.groups.published = decide_meanwhile  # type: ignore[method-assign] # at the right moment
        report = it.cycle()
        assert list(report.failures) == [GROUP]
        assert "decided anew" in report.failures[GROUP]
        assert it.writer("b").written == []
        assert read() == [GROUP]

    def test_decisions_that_contradict_each_other_stop_their_own_group_alone(
        self, bench: Callable[..., Bench]
    ) -> None:
        it = consuming(bench, 15)
        broken = GroupName("a-broken-one")
        it.writer("a").commits[broken] = {P0: GroupCommit(TargetOffset(3), -1, "")}
        site = Site(frozenset({RegionName("a")}), frozenset(it.world.clusters), RegionName("a"))
        made = decide(Change(broken, RegionName("a")), [], site, it.world.now_ms)
        again = replace(made, decided_in=RegionName("b"))
        it.world.primaries.decisions = lambda _groups: {broken: [made, again]}  # type: ignore[method-assign] # no store makes them
        report = it.cycle()
        assert list(report.failures) == [broken]
        assert "share a fencing number" in report.failures[broken]
        assert only(report, "b").reason is Reason.PUBLISHED


def test_groups_and_topics_are_chosen_by_configuration(bench: Callable[..., Bench]) -> None:
    it = bench()
    two_sources(it.world)
    foreign = GroupName("console-consumer-17")
    internal = TopicPartition(TopicName("parallax.runs.a"), 0)
    it.writer("a").infos[internal.topic] = TopicInfo(internal.topic, "x", 1)  # type: ignore[arg-type]
    it.writer("a").commits = {
        foreign: {P0: GroupCommit(TargetOffset(3), -1, "")},
        GROUP: {internal: GroupCommit(TargetOffset(3), -1, "")},
    }
    assert it.cycle().decisions == ()
