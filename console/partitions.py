"""A partition of a route: how far each of its lineages has come, its runs, what was lost, and any offset on the other side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from console.groups import GroupSection
from console.listing import Cell, Listing, age, columns, link, moment
from console.reads import Reads
from parallax.errors import ParallaxError
from parallax.v1 import offsets_pb2 as pb

MOST_ROWS = 100
"""Rows of the mapping on a page."""
_LARGEST = 2**63


@dataclass(frozen=True, slots=True)
class PartitionQuestion:
    """What is asked, as the URL has it.

    Attributes:
        start: rows from this target offset on; empty: from the first one on.
        source: a next offset of the source, to be translated; empty: none.
        target: one of the target; empty: none.
    """

    route: str
    topic: str
    partition: int
    start: str = ""
    source: str = ""
    target: str = ""

    def address(self, start: str) -> str:
        """The page from another target offset on."""
        return self._at("/partition", start=start)

    def file(self, form: str, section: str = "") -> str:
        """The page's lists as a file: ``json``, or ``csv`` of a section."""
        return self._at(f"/partition.{form}", start=self.start, section=section)

    def _at(self, path: str, **more: str) -> str:
        return link(path, route=self.route, topic=self.topic, partition=str(self.partition), **more)


@dataclass(frozen=True, slots=True)
class PartitionView:
    """What is known of a partition.

    Attributes:
        translation: an offset on the other side, in a sentence; ``problem``, why there is none.
        sections: how far it is, what was lost, its rows.
        next_start: from where on there are more rows; empty: there are none.
    """

    question: PartitionQuestion
    translation: str
    problem: str
    sections: tuple[GroupSection, ...]
    next_start: str


def look(reads: Reads, question: PartitionQuestion) -> PartitionView:
    """What is known of a partition; a part that can't be had is named, and the others stand.

    Raises:
        ParallaxError: nothing of it can be told.
    """
    start = _offset(question.start) or 0
    found = reads.list_runs(question.route, question.topic, question.partition, start=start, limit=MOST_ROWS)
    translation, problem = _translated(reads, question)
    lost = [
        (Cell(item.start), Cell(item.end), Cell(item.end - item.start, tone="bad"), Cell(lineage.lineage))
        for lineage in found.lineages
        for item in lineage.lost
    ]
    sections = [_watermarks(reads, question)]
    if lost:
        listing = Listing(
            columns("source_start Source from | source_end to | >records Offsets | lineage Lineage"),
            tuple(lost),
            "",
            notes=("Retention at the source took them before they were copied: no group ever gets them.",),
        )
        sections.append(GroupSection("Lost at the source", listing))
    sections.append(GroupSection("Rows of the mapping", _runs(found, start)))
    more = str(found.continue_at) if found.HasField("continue_at") else ""
    return PartitionView(question, translation, problem, tuple(sections), more)


def _offset(text: str) -> int | None:
    """A number as somebody writes it; None: it is none."""
    bare = text.strip().replace(",", "")
    return int(bare) if bare.isascii() and bare.isdigit() and int(bare) < _LARGEST else None


def _translated(reads: Reads, question: PartitionQuestion) -> tuple[str, str]:
    asked = question.source or question.target
    if not asked:
        return "", ""
    offset = _offset(asked)
    if offset is None:
        return "", "An offset is a whole number from 0 on."
    side = {"source_next_offset": offset} if question.source else {"target_next_offset": offset}
    try:
        answer = reads.translate_offset(question.route, question.topic, question.partition, **side)
    except ParallaxError as error:
        return "", f"[{error.code}] {error}"
    source, target = f"{answer.source_next_offset:,}", f"{answer.target_next_offset:,}"
    ends = (f"source {source}", f"target {target}")
    here, there = ends if question.source else ends[::-1]
    return f"Next offset {here} is {there} ({_VIA.get(answer.via, answer.via)}).", ""


_VIA = {
    "exact": "exactly",
    "after": "behind the last row that lies wholly below it",
    "before": "before the first row that does not lie below it; nothing lies between",
    "log_start": "no row proves anything better than the log's start",
}


def _watermarks(reads: Reads, question: PartitionQuestion) -> GroupSection:
    heading = "How far it is"
    try:
        found = reads.list_watermarks(question.route, question.topic, question.partition)
    except ParallaxError as error:
        return GroupSection(heading, problem=f"{error.code}: {error}")
    rows = tuple(
        (
            Cell(item.lineage),
            Cell(item.source_next_offset),
            Cell(item.target_end),
            Cell(item.last_record_end),
            Cell(
                item.committed_at_ms,
                text=moment(item.committed_at_ms),
                note=f"{age(max(0, item.age_ms))} ago",
            ),
            Cell("ended" if item.closed else "goes on", tone="dim" if item.closed else "good"),
        )
        for item in reversed(found.watermarks)
    )
    return GroupSection(
        heading,
        Listing(
            columns(
                "lineage Lineage | >source_next_offset Copied below | >target_end Target end then"
                " | >last_record_end Last record below | committed_at At | state State"
            ),
            rows,
            "Nothing of it was copied yet.",
        ),
    )


def _runs(found: pb.ListRunsResponse, start: int) -> Listing:
    rows = sorted(
        ((run.target_start, run, lineage.lineage) for lineage in found.lineages for run in lineage.runs),
        key=lambda row: row[0],
    )
    return Listing(
        columns(
            "kind Row | >source_start Source from | >source_end to | >target_start Target from | >target_end to"
            " | >records Records | >leader_epoch Leader epoch | lineage Lineage"
        ),
        tuple(tuple(_run(run, lineage)) for _, run, lineage in rows),
        "There is no row from here on." if start else "The index has no row of it.",
    )


def _run(run: pb.Run, lineage: str) -> Iterator[Cell]:
    count = run.count_records
    yield Cell("run" if count else "watermark", tone="" if count else "dim")
    yield Cell(run.source_start)
    yield Cell(run.source_start + count if count else None)
    yield Cell(run.target_start)
    yield Cell(run.target_start + count if count else None)
    yield Cell(count or None)
    yield Cell(run.source_leader_epoch if run.source_leader_epoch >= 0 else None)
    yield Cell(lineage)
