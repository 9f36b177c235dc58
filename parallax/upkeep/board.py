"""What is in step and what is not, for the status of the process that keeps it: metrics, JSON, and lines for /readyz."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from parallax.adapters.spark.status_part import SidePart
from parallax.domain.ids import ClusterName

PREFIX = "parallax_upkeep_"
MOST_TOLD = 20
"""Lines for /readyz; all are counted, and all are in /status."""


class UpkeepRow(Protocol):
    """Something that is not, or was not, in step."""

    @property
    def applied(self) -> bool:
        """Whether it was put in step."""

    @property
    def state(self) -> str:
        """How it is."""

    def to_json(self) -> dict[str, Any]:
        """It as JSON types."""

    def line(self) -> str:
        """It for people."""


@dataclass
class _Kept:
    """One kind of upkeep at one target."""

    good_at_s: float | None = None
    problem: str = ""
    changes: int = 0
    rows: Sequence[UpkeepRow] = field(default_factory=tuple)

    def take(self, rows: Sequence[UpkeepRow]) -> None:
        """Take in a round's rows."""
        self.changes += sum(row.applied for row in rows)
        self.rows = [row for row in rows if not row.applied]


class UpkeepBoard(SidePart):
    """The newest rounds: a part of the replicator's status. Safe to use from several threads.

    Args:
        states: by kind of upkeep, the words of what may not be in step.
        clock: seconds, monotonic.
    """

    name = "upkeep"

    def __init__(
        self, states: Mapping[str, Sequence[str]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._states = states
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, ClusterName], _Kept] = {}

    def expect(self, kind: str, cluster: ClusterName) -> None:
        """Count the upkeep as one that is kept, from now on."""
        with self._lock:
            self._kept.setdefault((kind, cluster), _Kept())

    def good(self, kind: str, cluster: ClusterName, rows: Sequence[UpkeepRow]) -> None:
        """Take in a round that came to its end."""
        with self._lock:
            kept = self._kept[kind, cluster]
            kept.good_at_s, kept.problem = self._clock(), ""
            kept.take(rows)

    def changed(self, kind: str, cluster: ClusterName, rows: Sequence[UpkeepRow]) -> None:
        """Take in what a round has done and found, whether it came to its end or not."""
        with self._lock:
            self._kept[kind, cluster].take(rows)

    def failed(self, kind: str, cluster: ClusterName, problem: str) -> None:
        """Take in a round that did not."""
        with self._lock:
            self._kept[kind, cluster].problem = problem

    def troubles(self) -> Sequence[str]:
        """What is not in step, and rounds that failed."""
        with self._lock:
            failed = [
                f"{kind} of {cluster}: {kept.problem}"
                for (kind, cluster), kept in self._kept.items()
                if kept.problem
            ]
            told = [row.line() for kept in self._kept.values() for row in kept.rows]
        more = [f"and {len(told) - MOST_TOLD} more, in /status"] if len(told) > MOST_TOLD else []
        return [*failed, *told[:MOST_TOLD], *more]

    def state(self) -> dict[str, Any]:
        """The board as JSON types, under its name."""
        with self._lock:
            return {
                self.name: [
                    {
                        "kind": kind,
                        "cluster": cluster,
                        "last_good_round_age_ms": self._age_ms(kept),
                        "problem": kept.problem,
                        "changes": kept.changes,
                        "not_in_step": [row.to_json() for row in kept.rows],
                    }
                    for (kind, cluster), kept in self._kept.items()
                ]
            }

    def _age_ms(self, kept: _Kept) -> int | None:
        return None if kept.good_at_s is None else round((self._clock() - kept.good_at_s) * 1_000)

    def collect(self) -> Iterator[Metric]:
        """Every metric with its samples."""
        labels = ("kind", "cluster")
        changes = CounterMetricFamily(
            f"{PREFIX}changes_total",
            "Settings, and rules of access, that were changed at the target.",
            labels=labels,
        )
        age = GaugeMetricFamily(
            f"{PREFIX}last_good_round_age_seconds",
            "How long ago the last round came to its end; none did: no sample.",
            labels=labels,
        )
        out = GaugeMetricFamily(
            f"{PREFIX}not_in_step",
            "What the last round found not in step and left so, by state.",
            labels=(*labels, "state"),
        )
        with self._lock:
            for (kind, cluster), kept in self._kept.items():
                changes.add_metric((kind, cluster), kept.changes)
                age_ms = self._age_ms(kept)
                if age_ms is not None:
                    age.add_metric((kind, cluster), age_ms / 1_000)
                counts = Counter(row.state for row in kept.rows)
                for state in self._states[kind]:
                    out.add_metric((kind, cluster, state), counts[state])
        yield from (changes, age, out)
