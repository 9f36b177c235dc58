"""A group: where it is on every cluster, where it would resume on each other one, and who decided what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from markupsafe import Markup

from console.listing import Cell, Listing, age, columns, drawn_history, link, moment
from console.reads import Reads
from parallax.client.client import at_cluster
from parallax.errors import NotFoundError, ParallaxError, UnavailableError, UnknownGroupError
from parallax.picture.text import name_of
from parallax.v1 import offsets_pb2 as pb
from parallax.v1 import primaries_pb2

MOST_ROWS, FEWEST_ROWS = 300, 10
"""Partitions of the whole page, shared out among its sections; and of a section in any case."""
T = TypeVar("T")
MODES = {primaries_pb2.ACTIVE_PASSIVE: "active/passive", primaries_pb2.ACTIVE_ACTIVE: "active/active"}
"""How a group is consumed, as people read it."""
_GRAVE = pb.EARLIEST_FALLBACK
"""Outcomes from here on are those that an operator has to look at."""


@dataclass(frozen=True, slots=True)
class GroupSection:
    """A part of a page: a list under a heading, or why there is none; above it, it may be, a picture."""

    heading: str
    listing: Listing | None = None
    problem: str = ""
    drawing: Markup | None = None

    def to_document(self) -> dict[str, Any]:
        """For programs; without rows where there is no list."""
        rows = {"rows": None} if self.listing is None else self.listing.to_document()
        return {"heading": self.heading, "problem": self.problem, **rows}


def section_named(sections: Iterable[GroupSection], heading: str) -> Listing:
    """The list under a heading.

    Raises:
        NotFoundError: there is none.
        UnavailableError: it can't be had.
    """
    found = next((section for section in sections if section.heading == heading), None)
    if found is None:
        raise NotFoundError(f"the page has no list {heading!r}")
    if found.listing is None:
        raise UnavailableError(f"{heading}: {found.problem}")
    return found.listing


def outcome_cell(outcome: int, notes: tuple[int, ...] = (), explanation: str = "") -> Cell:
    """An outcome by its gravity, with the others; a dash where nobody says one."""
    if outcome == pb.OUTCOME_UNSPECIFIED:
        return Cell(None, note=explanation)
    word = name_of(pb.Outcome.Name, outcome)
    others = [name_of(pb.Outcome.Name, note) for note in sorted(notes, reverse=True) if note != outcome]
    tone = "bad" if outcome >= _GRAVE else "good" if outcome == pb.OK else "warn"
    return Cell(word, text=" + ".join([word, *others]), tone=tone, note=explanation)


def optional(message: object, field: str) -> int | None:
    """A field's number; None where it is absent."""
    return getattr(message, field) if message.HasField(field) else None  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class GroupView:
    """What is known of a group.

    Attributes:
        name: its name.
        decision: what was decided last, in a sentence.
        grave: whether somebody has to decide.
        sections: its positions on each cluster, then where it would resume for each move that it can make.
    """

    name: str
    decision: str
    grave: bool
    sections: tuple[GroupSection, ...]


def look(reads: Reads, group: str, now_ms: int) -> GroupView:
    """What is known of a group.

    A cluster or an answer that can't be had leaves its own section without a list, with the reason; the others stand.

    Raises:
        ParallaxError: nothing of the group can be told.
    """
    found = reads.get_group_positions(group)
    clusters = [item.cluster for item in found.clusters]
    at = [
        item.cluster
        for item in found.clusters
        if any(position.HasField("next_offset") for position in item.positions)
    ]
    moves = [(origin, target) for origin in at for target in clusters if target != origin]
    most = max(FEWEST_ROWS, MOST_ROWS // max(1, len(clusters) + len(moves)))
    sections = [_positions(item, number, now_ms, most) for number, item in enumerate(found.clusters)]
    sections += [_answers(reads, group, origin, target, most) for origin, target in moves]
    try:
        primary = reads.get_primary(group)
    except ParallaxError as error:
        unknown = f"What was decided is not known: {error}"
        return GroupView(group, unknown, grave=True, sections=tuple(sections))
    return GroupView(
        group, decision_text(primary, now_ms), primary.dual_active or bool(primary.problem), tuple(sections)
    )


def _positions(
    found: pb.GetGroupPositionsResponse.ClusterPositions, number: int, now_ms: int, most: int
) -> GroupSection:
    heading = f"At {found.cluster}"
    shown, notes = _first(found.positions, found.positions, most)
    drawing = drawn_history(
        [optional(sample, "lag_records") for sample in found.lag_history],
        f"Lag at {found.cluster}, as far as it was looked at",
        f"lag-{number}",
    )
    if found.HasField("lag_verdict") and found.lag_verdict.state != pb.LAG_STATE_UNKNOWN:
        notes = (_verdict(found.lag_verdict), *notes)
    listing = Listing(
        columns=columns(
            "topic Topic | >partition Partition | >next_offset Next offset | >lag_offsets Lag | >high_watermark Log end"
            " | >published_offset Published | published_outcome Outcome | =published_at Published at"
        ),
        rows=tuple(_position(item, now_ms) for item in shown),
        empty="The group has no position here, and nothing was published for it.",
        notes=notes,
    )
    return GroupSection(heading, listing, found.failure if found.HasField("failure") else "", drawing)


def _verdict(found: pb.LagVerdict) -> str:
    """What the lag says, in a sentence."""
    word = name_of(pb.LagState.Name, found.state).removeprefix("LAG_")
    if found.state == pb.LAG_OK:
        return f"By its lag: {word}"
    others = f", and {found.partitions_not_ok - 1} more not OK" if found.partitions_not_ok > 1 else ""
    return f"By its lag: {word} ({found.topic}-{found.partition}, {found.lag_offsets} behind{others})"


def _position(item: pb.GroupPosition, now_ms: int) -> tuple[Cell, ...]:
    seen = optional(item, "observed_at_ms")
    published = optional(item, "published_at_ms")
    return (
        Cell(item.topic, note=item.problem),
        Cell(item.partition, text=str(item.partition)),
        Cell(
            optional(item, "next_offset"),
            note="" if seen is None else f"seen {age(max(0, now_ms - seen))} ago",
            tone="" if seen is None else "warn",
        ),
        Cell(optional(item, "lag_offsets")),
        Cell(optional(item, "high_watermark")),
        Cell(optional(item, "published_offset")),
        outcome_cell(item.published_outcome) if item.HasField("published_outcome") else Cell(None),
        Cell(
            published,
            text=moment(published),
            note="" if published is None else f"{age(max(0, now_ms - published))} ago",
        ),
    )


def _answers(reads: Reads, group: str, origin: str, target: str, most: int) -> GroupSection:
    heading = f"From {origin} to {target}"
    try:
        answer = reads.get_group_failover_offsets(group, to=at_cluster(target), origin=at_cluster(origin))
    except UnknownGroupError as error:
        return GroupSection(heading, problem=str(error))
    except ParallaxError as error:
        return GroupSection(heading, problem=f"{error.code}: {error}")
    shown, notes = _first(_by_gravity(answer), answer.offsets, most)
    return GroupSection(
        heading,
        Listing(
            columns=columns(
                "topic Topic | >partition Partition | >next_offset Next offset | >resume_offset Resume | outcome Outcome"
                " | >skip_records To skip | >pending Pending | >redelivery Read again | picture Picture"
            ),
            rows=tuple(_answer(item, origin, target) for item in shown),
            empty="The group has no position to move.",
            notes=notes,
        ),
    )


def _first(items: Iterable[T], whole: Sized, most: int) -> tuple[list[T], tuple[str, ...]]:
    """Those that are shown, and what to say of the others."""
    more = len(whole) - most
    notes = (f"{more:,} more partitions: parallax offsets GROUP has all.",) if more > 0 else ()
    return list(islice(items, most)), notes


def _by_gravity(answer: pb.GetGroupFailoverOffsetsResponse) -> Iterator[pb.FailoverOffset]:
    yield from sorted(answer.offsets, key=lambda item: (-item.outcome, item.topic, item.partition))


def _answer(item: pb.FailoverOffset, origin: str, target: str) -> tuple[Cell, ...]:
    side = getattr(item, "from")
    picture = link(
        "/explain", group=item.group, topic=item.topic, partition=str(item.partition), to=target, from_=origin
    )
    return (
        Cell(item.topic),
        Cell(item.partition, text=str(item.partition)),
        Cell(optional(side, "next_offset")),
        Cell(item.resume_offset),
        outcome_cell(item.outcome, tuple(item.notes), item.explanation if item.outcome != pb.OK else ""),
        Cell(sum(gap.end - gap.start for gap in item.skip_ranges)),
        Cell(item.pending_records, tone="warn" if item.pending_records else ""),
        Cell(optional(item, "redelivery_records")),
        Cell(picture, text="why here", link=picture),
    )


def decision_text(primary: primaries_pb2.Primary, now_ms: int) -> str:
    """What was decided last, in a sentence."""
    if primary.problem:
        return f"What was decided can't be read: {primary.problem}"
    if not primary.HasField("decision"):
        return "Nothing was ever decided: the group's offsets follow where it makes progress."
    made = primary.decision
    where = made.cluster if made.HasField("cluster") else f"region {made.region}"
    state = "is primary in" if made.stage == primaries_pb2.SETTLED else "is moving to"
    words = [
        f"It {state} {where}, decided {age(max(0, now_ms - made.decided_at_ms))} ago in {made.decided_in} "
        f"(fencing number {made.fencing_number})" + (f": {made.reason}" if made.reason else "") + "."
    ]
    if made.disaster:
        words.append("It was decided without the other regions.")
    if primary.dual_active:
        words.append(
            "Regions decided differently without seeing each other: nothing is published until somebody decides."
        )
    return " ".join(words)
