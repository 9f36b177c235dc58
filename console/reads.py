"""What the console asks of offset services: a part of `OffsetClient`, which tests replace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from parallax.v1 import offsets_pb2 as pb
from parallax.v1 import overview_pb2, primaries_pb2


class Reads(Protocol):
    """Calls that change nothing; each raises `ParallaxError` alone, as `OffsetClient` says."""

    def get_failover_offset(
        self,
        group: str,
        topic: str,
        partition: int,
        *,
        to: pb.Place,
        origin: pb.Place | None = None,
        next_offset: int | None = None,
        by_timestamp: pb.TimestampPolicy | None = None,
        nearest_checkpoint: bool = False,
    ) -> pb.FailoverOffset:
        """Where one partition of a group resumes."""
        ...

    def get_group_failover_offsets(
        self, group: str, *, to: pb.Place, origin: pb.Place | None = None
    ) -> pb.GetGroupFailoverOffsetsResponse:
        """Where every partition of a group resumes."""
        ...

    def get_group_positions(self, group: str) -> pb.GetGroupPositionsResponse:
        """The group on every aggregate cluster."""
        ...

    def list_runs(
        self, route: str, topic: str, partition: int, *, start: int = 0, limit: int = 0
    ) -> pb.ListRunsResponse:
        """Rows of a partition of a route from a target offset on."""
        ...

    def list_watermarks(self, route: str, topic: str, partition: int) -> pb.ListWatermarksResponse:
        """How far each lineage of a partition of a route has come."""
        ...

    def translate_offset(
        self,
        route: str,
        topic: str,
        partition: int,
        *,
        source_next_offset: int | None = None,
        target_next_offset: int | None = None,
    ) -> pb.TranslateOffsetResponse:
        """A next offset of one side of a route on the other side."""
        ...

    def list_routes(self) -> pb.ListRoutesResponse:
        """Every route with its topics."""
        ...

    def get_primary(self, group: str) -> primaries_pb2.Primary:
        """What holds for a group."""
        ...

    def list_primaries(
        self, *, prefix: str = "", after: str = "", limit: int = 0, attention: bool = False
    ) -> primaries_pb2.ListPrimariesResponse:
        """Groups with a decision: a page of them, or those that need somebody."""
        ...

    def describe_regions(self, *, groups: Iterable[str] = ()) -> primaries_pb2.DescribeRegionsResponse:
        """The regions with their clusters and services."""
        ...

    def list_groups(
        self, *, prefix: str = "", after: str = "", limit: int = 0
    ) -> overview_pb2.ListGroupsResponse:
        """A page of the groups that anything is known of."""
        ...

    def list_replication(
        self, *, prefix: str = "", after: str = "", limit: int = 0
    ) -> overview_pb2.ListReplicationResponse:
        """A page of routes, as their drivers told of them last."""
        ...

    def list_replication_partitions(
        self,
        route: str,
        *,
        prefix: str = "",
        state: overview_pb2.PartitionState = overview_pb2.PARTITION_STATE_UNKNOWN,
        sort: overview_pb2.PartitionOrder = overview_pb2.BY_NAME,
        after: str = "",
        limit: int = 0,
    ) -> overview_pb2.ListReplicationPartitionsResponse:
        """A page of a route's partitions."""
        ...

    def list_moves(
        self, group: str | None = None, *, after: str = "", limit: int = 0
    ) -> overview_pb2.ListMovesResponse:
        """A page of moves, the newest first."""
        ...

    def list_drills(self, *, after: str = "", limit: int = 0) -> overview_pb2.ListDrillsResponse:
        """A page of drills, the newest first."""
        ...

    def list_sync_problems(
        self, *, prefix: str = "", after: str = "", limit: int = 0
    ) -> overview_pb2.ListSyncProblemsResponse:
        """A page of groups for which offsets can't be published."""
        ...

    def describe_configuration(self, *, prefix: str = "") -> overview_pb2.DescribeConfigurationResponse:
        """The settings of the service, with secrets masked."""
        ...
