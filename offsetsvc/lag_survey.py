"""What the lags of many groups say, moment by moment, for metrics: of groups that `metrics.lag_groups` chooses, looked at or not."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from itertools import groupby

from offsetsvc.clusters import Clusters
from offsetsvc.lags import GroupMoments
from parallax.domain.ids import ClusterName, GroupName, TopicPartition
from parallax.domain.lag_verdict import LagPoint, LagVerdict, verdict_of
from parallax.errors import ParallaxError
from parallax.ports.clusters import ClusterReader, ClusterWriter

Places = Mapping[GroupName, ClusterName]
"""Where groups consume."""

PLACES_AGE_S = 60.0
"""Where groups consume is read from the store so often, or as seldom as it takes to spend `_SHARE` of the time on it."""
_SHARE = 0.02


class LagSurvey:
    """The moments of each group where it consumes. One thread looks; others may read what was found.

    Args:
        places: where the chosen groups consume, as far as the store knows.
        clusters: keeps account of those that are away.
        writers: the same clusters; they tell commits of many groups at once.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        places: Callable[[], Places],
        clusters: Clusters,
        writers: Mapping[ClusterName, ClusterWriter],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read_places = places
        self._clusters = clusters
        self._writers = writers
        self._clock = clock
        self._places: Places = {}
        self._places_due_s = float("-inf")
        self._moments: dict[tuple[GroupName, ClusterName], GroupMoments] = {}
        self.verdicts: Mapping[tuple[GroupName, ClusterName], LagVerdict | None] = {}
        """By group and the cluster where it consumes; None: it has no position there, or nobody can tell."""

    def look(self) -> None:
        """Take a moment of each group.

        Raises:
            ParallaxError: the store does not say where groups consume; those that were known before are looked at.
        """
        try:
            self._refresh_places()
        finally:
            by_cluster = sorted(self._places.items(), key=lambda item: item[1])
            for cluster, items in groupby(by_cluster, key=lambda item: item[1]):
                self._look_at(cluster, [group for group, _ in items])
            self.verdicts = {
                key: verdict_of(
                    {item: list(points) for item, points in moments.points.items()}, members=moments.members
                )
                for key, moments in self._moments.items()
            }

    def _refresh_places(self) -> None:
        began_s = self._clock()
        if began_s < self._places_due_s:
            return
        self._places = self._read_places()
        took_s = self._clock() - began_s
        self._places_due_s = began_s + max(PLACES_AGE_S, took_s / _SHARE)
        kept = set(self._places.items())
        self._moments = {key: moments for key, moments in self._moments.items() if key in kept}

    def _look_at(self, cluster: ClusterName, groups: Collection[GroupName]) -> None:
        points: Mapping[GroupName, Mapping[TopicPartition, LagPoint | None]] = {}
        members: Mapping[GroupName, bool] = {}
        try:
            points = self._clusters.ask(cluster, lambda reader: self._points(reader, groups))
            chosen = set(groups)
            states = self._clusters.ask(cluster, lambda reader: reader.groups(chosen.__contains__))
            members = dict.fromkeys(groups, False) | {state.group: state.members > 0 for state in states}
        except ParallaxError:  # it is away: nothing is known of this moment
            pass
        for group in groups:
            moments = self._moments.setdefault((group, cluster), GroupMoments())
            moments.take(points.get(group, {}), members=members.get(group, True))

    def _points(
        self, reader: ClusterReader, groups: Collection[GroupName]
    ) -> Mapping[GroupName, Mapping[TopicPartition, LagPoint | None]]:
        found = self._writers[reader.cluster].committed_each(groups)
        commits = {group: seen for group, seen in found.items() if isinstance(seen, Mapping)}
        logs = reader.log_ranges({item for seen in commits.values() for item in seen})
        return {
            group: {
                item: LagPoint(commit.next_offset, max(0, logs[item].high_watermark - commit.next_offset))
                if item in logs
                else None
                for item, commit in seen.items()
            }
            for group, seen in commits.items()
        }
