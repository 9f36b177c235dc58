"""`parallax runlog`: what is printed, and when the exit code is 1."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any, ClassVar, NoReturn, Self

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from parallax.domain.audit import NO_GROUP, AuditStage
from parallax.domain.ids import Route, SourceOffset, TopicId, TopicName, TopicPartition
from parallax.domain.rights import Principal, ProvenBy
from parallax.errors import StoreUnavailableError, UnknownRouteError
from replicator import run_log_command
from replicator.copying.rebuild import GoingOn, Restored
from replicator.copying.recovery import RunLogError, RunLogProblem
from replicator.kafka import run_log_check
from replicator.kafka.layout_record import LayoutRecord
from replicator.kafka.rebuild import RebuildPlan
from replicator.kafka.run_log_check import RouteCheck, ShardCheck
from tests.memory.audit import MemoryAuditLog

ROUTE = Route.parse("a->b")
LAYOUT = LayoutRecord(3, 2, settled=True, run_log="parallax.runs.a", run_log_id=TopicId("log"))
REFUSED = RunLogError(RunLogProblem.RUN_LOG_HEADLESS, "aggregate-b: run log parallax.runs.a-1", "no snapshot")
CONFIG = """
regions:
  a: {regional: {bootstrap_servers: "none:1"}}
  b: {aggregate: {bootstrap_servers: "none:1"}}
cassandra: {contact_points: ["none"]}
"""


class Stores:
    """A store that is never asked."""

    index = None
    audit = MemoryAuditLog()
    clock = SimpleNamespace(now_ms=lambda: 7)

    def __init__(self, *_: object, **__: object) -> None: ...

    def connect(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class Work:
    """A rebuild that notes what it was asked for."""

    asked: tuple[str, bool] = ("", False)
    kept: ClassVar[list[AuditStage]] = []
    """What the audit had when it began."""

    def __init__(self, *_: object, anew: bool) -> None:
        self._anew = anew

    def plan(self) -> RebuildPlan:
        Work.asked = ("plan", self._anew)
        item = TopicPartition(TopicName("trips"), 0)
        parts = [
            Restored(item, GoingOn.NEW_GENERATION, SourceOffset(70), (), 12, "12 records lie on the target"),
            Restored(item, GoingOn.EXACT, SourceOffset(9), (), 0, "every record on the target is explained"),
        ]
        return RebuildPlan(ROUTE, 4, 2, {1: REFUSED}, {}, parts, ["the run log of c->b can't be read"])

    def execute(self) -> RebuildPlan:
        Work.kept = [entry.stage for entry in Stores.audit.entries()]
        plan = self.plan()
        Work.asked = ("execute", self._anew)
        return plan


Run = Callable[..., Any]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    path = tmp_path / "parallax.yaml"
    path.write_text(CONFIG)
    monkeypatch.setattr(Stores, "audit", MemoryAuditLog())
    monkeypatch.setattr(run_log_command, "CassandraStores", Stores)
    monkeypatch.setattr(run_log_command, "Rebuild", Work)

    def invoke(*words: str) -> Any:
        with capture_logs():  # which `parallax` writes to standard error
            return CliRunner().invoke(run_log_command.app, [*words, "--config", str(path)])

    return invoke


def checks(monkeypatch: pytest.MonkeyPatch, *, sound: bool) -> None:
    whole = ShardCheck(0, 5, 900, 4, 1_500, 20_000, 16, 7_200_000)
    other = whole if sound else ShardCheck(1, 5, 900, problem=str(REFUSED))
    found = RouteCheck(ROUTE, LAYOUT, TopicId("log"), [whole, other])
    monkeypatch.setattr(run_log_check, "check_route", lambda *_: found)


def test_a_sound_run_log_is_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    checks(monkeypatch, sound=True)
    result = run("check")
    assert result.exit_code == 0
    for shown in ("a->b", "900", "20000", "1.5", "2.0"):
        assert shown in result.stdout


def test_a_refused_run_log_is_named_and_the_exit_code_is_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    checks(monkeypatch, sound=False)
    result = run("check", "--route", "a->b")
    assert result.exit_code == 1
    assert str(REFUSED) in result.stdout
    [found] = json.loads(run("check", "--json").stdout)
    assert found["problems"] == [str(REFUSED)]
    assert [shard["partitions"] for shard in found["shards"]] == [16, None]


def test_without_execute_the_plan_is_only_shown(run: Run) -> None:
    result = run("rebuild", "--route", "a->b")
    assert result.exit_code == 0
    assert Work.asked == ("plan", False)
    for shown in (
        "new generation",
        "12 records lie on the target",
        "at most 12 records come twice",
        "nothing was changed",
    ):
        assert shown in result.stdout
    assert "note: the run log of c->b can't be read" in result.stdout


def test_it_is_written_on_the_operators_word(run: Run) -> None:
    result = run("rebuild", "--route", "a->b", "--execute", "--begin-anew", "--json")
    assert Work.asked == ("execute", True)
    found = json.loads(result.stdout)
    assert (found["executed"], found["layout"], found["records_twice_at_most"]) == (True, 4, 12)
    assert found["partitions"][0]["going_on"] == "new generation"


def test_whose_word_it_was_is_kept_from_before_anybody_is_fenced(run: Run) -> None:
    assert run("rebuild", "--route", "a->b", "--actor", "alice").exit_code == 0
    assert Stores.audit.entries() == []
    assert run("rebuild", "--route", "a->b", "--execute", "--actor", "alice").exit_code == 0
    assert Work.kept == [AuditStage.INTENDED]
    intended, done = Stores.audit.entries()
    assert (intended.call, intended.group) == ("runlog rebuild", NO_GROUP)
    assert intended.principal == Principal("alice", ProvenBy.OWN_WORD)
    assert intended.after == {"route": "a->b", "run_log": "made anew"}
    assert (done.stage, done.after) == (AuditStage.DONE, {"layout": "4", "records_twice_at_most": "12"})


def test_what_can_not_be_kept_is_not_done(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> NoReturn:
        raise StoreUnavailableError("store: no answer")

    monkeypatch.setattr(Stores.audit, "append", away)
    Work.asked = ("", False)
    assert isinstance(run("rebuild", "--route", "a->b", "--execute").exception, StoreUnavailableError)
    assert Work.asked == ("", False)


def test_a_route_that_is_not_configured_is_refused(run: Run) -> None:
    assert isinstance(run("rebuild", "--route", "b->a").exception, UnknownRouteError)


def test_run_logs_are_looked_at_beside_each_other_and_told_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is there once all have been asked for, and not before."""
    routes = [Route.parse(name) for name in ("b->a", "a->b", "a->a")]
    all_are_asked = Barrier(len(routes))

    def check_route(_config: object, route: Route, _indexed_up_to: object) -> RouteCheck:
        all_are_asked.wait(timeout=60)
        return RouteCheck(route, None, None)

    monkeypatch.setattr(run_log_check, "check_route", check_route)
    found = run_log_check.check_routes(SimpleNamespace(), routes)  # type: ignore[arg-type] # nobody reads it
    assert [item.route for item in found] == routes
