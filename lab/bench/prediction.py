"""What the rows of 4 and of 40 partitions say of 400, beside what was measured there: the cost model of docs/scale.md.

python -m lab.bench.prediction [build/bench]    # of the reports of `make bench-full ROW=partitions-4`, `-40` and `-400`
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.bench import BenchError
from lab.bench.plan import FULL
from lab.bench.rows import CPU_UNIT

FEW, MORE, MANY = 4, 40, 400
WITHIN = 0.2
"""A prediction that is further off is none."""
COSTS = ("copier's CPU", "brokers' CPU")


@dataclass(frozen=True, slots=True)
class Prediction:
    """One cost over many partitions.

    Attributes:
        cost: which, in CPU seconds per million records.
        few, more: measured over 4 and 40 partitions, median of the rounds; ``measured``, over 400.
    """

    cost: str
    few: float
    more: float
    measured: float

    @property
    def predicted(self) -> float:
        """By the first two alone."""
        return by_tenfolds(MANY, self.few, self.more)

    @property
    def off(self) -> float:
        """So far off what was measured, as a share of it; negative: too low."""
        return self.predicted / self.measured - 1

    @property
    def holds(self) -> bool:
        """Whether it is near enough."""
        return abs(self.off) <= WITHIN

    def __str__(self) -> str:
        return (
            f"{self.cost}, {CPU_UNIT}: {self.few:.0f} over {FEW} partitions, {self.more:.0f} over {MORE}; "
            f"{MANY}: {self.predicted:.0f} predicted, {self.measured:.0f} measured, off by {self.off:+.0%}"
        )


def by_tenfolds(partitions: int, few: float, more: float) -> float:
    """A cost over so many partitions, if each tenfold adds the same step.

    What is paid for are batches and transactions, of which there are fewer the more partitions each of them touches.

    Args:
        partitions: at least `FEW`.
        few: the cost over `FEW` of them.
        more: over `MORE`.
    """
    return few + (more - few) * math.log(partitions / FEW) / math.log(MORE / FEW)


def predictions(directory: Path) -> list[Prediction]:
    """Each cost, by the reports in a folder of the bench.

    Raises:
        BenchError: a report is missing, or does not count.
    """
    reports = {count: _medians(directory, count) for count in (FEW, MORE, MANY)}
    return [Prediction(cost, *(reports[count][cost] for count in (FEW, MORE, MANY))) for cost in COSTS]


def _medians(directory: Path, partitions: int) -> dict[str, float]:
    name = f"partitions-{partitions}"
    path = directory / f"report-{name}.json"
    try:
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        rows = {row["name"]: row["parallax"]["median"] for row in report["rows"] if row["parallax"]}
        medians = {cost: float(rows[f"{FULL[name].name}: {cost}"]) for cost in COSTS}
    except (OSError, ValueError, KeyError) as error:
        raise BenchError(
            f"{path}: no figures of {partitions} partitions: make bench-full ROW={name}"
        ) from error
    if report["smoke"]:
        raise BenchError(f"{path}: a smoke run, of which no figure counts: make bench-full ROW={name}")
    return medians


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each prediction; the exit code is 1 where one is too far off, or can't be made."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        found = predictions(Path(given[0]) if given else Path("build/bench"))
    except BenchError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for item in found:
        sys.stdout.write(f"{item}\n")
    return 0 if all(item.holds for item in found) else 1


if __name__ == "__main__":
    sys.exit(main())
