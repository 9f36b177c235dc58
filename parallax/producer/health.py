"""What probes have told of a region: whether it answers, and whether it could take the records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from parallax.errors import ClusterUnavailableError, ParallaxError, UnknownTopicError
from parallax.producer.errors import PartitionCountError, TopicRefusedError
from parallax.producer.ports import Answer


class RegionHealth:
    """One region, as far as asked. Times are seconds of one monotonic clock.

    Attributes:
        region: whose regional cluster.
        asked_at_s: when the last probe with a result went out.
        answered_at_s: when the last answered one did; None: none yet.
        good_since_s: answered and fit at every probe from then on; None: not at the last one.
        told: the problem that the application knows of.
    """

    def __init__(self, region: str) -> None:
        self.region = region
        self.asked_at_s: float | None = None
        self.answered_at_s: float | None = None
        self.good_since_s: float | None = None
        self.told: str | None = None
        self._answer: Answer | None = None
        self._covers: frozenset[str] = frozenset()
        self._silent_since_s: float | None = None
        self._silence: ParallaxError | None = None

    @property
    def partition_counts(self) -> Mapping[str, int]:
        """What the last answer says of topics that exist."""
        return {} if self._answer is None else self._answer.partition_counts

    def answered(self, asked_at_s: float, topics: Iterable[str], answer: Answer) -> None:
        """A probe was answered."""
        self.asked_at_s = self.answered_at_s = asked_at_s
        self._answer = answer
        self._covers = frozenset(topics)
        self._silent_since_s = self._silence = None

    def silent(self, asked_at_s: float, error: ParallaxError) -> None:
        """A probe was not answered in time."""
        self.asked_at_s = asked_at_s
        self._silence = error
        if self._silent_since_s is None:
            self._silent_since_s = asked_at_s

    def silent_s(self, now_s: float, since_s: float) -> float:
        """For how long nothing was answered, counted from ``since_s`` at the earliest; 0 if the last probe was."""
        return 0.0 if self._silent_since_s is None else now_s - max(self._silent_since_s, since_s)

    def problem(self, wanted: Mapping[str, int | None]) -> ParallaxError | None:
        """What keeps the region from taking records of these topics, by their numbers of partitions; None: nothing."""
        if self._silence is not None:
            return ClusterUnavailableError(f"regional cluster of region {self.region}: {self._silence}")
        if self._answer is None or not self._covers.issuperset(wanted):
            return ClusterUnavailableError(f"regional cluster of region {self.region}: not asked yet")
        problems = (self._topic_problem(self._answer, *item) for item in sorted(wanted.items()))
        return next((problem for problem in problems if problem is not None), None)

    def _topic_problem(self, answer: Answer, topic: str, count: int | None) -> ParallaxError | None:
        if topic in answer.refused:
            return TopicRefusedError(
                f"regional cluster of region {self.region}, topic {topic!r}: {answer.refused[topic]}; allow this "
                "client to describe and write it"
            )
        here = answer.partition_counts.get(topic)
        if here is None:
            return UnknownTopicError(
                f"regional cluster of region {self.region} has no topic {topic!r}: create it there with as many "
                "partitions"
            )
        if count is not None and here != count:
            return PartitionCountError(
                f"topic {topic!r} has {here} partitions in the regional cluster of region {self.region}, and "
                f"{count} where records go by preference: keys would change their partitions"
            )
        if topic in answer.leaderless:
            return ClusterUnavailableError(
                f"regional cluster of region {self.region}: topic {topic!r} has partitions without a leader"
            )
        return None

    def judged(self, now_s: float, *, good: bool) -> None:
        """Keep since when it has been good without a break."""
        if not good:
            self.good_since_s = None
        elif self.good_since_s is None:
            self.good_since_s = now_s
