"""Who is in the groups of a cluster, listed for many moves at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from parallax.domain.errors import ClusterUnavailableError
from parallax.domain.ids import GroupName
from parallax.ports import ClusterWriter, GroupState

_MEMBERS_S = 0.5
"""Groups that move side by side share one listing of a cluster's groups."""


class Membership:
    """A cluster's groups, listed at most twice a second; whoever waits for a listing shares its failure."""

    def __init__(self, writer: ClusterWriter, clock: Callable[[], float] = time.monotonic) -> None:
        self._writer = writer
        self._clock = clock
        self._lock = threading.Lock()
        self._listed: tuple[float, Mapping[GroupName, GroupState]] | None = None
        self._failed: tuple[float, str] | None = None

    def of(self, group: GroupName) -> GroupState | None:
        """The group; None if the cluster does not list it.

        Raises:
            ClusterUnavailableError: the cluster did not answer in time.
        """
        with self._lock:
            now_s = self._clock()
            if self._failed is not None and now_s - self._failed[0] < _MEMBERS_S:
                raise ClusterUnavailableError(self._failed[1])
            if self._listed is None or now_s - self._listed[0] >= _MEMBERS_S:
                self._listed = (now_s, self._list())
            return self._listed[1].get(group)

    def _list(self) -> Mapping[GroupName, GroupState]:
        try:
            return {state.group: state for state in self._writer.groups()}
        except ClusterUnavailableError as error:
            self._failed = (self._clock(), str(error))
            raise
