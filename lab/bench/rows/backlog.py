"""The topics that a copier catches up with: filled so that a round takes long enough, and not too long."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.bench.data.batches import PreparedBatch, mean_batch
from lab.bench.data.loading import Segment, fill
from lab.bench.rows.watch import WarmRules
from lab.bench.sides import Side, is_parallax
from lab.bench.stage import BenchStage

_SPARE_S = 2.0
_MUCH_TOO_LONG = 2.5
"""Copying the rest before the next data set then takes longer than filling anew."""
_MOST_BYTES = 6 * 2**30
_LEAST_BATCHES = 20
_PARALLAX_OF_LIMIT = 0.9
_PARALLAX_OF_BEST = 0.35
_MIRRORMAKER_OF_BEST = 0.3


@dataclass(frozen=True, slots=True)
class Need:
    """What a round of one data set needs.

    Attributes:
        seconds: how long copying shall take, warming up included.
        least_seconds: how long it must take for the round to count.
        partitions: of the topic.
        batch_records, batch_bytes: means of the data set's batches (bytes as sent).
    """

    seconds: float
    least_seconds: float
    partitions: int
    batch_records: float
    batch_bytes: float

    def records(self, records_per_s: float) -> int:
        """Records per partition at that speed of all partitions together; no more than the disk is given."""
        wanted = records_per_s * (self.seconds + _SPARE_S) / self.partitions
        most = _MOST_BYTES / self.partitions / self.batch_bytes * self.batch_records
        return math.ceil(max(min(wanted, most), _LEAST_BATCHES * self.batch_records))

    def fits(self, records: int, records_per_s: float) -> bool:
        """Whether so many records per partition, as they lie there, are enough at that speed, and not far too many."""
        wanted = self.records(records_per_s)
        least = min(wanted, records_per_s * self.least_seconds / self.partitions)
        return least <= records <= _MUCH_TOO_LONG * wanted


def first_guess(side: Side, limit_records_per_s: float, best_limit_records_per_s: float) -> float:
    """The speed to expect of a side before its first round, rather too much: that only costs time.

    The shares are those of a machine with two cores, with reserve; a round that shows them to be far off is played
    again with another backlog.

    Args:
        side: which one.
        limit_records_per_s: how fast the broker takes the data set's batches.
        best_limit_records_per_s: how fast it takes the best of the row's data sets: a side that makes batches of its
            own is not bound by the smaller ones.
    """
    if is_parallax(side):
        return max(_PARALLAX_OF_LIMIT * limit_records_per_s, _PARALLAX_OF_BEST * best_limit_records_per_s)
    return _MIRRORMAKER_OF_BEST * best_limit_records_per_s


class Backlog:
    """A topic that is copied: the row's data sets, one after another, as much of each as the speed asks for.

    Args:
        stage: the brokers.
        name: of its side, or of the row if all sides copy the same.
        sources: source clusters; each gets the same.
        partitions: of the topic.
        data: prepared batches by data set.
        rules: how long copying each data set shall take, and must take.
        rates: the speed to expect, in records/s by data set.
        shared: all sides copy the same; the fastest one's speed counts.
    """

    def __init__(
        self,
        stage: BenchStage,
        name: str,
        sources: Sequence[str],
        partitions: int,
        data: Mapping[str, Sequence[PreparedBatch]],
        rules: WarmRules,
        rates: Mapping[str, float],
        *,
        shared: bool,
    ) -> None:
        self.topic = f"backlog-{name.replace('_', '-')}"
        self.shared = shared
        self.segments: list[Segment] = []
        self._rates = dict(rates)
        self._stage, self._sources, self._partitions = stage, sources, partitions
        self._data = data
        self._needs = {
            name: Need(
                rules.warm_s + rules.window_s, rules.warm_s + rules.least_s, partitions, *mean_batch(batches)
            )
            for name, batches in data.items()
        }

    def learn(self, name: str, records_per_s: float | None) -> None:
        """Correct the speed to expect of a data set; None: it was copied before anything could be measured."""
        rate = 2 * self._rates[name] if records_per_s is None else records_per_s
        self._rates[name] = max(rate, self._rates[name]) if self.shared else rate

    @property
    def fits(self) -> bool:
        """Whether what lies there is right for the speed."""
        return bool(self.segments) and all(
            self._needs[item.name].fits(item.records, self._rates[item.name]) for item in self.segments
        )

    def fill(self) -> int:
        """Fill the topic anew unless it fits; returns the number of records written.

        Raises:
            BenchError: a broker refused something.
        """
        if self.fits:
            return 0
        parts = [
            (name, batches, self._needs[name].records(self._rates[name]))
            for name, batches in self._data.items()
        ]
        for cluster in self._sources:
            self._stage.delete_topics(cluster, [self.topic])
            self._stage.create_topic(cluster, self.topic, self._partitions)
            self.segments = fill(self._stage.bootstrap(cluster), self.topic, self._partitions, parts)
        return self.segments[-1].end * self._partitions * len(self._sources)
