"""Plays the rows that don't catch up: steady streams and moves of groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace

from bench.answering import ANSWERS_TOPIC, answering
from bench.copiers import Copier, Side
from bench.freshness import freshness
from bench.redelivery import redelivery
from bench.results import Measure, Round, RoundStore
from bench.rows import BOTH, AnswersRow, FreshnessRow, MoveRow, Settings, SteadyRow, options_of
from bench.stage import Stage
from bench.stats import percentile
from bench.steady import SteadyRules, steady

_SMOKE_WARM_S = 2.0
_SMOKE_WINDOW_S = 8.0
_SMOKE_EPOCH_S = 5
_SMOKE_MOVE_S = 3.0
_SMOKE_COMMITS = 3
_SMOKE_RUNS = 40_000
_SMOKE_ASK_S = 4.0


def play_steady(
    stage: Stage,
    row: SteadyRow,
    settings: Settings,
    store: RoundStore,
    tell: Callable[[str], None],
    done: Callable[[], None] = lambda: None,
) -> None:
    """Play the rounds of a steady row that have not been played yet.

    Raises:
        BenchError: something did not work.
    """
    rules: SteadyRules = row.rules
    if settings.smoke:
        rules = replace(rules, warm_s=_SMOKE_WARM_S, window_s=_SMOKE_WINDOW_S)
        row = replace(row, lease_epoch_s=_SMOKE_EPOCH_S)
    for number in range(1, settings.rounds + 1):
        for side in row.sides:
            if not store.has(side, number):
                _steady_round(stage, row, rules, settings, store, side, number, tell)
            done()


def _steady_round(
    stage: Stage,
    row: SteadyRow,
    rules: SteadyRules,
    settings: Settings,
    store: RoundStore,
    side: Side,
    number: int,
    tell: Callable[[str], None],
) -> None:
    name = f"{side.replace('_', '')}{number}s{len(store.rounds)}"
    topic = f"stream-{name}"
    stage.create_topic("regional-a", topic, rules.partitions)
    tell(f"{row.name}: round {number}, {side}")
    found = steady(
        stage,
        Copier(stage, side, name, [topic], options_of(row, settings, stage.far_bootstrap())),
        topic,
        rules,
        tell=tell,
    )
    for cluster in ("regional-a", "aggregate-a"):
        stage.delete_topics(cluster, [topic])
    tell(f"{side}: p50 {found.p50_ms:.1f} ms, p99 {found.p99_ms:.1f} ms, max {found.max_ms:.1f} ms")
    unit = "CPU s per million records"
    measures = (
        Measure(f"{row.name}: latency p50", "ms", "lower", found.p50_ms),
        Measure(f"{row.name}: latency p99", "ms", "lower", found.p99_ms),
        Measure(f"{row.name}: latency max", "ms", "lower", found.max_ms),
        Measure(f"{row.name}: copier's CPU", unit, "lower", found.copier_cpu_s_per_million),
        Measure(f"{row.name}: brokers' CPU", unit, "lower", found.broker_cpu_s_per_million),
        Measure(f"{row.name}: lost", "records", "lower", found.lost),
        Measure(f"{row.name}: repeated", "records", "lower", found.repeated),
        Measure(f"{row.name}: epoch borders in the window", "borders", "none", found.epoch_borders),
    )
    store.add(Round(side, number, measures, asdict(found)))


def play_move(
    stage: Stage, row: MoveRow, settings: Settings, store: RoundStore, tell: Callable[[str], None]
) -> None:
    """Play a move: nothing in it is timed, so it needs one round.

    Raises:
        BenchError: something did not work.
    """
    rules = row.rules
    if settings.smoke:
        few = {region: max(20, records // 10) for region, records in rules.records.items()}
        rules = replace(rules, records=few, seconds=_SMOKE_MOVE_S)
    for side, moved in redelivery(stage, rules, settings.replicator_settings(), tell).items():
        tell(f"{side}: {moved.redelivered} redelivered, {moved.lost} lost")
        measures = (
            Measure(f"{row.name}: redelivered", "records", "lower", moved.redelivered),
            Measure(f"{row.name}: lost", "records", "lower", moved.lost),
        )
        store.add(Round(side, 1, measures, asdict(moved)))


def play_freshness(
    stage: Stage,
    row: FreshnessRow,
    settings: Settings,
    store: RoundStore,
    tell: Callable[[str], None],
    done: Callable[[], None] = lambda: None,
) -> None:
    """Play a freshness row: each side once, with many commits.

    Raises:
        BenchError: something did not work.
    """
    commits = _SMOKE_COMMITS if settings.smoke else row.commits
    for side in BOTH:
        if not store.has(side, 1):
            name = f"{side}f{len(store.rounds)}"
            taken = sorted(freshness(stage, side, name, commits, settings.replicator_settings(), tell))
            measures = (
                Measure(f"{row.name}: p50", "s", "lower", percentile(taken, 50)),
                Measure(f"{row.name}: max", "s", "lower", taken[-1]),
            )
            store.add(Round(side, 1, measures, {"seconds": taken}))
        done()


def play_answers(
    stage: Stage,
    row: AnswersRow,
    settings: Settings,
    store: RoundStore,
    tell: Callable[[str], None],
    done: Callable[[], None] = lambda: None,
) -> None:
    """Play the rounds of an answers row that have not been played yet.

    Raises:
        BenchError: something did not work.
    """
    runs, seconds = (_SMOKE_RUNS, _SMOKE_ASK_S) if settings.smoke else (row.runs, row.seconds)
    for number in range(1, settings.rounds + 1):
        if not store.has("parallax", number):
            found = answering(stage, runs, seconds, tell)
            stage.delete_topics("aggregate-a", [ANSWERS_TOPIC])
            stage.delete_topics("aggregate-b", [ANSWERS_TOPIC])
            tell(
                f"{found.answers_per_s:,.0f} answers/s, p99 {found.p99_ms:.1f} ms at half of it: {found.outcomes}"
            )
            measures = (
                Measure(f"{row.name}: one core", "answers/s", "higher", found.answers_per_s),
                Measure(f"{row.name}: service's share of the core", "cores", "none", found.service_cpu_share),
                Measure(f"{row.name}: p50 at half that rate", "ms", "lower", found.p50_ms),
                Measure(f"{row.name}: p99 at half that rate", "ms", "lower", found.p99_ms),
            )
            store.add(Round("parallax", number, measures, asdict(found)))
        done()
