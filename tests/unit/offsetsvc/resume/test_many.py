"""Answers for many positions at once are those that each group gets by itself, as the client reads both."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest

from offsetsvc.messages import group_to_pb, mapped_to_pb
from offsetsvc.resume import many
from offsetsvc.resume.call import FailoverRequest
from offsetsvc.resume.request import MOST_POSITIONS
from offsetsvc.service import UseCases
from parallax.client.answer import ResumeAnswer, answers_from_pb
from parallax.client.mapped import answers_of
from parallax.domain.commits import GroupCommit
from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    ClusterName,
    GroupName,
    Route,
    TargetOffset,
    TopicName,
    TopicPartition,
)
from parallax.domain.index_rows import RouteTopic
from parallax.domain.outcome import Outcome
from parallax.errors import (
    InvalidNameError,
    InvalidOffsetError,
    LimitError,
    UnknownPartitionError,
    UnreadableRowError,
)
from parallax.ports.blocks import BlockName
from parallax.runtime.deadline import Deadline
from tests.worlds.offset_world import TOPIC, World

A, B = ClusterName("aggregate-a"), ClusterName("aggregate-b")
P0 = TopicPartition(TOPIC, 0)


def mapped(
    world: World, positions: Sequence[int], item: TopicPartition = P0
) -> tuple[Mapping[int, ResumeAnswer], Sequence[int]]:
    """The answers by position, and the places of those that are left out."""
    with world.service() as service:
        found = service.failover.answers_many(A, B, {item: positions}, Deadline.after_ms(10_000))
    (told,) = mapped_to_pb(found).partitions
    return answers_of(told, positions), list(told.left_out)


def alone(world: World, service: UseCases, position: int) -> ResumeAnswer:
    """What a group with this commit is told, less what many are not."""
    group = GroupName(f"at-{position}")
    item = P0 if position >= 0 else TopicPartition(TopicName("another"), 0)
    commit = GroupCommit(TargetOffset(max(position, 0)), UNKNOWN_EPOCH, "")
    world.clusters[A].commits[group] = {item: commit}
    request = FailoverRequest(group, A, B, topics=(TOPIC,))
    answers = service.failover.answers(request, Deadline.after_ms(10_000))
    found = answers_from_pb(group_to_pb(answers))[P0]
    return replace(found, explanation="", freshness_ms=None, redelivery_records=None)


def drawn(seed: int) -> World:
    """A world in which routes copy by turns, one of them now and then a little further."""
    chance = Random(seed)
    world = World(rows_per_block=chance.choice([2, 3, 8]), service={"stale_after_ms": 1_000})
    for _ in range(chance.randint(1, 25)):
        source, target = chance.choice("ab"), chance.choice("ab")
        what = chance.random()
        if what < 0.7:
            world.copy(source, target, chance.randint(1, 6), skip=chance.choice([0, 0, 2]))
        elif what < 0.8:
            world.new_leader(source)
        elif what < 0.9:
            world.marker(target)
        else:
            world.watermark(source, target)
        world.now_ms += chance.choice([0, 0, 300])
    world.watermarks()
    ends = len(world.records("b"))
    if chance.random() < 0.3:
        world.trim("b", chance.randint(0, ends))
    world.now_ms += chance.choice([0, 0, 5_000])
    return world


@pytest.mark.parametrize("part", range(3))
def test_each_is_what_a_group_is_told_by_itself(part: int) -> None:
    outcomes = set()
    skips = 0
    for seed in range(part * 15, part * 15 + 15):
        world = drawn(seed)
        positions = [-1, *range(len(world.records("a")) + 3)]
        found, left_out = mapped(world, positions)
        assert not left_out
        with world.service() as service:
            for position in positions:
                assert found[position] == alone(world, service, position), (seed, position)
                outcomes |= found[position].notes
                skips += len(found[position].skips)
    assert skips > 20
    assert {Outcome.OK, Outcome.NO_COMMIT, Outcome.CLAMPED_TO_END, Outcome.PENDING} <= outcomes


def test_a_partition_that_is_not_plain_is_left_out_as_a_whole() -> None:
    lost, cut, own = drawn(1), drawn(1), drawn(1)
    lost.lose("a", "b", 3)
    cut.lose_tail("a", 1)
    own.clusters[A].away = True
    for world in (lost, cut, own):
        assert mapped(world, [-1, 0, 5]) == ({}, [0, 1, 2])


@pytest.mark.parametrize(
    ("damaged", "away"), [("block", None), ("newest row", None), ("newest row", A), ("newest row", B)]
)
def test_a_partition_of_which_a_row_cant_be_read_is_left_out_alone(
    monkeypatch: pytest.MonkeyPatch, damaged: str, away: ClusterName | None
) -> None:
    world = World(partitions=2)
    for partition in range(2):
        for route in ("aa", "ab", "ba", "bb"):
            world.copy(*route, 10, partition)
        world.watermarks(partition)
    blocks, told_topics = world.index.blocks, world.index.told_topics

    def damaged_blocks(names: Collection[BlockName]) -> Mapping[BlockName, bytes]:
        return {
            name: b"\x02" + body[1:] if name.topic_partition.partition and name.target == "b" else body
            for name, body in blocks(names).items()
        }

    def without_newest(routes: Collection[Route], topic: TopicName) -> Mapping[Route, RouteTopic]:
        found = told_topics(routes, topic)
        return {
            route: RouteTopic(
                item.records,
                {key: row for key, row in item.newest.items() if not key[0]},
                {key: "newest_told of trips-1" for key in item.newest if key[0]},
            )
            for route, item in found.items()
        }

    if damaged == "block":
        monkeypatch.setattr(world.index, "blocks", damaged_blocks)
    else:
        monkeypatch.setattr(world.index, "told_topics", without_newest)
    if away is not None:
        world.clusters[away].away = True
    other = TopicPartition(TOPIC, 1)
    with world.service() as service:
        found = service.failover.answers_many(A, B, {other: [3, 5], P0: [5]}, Deadline.after_ms(10_000))
        told = [(item.partition, list(item.left_out)) for item in mapped_to_pb(found).partitions]
        assert told == [(1, [0, 1]), (0, [0] if away else [])]
        why = (
            "blocks of target b, trips-1, section 0, lineage "
            if damaged == "block"
            else "newest_told of trips-1"
        )
        request = FailoverRequest(GroupName("x"), A, B, {other: TargetOffset(3)}, only=other)
        with pytest.raises(UnreadableRowError, match=why):
            service.failover.answers(request, Deadline.after_ms(10_000))
        request = replace(request, positions={P0: TargetOffset(3)}, only=P0)
        assert service.failover.answers(request, Deadline.after_ms(10_000))


def test_a_group_that_begins_at_the_end_is_left_out() -> None:
    world = World(sync={"no_commit": "latest"})
    world.copy("a", "a", 5)
    world.copy("a", "b", 5)
    world.watermarks()
    found, left_out = mapped(world, [-1, 2])
    assert left_out == [0]
    assert found[2].resume_offset == 2


def test_what_would_make_a_message_too_large_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    for _ in range(5):
        for source in "abb":
            world.copy(source, "a", 2)
    for source in "ab":
        for _ in range(5):
            world.copy(source, "b", 1)
            world.marker("b")
    world.watermarks()
    positions = list(range(len(world.records("a")) + 1))
    whole, _ = mapped(world, positions)
    assert sum(len(answer.skips) for answer in whole.values()) > 1
    monkeypatch.setattr(many, "_MOST_RANGES", 1)
    found, left_out = mapped(world, positions)
    assert left_out
    assert found == {position: whole[position] for position in positions if position in found}


@pytest.mark.parametrize("positions", [[3, 2], [2, 2], [-2]])
def test_positions_out_of_order_are_refused(positions: list[int]) -> None:
    with pytest.raises(InvalidOffsetError, match="trips-0"):
        mapped(drawn(1), positions)


def test_too_many_are_refused() -> None:
    with pytest.raises(LimitError, match="100001 positions"):
        mapped(drawn(1), range(MOST_POSITIONS + 1))


def test_a_partition_that_there_is_not_is_refused() -> None:
    with pytest.raises(UnknownPartitionError):
        mapped(drawn(1), [1], TopicPartition(TOPIC, 7))


def test_where_they_are_and_where_they_go_is_not_the_same() -> None:
    with drawn(1).service() as service, pytest.raises(InvalidNameError):
        service.failover.answers_many(A, A, {P0: [1]}, Deadline.after_ms(10_000))


def test_no_partition_is_no_answer() -> None:
    with drawn(1).service() as service:
        assert service.failover.answers_many(A, B, {}, Deadline.after_ms(10_000)) == []


def test_outcomes_are_counted() -> None:
    world = drawn(2)
    with world.service() as service:
        end = len(world.records("a"))
        (found,) = service.failover.answers_many(A, B, {P0: [0, end + 9]}, Deadline.after_ms(10_000))
    assert sum(found.outcomes.values()) == 2
    assert found.outcomes[Outcome.CLAMPED_TO_END] <= 1
