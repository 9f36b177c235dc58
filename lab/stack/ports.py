"""Free ports that stay the same while a stack lives, also while the process behind one is dead.

They lie below the range from which the kernel takes ports for outgoing connections: otherwise a client could
be given the port of a broker that was just killed (or even connect to itself), and the broker could not return.
A lock file per port keeps two stacks on one machine apart.
"""

from __future__ import annotations

import fcntl
import random
import socket
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from lab.stack.errors import PortError

HOST = "127.0.0.1"
_LOWEST = 20_000
_DEFAULT_EPHEMERAL_START = 32_768
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class PortReservations:
    """Ports by name, each held by a lock file until `close`.

    Args:
        lock_directory: Shared by all stacks of this user.
        remembered: Ports of an earlier life of the same stack: taken again where still free.
    """

    def __init__(self, lock_directory: Path, remembered: dict[str, int] | None = None) -> None:
        self._lock_directory = lock_directory
        self._remembered = dict(remembered or {})
        self._ports: dict[str, int] = {}
        self._locks: list[IO[str]] = []
        lock_directory.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def ports(self) -> dict[str, int]:
        """Every reserved port by name."""
        return dict(self._ports)

    def get(self, name: str) -> int:
        """The port of a name: the same one for as long as this object lives.

        Raises:
            PortError: No port is free.
        """
        if name in self._ports:
            return self._ports[name]
        candidates = list(range(_LOWEST, _ephemeral_start()))
        random.shuffle(candidates)
        if name in self._remembered:
            candidates.insert(0, self._remembered[name])
        for port in candidates:
            if self._reserve(port):
                self._ports[name] = port
                return port
        raise PortError(f"No port between {_LOWEST} and {_ephemeral_start()} is free for {name}.")

    def close(self) -> None:
        """Give all ports back."""
        for lock in self._locks:
            lock.close()
        self._locks.clear()
        self._ports.clear()

    def _reserve(self, port: int) -> bool:
        lock = (self._lock_directory / f"{port}.lock").open("w", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return False
        if not is_free(port):
            lock.close()
            return False
        self._locks.append(lock)
        return True


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections of a dead predecessor in TIME_WAIT don't count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _ephemeral_start() -> int:
    if not _EPHEMERAL_RANGE.is_file():
        return _DEFAULT_EPHEMERAL_START
    start = int(_EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0])
    # A machine with an unusually low range: share it rather than find nothing.
    return start if start > _LOWEST + 1000 else _DEFAULT_EPHEMERAL_START
