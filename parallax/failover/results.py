"""What bounds a move, and what became of it: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from parallax.failover.facts import Move
from parallax.failover.plan import MovePlan


class StoppedError(Exception):
    """The operator has stopped the command; what is done is done, and the next step was not begun."""


class Ending(Enum):
    """What became of a group's move."""

    MOVED = "moved"
    ALREADY_THERE = "already_there"
    REFUSED = "refused"
    """Nothing was changed."""
    ABANDONED = "abandoned"
    """It took too long; the fence was lifted, and the group goes on where it was."""
    INTERRUPTED = "interrupted"
    """Something did not answer, or the command was stopped: run the same command again."""


@dataclass(frozen=True, slots=True)
class Result:
    """A group's move as it ended.

    Attributes:
        plan: the last one made; with MOVED, of the offsets that were written.
        fencing_number: that holds now; 0 if it is not known.
        problem: why it was not moved; empty otherwise.
    """

    move: Move
    ending: Ending
    plan: MovePlan | None
    fencing_number: int = 0
    problem: str = ""
    took_ms: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a planned move waits, and what it may cross.

    Attributes:
        drain_ms: for the group to leave its cluster.
        catch_up_ms: for the target to have all that was consumed.
        handover_ms: disaster: for FailoverConsumers to hear of the fence and report what they have delivered, so
            that whoever gets their partitions goes on from there.
        accept_gaps: go on although records will never be delivered; the plan names them.
    """

    drain_ms: float = 60_000
    catch_up_ms: float = 60_000
    handover_ms: float = 1_000
    accept_gaps: bool = False
