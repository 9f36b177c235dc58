"""Turns connections to brokers in the caller's own thread, on kafka-python's selector."""

from __future__ import annotations

import select
import selectors
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from kafka.net.selector import KernelEvent, NetworkSelector, TaskState

from parallax.runtime.deadline import Deadline

_SHORT_S = 0.02
_MOST_FILES = 1024
"""`select` takes numbers below this one."""
_TURN_MS = 20
"""What is waited for may come to pass in a turn that would go on waiting."""


class _Selector(selectors.DefaultSelector):
    """Says that a socket is not registered without asking the kernel for its addresses, once for every wait.

    Waits of a few milliseconds end in time: epoll itself counts whole ones, and rounds up.
    """

    _waits_in_ms = selectors.DefaultSelector is getattr(selectors, "EpollSelector", None)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if (
            timeout is not None
            and 0 < timeout < _SHORT_S
            and self._waits_in_ms
            and self.fileno() < _MOST_FILES
        ):
            select.select([self.fileno()], (), (), timeout)
            timeout = 0
        return super().select(timeout)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        return super().get_key(number if number >= 0 else fileobj)


class Net(NetworkSelector):  # type: ignore[misc] # kafka-python has no types
    """kafka-python's selector, on which a task may stay registered for a socket from one wait to the next.

    Its own `wait_read` registers, builds a guard and unregisters for each answer.
    """

    def begin_reading(self, fileobj: Any) -> KernelEvent:
        """Register the task that awaits this, and wait for bytes. It calls `end_reading` in the end."""
        return KernelEvent("_begin_reading", fileobj)

    def next_bytes(self) -> KernelEvent:
        """Wait for bytes again."""
        return KernelEvent("_stay")

    def end_reading(self, fileobj: Any) -> None:
        """The task is done with the socket."""
        self.unregister_event(fileobj, selectors.EVENT_READ)

    def _begin_reading(self, fileobj: Any) -> None:
        self.register_event(fileobj, selectors.EVENT_READ, self._current)
        self._stay()

    def _stay(self) -> None:
        self._current.state = TaskState.WAIT_IO


class _Timer:
    """Something to do at a time, unless it is cancelled before."""

    __slots__ = ("action", "when")

    def __init__(self, when: float, action: Callable[[], object]) -> None:
        self.when = when
        self.action: Callable[[], object] | None = action


class Timers:
    """What a connection takes for the loop: its requests' time-outs are kept in line here, the rest is passed on.

    kafka-python makes a task for each request's time-out and takes it out of a heap again when the answer comes.
    Answers come in the order of their requests, and nearly always in time.
    """

    def __init__(self, net: Net) -> None:
        self._net = net
        self._line: deque[_Timer] = deque()
        self._look_at = float("inf")
        """When the loop looks at the line: no later than the first one's time."""
        self._task: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._net, name)

    def call_at(self, when: float, action: Any) -> Any:
        """Do it then; what comes before the last one in line is left to the loop."""
        if not callable(action) or (self._line and when < self._line[-1].when):
            return self._net.call_at(when, action)
        timer = _Timer(when, action)
        self._line.append(timer)
        if when < self._look_at:
            self._look_again(when)
        return timer

    def cancel(self, timer: Any) -> None:
        """Do it no more."""
        if not isinstance(timer, _Timer):
            self._net.cancel(timer)
            return
        timer.action = None
        while self._line and self._line[0].action is None:
            self._line.popleft()

    def _look_again(self, when: float) -> None:
        if self._task is not None:
            self._net.cancel(self._task)
        self._look_at, self._task = when, self._net.call_at(when, self._due)

    def _due(self) -> None:
        self._look_at, self._task = float("inf"), None
        now = time.monotonic()
        while self._line and (self._line[0].action is None or self._line[0].when <= now):
            action = self._line.popleft().action
            if action is not None:
                action()
        if self._line and self._line[0].when < self._look_at:
            self._look_again(self._line[0].when)


class EventLoop:
    """Turns connections, which may be to several clusters, for one thread."""

    def __init__(self) -> None:
        self.net = Net(slow_task_threshold_secs=0, selector=_Selector)
        self._problem: Exception | None = None

    def turn(self, timeout_ms: float) -> None:
        """Send and receive what is due; waits up to ``timeout_ms`` while nothing is.

        What an action has raised inside a turn is raised here, and from then on at every turn: kafka-python would only
        write it to its log.
        """
        self.net.poll(timeout_ms=timeout_ms)
        if self._problem is not None:
            raise self._problem

    def pause(self, longest_ms: float, stop: Callable[[], object] = lambda: False) -> None:
        """Turn for so long, or until ``stop`` tells that it is enough; not at all if it does so at once."""
        deadline = Deadline.after_ms(longest_ms)
        while not stop() and not deadline.passed:
            self.turn(min(_TURN_MS, deadline.remaining_ms))

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
