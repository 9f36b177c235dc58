"""A load that is raised until the machine carries no more of it, and three quarters of that, which is what to plan with.

Everything is on one machine here: producer, brokers, copier, store and consumer. What it carries is what all of them do together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import count

from lab.bench.report import Measure, Round, slug
from lab.bench.rows import Play, Row
from lab.bench.rows.steady import Steady, SteadyRow, stream_through
from lab.bench.sides import BOTH, Side

PLANNED_SHARE = 0.75
"""The rest is for catching up, and for peaks."""
CARRIED_P99_MS = 1_000.0
"""A load is carried whose records arrive so soon: where they don't, each second leaves more behind than the one before."""
_SENT_SHARE = 0.95
"""Of a load, that has to be sent for it to be one."""
_HALVINGS = 2


def carries(per_s: int, window_s: float, found: Steady) -> bool:
    """Whether a load was carried."""
    sent = found.records >= _SENT_SHARE * per_s * window_s
    return sent and found.p99_ms <= CARRIED_P99_MS and not found.lost


def most_carried(carried: Callable[[int], bool], first_per_s: int, most_per_s: int) -> int:
    """The greatest load that was carried, to a quarter of the step from it to the next; 0: not even the first.

    Args:
        carried: tries a load, records/s.
        first_per_s: where to begin; it is doubled until a load is not carried.
        most_per_s: no more than that is tried.
    """
    good, bad = 0, first_per_s
    while bad <= most_per_s and carried(bad):
        good, bad = bad, 2 * bad
    if not good or bad > most_per_s:
        return good
    for _ in range(_HALVINGS):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if carried(middle) else (good, middle)
    return good


@dataclass(frozen=True)
class LoadRow(Row):
    """What is carried, and how it is at three quarters of that.

    Attributes:
        sides: who takes part.
        first_per_s, most_per_s: records/s, where raising begins and ends.
        window_s: each load is watched for so long once it is warm.
        partitions: of each topic.
    """

    sides: tuple[Side, ...] = BOTH
    first_per_s: int = 10_000
    most_per_s: int = 320_000
    window_s: float = 15.0
    partitions: int = 8

    def play(self, play: Play) -> None:
        """Each side once: it takes many loads."""
        first, most, window_s = self.first_per_s, self.most_per_s, self.window_s
        if play.settings.smoke:
            first, most, window_s = 1_000, 1_000, 4.0
        for side in self.sides:
            if not play.store.has(side, 1):
                play.store.add(self._round(play, side, first, most, window_s))

    def _round(self, play: Play, side: Side, first_per_s: int, most_per_s: int, window_s: float) -> Round:
        tries = count()

        def at(per_s: int) -> Steady:
            row = SteadyRow(self.name, per_s=per_s, window_s=window_s, partitions=self.partitions)
            topic = f"{slug(self.name)}-{side.replace('_', '-')}-{next(tries)}"
            found = stream_through(row, play, side, topic)
            play.tell(f"{side}: {per_s:,} records/s: p99 {found.p99_ms:,.0f} ms")
            return found

        carried = most_carried(lambda per_s: carries(per_s, window_s, at(per_s)), first_per_s, most_per_s)
        planned = int(PLANNED_SHARE * carried)
        measures = [
            Measure(f"{self.name}: carried", "records/s", "higher", carried),
            Measure(f"{self.name}: to plan with", "records/s", "higher", planned),
        ]
        found = at(planned) if planned else None
        if found is not None:
            per_s = found.records / window_s / 1e6
            measures += [
                Measure(f"{self.name}: latency p50 at that", "ms", "lower", found.p50_ms),
                Measure(f"{self.name}: latency p99 at that", "ms", "lower", found.p99_ms),
                Measure(f"{self.name}: copier's cores at that", "cores", "lower", found.copier_cpu * per_s),
                Measure(f"{self.name}: brokers' cores at that", "cores", "lower", found.broker_cpu * per_s),
            ]
        details = {"carried_per_s": carried, "planned_per_s": planned, "at_that": found and asdict(found)}
        return Round(side, 1, tuple(measures), details)
