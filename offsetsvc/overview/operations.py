"""What operators' commands did: moves and drills, the newest first.

What a page costs: of all groups' moves, a read of the weeks that have any and two of each that the page needs. Of one group's moves,
two reads and one for each move on it. Of drills, two reads.
"""

from __future__ import annotations

from collections.abc import Callable

from offsetsvc.names import group_named
from offsetsvc.overview.pages import filled, limit_of
from parallax.domain.ids import GroupName
from parallax.errors import InvalidNameError, UnreadableRowError
from parallax.failover.desk import state_of
from parallax.failover.drill.figures import LegFigures
from parallax.failover.drill.history import DRILLS, DrillRecord, record_of, seen
from parallax.failover.journal import ENDED, summary_from
from parallax.ports.groups import OperationJournal, OperationNote, OperationPlace
from parallax.v1 import overview_pb2 as pb

Shown = Callable[[GroupName], bool]

_AHEAD_MS = 86_400_000
"""Not every operator's clock is right."""
_MOST_DIGITS = 19
"""Of 63 bits; Python itself refuses to read thousands."""


class Operations:
    """Lists of moves and drills. Safe to use from many threads.

    Args:
        journal: where they are kept.
        now_ms: the store's clock.
    """

    def __init__(self, journal: OperationJournal, now_ms: Callable[[], int]) -> None:
        self._journal = journal
        self._now_ms = now_ms

    def moves(self, request: pb.ListMovesRequest, shown: Shown) -> pb.ListMovesResponse:
        """A page of moves.

        Raises:
            InvalidNameError: the limit is negative, the group has no name, or the page begins nowhere.
            LimitError: the limit is more than a page may have.
            StoreUnavailableError: the store did not answer.
        """
        journal = self._journal
        group = group_named(request.group) if request.HasField("group") else None

        def read(after: str, limit: int) -> list[OperationNote]:
            place = self._place(after)
            if group is None:
                return list(journal.summaries(place, limit))
            return list(journal.operation_page(group, place, limit, summarised=True))

        notes, next_after = filled(
            read, _place_text, lambda note: shown(note.group), request.after, limit_of(request.limit)
        )
        now_ms = self._now_ms()
        return pb.ListMovesResponse(moves=[_move(note, now_ms) for note in notes], next_after=next_after)

    def drills(self, request: pb.ListDrillsRequest, shown: Shown) -> pb.ListDrillsResponse:
        """A page of drills of groups that may be shown; raises as `moves` does."""

        def read(after: str, limit: int) -> list[OperationNote]:
            return list(self._journal.operation_page(DRILLS, self._place(after), limit, summarised=False))

        def told(note: OperationNote) -> bool:
            return shown(GroupName(_drill(note, 0).group))

        notes, next_after = filled(read, _place_text, told, request.after, limit_of(request.limit))
        now_ms = self._now_ms()
        return pb.ListDrillsResponse(drills=[_drill(note, now_ms) for note in notes], next_after=next_after)

    def _place(self, after: str) -> OperationPlace:
        if not after:
            return OperationPlace(self._now_ms() + _AHEAD_MS)
        started_at_ms, _, operation_id = after.partition("/")
        is_moment = started_at_ms.isdecimal() and len(started_at_ms) <= _MOST_DIGITS
        if not is_moment or not operation_id or int(started_at_ms) >= 2**63:
            raise InvalidNameError(
                f"after: {after!r} is no place of this list; take the next_after of a page"
            )
        return OperationPlace(int(started_at_ms), operation_id)


def _place_text(note: OperationNote) -> str:
    return f"{note.started_at_ms}/{note.operation_id}"


def _move(note: OperationNote, now_ms: int) -> pb.MoveSummary:
    try:
        summary = summary_from(note)
    except UnreadableRowError as error:
        return pb.MoveSummary(
            group=note.group,
            move_id=note.operation_id,
            started_at_ms=note.started_at_ms,
            updated_at_ms=note.version // 1_000,
            problem=str(error),
        )
    state, problem = state_of(summary.step, summary.problem, summary.updated_at_ms, now_ms)
    return pb.MoveSummary(
        group=note.group,
        move_id=summary.operation_id,
        started_at_ms=summary.started_at_ms,
        updated_at_ms=summary.updated_at_ms,
        origin=summary.move.origin,
        target=summary.move.target,
        region=summary.move.region,
        kind=summary.move.kind.value,
        step=summary.step.value,
        ended=summary.step in ENDED,
        fencing_number=summary.fencing_number or None,
        partitions=summary.partitions,
        problem=problem,
        actor=summary.actor,
        state=state.value,
    )


def _drill(note: OperationNote, now_ms: int) -> pb.DrillSummary:
    try:
        record = record_of(note)
    except UnreadableRowError as error:
        return pb.DrillSummary(
            drill_id=note.operation_id, started_at_ms=note.started_at_ms, problem=str(error)
        )
    return drill_to_pb(seen(record, now_ms))


def drill_to_pb(record: DrillRecord) -> pb.DrillSummary:
    """A drill as it is told."""
    figures = record.figures
    return pb.DrillSummary(
        drill_id=record.drill_id,
        group=record.group,
        topic=record.topic,
        origin=record.origin,
        to=record.to,
        started_at_ms=record.started_at_ms,
        took_ms=record.took_ms or None,
        ending=record.ending.value,
        problem=record.problem,
        left=record.left,
        proof=record.proof,
        produced_records=None if figures is None else figures.acknowledged,
        lost_records=None if figures is None else figures.lost,
        repeated_records=None if figures is None else figures.redelivered,
        legs=[] if figures is None else map(_leg, figures.legs),
        actor=record.actor,
    )


def _leg(leg: LegFigures) -> pb.DrillLeg:
    return pb.DrillLeg(
        origin=leg.leg.origin,
        to=leg.leg.to,
        rto_ms=None if leg.rto_ms is None else round(leg.rto_ms),
        rpo_records=leg.rpo_records,
        asked_ms=leg.leg.asked_ms,
        ended_ms=leg.leg.ended_ms,
    )
