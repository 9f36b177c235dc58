from __future__ import annotations

import asyncio
import time

from bench.distance import Distance
from devstack.ports import HOST
from devstack.spec import StackSpec

ROUND_TRIP_MS = 120.0


async def _play() -> tuple[bytes, float, bytes]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65_536):
            writer.write(chunk)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    broker = await asyncio.start_server(echo, HOST, 0)
    ports = [broker.sockets[0].getsockname()[1]]
    free = await asyncio.start_server(echo, HOST, 0)
    ports.append(free.sockets[0].getsockname()[1])
    free.close()
    await free.wait_closed()
    proxy = asyncio.create_task(Distance(ports[0], ROUND_TRIP_MS).serve(ports[1]))
    while True:
        try:
            reader, writer = await asyncio.open_connection(HOST, ports[1])
        except ConnectionError:
            await asyncio.sleep(0.01)
        else:
            break
    writer.write(b"handshake")
    await reader.readexactly(9)
    started = time.perf_counter()
    sent = bytes(range(256)) * 4_000
    writer.write(sent)
    writer.write_eof()
    answer = await reader.readexactly(len(sent))
    took_ms = (time.perf_counter() - started) * 1_000
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    proxy.cancel()
    broker.close()
    await asyncio.gather(proxy, return_exceptions=True)
    await broker.wait_closed()
    return answer, took_ms, sent


def test_everything_arrives_in_order_and_a_round_trip_later() -> None:
    answer, took_ms, sent = asyncio.run(_play())
    assert answer == sent
    assert took_ms >= ROUND_TRIP_MS


def test_far_clusters_survive_being_written_down() -> None:
    spec = StackSpec(regions=("a",), far=("regional-a",))
    assert StackSpec.from_json(spec.to_json()) == spec
