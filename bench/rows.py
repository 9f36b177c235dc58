"""The rows of the main and of the full set: what is run, with which data and which settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bench.batches import Shape
from bench.copiers import CopierOptions, Side
from bench.redelivery import MoveRules
from bench.steady import SteadyRules

BOTH: tuple[Side, ...] = ("parallax", "mirrormaker2")
ALL: tuple[Side, ...] = (*BOTH, "mirrormaker2_exactly_once")

JSON_128K = "170 B JSON, lz4, 128 KiB batches"
JSON_4K = "170 B JSON, lz4, 4 KiB batches"
FAR_ROUND_TRIP_MS = 80.0

SHAPES: Mapping[str, Shape] = {
    JSON_128K: Shape(),
    JSON_4K: Shape(batch_bytes=4_096, variants=256),
    "10 KiB JSON, lz4, 128 KiB batches": Shape(value_bytes=10_240),
    "170 B JSON, uncompressed, 128 KiB batches": Shape(compression="none"),
    "170 B JSON, lz4, batches of 1 record": Shape(batch_records=1, variants=256),
    "170 B JSON, lz4, batches of 5 records": Shape(batch_records=5, variants=256),
}
"""Data sets by name."""


@dataclass(frozen=True, slots=True)
class CatchUpRow:
    """Throughput of catching up, on one data set after another in one topic.

    Attributes:
        name: of the row.
        data: names of data sets.
        sides: who takes part.
        partitions: of the topic.
        routes: (source region, target region).
        far: the source is 80 ms away.
        limit: measure the target broker's limit as well.
    """

    name: str
    data: tuple[str, ...]
    sides: tuple[Side, ...] = ALL
    partitions: int = 4
    routes: tuple[tuple[str, str], ...] = (("a", "a"),)
    far: bool = False
    limit: bool = False
    kind: Literal["catch-up"] = "catch-up"


@dataclass(frozen=True, slots=True)
class SteadyRow:
    """Latency of a steady stream.

    Attributes:
        name: of the row.
        rules: the stream.
        sides: who takes part.
        lease_epoch_s: Parallax's, so short that an epoch border lies in the window.
        far: the source is 80 ms away.
    """

    name: str
    rules: SteadyRules
    sides: tuple[Side, ...] = ALL
    lease_epoch_s: int = 25
    far: bool = False
    kind: Literal["steady"] = "steady"


@dataclass(frozen=True, slots=True)
class MoveRow:
    """Redelivery and loss when a group moves."""

    name: str
    rules: MoveRules
    kind: Literal["move"] = "move"


@dataclass(frozen=True, slots=True)
class FreshnessRow:
    """From a group's commit to its translated offset in the other cluster; ``commits`` of each side."""

    name: str
    commits: int = 20
    kind: Literal["freshness"] = "freshness"


@dataclass(frozen=True, slots=True)
class AnswersRow:
    """`GetFailoverOffset` on one core; MirrorMaker 2 has nothing like it.

    Attributes:
        name: of the row.
        runs: in the index.
        seconds: of asking as fast as possible, and again at half of that rate.
    """

    name: str
    runs: int = 1_000_000
    seconds: float = 20.0
    kind: Literal["answers"] = "answers"


Row = CatchUpRow | SteadyRow | MoveRow | FreshnessRow | AnswersRow

MAIN: tuple[Row, ...] = (
    MoveRow("a group moves, one source", MoveRules({"a": 10_000}, {"a": 0.5})),
    CatchUpRow("catch-up", (JSON_128K, JSON_4K), sides=BOTH, limit=True),
    SteadyRow("2,000 records/s", SteadyRules(), sides=BOTH),
)
"""`make bench`."""

_SHORT = SteadyRules(window_s=30.0)

_FULL: dict[str, Row] = {
    "large-records": CatchUpRow("10 KiB records", ("10 KiB JSON, lz4, 128 KiB batches",)),
    "uncompressed": CatchUpRow("uncompressed", ("170 B JSON, uncompressed, 128 KiB batches",)),
    "single-records": CatchUpRow("batches of 1 record", ("170 B JSON, lz4, batches of 1 record",)),
    "five-records": CatchUpRow("batches of 5 records", ("170 B JSON, lz4, batches of 5 records",)),
    "exactly-once": CatchUpRow("catch-up against exactly-once", (JSON_128K, JSON_4K), limit=True),
    "steady-20000": SteadyRow("20,000 records/s", replace(_SHORT, per_s=20_000)),
    "far-catch-up": CatchUpRow("source 80 ms away", (JSON_128K,), far=True),
    "far-steady": SteadyRow("2,000 records/s, source 80 ms away", _SHORT, sides=BOTH, far=True),
    "moves-1-1": MoveRow(
        "a group moves, two sources 1:1", MoveRules({"a": 10_000, "b": 10_000}, {"a": 0.1, "b": 1.0})
    ),
    "moves-1-100": MoveRow(
        "a group moves, two sources 100:1", MoveRules({"a": 10_000, "b": 100}, {"a": 0.1, "b": 1.0})
    ),
    "moves-1-idle": MoveRow(
        "a group moves, one of two sources idle",
        MoveRules({"a": 10_000, "b": 100}, {"a": 0.1, "b": 1.0}, idle=("b",)),
    ),
    "answers": AnswersRow("GetFailoverOffset, three sources, a million runs"),
    "freshness": FreshnessRow("a commit's way to the other cluster"),
    **{
        f"partitions-{count}": SteadyRow(
            f"2,000 records/s over {count} partitions", replace(_SHORT, partitions=count), sides=BOTH
        )
        for count in (4, 40, 400)
    },
    "routes-1": CatchUpRow("one route", (JSON_128K,), sides=BOTH),
    "routes-2": CatchUpRow("two routes", (JSON_128K,), sides=BOTH, routes=(("a", "a"), ("a", "b"))),
    "routes-4": CatchUpRow(
        "four routes", (JSON_128K,), sides=BOTH, routes=(("a", "a"), ("b", "a"), ("a", "b"), ("b", "b"))
    ),
}

FULL: Mapping[str, Row] = _FULL
"""`make bench-full ROW=name`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for a whole run.

    Attributes:
        rounds: of rows that are timed.
        copy_path: Parallax's path; None: its default.
        smoke: tiny data and short windows: shows that everything works, and no figure of it counts.
        replicator: further settings of Parallax's section `replicator`.
    """

    rounds: int
    copy_path: Literal["batch", "record"] | None = None
    smoke: bool = False
    replicator: Mapping[str, Any] = field(default_factory=dict)

    def replicator_settings(self, **more: Any) -> dict[str, Any]:
        """Parallax's settings for a row."""
        path = {} if self.copy_path is None else {"copy_path": self.copy_path}
        return {**path, **self.replicator, **more}


def options_of(
    row: CatchUpRow | SteadyRow, settings: Settings, far_bootstrap: Mapping[str, str]
) -> CopierOptions:
    """How both sides run a row.

    Args:
        row: the row.
        settings: of the whole run.
        far_bootstrap: the far addresses of source clusters.
    """
    source_bootstrap = far_bootstrap if row.far else {}
    if isinstance(row, SteadyRow):
        return CopierOptions(
            tuning="latency",
            replicator=settings.replicator_settings(lease_epoch_s=row.lease_epoch_s),
            source_bootstrap=source_bootstrap,
        )
    return CopierOptions(
        routes=row.routes,
        compression=SHAPES[row.data[0]].compression,
        replicator=settings.replicator_settings(),
        source_bootstrap=source_bootstrap,
    )
