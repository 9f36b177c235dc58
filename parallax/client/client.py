"""The offset service's client: typed errors, one deadline, retries over several targets.

It needs the base install only. A client is safe to share between threads; make it after a fork, not before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from google.protobuf.message import Message

from parallax.client.credentials import ServiceCredentials
from parallax.client.primary_messages import change_to_pb
from parallax.client.targets import Targets
from parallax.client.watches import PrimaryWatch, SkipWatch
from parallax.domain.ids import TopicPartition
from parallax.domain.primary import Change
from parallax.errors import InvalidNameError
from parallax.runtime.retry import RetryPolicy
from parallax.v1 import audit_pb2, moves_pb2, overview_pb2, primaries_pb2
from parallax.v1 import offsets_pb2 as pb

DEFAULT_TIMEOUT_MS = 10_000
"""A call with its retries; the servers' own default (`service.deadline_ms`) is the same."""

Answer = TypeVar("Answer", bound=Message)


def at_region(name: str) -> pb.Place:
    """The aggregate cluster of a region, as an origin or destination."""
    return pb.Place(region=name)


def at_cluster(name: str) -> pb.Place:
    """An aggregate cluster by its own name (``aggregate-b``)."""
    return pb.Place(cluster=name)


class OffsetClient:
    """Asks the offset services, the last good one first.

    A call that finds a service away, busy or silent goes to the next target, and round again with growing
    waits, all inside one deadline. Every other error is final and raised at once.

    Args:
        targets: ``host:port`` of each service, the preferred first.
        timeout_ms: budget of a call with its retries, where the call names none.
        retry: waits between the rounds.
        credentials: whom the client trusts and what it shows; None: plain text, and nothing.

    Every method raises, besides what its own docstring names:

    Raises:
        ServiceUnavailableError: no target answered.
        DeadlineError: the budget was used up first.
        StoreUnavailableError: the services answered that their store is away.
        ParallaxError: the class that the server raised (`parallax.client.status.CLASSES`).
    """

    def __init__(
        self,
        targets: Sequence[str],
        *,
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
        retry: RetryPolicy | None = None,
        credentials: ServiceCredentials | None = None,
    ) -> None:
        self._timeout_ms = timeout_ms
        self._retry = retry if retry is not None else RetryPolicy()
        self._targets = Targets(targets, self._retry, credentials)
        self._token: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the channels; calls under way end, later ones fail."""
        self._targets.close()

    def showing(self, token: str) -> OffsetClient:
        """This client in somebody else's name: services are shown their token in each call, and not our own.

        It uses the connections of this one, and ends with it. What is watched is watched in our own name.
        """
        other = copy(self)
        other._token = token  # noqa: SLF001 - one of our own kind
        return other

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
        pack_skip_ranges: bool = False,
        timeout_ms: float | None = None,
    ) -> pb.FailoverOffset:
        """Where one partition of a group resumes.

        Args:
            group: the consumer group.
            topic: the topic.
            partition: the partition.
            to: where the group goes.
            origin: where it comes from; None: the only other aggregate cluster.
            next_offset: the caller's own position there; None: the group's committed offset.
            by_timestamp: go by record timestamps instead of the log start where no row proves anything; None: never.
            nearest_checkpoint: tell for comparison where a checkpoint-only rule would resume.
            pack_skip_ranges: the answer may have them as ``packed_skip_ranges``, which costs the service less;
                `parallax.client.messages.skips_from_pb` reads both.
            timeout_ms: budget of the call with its retries.
        """
        request = pb.GetFailoverOffsetRequest(
            group=group,
            topic=topic,
            partition=partition,
            to=to,
            next_offset=next_offset,
            by_timestamp=by_timestamp,
            nearest_checkpoint=nearest_checkpoint,
            pack_skip_ranges=pack_skip_ranges,
            **_from(origin),
        )
        return self._call("GetFailoverOffset", request, pb.FailoverOffset, timeout_ms)

    def get_group_failover_offsets(
        self,
        group: str,
        *,
        to: pb.Place,
        origin: pb.Place | None = None,
        positions: Iterable[pb.PartitionPosition] = (),
        topics: Iterable[str] = (),
        record_move: bool = False,
        by_timestamp: pb.TimestampPolicy | None = None,
        pack_skip_ranges: bool = False,
        timeout_ms: float | None = None,
    ) -> pb.GetGroupFailoverOffsetsResponse:
        """Where every partition of a group resumes.

        Args:
            group: the consumer group.
            to: where the group goes.
            origin: where it comes from; None: the only other aggregate cluster.
            positions: the caller's own positions there; other partitions use the group's committed offsets.
            topics: only these; none: all that the group committed on or that ``positions`` name.
            record_move: remember the answers as the group's progress at ``to``: it moves now.
            by_timestamp: as in `get_failover_offset`.
            pack_skip_ranges: likewise.
            timeout_ms: budget of the call with its retries.
        """
        request = pb.GetGroupFailoverOffsetsRequest(
            group=group,
            to=to,
            positions=positions,
            topics=topics,
            record_move=record_move,
            by_timestamp=by_timestamp,
            pack_skip_ranges=pack_skip_ranges,
            **_from(origin),
        )
        return self._call("GetGroupFailoverOffsets", request, pb.GetGroupFailoverOffsetsResponse, timeout_ms)

    def map_positions(
        self,
        positions: Mapping[TopicPartition, Sequence[int]],
        *,
        origin: pb.Place,
        to: pb.Place,
        timeout_ms: float | None = None,
    ) -> pb.MapPositionsResponse:
        """Where groups at many positions resume that have not moved to the origin before.

        Args:
            positions: next offsets at the origin by partition, ascending, each once; -1, the first: no commit.
            origin: where they are.
            to: where the groups go.
            timeout_ms: budget of the call with its retries.
        """
        request = pb.MapPositionsRequest(
            partitions=[
                pb.MapPositionsRequest.Partition(
                    topic=item.topic, partition=item.partition, next_offsets=offsets
                )
                for item, offsets in positions.items()
            ],
            to=to,
            **_from(origin),
        )
        return self._call("MapPositions", request, pb.MapPositionsResponse, timeout_ms)

    def watch_skips(
        self,
        topic: str,
        partition: int,
        *,
        at: pb.Place,
        target_topic_id: str,
        progress: Iterable[pb.SourceProgress],
        start: int,
        origin: pb.Place | None = None,
    ) -> SkipWatch:
        """Skip ranges as they become known after a move; an iterator of `SkipUpdate`, to be closed.

        The updates adjoin: each tells of the target offsets from the previous update's ``complete_to`` (the
        first: from ``start``) to its own ``complete_to``. The last one has none: nothing is pending any more,
        and whatever lies beyond its ranges is new. The iterator connects again by itself, without a deadline.

        Args:
            topic: the topic.
            partition: the partition.
            at: where the group is now.
            target_topic_id: the topic's id there (``FailoverOffset.to.topic_id``); empty: it was not there yet.
            progress: the vector of the move (``FailoverOffset.progress``).
            start: skip ranges from here on (``complete_to``, or the resume offset).
            origin: where the group came from.
        """
        request = pb.WatchSkipsRequest(
            topic=topic,
            partition=partition,
            at=at,
            target_topic_id=target_topic_id,
            progress=progress,
            start=start,
            **_from(origin),
        )
        open_stream = partial(self._targets.open_stream, "WatchSkips", pb.SkipUpdate)
        return SkipWatch(request, open_stream, self._retry)

    def translate_offset(
        self,
        route: str,
        topic: str,
        partition: int,
        *,
        source_next_offset: int | None = None,
        target_next_offset: int | None = None,
        then: Sequence[str] = (),
        timeout_ms: float | None = None,
    ) -> pb.TranslateOffsetResponse:
        """A next offset of one side of a route, or of several that follow each other, on the other side.

        Args:
            route: ``a->b``.
            topic: the topic, as it is called at the route's target.
            partition: the partition.
            source_next_offset: a next offset of the regional cluster; or
            target_next_offset: a next offset of the aggregate cluster. Exactly one of the two.
            then: routes that follow, in their order: the target is then the last one's.
            timeout_ms: budget of the call with its retries.
        """
        if (source_next_offset is None) == (target_next_offset is None):
            raise InvalidNameError("name either source_next_offset or target_next_offset")
        request = pb.TranslateOffsetRequest(
            route="" if then else route,
            path=[route, *then] if then else (),
            topic=topic,
            partition=partition,
            source_next_offset=source_next_offset,
            target_next_offset=target_next_offset,
        )
        return self._call("TranslateOffset", request, pb.TranslateOffsetResponse, timeout_ms)

    def lookup_origin(
        self,
        topic: str,
        partition: int,
        record_offset: int,
        *,
        at: pb.Place,
        timeout_ms: float | None = None,
    ) -> pb.LookupOriginResponse:
        """Which source record is the record at ``record_offset`` of an aggregate partition?"""
        request = pb.LookupOriginRequest(at=at, topic=topic, partition=partition, record_offset=record_offset)
        return self._call("LookupOrigin", request, pb.LookupOriginResponse, timeout_ms)

    def list_routes(self, *, timeout_ms: float | None = None) -> pb.ListRoutesResponse:
        """Every configured route with the topics that it has copied."""
        return self._call("ListRoutes", pb.ListRoutesRequest(), pb.ListRoutesResponse, timeout_ms)

    def list_runs(
        self,
        route: str,
        topic: str,
        partition: int,
        *,
        start: int = 0,
        limit: int = 0,
        timeout_ms: float | None = None,
    ) -> pb.ListRunsResponse:
        """Runs and watermarks of a partition of a route, from the target offset ``start`` on.

        Args:
            route: ``a->b``.
            topic: the topic.
            partition: the partition.
            start: a target offset.
            limit: rows at most; 0: the server's choice.
            timeout_ms: budget of the call with its retries.
        """
        request = pb.ListRunsRequest(route=route, topic=topic, partition=partition, start=start, limit=limit)
        return self._call("ListRuns", request, pb.ListRunsResponse, timeout_ms)

    def list_watermarks(
        self, route: str, topic: str, partition: int, *, timeout_ms: float | None = None
    ) -> pb.ListWatermarksResponse:
        """How far each lineage of a partition of a route has come."""
        request = pb.ListWatermarksRequest(route=route, topic=topic, partition=partition)
        return self._call("ListWatermarks", request, pb.ListWatermarksResponse, timeout_ms)

    def get_group_positions(
        self, group: str, *, timeout_ms: float | None = None
    ) -> pb.GetGroupPositionsResponse:
        """The group's positions on every aggregate cluster, and what was published for it there."""
        request = pb.GetGroupPositionsRequest(group=group)
        return self._call("GetGroupPositions", request, pb.GetGroupPositionsResponse, timeout_ms)

    def report_positions(
        self,
        group: str,
        *,
        at: pb.Place,
        positions: Iterable[pb.PartitionPosition] = (),
        moves: Iterable[pb.PartitionMove] = (),
        timeout_ms: float | None = None,
    ) -> pb.ReportPositionsResponse:
        """Tell what the group did, for answers to come. Telling the same again changes nothing.

        Args:
            group: the consumer group.
            at: the cluster.
            positions: next offsets that the group has delivered at ``at``, for when it can't be asked.
            moves: moves to ``at`` that the group has made, as their answers told them.
            timeout_ms: budget of the call with its retries.
        """
        request = pb.ReportPositionsRequest(group=group, at=at, positions=positions, moves=moves)
        return self._call("ReportPositions", request, pb.ReportPositionsResponse, timeout_ms)

    # --- primaries and regions ----------------------------------------------------------------------------

    def get_primary(self, group: str, *, timeout_ms: float | None = None) -> primaries_pb2.Primary:
        """Where a group is primary; without ``decision`` if nothing was ever decided."""
        return self._call(
            "GetPrimary", primaries_pb2.GetPrimaryRequest(group=group), primaries_pb2.Primary, timeout_ms
        )

    def set_primary(
        self, change: Change, *, dry_run: bool = False, actor: str = "", timeout_ms: float | None = None
    ) -> primaries_pb2.Primary:
        """Decide where a group is primary. The same again changes nothing, so that it may be asked twice.

        Args:
            change: what shall hold.
            dry_run: say what would be decided, and decide nothing.
            actor: whose decision it is, for the audit of services that ask nobody who calls; empty: anybody's.
            timeout_ms: budget of the call with its retries.

        Raises:
            FencedError: the group's fencing number is not ``change.expected_number``.
            RefusedError: the change contradicts itself or a move under way.
            UnknownRegionError: the region or cluster is not configured.
            StoreUnavailableError: too few regions answer; a disaster decision needs the deciding region alone.
        """
        return self._call(
            "SetPrimary",
            change_to_pb(change, dry_run=dry_run, actor=actor),
            primaries_pb2.Primary,
            timeout_ms,
        )

    def list_primaries(
        self,
        *,
        prefix: str = "",
        after: str = "",
        limit: int = 0,
        attention: bool = False,
        timeout_ms: float | None = None,
    ) -> primaries_pb2.ListPrimariesResponse:
        """Every group with a decision, or a page of them (``limit``); with ``attention`` those alone that need somebody."""
        return self._call(
            "ListPrimaries",
            primaries_pb2.ListPrimariesRequest(prefix=prefix, after=after, limit=limit, attention=attention),
            primaries_pb2.ListPrimariesResponse,
            timeout_ms,
        )

    def describe_regions(
        self,
        *,
        groups: Iterable[str] = (),
        topics: Iterable[str] = (),
        timeout_ms: float | None = None,
    ) -> primaries_pb2.DescribeRegionsResponse:
        """The regions with their clusters and services, without secrets; and who of the named is left out.

        Args:
            groups: consumer groups; those that the services' configuration leaves out are named in the answer.
            topics: likewise.
            timeout_ms: budget of the call; None: the client's.
        """
        return self._call(
            "DescribeRegions",
            primaries_pb2.DescribeRegionsRequest(groups=groups, topics=topics),
            primaries_pb2.DescribeRegionsResponse,
            timeout_ms,
        )

    def list_audit(
        self,
        *,
        since_ms: int,
        until_ms: int | None = None,
        group: str | None = None,
        call: str = "",
        principal: str = "",
        limit: int = 0,
        before: str = "",
        timeout_ms: float | None = None,
    ) -> audit_pb2.ListAuditResponse:
        """What is kept of who changed what, the newest first: a page of groups that the caller may administer.

        Args:
            since_ms: from this moment on, by the store's clock (Unix epoch).
            until_ms: before this moment; None: until now.
            group: of this group alone; empty: acts that are about no group. None: of every group.
            call: of acts of this call or command alone; empty: of every one.
            principal: of acts of this principal alone; empty: of everybody.
            limit: entries at most; 0: the server's choice.
            before: ``next_before`` of the page before; empty: the first page.
            timeout_ms: budget of the call with its retries.

        Raises:
            LimitError: more entries are wanted than a page may have.
            InvalidNameError: ``before`` is no place in the log.
        """
        request = audit_pb2.ListAuditRequest(
            since_ms=since_ms,
            until_ms=until_ms,
            group=group,
            call=call,
            principal=principal,
            limit=limit,
            before=before,
        )
        return self._call("ListAudit", request, audit_pb2.ListAuditResponse, timeout_ms)

    def watch_primary(self, group: str) -> PrimaryWatch:
        """What holds for a group, and every change from then on; to be closed by the caller."""
        open_stream = partial(self._targets.open_stream, "WatchPrimary", primaries_pb2.Primary)
        return PrimaryWatch(group, open_stream, self.get_primary, RetryPolicy())

    # --- what there is, and how it is ---------------------------------------------------------------------

    def list_groups(
        self,
        *,
        prefix: str = "",
        after: str = "",
        limit: int = 0,
        with_lag: bool = False,
        timeout_ms: float | None = None,
    ) -> overview_pb2.ListGroupsResponse:
        """A page of the groups that the caller may read, by name.

        Args:
            prefix: names that begin so.
            after: ``next_after`` of the page before.
            limit: entries at most; 0: the server's choice.
            with_lag: tell each group's lag where it consumes, too: 100 groups to a page at most.
            timeout_ms: budget of the call; None: the client's.
        """
        request = overview_pb2.ListGroupsRequest(prefix=prefix, after=after, limit=limit, with_lag=with_lag)
        return self._call("ListGroups", request, overview_pb2.ListGroupsResponse, timeout_ms)

    def list_replication(
        self,
        *,
        prefix: str = "",
        after: str = "",
        limit: int = 0,
        region: str = "",
        timeout_ms: float | None = None,
    ) -> overview_pb2.ListReplicationResponse:
        """A page of routes, as their drivers told of them last; ``region``: those into it alone. The rest as in `list_groups`."""
        request = overview_pb2.ListReplicationRequest(prefix=prefix, after=after, limit=limit, region=region)
        return self._call("ListReplication", request, overview_pb2.ListReplicationResponse, timeout_ms)

    def list_replication_partitions(
        self,
        route: str,
        *,
        prefix: str = "",
        state: overview_pb2.PartitionState = overview_pb2.PARTITION_STATE_UNKNOWN,
        sort: overview_pb2.PartitionOrder = overview_pb2.BY_NAME,
        after: str = "",
        limit: int = 0,
        timeout_ms: float | None = None,
    ) -> overview_pb2.ListReplicationPartitionsResponse:
        """A page of a route's partitions.

        Args:
            route: ``a->b``.
            prefix: topics that begin so.
            state: in this state alone; unknown: in any.
            sort: by name, by lag, or those first that are stopped.
            after: ``next_after`` of the page before, of the same order.
            limit: entries at most; 0: the server's choice.
            timeout_ms: budget of the call; None: the client's.
        """
        request = overview_pb2.ListReplicationPartitionsRequest(
            route=route,
            prefix=prefix,
            state=state,
            sort=sort,
            after=after,
            limit=limit,
        )
        return self._call(
            "ListReplicationPartitions", request, overview_pb2.ListReplicationPartitionsResponse, timeout_ms
        )

    def list_moves(
        self,
        group: str | None = None,
        *,
        after: str = "",
        limit: int = 0,
        timeout_ms: float | None = None,
    ) -> overview_pb2.ListMovesResponse:
        """A page of a group's moves, or of all that the caller may read, the newest first; the rest as in `list_groups`."""
        request = overview_pb2.ListMovesRequest(group=group, after=after, limit=limit)
        return self._call("ListMoves", request, overview_pb2.ListMovesResponse, timeout_ms)

    def list_drills(
        self, *, after: str = "", limit: int = 0, timeout_ms: float | None = None
    ) -> overview_pb2.ListDrillsResponse:
        """A page of drills, the newest first; the rest as in `list_groups`."""
        request = overview_pb2.ListDrillsRequest(after=after, limit=limit)
        return self._call("ListDrills", request, overview_pb2.ListDrillsResponse, timeout_ms)

    def list_sync_problems(
        self, *, prefix: str = "", after: str = "", limit: int = 0, timeout_ms: float | None = None
    ) -> overview_pb2.ListSyncProblemsResponse:
        """A page of groups for which offsets can't be published, by name; the rest as in `list_groups`."""
        request = overview_pb2.ListSyncProblemsRequest(prefix=prefix, after=after, limit=limit)
        return self._call("ListSyncProblems", request, overview_pb2.ListSyncProblemsResponse, timeout_ms)

    def describe_configuration(
        self, *, prefix: str = "", timeout_ms: float | None = None
    ) -> overview_pb2.DescribeConfigurationResponse:
        """The settings of the service that answers, with secrets masked: those whose keys begin so."""
        request = overview_pb2.DescribeConfigurationRequest(prefix=prefix)
        return self._call(
            "DescribeConfiguration", request, overview_pb2.DescribeConfigurationResponse, timeout_ms
        )

    # --- moves --------------------------------------------------------------------------------------------

    def plan_move(
        self,
        group: str,
        *,
        to_region: str = "",
        to_cluster: str = "",
        back: bool = False,
        origin: str = "",
        disaster: bool = False,
        accept_gaps: bool = False,
        timeout_ms: float | None = None,
    ) -> moves_pb2.PlannedMove:
        """What a move would do; nothing is changed.

        Args:
            group: the consumer group.
            to_region: the region that shall be primary; or
            to_cluster: another aggregate cluster for the same region; or
            back: to where the group's last move came from.
            origin: a region or cluster; empty: where the group is recorded, else the only other cluster.
            disaster: the side that the group leaves may be wholly gone.
            accept_gaps: move although records will never be delivered.
            timeout_ms: budget of the call with its retries.
        """
        request = moves_pb2.PlanMoveRequest(
            group=group,
            to_region=to_region,
            to_cluster=to_cluster,
            back=back,
            origin=origin,
            disaster=disaster,
            accept_gaps=accept_gaps,
        )
        return self._call("PlanMove", request, moves_pb2.PlannedMove, timeout_ms)

    def execute_move(
        self,
        planned: moves_pb2.PlannedMove,
        *,
        actor: str = "",
        reason: str = "",
        timeout_ms: float | None = None,
    ) -> moves_pb2.MoveStatus:
        """Carry out what was planned; the service that is asked does it, and goes on when this client is gone.

        Args:
            planned: what was agreed to.
            actor: whose move it is, for services that ask nobody who calls; empty: anybody's.
            reason: why, for the audit.
            timeout_ms: budget of the call with its retries.

        Raises:
            PlanChangedError: the plan is not that any more; nothing was changed.
            RefusedError: something forbids it; the message says what to do.
        """
        request = moves_pb2.ExecuteMoveRequest(
            group=planned.group,
            move_id=planned.move_id,
            digest=planned.digest,
            disaster=planned.kind == "disaster",
            actor=actor,
            reason=reason,
        )
        return self._call("ExecuteMove", request, moves_pb2.MoveStatus, timeout_ms)

    def cancel_move(
        self, group: str, move_id: str, *, actor: str = "", timeout_ms: float | None = None
    ) -> moves_pb2.MoveStatus:
        """Stop a move before its next step; a group that is fenced by then stays so.

        Args:
            group: whose move it is.
            move_id: of its plan.
            actor: who calls it off, for services that ask nobody who calls; empty: anybody.
            timeout_ms: budget of the call with its retries.

        Raises:
            RefusedError: another process carries it out.
        """
        request = moves_pb2.CancelMoveRequest(group=group, move_id=move_id, actor=actor)
        return self._call("CancelMove", request, moves_pb2.MoveStatus, timeout_ms)

    def roll_back_move(
        self,
        group: str,
        move_id: str,
        *,
        disaster: bool = False,
        actor: str = "",
        timeout_ms: float | None = None,
    ) -> moves_pb2.MoveStatus:
        """Put a group back as it was before its last move; ``disaster``: decide without regions of the store that are gone.

        Raises:
            RefusedError: it has committed since, or something else forbids it.
        """
        request = moves_pb2.RollBackMoveRequest(group=group, move_id=move_id, disaster=disaster, actor=actor)
        return self._call("RollBackMove", request, moves_pb2.MoveStatus, timeout_ms)

    def get_move(self, group: str, move_id: str, *, timeout_ms: float | None = None) -> moves_pb2.MoveStatus:
        """How far a move is."""
        request = moves_pb2.GetMoveRequest(group=group, move_id=move_id)
        return self._call("GetMove", request, moves_pb2.MoveStatus, timeout_ms)

    def verify_group(
        self, group: str, *, moves: int = 1, timeout_ms: float | None = None
    ) -> moves_pb2.GroupVerification:
        """Which records the group consumed once, twice or never over its last moves.

        Raises:
            NotFoundError: it was never moved.
        """
        request = moves_pb2.VerifyGroupRequest(group=group, moves=moves)
        return self._call("VerifyGroup", request, moves_pb2.GroupVerification, timeout_ms)

    # --- drills -------------------------------------------------------------------------------------------

    def plan_drill(
        self, *, origin: str = "", to: str = "", timeout_ms: float | None = None
    ) -> moves_pb2.PlannedDrill:
        """What a drill would do; nothing is changed.

        Args:
            origin: the region where its group is at home; empty: the only one that is left.
            to: the region where it goes, and comes back from; empty: likewise.
            timeout_ms: budget of the call with its retries.
        """
        request = moves_pb2.PlanDrillRequest(origin=origin, to=to)
        return self._call("PlanDrill", request, moves_pb2.PlannedDrill, timeout_ms)

    def run_drill(
        self, planned: moves_pb2.PlannedDrill, *, actor: str = "", timeout_ms: float | None = None
    ) -> moves_pb2.DrillStatus:
        """Begin with a drill; the service that is asked carries it out, and goes on when this client is gone.

        Args:
            planned: what `plan_drill` has said.
            actor: whose drill it is, for services that ask nobody who calls; empty: anybody's.
            timeout_ms: budget of the call with its retries.

        Raises:
            RefusedError: the service has one under way.
        """
        request = moves_pb2.RunDrillRequest(
            group=planned.group, origin=planned.origin, to=planned.to, actor=actor
        )
        return self._call("RunDrill", request, moves_pb2.DrillStatus, timeout_ms)

    def stop_drill(
        self, group: str, drill_id: str, *, actor: str = "", timeout_ms: float | None = None
    ) -> moves_pb2.DrillStatus:
        """Let a drill end before its next step; its group is taken home.

        Raises:
            RefusedError: another process carries it out.
        """
        request = moves_pb2.StopDrillRequest(group=group, drill_id=drill_id, actor=actor)
        return self._call("StopDrill", request, moves_pb2.DrillStatus, timeout_ms)

    def get_drill(
        self, group: str, drill_id: str, *, timeout_ms: float | None = None
    ) -> moves_pb2.DrillStatus:
        """How far a drill is.

        Raises:
            NotFoundError: the group had no such drill lately.
        """
        request = moves_pb2.GetDrillRequest(group=group, drill_id=drill_id)
        return self._call("GetDrill", request, moves_pb2.DrillStatus, timeout_ms)

    def _call(self, method: str, request: Message, answer: type[Answer], timeout_ms: float | None) -> Answer:
        return self._targets.call(
            method, request, answer, self._timeout_ms if timeout_ms is None else timeout_ms, self._token
        )


def _from(origin: pb.Place | None) -> dict[str, Any]:
    """The field ``from``, which Python can't name."""
    return {} if origin is None else {"from": origin}
