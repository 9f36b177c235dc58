"""A long way to a broker: a proxy that hands everything on half a round trip later, both ways.

It delays, but does not throttle: what a real link's bandwidth, losses and TCP windows would add is left out. Bytes wait in
pipes of the kernel and are never copied (`splice`, Linux only): the way takes next to nothing of the CPU that copier and
brokers share. It runs as a process of its own (`python -m lab.bench.distance LISTEN_PORT BROKER_PORT ROUND_TRIP_MS`).
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue, SimpleQueue

from lab.stack.ports import HOST
from lab.stack.probes import port_problem
from lab.stack.process import ProcessSpec

_PIPE_BYTES = 1 << 20
_MOST_PIPES = 128
_LARGE_BYTES, _GATHER_S = 64 * 1024, 0.001
"""After so much at once, more is gathered so long: at 100 MB/s, forty pieces are on their way, not a thousand."""


class Distance:
    """Delays one broker.

    Args:
        port: of the broker.
        round_trip_ms: how far away it shall seem.
    """

    def __init__(self, port: int, round_trip_ms: float) -> None:
        self._port, self._one_way_s = port, round_trip_ms / 2_000

    def serve(self, server: socket.socket) -> None:
        """Take connections until the listening socket is closed."""
        with suppress(OSError):
            while True:
                near, _ = server.accept()
                threading.Thread(target=self._connected, args=(near,), daemon=True).start()

    def _connected(self, near: socket.socket) -> None:
        # The handshake takes a round trip too.
        time.sleep(2 * self._one_way_s)
        with near:
            try:
                far = socket.create_connection((HOST, self._port))
            except OSError:
                return  # nobody listens: who called hears that the connection is closed
            with far:
                for end in (near, far):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                ways = [_Way(near, far, self._one_way_s), _Way(far, near, self._one_way_s)]
                for way in ways:
                    way.join()


class _Way:
    """One direction of a connection: each piece is handed on as late as it shall be, in order."""

    def __init__(self, source: socket.socket, target: socket.socket, late_s: float) -> None:
        self._source, self._target, self._late_s = source, target, late_s
        self._under_way: Queue[tuple[float, tuple[int, int], int]] = Queue(_MOST_PIPES)
        self._empty: SimpleQueue[tuple[int, int]] = SimpleQueue()
        self._pipes: list[tuple[int, int]] = []
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._take, self._hand_on)]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait until one end has hung up and the other one has heard of it."""
        for thread in self._threads:
            thread.join()
        for pipe in self._pipes:
            for end in pipe:
                os.close(end)

    def _take(self) -> None:
        size = 1
        while size:
            pipe = self._pipe()
            # Either side may hang up at any moment; the other one then hears it half a round trip later.
            try:
                size = os.splice(self._source.fileno(), pipe[1], _PIPE_BYTES)
            except OSError:
                size = 0
            self._under_way.put((time.monotonic() + self._late_s, pipe, size))
            if size >= _LARGE_BYTES:
                time.sleep(_GATHER_S)

    def _hand_on(self) -> None:
        heard = True
        while True:
            due_s, pipe, size = self._under_way.get()
            if (left_s := due_s - time.monotonic()) > 0:
                time.sleep(left_s)
            if not size:
                break
            try:
                while heard and size:
                    size -= os.splice(pipe[0], self._target.fileno(), size)
            except OSError:
                # It has gone: what is still under way to it is passed over, and no more is taken.
                heard = False
                with suppress(OSError):  # so may the other have
                    self._source.shutdown(socket.SHUT_RDWR)
            if heard:
                self._empty.put(pipe)
        with suppress(OSError):  # it may have gone by itself
            self._target.shutdown(socket.SHUT_WR)

    def _pipe(self) -> tuple[int, int]:
        """One that holds nothing."""
        with suppress(Empty):
            return self._empty.get_nowait()
        made = os.pipe()
        self._pipes.append(made)
        with suppress(OSError):  # beyond what a user may have, it stays smaller
            fcntl.fcntl(made[1], fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        return made


def distance_spec(
    name: str,
    listen_port: int,
    broker_port: int,
    round_trip_ms: float,
    log: Path,
    environment: Mapping[str, str],
) -> ProcessSpec:
    """The process spec of a proxy.

    Args:
        name: of the process.
        listen_port: where the broker's clients look for it.
        broker_port: where it listens.
        round_trip_ms: how far away it shall seem.
        log: the proxy's output.
        environment: of the process.
    """
    return ProcessSpec(
        name=name,
        command=[
            sys.executable,
            "-m",
            "lab.bench.distance",
            str(listen_port),
            str(broker_port),
            str(round_trip_ms),
        ],
        log=log,
        probe=lambda: port_problem(listen_port),
        environment=environment,
    )


if __name__ == "__main__":
    Distance(int(sys.argv[2]), float(sys.argv[3])).serve(socket.create_server((HOST, int(sys.argv[1]))))
