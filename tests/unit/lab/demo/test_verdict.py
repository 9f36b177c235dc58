from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.demo.options import DemoOptions
from lab.demo.outage import Uncertain
from lab.demo.verdict import DemoFacts, Logs, judge, missing_records, too_slow
from lab.oracle.copies import compare_copies
from lab.oracle.logs import Placed, TopicLog
from lab.prove.options import ProveOptions
from lab.workload.events import RecordId
from tests.worlds.topic_logs import topic_log

ORDER_A = ("b1", "a1", "b2", "a2", "b3", "a3")
ORDER_B = ("b1", "b2", "b3", "a1", "a2", "a3")
STAGES = (("b1", "a1", "b2"), ("b3", "a2"), ("a3",))
COMMANDED_MS = 1_000_000
RETURNED_MS = COMMANDED_MS + 500

Run = Callable[..., dict[str, Any]]


def log(cluster: str, names: tuple[str, ...]) -> TopicLog:
    places = [(0, Placed(offset, RecordId(name[0], int(name[1:])), 0)) for offset, name in enumerate(names)]
    return topic_log(cluster, places)


def logs(order_b: tuple[str, ...] = ORDER_B) -> Logs:
    return Logs(
        {"a": log("regional-a", ("a1", "a2", "a3")), "b": log("regional-b", ("b1", "b2", "b3"))},
        {"a": log("aggregate-a", ORDER_A), "b": log("aggregate-b", order_b)},
    )


def write_acknowledged(folder: Path, names: tuple[str, ...]) -> Path:
    """What the producer of region a was told, one record every 100 ms up to the outage, the last one after it."""
    path = folder / "acknowledged.log"
    times = [COMMANDED_MS - 100 * (len(names) - number) for number in range(len(names) - 1)]
    lines = [
        f"0 {name[0]} {name[1:]} regional-a 0 {number} {at_ms}\n"
        for number, (name, at_ms) in enumerate(zip(names, [*times, RETURNED_MS + 100], strict=True))
    ]
    path.write_text("".join(lines), encoding="ascii")
    return path


def write(folder: Path, stages: tuple[tuple[str, ...], ...], *, late_ms: int = 0) -> Path:
    folder.mkdir()
    lines = []
    for stage, names in enumerate(stages):
        cluster, order = (("aggregate-a", ORDER_A), ("aggregate-b", ORDER_B))[stage % 2]
        at_ms = COMMANDED_MS - 100 + 1_000 * stage + (late_ms if stage else 0)
        lines += [f"{stage} {name[0]} {name[1:]} {cluster} 0 {order.index(name)} {at_ms}\n" for name in names]
    (folder / "member.log").write_text("".join(lines), encoding="ascii")
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(
        failover: tuple[tuple[str, ...], ...] = STAGES,
        plain: tuple[tuple[str, ...], ...] = STAGES,
        *,
        three: tuple[tuple[str, ...], ...] = STAGES,
        ends_at_failover: int = 3,
        acked_records: int = 6,
        order_b: tuple[str, ...] = ORDER_B,
        late_ms: int = 0,
        command_start_ms: int = 800,
        uncertain: Uncertain | None = None,
    ) -> dict[str, Any]:
        folders = {
            "failover": write(tmp_path / "failover", failover, late_ms=late_ms),
            "failover_three_members": write(tmp_path / "three", three),
            "plain": write(tmp_path / "plain", plain),
        }
        facts = DemoFacts(
            acked_records=acked_records,
            folders=folders,
            acknowledged=write_acknowledged(tmp_path, ("a1", "a2", "a3")),
            commanded_at_ms=(COMMANDED_MS, COMMANDED_MS + 1_000),
            command_start_ms=command_start_ms,
            ends_at_failover={0: ends_at_failover},
            ends_at_return={0: 4},
            returned_at_ms=RETURNED_MS,
            uncertain=uncertain,
            lag_at_kill=dict.fromkeys(folders, 4),
            skipped_records=2,
        )
        return judge(facts, logs(order_b))

    return run


def test_a_good_run_has_no_failures(run: Run) -> None:
    report = run()
    assert report["failures"] == []
    good = {"lost_records": 0, "redelivered_records": 0, "failover_ms": 900}
    for group in ("failover", "failover_three_members", "plain"):
        assert report["groups"][group]["failover"] == good
        assert report["groups"][group]["failback"] == good
    assert (report["produced_records"], report["skipped_records"], report["pending_records"]) == (6, 2, 1)
    # Of a1 and a2, acknowledged before region a was back, b had a1 by then.
    assert (report["rpo_records"], report["rpo_arrived_records"]) == (1, 1)
    assert report["inversions"] == 3
    # The group had consumed b1, a1 and b2 of what lies in b.
    assert report["alternatives"]["earliest"] == {"lost_records": 0, "redelivered_records": 3}
    assert report["alternatives"]["latest"] == {"lost_records": 1, "redelivered_records": 1}


@pytest.mark.parametrize(
    ("order_a", "duplicated"), [(ORDER_A, 0), (("b1", "a1", "b2", "a2", "b3", "a3", "a1"), 1)]
)
def test_where_producers_write_to_the_very_cluster_its_own_records_are_the_source(
    order_a: tuple[str, ...], duplicated: int
) -> None:
    """And one that was copied back would be there twice."""
    targets = {"a": log("aggregate-a", order_a), "b": log("aggregate-b", ORDER_B)}
    sources = [target.produced_in(region) for region, target in targets.items()]
    assert [sorted(source.records()) for source in sources] == [
        [RecordId(region, number) for number in (1, 2, 3)] for region in "ab"
    ]
    copies = compare_copies(sources, targets["a"])
    assert (copies.lost_records, copies.foreign_records) == (0, 0)
    assert copies.duplicated_records == duplicated


def test_the_plain_group_may_read_again_the_failover_group_may_not(run: Run) -> None:
    again = (STAGES[0], ("b2", "b3", "a2"), STAGES[2])
    report = run(plain=again)
    assert report["failures"] == []
    assert report["groups"]["plain"]["failover"]["redelivered_records"] == 1


@pytest.mark.parametrize(
    ("argument", "group"), [("failover", "failover"), ("three", "failover_three_members")]
)
def test_reading_again_fails_a_group_of_failover_consumers(run: Run, argument: str, group: str) -> None:
    report = run(**{argument: (STAGES[0], ("b2", "b3", "a2"), ("a2", "a3"))})
    assert report["failures"] == [
        f"group {group} read 1 records again in the failover",
        f"group {group} read 1 records again in the failback",
    ]


def test_where_the_replicator_died_too_what_was_not_indexed_may_come_again_once(run: Run) -> None:
    again = (STAGES[0], ("b2", "b3", "a2"), STAGES[2])
    report = run(failover=again, uncertain=Uncertain({0: 2}, 250))
    assert report["failures"] == []
    assert report["groups"]["failover"]["redelivered_at_most"] == 1
    assert report["groups"]["plain"]["redelivered_at_most"] is None
    assert report["unindexed_ms_at_most"] == 250


def test_more_than_was_not_indexed_fails(run: Run) -> None:
    again = (STAGES[0], ("a1", "b2", "b3", "a2"), ("a2", "a3"))
    report = run(failover=again, uncertain=Uncertain({0: 2}, 250))
    assert report["failures"] == [
        "group failover read 2 records again in the failover, where 1 are allowed",
        "group failover read 1 records again in the failback",
    ]


@pytest.mark.parametrize("group", ["failover", "three", "plain"])
def test_losing_a_record_fails_every_group(run: Run, group: str) -> None:
    (failure,) = run(**{group: (STAGES[0], ("a2",), STAGES[2])})["failures"]
    assert failure.endswith(" lost 1 records")


def test_a_record_that_only_region_a_had_and_that_never_comes_fails(run: Run) -> None:
    failures = run(failover=(STAGES[0], ("b3",), ("a3",)))["failures"]
    assert "of 1 records that only region a had, 1 did not arrive once after its return" in failures


def test_a_slow_failover_fails(run: Run) -> None:
    report = run(late_ms=10_000)
    assert report["failures"] == []
    assert too_slow(report, 10_900, 5) == []
    assert too_slow(report, 10_000, 5) == [
        "group failover needed 10,900 ms for the failover, where 10,000 are allowed"
    ]


def test_a_slow_machine_is_no_slow_failover(run: Run) -> None:
    report = run(late_ms=10_000, command_start_ms=2_180)
    assert too_slow(report, 10_000, 5) == []
    assert too_slow(report, 10_000, 4) == [
        "group failover needed 10,900 ms for the failover, where 10,000 are allowed"
    ]


def test_a_failover_with_nothing_pending_shows_too_little(run: Run) -> None:
    (failure,) = run(ends_at_failover=4)["failures"]
    assert "nothing was pending" in failure


def test_an_unfaithful_copy_fails(run: Run) -> None:
    assert "aggregate-b is not a faithful copy of its sources" in run(order_b=ORDER_B[:-1])["failures"]


def test_records_that_vanished_at_the_source_fail(run: Run) -> None:
    (failure,) = run(acked_records=7)["failures"]
    assert failure == "producers were told that 7 records are written, and 6 are"


def test_what_is_missing_is_counted_over_groups_and_copies(tmp_path: Path) -> None:
    folders = {
        "failover": write(tmp_path / "one", STAGES),
        "plain": write(tmp_path / "two", (STAGES[0], (), ())),
    }
    assert missing_records({"failover": folders["failover"]}, logs()) == 0
    assert missing_records(folders, logs()) == 3
    assert missing_records(folders, logs(ORDER_B[:-1])) == 4


def test_regions_produce_at_one_to_five_and_one_is_idle_for_half_of_the_time() -> None:
    options = DemoOptions()
    plans = {region: options.plan_of(region) for region in ("a", "b")}
    assert plans["b"].records / plans["a"].records == pytest.approx(5, rel=0.01)
    assert sum(plan.phases[0].records for plan in plans.values()) == options.backlog_records
    idle_s = sum(phase.seconds for phase in plans["a"].phases if phase.records == 0)
    assert idle_s == pytest.approx(sum(phase.seconds for phase in plans["a"].phases) / 2)


def test_a_proof_has_aborted_transactions_and_an_idle_stretch() -> None:
    options = ProveOptions()
    plans = {region: options.plan_of(region) for region in ("a", "b")}
    assert plans["a"].records + plans["b"].records == 60_000
    assert plans["b"].records / plans["a"].records == pytest.approx(20, rel=0.01)
    assert any(phase.records == 0 for phase in plans["a"].phases)
    for plan in plans.values():
        assert plan.transactions is not None
        assert plan.transactions.abort_every > 0
