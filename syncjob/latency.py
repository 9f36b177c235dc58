"""How long it takes from a group's commit that is seen to an offset for it that stands at another cluster."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import nlargest
from typing import Any

from parallax.domain.ids import ClusterName, GroupName, TopicName, TopicPartition
from parallax.domain.latencies import Latencies, LatencyCounter
from syncjob.decide import Decision, Reason

DELAYED = {
    Reason.WAITING,
    Reason.TARGET_AWAY,
    Reason.NO_TOPIC,
    Reason.NO_ANSWER,
    Reason.WRITE_FAILED,
}
"""What keeps an offset from being published for a while; of other reasons it is not to be, and nothing is late."""

MOST_TOLD = 1_000
"""Of single groups' latencies, whatever `MetricsSettings` asks for: each report has them all."""

_Place = tuple[TopicPartition, ClusterName]


@dataclass(frozen=True, slots=True)
class CheckpointLatency:
    """How long a group's offset took to another cluster when one was published there last: of several partitions the slowest."""

    group: GroupName
    topic_partition: TopicPartition
    origin: ClusterName
    target: ClusterName
    took_s: float

    def to_json(self) -> list[Any]:
        """It as JSON types."""
        return [self.group, *self.topic_partition, self.origin, self.target, self.took_s]

    @classmethod
    def from_json(cls, values: Any) -> CheckpointLatency:
        """What `to_json` wrote.

        Raises:
            TypeError, ValueError: it is something else.
        """
        group, topic, partition, origin, target, took_s = values
        place = TopicPartition(TopicName(str(topic)), int(partition))
        return cls(
            GroupName(str(group)), place, ClusterName(str(origin)), ClusterName(str(target)), float(took_s)
        )


class CheckpointLatencies:
    """Counts them; safe to use from several threads, each with groups of its own.

    A commit that can't be published yet is waited for from the cycle that saw it first, whatever the group commits meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counter = LatencyCounter()
        self._behind_since_s: dict[GroupName, dict[_Place, float]] = {}
        self._newest: dict[GroupName, Mapping[ClusterName, CheckpointLatency]] = {}
        """By target: one for each group there, whatever the number of its partitions."""

    def note(self, group: GroupName, decisions: Iterable[Decision], seen_at_s: float, now_s: float) -> None:
        """Take in what became of a group in a cycle.

        Args:
            group: the group.
            decisions: after they were carried out.
            seen_at_s: when the cycle began to read (monotonic).
            now_s: now.
        """
        before, behind = self._behind_since_s.get(group, {}), dict[_Place, float]()
        took: dict[_Place, CheckpointLatency] = {}
        for item in decisions:
            place = (item.topic_partition, item.target)
            since_s = before.get(place, seen_at_s)
            if item.reason is Reason.PUBLISHED and item.origin is not None:
                took[place] = CheckpointLatency(
                    group, item.topic_partition, item.origin, item.target, now_s - since_s
                )
            elif item.reason in DELAYED:
                behind[place] = since_s
        with self._lock:
            if behind:
                self._behind_since_s[group] = behind
            else:
                self._behind_since_s.pop(group, None)
            for each in took.values():
                self._counter.add(each.took_s * 1_000, 1)
            if took:
                slowest = {each.target: each for each in sorted(took.values(), key=_seconds)}
                self._newest[group] = {**self._newest.get(group, {}), **slowest}

    def forget_all_but(self, groups: Collection[GroupName]) -> None:
        """Keep in memory what is of these groups alone."""
        with self._lock:
            self._behind_since_s = {
                group: since for group, since in self._behind_since_s.items() if group in groups
            }
            self._newest = {group: of for group, of in self._newest.items() if group in groups}

    def value(self) -> Latencies:
        """What was counted so far."""
        with self._lock:
            return self._counter.value()

    def slowest(self, most: int) -> tuple[CheckpointLatency, ...]:
        """The groups whose offsets took longest to a cluster when they were published there last, the slowest first."""
        with self._lock:
            every = (each for of in self._newest.values() for each in of.values())
            return tuple(nlargest(most, every, key=_seconds))


def _seconds(latency: CheckpointLatency) -> float:
    return latency.took_s
