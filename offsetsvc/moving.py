"""Moves that the service carries out itself: what a move asks of offset services it asks of this one, for whoever called."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from parallax.client.messages import outcome_to_pb
from parallax.client.primary_messages import change_to_pb
from parallax.domain.consumption import ConsumptionKind
from parallax.domain.ids import GroupName
from parallax.domain.primary import Change
from parallax.domain.rights import Principal
from parallax.errors import InvalidNameError
from parallax.failover.desk import MoveDesk, MoveProgress
from parallax.failover.facts import MoveKind
from parallax.failover.journal import MoveJournal
from parallax.failover.orders import MoveOrder, digest_of, order_of
from parallax.failover.outside import Outside
from parallax.failover.plan import MovePlan
from parallax.failover.selection import one_move, way_back
from parallax.failover.services import MoveClient
from parallax.failover.verify.verdict import GroupVerdict, PartitionVerdict
from parallax.v1 import moves_pb2 as moves
from parallax.v1 import offsets_pb2 as pb
from parallax.v1 import primaries_pb2


@dataclass
class Questions:
    """The calls that a move needs, each answered within its own time for one caller.

    Attributes:
        offsets: answers where a group resumes; and so on.
    """

    offsets: Callable[[pb.GetGroupFailoverOffsetsRequest], pb.GetGroupFailoverOffsetsResponse]
    primary: Callable[[primaries_pb2.GetPrimaryRequest], primaries_pb2.Primary]
    primaries: Callable[[primaries_pb2.ListPrimariesRequest], primaries_pb2.ListPrimariesResponse]
    decide: Callable[[primaries_pb2.SetPrimaryRequest], primaries_pb2.Primary]
    report: Callable[[pb.ReportPositionsRequest], pb.ReportPositionsResponse]

    def get_group_failover_offsets(
        self,
        group: str,
        *,
        to: pb.Place,
        origin: pb.Place | None = None,
        positions: Iterable[pb.PartitionPosition] = (),
        topics: Iterable[str] = (),
        by_timestamp: pb.TimestampPolicy | None = None,
    ) -> pb.GetGroupFailoverOffsetsResponse:
        """Where every partition of a group resumes."""
        request = pb.GetGroupFailoverOffsetsRequest(
            group=group,
            to=to,
            positions=positions,
            topics=topics,
            by_timestamp=by_timestamp,
        )
        if origin is not None:
            getattr(request, "from").CopyFrom(origin)
        return self.offsets(request)

    def get_primary(self, group: str) -> primaries_pb2.Primary:
        """Where a group is primary."""
        return self.primary(primaries_pb2.GetPrimaryRequest(group=group))

    def list_primaries(self) -> primaries_pb2.ListPrimariesResponse:
        """Every group with a decision that the caller may read."""
        return self.primaries(primaries_pb2.ListPrimariesRequest())

    def set_primary(self, change: Change, *, actor: str = "") -> primaries_pb2.Primary:
        """Decide where a group is primary."""
        return self.decide(change_to_pb(change, actor=actor))

    def report_positions(
        self, group: str, *, at: pb.Place, moves: Iterable[pb.PartitionMove] = ()
    ) -> pb.ReportPositionsResponse:
        """Remember what moves leave."""
        return self.report(pb.ReportPositionsRequest(group=group, at=at, moves=moves))


Opened = Callable[[MoveClient, Principal], Outside]
"""All that a move touches, for one caller."""


class OwnMoves:
    """Plans, carries out and tells of moves. Safe to use from many threads.

    Args:
        opened: gives what a move touches.
        journal: of all moves.
        desk: has those under way.
    """

    def __init__(self, opened: Opened, journal: MoveJournal, desk: MoveDesk) -> None:
        self._opened = opened
        self._journal = journal
        self._desk = desk

    def close(self) -> None:
        """End moves before their next step."""
        self._desk.close()

    def plan(self, request: moves.PlanMoveRequest, client: MoveClient, whose: Principal) -> moves.PlannedMove:
        """What a move would do.

        Raises:
            InvalidNameError: not exactly one target is named.
            ParallaxError: as `one_move`, `way_back` and `Mover.plan` say.
        """
        outside = self._opened(client, whose)
        kind = MoveKind.DISASTER if request.disaster else MoveKind.PLANNED
        group = GroupName(request.group)
        if sum(map(bool, (request.to_region, request.to_cluster, request.back))) != 1:
            raise InvalidNameError("name exactly one of to_region, to_cluster and back")
        if request.back:
            move = way_back(outside, group, kind)
        else:
            move = one_move(
                outside,
                group,
                to_region=request.to_region or None,
                to_cluster=request.to_cluster or None,
                origin=request.origin or None,
                kind=kind,
            )
        order = MoveOrder(move, request.accept_gaps, self._journal.now_ms())
        return planned_to_pb(order, self._desk.plan(outside, order))

    def planned(self, move_id: str, client: MoveClient, whose: Principal) -> moves.PlannedMove:
        """The plan of an id, as it is now."""
        order = order_of(move_id)
        return planned_to_pb(order, self._desk.plan(self._opened(client, whose), order))

    def execute(
        self, request: moves.ExecuteMoveRequest, client: MoveClient, whose: Principal
    ) -> moves.MoveStatus:
        """Begin with what was planned; raises as `MoveDesk.execute` does."""
        order = _order(request.group, request.move_id)
        if request.disaster != (order.move.kind is MoveKind.DISASTER):
            raise InvalidNameError("disaster: it has to be as it was planned")
        return status_to_pb(self._desk.execute(self._opened(client, whose), order, request.digest))

    def cancel(
        self, request: moves.CancelMoveRequest, client: MoveClient, whose: Principal
    ) -> moves.MoveStatus:
        """Stop a move before its next step; raises as `MoveDesk.cancel` does."""
        order = _order(request.group, request.move_id)
        return status_to_pb(self._desk.cancel(self._opened(client, whose), order))

    def roll_back(
        self, request: moves.RollBackMoveRequest, client: MoveClient, whose: Principal
    ) -> moves.MoveStatus:
        """Put a group back; raises as `MoveDesk.roll_back` does."""
        order = _order(request.group, request.move_id)
        outside = self._opened(client, whose)
        return status_to_pb(self._desk.roll_back(outside, order, disaster=request.disaster))

    def status(self, request: moves.GetMoveRequest) -> moves.MoveStatus:
        """How far a move is; raises as `MoveDesk.progress` does."""
        return status_to_pb(self._desk.progress(self._journal, _order(request.group, request.move_id)))


def verified_to_pb(found: GroupVerdict) -> moves.GroupVerification:
    """What a verification found, as it is told."""
    never = (ConsumptionKind.NEVER, ConsumptionKind.LOST)
    return moves.GroupVerification(
        group=found.group,
        verdict=found.verdict.value,
        consumers=found.consumers.value,
        way=[
            *(record.move.origin for record in found.moves[:1]),
            *(record.move.target for record in found.moves),
        ],
        partitions=[
            moves.PartitionVerification(
                topic=item.topic_partition.topic,
                partition=item.topic_partition.partition,
                verdict=item.verdict.value,
                once_records=_records(item, ConsumptionKind.ONCE),
                twice_records=_records(item, ConsumptionKind.TWICE),
                never_records=sum(_records(item, kind) for kind in never),
                notes=[
                    *item.unknown,
                    *(
                        f"source {source.source.region}: {text}"
                        for source in item.sources
                        for text in source.unknown
                    ),
                    *item.notes,
                ],
            )
            for item in found.partitions
        ],
        notes=found.notes,
    )


def _records(found: PartitionVerdict, kind: ConsumptionKind) -> int:
    return sum(source.records(kind) for source in found.sources)


def _order(group: str, move_id: str) -> MoveOrder:
    order = order_of(move_id)
    if order.move.group != group:
        raise InvalidNameError("group: the move's id is of another group")
    return order


def planned_to_pb(order: MoveOrder, plan: MovePlan) -> moves.PlannedMove:
    """A plan as it is told."""
    move = order.move
    return moves.PlannedMove(
        move_id=order.move_id,
        digest=digest_of(plan, accept_gaps=order.accept_gaps),
        group=move.group,
        origin=move.origin,
        target=move.target,
        region=move.region,
        kind=move.kind.value,
        fencing_number=plan.fencing_number,
        outcome=outcome_to_pb(plan.outcome),
        partitions=[
            moves.PlannedPartition(
                topic=item.topic_partition.topic,
                partition=item.topic_partition.partition,
                next_offset=item.origin_next_offset,
                resume_offset=item.resume_offset,
                outcome=outcome_to_pb(item.outcome),
                pending_records=item.pending_records,
                redelivery_records=item.redelivery_records,
            )
            for item in plan.partitions
        ],
        gaps=[gap.words for gap in plan.gaps],
        unknown=plan.unknown,
        obstacles=() if plan.arrived else plan.obstacles,
        waits_for=() if plan.arrived else plan.waits_for,
        arrived=plan.arrived,
        publisher_only=plan.publisher_only,
        pending_records=plan.pending_records,
        redelivery_records=plan.redelivery_records,
        accept_gaps=order.accept_gaps,
    )


def status_to_pb(progress: MoveProgress) -> moves.MoveStatus:
    """How far a move is, as it is told."""
    record = progress.record
    return moves.MoveStatus(
        move_id=progress.order.move_id,
        group=progress.order.move.group,
        state=progress.state.value,
        step="" if record is None else record.step.value,
        doing=progress.doing,
        problem=progress.problem,
        fencing_number=progress.fencing_number or None,
        events=[moves.MoveEvent(at_ms=at_ms, words=words) for at_ms, words in progress.events],
        actor=progress.actor,
        started_at_ms=None if record is None else record.started_at_ms,
        updated_at_ms=None if record is None else record.version // 1_000,
    )
