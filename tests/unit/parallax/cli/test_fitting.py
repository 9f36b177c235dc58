"""Tables on terminals of every width: nothing is cut off, no line is too long, and where there is room they have lines."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from parallax.cli.output import table

HEADINGS = "group | topic | >partition | >next offset | outcome | ~what to do"
ROWS = [
    (
        "billing",
        "trips",
        "0",
        "1,430",
        "EARLIEST_FALLBACK",
        "find out why rows are missing, and plan it again",
    ),
    ("payments-eu", "payments.transactions", "11", "18,446,744", "OK", ""),
]
_SENTENCE = 4
words = st.text(st.characters(codec="ascii", min_codepoint=33, max_codepoint=126), max_size=24)


def drawn(width: int, headings: str, rows: list[tuple[str, ...]], title: str | None = None) -> list[str]:
    out = io.StringIO()
    made = table(headings, title=title)
    for row in rows:
        made.add_row(*row)
    Console(file=out, width=width, color_system=None).print(made)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def together(lines: list[str]) -> str:
    """All that is read, without lines, places and folds."""
    return "".join(
        letter for letter in "".join(lines) if letter.isprintable() and letter not in " ┃│━─┏┓┡┩└┘┳╇┴┼┠┨┷┯"
    )


@pytest.mark.parametrize("width", [40, 60, 79, 80, 100, 120, 160])
def test_nothing_is_cut_off(width: int) -> None:
    lines = drawn(width, HEADINGS, ROWS, title="billing: a to b")
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    for text in ("billing: a to b", "EARLIEST_FALLBACK", "payments.transactions", "18,446,744"):
        assert any(text in line for line in lines), text
    assert "partition" in " ".join(lines)


@pytest.mark.parametrize("width", [160, 24, 8])
def test_texts_are_no_markup(width: int) -> None:
    names = ["[prod] billing", "x[/]y", "[red]z", "a\\"]
    flat = together(drawn(width, "~group", [(name,) for name in names], title="[b] of [/x]"))
    for name in (*names, "[b] of [/x]"):
        assert name.replace(" ", "") in flat


def test_lines_go_first_then_columns() -> None:
    assert any("┃" in line for line in drawn(160, HEADINGS, ROWS))
    without_lines = drawn(110, HEADINGS, ROWS)
    assert not any("┃" in line for line in without_lines)
    assert any("billing" in line and "EARLIEST_FALLBACK" in line for line in without_lines)
    below = drawn(60, HEADINGS, ROWS)
    assert below[0].split() == ["group", "billing"]
    assert below.count("") == len(ROWS) - 1


def test_headings_are_folded_before_cells_are_put_below_each_other() -> None:
    lines = drawn(40, ">records that are pending | >read again by plain clients", [("1", "22")])
    assert any(line.split() == ["1", "22"] for line in lines)


@settings(deadline=None, max_examples=60)
@given(st.integers(30, 160), st.lists(st.tuples(*[words] * 7), min_size=1, max_size=4))
def test_whatever_stands_in_it_is_shown(width: int, rows: list[tuple[str, ...]]) -> None:
    lines = drawn(width, "a | long heading | >number | c | ~sentence | another one | e", rows)
    assert all(len(line) <= width for line in lines)
    flat = together(lines)
    below_each_other = lines[0].startswith("a ") and "long" not in lines[0]
    for row in rows:
        for number, cell in enumerate(row):
            if below_each_other or number != _SENTENCE:  # a folded one is read in several lines
                assert cell in flat
