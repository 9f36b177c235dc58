"""Pages that run a drill: between which regions, what it would do, and how far it is. What they begin goes through the offset service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from markupsafe import Markup

from console.groups import optional
from console.listing import age, moment
from parallax.errors import ParallaxError
from parallax.failover.drill.figures import Leg, Timeline
from parallax.failover.drill.report import picture, told
from parallax.picture.text import visible
from parallax.v1 import moves_pb2 as pb

ENDINGS = {
    "passed": ("passed", "good"),
    "failed": ("failed", "bad"),
    "interrupted": ("interrupted", "warn"),
    "running": ("running", "warn"),
}
"""Words and tones."""


class Drills(Protocol):
    """What pages of drills ask the offset service."""

    def plan_drill(self, *, origin: str = "", to: str = "") -> pb.PlannedDrill:
        """What a drill would do."""
        ...

    def run_drill(self, planned: pb.PlannedDrill, *, actor: str = "") -> pb.DrillStatus:
        """Begin with a drill."""
        ...

    def stop_drill(self, group: str, drill_id: str, *, actor: str = "") -> pb.DrillStatus:
        """Let a drill end."""
        ...

    def get_drill(self, group: str, drill_id: str) -> pb.DrillStatus:
        """How far a drill is."""
        ...


@dataclass(frozen=True, slots=True)
class DrillReview:
    """What a drill would do; ``problem``: why that can't be told."""

    plan: pb.PlannedDrill | None = None
    problem: str = ""


def review(drills: Drills, origin: str, to: str) -> DrillReview:
    """The plan; what is wrong is told, not raised."""
    try:
        return DrillReview(drills.plan_drill(origin=origin, to=to))
    except ParallaxError as error:
        return DrillReview(problem=f"[{error.code}] {error}")


@dataclass(frozen=True, slots=True)
class DrillView:
    """How far a drill is.

    Attributes:
        words: its ending, and the tone of that.
        facts: what is known of it, names and values.
        drawing: its timeline as SVG, and how to read that; None: there is none.
    """

    group: str
    status: pb.DrillStatus
    words: tuple[str, str]
    facts: tuple[tuple[str, str], ...]
    events: tuple[tuple[str, str], ...]
    drawing: tuple[Markup, str] | None = None

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return self.status.ending == "running"


def progress(drills: Drills, group: str, drill_id: str) -> DrillView:
    """How far a drill is; raises as the client does."""
    status = drills.get_drill(group, drill_id)
    return DrillView(
        group,
        status,
        ENDINGS.get(status.ending, (status.ending or "unknown", "dim")),
        tuple(_facts(status)),
        tuple((moment(event.at_ms), event.words) for event in reversed(status.events)),
        _drawing(status),
    )


def _drawing(status: pb.DrillStatus) -> tuple[Markup, str] | None:
    if not status.HasField("timeline"):
        return None
    line = Timeline(
        status.timeline.slot_ms,
        tuple(status.timeline.acknowledged_records),
        {visible(item.region): tuple(item.records) for item in status.timeline.delivered},
        tuple((event.at_ms, visible(event.words)) for event in status.timeline.events),
    )
    legs = [
        (Leg(visible(leg.origin), visible(leg.to), leg.asked_ms, leg.ended_ms), optional(leg, "rto_ms"))
        for leg in status.drill.legs
    ]
    return Markup(picture(legs, line)), told(line)  # noqa: S704 - names within are escaped


def _facts(status: pb.DrillStatus) -> list[tuple[str, str]]:
    if not status.HasField("drill"):
        return []
    drill = status.drill
    facts = [
        ("Way", f"region {drill.origin} to {drill.to}, and back"),
        ("Began", moment(drill.started_at_ms)),
    ]
    if drill.HasField("took_ms"):
        facts.append(("Took", age(drill.took_ms)))
    facts += [
        (f"First new record, {leg.origin} to {leg.to}", f"after {age(optional(leg, 'rto_ms'))}")
        for leg in drill.legs
    ]
    for heading, name in (
        ("Records produced", "produced_records"),
        ("Lost", "lost_records"),
        ("Delivered again", "repeated_records"),
    ):
        if (count := optional(drill, name)) is not None:
            facts.append((heading, f"{count:,}"))
    if drill.proof:
        facts.append(("Verified afterwards", f"records came {drill.proof}"))
    if drill.left:
        facts.append(("Left", drill.left))
    if drill.actor:
        facts.append(("By", drill.actor))
    return facts
