"""Plays a catch-up row: fills topics to fit each side's speed, and lets the sides take turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

from bench.batches import PreparedBatch, mean_batch, prepare
from bench.catchup import CatchUpRules, CatchUpRun, catch_up
from bench.copiers import Copier, Side
from bench.loading import Segment, fill, measure_limit
from bench.report import LIMIT
from bench.results import Measure, Round, RoundStore
from bench.rows import SHAPES, CatchUpRow, Settings, options_of
from bench.sizing import Need, first_guess
from bench.stage import Stage

_LIMIT_TOPIC = "limit"
_LIMIT_WINDOWS_S = (3.0, 2.0, 2.0, 2.0, 2.0, 2.0)
_LIMIT_GUESS_S = (2.0, 2.0)
_SMOKE_LIMIT_S = (0.5, 0.5)
_ATTEMPTS = 2
_NEARLY = 0.95
"""Of a window: samples are half a second apart."""

_SMOKE = CatchUpRules(warm_s=0.5, window_s=2.0, at_most_s=60.0)


class CatchUpPlay:
    """One row on one stage.

    Args:
        stage: the brokers.
        row: what to play.
        settings: of the whole run.
        store: gets each round.
        tell: gets a line now and then.
    """

    def __init__(
        self,
        stage: Stage,
        row: CatchUpRow,
        settings: Settings,
        store: RoundStore,
        tell: Callable[[str], None],
    ) -> None:
        self._stage, self._row, self._settings, self._store, self._tell = stage, row, settings, store, tell
        self._rules = _SMOKE if settings.smoke else CatchUpRules()
        self._data: dict[str, list[PreparedBatch]] = {name: prepare(SHAPES[name]) for name in row.data}
        self._limits: dict[str, float] = {}
        self._rates: dict[tuple[str, str], float] = {}
        self._segments: dict[str, list[Segment]] = {}
        self._sources = tuple(dict.fromkeys(source for source, _ in row.routes))
        targets = dict.fromkeys(target for _, target in row.routes)
        self._targets = [
            (f"aggregate-{target}", sum(to == target for _, to in row.routes)) for target in targets
        ]

    def run(self, done: Callable[[], None] = lambda: None) -> None:
        """Play what has not been played yet.

        Args:
            done: told after each round of each side.

        Raises:
            BenchError, ProduceRefusedError: something did not work.
        """
        self._measure_limits()
        for number in range(1, self._settings.rounds + 1):
            for side in self._row.sides:
                if not self._store.has(side, number):
                    self._round(side, number)
                done()

    def _measure_limits(self) -> None:
        for name, batches in self._data.items():
            wanted = self._row.limit and not self._store.has(LIMIT, 1)
            windows = _LIMIT_WINDOWS_S if wanted else _LIMIT_GUESS_S
            rates = self._limit_of(batches, _SMOKE_LIMIT_S if self._settings.smoke else windows)
            self._limits[name] = max(rates)
            self._tell(f"limit, {name}: {max(rates):,.0f} records/s")
            if wanted:
                for number, rate in enumerate(rates, start=1):
                    measure = Measure(f"share of the limit: {name}", "records/s", "higher", rate)
                    self._store.add(Round(LIMIT, number, (measure,)))

    def _limit_of(self, batches: Sequence[PreparedBatch], windows_s: Sequence[float]) -> list[float]:
        cluster, _ = self._targets[0]
        self._stage.create_topic(cluster, _LIMIT_TOPIC, self._row.partitions)
        try:
            return measure_limit(
                self._stage.bootstrap(cluster), _LIMIT_TOPIC, self._row.partitions, batches, windows_s
            )
        finally:
            self._stage.delete_topics(cluster, [_LIMIT_TOPIC])

    def _round(self, side: Side, number: int) -> None:
        topic = self._topic_of(side)
        for attempt in range(1, _ATTEMPTS + 1):
            self._fill(side, topic)
            run = self._life(side, number, attempt, topic)
            if self._settings.smoke or self._long_enough(run) or self._fits(side, topic):
                break
            self._tell(f"{side}: the backlog did not fit its speed; once more with another one")
        self._store.add(Round(side, number, tuple(self._measures(side, run)), asdict(run)))

    def _long_enough(self, run: CatchUpRun) -> bool:
        found = [run.data_sets.get(name) for name in self._data]
        return all(item is not None and item.window_s >= _NEARLY * self._rules.window_s for item in found)

    def _life(self, side: Side, number: int, attempt: int, topic: str) -> CatchUpRun:
        for cluster, _ in self._targets:
            self._stage.delete_topics(cluster, [topic])
        name = f"{side.replace('_', '')}{number}x{attempt}p{len(self._store.rounds)}"
        copier = Copier(
            self._stage,
            side,
            name,
            [topic],
            options_of(self._row, self._settings, self._stage.far_bootstrap()),
        )
        self._tell(f"{self._row.name}: round {number}, {side}")
        run = catch_up(
            self._stage,
            copier,
            topic,
            self._row.partitions,
            self._segments[topic],
            self._rules,
            self._targets,
            self._tell,
        )
        for cluster, _ in self._targets:
            self._stage.delete_topics(cluster, [topic])
        for data_set in self._data:
            found = run.data_sets.get(data_set)
            if found is None:
                # It was over before it was warm.
                self._rates[side, data_set] = 2 * self._rate(side, data_set)
                continue
            self._rates[side, data_set] = found.records_per_s
            self._tell(
                f"{side}: {found.records_per_s:,.0f} records/s over {found.window_s:.0f} s, "
                f"{found.copier_cpu_s_per_million:.2f} CPU s per million; {data_set}"
            )
        return run

    def _topic_of(self, side: Side) -> str:
        # Where data sets follow each other, a slow side gets less of each, or it would never reach the second one.
        return "backlog" if len(self._row.data) == 1 else f"backlog-{side.replace('_', '-')}"

    def _fits(self, side: Side, topic: str) -> bool:
        lying = self._segments.get(topic)
        return lying is not None and all(
            self._need(self._data[item.name]).fits(item.records, self._expected(side, item.name))
            for item in lying
        )

    def _expected(self, side: Side, data_set: str) -> float:
        sides = self._row.sides if len(self._row.data) == 1 else (side,)
        return max(self._rate(other, data_set) for other in sides)

    def _fill(self, side: Side, topic: str) -> None:
        if self._fits(side, topic):
            return
        parts = [
            (name, batches, self._need(batches).records(self._expected(side, name)))
            for name, batches in self._data.items()
        ]
        for region in self._sources:
            cluster = f"regional-{region}"
            self._stage.delete_topics(cluster, [topic])
            self._stage.create_topic(cluster, topic, self._row.partitions)
            self._tell(
                f"{cluster}: filling {topic} with {sum(records for _, _, records in parts) * self._row.partitions:,}"
                " records"
            )
            self._segments[topic] = fill(self._stage.bootstrap(cluster), topic, self._row.partitions, parts)

    def _rate(self, side: Side, data_set: str) -> float:
        best = max(self._limits.values())
        return self._rates.get((side, data_set), first_guess(side, self._limits[data_set], best))

    def _need(self, batches: Sequence[PreparedBatch]) -> Need:
        seconds = self._rules.warm_s + self._rules.window_s
        return Need(seconds, self._row.partitions, *mean_batch(batches))

    def _measures(self, side: Side, run: CatchUpRun) -> list[Measure]:
        found = []
        for name, figures in run.data_sets.items():
            label = f"{self._row.name}: {name}"
            found += [
                Measure(label, "records/s", "higher", figures.records_per_s),
                Measure(f"{label}, size", "MB/s", "higher", figures.mb_per_s),
                Measure(
                    f"{label}, copier's CPU",
                    "CPU s per million records",
                    "lower",
                    figures.copier_cpu_s_per_million,
                ),
                Measure(
                    f"{label}, brokers' CPU",
                    "CPU s per million records",
                    "lower",
                    figures.broker_cpu_s_per_million,
                ),
                Measure(
                    f"{label}, Cassandra's CPU",
                    "CPU s per million records",
                    "lower",
                    figures.cassandra_cpu_s_per_million,
                ),
                Measure(f"{label}, warm window", "s", "none", figures.window_s),
            ]
            if self._row.limit and side == "parallax":
                found.append(
                    Measure(f"share of the limit: {name}", "records/s", "higher", figures.records_per_s)
                )
        found.append(Measure(f"{self._row.name}: start to first record", "s", "lower", run.first_record_s))
        found.append(
            Measure(f"{self._row.name}: batches lost or repeated", "batches", "lower", run.misplaced_batches)
        )
        return found
