"""What moves side by side ask a cluster alike, asked once for all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from parallax.domain.ids import GroupName, TopicName, TopicPartition
from parallax.domain.resume import LogRange
from parallax.errors import ClusterUnavailableError, ConfigError
from parallax.ports.clusters import ClusterWriter, GroupState, TopicInfo

_SHARED_S = 0.5
"""So old may an answer be that groups moving side by side share."""


class _Turns:
    """One question to a cluster at a time; whoever has waited for one that failed shares its failure."""

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


class Membership:
    """A cluster's groups, listed at most twice a second."""

    def __init__(self, writer: ClusterWriter, clock: Callable[[], float] = time.monotonic) -> None:
        self._writer = writer
        self._turns = _Turns(clock)
        self._listed: tuple[float, Mapping[GroupName, GroupState]] | None = None

    def of(self, group: GroupName) -> GroupState | None:
        """The group; None if the cluster does not list it.

        Raises:
            ConfigError: this client may not see the group.
            ClusterUnavailableError: the cluster did not answer in time.
        """
        with self._turns.one() as now_s:
            if self._listed is None or now_s - self._listed[0] >= _SHARED_S:
                self._listed = (now_s, {state.group: state for state in self._writer.groups()})
            found = self._listed[1].get(group)
        if found is not None and found.refused:
            raise ConfigError(found.refused)
        return found


class Places:
    """A cluster's topics and log ranges, asked about at most twice a second."""

    def __init__(self, writer: ClusterWriter, clock: Callable[[], float] = time.monotonic) -> None:
        self._writer = writer
        self._turns = _Turns(clock)
        self._topics: tuple[float, Mapping[TopicName, TopicInfo]] | None = None
        self._ranges: dict[TopicPartition, tuple[float, LogRange | None]] = {}

    def topics(self) -> Mapping[TopicName, TopicInfo]:
        """The cluster's topics.

        Raises:
            ClusterUnavailableError: the cluster did not answer in time.
        """
        with self._turns.one() as now_s:
            if self._topics is None or now_s - self._topics[0] >= _SHARED_S:
                self._topics = (now_s, self._writer.topics())
            return self._topics[1]

    def log_ranges(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        """The log ranges of those of the partitions that are there and have a leader.

        Raises:
            ClusterUnavailableError: the cluster did not answer in time.
        """
        with self._turns.one() as now_s:
            old = [item for item in partitions if not self._is_young(item, now_s)]
            if old:
                found = self._writer.log_ranges(old)
                self._ranges.update({item: (now_s, found.get(item)) for item in old})
            known = {item: self._ranges[item][1] for item in partitions}
            return {item: log for item, log in known.items() if log is not None}

    def _is_young(self, item: TopicPartition, now_s: float) -> bool:
        return item in self._ranges and now_s - self._ranges[item][0] < _SHARED_S
