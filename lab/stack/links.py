"""The links between services and what they talk to: proxies that can be cut, cut in one direction, or made slow.

On one machine no packet is ever lost. A link that is cut hands on nothing and closes nothing, as a network that drops
packets: connections stand, new ones are accepted by the kernel and hear nothing, and all that was under way arrives when
the link is mended.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from lab.stack.errors import UnknownProcessError
from lab.stack.ports import HOST

_PIECE_BYTES = 64 * 1024
_MOST_PIECES = 64
_ORDER_S = 10.0


@dataclass(frozen=True, slots=True)
class LinkState:
    """What a link does to what is sent over it.

    Attributes:
        forth, back: whether anything gets through from the service to its peer, and from the peer to the service.
        round_trip_ms: how long a question and its answer take longer.
    """

    forth: bool = True
    back: bool = True
    round_trip_ms: float = 0.0


WHOLE = LinkState()


class StackLinks:
    """Proxies on a thread of their own, from entering to leaving.

    Args:
        ports: by the link's name, the ports of the processes behind it: by the port where the proxy listens.
    """

    def __init__(self, ports: Mapping[str, Mapping[int, int]]) -> None:
        self._ports = ports
        self._links = {name: _Link() for name in ports}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stack-links", daemon=True)

    def __enter__(self) -> Self:
        """Listen.

        Raises:
            OSError: a port is taken.
        """
        self._thread.start()
        try:
            self._order(self._listen())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection, and the thread with them."""
        self._order(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def change(self, name: str, state: LinkState) -> None:
        """Make a link, with all its connections, what ``state`` says.

        Raises:
            UnknownProcessError: there is no link of that name.
        """
        if name not in self._links:
            raise UnknownProcessError(name, sorted(self._links))
        self._order(self._links[name].change(state))

    def _order(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_ORDER_S)

    async def _listen(self) -> None:
        for name, ports in self._ports.items():
            for listen_port, port in ports.items():
                await self._links[name].listen(listen_port, port)

    async def _end(self) -> None:
        for link in self._links.values():
            await link.close()


class _Link:
    """One name's proxies."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._late_s = 0.0
        self._forth, self._back = asyncio.Event(), asyncio.Event()
        self._forth.set()
        self._back.set()

    async def listen(self, listen_port: int, port: int) -> None:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            if task is not None:
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            with suppress(OSError, asyncio.CancelledError):
                await self._connect(port, reader, writer)

        self._servers.append(await asyncio.start_server(connected, HOST, listen_port))

    async def change(self, state: LinkState) -> None:
        self._late_s = state.round_trip_ms / 2_000
        for event, through in ((self._forth, state.forth), (self._back, state.back)):
            if through:
                event.set()
            else:
                event.clear()

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connect(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._forth.wait()
            await asyncio.sleep(2 * self._late_s)  # the handshake takes a round trip too
            far_reader, far_writer = await asyncio.open_connection(HOST, port)
            try:
                await asyncio.gather(
                    self._direction(reader, far_writer, self._forth),
                    self._direction(far_reader, writer, self._back),
                )
            finally:
                far_writer.transport.abort()
        finally:
            writer.transport.abort()

    async def _direction(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, through: asyncio.Event
    ) -> None:
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MOST_PIECES)

        async def take() -> None:
            piece = b"first"
            while piece:
                try:
                    piece = await reader.read(_PIECE_BYTES)
                except ConnectionError:
                    piece = b""
                await under_way.put((asyncio.get_running_loop().time() + self._late_s, piece))

        taking = asyncio.create_task(take())
        try:
            while True:
                due_s, piece = await under_way.get()
                await asyncio.sleep(due_s - asyncio.get_running_loop().time())
                await through.wait()
                if not piece:
                    break
                writer.write(piece)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        finally:
            taking.cancel()
