"""A long way to a broker: a proxy that hands everything on half a round trip later, both ways.

It delays, but does not throttle: what a real link's bandwidth, losses and TCP windows would add is left out. It runs
as a process of its own (`python -m bench.distance LISTEN_PORT BROKER_PORT ROUND_TRIP_MS`).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from devstack.ports import HOST
from devstack.probes import port_problem
from devstack.process import ProcessSpec

_CHUNK_BYTES = 1 << 18
_MOST_CHUNKS = 1 << 12


class Distance:
    """Delays one broker.

    Args:
        port: of the broker.
        round_trip_ms: how far away it shall seem.
    """

    def __init__(self, port: int, round_trip_ms: float) -> None:
        self._port, self._one_way_s = port, round_trip_ms / 2_000

    async def serve(self, listen_port: int) -> None:
        """Listen until cancelled."""
        server = await asyncio.start_server(self._connected, HOST, listen_port, limit=_CHUNK_BYTES)
        async with server:
            await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The handshake takes a round trip too.
        await asyncio.sleep(2 * self._one_way_s)
        try:
            there, back = await asyncio.open_connection(HOST, self._port, limit=_CHUNK_BYTES)
        except OSError:
            writer.close()
            await writer.wait_closed()
            return
        try:
            await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer))
        finally:
            for end in (back, writer):
                end.close()
                with suppress(ConnectionError):
                    await end.wait_closed()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hand on what one side says, in order, each piece as late as it shall be."""
        clock = asyncio.get_running_loop().time
        on_their_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MOST_CHUNKS)

        async def deliver() -> None:
            while True:
                due, chunk = await on_their_way.get()
                if (left := due - clock()) > 0:
                    await asyncio.sleep(left)
                if not chunk:
                    return
                writer.write(chunk)
                await writer.drain()

        delivering = asyncio.create_task(deliver())
        # Either side may hang up at any moment; the other one then hears it half a round trip later.
        with suppress(ConnectionError):
            while chunk := await reader.read(_CHUNK_BYTES):
                if delivering.done():
                    break
                await on_their_way.put((clock() + self._one_way_s, chunk))
        if not delivering.done():
            await on_their_way.put((clock() + self._one_way_s, b""))
        with suppress(ConnectionError):
            await delivering
            writer.write_eof()


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
            "bench.distance",
            str(listen_port),
            str(broker_port),
            str(round_trip_ms),
        ],
        log=log,
        probe=lambda: port_problem(listen_port),
        environment=environment,
    )


if __name__ == "__main__":
    asyncio.run(Distance(int(sys.argv[2]), float(sys.argv[3])).serve(int(sys.argv[1])))
