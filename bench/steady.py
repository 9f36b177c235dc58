"""A steady stream through a copier: how late each record is seen on the other side."""

from __future__ import annotations

import multiprocessing
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from bench.copiers import Copier
from bench.errors import BenchError
from bench.stage import Stage, await_true
from bench.stats import percentile
from bench.steady_processes import consume_steadily, produce_steadily

_FIRST_RECORD_WITHIN_S = 120.0
_TOPIC_WITHIN_S = 120.0
_END_WITHIN_S = 60.0
_LINGER_S = 3.0
_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class SteadyRules:
    """The stream.

    Attributes:
        per_s: records a second over all partitions.
        warm_s: after the first record seen, this long is not counted.
        window_s: this long is.
        value_bytes: of each record.
        partitions: of the topic.
    """

    per_s: int = 2_000
    warm_s: float = 10.0
    window_s: float = 60.0
    value_bytes: int = 170
    partitions: int = 4


@dataclass(frozen=True, slots=True)
class Steady:
    """What a stream showed.

    Attributes:
        records: sent in the window.
        p50_ms, p99_ms, max_ms: from a record's timestamp (taken as it is handed to the producer) to its being seen by
            a read_committed consumer of the target.
        copier_cpu_s_per_million: of the copier's whole process tree, in the window.
        broker_cpu_s_per_million: of all brokers.
        epoch_borders: lease epochs that began in the window (Parallax only).
        lost, repeated: records of the whole stream that never arrived, or more than once.
    """

    records: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    copier_cpu_s_per_million: float
    broker_cpu_s_per_million: float
    epoch_borders: int
    lost: int
    repeated: int


def steady(
    stage: Stage,
    copier: Copier,
    topic: str,
    rules: SteadyRules,
    *,
    source_address: str | None = None,
    tell: Callable[[str], None] = lambda _line: None,
) -> Steady:
    """Send a steady stream through a copier that is started for it.

    Args:
        stage: the brokers; the source has the topic, empty, the target does not.
        copier: not started yet.
        topic: the topic.
        rules: the stream.
        source_address: where the producer sends, if not to the source cluster's own address.
        tell: gets a line now and then.

    Raises:
        BenchError: the copier ended, or records did not arrive.
    """
    context = multiprocessing.get_context("spawn")
    with ExitStack() as clean_up:
        clean_up.callback(copier.stop)
        copier.start()
        source = source_address or stage.bootstrap("regional-a")
        common = {"topic": topic, "partitions": rules.partitions}
        stop_producing, stop_consuming = context.Event(), context.Event()
        clean_up.callback(stop_producing.set)
        clean_up.callback(stop_consuming.set)
        sends, sent = _child(
            context,
            produce_steadily,
            common | {"bootstrap": source, "per_s": rules.per_s, "value_bytes": rules.value_bytes},
            stop_producing,
            clean_up,
        )
        await_true(
            lambda: topic in stage.topics("aggregate-a"),
            _TOPIC_WITHIN_S,
            f"{copier.name} made no topic {topic}",
        )
        receives, seen = _child(
            context,
            consume_steadily,
            common | {"bootstrap": stage.bootstrap("aggregate-a"), "linger_s": _LINGER_S},
            stop_consuming,
            clean_up,
        )
        if not seen.poll(_FIRST_RECORD_WITHIN_S):
            copier.check_alive()
            raise BenchError(f"{copier.name}: no record was seen within {_FIRST_RECORD_WITHIN_S:.0f} s")
        seen.recv_bytes()
        time.sleep(rules.warm_s)
        tell(f"{copier.name}: warm, measuring for {rules.window_s:.0f} s")
        start_ns, cpu, epochs = time.time_ns(), stage.cpu_s(copier=copier.pids), copier.epochs()
        time.sleep(rules.window_s)
        end_ns, cpu_end, epochs_end = time.time_ns(), stage.cpu_s(copier=copier.pids), copier.epochs()
        copier.check_alive()
        stop_producing.set()
        produced = _answer(sent, "the producer").recv()
        sends.join(_END_WITHIN_S)
        stop_consuming.set()
        stamps = array("Q")
        stamps.frombytes(_answer(seen, "the consumer").recv_bytes())
        receives.join(_END_WITHIN_S)
    if produced["failed"]:
        raise BenchError(f"{produced['failed']} records of {topic} were not acknowledged by the source")
    latencies = latencies_ms(stamps, start_ns, end_ns)
    if not latencies:
        raise BenchError(f"{copier.name}: no record of the window arrived")
    millions = len(latencies) / 1e6
    different = len(set(stamps[1::3]))
    return Steady(
        records=len(latencies),
        p50_ms=percentile(latencies, 50),
        p99_ms=percentile(latencies, 99),
        max_ms=latencies[-1],
        copier_cpu_s_per_million=(cpu_end["copier"] - cpu["copier"]) / millions,
        broker_cpu_s_per_million=(cpu_end["brokers"] - cpu["brokers"]) / millions,
        epoch_borders=sum(epoch - epochs[lease] for lease, epoch in epochs_end.items() if lease in epochs),
        lost=produced["sent"] - different,
        repeated=len(stamps) // 3 - different,
    )


def latencies_ms(stamps: Sequence[int], start_ns: int, end_ns: int) -> list[float]:
    """Ascending latencies of the records sent in ``[start_ns, end_ns)``; the first delivery of each counts.

    Args:
        stamps: sent, number and received of each record, flat.
        start_ns: where the window begins, ns since 1970.
        end_ns: where it ends.
    """
    first: dict[int, float] = {}
    for place in range(0, len(stamps), 3):
        sent, number, received = stamps[place : place + 3]
        if start_ns <= sent < end_ns:
            first.setdefault(number, (received - sent) / _NS_PER_MS)
    return sorted(first.values())


def _child(
    context: Any, work: Callable[..., None], settings: dict[str, Any], stop: Any, clean_up: ExitStack
) -> tuple[Any, Connection]:
    here, there = context.Pipe()
    process = context.Process(target=work, args=(settings, there, stop), daemon=True)
    process.start()
    there.close()

    def end() -> None:
        if process.is_alive():
            process.kill()
        process.join()

    clean_up.callback(end)
    return process, here


def _answer(connection: Connection, who: str) -> Connection:
    try:
        ready = connection.poll(_END_WITHIN_S)
    except (EOFError, OSError) as error:
        raise BenchError(f"{who} of the stream ended: {error!r}") from error
    if not ready:
        raise BenchError(f"{who} of the stream did not finish within {_END_WITHIN_S:.0f} s")
    return connection
