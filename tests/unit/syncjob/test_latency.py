"""How long checkpoints took, of groups whose every commit is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from parallax.domain.ids import ClusterName, GroupName, TopicName, TopicPartition
from parallax.domain.latencies import BOUNDS_S
from syncjob.decide import Decision, Reason
from syncjob.latency import CheckpointLatencies
from syncjob.status import SyncBoard, SyncReport
from tests.worlds.sync_bench import GROUP, Bench, consuming

A, B = ClusterName("aggregate-a"), ClusterName("aggregate-b")


def decision(reason: Reason, partition: int = 0) -> Decision:
    return Decision(GROUP, TopicPartition(TopicName("trips"), partition), A, B, reason)


def seconds(latencies: CheckpointLatencies) -> tuple[int, float]:
    value = latencies.value()
    return sum(value.counts), value.sum_s


def test_what_is_published_took_as_long_as_since_the_cycle_began_to_read() -> None:
    latencies = CheckpointLatencies()
    latencies.note(GROUP, [decision(Reason.PUBLISHED), decision(Reason.UNCHANGED, 1)], 10.0, 10.5)
    assert seconds(latencies) == (1, 0.5)


def test_what_is_held_up_is_waited_for_from_when_it_was_first_seen() -> None:
    latencies = CheckpointLatencies()
    latencies.note(GROUP, [decision(Reason.TARGET_AWAY)], 10.0, 10.1)
    latencies.note(GROUP, [decision(Reason.WRITE_FAILED)], 11.0, 11.1)
    latencies.note(GROUP, [decision(Reason.PUBLISHED)], 12.0, 13.0)
    assert seconds(latencies) == (1, 3.0)
    latencies.note(GROUP, [decision(Reason.PUBLISHED)], 14.0, 14.5)
    assert seconds(latencies) == (2, 3.5)


def test_what_is_not_to_be_published_is_not_late() -> None:
    latencies = CheckpointLatencies()
    for reason in (Reason.NO_ANSWER, Reason.ACTIVE_AT_TARGET):
        latencies.note(GROUP, [decision(reason)], 10.0, 10.1)
    latencies.note(GROUP, [decision(Reason.PUBLISHED)], 50.0, 50.25)
    assert seconds(latencies) == (1, 0.25)


def test_groups_that_are_gone_are_forgotten() -> None:
    latencies = CheckpointLatencies()
    latencies.note(GROUP, [decision(Reason.NO_ANSWER)], 10.0, 10.1)
    latencies.forget_all_but([GroupName("other")])
    latencies.note(GROUP, [decision(Reason.PUBLISHED)], 20.0, 20.5)
    assert seconds(latencies) == (1, 0.5)


def test_of_each_group_and_cluster_the_slowest_partition_of_the_last_time_is_told() -> None:
    latencies = CheckpointLatencies()
    latencies.note(GROUP, [decision(Reason.TARGET_AWAY), decision(Reason.PUBLISHED, 1)], 10.0, 10.5)
    latencies.note(GROUP, [decision(Reason.PUBLISHED, 1), decision(Reason.PUBLISHED)], 20.0, 21.0)
    other = replace(decision(Reason.PUBLISHED, 2), group=GroupName("other"))
    latencies.note(other.group, [other], 30.0, 30.25)
    latencies.note(other.group, [replace(other, reason=Reason.UNCHANGED)], 40.0, 49.0)
    told = [(it.group, it.topic_partition.partition, it.took_s) for it in latencies.slowest(2)]
    assert told == [(GROUP, 0, 11.0), (other.group, 2, 0.25)]
    assert [it.group for it in latencies.slowest(1)] == [GROUP]
    latencies.forget_all_but([other.group])
    assert [it.group for it in latencies.slowest(2)] == [other.group]


def test_single_groups_have_the_name_of_mirror_maker_where_it_is_asked_for() -> None:
    latencies, board = CheckpointLatencies(), SyncBoard(1_000)
    latencies.note(GROUP, [decision(Reason.PUBLISHED, 3)], 10.0, 10.5)
    board.record(json.loads(json.dumps(SyncReport("first", slowest=latencies.slowest(5)).to_json())))
    [family] = board.mirror_maker()
    [sample] = family.samples
    assert sample.name == "kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms"
    assert sample.value == 500
    assert sample.labels == {
        "source": "a",
        "target": "b",
        "group": GROUP,
        "topic": "trips",
        "partition": "3",
    }


def test_a_syncer_counts_each_offset_that_it_publishes(bench: Callable[..., Bench]) -> None:
    it = consuming(bench, 5)
    told = [it.cycle().latencies for _ in range(2)]
    assert [sum(item.counts) for item in told] == [1, 1]
    it.world.commit("a", 7)
    assert sum(it.cycle().latencies.counts) == 2
    assert it.another(dry_run=True).cycle().latencies.sum_s == 0


def test_a_scrape_adds_up_over_holders() -> None:
    board = SyncBoard(1_000)
    latencies = CheckpointLatencies()
    latencies.note(GROUP, [decision(Reason.PUBLISHED)], 10.0, 16.0)
    for attempt in ("first", "second"):
        board.record(SyncReport(attempt, {"cycles": 1}, latencies=latencies.value()).to_json())
    samples = {
        (
            sample.name.removeprefix("parallax_sync_checkpoint_latency_seconds"),
            sample.labels.get("le", ""),
        ): sample.value
        for family in board.collect()
        for sample in family.samples
        if "checkpoint_latency" in sample.name
    }
    assert samples["_sum", ""] == 12.0
    assert (samples["_bucket", str(5.0)], samples["_bucket", str(10.0)]) == (0, 2)
    assert len([name for name, _ in samples if name == "_bucket"]) == len(BOUNDS_S) + 1
