"""How a session of the copy loop ends, and what outlives it: nothing that the run log would have to know."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from parallax.domain.ids import Lineage, SourceOffset, TopicName, TopicPartition
from parallax.domain.latencies import LatencyCounter
from parallax.errors import ParallaxError
from replicator.copying.ports import Clock


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


class TopicsRefusedError(SessionError):
    """The target refuses whole topics to the replicator. The next session leaves them alone, and copies all others.

    Attributes:
        reasons: by topic, which right is missing and what to do.
    """

    def __init__(self, reasons: Mapping[TopicName, str]) -> None:
        super().__init__("; ".join(reasons.values()))
        self.reasons = reasons


@dataclass(frozen=True, slots=True)
class Stop:
    """A partition that can't go beyond ``source_next``, for as long as its lineage lasts."""

    topic_partition: TopicPartition
    lineage: Lineage
    source_next: SourceOffset
    reason: str


class Stops:
    """What a lease has found that can't go on. Outlives its sessions.

    All of it is tried again after a while: its cause may have been repaired. Until then and while it is being tried, it
    counts as stopped, so that nobody hears of an end that is none.

    Args:
        clock: time.
        again_after_ms: when all is tried again, counted from the first stop.
    """

    def __init__(self, clock: Clock, again_after_ms: float) -> None:
        self._clock = clock
        self._again_after_ms = again_after_ms
        self._again_at_ms = math.inf
        self._stops: dict[TopicPartition, Stop] = {}
        self._topics: dict[TopicName, str] = {}
        self._believed: dict[TopicName, tuple[float, float]] = {}
        """Topics that were tried again because the target said so: when it is believed next, and how much later then."""
        self._told: dict[TopicPartition, str] = {}

    def note(self, stop: Stop) -> None:
        """A partition can't go beyond a place."""
        self._stops[stop.topic_partition] = stop
        self._try_later()

    def refuse(self, reasons: Mapping[TopicName, str]) -> bool:
        """The target refuses these topics altogether. Whether that is news: not if one was only tried again."""
        self._topics.update(reasons)
        self._try_later()
        known = {*self._told.values()}
        return not known.issuperset(reasons.values())

    @property
    def refused(self) -> Collection[TopicName]:
        """The topics that the target refuses."""
        return self._topics.keys()

    def allow(self, topics: Collection[TopicName]) -> None:
        """The target says that it takes these topics now: they are tried before all else is.

        A try costs a transaction, and brokers hear of a right one after the other. So whoever says so and refuses all the same is
        believed again more and more rarely.
        """
        now_ms = self._clock.monotonic_ms()
        for topic in self._topics.keys() & set(topics):
            next_ms, wait_ms = self._believed.get(topic, (now_ms, _BELIEVED_AGAIN_MS))
            if now_ms >= next_ms:
                self._believed[topic] = (now_ms + wait_ms, 2 * wait_ms)
                del self._topics[topic]

    def of(self, item: TopicPartition) -> Stop | None:
        """Where the partition can't go further, whatever its lineage is by now."""
        return self._stops.get(item)

    def of_topic(self, topic: TopicName) -> str:
        """Why the target refuses the topic; empty: it does not."""
        return self._topics.get(topic, "")

    def tell(self, item: TopicPartition, reason: str) -> bool:
        """The partition is told to be stopped for this reason, until it has gone on. Whether that is news."""
        before, self._told[item] = self._told.get(item), reason
        return before != reason

    def told(self, item: TopicPartition) -> str:
        """Why the partition was stopped when it was last seen; empty: it was not, or has gone on."""
        return self._told.get(item, "")

    def gone_on(self, item: TopicPartition) -> bool:
        """Something of the partition was committed, or it has nothing left to copy. Whether it was told to be stopped."""
        return self._told.pop(item, None) is not None

    @property
    def due(self) -> bool:
        """Whether it is time to try all again."""
        return self._clock.monotonic_ms() >= self._again_at_ms

    def try_again(self) -> None:
        """Hold nothing up any longer."""
        self._stops.clear()
        self._topics.clear()
        self._believed.clear()
        self._again_at_ms = math.inf

    def reasons(self) -> dict[TopicPartition, str]:
        """The partitions that are stopped, each with why."""
        return self._told | {item: stop.reason for item, stop in self._stops.items()}

    def _try_later(self) -> None:
        self._again_at_ms = min(self._again_at_ms, self._clock.monotonic_ms() + self._again_after_ms)


_BELIEVED_AGAIN_MS = 5_000


@dataclass(slots=True)
class Counts:
    """What was committed since the lease began; outlives the session."""

    records: dict[TopicPartition, int] = field(default_factory=dict)
    size_bytes: int = 0
    transactions: int = 0
    aborts: int = 0
    watermarks: int = 0
    survey_failures: int = 0
    source_wait_ms: float = 0.0
    """Spent reading the source, and waiting for it to have something."""
    target_wait_ms: float = 0.0
    """Spent waiting for the target to take in what was sent, and to commit it."""
    bytes_of: dict[TopicPartition, int] = field(default_factory=dict)
    record_ages: LatencyCounter = field(default_factory=LatencyCounter)
    """From a record's timestamp to when it was sent."""
    latencies: LatencyCounter = field(default_factory=LatencyCounter)
    """From a record's timestamp to the commit of its copy."""


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
