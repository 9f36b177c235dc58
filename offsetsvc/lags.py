"""How far groups are behind where they consume, now and as it went: of those that somebody looks at."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from offsetsvc.clusters import Clusters
from parallax.domain.ids import ClusterName, GroupName
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


def lag_of(clusters: Clusters, group: GroupName, cluster: ClusterName) -> int | None:
    """A group's lag at a cluster, over all its partitions; None: it is not known of all.

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
        return None
    lags = [
        max(0, logs[item].high_watermark - commit.next_offset)
        for item, commit in commits.items()
        if item in logs
    ]
    # The sum of some partitions would look like the lag of all.
    return sum(lags) if lags and len(lags) == len(commits) else None


class _Watched:
    """A group at which somebody has looked."""

    def __init__(self, looked_at_s: float) -> None:
        self.looked_at_s = looked_at_s
        self.samples: dict[ClusterName, deque[pb.LagSample]] = {}


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
                found.samples.setdefault(cluster, deque(maxlen=SAMPLES))
            self._groups[group] = found
            if len(self._groups) > MOST_GROUPS:
                del self._groups[next(iter(self._groups))]
            return {cluster: list(found.samples[cluster]) for cluster in clusters}

    def remember(self) -> None:
        """Take a sample of each; unknown where a cluster does not answer."""
        oldest_s, deadline = self._clock() - LOOKED_WITHIN_S, Deadline.after_ms(_WITHIN_MS, self._clock)
        with self._lock:
            self._groups = {
                group: item for group, item in self._groups.items() if item.looked_at_s >= oldest_s
            }
            watched = [(group, cluster) for group, item in self._groups.items() for cluster in item.samples]
        for group, cluster in reversed(watched):
            lag = None
            if not deadline.passed:
                with suppress(DeadlineError):
                    lag = lag_of(self._clusters, group, cluster)
            sample = pb.LagSample(at_ms=self._now_ms(), lag_records=lag)
            with self._lock:
                if (item := self._groups.get(group)) is not None:
                    item.samples[cluster].append(sample)
