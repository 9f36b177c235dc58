"""`parallax drill`: what it refuses, runs and writes."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from parallax.cli import drill as command
from parallax.cli.drill import plan_of, seconds_of, steps_of
from parallax.cli.main import app
from parallax.config.config import Config
from parallax.domain.ids import GroupName
from parallax.errors import ConfigError, InvalidNameError, StoreUnavailableError
from parallax.failover.drill.history import DRILLS, DrillEnding, DrillRecord, kept
from parallax.failover.drill.run import DrillPlan, DrillRun
from parallax.failover.outside import Outside
from parallax.failover.waiting import Tell
from tests.memory.groups import MemoryOperationJournal
from tests.worlds.drill_bench import PLAN, FakeCanary
from tests.worlds.failover_bench import Bench, failover_bench, two_sources
from tests.worlds.offset_world import GROUP, TOPIC


@pytest.fixture
def bench() -> Iterator[Bench]:
    with failover_bench() as made:
        two_sources(made.world)
        made.world.commit("a", 15)
        yield made


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

    def test_one_cluster_per_region_is_drilled_with_what_is_produced_there(self) -> None:
        kafka = {"bootstrap_servers": "127.0.0.1:1"}
        both = {name: {"cluster": kafka} for name in "ab"}
        assert plan_of(config(regions=both, routes=["a->b", "b->a"]), "b", "a").regions == ("a", "b")
        standby = {"a": {"cluster": kafka}, "b": {"aggregate": kafka}}
        assert plan_of(config(regions=standby, routes=["a->b"]), None, None).regions == ("a",)
        for home, away in ("ab", "ba"):
            with pytest.raises(
                ConfigError, match=r"producers write to aggregate-b.*Configure the route b->a, or"
            ):
                plan_of(config(regions=both, routes=["a->b"]), home, away)

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
        monkeypatch.setattr(command, "log_beside_result", lambda **_options: None)

        def invoke(*arguments: str, directory: Path = tmp_path) -> Any:
            bench.world.now_ms += 1_000
            options = ["--config", "unread", "--directory", str(directory)]
            return CliRunner().invoke(app, ["drill", *options, *arguments])

        with capture_logs():  # they would go to the command's standard output
            yield invoke

    def test_a_dry_run_tells_the_steps_and_takes_none(self, bench: Bench, run: Run) -> None:
        done = run("--dry-run")
        assert (done.exit_code, done.stdout.splitlines()[-1]) == (
            0,
            "nothing was done: leave --dry-run out to do it",
        )
        assert kept(bench.outside.journal.notes) == []

    def test_once(self, run: Run, tmp_path: Path) -> None:
        done = run()
        assert (done.exit_code, done.exception) == (0, None)
        assert "The newest: passed" in done.stdout
        assert "| passed |" in (tmp_path / "parallax-drill.md").read_text(encoding="utf-8")
        assert "<svg" in (tmp_path / "parallax-drill.html").read_text(encoding="utf-8")

    def test_what_a_step_tells_is_no_markup(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        over_the_bench = command.run_drill

        def telling(config: Config, outside: Outside, plan: DrillPlan, tell: Tell) -> DrillRecord:
            tell("[CLUSTER_UNAVAILABLE] broker [::1]:9092 is away [/]")
            return over_the_bench(config, outside, plan, tell)

        monkeypatch.setattr(command, "run_drill", telling)
        assert run().exception is None

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
