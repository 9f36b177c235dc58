"""Fixtures of all tests: the real local stack, started once per run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from lab.stack.artifacts import fetch_jars
from lab.stack.control import StackClient
from lab.stack.java import find_java
from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack
from lab.stack.versions import load_versions
from tests.support import Stack, unique_name

# The same examples everywhere: a failure seen once is seen again, and a mutant dies of one failure, never of a group.
settings.register_profile(
    "fixed", derandomize=True, deadline=None, database=None, max_examples=150, report_multiple_bugs=False
)
settings.load_profile("fixed")

_TESTS = Path(__file__).parent
_STACK_TURN, _OWN_STACK_HEAVY_TURN, _INFRASTRUCTURE_HEAVY_TURN = 1, 2, 3
_OWN_STACK_TURN, _INFRASTRUCTURE_TURN = 4, 5
_TURN = {"stack": _STACK_TURN, "infrastructure": _INFRASTRUCTURE_TURN}
_HEAVY_TURN = {_OWN_STACK_TURN: _OWN_STACK_HEAVY_TURN, _INFRASTRUCTURE_TURN: _INFRASTRUCTURE_HEAVY_TURN}
_HEAVY_TURNS = {_STACK_TURN, *_HEAVY_TURN.values()}
_STACK_FOLDERS = {"contract", "integration", "e2e", "wide", "modes", "browser"}
"""`make test` looks for them in all but the last three, which `make test-wide`, `make modes` and `make test-console` play."""
_PRINTED_LINES = 40
_whole_stacks: list[LocalStack] = []


def _turn(item: pytest.Item) -> int:
    """Tests without a stack come first, then those that share a whole one, then heavy ones, then all others.

    A test that asks for its fixture only when it runs says so in its mark: `stack("infrastructure")`. One that keeps
    the machine busy by itself is marked `heavy`.
    """
    mark = item.get_closest_marker("stack")
    names = (*getattr(item, "fixturenames", ()), *(mark.args if mark else ()))
    turns = [_TURN[name] for name in names if name in _TURN]
    if not turns and mark is None:
        return 0
    turn = min(turns, default=_OWN_STACK_TURN)
    return _HEAVY_TURN.get(turn, turn) if item.get_closest_marker("heavy") else turn


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that uses the stack or a browser, so that `-m "not stack"` needs neither, and take turns.

    A browser keeps an event loop running in its thread, in which no other test could run one of its own.

    Where workers share the tests (`make test`), one of them begins with all that is heavy, which is one lane. The others take
    the rest, file by file, and so does the first when it is done, each with an `infrastructure` of its own.
    First, because pytest-xdist reads the groups in the same hook.
    """
    for item in items:
        if (_TURN.keys() | {"browser"}) & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.stack)
        if turn := _turn(item):
            assert item.path.relative_to(_TESTS).parts[0] in _STACK_FOLDERS, f"{item.nodeid} uses a stack"
            lane = "heavy" if turn in _HEAVY_TURNS else item.path.stem
            item.add_marker(pytest.mark.xdist_group(lane))
    items.sort(key=_turn)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End the shared whole stack with its turn: an idle one takes processor time from the tests that follow."""
    while _whole_stacks and nextitem is not None and _turn(nextitem) != _STACK_TURN:
        _whole_stacks.pop().close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Of what a test printed, keep the end: clients of a killed broker say the same line by the thousand."""
    report = yield
    report.sections = [(name, _end_of(text)) for name, text in report.sections]
    return report


def _end_of(text: str) -> str:
    lines = text.splitlines(keepends=True)
    left_out = len(lines) - _PRINTED_LINES
    return text if left_out <= 0 else "".join([f"[{left_out} lines before]\n", *lines[-_PRINTED_LINES:]])


def pytest_runtestloop(session: pytest.Session) -> None:
    """Fetch Kafka and Cassandra before the first test: a download may take longer than a test's time limit."""
    if session.config.option.collectonly or not any(
        item.get_closest_marker("stack") for item in session.items
    ):
        return
    java, versions, report = find_java(), load_versions(), _reporter(session.config)
    for jars in (versions.kafka, versions.cassandra):
        fetch_jars(jars, java, report=report)


@pytest.fixture(scope="session")
def infrastructure(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Stack]:
    """Brokers of two regions and Cassandra, without services: tests bring their own.

    PARALLAX_TEST_INFRASTRUCTURE may name the folder of a stack that runs already (`parallax stack up --detach
    --only-infrastructure`), which saves the start while working on tests.
    """
    if running := os.environ.get("PARALLAX_TEST_INFRASTRUCTURE"):
        yield StackClient(Path(running))
        return
    directory = tmp_path_factory.mktemp("infrastructure")
    spec = StackSpec(services=False, schema_kept=False)
    with LocalStack(spec, directory, _reporter(request.config)) as local:
        yield local


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Stack]:
    """A whole stack of its own: brokers, Cassandra, replicators, offset services and syncjob.

    PARALLAX_TEST_STACK may name the folder of one that runs already (`parallax stack up --detach`).
    """
    if running := os.environ.get("PARALLAX_TEST_STACK"):
        yield StackClient(Path(running))
        return
    with LocalStack(StackSpec(), tmp_path_factory.mktemp("stack"), _reporter(request.config)) as local:
        _whole_stacks.append(local)
        yield local


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    return unique_name(request.node.name.replace("[", "-").rstrip("]"))


def _reporter(config: pytest.Config) -> Callable[[str], None]:
    capture = config.pluginmanager.getplugin("capturemanager")

    def report(line: str) -> None:
        # Starting takes a while, fetching for the first time minutes: say so past pytest's capture.
        if capture is None:
            sys.stderr.write(f"{line}\n")
            return
        with capture.global_and_fixture_disabled():
            sys.stderr.write(f"{line}\n")

    return report
