"""Looks up brokers' names beside the event loop: no resolver, however slow, holds up a connection that stands.

`socket.getaddrinfo` has no time-out, and cannot be called off. So a thread of its own waits for it, and who asked waits
for the thread no longer than it likes. What a name was last resolved to is kept: while the resolver is silent, brokers are
still reached where they were.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Address = tuple[Any, ...]
"""As `socket.getaddrinfo` gives it: family, kind, protocol, canonical name, address."""
Heard = Callable[[], None]

_MOST_THREADS = 16
_STUCK_S = 30.0
"""The C library gives up well before that; a name whose look-up takes longer is looked up anew."""
_NO_SUCH_NAME = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
"""What is an answer of the resolver, and not that it has none now."""


class UnresolvedError(Exception):
    """A name has no address, as far as is known.

    Attributes:
        is_silence: the resolver has not answered yet, rather than that it knows none.
    """

    def __init__(self, text: str, *, is_silence: bool) -> None:
        super().__init__(text)
        self.is_silence = is_silence


@dataclass(slots=True)
class _Name:
    """What is known of a name, and who waits for more.

    Attributes:
        addresses: of the last good answer; empty before it, and after the resolver has said that there is no such name.
        problem: why there are none.
        begun_at_s: since when a look-up has been under way; None: none is.
        number: of the newest look-up; an older one that ends late tells nothing.
    """

    addresses: Sequence[Address] = ()
    problem: str = "its resolver has not answered yet"
    begun_at_s: float | None = None
    number: int = 0
    waiting: list[Heard] = field(default_factory=list)


class Resolver:
    """Looks up names, each in a thread, and remembers the answers. Safe to use from several threads.

    Args:
        look_up: host and port to addresses; may take any time. None: `socket.getaddrinfo`.
        most_threads: look-ups under way at once.
        clock: seconds, never going back.
    """

    def __init__(
        self,
        look_up: Callable[[str, int], Sequence[Address]] | None = None,
        *,
        most_threads: int = _MOST_THREADS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look_up = look_up or _ask_the_system
        self._most_threads = most_threads
        self._clock = clock
        self._lock = threading.Lock()
        self._names: dict[tuple[str, int], _Name] = {}
        self._threads = 0

    def ask(self, host: str, port: int, heard: Heard) -> None:
        """Look the name up anew, together with whoever else wants it now.

        Args:
            host: the name.
            port: of the service there.
            heard: called once, perhaps at once and perhaps in another thread, when `known` has the newest answer. Never,
                if the resolver is silent for ever.
        """
        with self._lock:
            name = self._names.setdefault((host, port), _Name())
            now_s = self._clock()
            begins = name.begun_at_s is None or now_s - name.begun_at_s >= _STUCK_S
            if begins and self._threads >= self._most_threads:
                begins, name.problem = False, f"{self._threads} other look-ups wait for the resolver"
            if begins:
                self._threads += 1
                name.begun_at_s, name.number = now_s, name.number + 1
            waits = name.begun_at_s is not None
            if waits:
                name.waiting.append(heard)
            number = name.number
        if begins:
            work = (host, port, name, number)
            threading.Thread(target=self._work, args=work, name=f"resolve {host}", daemon=True).start()
        if not waits:
            heard()

    def knows(self, host: str, port: int) -> bool:
        """Whether there is a last good answer."""
        with self._lock:
            name = self._names.get((host, port))
            return name is not None and bool(name.addresses)

    def known(self, host: str, port: int) -> Sequence[Address]:
        """The addresses of the last good answer.

        Raises:
            UnresolvedError: there is none.
        """
        with self._lock:
            name = self._names.get((host, port), _Name())
            if not name.addresses:
                text = f"{host}:{port} has no known address: {name.problem}"
                raise UnresolvedError(text, is_silence=name.begun_at_s is not None)
            return name.addresses

    def _work(self, host: str, port: int, name: _Name, number: int) -> None:
        addresses: Sequence[Address] | None
        problem = "the resolver named none"
        try:
            addresses = self._look_up(host, port)
        except (OSError, UnicodeError) as error:
            problem = str(error)
            addresses = () if getattr(error, "errno", None) in _NO_SUCH_NAME else None
        with self._lock:
            self._threads -= 1
            if number != name.number:
                return
            name.begun_at_s, name.problem = None, problem
            if addresses is not None:
                name.addresses = addresses
            waiting, name.waiting = name.waiting, []
        for heard in waiting:
            heard()


def is_number(host: str) -> bool:
    """Whether the host is an address already, which nobody has to be asked for."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def of_number(host: str, port: int) -> Sequence[Address]:
    """The address that `is_number` was told of; asks nobody."""
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)


def _ask_the_system(host: str, port: int) -> Sequence[Address]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


_resolver = Resolver()


def shared() -> Resolver:
    """This process's resolver: what one connection has learnt of a name helps all others."""
    return _resolver


def _begin_anew() -> None:
    """After a fork the threads are gone, and nobody would ever let go of the lock."""
    global _resolver  # noqa: PLW0603 - what `shared` hands out is one for each process
    _resolver = Resolver()


os.register_at_fork(after_in_child=_begin_anew)
