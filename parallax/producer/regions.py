"""All regions of a producer, as its probes see them: who is down, who can take over, who is well again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from parallax.errors import ClusterUnavailableError, ParallaxError, UnknownTopicError
from parallax.producer.errors import PartitionCountError, TopicRefusedError
from parallax.producer.events import DownReason, ProducerEvent, ProducerEventKind
from parallax.producer.ports import ClusterTopics
from parallax.producer.settings import ProducerPolicies
from parallax.producer.site import ProducerSite

PROBE_EVERY_S = 0.5
"""Between two probes while a region is suspected or away from home; an unanswered one takes longer."""

_QUICK_DEPARTURE = 10
"""A region that goes down within so many times ``return_after_ms`` of a return had not been well."""

_MOST_DOUBLINGS = 6


class RegionHealth:
    """One region, as far as asked. Times are seconds of one monotonic clock.

    Attributes:
        region: whose regional cluster.
        asked_at_s: when the last probe with a result went out.
        answered_at_s: when the last answered one did; None: none yet.
        good_since_s: answered and fit at every probe from then on; None: not at the last one.
        known_cause: the problem that the application knows of.
    """

    def __init__(self, region: str) -> None:
        self.region = region
        self.asked_at_s: float | None = None
        self.answered_at_s: float | None = None
        self.good_since_s: float | None = None
        self.known_cause: str | None = None
        self._answer: ClusterTopics | None = None
        self._covers: frozenset[str] = frozenset()
        self._silent_since_s: float | None = None
        self._silence: ParallaxError | None = None

    @property
    def partition_counts(self) -> Mapping[str, int]:
        """What the last answer says of topics that exist."""
        return {} if self._answer is None else self._answer.partition_counts

    def answered(self, asked_at_s: float, topics: Iterable[str], answer: ClusterTopics) -> None:
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

    def _topic_problem(self, answer: ClusterTopics, topic: str, count: int | None) -> ParallaxError | None:
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


@dataclass(frozen=True, slots=True)
class Due:
    """A probe to be made."""

    region: str
    topics: tuple[str, ...]


class Regions:
    """What is known of every region, guarded by the engine's lock. Times are seconds of one monotonic clock.

    Args:
        names: in the order of preference; the first is home.
        policies: how long to wait for what.
        topics: produced to sooner or later.
        tell: hears of UNFIT and FIT.
    """

    def __init__(
        self,
        names: Sequence[str],
        policies: ProducerPolicies,
        *,
        topics: Sequence[str],
        tell: Callable[[ProducerEvent], None],
    ) -> None:
        self.names = tuple(names)
        self._policies = policies
        self._tell = tell
        self._health = {name: RegionHealth(name) for name in self.names}
        self._topics: dict[str, int | None] = dict.fromkeys(topics)
        self._new_topic = bool(topics)
        self._returned_at_s: float | None = None
        self._hasty_returns = 0

    @property
    def home(self) -> str:
        """The region that is preferred to all others."""
        return self.names[0]

    # --- topics -------------------------------------------------------------------------------------------

    def produced_to(self, topic: str) -> bool:
        """A record for this topic came. True: it is the first, and every region has to be asked for it."""
        if topic in self._topics:
            return False
        self._topics[topic] = None
        self._new_topic = True
        return True

    def forget(self, topic: str) -> None:
        """The topic takes no records where they go: no other region needs it."""
        self._topics.pop(topic, None)

    # --- probes -------------------------------------------------------------------------------------------

    def due(self, now_s: float, site: ProducerSite, known: Mapping[str, object]) -> list[Due]:
        """Whom to ask now: everyone while something is wrong or new, the better ones while away, else now and then.

        Args:
            now_s: the time.
            site: the present one.
            known: regions whose clusters are known.
        """
        urgent = site.suspected_at_s is not None
        rank = self.names.index(site.region)
        due = []
        for place, name in enumerate(self.names):
            often = urgent or place < rank
            every_s = PROBE_EVERY_S if often else self._policies.check_interval_ms / 1_000
            asked_at_s = self._health[name].asked_at_s
            if name in known and (asked_at_s is None or self._new_topic or now_s - asked_at_s >= every_s):
                due.append(Due(name, tuple(self._topics)))
        self._new_topic = False
        return due

    def probed(
        self, due: Due, asked_at_s: float, result: ClusterTopics | ParallaxError, present: str
    ) -> None:
        """A probe has ended; ``present`` is the region in use."""
        health = self._health[due.region]
        if isinstance(result, ParallaxError):
            health.silent(asked_at_s, result)
        else:
            health.answered(asked_at_s, due.topics, result)
            for topic, count in self._topics.items():
                here = health.partition_counts.get(topic)
                if here is not None and (due.region == self.home or count is None):
                    self._topics[topic] = here
        if self._topics.keys() <= set(due.topics):  # else it is asked again at once
            problem = health.problem(self._topics)
            health.judged(asked_at_s, good=problem is None)
            if due.region != present:
                self._tell_fitness(health, problem)

    def unusable(self, region: str, now_s: float, error: ParallaxError, present: str) -> None:
        """No producer can be made there: as a probe that was not answered."""
        self.probed(Due(region, tuple(self._topics)), now_s, error, present)

    def _tell_fitness(self, health: RegionHealth, problem: ParallaxError | None) -> None:
        """Tell each cause once: what a silent cluster says changes with every try."""
        cause = None
        if problem is not None:
            cause = problem.code if isinstance(problem, ClusterUnavailableError) else str(problem)
        if cause == health.known_cause:
            return
        health.known_cause = cause
        if problem is None:
            self._tell(ProducerEvent(ProducerEventKind.FIT, health.region))
        else:
            self._tell(
                ProducerEvent(ProducerEventKind.UNFIT, health.region, error=problem, message=str(problem))
            )

    # --- judging ------------------------------------------------------------------------------------------

    def problems(self) -> dict[str, ParallaxError]:
        """What keeps each region from taking records, as last checked."""
        problems = {name: health.problem(self._topics) for name, health in self._health.items()}
        return {name: problem for name, problem in problems.items() if problem is not None}

    def answered_since(self, region: str, since_s: float) -> bool:
        """Whether a probe made after that was answered, and none has failed since."""
        health = self._health[region]
        return (
            health.answered_at_s is not None
            and health.answered_at_s >= since_s
            and health.asked_at_s == health.answered_at_s
        )

    def all_asked_since(self, since_s: float, known: Mapping[str, object]) -> bool:
        """Whether everyone was asked after that."""
        return all(
            health.asked_at_s is not None and health.asked_at_s >= since_s
            for name, health in self._health.items()
            if name in known
        )

    def down(self, site: ProducerSite, now_s: float) -> DownReason | None:
        """Whether the present region is down, and why."""
        if site.failure is not None:
            return site.failure
        if site.silent_s(now_s) * 1_000 >= self._policies.stalled_after_ms:
            return DownReason.STALLED
        since = site.suspected_at_s
        if since is not None:
            silent_ms = self._health[site.region].silent_s(now_s, since) * 1_000
            if silent_ms >= self._policies.unreachable_after_ms:
                return DownReason.UNREACHABLE
        return None

    def candidate(
        self, site: ProducerSite, known: Mapping[str, object], since_s: float | None = None
    ) -> str | None:
        """The first region that can take over, by a probe made after ``since_s``; None: none can.

        It may be the present one, where only librdkafka's producer has failed and not the cluster.
        """
        others = [name for name in self.names if name != site.region]
        for name in [site.region, *others] if site.failure is DownReason.FATAL else others:
            health = self._health[name]
            answered = health.answered_at_s
            recent = answered is not None and (since_s is None or answered >= since_s)
            if name in known and recent and health.problem(self._topics) is None:
                return name
        return None

    def better(self, present: str, known: Mapping[str, object], now_s: float) -> str | None:
        """A region before the present one in the order that has been well for long enough."""
        wait_s = self._policies.return_after_ms / 1_000 * 2 ** min(self._hasty_returns, _MOST_DOUBLINGS)
        for name in self.names[: self.names.index(present)]:
            health = self._health[name]
            since = health.good_since_s
            if (
                name in known
                and since is not None
                and now_s - since >= wait_s
                and health.problem(self._topics) is None
            ):
                return name
        return None

    def returned(self, now_s: float) -> None:
        """Records go to a better region again."""
        self._returned_at_s = now_s

    def moved(self, now_s: float) -> None:
        """The present region went down; if soon after a return, the next return takes longer."""
        quick_s = self._policies.return_after_ms / 1_000 * _QUICK_DEPARTURE
        hasty = self._returned_at_s is not None and now_s - self._returned_at_s < quick_s
        self._hasty_returns = self._hasty_returns + 1 if hasty else 0
