"""Every call once, without a transport: a request message in, the answer's message out. gRPC and REST both serve these.

Whoever calls was let in before (`access`).
"""
# ruff: noqa: N802 - the methods have the proto's names

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import Message

from offsetsvc import messages
from offsetsvc.metrics import ServiceMetrics
from offsetsvc.moving import Questions
from offsetsvc.names import group_named
from offsetsvc.resume.call import FailoverRequest
from offsetsvc.resume.skip_updates import WatchRequest
from offsetsvc.service import UseCases
from offsetsvc.transport.access import Caller
from parallax.client.messages import progress_from_pb
from parallax.client.primary_messages import change_from_pb, primaries_to_pb, primary_to_pb
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    Route,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
)
from parallax.errors import InvalidNameError, PlanChangedError
from parallax.identity.identity import in_whose_name
from parallax.ports.groups import NamePage
from parallax.runtime.deadline import Deadline
from parallax.v1 import audit_pb2, moves_pb2, overview_pb2, primaries_pb2
from parallax.v1 import offsets_pb2 as pb

Request = TypeVar("Request", bound=Message)
Answer = TypeVar("Answer", bound=Message)


@dataclass(frozen=True, slots=True)
class Call:
    """What a handler knows of a call besides its request.

    Attributes:
        deadline: when the answer is of no use any more.
        caller: who calls.
    """

    deadline: Deadline
    caller: Caller


class Handlers:
    """The calls of `offsets.proto`, `primaries.proto`, `audit.proto`, `overview.proto` and `moves.proto`, each named as there. All raise `ParallaxError` alone.

    Args:
        service: the use cases.
        metrics: counts the outcomes of answers.
    """

    def __init__(self, service: UseCases, metrics: ServiceMetrics) -> None:
        self._service = service
        self._metrics = metrics

    def GetFailoverOffset(self, request: pb.GetFailoverOffsetRequest, call: Call) -> pb.FailoverOffset:
        """One partition's resume offset."""
        partition = messages.partition_from(request.topic, request.partition)
        origin, destination = self._move(request)
        own = {partition: TargetOffset(request.next_offset)} if request.HasField("next_offset") else {}
        answers = self._service.failover.answers(
            FailoverRequest(
                group_named(request.group),
                origin,
                destination,
                own,
                only=partition,
                by_timestamp=messages.policy_from_pb(request),
                nearest_checkpoint=request.nearest_checkpoint,
            ),
            call.deadline,
        )
        self._metrics.answered(answers)
        return messages.failover_to_pb(answers[0], pack=request.pack_skip_ranges)

    def GetGroupFailoverOffsets(
        self, request: pb.GetGroupFailoverOffsetsRequest, call: Call
    ) -> pb.GetGroupFailoverOffsetsResponse:
        """Every partition's resume offset."""
        origin, destination = self._move(request)
        positions = [messages.position_from_pb(item) for item in request.positions]
        answers = self._service.failover.answers(
            FailoverRequest(
                group_named(request.group),
                origin,
                destination,
                {item.topic_partition: item.next_offset for item in positions},
                tuple(dict.fromkeys(TopicName(topic) for topic in request.topics)),
                by_timestamp=messages.policy_from_pb(request),
                read_epochs={item.topic_partition: item.leader_epoch for item in positions},
            ),
            call.deadline,
            record_move=request.record_move,
            by=call.caller.principal,
        )
        self._metrics.answered(answers)
        away = not answers and self._service.failover.is_away(origin)
        return messages.group_to_pb(answers, origin_away=away, pack=request.pack_skip_ranges)

    def MapPositions(self, request: pb.MapPositionsRequest, call: Call) -> pb.MapPositionsResponse:
        """Resume offsets of many positions, in columns."""
        origin, destination = self._move(request)
        positions = messages.positions_from_pb(request)
        found = self._service.failover.answers_many(origin, destination, positions, call.deadline)
        for item in found:
            self._metrics.mapped(item.outcomes)
        return messages.mapped_to_pb(found)

    def WatchSkips(
        self, request: pb.WatchSkipsRequest, call: Call, wait: Callable[[float], bool]
    ) -> Iterator[pb.SkipUpdate]:
        """Skip ranges as they become known."""
        move = WatchRequest(
            messages.partition_from(request.topic, request.partition),
            self._cluster(request.at, "at"),
            TopicId(request.target_topic_id),
            progress_from_pb(request.progress),
            TargetOffset(request.start),
            self._cluster(getattr(request, "from"), "from") if request.HasField("from") else None,
        )
        for page in self._service.skips.updates(move, call.deadline, wait):
            yield messages.page_to_pb(page)

    def TranslateOffset(self, request: pb.TranslateOffsetRequest, _: Call) -> pb.TranslateOffsetResponse:
        """One offset on the other side of a route, or of several that follow each other."""
        source = SourceOffset(request.source_next_offset) if request.HasField("source_next_offset") else None
        target = TargetOffset(request.target_next_offset) if request.HasField("target_next_offset") else None
        partition = messages.partition_from(request.topic, request.partition)
        if request.path:
            if request.route:
                raise InvalidNameError("name either a route or a path")
            path = [Route.parse(text) for text in request.path]
            return self._service.chains.translate(path, partition, source_next=source, target_next=target)
        route = self._service.places.route(request.route)
        return self._service.mapping.translate(route, partition, source_next=source, target_next=target)

    def LookupOrigin(self, request: pb.LookupOriginRequest, _: Call) -> pb.LookupOriginResponse:
        """The source record of a target record, and where that comes from."""
        partition = messages.partition_from(request.topic, request.partition)
        cluster = self._cluster(request.at, "at")
        return self._service.chains.origin(cluster, partition, request.record_offset)

    def ListRoutes(self, _: pb.ListRoutesRequest, call: Call) -> pb.ListRoutesResponse:
        """Every route with the topics that it has copied."""
        return self._service.mapping.routes(call.deadline)

    def ListRuns(self, request: pb.ListRunsRequest, _: Call) -> pb.ListRunsResponse:
        """Runs and watermarks of a partition."""
        return self._service.mapping.runs(
            self._service.places.route(request.route),
            messages.partition_from(request.topic, request.partition),
            TargetOffset(request.start),
            request.limit,
        )

    def ListWatermarks(self, request: pb.ListWatermarksRequest, _: Call) -> pb.ListWatermarksResponse:
        """The newest row of each lineage of a partition."""
        partition = messages.partition_from(request.topic, request.partition)
        route = self._service.places.route(request.route)
        return self._service.mapping.watermarks(route, partition)

    def GetGroupPositions(
        self, request: pb.GetGroupPositionsRequest, _: Call
    ) -> pb.GetGroupPositionsResponse:
        """Where the group is on every aggregate cluster."""
        group = group_named(request.group)
        found = self._service.positions.show(group)
        lags = self._service.lags.looked(group, [ClusterName(item.cluster) for item in found.clusters])
        for item in found.clusters:
            item.lag_history.extend(lags[ClusterName(item.cluster)])
            verdict = self._service.lags.verdict(group, ClusterName(item.cluster))
            if verdict is not None:
                item.lag_verdict.CopyFrom(verdict)
        return found

    def ReportPositions(self, request: pb.ReportPositionsRequest, call: Call) -> pb.ReportPositionsResponse:
        """Remember positions and moves."""
        cluster = self._cluster(request.at, "at")
        self._service.positions.report(
            group_named(request.group),
            cluster,
            [messages.position_from_pb(item) for item in request.positions],
            [messages.move_from_pb(item, cluster) for item in request.moves],
            by=call.caller.principal,
        )
        return pb.ReportPositionsResponse()

    def GetPrimary(self, request: primaries_pb2.GetPrimaryRequest, _: Call) -> primaries_pb2.Primary:
        """Where a group is primary."""
        group = GroupName(request.group)
        return primary_to_pb(group, self._service.primaries.get(group))

    def SetPrimary(self, request: primaries_pb2.SetPrimaryRequest, call: Call) -> primaries_pb2.Primary:
        """Decide where a group is primary."""
        change = change_from_pb(request)
        by = in_whose_name(call.caller.principal, request.actor)
        assignment = self._service.primaries.set(change, call.deadline, dry_run=request.dry_run, by=by)
        return primary_to_pb(change.group, assignment)

    def WatchPrimary(
        self, request: primaries_pb2.WatchPrimaryRequest, call: Call, wait: Callable[[float], bool]
    ) -> Iterator[primaries_pb2.Primary]:
        """What holds now, then every change."""
        group = GroupName(request.group)
        for assignment in self._service.primaries.watch(group, call.deadline, wait):
            yield primary_to_pb(group, assignment)

    def ListPrimaries(
        self, request: primaries_pb2.ListPrimariesRequest, call: Call
    ) -> primaries_pb2.ListPrimariesResponse:
        """Groups with a decision that the caller may read."""
        primaries = self._service.primaries
        if request.attention:
            found, next_after = primaries.need_somebody(request.prefix, call.caller.reads), ""
        else:
            found, next_after = primaries.page(
                NamePage(request.limit, request.prefix, request.after), call.caller.reads
            )
        return primaries_to_pb(found.items(), next_after)

    def DescribeRegions(
        self, request: primaries_pb2.DescribeRegionsRequest, call: Call
    ) -> primaries_pb2.DescribeRegionsResponse:
        """Every region."""
        groups = call.caller.readable(GroupName(group) for group in request.groups)
        return self._service.describe_regions(groups, request.topics, call.deadline)

    def ListAudit(self, request: audit_pb2.ListAuditRequest, call: Call) -> audit_pb2.ListAuditResponse:
        """Who changed what, of groups that the caller may administer."""
        return self._service.audit.page(request, call.caller.administers, call.deadline)

    def ListGroups(
        self, request: overview_pb2.ListGroupsRequest, call: Call
    ) -> overview_pb2.ListGroupsResponse:
        """Every group that the caller may read."""
        return self._service.lists.page(request, call.caller.reads, call.deadline)

    def ListReplication(
        self, request: overview_pb2.ListReplicationRequest, _: Call
    ) -> overview_pb2.ListReplicationResponse:
        """How every route is."""
        return self._service.replication.routes(request)

    def ListReplicationPartitions(
        self, request: overview_pb2.ListReplicationPartitionsRequest, _: Call
    ) -> overview_pb2.ListReplicationPartitionsResponse:
        """How the partitions of a route are."""
        route = self._service.places.route(request.route)
        return self._service.replication.partitions(route, request)

    def ListMoves(self, request: overview_pb2.ListMovesRequest, call: Call) -> overview_pb2.ListMovesResponse:
        """Moves of groups that the caller may read."""
        return self._service.operations.moves(request, call.caller.reads)

    def ListDrills(
        self, request: overview_pb2.ListDrillsRequest, call: Call
    ) -> overview_pb2.ListDrillsResponse:
        """Drills with groups that the caller may read."""
        return self._service.operations.drills(request, call.caller.reads)

    def ListSyncProblems(
        self, request: overview_pb2.ListSyncProblemsRequest, call: Call
    ) -> overview_pb2.ListSyncProblemsResponse:
        """Groups that the caller may read, and for which something can't be published."""
        return self._service.lists.problems(request, call.caller.reads)

    def DescribeConfiguration(
        self, request: overview_pb2.DescribeConfigurationRequest, _: Call
    ) -> overview_pb2.DescribeConfigurationResponse:
        """What the configuration says, with secrets masked."""
        return self._service.describe_configuration(request.prefix)

    def PlanMove(self, request: moves_pb2.PlanMoveRequest, call: Call) -> moves_pb2.PlannedMove:
        """What a move would do."""
        group_named(request.group)
        return self._service.own_moves.plan(request, self._questions(call), call.caller.principal)

    def ExecuteMove(self, request: moves_pb2.ExecuteMoveRequest, call: Call) -> moves_pb2.MoveStatus:
        """Begin with what was planned."""
        questions = self._questions(call)
        whose = in_whose_name(call.caller.principal, request.actor, request.reason)
        try:
            return self._service.own_moves.execute(request, questions, whose)
        except PlanChangedError as error:
            error.plan = self._service.own_moves.planned(request.move_id, questions, whose)
            raise

    def CancelMove(self, request: moves_pb2.CancelMoveRequest, call: Call) -> moves_pb2.MoveStatus:
        """Stop a move before its next step."""
        whose = in_whose_name(call.caller.principal, request.actor)
        return self._service.own_moves.cancel(request, self._questions(call), whose)

    def RollBackMove(self, request: moves_pb2.RollBackMoveRequest, call: Call) -> moves_pb2.MoveStatus:
        """Put a group back as it was before its last move."""
        whose = in_whose_name(call.caller.principal, request.actor)
        return self._service.own_moves.roll_back(request, self._questions(call), whose)

    def GetMove(self, request: moves_pb2.GetMoveRequest, _: Call) -> moves_pb2.MoveStatus:
        """How far a move is."""
        return self._service.own_moves.status(request)

    def VerifyGroup(self, request: moves_pb2.VerifyGroupRequest, call: Call) -> moves_pb2.GroupVerification:
        """Which records a group consumed once, twice or never."""
        group_named(request.group)
        return self._service.verify(request, call.deadline)

    def PlanDrill(self, request: moves_pb2.PlanDrillRequest, _: Call) -> moves_pb2.PlannedDrill:
        """What a drill would do."""
        return self._service.own_drills.plan(request)

    def RunDrill(self, request: moves_pb2.RunDrillRequest, call: Call) -> moves_pb2.DrillStatus:
        """Begin with a drill."""
        whose = in_whose_name(call.caller.principal, request.actor)
        return self._service.own_drills.run(request, self._questions(call), whose)

    def StopDrill(self, request: moves_pb2.StopDrillRequest, call: Call) -> moves_pb2.DrillStatus:
        """Let a drill end."""
        whose = in_whose_name(call.caller.principal, request.actor)
        return self._service.own_drills.stop(request, self._questions(call), whose)

    def GetDrill(self, request: moves_pb2.GetDrillRequest, _: Call) -> moves_pb2.DrillStatus:
        """How far a drill is."""
        return self._service.own_drills.status(request)

    def _questions(self, call: Call) -> Questions:
        """What a move asks, for whoever called; each question has the time that a call has."""

        def asking(handler: Callable[[Request, Call], Answer]) -> Callable[[Request], Answer]:
            budget_ms = self._service.config.service.deadline_ms
            return lambda request: handler(request, Call(Deadline.after_ms(budget_ms), call.caller))

        return Questions(
            asking(self.GetGroupFailoverOffsets),
            asking(self.GetPrimary),
            asking(self.ListPrimaries),
            asking(self.SetPrimary),
            asking(self.ReportPositions),
        )

    def _move(
        self,
        request: pb.GetFailoverOffsetRequest | pb.GetGroupFailoverOffsetsRequest | pb.MapPositionsRequest,
    ) -> tuple[ClusterName, ClusterName]:
        destination = self._cluster(request.to, "to")
        if not request.HasField("from"):
            return self._service.places.origin_of(destination), destination
        return self._cluster(getattr(request, "from"), "from"), destination

    def _cluster(self, place: pb.Place, what: str) -> ClusterName:
        return self._service.places.cluster(region=place.region, cluster=place.cluster, what=what)
