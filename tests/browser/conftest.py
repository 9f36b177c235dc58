"""A stack with consoles, a group that was drilled, and a browser: what all pages are looked at with."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from lab.stack.control import StackClient
from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack
from tests.support import Stack
from tests.worlds.browsing import Place, chromium


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A whole stack with consoles; PARALLAX_TEST_STACK may name the folder of one that runs already."""
    if running := os.environ.get("PARALLAX_TEST_STACK"):
        yield StackClient(Path(running))
        return
    with LocalStack(StackSpec(consoles=True), tmp_path_factory.mktemp("stack")) as made:
        yield made


@pytest.fixture(scope="session")
def place(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The stack, in which a group was moved there and back."""
    made = Place(stack)
    folder = tmp_path_factory.mktemp("drill")
    told = made.parallax("drill", "--from", "a", "--to", "b", "--directory", str(folder), "--json")
    assert json.loads(told)["ending"] == "passed"
    return made


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One for all tests; each has a window of its own."""
    with chromium() as made:
        yield made
