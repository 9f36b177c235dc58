"""Keeps what callbacks raise out of librdkafka's calls, and raises it where no record can be lost by it.

An error that leaves a callback ends the ``consume`` that called it, and the records which that had already taken are
destroyed. librdkafka's position is past them by then, so nobody would ever see them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any


class Raised:
    """What callbacks have raised inside of librdkafka, for the application's own call to raise."""

    def __init__(self) -> None:
        self._errors: deque[BaseException] = deque()

    def kept_from(self, callback: Callable[..., None]) -> Callable[..., None]:
        """The callback, of which nothing is raised before `throw`."""

        def call(*arguments: Any) -> None:
            try:
                callback(*arguments)
            except BaseException as error:  # noqa: BLE001 - a signal handler's exit would cost the records as well
                self._errors.append(error)

        return call

    def throw(self) -> None:
        """Raise the oldest error that was kept, if there is one."""
        if self._errors:
            raise self._errors.popleft()
