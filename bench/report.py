"""The report: medians and spreads of every figure by side, what they compare to, and on which machine. Pure."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from bench.results import Measure, Round, by_measure
from bench.stats import Spread, ratio

LEAST_MIRRORMAKER_RECORDS_PER_S = 150_000.0
"""Slower than this on the first data set, MirrorMaker 2 did not have the machine to itself."""

LIMIT = "limit"


def rows_of(rounds: Sequence[Round], *, void: bool) -> list[dict[str, Any]]:
    """The report's rows.

    Every row has ``name``, ``unit``, ``better``, for each side that took part its spread (``median``, ``min``,
    ``max``) and values round by round, and ``ratio``: Parallax's median to MirrorMaker 2's, or to the limit where
    only the limit was measured besides; null where there is nothing to compare with, or it is 0.

    Args:
        rounds: of one or several rows of the bench.
        void: whether the machine was too busy for the figures to count.
    """
    return [_row(name, sides, void=void) for name, sides in by_measure(rounds).items()]


def _row(name: str, sides: Mapping[str, Sequence[Measure]], *, void: bool) -> dict[str, Any]:
    first = next(iter(sides.values()))[0]
    spreads = {side: Spread.of([measure.value for measure in found]) for side, found in sides.items()}
    row: dict[str, Any] = {"name": name, "unit": first.unit, "better": first.better}
    for side in ("parallax", "mirrormaker2", *sides):
        spread = spreads.get(side)
        row[side] = None if spread is None else spread.to_json()
    row["rounds"] = {side: [measure.value for measure in found] for side, found in sides.items()}
    ours = spreads.get("parallax")
    theirs = spreads.get("mirrormaker2") or spreads.get(LIMIT)
    row["ratio"] = None if ours is None or theirs is None else ratio(ours.median, theirs.median)
    if void:
        row["void"] = True
    return row


def is_void(mirrormaker_records_per_s: Sequence[float]) -> bool:
    """Whether the machine was busy, by MirrorMaker 2's rates on the first data set.

    Raises:
        ValueError: there is no rate.
    """
    return Spread.of(mirrormaker_records_per_s).median < LEAST_MIRRORMAKER_RECORDS_PER_S


def machine() -> dict[str, Any]:
    """The machine that this runs on."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_1m_5m_15m": os.getloadavg(),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return found[0] if found else platform.processor()
