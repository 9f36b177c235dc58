"""The bench keeps the rules of the packages under src, and its page names every row."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from bench.plan import FULL

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "bench").rglob("*.py"))
MAX_LINES = 350


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_modules_are_short_and_say_what_they_are(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MAX_LINES
    assert ast.get_docstring(ast.parse(text))


def test_nothing_that_is_installed_needs_the_bench() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in names if name.partition(".")[0] == "bench"], path


def test_a_row_of_the_full_set_is_a_word_that_make_takes() -> None:
    assert all(name.replace("-", "").isalnum() and name == name.lower() for name in FULL)


@pytest.mark.parametrize("verb", ["bench", "bench-full"])
def test_make_has_the_verbs_that_the_page_names(verb: str) -> None:
    assert f"\n{verb}: setup ##" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"make {verb} " in (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
