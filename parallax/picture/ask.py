"""Asks an offset service for what a picture needs besides the answer: the rows around it, a bounded number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from parallax.domain.ids import ClusterName, Lineage, RegionName, Route, region_of
from parallax.errors import UnknownPartitionError, UnknownRouteError, UnknownTopicError
from parallax.picture.model import WIDEST, Picture, PieceState, SourceRows, Span, picture_of, windows
from parallax.v1 import offsets_pb2 as pb

ROWS_A_PAGE = 500
PAGES = 4
"""For each source and side. More runs than this are no picture any more; what is left out is said."""
WIDENINGS = 3
"""How often the window is made twice as wide for records that lie far apart on the two sides."""


class ListsRuns(Protocol):
    """What is needed of the offset service's client."""

    def list_runs(
        self, route: str, topic: str, partition: int, *, start: int = 0, limit: int = 0
    ) -> pb.ListRunsResponse:
        """Rows of a partition of a route from a target offset on."""
        ...


def ask_picture(client: ListsRuns, answer: pb.FailoverOffset, wanted: Span | None = None) -> Picture:
    """The picture of an answer, with rows that are read now.

    Args:
        client: where the answer comes from.
        answer: the answer.
        wanted: offsets to show at the destination; None: what matters.

    Raises:
        ParallaxError: as `OffsetClient.list_runs` says; a route or topic that is not there has no rows.
    """
    rows = _Rows(client, answer)
    picture = rows.picture(wanted)
    if wanted is None:
        for _ in range(WIDENINGS):
            wider = _wider(picture)
            if wider is None:
                break
            picture = rows.picture(wider)
    return picture


def _wider(picture: Picture) -> Span | None:
    """A window that reaches back further, if one shows where more of what was consumed lies at the origin.

    What was consumed there and lies above the resume offset here was written earlier there.
    """
    window, begins = picture.target.window, picture.origin.window.start
    if picture.next_offset is None or begins <= (picture.origin.low or 0) or window.width * 2 > WIDEST:
        return None
    unseen = any(
        piece.state is PieceState.SKIPPED and (piece.origin is None or piece.origin < begins)
        for lane in picture.lanes
        for piece in lane.pieces
    )
    seen = {
        lane.region: sum(
            piece.source.width
            for piece in lane.pieces
            if piece.state is PieceState.PENDING and piece.origin is not None and piece.origin >= begins
        )
        for lane in picture.lanes
    }
    # Pending source offsets may hold no records: more than half of them tell enough.
    unseen = unseen or any(
        lane.pending is not None and seen[lane.region] * 2 < lane.pending.width for lane in picture.lanes
    )
    return Span(window.start - window.width, window.end) if unseen else None


@dataclass(slots=True)
class _Read:
    """What was read of one source on one side.

    Attributes:
        start: rows from this offset on.
        runs: by topic id, first source offset and first offset: one that lies over the end of a page is in the next one, too.
        lost: lost ranges, in order.
        pages: how many were read.
        cut_at: rows from here on were not, since there are too many; None: all that were asked for were.
    """

    start: int
    runs: dict[tuple[str, int, int], pb.Run] = field(default_factory=dict)
    lost: dict[Span, None] = field(default_factory=dict)
    pages: int = 0
    cut_at: int | None = None

    def below(self, other: _Read) -> _Read:
        """Both, of which the other one goes on where this one ends."""
        return _Read(
            self.start,
            self.runs | other.runs,
            self.lost | other.lost,
            self.pages + other.pages,
            other.cut_at,
        )


class _Rows:
    """The rows around an answer. What a wider window needs besides is read once for all windows that may follow."""

    def __init__(self, client: ListsRuns, answer: pb.FailoverOffset) -> None:
        self._client = client
        self._answer = answer
        self._read: dict[Route, _Read] = {}

    def picture(self, wanted: Span | None) -> Picture:
        """The picture of a range."""
        origin_window, target_window = windows(self._answer, wanted)
        return picture_of(
            self._answer,
            self._of(getattr(self._answer, "from"), origin_window),
            self._of(self._answer.to, target_window),
            wanted,
        )

    def _of(self, side: pb.ClusterPosition, window: Span) -> Mapping[str, SourceRows]:
        target = region_of(ClusterName(side.cluster))
        return {
            part.region: self._within(Route(RegionName(part.region), target), side, window)
            for part in self._answer.sources
        }

    def _within(self, route: Route, side: pb.ClusterPosition, window: Span) -> SourceRows:
        # The window may begin inside a run, whose row lies before it; bands that lead out of the window need some as well.
        start = _from_which(window)
        read = self._read.get(route)
        if read is None:
            read = self._from(route, side, start, window.end, PAGES)
        elif start < read.start:
            read = self._down_to(read, route, side, window)
        self._read[route] = read
        shown = [
            (key[0], run)
            for key, run in read.runs.items()
            if read.start == start or run.target_start + run.count_records > start
        ]
        return SourceRows(tuple(shown), tuple(read.lost), read.cut_at)

    def _down_to(self, read: _Read, route: Route, side: pb.ClusterPosition, window: Span) -> _Read:
        width = min(window.width << (WIDENINGS - 1), WIDEST)
        widest = Span(window.end - width, window.end)
        for begin in (widest, window):
            more = self._from(route, side, _from_which(begin), read.start, PAGES - read.pages)
            if more.cut_at is None:
                return more.below(read)
        return self._from(route, side, _from_which(window), window.end, PAGES)

    def _from(self, route: Route, side: pb.ClusterPosition, start: int, end: int, pages: int) -> _Read:
        answer, found, place = self._answer, _Read(start), start
        if start >= end:
            return found
        for _ in range(pages):
            try:
                page = self._client.list_runs(
                    str(route), answer.topic, answer.partition, start=place, limit=ROWS_A_PAGE
                )
            except (UnknownRouteError, UnknownTopicError, UnknownPartitionError):
                return found
            found.pages += 1
            for rows in page.lineages:
                lineage = Lineage.parse(rows.lineage)
                if side.topic_id in ("", lineage.target_topic_id):
                    found.runs |= {
                        (lineage.source_topic_id, run.source_start, run.target_start): run
                        for run in rows.runs
                        if run.count_records
                    }
                    found.lost |= {Span(gap.start, gap.end): None for gap in rows.lost}
            if not page.HasField("continue_at") or page.continue_at >= end:
                return found
            place = page.continue_at
        found.cut_at = place
        return found


def _from_which(window: Span) -> int:
    return max(0, window.start - window.width // 4)
