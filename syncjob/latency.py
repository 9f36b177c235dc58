"""How long it takes from a group's commit that is seen to an offset for it that stands at another cluster."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable

from parallax.domain.ids import ClusterName, GroupName, TopicPartition
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

_Place = tuple[TopicPartition, ClusterName]


class CheckpointLatencies:
    """Counts them; safe to use from several threads, each with groups of its own.

    A commit that can't be published yet is waited for from the cycle that saw it first, whatever the group commits meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counter = LatencyCounter()
        self._behind_since_s: dict[GroupName, dict[_Place, float]] = {}

    def note(self, group: GroupName, decisions: Iterable[Decision], seen_at_s: float, now_s: float) -> None:
        """Take in what became of a group in a cycle.

        Args:
            group: the group.
            decisions: after they were carried out.
            seen_at_s: when the cycle began to read (monotonic).
            now_s: now.
        """
        before, behind = self._behind_since_s.get(group, {}), dict[_Place, float]()
        took_s = []
        for item in decisions:
            place = (item.topic_partition, item.target)
            since_s = before.get(place, seen_at_s)
            if item.reason is Reason.PUBLISHED:
                took_s.append(now_s - since_s)
            elif item.reason in DELAYED:
                behind[place] = since_s
        with self._lock:
            if behind:
                self._behind_since_s[group] = behind
            else:
                self._behind_since_s.pop(group, None)
            for each_s in took_s:
                self._counter.add(each_s * 1_000, 1)

    def forget_all_but(self, groups: Collection[GroupName]) -> None:
        """Keep in memory what is of these groups alone."""
        with self._lock:
            self._behind_since_s = {
                group: since for group, since in self._behind_since_s.items() if group in groups
            }

    def value(self) -> Latencies:
        """What was counted so far."""
        with self._lock:
            return self._counter.value()
