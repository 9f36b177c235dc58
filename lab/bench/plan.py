"""The rows of the main and of the full set."""

from __future__ import annotations

from collections.abc import Mapping

from lab.bench.rows import Row
from lab.bench.rows.answers import AnswersRow
from lab.bench.rows.catch_up import JSON_4K, JSON_128K, CatchUpRow
from lab.bench.rows.freshness import FreshnessRow
from lab.bench.rows.load import LoadRow
from lab.bench.rows.many_groups import ManyGroupsRow
from lab.bench.rows.memory import MemoryRow
from lab.bench.rows.moves import MoveRow
from lab.bench.rows.operators import OperatorsRow
from lab.bench.rows.start import StartRow
from lab.bench.rows.steady import SteadyRow
from lab.bench.rows.sync_groups import SyncGroupsRow
from lab.bench.sides import (
    BOTH,
    WITH_OWN_RECORDS,
    WITH_PACES,
    WITH_PLAIN_TEXT,
    WITH_PREPARED,
    WITH_RECORD_PATH,
)

_WINDOW_S = 30.0

MAIN: tuple[Row, ...] = (
    MoveRow("a group moves, one source", {"a": 10_000}, {"a": 0.5}),
    # Five rounds of eight seconds: forty warm seconds of each side on each data set (README.md).
    CatchUpRow("catch-up", (JSON_128K, JSON_4K), sides=BOTH, limit=True, window_s=8.0),
    # A minute of 2,000 records/s is 120,000 latencies, and holds borders of lease epochs.
    SteadyRow("2,000 records/s", sides=BOTH, window_s=60.0, once=True),
)
"""`make bench`."""


def _tiny(name: str, data: str, records_per_s: float) -> CatchUpRow:
    """A row of tiny batches: a request may bring one to each partition, so many partitions are filled sooner."""
    return CatchUpRow(
        name,
        (data,),
        sides=BOTH,
        partitions=64,
        window_s=8.0,
        shared_records_per_s=records_per_s,
    )


FULL: Mapping[str, Row] = {
    "large-records": CatchUpRow("10 KiB records", ("10 KiB JSON, lz4, 128 KiB batches",)),
    "uncompressed": CatchUpRow("uncompressed", ("170 B JSON, uncompressed, 128 KiB batches",)),
    "exactly-once": CatchUpRow("128 KiB batches, both peers"),
    # The record path beside the batch path: where the border lies.
    "paths-128k": CatchUpRow("128 KiB batches, both paths", sides=WITH_RECORD_PATH),
    "paths-4k": CatchUpRow("4 KiB batches, both paths", (JSON_4K,), sides=WITH_RECORD_PATH),
    "five-records": _tiny("batches of 5 records", "170 B JSON, lz4, batches of 5 records", 1_000_000.0),
    "single-records": _tiny("batches of 1 record", "170 B JSON, lz4, batches of 1 record", 600_000.0),
    "steady-2000": SteadyRow("2,000 records/s, both peers", window_s=_WINDOW_S),
    "steady-20000": SteadyRow("20,000 records/s", per_s=20_000, window_s=_WINDOW_S),
    "paces": SteadyRow("2,000 records/s, each pace", sides=WITH_PACES, window_s=_WINDOW_S),
    # Two-way on the same names: what a record waits for until it is known that no route has brought it.
    "own-records": SteadyRow("2,000 records/s, own records", sides=WITH_OWN_RECORDS, window_s=_WINDOW_S),
    # Sources and targets over TLS on both sides; Parallax in plain text besides, on the same brokers.
    "tls-catch-up": CatchUpRow("over TLS, 128 KiB batches", sides=WITH_PLAIN_TEXT, tls=True),
    # What the proxy itself costs.
    "proxied-catch-up": CatchUpRow("source behind the same proxy, no way off", sides=BOTH, round_trip_ms=0.0),
    "far-catch-up": CatchUpRow("source 80 ms away", round_trip_ms=80.0),
    "far-steady": SteadyRow(
        "2,000 records/s, source 80 ms away", sides=BOTH, window_s=_WINDOW_S, round_trip_ms=80.0
    ),
    "moves-1-1": MoveRow("a group moves, two sources 1:1", {"a": 10_000, "b": 10_000}, {"a": 0.1, "b": 1.0}),
    "moves-1-100": MoveRow("a group moves, two sources 100:1", {"a": 10_000, "b": 100}, {"a": 0.1, "b": 1.0}),
    "moves-1-idle": MoveRow(
        "a group moves, one of two sources idle", {"a": 10_000, "b": 100}, {"a": 0.1, "b": 1.0}, idle=("b",)
    ),
    "many-groups": ManyGroupsRow("50 groups of 10 partitions move"),
    "thousand-groups": ManyGroupsRow("1,000 groups of 10 partitions move", groups=1_000),
    "sync-groups": SyncGroupsRow("10,000 groups of 10 partitions are synced"),
    "start": StartRow("start of the process to first record", sides=WITH_PREPARED),
    "freshness": FreshnessRow("a commit's way to the other cluster"),
    **{
        f"partitions-{count}": SteadyRow(
            f"2,000 records/s over {count} partitions", sides=BOTH, window_s=_WINDOW_S, partitions=count
        )
        for count in (4, 40, 400)
    },
    "load": LoadRow("a load that is raised"),
    "routes-1": CatchUpRow("one route", sides=BOTH),
    "routes-2": CatchUpRow("two routes", sides=BOTH, routes=(("a", "a"), ("a", "b"))),
    "routes-4": CatchUpRow(
        "four routes", sides=BOTH, routes=(("a", "a"), ("b", "a"), ("a", "b"), ("b", "b"))
    ),
    "memory": MemoryRow("10 GB of backlog in 400 partitions"),
    "answers": AnswersRow("GetFailoverOffset, three sources, a million runs"),
    "operators": OperatorsRow("10,000 groups, two routes of 10,000 partitions"),
}
"""`make bench-full ROW=name`."""
