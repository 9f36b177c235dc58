"""How a number went: the line is where its samples are, and nothing is drawn of what was unknown."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallax.picture.history import Box, chart, line

BOX = Box(10, 20, 100, 40)
samples_of = st.lists(st.none() | st.integers(0, 10**12), max_size=60)


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (pair.split() for pair in path.removeprefix("M").split("L"))]


@given(samples_of)
def test_every_known_sample_has_its_point_and_no_unknown_one_has(samples: list[int | None]) -> None:
    step, greatest = BOX.width / max(1, len(samples) - 1), max((item or 0 for item in samples), default=0)
    drawn = [point for path in line(samples, BOX) for point in points(path)]
    stretches = re.findall("k+", "".join("-" if item is None else "k" for item in samples))
    alone = sum(len(stretch) == 1 for stretch in stretches)
    known = [(number, item) for number, item in enumerate(samples) if item is not None]
    assert len(drawn) == len(known) + alone  # a point alone is drawn as a stroke of two
    assert len(list(line(samples, BOX))) == len(stretches)
    for number, item in known:
        y = BOX.y + BOX.height * (1 - item / max(1, greatest))
        assert any(
            abs(px - BOX.x - number * step) <= step / 2 + 0.1 and abs(py - y) <= 0.1 for px, py in drawn
        )
    assert all(BOX.x - 0.1 <= x <= BOX.x + BOX.width + 0.1 for x, _ in drawn)
    assert all(BOX.y - 0.1 <= y <= BOX.y + BOX.height + 0.1 for _, y in drawn)


@pytest.mark.parametrize(
    ("samples", "told"),
    [
        ([0, 700, 90], "now 90 records, at most 700"),
        ([5, None], "now unknown, at most 5; unknown for 1 of 2 looks"),
        ([0], "now 0 records, at most 0"),
    ],
)
def test_it_says_in_words_what_it_draws(samples: Sequence[int | None], told: str) -> None:
    svg = ET.fromstring(chart(samples, title="<lag> of a->b", unit="records"))  # noqa: S314 - our own text
    names = {item.tag.rpartition("}")[2]: item.text for item in svg if item.tag.endswith(("title", "desc"))}
    assert names == {"title": "<lag> of a->b", "desc": told}
    assert svg.get("role") == "img"
