"""Delivers the newest of what a thread says, without that thread waiting for it."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

_log = structlog.get_logger(__name__)

_LAST_WITHIN_S = 2.0

Item = TypeVar("Item")


class Newest(Generic[Item]):
    """Sends the newest item from a thread of its own.

    An item that could not be delivered is dropped: the next one must say all of it again.

    Args:
        send: delivers one; its `OSError`, `http.client.HTTPException` and `ValueError` mean that it was not delivered.
        target: where to, for logs.
    """

    def __init__(self, send: Callable[[Item], None], target: str) -> None:
        self._send = send
        self._target = target
        self._item: Item | None = None
        self._closing = False
        self._wake = threading.Condition()
        self._reachable = True
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)
        self._thread.start()

    def put(self, item: Item) -> None:
        """Have it sent; returns at once."""
        with self._wake:
            self._item = item
            self._wake.notify()

    def close(self, last: Item | None = None) -> bool:
        """Send a last one, if there is any, and end; waits two seconds at most.

        Returns:
            Whether it has ended.
        """
        with self._wake:
            self._closing = True
            if last is not None:
                self._item = last
            self._wake.notify()
        self._thread.join(_LAST_WITHIN_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._wake:
                while self._item is None and not self._closing:
                    self._wake.wait()
                item, self._item = self._item, None
            if item is None:
                return
            try:
                self._send(item)
            except (OSError, http.client.HTTPException, ValueError) as error:
                if self._reachable:
                    _log.warning("status_unreachable", target=self._target, error=str(error))
                self._reachable = False
            else:
                self._reachable = True
