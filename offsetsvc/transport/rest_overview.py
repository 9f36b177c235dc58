"""REST: what there is, and how it is."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from offsetsvc.overview.groups import MOST_WITH_LAG
from offsetsvc.overview.pages import MOST_ENTRIES
from offsetsvc.transport.rest_shell import Group, RouteText, Shell, described
from parallax.client.messages import PartitionSort
from parallax.v1 import overview_pb2 as pb

Prefix = Annotated[str, Query(description="Names that begin so; empty: all.")]
After = Annotated[str, Query(description="`next_after` of the page before this one; empty: the first page.")]
Limit = Annotated[
    int, Query(ge=0, le=MOST_ENTRIES, description=f"Entries; 0: 100; at most {MOST_ENTRIES:,}.")
]


def overview_routes(shell: Shell) -> APIRouter:
    """The routes of `overview.proto`."""
    router = APIRouter(prefix="/v1", tags=["overview"])
    _groups(router, shell)
    _replication(router, shell)
    _operations(router, shell)

    @router.get("/config", **described(pb.DescribeConfigurationResponse))
    def configuration(
        prefix: Annotated[str, Query(description="Keys that begin so; empty: all.")] = "",
    ) -> Response:
        """What the service's configuration says, with its secrets masked."""
        request = pb.DescribeConfigurationRequest(prefix=prefix)
        return shell.answer(shell.handlers.DescribeConfiguration, request)

    return router


def _groups(router: APIRouter, shell: Shell) -> None:
    @router.get("/groups", **described(pb.ListGroupsResponse, 400, 429, 503, 504))
    def groups(
        prefix: Prefix = "",
        after: After = "",
        limit: Limit = 0,
        *,
        with_lag: Annotated[
            bool,
            Query(
                description=f"Ask for each group's lag where it consumes; at most {MOST_WITH_LAG} to a page."
            ),
        ] = False,
    ) -> Response:
        """Every group that anything is known of and that the caller may read, by name."""
        request = pb.ListGroupsRequest(prefix=prefix, after=after, limit=limit, with_lag=with_lag)
        return shell.answer(shell.handlers.ListGroups, request)

    @router.get("/sync/problems", **described(pb.ListSyncProblemsResponse, 400, 503))
    def sync_problems(prefix: Prefix = "", after: After = "", limit: Limit = 0) -> Response:
        """Groups for which offsets can't be published, with why and what to do; and how the sync job is."""
        request = pb.ListSyncProblemsRequest(prefix=prefix, after=after, limit=limit)
        return shell.answer(shell.handlers.ListSyncProblems, request)


def _replication(router: APIRouter, shell: Shell) -> None:
    @router.get("/replication", **described(pb.ListReplicationResponse, 400, 404, 503))
    def replication(
        prefix: Prefix = "",
        after: After = "",
        limit: Limit = 0,
        region: Annotated[str, Query(description="Routes into this region alone; empty: all.")] = "",
    ) -> Response:
        """Every route, as the driver of its replicator told of it last."""
        request = pb.ListReplicationRequest(prefix=prefix, after=after, limit=limit, region=region)
        return shell.answer(shell.handlers.ListReplication, request)

    @router.get(
        "/replication/{route}/partitions", **described(pb.ListReplicationPartitionsResponse, 400, 404, 503)
    )
    def partitions(
        route: RouteText,
        prefix: Annotated[str, Query(description="Topics that begin so; empty: all.")] = "",
        state: Annotated[
            Literal["waiting", "copying", "absent", "stopped"] | None,
            Query(description="In this state alone; absent: in any."),
        ] = None,
        sort: Annotated[
            PartitionSort,
            Query(
                description="By topic and partition, the greatest lag first, or those first that are stopped."
            ),
        ] = PartitionSort.NAME,
        after: After = "",
        limit: Limit = 0,
    ) -> Response:
        """The partitions of a route, with what they lag by, and what is stopped and why."""
        request = pb.ListReplicationPartitionsRequest(
            route=route,
            prefix=prefix,
            state=f"PARTITION_{state.upper()}" if state else None,
            sort=sort.asked,
            after=after,
            limit=limit,
        )
        return shell.answer(shell.handlers.ListReplicationPartitions, request)


def _operations(router: APIRouter, shell: Shell) -> None:
    @router.get("/groups/{group}/moves", **described(pb.ListMovesResponse, 400, 503))
    def moves_of_group(group: Group, after: After = "", limit: Limit = 0) -> Response:
        """The moves of a group, the newest first."""
        request = pb.ListMovesRequest(group=group, after=after, limit=limit)
        return shell.answer(shell.handlers.ListMoves, request)

    @router.get("/moves", **described(pb.ListMovesResponse, 400, 503))
    def moves(after: After = "", limit: Limit = 0) -> Response:
        """The moves of every group that the caller may read, the newest first."""
        return shell.answer(shell.handlers.ListMoves, pb.ListMovesRequest(after=after, limit=limit))

    @router.get("/drills", **described(pb.ListDrillsResponse, 400, 503))
    def drills(after: After = "", limit: Limit = 0) -> Response:
        """Drills, the newest first."""
        return shell.answer(shell.handlers.ListDrills, pb.ListDrillsRequest(after=after, limit=limit))
