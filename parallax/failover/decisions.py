"""The decisions of a move: its fence, its end, and who publishes."""

from __future__ import annotations

from dataclasses import replace

from parallax.domain.ids import GroupName, RegionName
from parallax.domain.primary import Assignment, Change, Stage
from parallax.failover.facts import Kind, Move
from parallax.failover.outside import Outside


def fence(outside: Outside, move: Move, reason: str, expected_number: int | None = None) -> Assignment:
    """Record that the group moves: nobody consumes, nobody else publishes. What holds then.

    Raises:
        FencedError: another number than the expected one holds.
    """
    arrived = _arrived(move, reason, expected_number)
    return outside.decide(replace(arrived, stage=Stage.MOVING, moving_from=move.origin))


def settle(outside: Outside, move: Move, reason: str, expected_number: int | None = None) -> int:
    """Record that the group has arrived; the fencing number that holds then.

    Raises:
        FencedError: another number than the expected one holds.
    """
    return outside.decide(_arrived(move, reason, expected_number)).decision.fencing_number


def publisher(outside: Outside, group: GroupName) -> RegionName | None:
    """The region that publishes an active/active group's results; None if nothing was decided."""
    assignment = outside.assignment(group)
    return None if assignment is None else assignment.decision.primary


def publish_from(outside: Outside, move: Move, reason: str, expected_number: int) -> int:
    """Record that an active/active group publishes from the move's region; the fencing number that holds then.

    Raises:
        FencedError: another number than the expected one holds.
    """
    arrived = _arrived(move, reason, expected_number)
    return outside.decide(replace(arrived, cluster=None)).decision.fencing_number


def _arrived(move: Move, reason: str, expected_number: int | None) -> Change:
    return Change(
        move.group,
        move.region,
        cluster=move.target,
        expected_number=expected_number,
        disaster=move.kind is Kind.DISASTER,
        reason=reason,
    )
