"""Catching up: how fast each side copies a backlog, what it costs in CPU, and how fast the broker could take it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass

from lab.bench.budget import Steps
from lab.bench.data.batches import PreparedBatch, Shape, prepare
from lab.bench.data.copied import read_partition
from lab.bench.data.loading import Segment, measure_limit
from lab.bench.report import LIMIT, Measure, Round
from lab.bench.rows import CPU_UNIT, BenchPlace, BenchSettings, Play, Row
from lab.bench.rows.backlog import Backlog, first_guess
from lab.bench.rows.copied_figures import CopyFigures, figures
from lab.bench.rows.watch import CopyWatch, WarmRules, Window
from lab.bench.sides import WITH_EXACTLY_ONCE, Copier, CopierOptions, Side, is_parallax
from lab.bench.stage import BenchStage
from replicator.format.compression import Compression

JSON_128K = "170 B JSON, lz4, 128 KiB batches"
"""The first data set: MirrorMaker 2's speed on it tells whether the machine was busy."""
JSON_4K = "170 B JSON, lz4, 4 KiB batches"

SHAPES: Mapping[str, Shape] = {
    JSON_128K: Shape(),
    JSON_4K: Shape(batch_bytes=4_096, variants=256),
    "10 KiB JSON, lz4, 128 KiB batches": Shape(value_bytes=10_240),
    "170 B JSON, uncompressed, 128 KiB batches": Shape(compression=Compression.NONE),
    "170 B JSON, lz4, batches of 1 record": Shape(batch_records=1, variants=256),
    "170 B JSON, lz4, batches of 5 records": Shape(batch_records=5, variants=256),
}
"""Data sets by name."""

_LIMIT_TOPIC = "limit"
_LIMIT_WINDOWS_S = (2.0, 1.5, 1.5, 1.5, 1.5, 1.5)
_GUESS_WINDOWS_S = (2.0, 2.0)
_SMOKE_WINDOWS_S = (0.5, 0.5)
_SMOKE_RULES = WarmRules(warm_s=0.5, window_s=2.0, at_most_s=60.0)
_ATTEMPTS = 2

_INSIDE_SHARED = 0.75
"""Of many partitions; every copier lets some of them run ahead at its start."""

LEAST_WARM_S = 20.0
"""So long each side is watched while it is warm, in each row; its rounds share it out."""

# What a round's parts take on a machine with two cores, for the plan of the time.
_LIMIT_S = 14.0
_FILL_S = 21.0
_SHARED_FILL_S = 150.0
_START_S = 12.0
_REST_S = 5.0
_STOP_S = 3.0


@dataclass(frozen=True)
class CatchUpRow(Row):
    """Throughput of catching up, on one data set after another in one topic.

    Attributes:
        data: names of data sets.
        sides: who takes part.
        partitions: of the topic.
        routes: (source region, target region).
        round_trip_ms: how far away the sources are (`BenchPlace`).
        tls: all sides but `parallax_plain_text` reach sources and targets over TLS.
        limit: measure the target broker's limit too.
        window_s: what is counted of each data set in each round, at most.
        shared_records_per_s: all sides copy the same backlog, filled for this speed at first; 0: each has one of its
            own. For batches with which a broker fills far more slowly than they are copied.
    """

    data: tuple[str, ...] = (JSON_128K,)
    sides: tuple[Side, ...] = WITH_EXACTLY_ONCE
    partitions: int = 4
    routes: tuple[tuple[str, str], ...] = (("a", "a"),)
    round_trip_ms: float | None = None
    tls: bool = False
    limit: bool = False
    window_s: float = 20.0
    shared_records_per_s: float = 0.0

    @property
    def place(self) -> BenchPlace:
        """The regions of its routes."""
        regions = tuple(sorted({region for route in self.routes for region in route}))
        return BenchPlace(regions, self.round_trip_ms, self.tls)

    @property
    def tells_machine(self) -> bool:
        """Near, over one route, in plain text, with the first data set."""
        near = self.round_trip_ms is None and not self.tls
        return JSON_128K in self.data and self.routes == (("a", "a"),) and near

    def rules(self, rounds: int) -> WarmRules:
        """How long each round is watched so that all together are watched for `LEAST_WARM_S` at least."""
        least_s = LEAST_WARM_S / rounds
        inside = _INSIDE_SHARED if self.shared_records_per_s else 1.0
        return WarmRules(window_s=max(self.window_s, least_s), least_s=least_s, inside=inside)

    def steps(self, settings: BenchSettings) -> Steps:
        """By the rounds; the borders between data sets are not met at a wanted moment."""
        rules, lives = self.rules(settings.rounds), settings.rounds * len(self.sides)
        # The last data set need not be copied to its end.
        watched_s = len(self.data) * (rules.warm_s + rules.window_s + _REST_S) - _REST_S
        return {
            self.step("limits"): len(self.data) * _LIMIT_S,
            self.step("filling"): _SHARED_FILL_S
            if self.shared_records_per_s
            else len(self.sides) * len(self.data) * _FILL_S,
            self.step("starting"): lives * _START_S,
            self.step("watching"): lives * watched_s,
            self.step("stopping, checking"): lives * _STOP_S,
        }

    def options(self, side: Side, stage: BenchStage) -> CopierOptions:
        """How a side is run."""
        encrypted = self.tls and side != "parallax_plain_text"
        return CopierOptions(
            routes=self.routes,
            compression=SHAPES[self.data[0]].compression.name.lower(),
            # Leases as MirrorMaker 2 has tasks: one a core.
            replicator={"shards_per_route": max(1, (os.cpu_count() or 1) // len(self.routes))},
            bootstrap=stage.tls_bootstrap() if encrypted else stage.far_bootstrap(),
            authority=stage.authority if encrypted else None,
        )

    def step(self, what: str) -> str:
        """A step's name among those of other rows."""
        return f"{self.name}: {what}"

    def play(self, play: Play) -> None:
        """Let the sides take turns, each in a fresh process before a backlog of its own."""
        with ThreadPoolExecutor(max_workers=1) as background:
            _CatchUp(self, play, background).run()


class _CatchUp:
    def __init__(self, row: CatchUpRow, play: Play, background: ThreadPoolExecutor) -> None:
        self._row, self._stage, self._store, self._tell = row, play.stage, play.store, play.tell
        self._settings, self._background, self._budget = play.settings, background, play.budget
        self._rules = _SMOKE_RULES if play.settings.smoke else row.rules(play.settings.rounds)
        self._data: dict[str, list[PreparedBatch]] = {name: prepare(SHAPES[name]) for name in row.data}
        targets = dict.fromkeys(target for _, target in row.routes)
        self._targets = {
            f"aggregate-{target}": sum(to == target for _, to in row.routes) for target in targets
        }
        """Target clusters, each with the number of sources that are merged in it."""
        self._ending: tuple[Side, Future[None]] | None = None
        """The life before: it is stopped and checked while the next one starts up."""

    def run(self) -> None:
        with self._step("limits"):
            limits = self._measure_limits()
        sources = list(dict.fromkeys(f"regional-{source}" for source, _ in self._row.routes))
        backlogs = self._backlogs(sources, limits)
        for number in range(1, self._settings.rounds + 1):
            for side, backlog in backlogs.items():
                if not self._store.has(side, number):
                    self._round(side, number, backlog)
        self._settle()

    def _backlogs(self, sources: Sequence[str], limits: Mapping[str, float]) -> dict[Side, Backlog]:
        row, best = self._row, max(limits.values())

        def made(name: str, rates: Mapping[str, float], *, shared: bool) -> Backlog:
            return Backlog(
                self._stage, name, sources, row.partitions, self._data, self._rules, rates, shared=shared
            )

        if row.shared_records_per_s:
            one = made("shared", dict.fromkeys(self._data, row.shared_records_per_s), shared=True)
            return dict.fromkeys(row.sides, one)
        return {
            side: made(
                side, {name: first_guess(side, limits[name], best) for name in self._data}, shared=False
            )
            for side in row.sides
        }

    def _step(self, what: str) -> AbstractContextManager[None]:
        return self._budget.step(self._row.step(what))

    def _measure_limits(self) -> dict[str, float]:
        """How fast the target broker takes each data set: a figure of its own, and a measure for the backlogs."""
        limits = {}
        wanted = self._row.limit and not self._store.has(LIMIT, 1)
        for name, batches in self._data.items():
            windows = _LIMIT_WINDOWS_S if wanted else _GUESS_WINDOWS_S
            rates = self._limit_of(batches, _SMOKE_WINDOWS_S if self._settings.smoke else windows)
            limits[name] = max(rates)
            self._tell(f"limit, {name}: {max(rates):,.0f} records/s")
            if wanted:
                for number, rate in enumerate(rates, start=1):
                    measure = Measure(f"share of the limit: {name}", "records/s", "higher", rate)
                    self._store.add(Round(LIMIT, number, (measure,)))
        return limits

    def _limit_of(self, batches: Sequence[PreparedBatch], windows_s: Sequence[float]) -> list[float]:
        cluster, partitions = next(iter(self._targets)), self._row.partitions
        self._stage.create_topic(cluster, _LIMIT_TOPIC, partitions)
        try:
            return measure_limit(self._stage.bootstrap(cluster), _LIMIT_TOPIC, partitions, batches, windows_s)
        finally:
            self._stage.delete_topics(cluster, [_LIMIT_TOPIC])

    def _round(self, side: Side, number: int, backlog: Backlog) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            if backlog.shared:
                self._settle()  # the life before may still copy what would be filled anew
            with self._step("filling"):
                written = backlog.fill()
            if written:
                self._tell(f"{backlog.topic}: {written:,} records")
            self._tell(f"{self._row.name}: round {number}, {side}")
            options = self._row.options(side, self._stage)
            copier = Copier(self._stage, side, [backlog.topic], options)
            windows = self._life(copier, backlog)
            enough = self._learn(windows, backlog) or self._settings.smoke or backlog.fits
            last = enough or attempt == _ATTEMPTS
            segments = self._merged(backlog.segments)
            ending = self._background.submit(
                self._end, copier, number, backlog.topic, segments, windows, keep=last
            )
            self._ending = side, ending
            if last:
                return
            self._tell(f"{side}: the backlog did not fit its speed; once more with another one")
            self._settle()

    def _life(self, copier: Copier, backlog: Backlog) -> dict[str, Window | None]:
        """Start a copier and watch it; it still runs afterwards."""
        if self._ending is not None and is_parallax(self._ending[0]) and is_parallax(copier.side):
            # Both would be the same replicator.
            self._settle()
        with self._step("starting"):
            if backlog.shared:
                # Or the first partitions would be copied to their ends while the others are still being created.
                for cluster in self._targets:
                    self._stage.create_topic(cluster, backlog.topic, self._row.partitions)
            copier.start()
            watch = CopyWatch(self._stage, copier, backlog.topic, self._row.partitions, list(self._targets))
            watch.await_first_record()
        self._settle()
        with self._step("watching"):
            return {
                segment.name: watch.follow(segment, self._rules) for segment in self._merged(backlog.segments)
            }

    def _settle(self) -> None:
        """Wait until the life before has been stopped and checked."""
        if self._ending is not None:
            _, ending = self._ending
            self._ending = None
            with self._step("stopping, checking"):
                ending.result()

    def _merged(self, segments: Sequence[Segment]) -> list[Segment]:
        """The data sets as they lie on the targets, where so many sources of the same size are merged."""
        sources = next(iter(self._targets.values()))
        return [
            Segment(segment.name, segment.start * sources, segment.end * sources, segment.record_bytes)
            for segment in segments
        ]

    def _learn(self, windows: Mapping[str, Window | None], backlog: Backlog) -> bool:
        """Correct the speeds to expect; returns whether every window was long enough."""
        for name, window in windows.items():
            # Without a window it was over before it was warm.
            backlog.learn(name, None if window is None else window.offsets / window.seconds)
        return all(
            window is not None and window.seconds >= self._rules.least_s for window in windows.values()
        )

    def _end(
        self,
        copier: Copier,
        number: int,
        topic: str,
        segments: Sequence[Segment],
        windows: Mapping[str, Window | None],
        *,
        keep: bool,
    ) -> None:
        """Stop a copier, and look at what it copied."""
        copier.stop()
        logs = {
            (cluster, partition): read_partition(self._stage.storage(cluster), topic, partition)
            for cluster in self._targets
            for partition in range(self._row.partitions)
        }
        found: dict[str, CopyFigures] = {}
        for segment in segments:
            window = windows[segment.name]
            item = None if window is None else figures(window, segment, logs)
            if item is None:
                self._tell(f"{copier.side}: no warm window in which anything was committed; {segment.name}")
            else:
                found[segment.name] = item
        # Where sources are merged, a partition is not one source's beginning: its order can't be told by headers.
        checked = [log for (cluster, _), log in logs.items() if self._targets[cluster] == 1]
        for cluster in self._targets:
            self._stage.delete_topics(cluster, [topic])
        copier.clean_up()
        for name, item in found.items():
            self._tell(
                f"{copier.side}: {item.records_per_s:,.0f} records/s over {item.window_s:.0f} s, "
                f"{item.copier_cpu:.2f} CPU s per million; {name}"
            )
        if keep:
            details = {
                "data_sets": {name: asdict(item) for name, item in found.items()},
                "first_problem": next((log.first_problem for log in checked if log.misplaced), ""),
            }
            measures = self._measures(copier.side, found, sum(log.misplaced for log in checked))
            self._store.add(Round(copier.side, number, measures, details))

    def _measures(self, side: Side, found: Mapping[str, CopyFigures], misplaced: int) -> tuple[Measure, ...]:
        measures = []
        for name, item in found.items():
            label = f"{self._row.name}: {name}"
            measures += [
                Measure(label, "records/s", "higher", item.records_per_s),
                Measure(f"{label}, size", "MB/s", "higher", item.mb_per_s),
                Measure(f"{label}, copier's CPU", CPU_UNIT, "lower", item.copier_cpu),
                Measure(f"{label}, brokers' CPU", CPU_UNIT, "lower", item.broker_cpu),
                Measure(f"{label}, Cassandra's CPU", CPU_UNIT, "lower", item.cassandra_cpu),
                Measure(f"{label}, warm window", "s", "none", item.window_s),
            ]
            if self._row.limit and side == "parallax":
                measures.append(
                    Measure(f"share of the limit: {name}", "records/s", "higher", item.records_per_s)
                )
        measures.append(Measure(f"{self._row.name}: batches lost or repeated", "batches", "lower", misplaced))
        return tuple(measures)
