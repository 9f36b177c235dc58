"""Every outcome that an answer can have, and every error in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from offsetsvc.answers import Basis, FailoverAnswer
from offsetsvc.resume import plans
from offsetsvc.resume.call import FailoverRequest
from offsetsvc.resume.explain import MEANINGS, explain
from parallax.domain.commits import ObservedCommit, PublishedOffset
from parallax.domain.ids import (
    GroupName,
    RegionName,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
    aggregate_cluster,
)
from parallax.domain.index_rows import StampedRow
from parallax.domain.lineages import LineageView
from parallax.domain.outcome import Outcome
from parallax.domain.progress import Progress
from parallax.errors import (
    ClusterUnavailableError,
    DeadlineError,
    InvalidNameError,
    InvalidOffsetError,
    LimitError,
    StoreUnavailableError,
    UnknownGroupError,
    UnknownPartitionError,
    UnknownTopicError,
)
from parallax.ports.clusters import TopicInfo
from parallax.runtime.deadline import Deadline
from tests.worlds.offset_world import GROUP, NOW_MS, TOPIC, World

A, B = aggregate_cluster(RegionName("a")), aggregate_cluster(RegionName("b"))
P0 = TopicPartition(TOPIC, 0)


@pytest.fixture
def world() -> World:
    """Two sources of six records each, alike in both aggregate clusters but for the order."""
    made = World()
    for _ in range(2):
        made.copy("a", "a", 3)
        made.copy("b", "a", 3)
    for _ in range(2):
        made.copy("b", "b", 3)
        made.copy("a", "b", 3)
    made.watermarks()
    return made


def ask(world: World, next_offset: int | None = None, **options: Any) -> FailoverAnswer:
    with world.service() as service:
        return service.failover.answers(world.request("a", "b", next_offset), _deadline(), **options)[0]


def _deadline() -> Deadline:
    return Deadline.after_ms(30_000)


def test_ok_tells_both_sides(world: World) -> None:
    world.commit("a", 12)

    answer = ask(world)

    assert answer.outcome is Outcome.OK
    assert (answer.origin.next_offset, answer.origin.basis, answer.origin.lag_offsets) == (
        12,
        Basis.COMMITTED,
        0,
    )
    assert (answer.destination.next_offset, answer.destination.lag_offsets) == (12, 0)
    assert (answer.origin.indexed_to, answer.destination.indexed_to) == (12, 12)
    assert answer.complete_to is None
    assert answer.freshness_ms == 0
    assert [view.answer.consumed.source_next for view in answer.sources] == [6, 6]


def test_consumed_records_above_the_resume_offset_are_skip_ranges(world: World) -> None:
    answer = ask(world, 3)

    assert answer.resume_offset == 0
    assert answer.skip_ranges == [(3, 6)]
    assert answer.redelivery_records == 3
    assert answer.origin.basis is Basis.CALLER


def test_the_nearest_checkpoint_is_told_where_it_is_asked_for(world: World) -> None:
    request = world.request("a", "b", 9)
    with world.service() as service:
        (plain,) = service.failover.answers(request, _deadline())
        (compared,) = service.failover.answers(replace(request, nearest_checkpoint=True), _deadline())

    # Both sources' last checkpoints before 9 on a: a3 (at 9 on b) and b0 (at 0).
    assert (plain.nearest_checkpoint_offset, compared.nearest_checkpoint_offset) == (None, 0)
    assert compared._replace(nearest_checkpoint_offset=None) == plain


def test_a_position_of_the_caller_outweighs_the_commit(world: World) -> None:
    world.commit("a", 3)

    assert ask(world, 12).resume_offset == 12


def test_an_offset_beyond_the_end_is_the_end(world: World) -> None:
    answer = ask(world, 500)

    assert answer.resume_offset == 12
    assert answer.outcome is Outcome.CLAMPED_TO_END
    assert "500 lies beyond the end of aggregate-a (12)" in explain(answer)


def test_pending_names_what_is_still_to_come(world: World) -> None:
    world.copy("a", "a", 5)

    answer = ask(world, 17)

    assert answer.outcome is Outcome.PENDING
    assert answer.pending_records == 5
    assert answer.redelivery_records == 5
    assert answer.complete_to == 12
    assert "5 of source a" in explain(answer)


def test_rows_older_than_the_bound_are_stale(world: World) -> None:
    world.now_ms += world.config.service.stale_after_ms + 1

    answer = ask(world, 12)

    assert answer.outcome is Outcome.STALE
    assert answer.freshness_ms == world.config.service.stale_after_ms + 1


def test_a_source_created_anew_is_as_fresh_as_its_newer_part(world: World) -> None:
    world.recreate_source("a")
    world.now_ms += world.config.service.stale_after_ms + 1
    for target in ("a", "b"):
        world.copy("a", target, 2)
    world.watermarks()
    fresh = ask(world, 14)

    world.copy("b", "a", 2)
    world.now_ms += world.config.service.stale_after_ms + 1
    world.watermark("b", "a")
    for source in ("a", "b"):
        world.watermark(source, "b")
    behind = ask(world, 16)

    assert (Outcome.STALE in fresh.notes, fresh.freshness_ms) == (False, 0)
    assert Outcome.STALE in behind.notes  # nothing was heard of the source's newer part in a since then


def ended_long_ago(world: World, how: str) -> FailoverAnswer:
    """The answer after lineages of one side ended, and those that followed them are fresh."""
    match how:
        case "the origin's tail was lost":
            world.lose_tail("a", 10)
        case "the destination's tail was lost":
            world.lose_tail("b", 10)
        case "the source was created anew":
            world.recreate_source("a")
    world.now_ms += 10 * world.config.service.stale_after_ms
    world.watermarks()
    return ask(world, 8)


ENDED = ["the origin's tail was lost", "the destination's tail was lost", "the source was created anew"]


@pytest.mark.parametrize("how", ENDED)
def test_a_lineage_that_another_one_follows_makes_no_answer_stale(world: World, how: str) -> None:
    answer = ended_long_ago(world, how)
    assert (Outcome.STALE in answer.notes, answer.freshness_ms) == (False, 0)


@pytest.mark.parametrize("how", ENDED[1:])
def test_the_age_of_every_lineage_would_make_it_stale(
    world: World, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def oldest(views: Sequence[LineageView]) -> dict[RegionName, StampedRow]:
        rows = [(view.source.region, view.newest) for view in views if view.newest is not None]
        return dict(sorted(rows, key=lambda item: -item[1].committed_at_ms))

    monkeypatch.setattr(plans, "_newest", oldest)
    assert Outcome.STALE in ended_long_ago(world, how).notes


def test_a_dead_origin_is_not_stale_by_itself(world: World) -> None:
    world.now_ms += world.config.service.stale_after_ms + 1
    for source in ("a", "b"):
        world.watermark(source, "b")

    assert Outcome.STALE not in ask(world, 12).notes


def test_without_a_commit_the_policy_is_the_log_start(world: World) -> None:
    world.trim("b", 2)
    world.groups.save_observed([_observed(world, 5, topic="other")])

    answer = ask(world)

    assert answer.outcome is Outcome.NO_COMMIT
    assert (answer.resume_offset, list(answer.skip_ranges), answer.redelivery_records) == (2, [], 0)
    assert (answer.origin.next_offset, answer.origin.basis) == (None, Basis.POLICY)


def test_without_a_commit_the_policy_may_be_the_end() -> None:
    world = World(sync={"no_commit": "latest"})
    for target in ("a", "b"):
        world.copy("a", target, 4)
        world.watermark("b", target)
    world.groups.save_observed([_observed(world, 5, topic="other")])

    answer = ask(world)

    assert (answer.outcome, answer.resume_offset) == (Outcome.NO_COMMIT, 4)


def test_a_commit_below_the_last_move_is_a_rewind(world: World) -> None:
    first = _move(world, "b", "a", 12)
    assert first.resume_offset == 12

    answer = ask(world, 3)

    assert answer.outcome is Outcome.REWOUND
    assert answer.resume_offset == 0


def test_progress_of_an_earlier_incarnation_is_void(world: World) -> None:
    world.groups.save_progress(
        GROUP,
        TOPIC,
        {0: Progress(A, TopicId("former"), TargetOffset(500), {})},
        moved_at_ms=NOW_MS,
    )

    assert Outcome.REWOUND not in ask(world, 12).notes


def test_a_target_created_anew_voids_its_lineages(world: World) -> None:
    world.clusters[B].infos[TOPIC] = TopicInfo(TOPIC, TopicId("aggregate-b-2"), 1)

    answer = ask(world, 12)

    assert {Outcome.LINEAGE_CHANGED, Outcome.EARLIEST_FALLBACK} <= set(answer.notes)
    assert answer.resume_offset == 0
    assert answer.destination.topic_id == "aggregate-b-2"


def test_a_source_without_rows_counts_from_the_log_start() -> None:
    world = World()
    world.copy("a", "a", 4)
    world.marker("b")
    world.copy("a", "b", 4)

    answer = ask(world, 4)

    assert answer.outcome is Outcome.EARLIEST_FALLBACK
    assert answer.resume_offset == 0
    assert "source b" in explain(answer)
    assert answer.destination.indexed_to is None


def test_records_that_retention_took_are_trimmed(world: World) -> None:
    world.trim("b", 9)

    answer = ask(world, 3)

    assert answer.outcome is Outcome.TRIMMED
    assert answer.resume_offset == 9


def test_a_lost_range_that_the_move_crosses_is_told() -> None:
    world = World()
    for target in ("a", "b"):
        world.copy("a", target, 4)
        world.copy("b", target, 4)
    world.copy("a", "a", 3)
    world.lose("a", "b", 3)
    world.copy("a", "b", 2)
    world.watermarks()

    answer = ask(world, 8)

    assert answer.outcome is Outcome.NEVER_DELIVERED
    assert "a [4, 7)" in explain(answer)


def test_an_origin_away_leaves_what_was_seen_last(world: World) -> None:
    world.groups.save_observed([_observed(world, 12)])
    world.cluster("a").away = True

    answer = ask(world)

    assert answer.outcome is Outcome.UNREACHABLE
    assert answer.resume_offset == 12
    assert (answer.origin.basis, answer.origin.observed_at_ms, answer.origin.log) == (
        Basis.OBSERVED,
        NOW_MS,
        None,
    )
    assert "position seen last" in explain(answer)


def test_an_origin_away_and_an_old_position_is_stale_too(world: World) -> None:
    world.groups.save_observed([_observed(world, 12)])
    world.cluster("a").away = True
    world.now_ms += world.config.service.stale_after_ms + 1
    for source in ("a", "b"):
        world.watermark(source, "b")

    assert {Outcome.UNREACHABLE, Outcome.STALE} <= set(ask(world).notes)


def test_an_origin_away_leaves_what_was_last_published_elsewhere(world: World) -> None:
    progress = Progress(B, TopicId("aggregate-b-1"), TargetOffset(6), {})
    world.groups.save_observed([replace(_observed(world, 5), observed_at_ms=NOW_MS - 1)])
    world.groups.save_published(
        [PublishedOffset(GROUP, P0, progress, A, TargetOffset(6), Outcome.OK, NOW_MS)]
    )
    world.cluster("a").away = True

    answer = ask(world)

    assert (answer.origin.next_offset, answer.origin.basis) == (6, Basis.OBSERVED)
    assert answer.resume_offset == 6


def test_an_origin_away_whose_topic_was_made_anew_leaves_nothing_that_was_seen_of_the_old_one() -> None:
    world = World()
    for target in ("a", "b"):
        world.copy("a", target, 10)
    world.watermarks()
    progress = Progress(B, TopicId("aggregate-b-1"), TargetOffset(8), {})
    world.groups.save_observed([_observed(world, 8)])
    world.groups.save_published(
        [PublishedOffset(GROUP, P0, progress, A, TargetOffset(8), Outcome.OK, world.now_ms + 40)]
    )
    world.create_topic("a", generation="2")
    world.copy("b", "a", 10)
    world.copy("b", "b", 10)
    world.watermarks()
    world.cluster("a").away = True
    world.now_ms += 1_000

    answer = ask(world)

    assert (answer.origin.next_offset, answer.origin.basis) == (None, Basis.POLICY)
    assert not answer.skip_ranges


def test_an_origin_away_where_the_group_had_no_commit_leaves_the_policy() -> None:
    world = World(sync={"no_commit": "latest"})
    for target in ("a", "b"):
        world.copy("a", target, 10)
    world.watermarks()
    progress = Progress(B, TopicId("aggregate-b-1"), TargetOffset(10), {})
    published = PublishedOffset(GROUP, P0, progress, A, None, Outcome.NO_COMMIT, world.now_ms)
    world.groups.save_published([published])
    world.cluster("a").away = True

    with world.service() as service:
        request = replace(world.request("a", "b"), topics=(TOPIC,))
        (answer,) = service.failover.answers(request, _deadline())

    assert (answer.resume_offset, answer.origin.basis) == (10, Basis.POLICY)


def test_an_origin_away_and_an_unknown_group_need_a_position(world: World) -> None:
    world.cluster("a").away = True

    with pytest.raises(ClusterUnavailableError, match="next_offset"):
        ask(world)
    assert ask(world, 12).resume_offset == 12


@pytest.mark.parametrize("region", ["a", "b"])
def test_a_partition_without_a_leader_is_away_though_its_cluster_is_not(world: World, region: str) -> None:
    world.commit("a", 3)
    away = ask(world, 3) if region == "a" else None
    log = world.cluster(region).ranges.pop(P0)
    answer = ask(world)

    assert answer.outcome is Outcome.UNREACHABLE
    assert (answer.origin.log if region == "a" else answer.destination.log) is None
    assert (answer.origin.next_offset, answer.origin.basis) == (3, Basis.COMMITTED)
    assert f"aggregate-{region} could not be asked" in explain(answer)
    assert ("commit was not held against" in explain(answer)) == (region == "a")
    assert away is None or answer.resume_offset == away.resume_offset
    world.cluster(region).ranges[P0] = log
    assert Outcome.UNREACHABLE not in ask(world).notes


def test_nothing_is_said_of_a_partition_without_a_leader_that_the_index_does_not_know() -> None:
    world, topic = World(), TopicName("fresh")
    for cluster in (A, B):
        world.clusters[cluster].infos[topic] = TopicInfo(topic, TopicId("f"), 1)
    item = TopicPartition(topic, 0)

    problem = "aggregate-b: no leader for fresh-0; and the index knows nothing of fresh-0"
    with world.service() as service, pytest.raises(ClusterUnavailableError, match=problem):
        service.failover.answers(
            FailoverRequest(GROUP, A, B, {item: TargetOffset(0)}, only=item), _deadline()
        )


def test_a_destination_away_is_answered_from_the_index(world: World) -> None:
    world.cluster("b").away = True

    answer = ask(world, 3)

    assert answer.outcome is Outcome.UNREACHABLE
    assert (answer.resume_offset, answer.destination.log, answer.destination.topic_id) == (
        0,
        None,
        "aggregate-b-1",
    )
    assert "not held against the log's start and end" in explain(answer)


def test_a_destination_away_that_the_index_does_not_know_is_an_error() -> None:
    world = World()
    world.cluster("b").away = True
    world.clusters[A].infos[TopicName("fresh")] = TopicInfo(TopicName("fresh"), TopicId("f"), 1)
    item = TopicPartition(TopicName("fresh"), 0)

    with world.service() as service, pytest.raises(ClusterUnavailableError, match="knows nothing of fresh-0"):
        service.failover.answers(
            FailoverRequest(GROUP, A, B, {item: TargetOffset(0)}, only=item), _deadline()
        )


def test_after_a_failure_a_cluster_is_left_alone_for_a_moment(world: World) -> None:
    world.cluster("b").away = True
    with world.service() as service:
        for _ in range(5):
            service.failover.answers(world.request("a", "b", 3), _deadline())

    assert world.cluster("b").asked == 1


def test_different_partition_counts_are_a_mismatch(world: World) -> None:
    world.clusters[A].infos[TOPIC] = replace(world.clusters[A].infos[TOPIC], partitions=2)

    answer = ask(world, 12)
    with world.service() as service:
        beyond = service.failover.answers(world.request("a", "b", 4, partition=1), _deadline())[0]

    assert (answer.outcome, answer.resume_offset) == (Outcome.PARTITION_MISMATCH, 12)
    assert (beyond.outcome, beyond.resume_offset) == (Outcome.PARTITION_MISMATCH, 0)
    assert beyond.destination.log is None


def test_a_topic_that_the_dead_cluster_alone_had_keeps_no_other_one_from_being_answered(world: World) -> None:
    local = TopicPartition(TopicName("local"), 0)
    world.groups.save_observed(
        [
            ObservedCommit(GROUP, A, item, TopicId(topic_id), TargetOffset(1), -1, world.now_ms)
            for item, topic_id in ((P0, "aggregate-a-1"), (local, "l"))
        ]
    )
    world.clusters[A].away = True
    with world.service() as service:
        with capture_logs() as logs:
            (answer,) = service.failover.answers(FailoverRequest(GROUP, A, B), _deadline())
        assert answer.topic_partition == P0
        assert [line["topics"] for line in logs if line["event"] == "topics_left_out"] == [["local"]]
        named = {local: TargetOffset(1)}
        for request in (
            FailoverRequest(GROUP, A, B, topics=(local.topic,)),
            FailoverRequest(GROUP, A, B, positions=named),
            FailoverRequest(GROUP, A, B, positions=named, only=local),
        ):
            with pytest.raises(UnknownTopicError, match="'local'"):
                service.failover.answers(request, _deadline())
    world.clusters[B].away = True  # it may have the topic
    with world.service() as service, pytest.raises(UnknownTopicError, match="'local'"):
        service.failover.answers(FailoverRequest(GROUP, A, B), _deadline())


def test_unknown_names_are_errors_that_say_what_is_known(world: World) -> None:
    world.commit("a", 1)
    with world.service() as service:
        with pytest.raises(UnknownGroupError, match="'nobody'"):
            service.failover.answers(FailoverRequest(GroupName("nobody"), A, B, only=P0), _deadline())
        with pytest.raises(UnknownPartitionError, match="it has 1"):
            service.failover.answers(world.request("a", "b", 0, partition=7), _deadline())
        item = TopicPartition(TopicName("tripz"), 0)
        with pytest.raises(UnknownTopicError, match="topics there: trips"):
            service.failover.answers(FailoverRequest(GROUP, A, B, only=item), _deadline())
        with pytest.raises(UnknownTopicError, match="'tripz'"):
            service.failover.answers(FailoverRequest(GROUP, A, B, topics=(TopicName("tripz"),)), _deadline())
        with pytest.raises(InvalidOffsetError, match="negative"):
            service.failover.answers(world.request("a", "b", -1), _deadline())
        with pytest.raises(InvalidNameError, match="same cluster"):
            service.failover.answers(world.request("a", "a", 1), _deadline())


def test_more_partitions_than_the_limit_are_refused() -> None:
    world = World(partitions=3, service={"max_partitions_per_call": 2})
    world.commit("a", 0)

    with world.service() as service, pytest.raises(LimitError, match="max_partitions_per_call"):
        service.failover.answers(FailoverRequest(GROUP, A, B), _deadline())


def test_a_deadline_that_has_passed_is_an_error(world: World) -> None:
    with world.service() as service, pytest.raises(DeadlineError):
        service.failover.answers(world.request("a", "b", 1), Deadline.after_ms(0))


def test_a_store_that_is_away_is_an_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise StoreUnavailableError("Cassandra did not answer")

    monkeypatch.setattr(world.index, "lineages", away)

    with pytest.raises(StoreUnavailableError):
        ask(world, 12)


def test_a_group_is_answered_on_every_partition_of_its_topics() -> None:
    world = World(partitions=3)
    for partition in range(3):
        for target in ("a", "b"):
            world.copy("a", target, 4 + partition, partition)
            world.watermark("b", target, partition)
    world.commit("a", 4, partition=0)
    world.commit("a", 6, partition=2)

    with world.service() as service:
        answers = service.failover.answers(FailoverRequest(GROUP, A, B), _deadline())

    assert [(item.topic_partition.partition, item.resume_offset, item.outcome) for item in answers] == [
        (0, 4, Outcome.OK),
        (1, 0, Outcome.NO_COMMIT),
        (2, 6, Outcome.OK),
    ]


def test_a_group_call_reads_the_lineages_of_a_topic_once_whatever_the_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(partitions=20)
    world.commit("a", 0)
    read: list[object] = []
    lineages = world.index.lineages
    monkeypatch.setattr(world.index, "lineages", lambda *key: (read.append(key), lineages(*key))[1])

    with world.service() as service:
        answers = service.failover.answers(FailoverRequest(GROUP, A, B), _deadline())

    assert len(answers) == 20
    assert len(read) == 4  # two routes into each cluster
    assert world.cluster("a").asked + world.cluster("b").asked == 5  # topics and ends of both, commits of one


def test_a_recorded_move_is_the_groups_progress(world: World) -> None:
    answer = _move(world, "a", "b", 3)

    stored = world.groups.progress(GROUP, TOPIC)[0]
    assert (stored.cluster, stored.topic_id, stored.resume_offset) == (
        B,
        "aggregate-b-1",
        answer.resume_offset,
    )
    assert stored.positions == answer.progress


def test_a_target_that_lost_its_tail_counts_up_to_the_cut(world: World) -> None:
    """Offsets 8 to 12 of the origin were given twice: a commit among them is in doubt, and counts as the cut."""
    world.lose_tail("a", 8)
    world.copy("b", "a", 6)

    answer = ask(world, 10)

    assert Outcome.LINEAGE_CHANGED in answer.notes
    assert {view.answer.source.region: view.answer.consumed.source_next for view in answer.sources} == {
        "a": 5,
        "b": 3,
    }


@pytest.mark.parametrize(
    ("next_offset", "leader_epoch", "consumed"),
    [
        (
            13,
            4,
            {"a": 5, "b": 3},
        ),  # made before the loss, of a record that is gone: nobody can say by its offset
        (13, 5, {"a": 5, "b": 8}),  # made after it
        (10, 5, {"a": 5, "b": 5}),
        (13, -1, {"a": 5, "b": 8}),  # above all that there was before: made after it
        (10, -1, {"a": 5, "b": 3}),  # in doubt
    ],
)
def test_a_commits_leader_epoch_says_on_which_side_of_a_loss_it_was_made(
    world: World, next_offset: int, leader_epoch: int, consumed: dict[str, int]
) -> None:
    world.lose_tail("a", 8, lost_epoch=5)
    world.copy("b", "a", 6)
    world.commit("a", next_offset, leader_epoch=leader_epoch)

    answer = ask(world)

    assert (Outcome.LINEAGE_CHANGED in answer.notes) == (consumed["b"] == 3)
    assert {
        view.answer.source.region: view.answer.consumed.source_next for view in answer.sources
    } == consumed


def test_every_outcome_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Outcome)


@pytest.mark.parametrize("outcome", list(Outcome), ids=lambda outcome: outcome.name)
def test_every_meaning_is_a_sentence(outcome: Outcome, world: World) -> None:
    sentence = MEANINGS[outcome](ask(world, 3))

    assert sentence[0].isupper()
    assert sentence.endswith(".")


def test_positions_are_shown_with_what_was_published(world: World) -> None:
    world.commit("a", 7)
    progress = Progress(B, TopicId("aggregate-b-1"), TargetOffset(6), {})
    world.groups.save_published(
        [PublishedOffset(GROUP, P0, progress, A, TargetOffset(6), Outcome.OK, NOW_MS)]
    )
    with world.service() as service:
        here, there = service.positions.show(GROUP).clusters
        with pytest.raises(UnknownGroupError):
            service.positions.show(GroupName("nobody"))

    assert [(item.next_offset, item.basis) for item in here.positions] == [(7, "committed")]
    assert [(item.HasField("next_offset"), item.published_offset) for item in there.positions] == [(False, 6)]


def test_readiness_says_what_is_missing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with world.service() as service:
        assert service.missing() == {}
        world.cluster("a").away = True
        monkeypatch.setattr(world.index, "topics", _raise_store_away)
        assert set(service.missing()) == {"store", "aggregate-a"}


def _raise_store_away(*_: object) -> None:
    raise StoreUnavailableError("Cassandra did not answer")


def _move(world: World, origin: str, target: str, commit: int) -> FailoverAnswer:
    with world.service() as service:
        request = world.request(origin, target, commit)
        return service.failover.answers(request, _deadline(), record_move=True)[0]


def _observed(world: World, next_offset: int, *, topic: str = TOPIC) -> ObservedCommit:
    return ObservedCommit(
        GROUP,
        A,
        TopicPartition(TopicName(topic), 0),
        TopicId("aggregate-a-1"),
        TargetOffset(next_offset),
        -1,
        world.now_ms,
    )
