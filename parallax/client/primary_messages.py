"""Between the messages of `primaries.proto` and the values of the domain. Needs the base install only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from parallax.domain.ids import ClusterName, GroupName, RegionName
from parallax.domain.primary import Assignment, Change, Mode, PrimaryDecision, Stage
from parallax.errors import InvalidNameError, InvariantError
from parallax.v1 import primaries_pb2 as pb

T = TypeVar("T")

_MODES = {Mode.ACTIVE_PASSIVE: pb.ACTIVE_PASSIVE, Mode.ACTIVE_ACTIVE: pb.ACTIVE_ACTIVE}
_STAGES = {Stage.SETTLED: pb.SETTLED, Stage.MOVING: pb.MOVING}
_MODE_OF: Mapping[int, Mode] = {number: mode for mode, number in _MODES.items()}
_STAGE_OF: Mapping[int, Stage] = {number: stage for stage, number in _STAGES.items()}


def primary_to_pb(group: GroupName, assignment: Assignment | None) -> pb.Primary:
    """What holds for a group."""
    if assignment is None:
        return pb.Primary(group=group)
    return pb.Primary(
        group=group,
        decision=decision_to_pb(assignment.decision),
        rivals=[decision_to_pb(item) for item in assignment.rivals],
        dual_active=assignment.dual_active,
    )


def primary_from_pb(primary: pb.Primary) -> Assignment | None:
    """What holds for a group; None if nothing was ever decided.

    Raises:
        InvalidNameError: the server speaks of modes or stages that this program does not know.
        InvariantError: the server can't read what was decided.
    """
    if primary.problem:
        raise InvariantError(primary.problem)
    if not primary.HasField("decision"):
        return None
    group = GroupName(primary.group)
    return Assignment(
        decision_from_pb(group, primary.decision),
        tuple(decision_from_pb(group, item) for item in primary.rivals),
    )


def decision_to_pb(decision: PrimaryDecision) -> pb.PrimaryDecision:
    """One decision."""
    return pb.PrimaryDecision(
        fencing_number=decision.fencing_number,
        mode=_MODES[decision.mode],
        region=decision.primary,
        cluster=decision.cluster,
        stage=_STAGES[decision.stage],
        moving_from=decision.moving_from,
        decided_in=decision.decided_in,
        decided_at_ms=decision.decided_at_ms,
        supersedes=decision.supersedes,
        disaster=decision.disaster,
        reason=decision.reason,
    )


def decision_from_pb(group: GroupName, item: pb.PrimaryDecision) -> PrimaryDecision:
    """One decision; raises as `primary_from_pb` does."""
    mode, stage = _known(item.mode, _MODE_OF, "mode"), _known(item.stage, _STAGE_OF, "stage")
    if mode is None or stage is None:
        raise InvalidNameError("a decision without mode or stage; the server may be newer than this client")
    return PrimaryDecision(
        group=group,
        fencing_number=item.fencing_number,
        mode=mode,
        primary=RegionName(item.region),
        cluster=ClusterName(item.cluster) if item.HasField("cluster") else None,
        stage=stage,
        moving_from=ClusterName(item.moving_from) if item.HasField("moving_from") else None,
        decided_in=RegionName(item.decided_in),
        decided_at_ms=item.decided_at_ms,
        supersedes=tuple(item.supersedes),
        disaster=item.disaster,
        reason=item.reason,
    )


def change_from_pb(request: pb.SetPrimaryRequest) -> Change:
    """What the caller wants.

    Raises:
        InvalidNameError: no region is named, or a mode or stage is unknown.
    """
    if not request.region:
        raise InvalidNameError("region: name the region that shall be primary")
    return Change(
        group=GroupName(request.group),
        primary=RegionName(request.region),
        mode=_known(request.mode, _MODE_OF, "mode"),
        cluster=ClusterName(request.cluster) if request.HasField("cluster") else None,
        stage=_known(request.stage, _STAGE_OF, "stage") or Stage.SETTLED,
        moving_from=ClusterName(request.moving_from) if request.HasField("moving_from") else None,
        expected_number=request.expected_fencing_number
        if request.HasField("expected_fencing_number")
        else None,
        disaster=request.disaster,
        renew=request.renew,
        reason=request.reason,
    )


def change_to_pb(change: Change, *, dry_run: bool = False, actor: str = "") -> pb.SetPrimaryRequest:
    """The request that carries a change out."""
    return pb.SetPrimaryRequest(
        group=change.group,
        region=change.primary,
        mode=pb.PRIMARY_MODE_UNSPECIFIED if change.mode is None else _MODES[change.mode],
        cluster=change.cluster,
        stage=_STAGES[change.stage],
        moving_from=change.moving_from,
        expected_fencing_number=change.expected_number,
        disaster=change.disaster,
        renew=change.renew,
        reason=change.reason,
        dry_run=dry_run,
        actor=actor,
    )


def primaries_to_pb(
    assignments: Iterable[tuple[GroupName, Assignment | InvariantError]],
    next_after: str = "",
) -> pb.ListPrimariesResponse:
    """Groups with a decision, and where the next page goes on."""
    return pb.ListPrimariesResponse(
        next_after=next_after,
        primaries=[
            pb.Primary(group=group, problem=str(item))
            if isinstance(item, InvariantError)
            else primary_to_pb(group, item)
            for group, item in assignments
        ],
    )


def _known(number: int, values: Mapping[int, T], what: str) -> T | None:
    """The value of a number; None of 0, which stands for none.

    Raises:
        InvalidNameError: the number is none of ours.
    """
    if number and number not in values:
        raise InvalidNameError(f"{what} {number} is unknown; the other side may be newer than this program")
    return values.get(number)
