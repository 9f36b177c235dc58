"""How far groups are behind where they consume, now and as it went, and what that says: of those that somebody looks at."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from offsetsvc.clusters import Clusters
from parallax.domain.ids import ClusterName, GroupName, TopicPartition
from parallax.domain.lag_verdict import WINDOW, LagPoint, LagVerdict, verdict_of
from parallax.errors import DeadlineError, ParallaxError
from parallax.runtime.deadline import Deadline
from parallax.v1 import offsets_pb2 as pb

MOST_GROUPS = 100
"""Of which a history is kept: each costs two questions to every aggregate cluster."""
LOOKED_WITHIN_S = 600.0
"""A group at which nobody has looked for so long is asked for no more."""
SAMPLES = 40
"""Ten minutes, at the pace at which the gauges are refreshed."""
_WITHIN_MS = 5_000.0
"""All questions of a round; what is left then is unknown."""


Points = Mapping[TopicPartition, LagPoint | None]
"""Where a group has a position; None: where the log ends is not known."""


def _points_of(clusters: Clusters, group: GroupName, cluster: ClusterName) -> Points:
    """Where a group is at a cluster; nothing where it can't be asked.

    Raises:
        DeadlineError: the caller's deadline passed first.
    """
    try:
        view = clusters.view(cluster)
        commits = view.committed(group)
        logs = view.log_ranges(list(commits))
    except DeadlineError:
        raise
    except ParallaxError:  # it may not be seen there, or the cluster is configured no more
        return {}
    return {
        item: LagPoint(commit.next_offset, max(0, logs[item].high_watermark - commit.next_offset))
        if item in logs
        else None
        for item, commit in commits.items()
    }


def lag_of(clusters: Clusters, group: GroupName, cluster: ClusterName) -> int | None:
    """A group's lag at a cluster, over all its partitions; None: it is not known of all.

    Raises:
        DeadlineError: the caller's deadline passed first.
    """
    return _total(_points_of(clusters, group, cluster))


def _total(points: Points) -> int | None:
    known = [point.lag for point in points.values() if point is not None]
    # The sum of some partitions would look like the lag of all.
    return sum(known) if 0 < len(known) == len(points) else None


class GroupMoments:
    """A group at a cluster, as it went; for one thread at a time."""

    def __init__(self) -> None:
        self.samples: deque[pb.LagSample] = deque(maxlen=SAMPLES)
        self.points: dict[TopicPartition, deque[LagPoint]] = {}
        """The last moments, none left out."""
        self.members = True

    def take(self, points: Points, *, members: bool) -> None:
        """A moment."""
        before, self.members, self.points = self.points, members, {}
        for item, point in points.items():
            kept = self.points[item] = before.get(item) or deque(maxlen=WINDOW + 1)
            if point is None:
                kept.clear()
            else:
                kept.append(point)


class _Watched:
    """A group at which somebody has looked."""

    def __init__(self, looked_at_s: float) -> None:
        self.looked_at_s = looked_at_s
        self.clusters: dict[ClusterName, GroupMoments] = {}


class LagHistories:
    """Samples of the lags of groups that somebody looks at. Safe to use from many threads.

    Args:
        clusters: where groups consume.
        now_ms: the store's clock.
        clock: seconds, monotonic.
    """

    def __init__(
        self, clusters: Clusters, now_ms: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clusters = clusters
        self._now_ms = now_ms
        self._clock = clock
        self._lock = threading.Lock()
        self._groups: dict[GroupName, _Watched] = {}
        """Who was looked at last stands last."""

    def looked(
        self, group: GroupName, clusters: Sequence[ClusterName]
    ) -> dict[ClusterName, list[pb.LagSample]]:
        """Its lags so far at these clusters; from now on they are remembered."""
        with self._lock:
            found = self._groups.pop(group, None) or _Watched(0.0)
            found.looked_at_s = self._clock()
            for cluster in clusters:
                found.clusters.setdefault(cluster, GroupMoments())
            self._groups[group] = found
            if len(self._groups) > MOST_GROUPS:
                del self._groups[next(iter(self._groups))]
            return {cluster: list(found.clusters[cluster].samples) for cluster in clusters}

    def verdict(self, group: GroupName, cluster: ClusterName) -> pb.LagVerdict | None:
        """How it does there; None: nobody has looked before, or it has no position there."""
        with self._lock:
            at = self._moments(group, cluster)
            found = (
                None
                if at is None
                else verdict_of(
                    {item: list(points) for item, points in at.points.items()}, members=at.members
                )
            )
        return None if found is None else _verdict_to_pb(found)

    def _moments(self, group: GroupName, cluster: ClusterName) -> GroupMoments | None:
        """The group as it went there, under the lock; None: nobody looks."""
        watched = self._groups.get(group)
        return None if watched is None else watched.clusters.get(cluster)

    def remember(self) -> None:
        """Take a sample of each; unknown where a cluster does not answer."""
        oldest_s, deadline = self._clock() - LOOKED_WITHIN_S, Deadline.after_ms(_WITHIN_MS, self._clock)
        with self._lock:
            self._groups = {
                group: item for group, item in self._groups.items() if item.looked_at_s >= oldest_s
            }
            watched = [(group, cluster) for group, item in self._groups.items() for cluster in item.clusters]
        asked = dict.fromkeys(cluster for _, cluster in watched)
        members = {cluster: self._members(cluster, watched, deadline) for cluster in asked}
        for group, cluster in reversed(watched):
            points: Points = {}
            if not deadline.passed:
                with suppress(DeadlineError):
                    points = _points_of(self._clusters, group, cluster)
            sample = pb.LagSample(at_ms=self._now_ms(), lag_records=_total(points))
            with self._lock:
                moments = self._moments(group, cluster)  # others may have been looked at since
                if moments is not None:
                    moments.samples.append(sample)
                    moments.take(points, members=members[cluster].get(group, True))

    def _members(
        self, cluster: ClusterName, watched: Collection[tuple[GroupName, ClusterName]], deadline: Deadline
    ) -> Mapping[GroupName, bool]:
        """Which of the groups have members there; left out: that can't be seen. The cluster does not know those without."""
        groups = {group for group, at in watched if at == cluster}
        if deadline.passed:
            return {}
        try:
            states = self._clusters.ask(cluster, lambda reader: reader.groups(groups.__contains__))
        except ParallaxError:
            return {}
        return dict.fromkeys(groups, False) | {state.group: state.members > 0 for state in states}


def _verdict_to_pb(found: LagVerdict) -> pb.LagVerdict:
    place = found.place
    return pb.LagVerdict(
        state="LAG_STATE_UNKNOWN" if found.state is None else f"LAG_{found.state.name}",
        topic="" if place is None else place.topic,
        partition=0 if place is None else place.partition,
        lag_offsets=None if place is None else found.lag,
        partitions_not_ok=found.not_ok,
        partitions_known=found.known,
        partitions=found.partitions,
    )
