"""The picture as a table: nothing of it is only in the drawing."""

from __future__ import annotations

import csv
import io
import json

from parallax.picture.ask import ask_picture
from parallax.picture.model import PieceState
from parallax.picture.table import COLUMNS, to_csv, to_document
from tests.worlds.pictured import answer_of, busy_world


def test_the_table_has_a_row_for_each_piece() -> None:
    world = busy_world(3)
    answer, runs = answer_of(world, 1_430)
    picture = ask_picture(runs, answer)
    pieces = [(lane.region, piece) for lane in picture.lanes for piece in lane.pieces]

    lines = list(csv.reader(io.StringIO(to_csv(picture))))

    assert tuple(lines[0]) == COLUMNS
    assert len(lines) == len(pieces) + 1
    for line, (region, piece) in zip(lines[1:], pieces, strict=True):
        row = dict(zip(COLUMNS, line, strict=True))
        assert (row["source"], row["state"]) == (region, piece.state.value)
        assert int(row["source_end"]) - int(row["source_start"]) == int(row["records"])
        assert row["origin_start"] == ("" if piece.origin is None else str(piece.origin))
        known = piece.target is not None and piece.state is not PieceState.PENDING
        assert row["target_start"] == (str(piece.target) if known else "")
        assert bool(row["target_end"]) == known


def test_programs_get_the_same() -> None:
    world = busy_world(3)
    answer, runs = answer_of(world, 1_430)
    picture = ask_picture(runs, answer)
    told = json.loads(json.dumps(to_document(picture)))
    assert told["resume_offset"] == answer.resume_offset
    assert told["complete_to"] == answer.complete_to
    assert told["from"]["window"] == {
        "start": picture.origin.window.start,
        "end": picture.origin.window.end,
    }
    assert [source["region"] for source in told["sources"]] == ["a", "b"]
    assert len(told["runs"]) == sum(len(lane.pieces) for lane in picture.lanes)
    assert told["skip_ranges"] == [{"start": item.start, "end": item.end} for item in answer.skip_ranges]
