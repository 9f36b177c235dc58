"""The drawing: whole XML whatever the names are, words for everything, the same text each time, never too long."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from parallax.picture.ask import ask_picture
from parallax.picture.model import Picture, PieceState, Span
from parallax.picture.style import STYLE
from parallax.picture.svg import draw
from tests.worlds.pictured import answer_of, busy_world, example

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "</title><script>alert(1)</script>",
    '" onload="alert(1)',
    "a&b<c>'\"",
    "nul\x00 bell\x07 escape\x1b[31m",
    "\u202egnp.exe",
    "]]>--><!--",
    "x" * 249,
    "名前\U0001f600",
    "line\nbreak\u2028and\ud800half",
]


def pictured(seed: int = 3, **world: int) -> Picture:
    made = busy_world(seed, **world)
    answer, runs = answer_of(made, len(made.records("a")) * 2 // 3)
    return ask_picture(runs, answer)


def words(svg: str) -> str:
    return " ".join(ET.fromstring(svg).itertext())  # noqa: S314 - our own text


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_breaks_out_of_the_text(name: str) -> None:
    picture = pictured()
    lanes = tuple(replace(lane, region=name, via=name) for lane in picture.lanes)
    view = replace(picture.origin, cluster=name)
    svg = draw(
        replace(
            picture,
            group=name,
            topic=name,
            explanation=name,
            outcome=name,
            notes=(name,),
            lanes=lanes,
            origin=view,
            target=view,
            left_out=(name,),
        )
    )
    plain = draw(picture)
    svg.encode()  # what can't be written is shown by its number
    root = ET.fromstring(svg)  # noqa: S314 - our own text
    kinds = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert kinds == {element.tag.removeprefix(SVG) for element in ET.fromstring(plain).iter()}  # noqa: S314
    assert not any(key.startswith("on") for element in root.iter() for key in element.attrib)
    assert not re.search("[\x00-\x09\x0b-\x1f\u2028\u202e]", svg)


def test_it_says_in_words_what_it_shows() -> None:
    picture = pictured()
    root = ET.fromstring(draw(picture))  # noqa: S314 - our own text
    assert root.get("role") == "img"
    named = (root.get("aria-labelledby") or "").split()
    told = {element.get("id"): element.text or "" for element in root if element.tag != f"{SVG}rect"}
    title, description = (told[name] for name in named)
    assert title == f"Where group billing resumes on trips-0: at {picture.resume:,} in aggregate-b"
    assert picture.explanation in description
    for lane in picture.lanes:
        assert f"Source {lane.region}: consumed below source offset {lane.consumed_to:,}" in description
    assert "next offset 1,430" in description
    assert f"resume {picture.resume:,}" in words(draw(picture))


def test_every_state_has_a_pattern_and_a_word_beside_its_colour() -> None:
    picture = pictured()
    states = {piece.state for lane in picture.lanes for piece in lane.pieces}
    assert {PieceState.CONSUMED, PieceState.SKIPPED, PieceState.NEW, PieceState.PENDING} <= states
    svg = draw(picture)
    for pattern in ("hatch", "cross"):
        assert f'stroke="url(#answer-{pattern})" ' in svg
    assert 'class="coming s0"' in svg
    for state in states:
        assert state.value in svg


def test_the_same_picture_is_the_same_text() -> None:
    assert draw(pictured()) == draw(pictured())
    assert draw(pictured()) != draw(pictured(4))


def test_two_pictures_on_a_page_share_no_id() -> None:
    picture = pictured()
    ids = [set(re.findall(r' id="([^"]+)"', draw(picture, name=name))) for name in ("one", "two")]
    assert ids[0]
    assert not ids[0] & ids[1]
    used = set(re.findall(r"url\(#([^)]+)\)", draw(picture, name="one")))
    assert used <= ids[0]


def test_a_page_with_its_own_style_gets_none_within() -> None:
    """What a page that forbids inline styles and scripts can show."""
    svg = draw(pictured(), styled=False)
    assert "<style" not in svg
    assert "style=" not in svg
    assert "<script" not in svg
    assert STYLE in draw(pictured())
    assert "prefers-color-scheme:dark" in STYLE
    used = {word for found in re.findall(r'class="([^"]+)"', svg) for word in found.split()}
    assert {word for word in used if f".{word}" not in STYLE} <= {"picture"}


def test_thousands_of_runs_are_a_picture_of_bounded_size() -> None:
    picture = pictured(rounds=900)
    pieces = sum(len(lane.pieces) for lane in picture.lanes)
    assert pieces > 1_500
    wide = replace(
        picture,
        origin=replace(picture.origin, window=Span(0, 100_000)),
        target=replace(picture.target, window=Span(0, 100_000)),
    )
    assert len(draw(wide)) < 150_000


def test_sources_that_take_turns_in_every_few_records_are_a_picture_of_bounded_size() -> None:
    """Nothing of it lies near enough to be drawn as one; and the page around it has its own table of 150 KB in all."""
    world = busy_world(3, rounds=1_200, most=3, regions=("a", "b", "c"))
    answer, runs = answer_of(world, len(world.records("a")) * 2 // 3)
    picture = ask_picture(runs, answer)
    assert sum(len(lane.pieces) for lane in picture.lanes) > 1_500
    assert len(draw(picture)) < 90_000


def test_numbers_of_the_scale_are_round_and_few() -> None:
    svg = draw(pictured())
    ticks = [int(text.replace(",", "")) for text in re.findall(r'class="tick"[^>]*>([\d,]+)<', svg)]
    assert 6 <= len(ticks) <= 22
    assert all(tick % 10 == 0 for tick in ticks)


def test_nothing_to_show_is_still_a_picture() -> None:
    picture = pictured()
    bare = replace(
        picture,
        lanes=(),
        skips=(),
        next_offset=None,
        complete_to=None,
        explanation="",
        origin=replace(picture.origin, low=None, high=None, window=Span(0, 1)),
        target=replace(picture.target, low=None, high=None, window=Span(picture.resume, picture.resume + 1)),
    )
    assert "no known position" in words(draw(bare))
    assert "[?, ?)" in words(draw(bare))


def test_the_picture_of_the_page_is_what_is_drawn() -> None:
    """`make pictures` writes it."""
    kept = Path(__file__).parents[4] / "docs" / "pictures" / "answer.svg"
    assert kept.read_text(encoding="utf-8") == example()
