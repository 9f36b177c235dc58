"""Rounds as they were measured, kept in files, and the report that is made of them."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Self

import psutil

LEAST_MIRRORMAKER_RECORDS_PER_S = 150_000.0
"""Slower than this on the first data set, MirrorMaker 2 did not have the machine to itself."""

LIMIT = "limit"
"""The side that stands for the broker's own speed."""

Better = Literal["higher", "lower", "none"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of one round.

    Attributes:
        name: of the figure; the report has a row of that name.
        unit: of its value.
        better: which direction is good.
        value: the figure.
    """

    name: str
    unit: str
    better: Better
    value: float


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one side.

    Attributes:
        side: who was measured; ``limit`` for the broker's own speed.
        number: from 1.
        measures: what came out.
        details: more about it, for people.
    """

    side: str
    number: int
    measures: tuple[Measure, ...]
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of ``asdict``."""
        measures = tuple(Measure(**item) for item in values["measures"])
        return cls(values["side"], values["number"], measures, values["details"])


class RoundStore:
    """The rounds of one row, in a file that is replaced with each further one.

    Rounds of another definition (another commit, other settings) are forgotten: figures of different things are never
    mixed.

    Args:
        directory: of all rounds.
        row: its name.
        definition: everything that the figures depend on, as JSON values.
        resume: go on with the rounds that are there.
    """

    def __init__(self, directory: Path, row: str, definition: Mapping[str, Any], *, resume: bool) -> None:
        self._path = directory / f"{slug(row)}.json"
        self._row = row
        self._definition = definition
        self._fingerprint = sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()
        self.rounds: list[Round] = []
        if resume and self._path.is_file():
            document = json.loads(self._path.read_text(encoding="utf-8"))
            if document["fingerprint"] == self._fingerprint:
                self.rounds = [Round.from_json(item) for item in document["rounds"]]

    def has(self, side: str, number: int) -> bool:
        """Whether that round was measured before."""
        return any(item.side == side and item.number == number for item in self.rounds)

    def add(self, item: Round) -> None:
        """Keep a further round."""
        self.rounds.append(item)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        document = {
            "row": self._row,
            "fingerprint": self._fingerprint,
            "definition": self._definition,
            "rounds": [asdict(found) for found in self.rounds],
        }
        draft = self._path.with_suffix(".tmp")
        draft.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        draft.replace(self._path)


def slug(name: str) -> str:
    """A name as a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


@dataclass(frozen=True, slots=True)
class Spread:
    """What several rounds gave."""

    median: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value.

        Raises:
            ValueError: there is none.
        """
        if not values:
            raise ValueError("no round was measured")
        return cls(statistics.median(values), min(values), max(values))


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least ``percent`` percent of the values don't exceed.

    Args:
        ordered: values in ascending order.
        percent: above 0, at most 100.

    Raises:
        ValueError: there is no value, or no such percentile.
    """
    if not ordered:
        raise ValueError("no value")
    if not 0 < percent <= 100:  # noqa: PLR2004 - percent
        raise ValueError(f"{percent} is no percentile")
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def rows_of(rounds: Iterable[Round], *, void: bool) -> list[dict[str, Any]]:
    """The report's rows, in the order in which their figures first appeared.

    Every row has ``name``, ``unit``, ``better``, for each side that took part its spread (``median``, ``min``,
    ``max``) and values round by round, and ``ratio``: Parallax's median to MirrorMaker 2's, or to the limit where
    only the limit was measured besides; null where there is nothing to compare with, or it is 0.

    Args:
        rounds: of one or several rows of the bench.
        void: whether the machine was too busy for the figures to count.
    """
    found: dict[str, dict[str, list[Measure]]] = {}
    for item in rounds:
        for measure in item.measures:
            found.setdefault(measure.name, {}).setdefault(item.side, []).append(measure)
    return [_row(name, sides, void=void) for name, sides in found.items()]


def _row(name: str, sides: Mapping[str, Sequence[Measure]], *, void: bool) -> dict[str, Any]:
    first = next(iter(sides.values()))[0]
    values = {side: [measure.value for measure in found] for side, found in sides.items()}
    spreads = {side: Spread.of(found) for side, found in values.items()}
    row: dict[str, Any] = {"name": name, "unit": first.unit, "better": first.better}
    for side in ("parallax", "mirrormaker2", *sides):
        row[side] = asdict(spreads[side]) if side in spreads else None
    row["rounds"] = values
    ours = spreads.get("parallax")
    theirs = spreads.get("mirrormaker2") or spreads.get(LIMIT)
    row["ratio"] = ours.median / theirs.median if ours and theirs and theirs.median else None
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
