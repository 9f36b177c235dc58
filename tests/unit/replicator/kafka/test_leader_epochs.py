"""What is made of leaders' answers about leader epochs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from typing import Any

import pytest
from kafka.protocol.consumer import OffsetForLeaderEpochResponse

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.domain.ids import ClusterName, TargetOffset, TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError
from replicator.copying.ports import TargetEnd
from replicator.kafka.leader_epochs import LeaderEpochs, with_kept

P0, P1 = (TopicPartition(TopicName("trips"), number) for number in range(2))
FENCED = 74


class Leaders:
    """Stands for `Connections`: one broker that leads every partition, with what it answers by partition."""

    cluster = ClusterName("aggregate-b")

    def __init__(self, answers: Mapping[int, tuple[int, int]]) -> None:
        self._answers = answers
        self.asked: list[tuple[int, int, int]] = []
        self.refreshed = 0

    def learn_leaders(
        self, _items: Collection[TopicPartition], *, timeout_ms: float
    ) -> Collection[TopicPartition]:
        del timeout_ms
        return ()

    def by_leader(self, items: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        return {1: list(items)}

    def refresh(self) -> None:
        self.refreshed += 1

    def ask(self, _node: int, request: Any, _doing: str) -> Any:
        topic_of = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        topics = []
        for topic in request.topics:
            parts = []
            for part in topic.partitions:
                self.asked.append((part.partition, part.current_leader_epoch, part.leader_epoch))
                if part.partition in self._answers:
                    code, end = self._answers[part.partition]
                    parts.append(
                        topic_of.EpochEndOffset(
                            error_code=code,
                            partition=part.partition,
                            leader_epoch=part.leader_epoch,
                            end_offset=end,
                        )
                    )
            topics.append(topic_of(topic=topic.topic, partitions=parts))
        return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)

    def send(
        self, node: int, request: Any, answered: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> None:
        del failed
        answered(self.ask(node, request, ""))


def leader_epochs(loop: EventLoop, leaders: Leaders) -> LeaderEpochs:
    return LeaderEpochs(loop, leaders, timeout_ms=50)  # type: ignore[arg-type]


def test_leaders_with_the_same_epochs_confirm_it() -> None:
    leaders = Leaders({0: (0, 9), 1: (0, 4)})
    with closing(EventLoop()) as loop:
        leader_epochs(loop, leaders).confirm({P0: 3, P1: 5}).wait()
    assert leaders.asked == [(0, 3, 3), (1, 5, 5)]


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ({0: (0, 9), 1: (FENCED, -1)}, "trips-1: FencedLeaderEpoch"),
        ({0: (0, 9)}, "trips-1: its leader did not say that it is the same"),
    ],
)
def test_a_leader_with_another_epoch_or_none_stops_the_commit(
    answers: Mapping[int, tuple[int, int]], problem: str
) -> None:
    leaders = Leaders(answers)
    with closing(EventLoop()) as loop:
        confirmation = leader_epochs(loop, leaders).confirm({P0: 3, P1: 5})
        with pytest.raises(ClusterUnavailableError, match=problem):
            confirmation.wait()
    assert leaders.refreshed


def test_only_of_partitions_with_a_newer_leader_it_is_asked_what_they_kept() -> None:
    leaders = Leaders({0: (0, 7), 1: (FENCED, -1)})
    ends = {P0: TargetEnd(TargetOffset(20), 4), P1: TargetEnd(TargetOffset(30), 4)}
    with closing(EventLoop()) as loop:
        doors = leader_epochs(loop, leaders)
        assert with_kept(ends, {P0: 4, P1: -1}, doors) == ends
        assert leaders.asked == []
        kept = with_kept(ends, {P0: 2, P1: 3}, doors)
    assert kept == {P0: TargetEnd(TargetOffset(20), 4, TargetOffset(7)), P1: ends[P1]}
    assert leaders.asked == [(0, 4, 2), (1, 4, 3)]
    assert kept[P1].has_kept(TargetOffset(5), 3) is None
