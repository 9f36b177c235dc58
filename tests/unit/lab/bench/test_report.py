from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from typing import get_args

import pytest
from rich.console import Console

from lab.bench import BenchError
from lab.bench.budget import Budget
from lab.bench.cpu import ProcessTimes, cpu_s, processes_now, tree_cpu_s, tree_of
from lab.bench.data.batches import Shape, prepare
from lab.bench.data.loading import Segment
from lab.bench.plan import FULL, MAIN
from lab.bench.report import Measure, Round, RoundStore, Spread, is_void, machine, percentile, rows_of, slug
from lab.bench.rows import BenchSettings
from lab.bench.rows.backlog import Backlog, Need, first_guess
from lab.bench.rows.catch_up import JSON_128K, LEAST_WARM_S, SHAPES, CatchUpRow
from lab.bench.rows.moves import judge_move
from lab.bench.rows.start import StartRow
from lab.bench.rows.steady import SteadyRow, latencies_ms
from lab.bench.rows.watch import WarmRules
from lab.bench.run import first_data_rates
from lab.bench.sides import Side
from lab.bench.table import short, table_of

RATE = "catch-up: x"


def rate(side: str, number: int, value: float) -> Round:
    return Round(side, number, (Measure(RATE, "records/s", "higher", value),))


def test_a_spread_is_median_and_extremes() -> None:
    assert Spread.of([5.0, 1.0, 3.0]) == Spread(3.0, 1.0, 5.0)
    assert Spread.of([1.0, 2.0]).median == 1.5
    with pytest.raises(ValueError, match="no round"):
        Spread.of([])


@pytest.mark.parametrize(("percent", "value"), [(50, 50), (99, 99), (100, 100), (0.5, 1), (99.1, 100)])
def test_a_percentile_is_a_value_that_was_measured(percent: float, value: float) -> None:
    assert percentile([float(number) for number in range(1, 101)], percent) == value


def test_there_is_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="no value"):
        percentile([], 50)
    with pytest.raises(ValueError, match="no percentile"):
        percentile([1.0], 0)


def test_nothing_is_compared_with_nothing() -> None:
    (row,) = rows_of([rate("parallax", 1, 6.0), rate("mirrormaker2", 1, 0.0)], void=False)
    assert row["ratio"] is None
    (alone,) = rows_of([rate("parallax", 1, 6.0)], void=False)
    assert alone["ratio"] is None


def test_the_report_has_spreads_and_ratios_of_medians() -> None:
    rounds = [rate("parallax", 1, 900.0), rate("mirrormaker2", 1, 200.0), rate("parallax", 2, 1_100.0)]
    rounds += [rate("parallax", 3, 1_000.0), rate("mirrormaker2", 2, 300.0), rate("mirrormaker2", 3, 250.0)]
    (row,) = rows_of(rounds, void=False)
    assert row == {
        "name": RATE,
        "unit": "records/s",
        "better": "higher",
        "parallax": {"median": 1_000.0, "min": 900.0, "max": 1_100.0},
        "mirrormaker2": {"median": 250.0, "min": 200.0, "max": 300.0},
        "rounds": {"parallax": [900.0, 1_100.0, 1_000.0], "mirrormaker2": [200.0, 300.0, 250.0]},
        "ratio": 4.0,
    }


def test_a_limit_is_compared_with_where_nothing_else_is() -> None:
    (row,) = rows_of([rate("limit", 1, 1_000.0), rate("parallax", 1, 850.0)], void=False)
    assert row["mirrormaker2"] is None
    assert row["limit"]["median"] == 1_000.0
    assert row["ratio"] == 0.85


def test_a_second_peer_has_its_own_column_and_the_first_decides_the_ratio() -> None:
    rounds = [
        rate("parallax", 1, 8.0),
        rate("mirrormaker2", 1, 2.0),
        rate("mirrormaker2_exactly_once", 1, 1.0),
    ]
    (row,) = rows_of(rounds, void=False)
    assert row["mirrormaker2_exactly_once"]["median"] == 1.0
    assert row["ratio"] == 4.0


def test_a_busy_machine_makes_every_row_void() -> None:
    assert is_void([140_000.0, 149_999.0, 151_000.0])
    assert not is_void([140_000.0, 150_000.0, 151_000.0])
    (row,) = rows_of([rate("parallax", 1, 1.0)], void=True)
    assert row["void"] is True


def test_the_void_rule_looks_at_the_peers_first_data_set() -> None:
    details = {"data_sets": {JSON_128K: {"records_per_s": 210_000.0}}}
    rounds = [
        Round("mirrormaker2", 1, (), details),
        Round("parallax", 1, (), details),
        Round("mirrormaker2", 2, (), {"data_sets": {}}),
        Round("mirrormaker2", 1, (), {"p50_ms": 3}),
    ]
    assert first_data_rates(rounds) == [210_000.0]
    assert any(row.tells_machine for row in MAIN)
    assert not FULL["far-catch-up"].tells_machine
    assert not FULL["tls-catch-up"].tells_machine


def test_the_machine_is_described() -> None:
    found = machine()
    assert found["cores"] >= 1
    assert found["memory_gib"] > 0


def test_every_row_is_known_by_one_name_and_its_data_exist() -> None:
    rows = [*MAIN, *FULL.values()]
    assert len({slug(row.name) for row in rows}) == len(rows)
    assert set(get_args(Side)) == {
        side for row in rows if isinstance(row, CatchUpRow | SteadyRow | StartRow) for side in row.sides
    }
    for row in rows:
        assert row.place.regions
        if isinstance(row, CatchUpRow):
            assert set(row.data) <= set(SHAPES)


def tree() -> dict[int, ProcessTimes]:
    return {
        1: ProcessTimes(0, 100.0, 500.0),
        10: ProcessTimes(1, 1.0, 4.0),
        11: ProcessTimes(10, 2.0, 0.0),
        12: ProcessTimes(11, 3.0, 0.5),
        20: ProcessTimes(1, 50.0, 0.0),
    }


def test_cpu_is_that_of_the_whole_tree_with_the_dead_and_of_nobody_else() -> None:
    assert tree_of(10, tree()) == {10, 11, 12}
    assert tree_cpu_s(10, tree()) == pytest.approx(1 + 4 + 2 + 3 + 0.5)
    assert tree_cpu_s(12, tree()) == pytest.approx(3.5)
    assert tree_cpu_s(99, tree()) == 0


def test_a_process_that_is_its_own_ancestor_is_counted_once() -> None:
    assert tree_of(1, {1: ProcessTimes(1, 1.0, 0.0)}) == {1}


def test_cpu_of_this_machine_is_read() -> None:
    me = max(processes_now())
    before = cpu_s({"one": [me], "none": []})
    assert before["none"] == 0
    assert before["one"] >= 0


def test_a_move_is_judged_by_what_was_delivered() -> None:
    produced = [b"a:0", b"a:1", b"a:2", b"a:3", b"b:0"]
    moved = judge_move(produced, [b"a:0", b"a:1"], [b"a:1", b"a:3", b"a:3", b"b:0"])
    assert (moved.redelivered, moved.lost, moved.repeated) == (1, 1, 1)


def test_only_records_of_the_window_count_and_only_their_first_delivery() -> None:
    ms = 1_000_000
    stamps = [0, 0, 9 * ms, 1 * ms, 1, 3 * ms, 1 * ms, 1, 8 * ms, 2 * ms, 2, 3 * ms, 5 * ms, 3, 6 * ms]
    assert latencies_ms(stamps, 1 * ms, 5 * ms) == [1.0, 2.0]


def test_a_side_gets_as_much_data_as_its_speed_asks_for() -> None:
    need = Need(seconds=23.0, least_seconds=8.0, partitions=4, batch_records=700.0, batch_bytes=50_000.0)
    assert need.records(1_000_000.0) == 6_250_000
    assert need.fits(6_250_000, 1_000_000.0)
    assert need.fits(2_000_000, 1_000_000.0)
    assert not need.fits(1_999_999, 1_000_000.0)
    assert need.fits(6_250_000, 400_000.0)
    assert not need.fits(6_250_000, 399_000.0)
    assert first_guess("parallax", 1_000.0, 1_000.0) == 900.0
    assert first_guess("parallax_record_path", 100.0, 1_000.0) == 350.0
    assert first_guess("mirrormaker2", 100.0, 1_000.0) == 300.0


@pytest.mark.parametrize("shared", [False, True])
def test_a_shared_backlog_is_enough_for_the_fastest_side(*, shared: bool) -> None:
    rules = WarmRules(warm_s=5.0, window_s=8.0, least_s=7.0)
    data = {"small": prepare(Shape(batch_records=1, variants=2))}
    backlog = Backlog(
        stage=None,
        name="shared",
        sources=[],
        partitions=1,
        data=data,
        rules=rules,
        rates={"small": 100.0},
        shared=shared,
    )  # type: ignore[arg-type] # not filled here
    backlog.segments = [Segment("small", 0, 1_500, 200.0)]
    assert backlog.fits
    backlog.learn("small", 10.0)
    assert backlog.fits is shared
    backlog.learn("small", 126.0)
    assert not backlog.fits
    backlog.segments = [Segment("small", 0, 1_900, 200.0)]
    assert backlog.fits
    backlog.learn("small", None)
    assert not backlog.fits


@pytest.mark.parametrize("rounds", [1, 3, 5, 10])
def test_the_rounds_of_a_row_share_out_twenty_warm_seconds_at_least(rounds: int) -> None:
    for row in [*MAIN, *FULL.values()]:
        if isinstance(row, CatchUpRow):
            rules = row.rules(rounds)
            assert rounds * rules.least_s >= LEAST_WARM_S
            assert rules.window_s >= rules.least_s
        if isinstance(row, SteadyRow):
            assert row.window_s >= LEAST_WARM_S


def test_the_main_set_is_planned_for_a_quarter_of_an_hour() -> None:
    steps = [row.steps(BenchSettings(rounds=5)) for row in MAIN]
    assert all(steps)
    assert 0.6 * 900 < sum(seconds for row in steps for seconds in row.values()) < 900 - 60


def test_a_step_counts_each_time_and_also_when_it_fails() -> None:
    now = 0.0
    budget = Budget({"filling": 75.0, "stopping": 3.0}, clock=lambda: now)
    assert budget.lines() == ["filling: given 1:15", "stopping: given 0:03", "in all: given 1:18"]
    for seconds in (30.0, 40.5):
        with suppress(BenchError), budget.step("filling"):
            now += seconds
            raise BenchError("full")
    now += 2.0
    assert budget.lines() == [
        "filling: took 1:11, given 1:15",
        "stopping: given 0:03",
        "between the steps: took 0:02",
        "in all: took 1:13, given 1:18",
    ]
    assert budget.values() == {
        "filling": {"planned_s": 75.0, "taken_s": 70.5},
        "stopping": {"planned_s": 3.0, "taken_s": None},
    }


def test_no_side_gets_more_than_the_disk_is_given() -> None:
    need = Need(seconds=23.0, least_seconds=23.0, partitions=4, batch_records=12.0, batch_bytes=60_000.0)
    records = need.records(10_000_000.0)
    assert records * 4 / 12 * 60_000 <= 6 * 2**30 * 1.001
    assert need.fits(records, 10_000_000.0)


def test_rounds_are_gone_on_with_unless_something_has_changed(tmp_path: Path) -> None:
    store = RoundStore(tmp_path, "20,000 records/s", {"commit": "1"}, resume=True)
    store.add(rate("parallax", 1, 5.0))
    again = RoundStore(tmp_path, "20,000 records/s", {"commit": "1"}, resume=True)
    assert again.rounds == store.rounds
    assert again.has("parallax", 1)
    assert not again.has("parallax", 2)
    assert RoundStore(tmp_path, "20,000 records/s", {"commit": "2"}, resume=True).rounds == []
    assert RoundStore(tmp_path, "20,000 records/s", {"commit": "1"}, resume=False).rounds == []


@pytest.mark.parametrize(
    ("value", "text"), [(1_234_567.9, "1,234,567"), (99.99, "99.9"), (5.999, "5.99"), (0.0, "0"), (7.0, "7")]
)
def test_no_figure_is_rounded_up(value: float, text: str) -> None:
    assert short(value) == text


def test_the_table_shows_every_side_that_took_part() -> None:
    rows = rows_of([rate("parallax", 1, 6.0), rate("mirrormaker2", 1, 1.0)], void=False)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(table_of(rows))
    text = console.export_text()
    assert "Parallax" in text
    assert "MirrorMaker 2" in text
    assert "limit" not in text
