"""Asks an offset service, as a process of its own, for offsets drawn at random from a whole log; skip ranges come packed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from multiprocessing.connection import Connection
from random import Random
from typing import Any

import grpc

from parallax.client.client import at_region
from parallax.v1 import offsets_pb2 as pb
from parallax.v1 import offsets_pb2_grpc

_TIMEOUT_S = 30.0

Ask = Callable[[], Awaitable[float]]


def ask_service(settings: Mapping[str, Any], answer: Connection) -> None:
    """Ask as fast as the answers come, then at half of that rate, then for all partitions of a group in each call.

    Args:
        settings: ``address``, ``topic``, ``partitions``, ``end`` (of each partition), ``callers`` (questions at the
            same time), ``seconds`` (of each part).
        answer: gets ``b"begin"`` and ``b"end"`` around the first part (after a second of warming up), then a
            dictionary: ``answers``, ``seconds``, ``half_rate``, ``latencies_ms`` (of the second part), ``outcomes`` (of
            the first two), ``group_answers``, ``group_seconds`` (of the third, an answer for each partition).
    """
    asyncio.run(_ask(settings, answer))


async def _ask(settings: Mapping[str, Any], answer: Connection) -> None:
    draw = Random(1)  # noqa: S311 - places in a log, not secrets
    outcomes: Counter[str] = Counter()
    async with grpc.aio.insecure_channel(settings["address"]) as channel:
        stub = offsets_pb2_grpc.OffsetServiceStub(channel)  # type: ignore[no-untyped-call] # generated

        async def ask() -> float:
            request = pb.GetFailoverOffsetRequest(
                group="askers",
                topic=settings["topic"],
                partition=draw.randrange(settings["partitions"]),
                to=at_region("b"),
                next_offset=draw.randrange(settings["end"]),
                pack_skip_ranges=True,
            )
            # "from" is a keyword of Python's.
            getattr(request, "from").CopyFrom(at_region("a"))
            started = time.perf_counter()
            found = await stub.GetFailoverOffset(request, timeout=_TIMEOUT_S)
            outcomes[pb.Outcome.Name(found.outcome)] += 1
            return (time.perf_counter() - started) * 1_000

        async def ask_for_all() -> float:
            numbers = range(settings["partitions"])
            request = pb.GetGroupFailoverOffsetsRequest(
                group="askers",
                topics=[settings["topic"]],
                positions=[
                    pb.PartitionPosition(
                        topic=settings["topic"], partition=number, next_offset=draw.randrange(settings["end"])
                    )
                    for number in numbers
                ],
                to=at_region("b"),
                pack_skip_ranges=True,
            )
            getattr(request, "from").CopyFrom(at_region("a"))
            started = time.perf_counter()
            found = await stub.GetGroupFailoverOffsets(request, timeout=_TIMEOUT_S)
            if len(found.offsets) != len(numbers):
                raise ValueError(f"{len(found.offsets)} answers for {len(numbers)} partitions")
            return (time.perf_counter() - started) * 1_000

        await _all_the_time(ask, settings["callers"], 1.0)
        outcomes.clear()
        answer.send_bytes(b"begin")
        started = time.perf_counter()
        answers = await _all_the_time(ask, settings["callers"], settings["seconds"])
        seconds = time.perf_counter() - started
        answer.send_bytes(b"end")
        half_rate = answers / seconds / 2
        latencies = await _at_a_rate(ask, half_rate, settings["seconds"])
        group_started = time.perf_counter()
        groups = await _all_the_time(ask_for_all, settings["callers"], settings["seconds"])
        group_seconds = time.perf_counter() - group_started
    answer.send(
        {
            "answers": answers,
            "seconds": seconds,
            "half_rate": half_rate,
            "latencies_ms": latencies,
            "outcomes": dict(outcomes),
            "group_answers": groups * settings["partitions"],
            "group_seconds": group_seconds,
        }
    )


async def _all_the_time(ask: Ask, callers: int, seconds: float) -> int:
    """Each caller asks again as soon as it is answered; how many answers came."""
    end = time.perf_counter() + seconds

    async def one() -> int:
        count = 0
        while time.perf_counter() < end:
            await ask()
            count += 1
        return count

    return sum(await asyncio.gather(*(one() for _ in range(callers))))


async def _at_a_rate(ask: Ask, per_s: float, seconds: float) -> list[float]:
    """Ask at an even pace, however long answers take; their latencies, from when each question was due."""
    started = time.perf_counter()
    tasks: list[asyncio.Task[float]] = []

    async def due(at: float) -> float:
        await ask()
        return (time.perf_counter() - at) * 1_000

    for number in range(int(per_s * seconds)):
        at = started + number / per_s
        if (left := at - time.perf_counter()) > 0:
            await asyncio.sleep(left)
        tasks.append(asyncio.create_task(due(at)))
    return list(await asyncio.gather(*tasks))
