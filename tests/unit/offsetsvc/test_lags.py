"""The lag of a group as it went: of groups at which somebody looks, and unknown where it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from offsetsvc.clusters import Clusters
from offsetsvc.lags import LOOKED_WITHIN_S, MOST_GROUPS, SAMPLES, LagHistories
from parallax.domain.ids import ClusterName, GroupName, TopicPartition
from parallax.domain.lag_verdict import WINDOW
from parallax.ports.clusters import GroupState
from parallax.v1 import offsets_pb2 as pb
from tests.worlds.offset_world import GROUP, NOW_MS, TOPIC, FakeCluster, World

ON_A, ON_B = ClusterName("aggregate-a"), ClusterName("aggregate-b")


class Clock:
    """Stands until it is set."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@contextmanager
def made(world: World, clock: Clock) -> Iterator[LagHistories]:
    with closing(Clusters(world.clusters, probe_every_ms=60_000)) as clusters:
        yield LagHistories(clusters, lambda: world.now_ms, clock)


def lags(samples: list[pb.LagSample]) -> list[int | None]:
    return [item.lag_records if item.HasField("lag_records") else None for item in samples]


def behind(world: World, next_offset: int, end: int) -> None:
    """The group stands at an offset of aggregate-a, whose log ends there."""
    world.cluster("a").lay(TopicPartition(TOPIC, 0), [0] * end)
    world.commit("a", next_offset)


def test_lags_are_remembered_from_the_first_look_on() -> None:
    world, clock = World(), Clock()
    behind(world, 2, 10)
    with made(world, clock) as histories:
        histories.remember()
        assert histories.looked(GROUP, [ON_A, ON_B]) == {ON_A: [], ON_B: []}
        histories.remember()
        behind(world, 7, 10)
        histories.remember()
        found = histories.looked(GROUP, [ON_A, ON_B])
        assert lags(found[ON_A]) == [8, 3]
        assert lags(found[ON_B]) == [None, None]
        assert [item.at_ms - NOW_MS for item in found[ON_A]] == [0, 0]


def test_ten_minutes_of_a_hundred_groups_are_kept_while_somebody_looks() -> None:
    world, clock = World(), Clock()
    behind(world, 2, 10)
    with made(world, clock) as histories:
        histories.looked(GROUP, [ON_A])
        for _ in range(SAMPLES + 5):
            histories.remember()
        assert lags(histories.looked(GROUP, [ON_A])[ON_A]) == [8] * SAMPLES
        for number in range(MOST_GROUPS - 1):
            histories.looked(GroupName(f"group-{number}"), [ON_A])
        assert len(histories.looked(GROUP, [ON_A])[ON_A]) == SAMPLES
        histories.looked(GroupName("one more"), [ON_A])
        assert histories.looked(GroupName("group-0"), [ON_A])[ON_A] == []
        assert len(histories.looked(GROUP, [ON_A])[ON_A]) == SAMPLES
        clock.now_s += LOOKED_WITHIN_S + 1
        histories.remember()
        assert histories.looked(GROUP, [ON_A])[ON_A] == []


def test_a_cluster_is_asked_for_members_once_however_many_groups_are_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, clock, asked = World(), Clock(), Counter[ClusterName]()
    for cluster in world.clusters.values():

        def counted(_: Any, cluster: FakeCluster = cluster) -> list[GroupState]:
            asked[cluster.cluster] += 1
            return []

        monkeypatch.setattr(cluster, "groups", counted)
    with made(world, clock) as histories:
        for number in range(20):
            histories.looked(GroupName(f"group-{number}"), [ON_A, ON_B])
        histories.remember()
    assert asked == {ON_A: 1, ON_B: 1}


def test_a_group_may_make_room_for_others_and_come_back_elsewhere_while_samples_are_taken() -> None:
    world, clock = World(), Clock()
    behind(world, 2, 10)
    with closing(Clusters(world.clusters, probe_every_ms=60_000)) as clusters:
        others = [GroupName(f"group-{number}") for number in range(MOST_GROUPS)]

        def meanwhile() -> int:
            for group in others:
                histories.looked(group, [ON_A])
            others.clear()
            histories.looked(GROUP, [ON_A])
            return NOW_MS

        histories = LagHistories(clusters, meanwhile, clock)
        histories.looked(GROUP, [ON_A, ON_B])
        histories.remember()
        assert lags(histories.looked(GROUP, [ON_A])[ON_A]) == [8]


def test_a_verdict_takes_ten_moments_and_a_doubt_begins_them_anew() -> None:
    world, clock = World(), Clock()
    behind(world, 2, 10)
    with made(world, clock) as histories:

        def state() -> str | None:
            found = histories.verdict(GROUP, ON_A)
            return None if found is None else pb.LagState.Name(found.state)

        def remember(times: int) -> None:
            for _ in range(times):
                histories.remember()

        assert state() is None
        histories.looked(GROUP, [ON_A])
        assert state() is None
        remember(WINDOW - 1)
        assert state() == "LAG_STATE_UNKNOWN"
        world.cluster("a").members[GROUP] = 1
        remember(1)
        assert state() == "LAG_STALL"
        world.cluster("a").members[GROUP] = 0
        remember(1)
        found = histories.verdict(GROUP, ON_A)
        assert found is not None
        assert found == pb.LagVerdict(
            state=pb.LAG_STOP,
            topic=TOPIC,
            partition=0,
            lag_offsets=8,
            partitions_not_ok=1,
            partitions_known=1,
            partitions=1,
        )
        world.cluster("a").away = True
        remember(1)
        assert state() is None
        world.cluster("a").away = False
    with made(world, clock) as histories:  # another one: this one counts the cluster as away for a minute
        histories.looked(GROUP, [ON_A])
        remember(WINDOW - 1)
        assert state() == "LAG_STATE_UNKNOWN"
        world.commit("a", 3)
        remember(1)
        assert state() == "LAG_OK"
        behind(world, 10, 10)
        remember(1)
        assert state() == "LAG_OK"
        world.commit("a", 10, partition=1)  # whose log's end nobody knows
        remember(1)
        found = histories.verdict(GROUP, ON_A)
        assert found is not None
        assert (found.state, found.partitions_known, found.partitions) == (pb.LAG_STATE_UNKNOWN, 1, 2)


def test_where_a_cluster_is_away_or_not_configured_it_is_unknown() -> None:
    world, clock = World(), Clock()
    behind(world, 2, 10)
    with made(world, clock) as histories:
        histories.looked(GROUP, [ON_A, ClusterName("aggregate-z")])
        world.cluster("a").away = True
        histories.remember()
        found = histories.looked(GROUP, [ON_A, ClusterName("aggregate-z")])
        assert {name: lags(samples) for name, samples in found.items()} == {
            ON_A: [None],
            "aggregate-z": [None],
        }
