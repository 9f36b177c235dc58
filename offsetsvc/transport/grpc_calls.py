"""What the methods of all gRPC services share: deadlines in, errors out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NoReturn, cast

import grpc
import structlog

from parallax.client.status import CODE_KEY, status_of
from parallax.errors import ParallaxError
from parallax.runtime.deadline import Deadline

WATCH_MS = 15_000
"""A watch ends after this time and its client asks again: a lost client costs a thread no longer."""

_LONGEST_DETAILS = 2_000
"""Errors travel in HTTP/2 headers, of which many proxies take 8 KiB in all."""

_log = structlog.get_logger(__name__)


def deadline_of(context: grpc.ServicerContext, default_ms: float) -> Deadline:
    """The call's deadline, or the default for one that has none."""
    remaining_s = cast("float | None", context.time_remaining())  # None: the call has no deadline
    return Deadline.after_ms(default_ms if remaining_s is None else remaining_s * 1_000)


class Watches:
    """Room for so many watches at once; a watch that is refused carries none of our codes: the server is busy.

    Args:
        most: watches at once.
        stopping: set when the server stops.
    """

    def __init__(self, most: int, stopping: threading.Event) -> None:
        self._room = threading.BoundedSemaphore(most)
        self._stopping = stopping

    @contextmanager
    def one(self, context: grpc.ServicerContext) -> Iterator[Callable[[float], bool]]:
        """Take room for a watch. What is handed out waits for seconds, and says whether the watch shall end."""
        if not self._room.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many watches on this server")
        ended = threading.Event()
        context.add_callback(ended.set)
        try:
            yield lambda seconds: ended.wait(seconds) or self._stopping.is_set()
        finally:
            self._room.release()


class Errors:
    """Turns errors into statuses: ours by the table, all else into INTERNAL with the story in the log."""

    def __init__(self, method: str, context: grpc.ServicerContext) -> None:
        self._method = method
        self._context = context

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ParallaxError):
            self._abort(status_of(error).grpc, error.code, str(error))
        if isinstance(error, Exception):
            _log.error("offsetsvc.internal_error", method=self._method, exc_info=error)
            self._abort(
                grpc.StatusCode.INTERNAL, ParallaxError.code, "internal error; the server's log has it"
            )

    def _abort(self, status: grpc.StatusCode, code: str, details: str) -> NoReturn:
        self._context.set_trailing_metadata(((CODE_KEY, code),))
        self._context.abort(status, details[:_LONGEST_DETAILS])
