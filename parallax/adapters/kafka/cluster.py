"""`ClusterReader` and `ClusterWriter` of a real cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import structlog

from parallax.adapters.kafka.groups import (
    describe_groups,
    dismiss_members,
    list_groups,
    read_commits,
    read_commits_of_each,
    read_unsettled,
    write_commits,
)
from parallax.adapters.kafka.links import Link, Links
from parallax.adapters.kafka.logs import (
    read_cluster_id,
    read_hidden,
    read_kept_epochs,
    read_log_ranges,
    read_offset_at,
    read_time_at,
    read_topics,
    read_usable,
)
from parallax.config.config import Cluster, Config
from parallax.domain.commits import GroupCommit
from parallax.domain.ids import ClusterName, GroupName, TargetOffset, TopicName, TopicPartition
from parallax.domain.place import KeptEpoch, LogRange
from parallax.errors import ClusterUnavailableError, ConfigError
from parallax.ports.clusters import GroupState, PositionTime, TopicInfo
from parallax.runtime.deadline import Deadline

_log = structlog.get_logger(__name__)

_ELECTION_MS = 500
"""So long a partition may take to get a new leader before its log range is left out."""

_OVERDUE = 3
"""While one caller asks for topics anew, the others go on with what is at most this many times as old."""

_WANTED_S = 2.0
"""A log range that somebody wanted within this time is asked for together with others of its topic."""


@dataclass(slots=True)
class _Range:
    """A log range with when it was asked for, and when somebody wanted it last."""

    log_range: LogRange
    asked_at_s: float
    wanted_at_s: float


class KafkaCluster:
    """One Kafka cluster. Safe to use from several threads; each call is bounded by ``timeout_ms``.

    Args:
        cluster: the cluster's name.
        settings: its address and security.
        timeout_ms: bound of each call.
        cache_ms: how long topics and log ranges may be answered from memory; 0 asks every time. An older end
            makes a resume offset earlier, never wrong.
    """

    def __init__(
        self,
        cluster: ClusterName,
        settings: Cluster,
        *,
        timeout_ms: int,
        cache_ms: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._links = Links(cluster, settings, client_id=f"parallax-{cluster}", timeout_ms=timeout_ms)
        self._election_ms = min(_ELECTION_MS, timeout_ms / 2)
        self._cache_s = cache_ms / 1_000
        self._clock = clock
        self._topics: tuple[float, Mapping[TopicName, TopicInfo]] | None = None
        self._ranges: dict[TopicPartition, _Range] = {}
        self._asking_for_ranges = threading.Lock()
        self._asking_for_topics = threading.Lock()
        self._told_refused: set[GroupName] = set()
        self._no_topics: tuple[float, str] | None = None

    def close(self) -> None:
        """Close its connections; whoever asks again opens new ones.

        Without this they are open until nobody knows of the cluster, which may be long after it was last used.
        """
        self._links.close()

    @property
    def cluster(self) -> ClusterName:
        """The cluster's name."""
        return self._cluster

    def cluster_id(self) -> str:
        """The id that the cluster has given itself; it tells whether two addresses lead to one Kafka.

        Raises:
            ConfigError: the brokers refuse this client.
            ClusterUnavailableError: the cluster did not answer in time.
        """
        return self._links.do(read_cluster_id)

    def topics(self) -> Mapping[TopicName, TopicInfo]:
        """Every topic but internal ones, with its id and partition count."""
        found = self._known_topics(self._cache_s)
        if found is None and self._asking_for_topics.locked():
            found = self._known_topics(_OVERDUE * self._cache_s)
        if found is not None:
            return found
        called_at = self._clock()
        with self._asking_for_topics:
            # Who waited for another one's question shares its answer, and above all its failure.
            if self._no_topics is not None and self._no_topics[0] > called_at:
                raise ClusterUnavailableError(self._no_topics[1])
            if self._topics is not None and self._topics[0] > called_at:
                return self._topics[1]
            asked_at = self._clock()
            try:
                topics = self._links.do(read_topics)
            except ClusterUnavailableError as error:
                self._no_topics = (self._clock(), str(error))
                raise
            self._topics = (asked_at, topics)
            return topics

    def hidden(self, topics: Collection[TopicName]) -> frozenset[TopicName]:
        """Those of the topics that this client may not see, asked now; nobody tells it whether they exist.

        Raises:
            ClusterUnavailableError: the cluster did not answer in time.
        """
        return self._links.do(lambda link: read_hidden(link, topics)) if topics else frozenset()

    def usable(self, topics: Collection[TopicName]) -> frozenset[TopicName]:
        """Those of the topics that this client may read and write to, asked now.

        Raises:
            ClusterUnavailableError: the cluster did not answer in time.
        """
        return self._links.do(lambda link: read_usable(link, topics)) if topics else frozenset()

    def _known_topics(self, max_age_s: float) -> Mapping[TopicName, TopicInfo] | None:
        known = self._topics
        return known[1] if known is not None and self._clock() - known[0] < max_age_s else None

    def log_ranges(
        self, partitions: Collection[TopicPartition], *, fresh: bool = False
    ) -> Mapping[TopicPartition, LogRange]:
        """Log start and high watermark of the partitions.

        One that does not exist is left out; so is, after a moment, one without a leader: the others are not held up.
        ``fresh``: none is answered from memory. One that is named twice is asked for once: a broker refuses the request else.
        """
        partitions = list(dict.fromkeys(partitions))
        if fresh:
            return self._ask_for_ranges(partitions)
        known = self._known_ranges(partitions)
        missing = [item for item in partitions if item not in known]
        if missing and self._asking_for_ranges.acquire(blocking=False):
            try:
                known |= self._ask_with_others(missing)
            finally:
                self._asking_for_ranges.release()
        elif missing:
            known |= self._ask_for_ranges(missing)
        return {item: known[item] for item in partitions if item in known}

    def _known_ranges(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogRange]:
        now_s = self._clock()
        found = {}
        for partition in partitions:
            item = self._ranges.get(partition)
            if item is not None:
                item.wanted_at_s = now_s
                if now_s - item.asked_at_s < self._cache_s:
                    found[partition] = item.log_range
        return found

    def _ask_with_others(self, missing: Collection[TopicPartition]) -> dict[TopicPartition, LogRange]:
        others = self._wanted_with(missing)
        try:
            found = self._ask_for_ranges([*missing, *others])
        except ClusterUnavailableError:
            if not others:
                raise
            found = None
        # The leader of another partition may be away, which is no matter of who asked.
        for partition in others:
            if found is None or partition not in found:
                self._ranges.pop(partition, None)
        return self._ask_for_ranges(missing) if found is None else found

    def _wanted_with(self, missing: Collection[TopicPartition]) -> list[TopicPartition]:
        """Further partitions of these topics whose ranges are out of date, and which were wanted lately."""
        if not self._cache_s:
            return []
        now_s = self._clock()
        asked, topics = set(missing), {item.topic for item in missing}
        return [
            partition
            for partition, item in list(self._ranges.items())
            if partition.topic in topics
            and partition not in asked
            and now_s - item.wanted_at_s < _WANTED_S
            and now_s - item.asked_at_s >= self._cache_s
        ]

    def _ask_for_ranges(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogRange]:
        asked_at_s = self._clock()
        patience = Deadline.after_ms(self._election_ms)
        found = dict(
            self._links.do(lambda link: read_log_ranges(link, partitions, patient=not patience.passed))
        )
        for partition, log_range in found.items():
            before = self._ranges.get(partition)
            wanted_at_s = asked_at_s if before is None else before.wanted_at_s
            self._ranges[partition] = _Range(log_range, asked_at_s, wanted_at_s)
        return found

    def kept_epochs(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, KeptEpoch]:
        """What the logs that are there now have of a leader epoch; asked every time.

        One that does not exist, or whose leader does not know the epoch, is left out; so is, after a moment, one without
        a leader.

        Raises:
            ClusterUnavailableError: the cluster did not answer in time.
        """
        patience = Deadline.after_ms(self._election_ms)
        return self._links.do(lambda link: read_kept_epochs(link, epochs, patient=not patience.passed))

    def time_at(self, partition: TopicPartition, position: TargetOffset) -> PositionTime | None:
        """When the position is; None: it lies outside of the log, or no record there bears a timestamp.

        Raises:
            ConfigError: this client may not read the topic.
            ClusterUnavailableError: the cluster did not answer in time.
        """
        return self._links.do(lambda link: read_time_at(link, partition, position))

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> TargetOffset | None:
        """The first offset whose record is of that time or later; without one, the end as it was before the search.

        Raises:
            ClusterUnavailableError: the cluster did not answer in time.
        """
        return self._links.do(lambda link: read_offset_at(link, partition, timestamp_ms))

    def groups(
        self, chosen: Callable[[GroupName], bool] | None = None, *, resting: Collection[GroupName] = ()
    ) -> list[GroupState]:
        """Every consumer group with its state, or those that are chosen; ``resting`` ones are listed alone.

        Members are counted for groups that have any. A group that this client may not see says so itself, and is
        logged once.
        """

        def ask(link: Link) -> list[GroupState]:
            listed = list_groups(link)
            wanted = {name: item for name, item in listed.items() if chosen is None or chosen(name)}
            described = {name: item for name, item in wanted.items() if name not in resting}
            listed_alone = (
                GroupState(name, item.state, 0) for name, item in wanted.items() if name in resting
            )
            return [*describe_groups(link, described), *listed_alone]

        found = self._links.do(ask)
        for state in found:
            if state.refused and state.group not in self._told_refused:
                self._told_refused.add(state.group)
                _log.warning("group_not_to_be_seen", group=state.group, problem=state.refused)
        return found

    def committed(self, group: GroupName) -> Mapping[TopicPartition, GroupCommit]:
        """Every committed offset of the group; empty for one that never committed.

        Raises:
            ConfigError: the group has offsets on a topic that this client may not see.
            ClusterUnavailableError: the cluster did not answer in time, or not for every partition.
        """
        return self._links.do(lambda link: read_commits(link, group))

    def committed_each(
        self, groups: Collection[GroupName]
    ) -> Mapping[GroupName, Mapping[TopicPartition, GroupCommit] | ConfigError]:
        """Every committed offset of each group, a coordinator's groups in one request; or why one may not be seen.

        Raises:
            ClusterUnavailableError: the cluster did not answer in time, or not for every group and partition.
        """
        return self._links.do(lambda link: read_commits_of_each(link, groups)) if groups else {}

    def unsettled(self, group: GroupName) -> frozenset[TopicPartition]:
        """Partitions whose committed offset an open transaction may replace.

        Raises:
            ConfigError: this client may not see the group.
            ClusterUnavailableError: the cluster did not answer in time.
        """
        return self._links.do(lambda link: read_unsettled(link, group))

    def dismiss(self, group: GroupName, instances: Collection[str]) -> None:
        """Take members out of a group by their instance ids; one that is at work joins again.

        Raises:
            ConfigError: this client may not change the group.
            ClusterUnavailableError: the cluster did not answer in time.
        """
        if instances:
            self._links.do(lambda link: dismiss_members(link, group, instances))

    def commit_for(self, group: GroupName, commits: Mapping[TopicPartition, GroupCommit]) -> None:
        """Set committed offsets of a group without members.

        Raises:
            FencedError: the group has members; nothing was written.
            ClusterUnavailableError: the cluster did not answer in time; the offsets may or may not be written.
        """
        if commits:
            self._links.do(lambda link: write_commits(link, group, commits))


def aggregate_clusters(config: Config, *, cache_ms: int = 0) -> dict[ClusterName, KafkaCluster]:
    """The clusters between which groups move.

    Args:
        config: names them.
        cache_ms: how old topics and log ends may be.
    """
    timeout_ms = config.service.cluster_timeout_ms
    return {
        name: KafkaCluster(name, cluster, timeout_ms=timeout_ms, cache_ms=cache_ms)
        for name, cluster in config.aggregate_clusters().items()
    }
