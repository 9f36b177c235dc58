"""The page that explains one partition's answer: the picture, the same as a table, what is said of it."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nsmallest

from console.listing import Cell, Listing, columns, link
from console.reads import Reads
from parallax.client.client import at_cluster, at_region
from parallax.domain.ids import names_a_cluster
from parallax.picture.ask import ask_picture
from parallax.picture.model import Lane, Picture, Piece, PieceState, range_from
from parallax.picture.svg import FOUND_BY
from parallax.picture.table import rows
from parallax.v1 import offsets_pb2 as pb

MOST_ROWS = 50
"""Of the table on the page; the files have all."""
_COLUMNS = columns(
    "source Source | state State | >records Records | >source_start Source from | >source_end to"
    " | >origin_start Origin from | >origin_end to | >target_start Destination from | >target_end to"
)
_TONES = {
    PieceState.SKIPPED.value: "warn",
    PieceState.PENDING.value: "warn",
    PieceState.UNKNOWN.value: "dim",
    PieceState.CONSUMED.value: "dim",
}


@dataclass(frozen=True, slots=True)
class PictureQuestion:
    """What is asked, as the URL has it.

    Attributes:
        group: the group.
        topic: the topic.
        partition: the partition.
        to: where the group goes: a region or a cluster.
        origin: where it comes from; empty: the only other aggregate cluster.
        window: offsets to show at the destination, ``START:END``; empty: what matters.
        next_offset: a position to go by instead of the group's own.
    """

    group: str
    topic: str
    partition: int
    to: str
    origin: str = ""
    window: str = ""
    next_offset: int | None = None

    def address(self, form: str = "", *, window: str | None = None) -> str:
        """The page's URL, or that of the picture in another form (``svg``, ``csv``, ``json``)."""
        return link(
            "/explain" + (f".{form}" if form else ""),
            group=self.group,
            topic=self.topic,
            partition=str(self.partition),
            to=self.to,
            from_=self.origin,
            range=self.window if window is None else window,
            next_offset="" if self.next_offset is None else str(self.next_offset),
        )


def place(name: str) -> pb.Place:
    """A region's aggregate cluster, or a cluster by its own name."""
    return at_cluster(name) if names_a_cluster(name) else at_region(name)


def ask(reads: Reads, question: PictureQuestion) -> Picture:
    """The picture of the answer.

    Raises:
        ParallaxError: as `OffsetClient.get_failover_offset` says; `InvalidNameError` for a range that is none.
    """
    wanted = range_from(question.window) if question.window else None
    answer = reads.get_failover_offset(
        question.group,
        question.topic,
        question.partition,
        to=place(question.to),
        origin=place(question.origin) if question.origin else None,
        next_offset=question.next_offset,
        nearest_checkpoint=True,
    )
    return ask_picture(reads, answer, wanted)


def table(picture: Picture) -> Listing:
    """The picture as a list: of more rows than a page has those next to where the group resumes."""
    found = list(rows(picture))
    cut = len(found) - MOST_ROWS
    if cut > 0:
        pieces = [piece for lane in picture.lanes for piece in lane.pieces]
        near = nsmallest(MOST_ROWS, range(len(found)), key=lambda number: _distance(picture, pieces[number]))
        found = [found[number] for number in sorted(near)]
    return Listing(
        columns=_COLUMNS,
        rows=tuple(
            tuple(
                Cell(value, tone=_TONES.get(str(value), "") if number == 1 else "")
                for number, value in enumerate(row)
            )
            for row in found
        ),
        empty="The index has no run in this range.",
        path="/explain",
        notes=(f"Those next to the resume offset; {cut:,} more rows are in the files.",) if cut > 0 else (),
    )


def _distance(picture: Picture, piece: Piece) -> int:
    """From where the group resumes or, of what is at the origin alone, from where it stands there."""
    if piece.state is PieceState.PENDING:
        return 0
    if piece.target is not None:
        return abs(piece.target - picture.resume)
    return abs((piece.origin or 0) - (picture.next_offset or 0))


def sources(picture: Picture) -> Listing:
    """What the answer says of each source."""
    return Listing(
        columns=columns(
            "source Source | >consumed Consumed below | >position Position | via Found by | >pending Pending | lost Lost"
        ),
        rows=tuple(_source(lane) for lane in picture.lanes),
        empty="The answer has no source.",
    )


def _source(lane: Lane) -> tuple[Cell, ...]:
    return (
        Cell(lane.region, note="decides the resume offset" if lane.decides else ""),
        Cell(lane.consumed_to),
        Cell(lane.position, text=None if lane.position is not None else "holds nothing back"),
        Cell(lane.via, text=FOUND_BY.get(lane.via)),
        Cell(lane.pending.width if lane.pending else 0, tone="warn" if lane.pending else ""),
        Cell(", ".join(map(str, lane.lost)), tone="bad" if lane.lost else ""),
    )


def ways(picture: Picture, question: PictureQuestion) -> tuple[tuple[str, str], ...]:
    """Other ranges to look at: words and URLs."""
    window = picture.target.window
    half, start = window.width // 2, max(0, window.start)
    middle = min(max(picture.resume, start), window.end)
    narrow = max(10, window.width // 4)
    moves = (
        ("\u2190 earlier", max(0, start - half), max(0, start - half) + window.width),
        ("later \u2192", start + half, start + half + window.width),
        ("closer", max(0, middle - narrow), middle + narrow),
        ("wider", max(0, start - window.width // 2), window.end + window.width // 2),
    )
    return (
        *((words, question.address(window=f"{first}:{last}")) for words, first, last in moves),
        ("what matters", question.address(window="")),
    )
