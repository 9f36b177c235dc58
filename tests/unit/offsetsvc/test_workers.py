"""Further processes are started, started again when they end, and ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from offsetsvc import workers as workers_module
from offsetsvc.workers import Workers
from parallax.errors import ConfigError
from parallax.runtime.retry import RetryPolicy
from tests.support import poll_until

AT_ONCE = RetryPolicy(first_wait_ms=1, longest_wait_ms=2)
TOLD = "import pickle, sys; told = pickle.load(sys.stdin.buffer)"
READY = "sys.stdout.write('ready\\n'); sys.stdout.flush()"


@contextmanager
def kept(program: str, count: int = 2) -> Iterator[Workers]:
    workers = Workers({"told": 7}, count, command=(sys.executable, "-c", program), again=AT_ONCE)
    try:
        yield workers
    finally:
        workers.stop()


def shown(workers: Workers) -> tuple[float, float]:
    """How many answer, and how often one was started again."""
    answering, again = (family.samples[0].value for family in workers.collect())
    return answering, again


def test_all_are_told_and_end_in_order_when_their_pipe_is_closed() -> None:
    with kept(f"{TOLD}; assert told == {{'told': 7}}; {READY}; sys.stdin.buffer.read()") as workers:
        workers.start()
        assert shown(workers) == (3, 0)
    assert shown(workers) == (1, 0)
    assert {worker.problem for worker in workers._workers} == {"ended with status 0"}


def test_one_that_ends_later_is_started_again() -> None:
    with kept(f"{TOLD}; {READY}; sys.exit(3)", 1) as workers:
        workers.start()
        poll_until(lambda: shown(workers)[1] >= 2, 30, "it is started again, and again")


def test_one_that_answered_and_ended_while_another_one_starts_is_no_error() -> None:
    second = f"import time; time.sleep(1); {READY}; sys.stdin.buffer.read()"
    program = f"{TOLD}\nif sys.argv[1] == '2': {second}\nelse: {READY}; sys.exit(3)"
    with kept(program) as workers:
        workers.start()
        assert shown(workers)[1] >= 1


@pytest.mark.parametrize(
    ("program", "words"),
    [("raise SystemExit(5)", "ended with status 5"), ("import os; os.abort()", "was ended by SIGABRT")],
)
def test_one_that_never_answers_is_an_error(program: str, words: str) -> None:
    with (
        kept(program, 1) as workers,
        pytest.raises(ConfigError, match=f"server process 2 {words}; its log says why"),
    ):
        workers.start()


def test_one_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "_ENDS_WITHIN_MS", 200.0)
    with kept(f"{TOLD}; {READY}; import time; time.sleep(600)", 1) as workers:
        workers.start()
        began_s = time.monotonic()
        workers.stop()
        assert time.monotonic() - began_s < 60
        assert shown(workers) == (1, 0)


def test_stopping_before_the_start_starts_nobody() -> None:
    with kept("raise SystemExit(5)") as workers:
        workers.stop()
        assert shown(workers) == (1, 0)
