"""The table beside a picture: where there are more rows than a page has, it shows those that tell why."""

from __future__ import annotations

from console.explaining import MOST_ROWS, sources, table
from parallax.picture.ask import ask_picture
from parallax.picture.model import Picture, PieceState
from parallax.picture.table import rows
from tests.worlds.pictured import answer_of, busy_world


def pictured(rounds: int) -> Picture:
    world = busy_world(3, rounds=rounds)
    answer, runs = answer_of(world, len(world.records("a")) * 2 // 3)
    return ask_picture(runs, answer)


def test_of_many_rows_those_next_to_where_the_group_resumes_are_shown() -> None:
    picture = pictured(rounds=200)
    found = list(rows(picture))
    listing = table(picture)
    shown = [tuple(cell.value for cell in row) for row in listing.rows]
    assert len(found) > len(shown) == MOST_ROWS
    assert listing.notes == (
        f"Those next to the resume offset; {len(found) - MOST_ROWS:,} more rows are in the files.",
    )
    assert shown == [row for row in found if row in shown], "in their order"
    left_out = [row for row in found if row not in shown]
    assert not [row for row in left_out if row[1] == PieceState.PENDING.value]
    # Column 7 is the first offset at the destination.
    nearest_left_out = min(abs(row[7] - picture.resume) for row in left_out if row[7] is not None)
    assert all(abs(row[7] - picture.resume) <= nearest_left_out for row in shown if row[7] is not None)
    assert {row[1] for row in shown} > {PieceState.CONSUMED.value, PieceState.PENDING.value}


def test_few_rows_are_all_shown() -> None:
    picture = pictured(rounds=12)
    listing = table(picture)
    assert [tuple(cell.value for cell in row) for row in listing.rows] == list(rows(picture))
    assert listing.notes == ()


def test_how_a_position_was_found_is_said_in_the_words_of_the_picture() -> None:
    listing = sources(pictured(rounds=12))
    column = [column.name for column in listing.columns].index("via")
    assert {row[column].shown for row in listing.rows} <= {"a run holds it", "behind its last consumed row"}
