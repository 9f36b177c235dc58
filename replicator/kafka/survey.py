"""Looks at the topics of both clusters, in a thread of its own: the copy loop never waits for a far cluster.

A topic of the source is called as its copy is, but where brokers are asked or people told of it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import structlog
from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.adapters.kafka.librdkafka import EARLIEST, LATEST, client_settings, list_offsets, translated
from parallax.config.config import Config
from parallax.domain.acls import Operation
from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    SourceOffset,
    TopicId,
    TopicName,
    TopicPartition,
    aggregate_cluster,
)
from parallax.errors import NotFoundError, ParallaxError, PartitionStoppedError
from parallax.ports.clusters import TopicInfo
from replicator.copying.ports import LogEnd, Survey
from replicator.kafka.refusals import missing_right, not_readable
from replicator.kafka.topics import TargetTopics
from replicator.lease import Lease

log = structlog.get_logger(__name__)

FORGETFUL = {"metadata.max.age.ms": 3_000}
"""For admin clients that ask for offsets: from older metadata they would not know partitions added since."""


def partitions_of_shard(topics: Iterable[TopicInfo], lease: Lease) -> list[TopicPartition]:
    """Those of the target's topics' partitions that the lease's shard writes to."""
    return [
        item
        for info in topics
        for partition in range(info.partitions)
        if lease.has(item := TopicPartition(info.topic, partition))
    ]


@dataclass(slots=True)
class Beginnings:
    """Where what a route never copied begins, from the first survey on: it outlives sessions, which broken clusters end.

    Attributes:
        first_seen: the topics of the first survey, and how many partitions each had; None: there was none yet.
        begins_at: of partitions that were found since.
    """

    first_seen: dict[TopicId, int] | None = None
    begins_at: dict[tuple[TopicPartition, TopicId], SourceOffset] = field(default_factory=dict)


class KafkaSurveyor:
    """`Surveyor` over an admin client for each side.

    Args:
        config: all configuration.
        lease: the shard whose partitions are looked at.
        beginnings: those of the lease's earlier surveyors.
        timeout_ms: bound of each call.
    """

    def __init__(
        self, config: Config, lease: Lease, beginnings: Beginnings, *, timeout_ms: int = 5_000
    ) -> None:
        self._names = config.route_topics(lease.route)
        self._start = config.settings_of(lease.route).start
        self._beginnings = beginnings
        self._lease = lease
        self._target_topics = TargetTopics(config, lease.route)
        self._timeout_s = timeout_ms / 1_000
        source, target = config.source_cluster(lease.route), aggregate_cluster(lease.route.target)
        self._source_cluster, self._target_cluster = source, target
        self._source = KafkaCluster(source, config.cluster(source), timeout_ms=timeout_ms)
        self._target = KafkaCluster(target, config.cluster(target), timeout_ms=timeout_ms)
        settings = client_settings(config.cluster(source), client_id="parallax-survey")
        self._source_admin = AdminClient({**settings, **FORGETFUL})
        self._wake = threading.Condition()
        self._problems: dict[TopicPartition, str] = {}
        """Partitions that did not answer, and what was said of them."""
        self._unfit: dict[TopicName, str] = {}
        """Topics whose target can't be made to fit, and why."""
        self._added_by_hand = config.topics.new == "manual"
        self._not_added: frozenset[TopicName] = frozenset()
        self._requested = 0
        self._known: frozenset[TopicName] = frozenset()
        self._refused: frozenset[TopicName] = frozenset()
        self._newest: Survey | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"survey {lease}", daemon=True)
        self._thread.start()

    def request(self, known: Collection[TopicName], refused: Collection[TopicName]) -> int:
        """Ask for a survey that begins after this call."""
        with self._wake:
            self._known, self._refused = frozenset(known), frozenset(refused)
            self._requested += 1
            self._wake.notify()
            return self._requested

    def result(self) -> Survey | None:
        """The newest survey, once."""
        with self._wake:
            answer, self._newest = self._newest, None
            return answer

    def close(self) -> None:
        """End the thread; a call that it waits for ends by its own time-out."""
        with self._wake:
            self._closed = True
            self._wake.notify()

    def _work(self) -> None:
        answered = 0
        while True:
            with self._wake:
                self._wake.wait_for(lambda seen=answered: self._closed or self._requested > seen)  # type: ignore[misc] # mypy can't type the default
                if self._closed:
                    break
                answered, known, refused = self._requested, self._known, self._refused
            try:
                survey = replace(self._look(answered, known), usable=self._usable(refused))
            except Exception:
                # Without this thread nobody would see new topics, or sources that have lost records, for the lease's whole life.
                log.exception("survey_failed", lease=str(self._lease))
                survey = Survey(answered, None, {}, None, failed=True)
            with self._wake:
                self._newest = survey
        for cluster in (self._source, self._target):
            cluster.close()

    def _look(self, ticket: int, known: Collection[TopicName]) -> Survey:
        source, target = self._sources_topics(), self._targets_topics()
        source, unreadable = self._with_hidden(self._source, source, {*known, *(target or ())})
        target, unwritable = self._with_hidden(self._target, target, {*known, *(source or ())})
        refused: dict[TopicName, str] = {}
        if source is not None and self._beginnings.first_seen is None:
            self._beginnings.first_seen = {info.topic_id: info.partitions for info in source.values()}
        if source is not None and target is not None:
            source = self._added(source, target)
            same_cluster = self._same_cluster()
            if same_cluster is None:
                return Survey(ticket, None, {}, None)
            if same_cluster:
                return Survey(ticket, source, {}, target, same_cluster=same_cluster)
            made = [
                self._fit(info, target.get(name), refused)
                for name, info in source.items()
                if name not in unwritable
            ]
            if any(made):
                target = self._targets_topics()
        logs: Mapping[TopicPartition, LogEnd] = {}
        if source is not None:
            try:
                logs = self._logs(source)
            except ParallaxError as error:
                log.info("survey_incomplete", lease=str(self._lease), problem=str(error))
        hidden = {topic: not_readable(self._source_cluster, self._own(topic)) for topic in unreadable}
        for topic in unwritable:
            reason = missing_right(self._target_cluster, topic, (Operation.READ, Operation.WRITE))
            hidden[topic] = f"{hidden[topic]}; {reason}" if topic in hidden else reason
        return Survey(ticket, source, logs, target, refused, hidden=hidden)

    def _usable(self, refused: Collection[TopicName]) -> Collection[TopicName]:
        try:
            return self._target.usable(refused)
        except ParallaxError as error:
            log.info("survey_incomplete", lease=str(self._lease), problem=str(error))
            return ()

    def _with_hidden(
        self,
        cluster: KafkaCluster,
        topics: dict[TopicName, TopicInfo] | None,
        wanted: Collection[TopicName],
    ) -> tuple[dict[TopicName, TopicInfo] | None, frozenset[TopicName]]:
        """The topics that a cluster shows, and the wanted ones that it hides; None: it does not answer."""
        if topics is None:
            return None, frozenset()
        asked = {topic for topic in wanted if self._names.make(topic)} - topics.keys()
        try:
            if cluster is not self._source:
                return topics, cluster.hidden(asked)
            hidden = cluster.hidden({self._own(topic) for topic in asked})
            return topics, frozenset(topic for topic in asked if self._own(topic) in hidden)
        except ParallaxError as error:
            log.info("survey_incomplete", lease=str(self._lease), problem=str(error))
            return None, frozenset()

    def _same_cluster(self) -> str | None:
        """Why nothing may be copied between the two; empty if they are two, None if one of them does not say.

        Asked each time: an address may lead elsewhere from one moment to the next.
        """
        try:
            cluster_id = self._source.cluster_id()
            if not cluster_id or cluster_id != self._target.cluster_id():
                return ""
        except ParallaxError as error:
            log.info("survey_incomplete", lease=str(self._lease), problem=str(error))
            return None
        return (
            f"SAME_CLUSTER: {self._source_cluster} and {self._target_cluster} are one Kafka "
            f"cluster, of the id {cluster_id}: the route would copy its own copies for ever. Nothing is copied until "
            "each has an address of its own"
        )

    def _own(self, copy: TopicName) -> TopicName:
        """What a topic is called at the source."""
        return self._names.source_of(copy) or copy

    def _sources_topics(self) -> dict[TopicName, TopicInfo] | None:
        shown = self._topics(self._source)
        if shown is None:
            return None
        return {
            copy: replace(info, topic=copy)
            for name, info in shown.items()
            if (copy := self._names.copy_of(name)) is not None
        }

    def _targets_topics(self) -> dict[TopicName, TopicInfo] | None:
        shown = self._topics(self._target)
        return None if shown is None else {name: shown[name] for name in shown if self._names.make(name)}

    def _topics(self, cluster: KafkaCluster) -> Mapping[TopicName, TopicInfo] | None:
        try:
            return cluster.topics()
        except ParallaxError as error:
            log.info("survey_incomplete", lease=str(self._lease), problem=str(error))
            return None

    def _added(
        self, source: dict[TopicName, TopicInfo], target: Mapping[TopicName, TopicInfo]
    ) -> dict[TopicName, TopicInfo]:
        """The source's topics without those that wait until somebody adds them: nothing of these is looked at."""
        if not self._added_by_hand:
            return source
        waiting = frozenset(source.keys() - target.keys())
        for topic in sorted(waiting - self._not_added):
            log.info("topic_not_added", lease=str(self._lease), topic=topic)
        self._not_added = waiting
        return {topic: info for topic, info in source.items() if topic not in waiting}

    def _fit(self, there: TopicInfo, here: TopicInfo | None, refused: dict[TopicName, str]) -> bool:
        """Make the target's topic fit the source's. Whether something was done."""
        if here is not None and here.partitions >= there.partitions:
            return False
        try:
            self._target_topics.fit(there)
        except PartitionStoppedError as error:
            refused[there.topic] = str(error)
            self._unfit.pop(there.topic, None)
        except ParallaxError as error:
            problem = str(error)
            if self._unfit.get(there.topic) != problem:  # a right may be missing for days
                log.warning("target_topic_unfit", lease=str(self._lease), topic=there.topic, problem=problem)
            self._unfit[there.topic] = problem
        else:
            self._unfit.pop(there.topic, None)
        return True

    def _logs(self, topics: Mapping[TopicName, TopicInfo]) -> dict[TopicPartition, LogEnd]:
        items = partitions_of_shard(topics.values(), self._lease)
        problems: dict[TopicPartition, ParallaxError] = {}
        lows = self._offsets(items, EARLIEST, IsolationLevel.READ_UNCOMMITTED, problems)
        stable = self._offsets(items, LATEST, IsolationLevel.READ_COMMITTED, problems)
        highs = self._offsets(items, LATEST, IsolationLevel.READ_UNCOMMITTED, problems)
        self._log_changes(problems)
        logs = {
            item: LogEnd(
                SourceOffset(lows[item][0]),
                SourceOffset(highs[item][0]),
                SourceOffset(stable[item][0]),
                highs[item][1],
            )
            for item in items
            if item in lows and item in stable and item in highs
        }
        return logs if self._start == "earliest" else self._beginning(topics, logs)

    def _beginning(
        self, topics: Mapping[TopicName, TopicInfo], logs: Mapping[TopicPartition, LogEnd]
    ) -> dict[TopicPartition, LogEnd]:
        """The logs, with where those begin that were never copied: the same each time, though ends move."""
        first_seen = self._beginnings.first_seen or {}
        new = [item for item in logs if (item, topics[item.topic].topic_id) not in self._beginnings.begins_at]
        by_time: Mapping[TopicPartition, tuple[int, int]] = {}
        if isinstance(self._start, int):
            at = OffsetSpec.for_timestamp(self._start)
            by_time = self._offsets(new, at, IsolationLevel.READ_UNCOMMITTED, {})
            new = [item for item in new if item in by_time]
        for item in new:
            topic_id, end = topics[item.topic].topic_id, logs[item].stable_end
            if by_time:  # -1: no record is of that time or later
                begins_at = by_time[item][0] if by_time[item][0] >= 0 else end
            else:  # of what comes while somebody looks nothing is left out
                begins_at = end if item.partition < first_seen.get(topic_id, 0) else 0
            self._beginnings.begins_at[item, topic_id] = SourceOffset(begins_at)
        return {
            item: replace(log, begins_at=known)
            for item, log in logs.items()
            if (known := self._beginnings.begins_at.get((item, topics[item.topic].topic_id))) is not None
        }

    def _offsets(
        self,
        items: Collection[TopicPartition],
        spec: OffsetSpec,
        isolation: IsolationLevel,
        problems: dict[TopicPartition, ParallaxError],
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Offset and leader epoch of those that answer; of the others ``problems`` says why, if they exist."""
        if not items:
            return {}
        own = {KafkaPartition(self._own(item.topic), item.partition): item for item in items}
        request = dict.fromkeys(own, spec)
        futures = list_offsets(
            self._source_admin, request, isolation_level=isolation, request_timeout=self._timeout_s
        )
        offsets: dict[TopicPartition, tuple[int, int]] = {}
        for place, future in futures.items():
            item = own[place]
            try:
                answer = future.result(timeout=self._timeout_s + 1)
            except (KafkaException, TimeoutError) as error:
                problem = translated(error, self._source_cluster, "reading log ranges")
                if not isinstance(problem, NotFoundError):
                    problems[item] = problem
                continue
            epoch = UNKNOWN_EPOCH if answer.leader_epoch is None else answer.leader_epoch
            offsets[item] = (answer.offset, epoch)
        if problems and not offsets:
            raise next(iter(problems.values()))
        return offsets

    def _log_changes(self, problems: Mapping[TopicPartition, ParallaxError]) -> None:
        """Log what has changed: a partition may be without a leader for hours, and a survey comes every few seconds."""
        texts = {item: str(problem) for item, problem in problems.items()}
        for item, problem in texts.items():
            if self._problems.get(item) != problem:
                log.warning(
                    "source_log_unknown", lease=str(self._lease), partition=str(item), problem=problem
                )
        for item in self._problems.keys() - texts.keys():
            log.info("source_log_known", lease=str(self._lease), partition=str(item))
        self._problems = texts
