"""What the console asks of offset services: a part of `OffsetClient`, which tests replace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from parallax.v1 import offsets_pb2 as pb
from parallax.v1 import primaries_pb2


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

    def list_routes(self) -> pb.ListRoutesResponse:
        """Every route with its topics."""
        ...

    def get_primary(self, group: str) -> primaries_pb2.Primary:
        """What holds for a group."""
        ...

    def list_primaries(self) -> primaries_pb2.ListPrimariesResponse:
        """Every group with a decision."""
        ...

    def describe_regions(self, *, groups: Iterable[str] = ()) -> primaries_pb2.DescribeRegionsResponse:
        """The regions with their clusters and services."""
        ...
