"""What a soak calls flat, what it plays, and what it draws."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from lab.soak.logs import NewLeases
from lab.soak.picture import picture
from lab.soak.readings import (
    MIB,
    TABLE_FILES,
    GrowthLimits,
    Reading,
    RowsReading,
    growing_processes,
    rows_per_minute,
    swelling_tables,
    trend,
    unjudged,
)
from lab.soak.scenario import NEVER_KILLED, SoakOptions, draw_faults
from lab.storm.schedule import ActKind

LIMITS = GrowthLimits()
HOMES = {"pair-a": "a", "solo-a": "a", "solo-b": "b"}


def readings(
    minutes: int = 60, mib_per_h: float = 0.0, threads_per_h: float = 0.0, handles_per_h: float = 0.0
) -> list[Reading]:
    """A process that takes 100 MiB in its first five minutes, and grows from then on."""
    return [
        Reading(
            at_s,
            int((100 * min(1, at_s / 300) + mib_per_h * at_s / 3_600) * MIB),
            {"python": 10 + int(threads_per_h * at_s / 3_600)},
            {"files": 12, "sockets": 8 + int(handles_per_h * at_s / 3_600)},
        )
        for at_s in range(0, minutes * 60, 15)
    ]


def found(items: list[Reading]) -> list[str]:
    return list(growing_processes([("service", trend(items, LIMITS))], LIMITS))


def test_what_a_process_takes_while_it_warms_up_is_not_growth() -> None:
    assert found(readings()) == []
    assert found(readings(mib_per_h=9)) == []


def test_growth_is_told_an_hour_however_long_it_was_looked_at() -> None:
    assert found(readings(mib_per_h=12)) == ["service grows by 12.0 MiB an hour"]
    assert found(readings(minutes=30, mib_per_h=12)) == ["service grows by 12.0 MiB an hour"]


def test_threads_and_open_files_are_counted() -> None:
    assert found(readings(threads_per_h=8)) == ["service has 5 threads more than at first (python +5)"]
    assert found(readings(handles_per_h=20)) == ["service has 12 open files more than at first (sockets +12)"]


def test_files_of_tables_that_cassandra_has_open_are_told_and_no_growth() -> None:
    def more_of(kind: str) -> list[Reading]:
        items = readings()
        return [item._replace(handles={"files": 12, kind: int(item.at_s / 60)}) for item in items]

    assert found(more_of(TABLE_FILES)) == []
    shown = trend(more_of(TABLE_FILES), LIMITS)
    assert shown is not None
    assert (shown.more_handles, shown.handles_by_kind) == (0, {TABLE_FILES: 37})
    assert found(more_of("pipes")) == ["service has 37 open files more than at first (pipes +37)"]


def widest_moment(pool: str, threads: int) -> list[Reading]:
    """A process in which so many calls are under way at once after half an hour, and never again."""
    return [
        item._replace(threads={"python": 10, pool: threads if item.at_s >= 1_800 else 4})
        for item in readings()
    ]


def test_a_pool_may_fill_up_to_its_size_and_all_else_is_growth() -> None:
    limits = GrowthLimits(pools={"calls": 20})

    def told(items: list[Reading]) -> list[str]:
        return list(growing_processes([("service", trend(items, limits))], limits))

    assert told(widest_moment("calls", 20)) == []
    assert told(widest_moment("calls", 21)) == ["service has 21 threads of calls, which is a pool of 20"]
    assert told(widest_moment("others", 14)) == ["service has 10 threads more than at first (others +10)"]
    shown = trend(widest_moment("calls", 14), limits)
    assert shown is not None
    assert (shown.more_threads, shown.threads_by_name, shown.pooled) == (0, {"calls": 10}, {"calls": 14})


def taken_over(at_s: float, more_after_mib_per_h: float = 0.0) -> list[Reading]:
    """A worker that takes over a lease: 12 threads, 31 files and 35 MiB in ten minutes."""
    return [
        item._replace(
            memory_bytes=item.memory_bytes
            + int((35 * min(1, since / 600) + more_after_mib_per_h * since / 3_600) * MIB),
            threads={"python": 10, "rdk:main": 12 if since else 0},
            handles={**item.handles, "pipes": 31 if since else 0},
        )
        for item in readings()
        for since in [max(0.0, item.at_s - at_s)]
    ]


def test_a_worker_warms_up_anew_when_it_takes_over_a_lease() -> None:
    def told(items: list[Reading], *anew_at_s: float) -> list[str]:
        return list(growing_processes([("worker", trend(items, LIMITS, anew_at_s))], LIMITS))

    assert len(told(taken_over(1_600))) == 3
    assert told(taken_over(1_600), 1_600) == []
    assert told(taken_over(3_000), 3_000) == []  # the time before is looked at
    assert told(taken_over(1_200, more_after_mib_per_h=12), 1_200) == ["worker grows by 12.0 MiB an hour"]
    assert told(taken_over(1_600), 300) != []  # that was another


def test_a_worker_that_never_stays_is_not_looked_at() -> None:
    assert trend(readings(), LIMITS, range(0, 3_600, 1_200)) is None


def lease_begun(process: int, lease: str) -> str:
    return json.dumps({"lease": lease, "process": process, "event": "lease_begun"}) + "\n"


def test_a_lease_is_another_s_only_the_first_time(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    leases = NewLeases(log)
    assert list(leases.read()) == []
    log.write_text(
        "not JSON\n" + lease_begun(7, "a->b shard 0/1 layout 1 epoch 1") + lease_begun(8, "sync"), "utf-8"
    )
    assert list(leases.read()) == [7, 8]
    with log.open("a") as more:
        more.write(lease_begun(7, "a->b shard 0/1 layout 2 epoch 2"))
        more.write(lease_begun(7, "a->a shard 0/1 layout 1 epoch 2") + lease_begun(9, "sync")[:20])
        more.flush()
        assert list(leases.read()) == [7]
        more.write(lease_begun(9, "sync")[20:])
    assert list(leases.read()) == [9]
    assert list(leases.read()) == []


def test_a_short_life_tells_nothing() -> None:
    assert trend(readings(minutes=20, mib_per_h=600), LIMITS) is None
    assert trend(readings(minutes=1), LIMITS) is None


def rows(per_minute: list[float]) -> list[RowsReading]:
    counted = [RowsReading(0.0, 0)]
    for minute, more in enumerate(per_minute, start=1):
        counted.append(RowsReading(minute * 60.0, counted[-1].rows + round(more)))
    return counted


def test_a_table_that_grows_steadily_is_flat_and_one_that_swells_is_not() -> None:
    assert rows_per_minute(rows([10, 20])) == [10, 20]
    assert list(swelling_tables({"runs": rows([500] * 60)}, LIMITS)) == []
    swelling = rows([100 + 10 * minute for minute in range(60)])
    (told,) = swelling_tables({"runs": swelling}, LIMITS)
    assert told.startswith("runs grew by ")
    assert list(swelling_tables({"groups": rows([0] * 60)}, LIMITS)) == []


def test_rows_that_come_by_the_dozen_may_differ_from_half_to_half_by_chance() -> None:
    # Blocks of partitions, each of which fills at its own time: nearly what an hour's soak once counted after its warm-up.
    first = [0, 4, 0, 4, 0, 4, 4, 8, 0, 0, 5, 3, 0, 0, 0, 10, 7, 3, 0, 0, 8, 0, 4, 0]
    second = [4, 4, 0, 0, 8, 0, 12, 4, 0, 0, 0, 4, 4, 8, 0, 4, 16, 0, 0, 0, 8, 0, 8, 0]
    assert sum(second) > LIMITS.rows_factor * sum(first)
    counted = [0.0] * 10 + [float(more) for more in (*first, *second)]
    assert list(swelling_tables({"blocks": rows(counted)}, LIMITS)) == []
    thrice = rows([0.0, 8.0] * 20 + [0.0, 24.0] * 20)
    assert len(list(swelling_tables({"blocks": thrice}, LIMITS))) == 1


def not_looked_at(counted_until_s: float = 3_550, **lived: int) -> list[str]:
    """What an hour's soak says that has read Spark, a service and a worker for so many minutes."""
    minutes = {"spark 7": 60, "offsetsvc-a 8": 60, "cassandra 9": 60, "spark worker 10": 60} | {
        name.replace("_", " "): value for name, value in lived.items()
    }
    trends = {name: trend(readings(minutes=value), LIMITS) for name, value in minutes.items()}
    return list(unjudged(NEVER_KILLED, trends, {"runs": [RowsReading(counted_until_s, 3)]}, 3_600))


def test_a_soak_that_does_not_look_at_what_lives_all_the_time_has_failed() -> None:
    assert not_looked_at() == []
    assert not_looked_at(spark_7=20) == ["spark was not read for long enough to tell whether it grows"]


def test_nor_may_the_counting_of_rows_end_before_the_soak() -> None:
    assert not_looked_at(counted_until_s=900) == [
        "the rows of the store were last after 900 s of 3600 s counted"
    ]
    trends = {f"{name} 1": trend(readings(), LIMITS) for name in NEVER_KILLED}
    assert list(unjudged(NEVER_KILLED, trends, {}, 3_600)) == ["the rows of the store were never counted"]


def test_what_is_judged_is_never_killed() -> None:
    for acts in islice(draw_faults(5, HOMES), 100):
        for act in acts:
            assert act.kind is ActKind.WORKER_KILLED or act.part not in NEVER_KILLED


def test_every_fault_comes_and_what_is_killed_is_started() -> None:
    cycle = 10
    faults = list(islice(draw_faults(1, HOMES), 6 * cycle))
    kinds = Counter(acts[0].kind for acts in faults)
    assert kinds == {
        ActKind.AGGREGATE_KILLED: 12,
        ActKind.REGIONAL_KILLED: 12,
        ActKind.SERVICE_KILLED: 6,
        ActKind.WORKER_KILLED: 12,
        ActKind.RESTART: 6,
        ActKind.PLANNED: 12,
    }
    for acts in faults:
        if acts[0].kind in {ActKind.REGIONAL_KILLED, ActKind.SERVICE_KILLED}:
            assert [act.kind for act in acts[1:]] == [ActKind.START]
            assert acts[1].part == acts[0].part
        else:
            assert len(acts) == 1


def test_groups_are_moved_from_where_they_are() -> None:
    places = dict(HOMES)
    for act, *_ in islice(draw_faults(3, HOMES), 100):
        if act.kind is ActKind.PLANNED:
            assert (act.region, act.to) == (places[act.group], {"a": "b", "b": "a"}[places[act.group]])
            places[act.group] = act.to


def test_the_producers_have_work_for_all_of_it() -> None:
    options = SoakOptions(minutes=60).storm
    for region in "ab":
        assert sum(phase.seconds for phase in options.plan_of(region).phases) > 3_600


def test_the_picture_is_an_svg_with_a_plot_for_each() -> None:
    text = picture(
        {"spark <1>": readings(), "short": readings()[:1]},
        {"runs": rows([5] * 10), "empty": rows([0] * 9)},
        3_600,
    )
    drawn = ET.fromstring(text)  # noqa: S314 - our own
    titles = [item.text for item in drawn.iter("{http://www.w3.org/2000/svg}text") if item.get("class")]
    assert titles == ["spark <1> (MiB)", "runs (rows a minute)"]


@pytest.mark.parametrize("ahead", [0, 1])
def test_the_order_of_faults_is_the_seed_s(ahead: int) -> None:
    same = list(islice(draw_faults(1, HOMES), 20)) == list(islice(draw_faults(1 + ahead, HOMES), 20))
    assert same is not bool(ahead)
