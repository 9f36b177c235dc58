"""A picture as a table: a row for each piece, for those who read numbers, and for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

from parallax.picture.model import Picture, PieceState, Span

COLUMNS = (
    "source",
    "state",
    "records",
    "source_start",
    "source_end",
    "origin_start",
    "origin_end",
    "target_start",
    "target_end",
)
"""``start`` is the offset of the first record, ``end`` the next offset after the last; absent: not there."""


def rows(
    picture: Picture,
) -> Iterator[tuple[str, str, int, int, int, int | None, int | None, int | None, int | None]]:
    """What is drawn, source by source, as `COLUMNS` say; what is pending has no place at the destination yet."""
    for lane in picture.lanes:
        for piece in lane.pieces:
            width = piece.source.width
            target = None if piece.state is PieceState.PENDING else piece.target
            yield (
                lane.region,
                piece.state.value,
                width,
                piece.source.start,
                piece.source.end,
                piece.origin,
                _end(piece.origin, width),
                target,
                _end(target, width),
            )


def to_csv(picture: Picture) -> str:
    """The rows with a heading; absent is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows(picture))
    return text.getvalue()


def to_document(picture: Picture) -> dict[str, Any]:
    """The picture for programs: what is drawn, between which offsets, and what is left out; absent is None."""
    return {
        "group": picture.group,
        "topic": picture.topic,
        "partition": picture.partition,
        "outcome": picture.outcome,
        "notes": list(picture.notes),
        "explanation": picture.explanation,
        "next_offset": picture.next_offset,
        "resume_offset": picture.resume,
        "complete_to": picture.complete_to,
        "nearest_checkpoint_offset": picture.nearest_checkpoint,
        **{
            side: {
                "cluster": view.cluster,
                "window": _span(view.window),
                "low_watermark": view.low,
                "high_watermark": view.high,
            }
            for side, view in (("from", picture.origin), ("to", picture.target))
        },
        "skip_ranges": _spans(picture.skips),
        "sources": [
            {
                "region": lane.region,
                "consumed_next_offset": lane.consumed_to,
                "position": lane.position,
                "via": lane.via,
                "pending": None if lane.pending is None else _span(lane.pending),
                "lost": _spans(lane.lost),
            }
            for lane in picture.lanes
        ],
        "runs": [dict(zip(COLUMNS, row, strict=True)) for row in rows(picture)],
        "left_out": list(picture.left_out),
    }


def _end(start: int | None, width: int) -> int | None:
    return None if start is None else start + width


def _span(span: Span) -> dict[str, int]:
    return {"start": span.start, "end": span.end}


def _spans(spans: Iterable[Span]) -> list[dict[str, int]]:
    return [_span(span) for span in spans]
