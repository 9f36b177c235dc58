"""Asks an offset service for what a picture needs besides the answer: the rows around it, a bounded number."""

from __future__ import annotations

from collections.abc import Mapping
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
    picture = _asked(client, answer, wanted)
    if wanted is None:
        for _ in range(WIDENINGS):
            wider = _wider(picture)
            if wider is None:
                break
            picture = _asked(client, answer, wider)
    return picture


def _asked(client: ListsRuns, answer: pb.FailoverOffset, wanted: Span | None) -> Picture:
    origin_window, target_window = windows(answer, wanted)
    return picture_of(
        answer,
        _rows(client, answer, getattr(answer, "from"), origin_window),
        _rows(client, answer, answer.to, target_window),
        wanted,
    )


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


def _rows(
    client: ListsRuns, answer: pb.FailoverOffset, side: pb.ClusterPosition, window: Span
) -> Mapping[str, SourceRows]:
    target = region_of(ClusterName(side.cluster))
    return {
        part.region: _rows_of(client, str(Route(RegionName(part.region), target)), answer, side, window)
        for part in answer.sources
    }


def _rows_of(
    client: ListsRuns, route: str, answer: pb.FailoverOffset, side: pb.ClusterPosition, window: Span
) -> SourceRows:
    runs: dict[
        tuple[str, int, int], pb.Run
    ] = {}  # one that lies over the end of a page is in the next one, too
    lost: dict[Span, None] = {}
    # The window may begin inside a run, whose row lies before it; bands that lead out of the window need some as well.
    start: int | None = max(0, window.start - window.width // 4)
    for _ in range(PAGES):
        if start is None or start >= window.end:
            return _found(runs, lost)
        try:
            page = client.list_runs(route, answer.topic, answer.partition, start=start, limit=ROWS_A_PAGE)
        except (UnknownRouteError, UnknownTopicError, UnknownPartitionError):
            return _found(runs, lost)
        for rows in page.lineages:
            lineage = Lineage.parse(rows.lineage)
            if side.topic_id in ("", lineage.target_topic_id):
                runs |= {
                    (lineage.source_topic_id, run.source_start, run.target_start): run
                    for run in rows.runs
                    if run.count_records
                }
                lost |= {Span(gap.start, gap.end): None for gap in rows.lost}
        start = page.continue_at if page.HasField("continue_at") else None
    return _found(runs, lost, start)


def _found(
    runs: Mapping[tuple[str, int, int], pb.Run], lost: Mapping[Span, None], cut_at: int | None = None
) -> SourceRows:
    return SourceRows(tuple((key[0], run) for key, run in runs.items()), tuple(lost), cut_at)
