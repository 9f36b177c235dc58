"""A steady stream through a copier: how late each record is seen on the other side."""

from __future__ import annotations

import multiprocessing
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from lab.bench import BenchError
from lab.bench.budget import Steps
from lab.bench.report import Measure, Round, percentile, slug
from lab.bench.rows import CPU_UNIT, BenchPlace, BenchSettings, Play, Row
from lab.bench.rows.stream import consume_steadily, produce_steadily
from lab.bench.sides import WITH_EXACTLY_ONCE, Copier, CopierOptions, Side, is_parallax

_FIRST_RECORD_WITHIN_S = 600.0
_END_WITHIN_S = 300.0
_LINGER_S = 3.0
_AROUND_S = 18.0
"""What starting, stopping and reading to the end take, for the plan of the time."""
_NS_PER_MS = 1e6


@dataclass(frozen=True)
class SteadyRow(Row):
    """Latency of a steady stream.

    Attributes:
        sides: who takes part.
        per_s: records a second over all partitions.
        warm_s: after the first record seen, this long is not counted.
        window_s: this long is.
        value_bytes: of each record.
        partitions: of the topic.
        lease_epoch_s: Parallax's, so short that an epoch border lies in the window.
        round_trip_ms: how far away the source is (`BenchPlace`).
        once: one round is enough: its figures come from so many records.
    """

    sides: tuple[Side, ...] = WITH_EXACTLY_ONCE
    per_s: int = 2_000
    warm_s: float = 5.0
    window_s: float = 60.0
    value_bytes: int = 170
    partitions: int = 4
    lease_epoch_s: int = 25
    round_trip_ms: float | None = None
    once: bool = False

    @property
    def place(self) -> BenchPlace:
        """One region."""
        return BenchPlace(round_trip_ms=self.round_trip_ms)

    def steps(self, settings: BenchSettings) -> Steps:
        """One step: most of it is the window."""
        lives = len(self.sides) * (1 if self.once else settings.rounds)
        return {self.name: lives * (_AROUND_S + self.warm_s + self.window_s)}

    def play(self, play: Play) -> None:
        """Let the sides take turns."""
        row = replace(self, warm_s=2.0, window_s=8.0, lease_epoch_s=5) if play.settings.smoke else self
        for number in range(1, 1 + (1 if self.once else play.settings.rounds)):
            for side in self.sides:
                if not play.store.has(side, number):
                    play.tell(f"{self.name}: round {number}, {side}")
                    with play.budget.step(self.name):
                        _round(row, play, side, number)


@dataclass(frozen=True, slots=True)
class Steady:
    """What a stream showed.

    Attributes:
        records: sent in the window.
        p50_ms, p99_ms, max_ms: from a record's timestamp (taken as it is handed to the producer) to its being seen by
            a read_committed consumer of the target.
        copier_cpu: CPU seconds per million records of the copier's whole process tree, in the window.
        broker_cpu: of all brokers.
        epoch_borders: lease epochs that began in the window (Parallax only).
        lost, repeated: records of the whole stream that never arrived, or more than once.
    """

    records: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    copier_cpu: float
    broker_cpu: float
    epoch_borders: int
    lost: int
    repeated: int


def stream_through(row: SteadyRow, play: Play, side: Side, topic: str) -> Steady:
    """One stream through a side that is started for it, and what it showed.

    Raises:
        BenchError: something did not work.
    """
    stage = play.stage
    stage.create_topic("regional-a", topic, row.partitions)
    options = CopierOptions(
        tuning="latency",
        replicator={"lease_epoch_s": row.lease_epoch_s} if is_parallax(side) else {},
        bootstrap=stage.far_bootstrap(),
    )
    copier = Copier(stage, side, [topic], options)
    try:
        found = _steady(row, play, copier, topic)
    except (EOFError, OSError) as error:
        raise BenchError(
            f"{copier.name}: the producer or the consumer of the stream ended: {error!r}"
        ) from error
    for cluster in ("regional-a", "aggregate-a"):
        stage.delete_topics(cluster, [topic])
    copier.clean_up()
    return found


def _round(row: SteadyRow, play: Play, side: Side, number: int) -> None:
    found = stream_through(row, play, side, f"stream-{slug(row.name)}-{side.replace('_', '-')}-{number}")
    play.tell(f"{side}: p50 {found.p50_ms:.1f} ms, p99 {found.p99_ms:.1f} ms, max {found.max_ms:.1f} ms")
    measures = (
        Measure(f"{row.name}: latency p50", "ms", "lower", found.p50_ms),
        Measure(f"{row.name}: latency p99", "ms", "lower", found.p99_ms),
        Measure(f"{row.name}: latency max", "ms", "lower", found.max_ms),
        Measure(f"{row.name}: copier's CPU", CPU_UNIT, "lower", found.copier_cpu),
        Measure(f"{row.name}: brokers' CPU", CPU_UNIT, "lower", found.broker_cpu),
        Measure(f"{row.name}: lost", "records", "lower", found.lost),
        Measure(f"{row.name}: repeated", "records", "lower", found.repeated),
        Measure(f"{row.name}: epoch borders in the window", "borders", "none", found.epoch_borders),
    )
    play.store.add(Round(side, number, measures, asdict(found)))


def _steady(row: SteadyRow, play: Play, copier: Copier, topic: str) -> Steady:
    """Send the stream through a copier that is started for it."""
    stage = play.stage
    context = multiprocessing.get_context("spawn")
    with ExitStack() as clean_up:
        clean_up.callback(copier.stop)
        copier.start()
        source = stage.bootstrap("regional-a")
        common = {"topic": topic, "partitions": row.partitions}
        stop_producing, stop_consuming = context.Event(), context.Event()
        clean_up.callback(stop_producing.set)
        clean_up.callback(stop_consuming.set)
        sends, sent = _child(
            context,
            produce_steadily,
            common | {"bootstrap": source, "per_s": row.per_s, "value_bytes": row.value_bytes},
            stop_producing,
            clean_up,
        )
        copier.await_topic(topic, ["aggregate-a"])
        receives, seen = _child(
            context,
            consume_steadily,
            common | {"bootstrap": stage.bootstrap("aggregate-a"), "linger_s": _LINGER_S},
            stop_consuming,
            clean_up,
        )
        copier.await_true(lambda: seen.poll(0), _FIRST_RECORD_WITHIN_S, "no record was seen")
        seen.recv_bytes()
        # Time has to pass here: what the copier does in it is what is measured.
        time.sleep(row.warm_s)
        play.tell(f"{copier.name}: warm, measuring for {row.window_s:.0f} s")
        start_ns, cpu, epochs = time.time_ns(), stage.cpu_s(copier=copier.pids), copier.epochs()
        time.sleep(row.window_s)
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
        copier_cpu=(cpu_end["copier"] - cpu["copier"]) / millions,
        broker_cpu=(cpu_end["brokers"] - cpu["brokers"]) / millions,
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
    if not connection.poll(_END_WITHIN_S):
        raise BenchError(f"{who} of the stream did not finish within {_END_WITHIN_S:.0f} s")
    return connection
