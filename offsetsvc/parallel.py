"""Pools of threads, and leaf tasks side by side on one, within a deadline; and calls side by side, so many at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from pathlib import Path
from typing import TypeVar

from parallax.errors import DeadlineError, ServiceUnavailableError, StoreUnavailableError, UnavailableError
from parallax.runtime.deadline import Deadline

Item = TypeVar("Item")
Result = TypeVar("Result")
Other = TypeVar("Other")

_LONGEST_WAIT_S = 1.0
_HERE_MS = 5.0
"""A task that waits for nothing is done sooner than a thread has begun with it."""
_LONGEST_NAME = 15
"""Linux keeps no more of a thread's name."""


class BusyError(ServiceUnavailableError):
    """So many calls are being answered that this one is not."""


class Turns:
    """Lets calls be answered, so many at a time: whatever they wait for, threads are left for health and status.

    Args:
        most: calls at a time.
        waiting: how many further ones wait for a moment until it is their turn.
    """

    def __init__(self, most: int, waiting: int) -> None:
        self._all = threading.BoundedSemaphore(most + waiting)
        self._turn = threading.BoundedSemaphore(most)

    @contextmanager
    def one(self, deadline: Deadline) -> Iterator[None]:
        """One call; raises as `take` does."""
        self.take(deadline)
        try:
            yield
        finally:
            self.give_back()

    def take(self, deadline: Deadline) -> None:
        """Begin a call; once it is over, its turn is to be given back.

        Raises:
            BusyError: too many others are being answered.
        """
        if not self._all.acquire(blocking=False):
            raise BusyError("too many calls on this server")
        patience_s = max(0.0, min(_LONGEST_WAIT_S, deadline.remaining_s))
        if not (self._turn.acquire(blocking=False) or self._turn.acquire(timeout=patience_s)):
            self._all.release()
            raise BusyError("too many calls on this server, and they take long")

    def give_back(self) -> None:
        """A call is over."""
        self._turn.release()
        self._all.release()


LONGEST_READ_S = 5.0
"""So long a request to the store may take, and a caller waits for another one's."""


def came_too_late(longest_wait_s: float) -> str:
    """What a caller is told who has waited so long for what another one reads."""
    return f"store: what another caller reads has not come within {longest_wait_s:g} s"


def found_by_another(read: Future[Result], timeout_s: float, problem: str) -> Result:
    """What another caller reads.

    Raises:
        StoreUnavailableError: ``problem``: it has not come in time.
        UnavailableError: it could not be read.
    """
    try:
        return read.result(timeout=max(0.0, timeout_s))
    except TimeoutError as error:
        raise StoreUnavailableError(problem) from error
    except UnavailableError as error:
        # Of each caller its own: a traceback would grow with everyone who raises it.
        raise type(error)(str(error)) from error


class Concurrently:
    """Runs tasks that start no tasks of their own, so that a full pool can't wait for itself."""

    def __init__(self, executor: Executor, deadline: Deadline) -> None:
        self._executor = executor
        self._deadline = deadline

    def run(self, tasks: Iterable[Callable[[], object]], what: str) -> None:
        """Carry out tasks of different kinds; each keeps its own result.

        Raises:
            DeadlineError: as `map`.
        """
        self.map(lambda task: task(), tasks, what)

    def run_here(self, tasks: Iterable[Callable[[], object]], what: str) -> None:
        """Carry out tasks one after the other, in the caller's thread.

        Raises:
            DeadlineError: the deadline passed before one of them.
        """
        for task in tasks:
            self._deadline.check(what)
            task()

    def both(
        self, first: Callable[[], Result], second: Callable[[], Other], what: str
    ) -> tuple[Result, Other]:
        """What two tasks of different kinds give.

        Raises:
            DeadlineError: as `map`.
        """
        self._deadline.check(what)
        other = self._executor.submit(copy_context().run, second)
        try:
            return first(), other.result(timeout=self._deadline.remaining_s)
        except TimeoutError as error:
            raise DeadlineError(f"the deadline passed while {what}") from error
        finally:
            other.cancel()

    def map(self, task: Callable[[Item], Result], items: Iterable[Item], what: str) -> list[Result]:
        """The task's result for each item, in order.

        Raises:
            DeadlineError: the deadline passed first; the message says while doing what.
        """
        self._deadline.check(what)
        chosen = list(items)
        if len(chosen) == 1:
            return [task(chosen[0])]
        # With the context of the call, which has its span.
        futures = [self._executor.submit(copy_context().run, task, item) for item in chosen]
        try:
            return [future.result(timeout=self._deadline.remaining_s) for future in futures]
        except TimeoutError as error:
            raise DeadlineError(f"the deadline passed while {what}") from error
        finally:
            for future in futures:
                future.cancel()

    def map_here_first(
        self, task: Callable[[Item], Result], items: Iterable[Item], what: str
    ) -> list[Result]:
        """The same, for tasks that mostly wait for nothing.

        They are done one after the other in the caller's thread; those that are left after some milliseconds, side by side.

        Raises:
            DeadlineError: as `map`; while one waits here, once that has ended.
        """
        chosen = list(items)
        here = Deadline.after_ms(_HERE_MS)
        results: list[Result] = []
        while len(results) < len(chosen) and not (results and here.passed):
            self._deadline.check(what)
            results.append(task(chosen[len(results)]))
        left = chosen[len(results) :]
        return [*results, *self.map(task, left, what)] if left else results


def named_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """A pool whose threads bear its name for the kernel too: in `top -H`, and in `/proc/PID/task/*/comm`.

    A pool makes a thread whenever more tasks than ever are under way, and keeps it. Without a name that looks like a leak.

    Args:
        threads: the most that it has.
        name: at most 15 characters are kept.
    """
    return ThreadPoolExecutor(threads, name, initializer=_tell_kernel, initargs=(name[:_LONGEST_NAME],))


def _tell_kernel(name: str) -> None:
    with suppress(OSError):  # only Linux has such a file, and the name is a mere help
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name, encoding="utf-8")
