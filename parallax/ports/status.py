"""The door to what long-running processes tell of themselves, for processes and regions that can't ask them.

All of it is told again and again, and forgotten by itself after a while. The rules of `parallax.ports.clusters` hold here too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from parallax.domain.ids import GroupName, Route
from parallax.domain.replication_status import RouteStatus, ShardReport
from parallax.domain.sync_status import GroupSyncStatus, SyncCycle, UnreadableGroup
from parallax.ports.groups import NamePage

LAST_WORD_KEPT_S = 7 * 86_400
"""What a driver that is gone told last, and what the sync job told of a group."""

TROUBLES_KEPT_S = 900
"""That a group has troubles; whoever finds that it has none any more says so, or is gone."""


class StatusStore(Protocol):
    """What processes tell of themselves."""

    def save_shards(self, reports: Sequence[ShardReport]) -> None:
        """Replace what was told of these shards."""

    def shards(self, routes: Collection[Route]) -> Mapping[Route, RouteStatus]:
        """What was told of each route, without its partitions; of one that was never told of, nothing."""

    def shard_reports(self, route: Route) -> tuple[Sequence[ShardReport], Sequence[str]]:
        """The present shards of a route with their partitions; and why others can't be read."""

    def save_groups(self, statuses: Sequence[GroupSyncStatus], *, solved: Collection[GroupName] = ()) -> None:
        """Replace what was told of these groups.

        Args:
            statuses: of the groups.
            solved: groups that had troubles and have none any more; of others nothing is deleted.
        """

    def forget_groups(self, groups: Collection[GroupName]) -> None:
        """There are no such groups any more."""

    def group_statuses(
        self, groups: Collection[GroupName]
    ) -> Mapping[GroupName, GroupSyncStatus | UnreadableGroup]:
        """What was told of each group; groups that were never told of are left out."""

    def troubled(self, page: NamePage) -> Sequence[GroupSyncStatus | UnreadableGroup]:
        """Groups with troubles, by name."""

    def save_cycle(self, cycle: SyncCycle) -> None:
        """Replace what was told of the sync job."""

    def cycle(self) -> SyncCycle | None:
        """What was told of the sync job; None: nothing.

        Raises:
            UnreadableRowError: it can't be read by this release.
        """
