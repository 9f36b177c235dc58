"""Killing the Spark application in the middle of a transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lab.stack.layout import SPARK
from lab.workload.playing import Stack
from lab.workload.topics import EndOffsets
from lab.workload.worker import WorkerError, wait_until

_TRIES = 6
_BETWEEN_S = 0.7
"""After a kill that proved nothing the application copies on for a moment before the next."""
_OPEN_WITHIN_S = 30.0
_ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill that left transactions unfinished.

    Attributes:
        at_ms: when, milliseconds since the Unix epoch.
        stable_ends: by cluster and partition: the last stable offset, where it was held below the high watermark.
        tries: kills before this one that hit no transaction, and this one.
    """

    at_ms: int
    stable_ends: Mapping[str, Mapping[int, int]]
    tries: int


def kill_in_transaction(stack: Stack, ends: Mapping[str, EndOffsets], remark: Callable[[str], None]) -> Kill:
    """Kill the Spark application with SIGKILL while an aggregate cluster has an open transaction.

    A transaction that was open may have been committed before the kill came. Such a kill proves nothing: the
    application is started again, and killed again. After the kill that counts it is started as well.

    Raises:
        WorkerError: no kill hit a transaction, none was ever open, or a cluster did not answer.
    """
    for number in range(1, _TRIES + 1):
        wait_until(
            lambda: any(_held(cluster, asked) for cluster, asked in ends.items()),
            _OPEN_WITHIN_S,
            f"no transaction was open for {_OPEN_WITHIN_S:.0f} s: are the producers at work?",
        )
        at_ms = int(time.time() * 1_000)
        stack.kill(SPARK)
        held = {cluster: _held(cluster, asked) for cluster, asked in ends.items()}
        held = {cluster: partitions for cluster, partitions in held.items() if partitions}
        remark(f"Spark killed; unfinished transactions hold {_told(held)}")
        stack.start(SPARK)
        remark("Spark is back")
        if held:
            return Kill(at_ms, held, number)
        time.sleep(_BETWEEN_S)
    raise WorkerError(f"none of {_TRIES} kills hit an open transaction")


def _held(cluster: str, ends: EndOffsets) -> dict[int, int]:
    high, stable = ends.ask(within_s=_ANSWER_S), ends.ask(committed=True, within_s=_ANSWER_S)
    if high is None or stable is None:
        raise WorkerError(f"{cluster} does not answer")
    return {partition: offset for partition, offset in stable.items() if offset < high[partition]}


def _told(held: Mapping[str, Mapping[int, int]]) -> str:
    parts = [f"{len(partitions)} partitions of {cluster}" for cluster, partitions in held.items()]
    return " and ".join(parts) or "nothing"
