"""The bench's page and the Makefile name what can be run."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.bench.plan import FULL

ROOT = Path(__file__).parents[4]


def test_a_row_of_the_full_set_is_a_word_that_make_takes() -> None:
    assert all(name.replace("-", "").isalnum() and name == name.lower() for name in FULL)


@pytest.mark.parametrize("verb", ["bench", "bench-full"])
def test_make_has_the_verbs_that_the_page_names(verb: str) -> None:
    assert f"\n{verb}: setup ##" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"make {verb} " in (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
