"""What is made of leaders' answers about their logs and leader epochs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse, OffsetForLeaderEpochResponse

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.wire import topic_uuid
from parallax.domain.ids import ClusterName, TargetOffset, TopicId, TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError
from replicator.copying.ports import TargetEnd, TargetLog
from replicator.copying.session_end import TopicsRefusedError
from replicator.kafka.leader_epochs import LeaderEpochs, asked_once, with_kept

P0, P1 = (TopicPartition(TopicName("trips"), number) for number in range(2))
TOPIC = TopicId("AAAAAAAAAAAAAAAAAAAAAQ")
LOGS = {P0: TargetLog(TOPIC, 3), P1: TargetLog(TOPIC, 5)}
BEYOND, FENCED, ANOTHER_TOPIC = 1, 74, 103


class Leaders:
    """Stands for `Connections`: one broker that leads every partition, with what it answers by partition."""

    cluster = ClusterName("aggregate-b")

    def __init__(self, answers: Mapping[int, tuple[int, int]]) -> None:
        self._answers = answers
        self.asked: list[tuple[int, int, int]] = []
        self.looked_at: list[tuple[UUID, int, int]] = []
        self.throttled_for_ms = 0
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

    def _looked_at(self, request: FetchRequest) -> FetchResponse:
        """What the leader says of its log; nothing at all while it throttles."""
        throttled_for_ms, self.throttled_for_ms = self.throttled_for_ms, 0
        answers = FetchResponse.FetchableTopicResponse
        topics = []
        for topic in () if throttled_for_ms else request.topics:
            assert all(part.fetch_offset == 2**63 - 1 for part in topic.partitions), (
                "no records are asked for"
            )
            self.looked_at += [
                (topic.topic_id, part.partition, part.current_leader_epoch) for part in topic.partitions
            ]
            told = [part.partition for part in topic.partitions if part.partition in self._answers]
            parts = [
                answers.PartitionData(partition_index=partition, error_code=self._answers[partition][0])
                for partition in told
            ]
            topics.append(answers(topic_id=topic.topic_id, partitions=parts))
        return FetchResponse(throttle_time_ms=throttled_for_ms, error_code=0, responses=topics)

    def ask(self, _node: int, request: Any, _doing: str) -> Any:
        if isinstance(request, FetchRequest):
            return self._looked_at(request)
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


@pytest.mark.parametrize("throttled_for_ms", [0, 1])
def test_leaders_with_the_same_logs_confirm_it(throttled_for_ms: int) -> None:
    leaders = Leaders({0: (BEYOND, -1), 1: (BEYOND, -1)})
    leaders.throttled_for_ms = throttled_for_ms
    with closing(EventLoop()) as loop:
        leader_epochs(loop, leaders).confirm(LOGS).wait()
    assert leaders.looked_at == [(topic_uuid(TOPIC), 0, 3), (topic_uuid(TOPIC), 1, 5)]


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ({0: (BEYOND, -1), 1: (FENCED, -1)}, "trips-1: FencedLeaderEpoch"),
        ({0: (ANOTHER_TOPIC, -1), 1: (BEYOND, -1)}, "trips-0: InconsistentTopicId"),
        ({0: (BEYOND, -1)}, "trips-1: its leader did not say that it has the same log"),
    ],
)
def test_a_leader_with_another_log_or_none_stops_the_commit(
    answers: Mapping[int, tuple[int, int]], problem: str
) -> None:
    leaders = Leaders(answers)
    with closing(EventLoop()) as loop:
        confirmation = leader_epochs(loop, leaders).confirm(LOGS)
        with pytest.raises(ClusterUnavailableError, match=problem):
            confirmation.wait()
    assert leaders.refreshed


@pytest.mark.parametrize("other", [BEYOND, FENCED])
def test_a_topic_that_may_not_be_read_is_refused_by_name_and_says_nothing_of_its_log(other: int) -> None:
    with closing(EventLoop()) as loop:
        confirmation = leader_epochs(loop, Leaders({0: (other, -1), 1: (29, -1)})).confirm(LOGS)
        with pytest.raises(TopicsRefusedError) as caught:
            confirmation.wait()
    [(topic, reason)] = caught.value.reasons.items()
    assert topic == "trips"
    assert reason.startswith(
        "RIGHT_MISSING: Read on topic trips at aggregate-b (TopicAuthorizationFailedError)"
    )


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


def test_where_an_epoch_ends_is_asked_once_and_silence_is_no_answer() -> None:
    leaders = Leaders({0: (0, 7), 1: (FENCED, -1)})
    with closing(EventLoop()) as loop:
        epoch_end = asked_once(leader_epochs(loop, leaders), leaders.cluster)
        assert [epoch_end(P0, 2), epoch_end(P0, 2), epoch_end(P0, 3)] == [7, 7, 7]
        assert leaders.asked == [(0, -1, 2), (0, -1, 3)]
        with pytest.raises(
            ClusterUnavailableError, match=r"trips-1: its leader does not tell where .* 4 ends"
        ):
            epoch_end(P1, 4)
