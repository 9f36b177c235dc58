"""Leaf tasks side by side on a bounded pool, within a deadline."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import TypeVar

from parallax.errors import DeadlineError
from parallax.runtime.deadline import Deadline

Item = TypeVar("Item")
Result = TypeVar("Result")


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

    def map(self, task: Callable[[Item], Result], items: Iterable[Item], what: str) -> list[Result]:
        """The task's result for each item, in order.

        Raises:
            DeadlineError: the deadline passed first; the message says while doing what.
        """
        self._deadline.check(what)
        chosen = list(items)
        if len(chosen) == 1:
            return [task(chosen[0])]
        futures = [self._executor.submit(task, item) for item in chosen]
        try:
            return [future.result(timeout=self._deadline.remaining_s) for future in futures]
        except TimeoutError as error:
            raise DeadlineError(f"the deadline passed while {what}") from error
        finally:
            for future in futures:
                future.cancel()
