"""Drills: figures, history, report, and the steps over the real executor with canary records of the test's making."""

from __future__ import annotations

import json
import os
import re
import signal
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from parallax.cli import drill as command
from parallax.cli.drill import plan_of, seconds_of, steps_of
from parallax.cli.main import app
from parallax.config.config import Config
from parallax.domain.ids import GroupName, RegionName
from parallax.errors import ConfigError, InvalidNameError, StoreUnavailableError
from parallax.failover.drill.figures import CanaryDelivery, Leg, Samples, figures, timeline
from parallax.failover.drill.history import DRILLS, DrillEnding, DrillRecord, keep, kept
from parallax.failover.drill.report import html, markdown
from parallax.failover.drill.run import DrillPlan, DrillRun
from parallax.failover.outside import Outside
from parallax.failover.plan import Ending, MoveLimits
from parallax.failover.waiting import Tell
from tests.memory.groups import MemoryOperationJournal
from tests.worlds.failover_bench import Bench, failover_bench, two_sources
from tests.worlds.offset_world import GROUP, TOPIC

PLAN = DrillPlan(
    GROUP,
    TOPIC,
    RegionName("a"),
    RegionName("b"),
    (RegionName("a"), RegionName("b")),
    flow_ms=2_000,
    records=1,
    limits=MoveLimits(drain_ms=2_000, catch_up_ms=2_000),
)


class TestFigures:
    def test_they_count_from_the_command_to_the_first_record_there(self) -> None:
        samples = Samples(
            acknowledged={("a", 0): 100, ("a", 1): 900, ("b", 0): 980, ("a", 2): 1_500},
            delivered=[
                CanaryDelivery(("a", 0), 150, "a"),
                CanaryDelivery(("a", 1), 950, "a"),
                CanaryDelivery(("b", 0), 1_600, "b"),
                CanaryDelivery(("a", 1), 1_700, "b"),
            ],
            arrived={"b": {("a", 0): 180, ("a", 1): 1_050}},
        )
        found = figures(samples, [Leg("a", "b", 1_000, 1_400)])
        assert (found.acknowledged, found.delivered, found.lost, found.redelivered) == (4, 4, 1, 1)
        (leg,) = found.legs
        assert (leg.rto_ms, leg.silence_ms) == (600, 650)
        assert (leg.rpo_records, leg.rpo_ms) == (2, 100)

    def test_a_move_after_which_nothing_came_has_no_rto(self) -> None:
        (leg,) = figures(Samples(delivered=[CanaryDelivery(("a", 0), 5, "a")]), [Leg("a", "b", 10, 20)]).legs
        assert (leg.rto_ms, leg.silence_ms, leg.rpo_records, leg.rpo_ms) == (None, None, 0, 0)

    def test_the_timeline_holds_every_record(self) -> None:
        samples = Samples(
            {("a", n): n * 37.0 for n in range(500)},
            [CanaryDelivery(("a", n), n * 37.0 + 4, "ab"[n // 250]) for n in range(500)],
        )
        line = timeline(samples, ["a", "b"])
        assert sum(line.acknowledged) == 500
        assert [sum(counts) for counts in line.delivered.values()] == [250, 250]


class FakeCanary:
    """A consumer that is wherever its group is primary; each look at it is a moment in which a record comes."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.at_ms = 0.0
        self.acknowledged: dict[Any, float] = {}
        self.delivered: list[CanaryDelivery] = []
        self.open_calls = 0
        self.producing = False
        self.closed = 0
        self.drop: Callable[[int], bool] = lambda _number: False
        self.repeat: Callable[[int], bool] = lambda _number: False
        self.failure: Exception | None = None

    def open(self, drill_id: str) -> None:
        assert drill_id
        self.open_calls += 1
        self.producing = True

    def now_ms(self) -> float:
        return self.at_ms

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def samples(self) -> Samples:
        self.at_ms += 10
        if self.producing:
            self._come()
        return Samples(dict(self.acknowledged), tuple(self.delivered))

    def _come(self) -> None:
        found = self.bench.client.service.primaries.get(GROUP)
        cluster = None if found is None else found.consumed_cluster
        region = "a" if cluster is None else str(cluster).removeprefix("aggregate-")
        number = len(self.acknowledged)
        for source in "ab":
            record = (source, number)
            self.acknowledged[record] = self.at_ms
            copies = 0 if self.drop(number) else 2 if self.repeat(number) else 1
            self.delivered += [CanaryDelivery(record, self.at_ms, region)] * copies

    def stop_producing(self) -> None:
        self.producing = False

    def close(self) -> None:
        self.producing = False
        self.closed += 1


@pytest.fixture
def bench() -> Iterator[Bench]:
    with failover_bench() as made:
        two_sources(made.world)
        made.world.commit("a", 15)
        yield made


def drilled(bench: Bench, canary: FakeCanary, proof: str = "once") -> DrillRecord:
    return DrillRun(bench.outside, canary, PLAN, prove=lambda: proof).run()


def home(bench: Bench) -> str:
    return str(bench.assignment().consumed_cluster)


class TestSteps:
    def test_a_drill_goes_there_and_back_and_is_kept(self, bench: Bench) -> None:
        canary = FakeCanary(bench)
        record = drilled(bench, canary)
        assert (record.ending, record.problem, record.proof) == (DrillEnding.PASSED, "", "once")
        assert record.figures is not None
        assert [leg.leg.to for leg in record.figures.legs] == ["b", "a"]
        assert (record.figures.lost, record.figures.redelivered) == (0, 0)
        assert home(bench) == "aggregate-a"
        assert (canary.open_calls, canary.closed) == (1, 1)
        assert kept(bench.outside.journal.notes) == [record]
        assert len(bench.outside.journal.records(GROUP)) == 2, "its notes are not those of moves"

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"drop": lambda number: number == 4}, "2 record(s) lost, 0 delivered again"),
            ({"repeat": lambda number: number == 4}, "0 record(s) lost, 2 delivered again"),
        ],
    )
    def test_a_record_missing_or_too_many_fails_it(
        self, bench: Bench, change: dict[str, Any], says: str
    ) -> None:
        canary = FakeCanary(bench)
        for name, value in change.items():
            setattr(canary, name, value)
        record = drilled(bench, canary)
        assert (record.ending, record.problem) == (DrillEnding.FAILED, says)

    def test_a_proof_that_says_otherwise_fails_it(self, bench: Bench) -> None:
        record = drilled(bench, FakeCanary(bench), "twice")
        assert record.ending is DrillEnding.FAILED
        assert "`parallax verify billing --moves 2` says 'twice'" in record.problem

    def test_records_that_do_not_flow_end_it_before_anything_moves(self, bench: Bench) -> None:
        canary = FakeCanary(bench)
        canary.drop = lambda _number: True
        record = drilled(bench, canary)
        assert record.ending is DrillEnding.FAILED
        assert "did not reach the drill's consumer in a" in record.problem
        assert bench.client.service.primaries.get(GROUP) is None
        assert canary.closed == 1

    def test_a_cluster_that_refuses_records_ends_it_and_says_so(self, bench: Bench) -> None:
        canary = FakeCanary(bench)
        canary.failure = ConfigError("regional-a: producing to parallax-drill: not allowed")
        record = drilled(bench, canary)
        assert record.ending is DrillEnding.FAILED
        assert "not allowed" in record.problem
        assert record.left == "group billing is in aggregate-a, without members"
        assert bench.client.service.primaries.get(GROUP) is None

    def test_a_drill_that_fails_half_way_shows_what_it_has_and_calls_nothing_lost(self, bench: Bench) -> None:
        canary = FakeCanary(bench)

        def break_down(_turn: int) -> None:
            if bench.client.service.primaries.get(GROUP) is not None:
                canary.drop = lambda _number: True

        bench.while_waiting = break_down
        record = drilled(bench, canary)
        assert record.ending is DrillEnding.FAILED
        assert "did not reach the drill's consumer in b" in record.problem
        assert record.figures is not None
        assert record.figures.delivered < record.figures.acknowledged
        assert (record.figures.lost, record.proof) == (None, "")
        assert [(leg.leg.to, leg.rto_ms) for leg in record.figures.legs] == [("b", None)]
        assert record.timeline is not None
        assert kept(bench.outside.journal.notes) == [record]

    def test_a_group_with_members_is_left_to_them(self, bench: Bench) -> None:
        canary = FakeCanary(bench)
        bench.writer("a").members[GROUP] = 1
        record = drilled(bench, canary)
        assert record.ending is DrillEnding.FAILED
        assert "group billing has members in aggregate-a: does another drill run?" in record.problem
        assert (record.left, canary.open_calls) == ("group billing was not touched", 0)
        assert bench.client.service.primaries.get(GROUP) is None

    def test_a_drill_between_two_clusters_is_not_taken_for_a_killed_one(self, bench: Bench) -> None:
        began = DrillRecord("first", GROUP, TOPIC, "a", "b", bench.world.now_ms - 1_000, 1)
        keep(bench.outside.journal.notes, began)
        members = bench.writer("a").members
        bench.while_waiting = lambda turn: members.update({GROUP: 1}) if turn == 20 else None
        assert drilled(bench, FakeCanary(bench)).left == "group billing was not touched"

        members.clear()
        keep(bench.outside.journal.notes, replace(began, version=2, started_at_ms=bench.world.now_ms))
        bench.world.now_ms += 1_000
        bench.while_waiting = lambda _turn: None
        canary = FakeCanary(bench)
        record = drilled(bench, canary)
        assert record.left == "group billing is in aggregate-a, without members", "it was killed"

    def test_members_of_a_killed_drill_are_waited_for(self, bench: Bench) -> None:
        bench.writer("a").members[GROUP] = 1
        bench.while_waiting = lambda turn: bench.writer("a").members.pop(GROUP, None) if turn == 3 else None
        assert drilled(bench, FakeCanary(bench)).ending is DrillEnding.PASSED

    def test_ctrl_c_between_the_moves_takes_the_group_home(self, bench: Bench) -> None:
        canary = FakeCanary(bench)

        def stop_there(_turn: int) -> None:
            found = bench.client.service.primaries.get(GROUP)
            if found is not None and found.consumed_cluster == "aggregate-b":
                bench.outside.time.stop.set()

        bench.while_waiting = stop_there
        plan = replace(PLAN, records=5)
        record = DrillRun(bench.outside, canary, plan, prove=lambda: "once").run()
        assert (record.ending, record.problem) == (DrillEnding.INTERRUPTED, "the command was stopped")
        assert record.left == "group billing is in aggregate-a, without members"
        assert home(bench) == "aggregate-a"

    def test_a_group_that_can_not_be_taken_home_is_told_and_goes_home_with_the_next_drill(
        self, bench: Bench
    ) -> None:
        canary = FakeCanary(bench)

        def break_down(_turn: int) -> None:
            found = bench.client.service.primaries.get(GROUP)
            if found is not None and found.consumed_cluster == "aggregate-b":
                bench.client.failing["set_primary moving"] = StoreUnavailableError("away")

        bench.while_waiting = break_down
        record = DrillRun(bench.outside, canary, replace(PLAN, records=5), prove=lambda: "once").run()
        assert record.ending is DrillEnding.FAILED
        assert "could not be taken home to aggregate-a" in record.left

        bench.client.failing.clear()
        bench.while_waiting = lambda _turn: None
        bench.world.now_ms += 10_000
        again = drilled(bench, FakeCanary(bench))
        assert again.ending is DrillEnding.PASSED, again.problem
        assert [item.ending for item in kept(bench.outside.journal.notes)] == [
            DrillEnding.PASSED,
            DrillEnding.FAILED,
        ]

    def test_a_move_that_a_killed_drill_left_half_way_is_ended_first(self, bench: Bench) -> None:
        bench.client.failing["report_positions"] = StoreUnavailableError("away")
        assert bench.move("a", "b", drain_ms=2_000).ending is Ending.INTERRUPTED
        bench.client.failing.clear()
        record = drilled(bench, FakeCanary(bench))
        assert record.ending is DrillEnding.PASSED, record.problem
        assert home(bench) == "aggregate-a"

    def test_without_a_journal_nothing_is_begun(self, bench: Bench) -> None:
        canary = FakeCanary(bench)

        class Away(MemoryOperationJournal):
            def save_operation(self, note: object) -> None:
                raise StoreUnavailableError(f"no room for {type(note).__name__}")

        bench.outside.journal.notes = Away()
        with pytest.raises(StoreUnavailableError):
            drilled(bench, canary)
        assert canary.open_calls == 0

    def test_a_result_that_can_not_be_kept_is_still_told(self, bench: Bench) -> None:
        class Failing(MemoryOperationJournal):
            def save_operation(self, note: Any) -> None:
                if note.group == DRILLS and '"ending":"running"' not in note.body:
                    raise StoreUnavailableError("away")
                super().save_operation(note)

        bench.outside.journal.notes = Failing()
        record = drilled(bench, FakeCanary(bench))
        assert record.ending is DrillEnding.PASSED
        assert record.problem.startswith("passed; not kept: ")
        assert [item.ending for item in kept(bench.outside.journal.notes)] == [DrillEnding.RUNNING]


@pytest.fixture
def records(bench: Bench) -> list[DrillRecord]:
    drilled(bench, FakeCanary(bench))
    bench.world.now_ms += 10_000
    canary = FakeCanary(bench)
    canary.drop = lambda number: number == 4
    drilled(bench, canary)
    (newest, before) = kept(bench.outside.journal.notes)
    told = replace(newest, problem="a <b> & | c")
    keep(bench.outside.journal.notes, replace(told, version=told.version + 1))
    return list(kept(bench.outside.journal.notes)) if before.ending is DrillEnding.PASSED else []


class TestReport:
    def test_markdown_has_a_row_for_each_drill(self, records: list[DrillRecord]) -> None:
        text = markdown(records)
        rows = [line for line in text.splitlines() if line.startswith("| 2023")]
        assert [" failed " in row for row in rows] == [True, False]
        assert len({line.count("|") for line in rows}) == 1
        assert "Why: a <b> & | c." in text

    def test_the_page_is_well_formed_and_loads_nothing(self, records: list[DrillRecord]) -> None:
        page = html(records)
        assert "a &lt;b&gt; &amp; | c" in page
        assert "<script" not in page
        assert re.findall(r'(?:src|href)="(?!data:)', page) == []
        drawn = page[page.index("<svg") : page.index("</svg>") + len("</svg>")]
        root = ET.fromstring(drawn)  # noqa: S314 - our own text
        texts = [item.text or "" for item in root.iter("text")]
        assert {"acknowledged", "delivered in a", "delivered in b"} <= set(texts)
        assert any(text.startswith("a to b, RTO ") for text in texts)
        line, measured = records[0].timeline, records[0].figures
        assert line is not None
        assert measured is not None
        bars = [
            count for counts in (line.acknowledged, *line.delivered.values()) for count in counts if count
        ]
        assert len(list(root.iter("rect"))) == len(measured.legs) + len(bars)

    def test_before_the_first_drill_there_is_a_report_too(self) -> None:
        assert "No drill has been run yet." in markdown([])
        assert "No drill has been run yet." in html([])

    def test_a_drill_that_ended_without_a_word_is_told(self, records: list[DrillRecord]) -> None:
        running = replace(records[0], ending=DrillEnding.RUNNING, figures=None, timeline=None)
        assert "ended without a word" in markdown([running])
        assert "<svg" not in html([running])


def config(**sections: Any) -> Config:
    cluster = {"bootstrap_servers": "127.0.0.1:1"}
    regions = sections.pop("regions", {name: {"regional": cluster, "aggregate": cluster} for name in "ab"})
    return Config.model_validate(
        {"regions": regions, "cassandra": {"contact_points": ["127.0.0.1"]}, **sections}
    )


class TestCommand:
    def test_two_regions_need_not_be_named(self) -> None:
        plan = plan_of(config(), None, None)
        assert (plan.origin, plan.to, plan.regions) == ("a", "b", ("a", "b"))
        assert plan_of(config(), "b", None).to == "a"
        assert plan_of(config(), None, "a").origin == "b"
        assert (plan.topic, plan.group) == ("parallax-drill", "parallax-drill")

    def test_what_it_would_do_is_told(self) -> None:
        told = "\n".join(steps_of(config(drill={"topic": "canary"}), plan_of(config(), None, None)))
        assert "produce 20 records a second to each of regional-a, regional-b" in told
        assert "nothing was done" in told

    @pytest.mark.parametrize(
        ("sections", "origin", "to", "says"),
        [
            ({"topics": {"include": ["trips"]}}, None, None, "'topics' leaves it out"),
            ({"groups": {"include": ["billing"]}}, None, None, "'groups' leaves it out"),
            ({}, "a", "a", "the same region"),
            ({}, "c", None, "unknown region 'c'"),
            ({"routes": ["a->a", "b->b"]}, None, None, "no region is replicated to both"),
        ],
    )
    def test_what_can_not_be_drilled_is_refused(
        self, sections: dict[str, Any], origin: str | None, to: str | None, says: str
    ) -> None:
        with pytest.raises(Exception, match=re.escape(says)) as caught:
            plan_of(config(**sections), origin, to)
        assert hasattr(caught.value, "code")

    def test_of_three_regions_two_are_named(self) -> None:
        cluster = {"bootstrap_servers": "127.0.0.1:1"}
        three = config(regions={name: {"regional": cluster, "aggregate": cluster} for name in "abc"})
        for origin in (None, "a"):
            with pytest.raises(InvalidNameError, match="say which of a, b, c"):
                plan_of(three, origin, None)
        assert plan_of(three, "c", "a").regions == ("a", "b", "c")

    @pytest.mark.parametrize(
        ("text", "seconds"), [("90s", 90), ("1.5m", 90), ("24h", 86_400), ("7d", 604_800)]
    )
    def test_durations(self, text: str, seconds: float) -> None:
        assert seconds_of(text) == seconds

    @pytest.mark.parametrize("text", ["", "24", "0h", "h", "-1h", "1w"])
    def test_what_is_no_duration_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidNameError, match="--every"):
            seconds_of(text)


Run = Callable[..., Any]


class TestRuns:
    """The command, with drills over the bench."""

    opens_left_to_fail = 0

    @pytest.fixture
    def run(self, bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Run]:
        @contextmanager
        def opened(_config: Config, **_near: Any) -> Iterator[Any]:
            if self.opens_left_to_fail:
                self.opens_left_to_fail -= 1
                raise StoreUnavailableError("store: no node answers")
            yield bench.outside

        def over_the_bench(_config: Config, outside: Outside, _plan: DrillPlan, tell: Tell) -> DrillRecord:
            return DrillRun(outside, FakeCanary(bench), PLAN, prove=lambda: "once", tell=tell).run()

        monkeypatch.setattr(command, "open_outside", opened)
        monkeypatch.setattr(command, "run_drill", over_the_bench)
        monkeypatch.setattr(command, "load", lambda _path: config(drill={"topic": TOPIC, "group": GROUP}))
        # A logger would keep the runner's standard error, which ends with each command.
        monkeypatch.setattr(command, "configure_logging", lambda **_options: None)

        def invoke(*arguments: str, directory: Path = tmp_path) -> Any:
            bench.world.now_ms += 1_000
            options = ["--config", "unread", "--directory", str(directory)]
            return CliRunner().invoke(app, ["drill", *options, *arguments])

        with capture_logs():  # they would go to the command's standard output
            yield invoke

    def test_once(self, run: Run, tmp_path: Path) -> None:
        done = run()
        assert (done.exit_code, done.exception) == (0, None)
        assert "The newest: passed" in done.stdout
        assert "| passed |" in (tmp_path / "parallax-drill.md").read_text(encoding="utf-8")
        assert "<svg" in (tmp_path / "parallax-drill.html").read_text(encoding="utf-8")

    def test_a_schedule_goes_on_after_a_drill_that_could_not_be_run(self, bench: Bench, run: Run) -> None:
        self.opens_left_to_fail = 1
        done = run("--every", "0.01s", "--times", "3", "--json")
        assert done.exit_code == 1
        assert "no drill [STORE_UNAVAILABLE]: store: no node answers" in done.stderr
        assert [json.loads(line)["ending"] for line in done.stdout.splitlines()] == ["passed", "passed"]
        assert len(kept(bench.outside.journal.notes)) == 2

    def test_ctrl_c_ends_the_drill_and_the_schedule(self, bench: Bench, run: Run) -> None:
        bench.while_waiting = lambda turn: os.kill(os.getpid(), signal.SIGINT) if turn == 1 else None
        done = run("--every", "1d")
        assert done.exit_code == 1
        assert "stopping after the present step" in done.stderr
        assert [item.ending for item in kept(bench.outside.journal.notes)] == [DrillEnding.INTERRUPTED]
        assert "The newest: interrupted" in done.stdout

    def test_a_drill_alone_that_can_not_be_run_is_an_error(self, run: Run) -> None:
        self.opens_left_to_fail = 1
        assert isinstance(run().exception, StoreUnavailableError)

    def test_a_report_needs_no_drill(self, run: Run, tmp_path: Path) -> None:
        assert "ending" in run("--json").stdout
        (tmp_path / "parallax-drill.html").unlink()
        done = run("--report", "--json")
        assert done.exit_code == 0
        assert [item["ending"] for item in json.loads(done.stdout)] == ["passed"]
        assert "passed" in (tmp_path / "parallax-drill.html").read_text(encoding="utf-8")

    def test_a_store_that_breaks_down_meanwhile_costs_the_older_drills_alone(
        self, bench: Bench, run: Run, tmp_path: Path
    ) -> None:
        class Forgetful(MemoryOperationJournal):
            def operations(self, group: GroupName) -> Any:
                found = super().operations(group)
                if group == DRILLS and '"ending":"running"' not in found[0].body:
                    raise StoreUnavailableError("away")
                return found

        bench.outside.journal.notes = Forgetful()
        done = run()
        assert done.exit_code == 0
        assert "the report lacks the drills before [STORE_UNAVAILABLE]: away" in done.stderr
        assert "| passed |" in (tmp_path / "parallax-drill.md").read_text(encoding="utf-8")

    def test_a_place_for_the_report_is_asked_for_first(self, bench: Bench, run: Run, tmp_path: Path) -> None:
        done = run(directory=tmp_path / "missing")
        assert isinstance(done.exception, ConfigError)
        assert "--directory" in str(done.exception)
        assert kept(bench.outside.journal.notes) == []

    def test_a_dry_run_does_nothing(self, bench: Bench, run: Run, tmp_path: Path) -> None:
        assert "nothing was done" in run("--dry-run").stdout
        assert "nothing was done" in json.loads(run("--dry-run", "--json").stdout)["steps"][-1]
        assert (kept(bench.outside.journal.notes), list(tmp_path.iterdir())) == ([], [])

    def test_times_without_a_schedule_is_refused(self, run: Run) -> None:
        assert isinstance(run("--times", "2").exception, InvalidNameError)


def test_a_refused_move_is_told(bench: Bench) -> None:
    bench.world.trim("b", 8)
    record = drilled(bench, FakeCanary(bench))
    assert record.ending is DrillEnding.FAILED
    assert "the move to b ended as refused" in record.problem
    assert record.left == "group billing is in aggregate-a, without members"
