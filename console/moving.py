"""Pages that move a group: where to, what would happen, and how far it is. What they change goes through the offset service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from console.groups import optional, outcome_cell
from console.listing import Cell, Listing, columns, link, moment
from parallax.domain.ids import ClusterName, GroupName, RegionName
from parallax.errors import ParallaxError
from parallax.failover.facts import Move, MoveKind
from parallax.failover.orders import order_of_kept
from parallax.v1 import moves_pb2 as pb
from parallax.v1 import overview_pb2

STEPS = (
    ("begun", "Snapshot kept"),
    ("fenced", "Group fenced"),
    ("written", "Offsets written"),
    ("done", "Primary recorded"),
)
"""Of the journal, in their order, with what each means."""
STATES = {
    "planned": ("not begun", "dim"),
    "running": ("running", "warn"),
    "interrupted": ("interrupted", "bad"),
    "moved": ("moved", "good"),
    "already_there": ("was there already", "good"),
    "refused": ("refused", "bad"),
    "abandoned": ("abandoned", "warn"),
    "rolled_back": ("put back", "warn"),
}
"""Words and tones."""
_VERDICTS = {"once": "good", "twice": "warn", "never": "bad", "unknown": "warn"}
_MOST_ROWS = 500


class Acts(Protocol):
    """What pages that move groups ask the offset service."""

    def plan_move(
        self,
        group: str,
        *,
        to_region: str = "",
        back: bool = False,
        disaster: bool = False,
        accept_gaps: bool = False,
    ) -> pb.PlannedMove:
        """What a move would do."""
        ...

    def execute_move(self, planned: pb.PlannedMove, *, actor: str = "") -> pb.MoveStatus:
        """Carry out what was planned."""
        ...

    def cancel_move(self, group: str, move_id: str, *, actor: str = "") -> pb.MoveStatus:
        """Stop a move before its next step."""
        ...

    def roll_back_move(
        self, group: str, move_id: str, *, disaster: bool = False, actor: str = ""
    ) -> pb.MoveStatus:
        """Put a group back."""
        ...

    def get_move(self, group: str, move_id: str) -> pb.MoveStatus:
        """How far a move is."""
        ...

    def verify_group(self, group: str, *, moves: int = 1) -> pb.GroupVerification:
        """Which records a group consumed once, twice or never."""
        ...


@dataclass(frozen=True, slots=True)
class MoveWish:
    """Where somebody wants a group to go, as the URL has it.

    Attributes:
        to: a region; empty: not chosen yet, or ``back``.
        back: where its last move came from.
    """

    group: str
    to: str = ""
    back: bool = False
    disaster: bool = False
    accept_gaps: bool = False

    @property
    def chosen(self) -> bool:
        """Whether there is something to plan."""
        return bool(self.to) or self.back

    @property
    def options(self) -> dict[str, Any]:
        """For `Acts.plan_move`."""
        where: dict[str, Any] = {"back": True} if self.back else {"to_region": self.to}
        return {**where, "disaster": self.disaster, "accept_gaps": self.accept_gaps}


@dataclass(frozen=True, slots=True)
class Review:
    """A plan to look at.

    Attributes:
        problem: why there is none; empty otherwise.
        partitions: where each would go on.
        changed: it is not what was agreed to before.
    """

    plan: pb.PlannedMove | None = None
    problem: str = ""
    partitions: Listing | None = None
    changed: bool = False

    @property
    def goes(self) -> bool:
        """Whether it can be executed."""
        plan = self.plan
        return plan is not None and not plan.arrived and not self.refusals

    @property
    def refusals(self) -> list[str]:
        """What forbids it."""
        if self.plan is None:
            return []
        gaps = (
            [] if self.plan.accept_gaps else [f"{gap} (an admin may accept that)" for gap in self.plan.gaps]
        )
        return [*self.plan.obstacles, *gaps]


def review(acts: Acts, wish: MoveWish) -> Review:
    """The plan of a wish; what is wrong is told, not raised."""
    try:
        plan = acts.plan_move(wish.group, **wish.options)
    except ParallaxError as error:
        return Review(problem=f"[{error.code}] {error}")
    return reviewed(plan)


def reviewed(plan: pb.PlannedMove, *, changed: bool = False) -> Review:
    """A plan to look at."""
    found = sorted(plan.partitions, key=lambda item: (-item.outcome, item.topic, item.partition))
    cut = len(found) - _MOST_ROWS
    listing = Listing(
        columns=columns(
            "topic Topic | >partition Partition | >next_offset Next offset there | >resume_offset Resumes at | outcome Outcome"
            " | >pending Pending | >redelivery Read again by plain clients"
        ),
        rows=tuple(
            (
                Cell(item.topic, link=_explained(plan, item)),
                Cell(item.partition),
                Cell(optional(item, "next_offset")),
                Cell(item.resume_offset),
                outcome_cell(item.outcome),
                Cell(item.pending_records),
                Cell(optional(item, "redelivery_records")),
            )
            for item in found[:_MOST_ROWS]
        ),
        empty="The group has no position to move.",
        notes=(f"{cut:,} more partitions, none of them graver.",) if cut > 0 else (),
    )
    return Review(plan, partitions=listing, changed=changed)


def _explained(plan: pb.PlannedMove, item: pb.PlannedPartition) -> str:
    return link(
        "/explain",
        group=plan.group,
        topic=item.topic,
        partition=str(item.partition),
        to=plan.target,
        from_=plan.origin,
    )


@dataclass(frozen=True, slots=True)
class StepView:
    """A step of the journal: ``done``, ``doing`` or ``open``."""

    words: str
    state: str


@dataclass(frozen=True, slots=True)
class MoveView:
    """How far a move is.

    Attributes:
        words: its state, and the tone of that.
        running: whether it may go on by itself.
        again: whether it has to be run again, or may be put back.
    """

    status: pb.MoveStatus
    words: tuple[str, str]
    steps: tuple[StepView, ...]
    events: tuple[tuple[str, str], ...]
    verification: Verification | None = None

    @property
    def running(self) -> bool:
        """Whether it goes on by itself."""
        return self.status.state == "running"

    @property
    def ended(self) -> bool:
        """Whether there is nothing to go on with."""
        return self.status.state in {"moved", "already_there", "rolled_back", "abandoned", "refused"}

    @property
    def can_go_back(self) -> bool:
        """Whether the group may be put back."""
        return self.status.state in {"moved", "interrupted"}


@dataclass(frozen=True, slots=True)
class Verification:
    """What was consumed once, twice or never.

    Attributes:
        problem: why it is not known; empty otherwise.
    """

    verdict: str = ""
    tone: str = ""
    listing: Listing | None = None
    notes: tuple[str, ...] = field(default=())
    problem: str = ""


def progress(acts: Acts, group: str, move_id: str) -> MoveView:
    """How far a move is; raises as the client does."""
    status = acts.get_move(group, move_id)
    return MoveView(
        status,
        STATES.get(status.state, (status.state or "unknown", "dim")),
        tuple(_steps(status)),
        tuple((moment(event.at_ms), event.words) for event in reversed(status.events)),
    )


def place_of(item: overview_pb2.MoveSummary) -> str:
    """The address at which a move of a list is followed; empty: there is none."""
    if item.kind not in {kind.value for kind in MoveKind}:
        return ""
    clusters = ClusterName(item.origin), ClusterName(item.target)
    move = Move(GroupName(item.group), *clusters, RegionName(item.region), MoveKind(item.kind))
    order = order_of_kept(move, started_at_ms=item.started_at_ms, updated_at_ms=item.updated_at_ms)
    return "" if order is None else link("/moving", group=item.group, move_id=order.move_id)


def _steps(status: pb.MoveStatus) -> Iterator[StepView]:
    order = [name for name, _ in STEPS]
    reached = order.index(status.step) if status.step in order else -1
    for number, (_, words) in enumerate(STEPS):
        if number <= reached:
            yield StepView(words, "done")
        elif number == reached + 1 and status.state == "running":
            yield StepView(words, "doing")
        else:
            yield StepView(words, "open")


def verification(acts: Acts, group: str, moves: int) -> Verification:
    """What a group consumed over its last moves; what is wrong is told, not raised."""
    try:
        found = acts.verify_group(group, moves=moves)
    except ParallaxError as error:
        return Verification(problem=f"[{error.code}] {error}")
    return Verification(
        found.verdict, _VERDICTS.get(found.verdict, ""), _verified(found, group, moves), tuple(found.notes)
    )


def verified(acts: Acts, group: str, moves: int) -> Listing:
    """The list of `verification` alone; raises as the client does."""
    return _verified(acts.verify_group(group, moves=moves), group, moves)


def _verified(found: pb.GroupVerification, group: str, moves: int) -> Listing:
    return Listing(
        columns=columns(
            "topic Topic | >partition Partition | verdict Records came | >once Once | >twice Twice | >never Never"
        ),
        rows=tuple(
            (
                Cell(item.topic),
                Cell(item.partition),
                Cell(item.verdict, tone=_VERDICTS.get(item.verdict, ""), note=" ".join(item.notes)),
                Cell(item.once_records),
                Cell(item.twice_records, tone="warn" if item.twice_records else ""),
                Cell(item.never_records, tone="bad" if item.never_records else ""),
            )
            for item in found.partitions[:_MOST_ROWS]
        ),
        empty="Nothing was consumed over these moves.",
        path="/verify",
        parameters={"group": group, "moves": str(moves)},
    )
