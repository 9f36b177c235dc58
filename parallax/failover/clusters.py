"""What moves ask of the aggregate clusters. Moves side by side share answers; a dead cluster costs few time-outs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from parallax.domain.commits import Commits
from parallax.domain.ids import ClusterName, GroupName, TopicName, TopicPartition
from parallax.domain.place import LogRange
from parallax.errors import ClusterUnavailableError, ConfigError, UnknownRegionError
from parallax.ports.clusters import ClusterWriter, GroupState, TopicInfo

_SHARED_S = 0.5
"""So old may an answer be that groups moving side by side share."""

_AWAY_S = 5.0
"""A cluster that did not answer is not asked again for so long: a dead one costs a time-out per question."""

T = TypeVar("T")


class AggregateClusters:
    """Every aggregate cluster.

    Args:
        writers: the clusters.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self, writers: Mapping[ClusterName, ClusterWriter], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.writers = writers
        self._clock = clock
        self._views = {name: SharedView(writer, clock) for name, writer in writers.items()}
        self._away: dict[ClusterName, float] = {}

    def writer(self, cluster: ClusterName) -> ClusterWriter:
        """The cluster itself: nothing is shared, and an answer that is missing is raised.

        Raises:
            UnknownRegionError: there is no such aggregate cluster.
        """
        if cluster not in self.writers:
            raise UnknownRegionError(
                f"unknown aggregate cluster {cluster!r}; known: {', '.join(sorted(self.writers)) or 'none'}"
            )
        return self.writers[cluster]

    def view(self, cluster: ClusterName) -> SharedView:
        """The cluster for moves that look at it side by side."""
        return self._views[cluster]

    def members(self, group: GroupName, cluster: ClusterName) -> int | None:
        """How many members the group has there; None if the cluster does not answer."""

        def count(_writer: ClusterWriter) -> int:
            state = self._views[cluster].group(group)
            return 0 if state is None else state.members

        return self._ask(cluster, count)

    def dismiss_own(self, group: GroupName, cluster: ClusterName) -> None:
        """Take FailoverConsumers with ids of their own making out of a group; nothing if the cluster does not answer."""

        def dismiss(writer: ClusterWriter) -> None:
            if (state := self._views[cluster].group(group)) is not None:
                writer.dismiss(group, state.own_instances)

        self._ask(cluster, dismiss)

    def assigned(self, group: GroupName, cluster: ClusterName) -> frozenset[TopicName]:
        """The topics of which the group's members there have partitions; none if the cluster does not answer."""
        state = self._ask(cluster, lambda _: self._views[cluster].group(group))
        return frozenset() if state is None else state.assigned

    def commits(self, group: GroupName, cluster: ClusterName) -> Commits | None:
        """The group's commits there; None if the cluster does not answer."""
        return self._ask(cluster, lambda writer: dict(writer.committed(group)))

    def commits_each(
        self, groups: Collection[GroupName], cluster: ClusterName
    ) -> dict[GroupName, Commits | ConfigError] | None:
        """The commits of each group there, those of one coordinator in one request; None if the cluster does not answer.

        In the place of a group that this client may not see stands why.
        """
        found = self._ask(cluster, lambda writer: writer.committed_each(groups))
        if found is None:
            return None
        return {group: item if isinstance(item, ConfigError) else dict(item) for group, item in found.items()}

    def unsettled(self, group: GroupName, cluster: ClusterName) -> frozenset[TopicPartition] | None:
        """Partitions on which an open transaction of the group may commit; None if the cluster does not answer."""
        return self._ask(cluster, lambda writer: writer.unsettled(group))

    def topics(self, cluster: ClusterName) -> Mapping[TopicName, TopicInfo] | None:
        """The cluster's topics, asked for at most twice a second; None if it does not answer."""
        return self._ask(cluster, lambda _: self._views[cluster].topics())

    def _ask(self, cluster: ClusterName, question: Callable[[ClusterWriter], T]) -> T | None:
        """The cluster's answer; None if it does not answer, or did not a moment ago."""
        writer = self.writer(cluster)
        away_until_s = self._away.get(cluster)
        if away_until_s is not None:
            if self._clock() < away_until_s:
                return None
            self._away[cluster] = self._clock() + _AWAY_S  # one asks whether it is back, for everybody
        try:
            answer = question(writer)
        except ClusterUnavailableError:
            self._away[cluster] = self._clock() + _AWAY_S
            return None
        self._away.pop(cluster, None)
        return answer


class SharedView:
    """One cluster's groups, topics and log ranges, each asked about at most twice a second."""

    def __init__(self, writer: ClusterWriter, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._group_turns = _Turns(clock)
        self._groups: tuple[float, Mapping[GroupName, GroupState]] | None = None
        self._log_turns = _Turns(clock)
        self._topics: tuple[float, Mapping[TopicName, TopicInfo]] | None = None
        self._ranges: dict[TopicPartition, tuple[float, LogRange | None]] = {}

    def group(self, group: GroupName) -> GroupState | None:
        """The group; None if the cluster does not list it.

        Raises:
            ConfigError: this client may not see the group.
            ClusterUnavailableError: the cluster did not answer in time.
        """
        with self._group_turns.one() as now_s:
            if self._groups is None or now_s - self._groups[0] >= _SHARED_S:
                self._groups = (now_s, {state.group: state for state in self._writer.groups()})
            state = self._groups[1].get(group)
        if state is not None and state.refused:
            raise ConfigError(state.refused)
        return state

    def topics(self) -> Mapping[TopicName, TopicInfo]:
        """The cluster's topics.

        Raises:
            ClusterUnavailableError: the cluster did not answer in time.
        """
        with self._log_turns.one() as now_s:
            if self._topics is None or now_s - self._topics[0] >= _SHARED_S:
                self._topics = (now_s, self._writer.topics())
            return self._topics[1]

    def log_ranges(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        """The log ranges of those of the partitions that are there and have a leader.

        Raises:
            ClusterUnavailableError: the cluster did not answer in time.
        """
        with self._log_turns.one() as now_s:
            old = [item for item in partitions if not self._is_young(item, now_s)]
            if old:
                ranges = self._writer.log_ranges(old)
                self._ranges.update({item: (now_s, ranges.get(item)) for item in old})
            known = {item: self._ranges[item][1] for item in partitions}
            return {item: log for item, log in known.items() if log is not None}

    def _is_young(self, item: TopicPartition, now_s: float) -> bool:
        return item in self._ranges and now_s - self._ranges[item][0] < _SHARED_S


class _Turns:
    """One question at a time; whoever has waited for one that failed shares its failure."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failed: tuple[float, str] | None = None

    @contextmanager
    def one(self) -> Iterator[float]:
        """A turn, with the time at which it begins.

        Raises:
            ClusterUnavailableError: the cluster did not answer in time, now or a moment ago.
        """
        with self._lock:
            now_s = self._clock()
            if self._failed is not None and now_s - self._failed[0] < _SHARED_S:
                raise ClusterUnavailableError(self._failed[1])
            try:
                yield now_s
            except ClusterUnavailableError as error:
                self._failed = (self._clock(), str(error))
                raise
