"""Turns connections to brokers in the caller's own thread, on kafka-python's selector."""

from __future__ import annotations

import selectors
from collections.abc import Callable
from typing import Any

from kafka.net.selector import NetworkSelector


class _Selector(selectors.DefaultSelector):
    """Says that a socket is not registered without asking the kernel for its addresses, once for every wait."""

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        return super().get_key(number if number >= 0 else fileobj)


class EventLoop:
    """Turns connections, which may be to several clusters, for one thread."""

    def __init__(self) -> None:
        self.net = NetworkSelector(slow_task_threshold_secs=0, selector=_Selector)
        self._problem: Exception | None = None

    def turn(self, timeout_ms: float) -> None:
        """Send and receive what is due; waits up to ``timeout_ms`` while nothing is.

        What an action has raised inside a turn is raised here, and from then on at every turn: kafka-python would only
        write it to its log.
        """
        self.net.poll(timeout_ms=timeout_ms)
        if self._problem is not None:
            raise self._problem

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Call later, from inside a turn."""
        guarded = self.guarded(lambda _: action())
        self.net.call_later(delay_ms / 1_000, lambda: guarded(None))

    def guarded(self, action: Callable[[Any], None]) -> Callable[[Any], None]:
        """The action, to be called inside a turn."""

        def call(argument: Any) -> None:
            try:
                action(argument)
            except Exception as error:  # noqa: BLE001 - raised by `turn`
                self._problem = error

        return call

    def close(self) -> None:
        """Let go of everything."""
        self.net.close()
