"""What the proof takes away: the Spark application in the middle of a transaction, and Cassandra with all that it holds."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lab.stack.java import find_java
from lab.stack.layout import SPARK
from lab.stack.services import apply_schema
from lab.workload.playing import Stack
from lab.workload.topics import EndOffsets
from lab.workload.worker import WorkerError, wait_until

_TRIES = 20
_DECIDED_S = 1.0
"""A commit that was asked for before Spark stood still has been written by then."""
_BETWEEN_S = 0.3
_OPEN_WITHIN_S = 30.0
_ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill that left transactions unfinished.

    Attributes:
        at_ms: when Spark stood still, to be killed: milliseconds since the Unix epoch.
        stable_ends: by cluster and partition: the last stable offset, where it was held below the high watermark.
        tries: how often Spark stood still until it was in a transaction.
    """

    at_ms: int
    stable_ends: Mapping[str, Mapping[int, int]]
    tries: int


def kill_in_transaction(stack: Stack, ends: Mapping[str, EndOffsets], remark: Callable[[str], None]) -> Kill:
    """Kill the Spark application with SIGKILL while an aggregate cluster has an open transaction.

    A transaction that is seen open may be committed before a kill comes, and the records may be over before the application is
    back for another one. So it is frozen first, and killed if the transaction is open still; if not, it goes on. After the
    kill it is started again.

    Raises:
        WorkerError: it never stood still in a transaction, none was ever open, or a cluster did not answer.
    """
    for number in range(1, _TRIES + 1):
        wait_until(
            lambda: any(_held(cluster, asked) for cluster, asked in ends.items()),
            _OPEN_WITHIN_S,
            f"no transaction was open for {_OPEN_WITHIN_S:.0f} s: are the producers at work?",
        )
        at_ms = int(time.time() * 1_000)
        stack.freeze(SPARK)
        time.sleep(_DECIDED_S)
        held = {cluster: _held(cluster, asked) for cluster, asked in ends.items()}
        held = {cluster: partitions for cluster, partitions in held.items() if partitions}
        if held:
            stack.kill(SPARK)
            remark(f"Spark killed; unfinished transactions hold {_told(held)}")
            stack.start(SPARK)
            remark("Spark is back")
            return Kill(at_ms, held, number)
        stack.start(SPARK)
        time.sleep(_BETWEEN_S)
    raise WorkerError(f"Spark stood still {_TRIES} times, and never in a transaction")


def lose_store(stack: Stack, remark: Callable[[str], None]) -> None:
    """Kill Cassandra, delete its files, start it empty and make its tables; replicators live on meanwhile.

    Region b's offset service begins anew, and knows only what is in those tables; region a's has what it remembers.

    Raises:
        StackError: it did not come up again, or the tables could not be made.
    """
    layout = stack.layout
    for node in layout.spec.cassandra_nodes:
        stack.kill(node)
        shutil.rmtree(layout.storage_path(node))
        stack.start(node)
    apply_schema(layout, find_java())
    stack.kill("offsetsvc-b")
    stack.start("offsetsvc-b")
    remark("Cassandra was lost with all that it held, and its tables were made anew")


def _held(cluster: str, ends: EndOffsets) -> dict[int, int]:
    high, stable = ends.ask(within_s=_ANSWER_S), ends.ask(committed=True, within_s=_ANSWER_S)
    if high is None or stable is None:
        raise WorkerError(f"{cluster} does not answer")
    return {partition: offset for partition, offset in stable.items() if offset < high[partition]}


def _told(held: Mapping[str, Mapping[int, int]]) -> str:
    parts = [f"{len(partitions)} partitions of {cluster}" for cluster, partitions in held.items()]
    return " and ".join(parts)
