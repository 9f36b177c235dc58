"""`parallax verify` over moves made by the real executor in a world whose every record is known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from parallax.domain.commits import GroupCommit, ObservedCommit
from parallax.domain.consumption import ConsumptionKind
from parallax.domain.ids import ClusterName, GroupName, SourceOffset, TargetOffset, TopicId, TopicPartition
from parallax.domain.metadata import CommittedMetadata, encode
from parallax.errors import NotFoundError, StoreUnavailableError
from parallax.failover.facts import MoveKind
from parallax.failover.journal import Step
from parallax.failover.plan import Ending
from parallax.failover.verify.verdict import Consumers, GroupVerdict, PartitionVerdict, Verdict
from tests.memory.index import MemoryMappingIndex
from tests.worlds.failover_bench import P0, Bench, failover_bench, two_sources, unnoted
from tests.worlds.offset_world import GROUP, TOPIC

ON_A, ON_B = ClusterName("aggregate-a"), ClusterName("aggregate-b")
P1 = TopicPartition(TOPIC, 1)


@pytest.fixture
def bench() -> Iterator[Bench]:
    """The group has consumed a0..9 and b0..4 on a, and was moved to b at 5, where a0..9 are to be skipped."""
    with failover_bench() as made:
        two_sources(made.world)
        made.world.commit("a", 15)
        assert made.move("a", "b", drain_ms=1_000).ending is Ending.MOVED
        yield made


def verified(bench: Bench, consumers: Consumers = Consumers.AUTO, moves: int = 1) -> GroupVerdict:
    return bench.verifier().verify(GROUP, moves=moves, consumers=consumers)


def ranges(found: GroupVerdict, region: str, kind: ConsumptionKind) -> list[tuple[int, int | None]]:
    (partition,) = found.partitions
    (source,) = (item for item in partition.sources if item.source.region == region)
    assert source.tally is not None
    return [(item.start, item.end) for item in source.tally.ranges.get(kind, ())]


def test_a_group_that_skips_consumed_every_record_once(bench: Bench) -> None:
    bench.world.commit("b", 20)
    found = verified(bench, Consumers.FAILOVER)
    assert found.verdict is Verdict.ONCE
    assert ranges(found, "b", ConsumptionKind.ONCE) == [(5, 10)]
    assert found.records(ConsumptionKind.TWICE) == 0


def test_a_plain_group_read_again_what_the_plan_foretold(bench: Bench) -> None:
    bench.world.commit("b", 20)
    found = verified(bench, Consumers.PLAIN)
    assert found.verdict is Verdict.TWICE
    assert ranges(found, "a", ConsumptionKind.TWICE) == [(0, 10)]
    assert ranges(found, "b", ConsumptionKind.ONCE) == [(5, 10)]


def test_who_skips_is_told_by_reports_or_left_open(bench: Bench) -> None:
    bench.world.commit("b", 20)
    assert verified(bench).verdict is Verdict.UNKNOWN
    assert "say --consumers" in verified(bench).partitions[0].notes[0]

    report(bench, 20)
    found = verified(bench)
    assert (found.verdict, found.consumers) == (Verdict.ONCE, Consumers.FAILOVER)


def report(bench: Bench, offset: int) -> None:
    topic_id = bench.writer("b").infos[TOPIC].topic_id
    seen = ObservedCommit(
        GROUP, ON_B, P0, topic_id, TargetOffset(offset), -1, bench.world.now_ms, reported=True
    )
    bench.world.groups.save_observed([seen])


def test_a_report_counts_where_it_is_ahead_of_the_commit(bench: Bench) -> None:
    bench.world.commit("b", 6)
    report(bench, 8)
    assert ranges(verified(bench), "b", ConsumptionKind.ONCE) == [(5, 8)]


def test_what_was_consumed_before_and_is_still_to_come_is_told(bench: Bench) -> None:
    bench.world.commit("b", 12)
    found = verified(bench, Consumers.PLAIN)
    (partition,) = found.partitions
    assert {item.source.region: item.ahead_records for item in partition.sources} == {"a": 8, "b": 0}
    assert ranges(found, "a", ConsumptionKind.TWICE) == [(0, 2)]


def test_a_resume_offset_that_was_too_late_shows_as_never(bench: Bench) -> None:
    (record,) = bench.outside.journal.records(GROUP)
    mark = replace(record.written[P0], next_offset=TargetOffset(8))
    bench.outside.journal.keep(replace(record, written={P0: mark}))
    bench.world.commit("b", 20)
    found = verified(bench, Consumers.FAILOVER)
    assert found.verdict is Verdict.NEVER
    assert ranges(found, "b", ConsumptionKind.NEVER) == [(5, 8)]


def test_a_skip_of_something_unconsumed_shows_as_never(bench: Bench) -> None:
    bench.world.commit("b", 20)
    (stored,) = bench.world.groups.progress(GROUP, TOPIC).values()
    further = {
        source: replace(position, source_next=SourceOffset(7), epoch_ends=())
        for source, position in stored.positions.items()
    }
    bench.world.groups.save_progress(
        GROUP, TOPIC, {0: replace(stored, positions=further)}, moved_at_ms=bench.world.now_ms + 1
    )
    found = verified(bench, Consumers.FAILOVER)
    assert found.verdict is Verdict.NEVER
    assert ranges(found, "b", ConsumptionKind.NEVER) == [(5, 7)]
    assert ranges(found, "a", ConsumptionKind.TWICE) == [(7, 10)]


def test_there_and_back(bench: Bench) -> None:
    bench.world.commit("b", 17)  # b5..9 and, skipped, a0..6
    assert bench.move("b", "a", drain_ms=1_000).ending is Ending.MOVED
    bench.world.copy("a", "a", 5)
    bench.world.watermarks()
    assert bench.commit("a") == 20
    bench.world.commit("a", 25)
    found = verified(bench, Consumers.FAILOVER, moves=2)
    assert found.verdict is Verdict.ONCE
    assert [visit.cluster for visit in found.partitions[0].visits] == [ON_A, ON_B, ON_A]
    assert ranges(found, "a", ConsumptionKind.ONCE)[-1][1] == 15


def test_what_a_straggler_consumed_at_the_cluster_that_was_left_counts(bench: Bench) -> None:
    bench.world.commit("b", 20)
    bench.world.commit("a", 18)
    found = verified(bench, Consumers.FAILOVER)
    assert found.verdict is Verdict.TWICE
    assert ranges(found, "b", ConsumptionKind.TWICE) == [(5, 8)]
    assert "somebody consumed aggregate-a after" in found.partitions[0].notes[0]


def test_a_disaster_is_judged_once_the_lost_cluster_is_back() -> None:
    with failover_bench() as bench:
        two_sources(bench.world)
        topic_id = bench.writer("a").infos[TOPIC].topic_id
        seen = ObservedCommit(GROUP, ON_A, P0, topic_id, TargetOffset(13), -1, bench.world.now_ms)
        bench.world.groups.save_observed([seen])
        bench.writer("a").away = True
        assert bench.move("a", "b", MoveKind.DISASTER).ending is Ending.MOVED
        bench.world.commit("b", 20)

        dark = verified(bench, Consumers.FAILOVER)
        assert dark.verdict is Verdict.UNKNOWN
        assert "can't be asked what was consumed there beyond 13" in dark.partitions[0].unknown[0]

        bench.writer("a").away = False
        bench.world.now_ms += 10_000
        bench.world.commit("a", 15)  # the last commit, which nobody had seen
        found = verified(bench, Consumers.FAILOVER)
        assert found.verdict is Verdict.TWICE
        assert ranges(found, "b", ConsumptionKind.TWICE) == [(3, 5)]


def test_an_index_that_lags_leaves_it_open(bench: Bench) -> None:
    bench.world.commit("b", 23)
    found = verified(bench, Consumers.FAILOVER)
    assert found.behind
    assert found.verdict is Verdict.UNKNOWN
    assert ranges(found, "a", ConsumptionKind.UNKNOWN) == [(10, None)]

    def arrive(_turn: int) -> None:
        bench.world.copy("a", "b", 3)
        bench.world.watermarks()

    bench.while_waiting = arrive
    waited = bench.verifier().verify(GROUP, consumers=Consumers.FAILOVER, wait_ms=60_000)
    assert waited.verdict is Verdict.ONCE


def test_records_that_retention_took_before_the_group_came_to_them_are_never_consumed(bench: Bench) -> None:
    bench.world.commit("b", 6)
    bench.world.trim("b", 8)
    found = verified(bench, Consumers.FAILOVER)
    assert ranges(found, "b", ConsumptionKind.NEVER) == [(6, 8)]
    assert "retention at aggregate-b" in found.partitions[0].notes[0]


def test_records_lost_before_they_were_copied_are_told(bench: Bench) -> None:
    bench.world.copy("a", "a", 3)
    bench.world.lose("a", "b", 3)
    bench.world.copy("a", "b", 2)
    bench.world.watermarks()
    bench.world.commit("b", 22)
    found = verified(bench, Consumers.FAILOVER)
    assert found.verdict is Verdict.NEVER
    assert ranges(found, "a", ConsumptionKind.LOST) == [(10, 13)]


def test_a_rewind_after_the_move_leaves_it_open(bench: Bench) -> None:
    bench.world.commit("b", 2)
    found = verified(bench, Consumers.FAILOVER)
    assert found.verdict is Verdict.UNKNOWN
    assert "was set back in aggregate-b, to 2" in found.partitions[0].unknown[0]


@pytest.mark.parametrize("consumers", [Consumers.PLAIN, Consumers.FAILOVER])
def test_a_commit_that_is_gone_leaves_it_open(bench: Bench, consumers: Consumers) -> None:
    """The move had put one there: that there is none does not say that nothing was consumed."""
    bench.world.commit("b", 20)
    bench.writer("b").commits[GROUP].clear()
    found = verified(bench, consumers)
    assert (found.verdict, found.partitions[0].visits) == (Verdict.UNKNOWN, ())
    assert "the group's commit in aggregate-b is gone" in found.partitions[0].unknown[0]
    report(bench, 18)
    bench.world.trim("b", 20)
    assert verified(bench, consumers).verdict is Verdict.UNKNOWN, "it may have read what retention took"


def test_a_topic_created_anew_or_a_log_that_lost_its_tail_leaves_it_open(bench: Bench) -> None:
    bench.world.commit("b", 20)
    bench.world.lose_tail("b", 18)
    found = verified(bench, Consumers.FAILOVER)
    assert found.verdict is Verdict.UNKNOWN
    assert "lost its tail" in found.partitions[0].sources[0].unknown[0]

    bench.world.create_topic("b", generation="2")
    anew = verified(bench, Consumers.FAILOVER)
    assert any("created anew at aggregate-b" in text for text in anew.partitions[0].unknown)


def test_a_source_that_had_no_such_topic_at_first_leaves_nothing_open() -> None:
    """A route into a has made the topic there before b's cluster had it: the route from b says that it copies none yet."""
    with failover_bench(lacking=[("b", 0)]) as bench:
        bench.world.recreate_source("b", "1")
        two_sources(bench.world)
        bench.world.commit("a", 15)
        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.MOVED
        bench.world.commit("b", 20)
        found = verified(bench, Consumers.FAILOVER)
        assert found.verdict is Verdict.ONCE
        (partition,) = found.partitions
        assert [str(item.source) for item in partition.sources] == [
            "a/regional-a-1",
            "b/regional-b-1",
        ]


def test_a_partition_that_no_source_has_leaves_nothing_open() -> None:
    """The target's topic has more partitions than those that are copied into it."""
    with failover_bench(partitions=2, lacking=[("a", 1), ("b", 1)]) as bench:
        two_sources(bench.world)
        bench.world.watermarks(1)
        bench.world.commit("a", 15)
        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.MOVED
        bench.world.commit("b", 20)
        found = verified(bench, Consumers.FAILOVER)
        assert (found.verdict, on(found, 1).sources, on(found, 1).unknown) == (Verdict.ONCE, (), ())
        bench.world.commit("b", 3, 1)  # somebody writes there himself
        found = verified(bench, Consumers.FAILOVER)
        assert found.verdict is Verdict.UNKNOWN
        assert on(found, 1).unknown == (
            "the index tells of no record of this partition at aggregate-b; the group was at 3",
        )


def test_a_partition_of_which_the_index_has_forgotten_all_is_open_and_says_so(bench: Bench) -> None:
    bench.world.commit("b", 20)
    found = replace(bench.verifier(), index=MemoryMappingIndex(8)).verify(GROUP)
    assert found.verdict is Verdict.UNKNOWN
    assert found.partitions[0].unknown == (
        "the index has no row of this partition at aggregate-a",
        "the index has no row of this partition at aggregate-b",
    )


def test_a_partition_that_is_newer_than_the_first_of_the_moves_is_counted_from_the_second_on() -> None:
    with failover_bench() as bench:
        two_sources(bench.world)
        bench.world.commit("a", 15)
        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.MOVED
        bench.world.commit("b", 20)
        bench.world.grow()
        two_sources(bench.world, (1,))
        bench.world.commit("b", 15, 1)
        assert bench.move("b", "a", drain_ms=1_000).ending is Ending.MOVED
        found = verified(bench, Consumers.FAILOVER, moves=2)
        assert found.verdict is Verdict.ONCE
        assert [visit.cluster for visit in on(found, 0).visits] == [ON_A, ON_B, ON_A]
        assert [visit.cluster for visit in on(found, 1).visits] == [ON_B, ON_A]
        bench.world.commit("a", 20, 1)
        again = on(verified(bench, Consumers.PLAIN, moves=2), 1)
        assert again == on(verified(bench, Consumers.PLAIN), 1)
        assert again.verdict is Verdict.TWICE


def test_a_dead_target_is_judged_by_what_was_seen(bench: Bench) -> None:
    bench.world.commit("b", 20)
    report(bench, 18)
    bench.writer("b").away = True
    found = verified(bench)
    assert found.verdict is Verdict.UNKNOWN
    assert "18 was seen last" in found.partitions[0].unknown[0]
    assert found.records(ConsumptionKind.TWICE) == 0


def test_a_group_that_was_never_moved_has_nothing_to_compare() -> None:
    with failover_bench() as bench:
        with pytest.raises(NotFoundError, match="nothing to compare"):
            bench.verifier().verify(GroupName("nobody"))
        two_sources(bench.world)
        bench.world.commit("a", 15)
        bench.writer("a").members[GROUP] = 1
        assert bench.move("a", "b").ending is Ending.ABANDONED
        with pytest.raises(NotFoundError):
            bench.verifier().verify(GROUP)


@contextmanager
def partly_read(policy: str) -> Iterator[Bench]:
    """A group that has committed on one of two partitions, and was moved to b: there the policy lets it begin on the other one."""
    with failover_bench(partitions=2, sync={"no_commit": policy}) as made:
        two_sources(made.world, (0, 1))
        made.world.commit("a", 15)
        assert made.move("a", "b", drain_ms=1_000).ending is Ending.MOVED
        yield made


def on(found: GroupVerdict, partition: int) -> PartitionVerdict:
    return next(item for item in found.partitions if item.topic_partition.partition == partition)


@pytest.mark.parametrize(("policy", "begins", "once"), [("earliest", 0, 20), ("latest", 20, 0)])
def test_a_partition_that_the_policy_began_was_consumed_once_from_there(
    policy: str, begins: int, once: int
) -> None:
    with partly_read(policy) as bench:
        assert bench.commit("b", 1) == begins
        bench.world.commit("b", 20)
        bench.world.commit("b", 20, 1)
        found = on(verified(bench, Consumers.FAILOVER), 1)
        assert (found.verdict, found.unknown) == (Verdict.ONCE, ())
        assert sum(source.records(ConsumptionKind.ONCE) for source in found.sources) == once
        assert f"began in aggregate-b at {begins}" in found.notes[0]
        assert verified(bench, Consumers.FAILOVER).verdict is Verdict.ONCE


def test_what_the_policy_began_is_followed_back() -> None:
    with partly_read("earliest") as bench:
        bench.world.commit("b", 20)
        bench.world.commit("b", 20, 1)
        assert bench.move("b", "a", drain_ms=1_000).ending is Ending.MOVED
        assert on(verified(bench, Consumers.FAILOVER, moves=2), 1).verdict is Verdict.ONCE
        bench.world.commit("a", 20, 1)
        found = on(verified(bench, Consumers.PLAIN, moves=2), 1)
        assert found.verdict is Verdict.ONCE
        bench.writer("a").commits[GROUP][P1] = GroupCommit(TargetOffset(5), -1, "")
        assert on(verified(bench, Consumers.PLAIN, moves=2), 1).verdict is Verdict.UNKNOWN  # it was set back


def test_what_was_committed_there_afterwards_leaves_it_open() -> None:
    with partly_read("earliest") as bench:
        bench.world.commit("b", 20)
        bench.world.commit("b", 20, 1)
        bench.world.commit("a", 7, 1)
        found = on(verified(bench, Consumers.FAILOVER), 1)
        assert found.verdict is Verdict.UNKNOWN
        assert "how far the group was in aggregate-a" in found.unknown[0]


def test_a_move_under_way_is_noted(bench: Bench) -> None:
    bench.world.commit("b", 20)
    (record,) = bench.outside.journal.records(GROUP)
    begun = bench.outside.journal.begin(record.move.reversed(), record.snapshot, record)
    bench.outside.journal.keep(replace(begun, step=Step.FENCED))
    assert "a move to aggregate-a is under way (fenced)" in verified(bench).notes[0]


def test_a_move_whose_last_note_failed_has_come_to_its_end(bench: Bench) -> None:
    bench.world.commit("b", 20)
    bench.world.now_ms += 1_000
    with unnoted(bench, Step.DONE):
        assert bench.move("b", "a", drain_ms=1_000).ending is Ending.INTERRUPTED
    found = verified(bench, Consumers.FAILOVER)
    assert (found.moves[0].move.target, found.notes) == (ON_A, ())


def test_one_that_was_not_settled_has_not(bench: Bench) -> None:
    bench.world.commit("b", 20)
    bench.client.failing["set_primary settled"] = StoreUnavailableError("store: away")
    assert bench.move("b", "a", drain_ms=1_000).ending is Ending.INTERRUPTED
    found = verified(bench, Consumers.FAILOVER)
    assert found.moves[0].move.target == ON_B
    assert "a move to aggregate-a is under way (written)" in found.notes[0]


def published(offset: int, topic_id: str = "aggregate-a-1") -> GroupCommit:
    """A commit as the sync job and moves put it."""
    metadata = CommittedMetadata(0, TopicId(topic_id), TargetOffset(offset), {})
    return GroupCommit(TargetOffset(offset), -1, encode(metadata))


def test_a_commit_published_for_the_way_back_is_no_straggler(bench: Bench) -> None:
    bench.world.commit("b", 20)
    moved = bench.outside.journal.records(GROUP)[0]
    bench.writer("a").commits[GROUP][P0] = published(20)
    assert moved.left_at == {P0: 15}
    assert verified(bench, Consumers.FAILOVER).verdict is Verdict.ONCE
    bench.publish("a", 18)
    assert verified(bench, Consumers.FAILOVER).verdict is Verdict.ONCE


def test_a_failover_consumer_that_read_on_in_the_old_cluster_is_a_straggler(bench: Bench) -> None:
    """What it has to skip goes with each of its commits, as it went with the one that it began at."""
    bench.world.commit("b", 20)
    began_at = published(12).metadata
    bench.writer("a").commits[GROUP][P0] = GroupCommit(TargetOffset(18), -1, began_at)
    found = verified(bench, Consumers.FAILOVER)
    assert found.verdict is Verdict.TWICE
    assert ranges(found, "b", ConsumptionKind.TWICE) == [(5, 8)]
    bench.publish("a", 15)
    bench.writer("a").commits[GROUP][P0] = GroupCommit(TargetOffset(18), -1, began_at)
    assert verified(bench, Consumers.FAILOVER).verdict is Verdict.TWICE


def test_what_a_failover_consumer_read_where_the_group_had_never_committed_leaves_it_open() -> None:
    with partly_read("earliest") as bench:
        bench.world.commit("b", 20)
        bench.world.commit("b", 20, 1)
        at_a = bench.writer("a").commits[GROUP]
        at_a[P1] = published(20)
        assert on(verified(bench, Consumers.FAILOVER), 1).verdict is Verdict.ONCE
        at_a[P1] = GroupCommit(TargetOffset(23), -1, at_a[P1].metadata)
        assert on(verified(bench, Consumers.FAILOVER), 1).verdict is Verdict.UNKNOWN
