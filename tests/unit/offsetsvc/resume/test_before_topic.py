"""A group that moves to a cluster before the topic is there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offsetsvc.answers import FailoverAnswer
from offsetsvc.positions import ReportedMove
from offsetsvc.resume.call import FailoverRequest
from offsetsvc.resume.skip_updates import WatchRequest
from offsetsvc.service import UseCases
from parallax.domain.ids import TargetOffset, TopicId, TopicPartition, aggregate_cluster
from parallax.domain.outcome import Outcome
from parallax.domain.progress import Progress
from parallax.errors import UnknownTopicError
from parallax.runtime.deadline import Deadline
from tests.worlds.offset_world import GROUP, TOPIC, World

ITEM = TopicPartition(TOPIC, 0)
ORIGIN, DESTINATION = (aggregate_cluster(region) for region in World().regions)


@pytest.fixture
def world() -> World:
    """Ten records of region a in a, six of them consumed; b has no such topic yet."""
    made = World()
    made.copy("a", "a", 10)
    made.watermarks()
    made.commit("a", 6)
    del made.cluster("b").infos[TOPIC]
    return made


def _appears(world: World) -> None:
    world.create_topic("b", generation="2")
    world.copy("a", "b", 10)
    world.watermarks()


def _answer(service: UseCases, request: FailoverRequest, *, record_move: bool = False) -> FailoverAnswer:
    (found,) = service.failover.answers(request, Deadline.after_ms(5_000), record_move=record_move)
    return found


def _move(answer: FailoverAnswer) -> ReportedMove:
    side = answer.destination
    progress = Progress(side.cluster, side.topic_id, answer.resume_offset, answer.progress)
    return ReportedMove(answer.topic_partition, side.topic_id, progress)


@pytest.mark.parametrize("told", ["before", "after", "recorded"])
def test_what_was_consumed_before_is_known_on_the_way_back(world: World, told: str) -> None:
    with world.service() as service:
        there = _answer(service, world.request("a", "b"), record_move=told == "recorded")
        assert (there.destination.topic_id, there.resume_offset) == ("", 0)
        if told == "before":
            service.positions.report(GROUP, DESTINATION, [], [_move(there)])
        _appears(world)
        if told == "after":
            service.positions.report(GROUP, DESTINATION, [], [_move(there)])

        back = _answer(service, world.request("b", "a", next_offset=0))
        further = _answer(service, world.request("b", "a", next_offset=8))

    assert (back.resume_offset, back.outcome) == (6, Outcome.OK)
    assert (further.resume_offset, further.outcome) == (8, Outcome.OK)


def test_what_is_to_be_skipped_becomes_known_when_the_topic_has_come(world: World) -> None:
    with world.service() as service:
        there = _answer(service, world.request("a", "b"))
        request = WatchRequest(
            ITEM, DESTINATION, there.destination.topic_id, there.progress, there.resume_offset, ORIGIN
        )
        pages = service.skips.updates(request, Deadline.after_ms(5_000), lambda _: False)
        assert next(pages).complete_to == 0
        _appears(world)
        skipped = [item for page in pages for item in page.skip_ranges]
        late = list(service.skips.updates(request, Deadline.after_ms(5_000), lambda _: False))

    assert skipped == [(0, 6)]
    assert late[-1].complete_to is None


def test_a_move_to_no_topic_that_starts_further_is_refused(world: World) -> None:
    with world.service() as service:
        move = _move(_answer(service, world.request("a", "b")))
        _appears(world)
        further = replace(move, progress=replace(move.progress, resume_offset=TargetOffset(3)))
        with pytest.raises(UnknownTopicError, match="created anew"):
            service.positions.report(GROUP, DESTINATION, [], [further])


def test_a_move_to_a_topic_that_is_gone_is_refused(world: World) -> None:
    with world.service() as service:
        move = replace(_move(_answer(service, world.request("a", "b"))), topic_id=TopicId("former"))
        with pytest.raises(UnknownTopicError, match="has no topic 'trips'"):
            service.positions.report(GROUP, DESTINATION, [], [move])
