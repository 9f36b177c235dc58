"""How a session of the copy loop ends, and what outlives it: nothing that the run log would have to know."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from parallax.domain.ids import Lineage, SourceOffset, TopicName, TopicPartition
from parallax.errors import ParallaxError


class SessionError(ParallaxError):
    """The session can't go on; another one may, from the run log."""

    code = "SESSION"


class PartitionRefusedError(SessionError):
    """The target refused a record for good. The next session stops its partition before it.

    Attributes:
        stop: where and why.
    """

    def __init__(self, stop: Stop) -> None:
        super().__init__(f"{stop.topic_partition}: {stop.reason}")
        self.stop = stop


@dataclass(frozen=True, slots=True)
class Stop:
    """A partition that can't go beyond ``source_next``, for as long as its lineage lasts."""

    topic_partition: TopicPartition
    lineage: Lineage
    source_next: SourceOffset
    reason: str


@dataclass(slots=True)
class Counts:
    """What was committed since the lease began; outlives the session."""

    records: dict[TopicPartition, int] = field(default_factory=dict)
    size_bytes: int = 0
    transactions: int = 0
    aborts: int = 0
    watermarks: int = 0
    bytes_of: dict[TopicPartition, int] = field(default_factory=dict)


FORGOTTEN_AFTER_MS = 3_600_000
"""So long neither cluster has a topic, at every look, before its partitions are dropped from the state."""


class Absences:
    """Topics that were replicated and are on neither side any more: what the run log need not keep for ever.

    A topic that comes back has other ids, so whatever is copied then has a lineage of its own. What may come back with the
    same ids is not dropped: a cluster that does not answer, a topic that a broker forgets to name for a moment, and one
    that the configuration leaves out.

    Args:
        replicated: whether the configuration chooses the topic.
    """

    def __init__(self, replicated: Callable[[TopicName], bool]) -> None:
        self._replicated = replicated
        self._since_ms: dict[TopicName, float] = {}

    def gone(
        self,
        known: Iterable[TopicName],
        source: Collection[TopicName] | None,
        target: Collection[TopicName] | None,
        now_ms: float,
    ) -> set[TopicName]:
        """The known topics that have been gone for long enough.

        Args:
            known: of which there is a state.
            source: the topics that the source has; None: it does not answer.
            target: the same of the target.
            now_ms: monotonic.
        """
        if source is None or target is None:
            return set()
        missing = {topic for topic in known if self._replicated(topic)}.difference(source, target)
        self._since_ms = {topic: self._since_ms.get(topic, now_ms) for topic in missing}
        return {
            topic for topic, since_ms in self._since_ms.items() if now_ms - since_ms >= FORGOTTEN_AFTER_MS
        }
