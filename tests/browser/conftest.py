"""A stack with consoles, a group that was drilled, and a browser: what all pages are looked at with."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from lab.stack.control import StackClient
from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack
from tests.support import Stack
from tests.worlds.browsing import Place, chromium


def _needs_the_stack(item: pytest.Item) -> bool:
    return "place" in getattr(item, "fixturenames", ())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Play what needs no stack while one starts (`coming`)."""
    items.sort(key=_needs_the_stack)


@pytest.fixture(scope="session", autouse=True)
def coming(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Future[Place]]:
    """The stack of the tests that need it, in which a group is moved there and back; it starts in a thread of its own."""
    folders = tmp_path_factory.mktemp("stack"), tmp_path_factory.mktemp("drill")
    with ThreadPoolExecutor(1, "stack") as thread:
        opened, place = ExitStack(), Future[Place]()
        if any(map(_needs_the_stack, request.session.items)):
            place = thread.submit(_drilled, opened, *folders)
        yield place
        thread.submit(opened.close).result()


def _drilled(opened: ExitStack, folder: Path, drill_folder: Path) -> Place:
    """A whole stack with consoles; PARALLAX_TEST_STACK may name the folder of one that runs already."""
    running = os.environ.get("PARALLAX_TEST_STACK")
    stack: Stack = (
        StackClient(Path(running))
        if running
        else opened.enter_context(LocalStack(StackSpec(consoles=True), folder))
    )
    place = Place(stack)
    told = place.parallax("drill", "--from", "a", "--to", "b", "--directory", str(drill_folder), "--json")
    assert json.loads(told)["ending"] == "passed"
    return place


@pytest.fixture(scope="session")
def stack(coming: Future[Place]) -> Stack:
    """The stack, once it is there; by this name tests are known to need one."""
    return coming.result().stack


@pytest.fixture(scope="session")
def place(coming: Future[Place], stack: Stack) -> Place:
    """The same, with what people do before it."""
    found = coming.result()
    assert found.stack is stack
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One for all tests; each has a window of its own."""
    with chromium() as made:
        yield made
