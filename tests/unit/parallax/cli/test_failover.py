"""What `parallax failover`, `failback` and `rollback` do and say, of one group and of a region's."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from parallax.cli import acl, failover, failover_command, output
from parallax.cli.main import app
from parallax.config.config import Config
from parallax.domain.access_rules import (
    AccessFinding,
    AccessKind,
    AccessOperation,
    AccessRule,
    AccessState,
    NameMatch,
)
from parallax.domain.commits import GroupCommit, ObservedCommit
from parallax.domain.ids import ClusterName, RegionName, TargetOffset
from parallax.domain.primary import Change, Mode, Stage
from parallax.domain.rights import Principal
from parallax.errors import (
    InvalidNameError,
    InvariantError,
    RefusedError,
    StoreUnavailableError,
)
from parallax.failover.journal import Step
from parallax.upkeep.access import AccessRow
from tests.worlds.failover_bench import (
    BILLING,
    FRAUD,
    MAPS,
    P0,
    Bench,
    region_bench,
)
from tests.worlds.offset_world import GROUP, TOPIC

ON_A, ON_B = ClusterName("aggregate-a"), ClusterName("aggregate-b")
Run = Callable[..., Any]


@pytest.fixture
def bench() -> Iterator[Bench]:
    with region_bench() as made:
        yield made


@pytest.fixture
def not_asked() -> list[set[RegionName]]:
    """The regions whose services each command left out when it acted."""
    return []


@pytest.fixture
def first_and_last() -> list[tuple[RegionName | None, RegionName | None]]:
    """Of each command: the region whose service is asked first, and the one asked last."""
    return []


@pytest.fixture
def run(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    not_asked: list[set[RegionName]],
    first_and_last: list[tuple[RegionName | None, RegionName | None]],
) -> Iterator[Run]:
    @contextmanager
    def opened(_config: Config, **near: Any) -> Iterator[Any]:
        first_and_last.append((near.get("target"), near.get("origin")))
        yield replace(bench.outside, operator=near["operator"])

    @contextmanager
    def narrowed(_config: Config, outside: Any, lost: Collection[RegionName], **_near: Any) -> Iterator[Any]:
        not_asked.append(set(lost))
        yield outside

    monkeypatch.setattr(failover_command, "without", narrowed)
    for commands in (failover, failover_command):
        monkeypatch.setattr(commands, "open_outside", opened)
        monkeypatch.setattr(commands, "load", lambda _path: bench.world.config)
        # A logger would keep the runner's standard error, which ends with each command.
        monkeypatch.setattr(commands, "log_beside_result", lambda **_options: None)

    def invoke(*arguments: str, typed: str = "") -> Any:
        bench.world.now_ms += 1_000
        result = CliRunner().invoke(
            app, [*arguments, "--config", str(tmp_path / "parallax.yaml")], input=typed
        )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    with capture_logs():  # they would go to the commands' standard output
        yield invoke


def test_failover_shows_the_plan_and_changes_nothing(run: Run, bench: Bench) -> None:
    for arguments in (("--to", "b"), ("--to", "b", "--dry-run")):
        result = run("failover", GROUP, *arguments)
        assert result.exit_code == 0, result.stdout
        assert "nothing was changed: --execute carries this out" in result.stdout
        assert "a plain client reads 10 record(s) again" in result.stdout
    plan = json.loads(run("failover", GROUP, "--to", "b", "--json").stdout)
    assert (plan["group"], plan["refusals"]) == (GROUP, [])
    assert [(item["resume_offset"], item["skip_records"]) for item in plan["partitions"]] == [(5, 10)]
    assert bench.commit("b") is None
    assert bench.client.service.primaries.get(GROUP) is None


def test_a_plan_is_written_as_a_ticket(run: Run, bench: Bench) -> None:
    """With the command that carries it out, as it was typed."""
    why = ("--reason", "CHG-7 | patch *day*", "--actor", "alice")
    shown = run("failover", GROUP, "--to", "b", "-o", "markdown", *why)
    assert shown.exit_code == 0, shown.stdout
    lines = shown.stdout.splitlines()
    assert lines[0] == f"# Move {GROUP} from aggregate-a to aggregate-b"
    assert lines[2].startswith("By alice, 20")
    assert r"Why: CHG-7 \| patch \*day\*" in lines
    assert f"| {GROUP} | aggregate-a | aggregate-b | planned | OK | 1 | 0 | 10 |" in lines
    assert f"| {TOPIC} | OK | 0 | 15 | 5 | 10 | 0 | 10 |" in lines
    (command,) = (line for line in lines if "--execute" in line)
    assert command.endswith(f"{GROUP} --to b --actor alice --reason 'CHG-7 | patch *day*' --execute"), command
    assert bench.commit("b") is None

    done = run("failover", GROUP, "--to", "b", "-o", "markdown", "--execute", *why)
    assert done.exit_code == 0, done.stdout
    assert f"| {GROUP} | aggregate-a | aggregate-b | moved |  | 4 |" in done.stdout
    kept = [entry for entry in bench.world.audit.entries() if entry.call == "failover"]
    assert {(entry.principal.name, entry.reason) for entry in kept} == {("alice", "CHG-7 | patch *day*")}


def test_a_ticket_says_why_it_is_refused(run: Run, bench: Bench) -> None:
    bench.world.trim("b", 8)
    result = run("failover", GROUP, "--to", "b", "-o", "markdown")
    assert result.exit_code == 1
    assert "- **refused**: " in result.stdout
    assert "--accept-gaps" in result.stdout


def test_a_ticket_of_a_region_has_a_line_for_each_group(run: Run) -> None:
    result = run("failover", "--region", "a", "--to", "b", "-o", "markdown")
    groups = [line.split(" | ")[0] for line in result.stdout.splitlines() if "| aggregate-a |" in line]
    assert len(groups) > 1
    assert f"# Move {len(groups)} groups" in result.stdout


def test_failover_refuses_a_silent_gap(run: Run, bench: Bench) -> None:
    bench.world.trim("b", 8)

    result = run("failover", GROUP, "--to", "b")
    assert result.exit_code == 1
    assert "--accept-gaps" in result.stdout
    assert run("failover", GROUP, "--to", "b", "--execute").exit_code == 1
    assert bench.commit("b") is None
    accepted = run("failover", GROUP, "--to", "b", "--execute", "--accept-gaps")
    assert accepted.exit_code == 0, accepted.stdout
    assert bench.commit("b") == 8


def test_a_move_waits_until_few_records_come_again(run: Run, bench: Bench) -> None:
    few = ("--max-redelivered", "9")
    told = " ".join(run("failover", GROUP, "--to", "b", *few).stdout.split())
    assert (
        "until fewer are read again: plain clients would read 10 record(s) again, and 9 are allowed" in told
    )
    assert run("failover", GROUP, "--to", "b", *few, "--within-s", "0", "--execute").exit_code == 1
    assert bench.commit("b") is None
    bench.while_waiting = lambda _turn: bench.world.commit("a", 20)
    assert run("failover", GROUP, "--to", "b", *few, "--execute").exit_code == 0
    assert bench.commit("b") == 20
    bench.while_waiting = lambda _turn: None
    assert run("failback", GROUP, *few, "--execute").exit_code == 0
    assert bench.assignment().consumed_cluster == ON_A


@pytest.mark.parametrize("options", [("--max-redelivered", "9", "--disaster"), ("--within-s", "9")])
def test_few_records_again_is_for_planned_moves(run: Run, options: tuple[str, ...]) -> None:
    for command in (("failover", GROUP, "--to", "b"), ("failback", GROUP)):
        with pytest.raises(InvalidNameError, match="--max-redelivered"):
            run(*command, *options)


def test_failover_failback_and_rollback_of_a_group(run: Run, bench: Bench) -> None:
    moved = json.loads(run("failover", GROUP, "--to", "b", "--execute", "--json").stdout)
    assert (moved["ending"], bench.commit("b")) == ("moved", 5)
    assert "already there" in run("failover", GROUP, "--to", "b", "--from", "a", "--execute").stdout

    back = run("failback", GROUP, "--execute")
    assert back.exit_code == 0, back.stdout
    assert bench.assignment().consumed_cluster == ON_A

    shown = run("failover", "rollback", GROUP)
    assert shown.exit_code == 0
    assert "nothing was changed: --execute puts it back" in shown.stdout
    done = json.loads(run("failover", "rollback", GROUP, "--execute", "--json").stdout)
    assert done["done"]
    assert bench.assignment().consumed_cluster == ON_B
    again = run("failover", "rollback", GROUP)
    assert (again.exit_code, "nothing to undo" in again.stdout) == (1, True)


@pytest.mark.parametrize(("arguments", "name"), [((GROUP,), GROUP), (("--region", "a"), "a")])
def test_on_a_terminal_the_name_is_typed_before_anything_moves(
    run: Run, bench: Bench, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], name: str
) -> None:
    monkeypatch.setattr(output, "on_a_terminal", lambda: True)
    wanted = ("failover", *arguments, "--to", "b", "--execute")
    for typed in ("", "no\n", f"{name}x\n"):
        with pytest.raises(RefusedError, match="nothing was changed"):
            run(*wanted, typed=typed)
    assert bench.client.service.primaries.get(GROUP) is None
    moved = run(*wanted, typed=f"{name}\n")
    assert f"{GROUP}: aggregate-a to aggregate-b, planned" in moved.stderr
    assert bench.assignment().consumed_cluster == ON_B
    with pytest.raises(RefusedError, match="nothing was changed"):
        run("failover", "rollback", GROUP, "--execute", typed="\n")
    assert run("failover", "rollback", GROUP, "--execute", "--yes").exit_code == 0
    assert bench.assignment().consumed_cluster == ON_A


def test_a_disaster_leaves_out_the_services_of_what_is_lost(
    run: Run, bench: Bench, not_asked: list[set[RegionName]]
) -> None:
    run("failover", GROUP, "--to", "b")
    run("failover", GROUP, "--to-cluster", "aggregate-b", "--disaster")
    assert not_asked == [set(), set()]  # there region a lives
    run("failover", GROUP, "--to", "b", "--disaster")
    run("failover", "--region", "a", "--to", "b", "--execute", "--disaster")
    run("failback", "--region", "a", "--disaster")
    assert not_asked[2:] == [{"a"}, {"a"}, {"b"}]
    assert bench.assignment().consumed_cluster == ON_B


def test_the_service_of_a_region_that_may_have_been_away_is_asked_last(
    run: Run, first_and_last: list[tuple[RegionName | None, RegionName | None]]
) -> None:
    run("failover", "--region", "a", "--to", "b", "--execute")
    run("failback", "--region", "a")
    run("failback", "--region", "a", "--disaster")  # b is gone
    assert first_and_last == [("b", "a"), (None, "a"), ("a", None)]


def test_a_region_moves_in_order_and_comes_back(run: Run, bench: Bench) -> None:
    plans = json.loads(run("failover", "--region", "a", "--to", "b", "--json").stdout)
    assert [plan["group"] for plan in plans] == [BILLING, FRAUD, MAPS]
    assert "nothing was changed" in run("failover", "--region", "a", "--to", "b").stdout

    arguments = ("failover", "--region", "a", "--to", "b", "--execute", "--first", MAPS, "--at-once", "2")
    results = json.loads(run(*arguments, "--json").stdout)

    assert [(item["group"], item["ending"]) for item in results] == [
        (MAPS, "moved"),
        (BILLING, "moved"),
        (FRAUD, "moved"),
    ]
    assert [bench.commit("b", group=group) for group in (BILLING, FRAUD, MAPS)] == [5, 0, 20]
    assert "no group has to move" in run("failover", "--region", "a", "--to", "b", "--execute").stdout
    back = run("failback", "--region", "a", "--execute")
    assert back.exit_code == 0, back.stdout
    assert [bench.commit("a", group=group) for group in (BILLING, FRAUD, MAPS)] == [15, 10, 20]
    assert [bench.assignment(group).consumed_cluster for group in (BILLING, FRAUD, MAPS)] == [ON_A] * 3


class Standby:
    """Rules of access at a standby: what is withheld, and what was allowed. ``refuses``: it takes none."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.allowed = self.refuses = False
        self.moved: list[int | None] = []
        """What had been committed there when rules were changed."""

    def _row(self, state: AccessState, *, applied: bool) -> AccessRow:
        write = AccessRule(
            AccessKind.TOPIC, NameMatch.LITERAL, TOPIC, "User:p", "*", AccessOperation.WRITE, allow=True
        )
        return AccessRow(ON_B, AccessFinding(write, state), applied=applied)

    def promotion(
        self, _config: Config, to: str, topics: None, operator: Principal, *, execute: bool
    ) -> tuple[list[AccessRow], bool]:
        assert (to, topics, operator.why) == ("b", None, "CHG-7")
        if not execute:
            return [self._row(AccessState.ACL_WITHHELD, applied=False)], False
        self.moved.append(self.bench.commit("b", group=BILLING))
        if self.refuses:
            raise RefusedError("the cluster refuses it")
        self.allowed = True
        return [self._row(AccessState.ADD, applied=True)], False

    def demotion(
        self, _config: Config, to: str, topics: None, operator: Principal, *, execute: bool
    ) -> list[AccessRow]:
        assert (to, topics, operator.why) == ("b", None, "CHG-7")
        if execute:
            self.allowed = False
        return [self._row(AccessState.REMOVE, applied=execute)]


@pytest.fixture
def standby(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Standby:
    made = Standby(bench)
    monkeypatch.setattr(acl, "promotion", made.promotion)
    monkeypatch.setattr(acl, "demotion", made.demotion)
    return made


THERE = ("failover", "--region", "a", "--to", "b", "--reason", "CHG-7", "--promote")
BACK = ("failback", "--region", "a", "--reason", "CHG-7", "--demote", "b")


def test_producers_are_allowed_at_a_standby_once_groups_have_moved_and_not_once_they_are_back(
    run: Run, standby: Standby
) -> None:
    shown = run(*THERE)
    assert (shown.exit_code, standby.allowed) == (0, False)
    assert "what is withheld from producers at region b is allowed" in shown.stdout
    assert "User:p" in shown.stdout
    assert "ACL_WITHHELD" in shown.stdout
    planned = json.loads(run(*THERE, "--json").stdout)
    assert planned[-1]["promotion"]["rules"][0]["state"] == "ACL_WITHHELD"
    assert "## Rules of access" in run(*THERE, "-o", "markdown").stdout

    *moved, rules = json.loads(run(*THERE, "--execute", "--json").stdout)
    assert [item["ending"] for item in moved] == ["moved"] * 3
    assert (rules["promotion"]["rules"][0]["state"], standby.moved) == ("ADDED", [5])
    assert standby.allowed

    back = run(*BACK, "--execute")
    assert (back.exit_code, standby.allowed) == (0, False), back.stdout
    assert "REMOVED" in back.stdout


def test_a_standby_that_takes_no_rules_holds_no_group_up(run: Run, standby: Standby, bench: Bench) -> None:
    standby.refuses = True
    result = run(*THERE, "--execute")
    assert result.exit_code == 1
    assert "[REFUSED] the cluster refuses it" in result.stdout
    assert bench.commit("b", group=BILLING) == 5


def test_nothing_is_taken_from_producers_while_a_group_is_still_there(
    run: Run, standby: Standby, bench: Bench
) -> None:
    run(*THERE, "--execute")
    bench.client.failing["set_primary settled"] = StoreUnavailableError("store: away")
    result = run(*BACK, "--execute")
    assert result.exit_code == 1
    assert "nothing was taken away: not every group is back" in result.stdout
    assert standby.allowed


def test_an_interrupted_region_goes_on(run: Run, bench: Bench) -> None:
    bench.client.failing["set_primary settled"] = StoreUnavailableError("store: away")
    first = run("failover", "--region", "a", "--to", "b", "--execute")
    assert first.exit_code == 1
    assert "interrupted" in first.stdout
    bench.client.failing.clear()

    second = run("failover", "--region", "a", "--to", "b", "--execute", "--json")

    assert [item["ending"] for item in json.loads(second.stdout)] == ["moved"] * 3
    for group in (BILLING, FRAUD, MAPS):
        (record,) = bench.outside.journal.records(group)
        assert record.step is Step.DONE


def test_ctrl_c_ends_between_steps_and_the_command_goes_on_later(run: Run, bench: Bench) -> None:
    bench.writer("a").members[FRAUD] = 1

    def interrupt(_turn: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert bench.outside.time.stop.wait(10)

    bench.while_waiting = interrupt
    handler = signal.getsignal(signal.SIGINT)
    command = ("failover", "--region", "a", "--to", "b", "--execute", "--at-once", "1")

    stopped = run(*command, "--first", FRAUD, "--json")

    assert stopped.exit_code == 1
    results = {item["group"]: item for item in json.loads(stopped.stdout)}
    assert {group: item["ending"] for group, item in results.items()} == {
        FRAUD: "interrupted",
        BILLING: "refused",
        MAPS: "refused",
    }
    assert results[MAPS]["problem"] == "the command was stopped"
    assert signal.getsignal(signal.SIGINT) is handler
    bench.outside.time.stop.clear()
    bench.writer("a").members.clear()
    bench.while_waiting = lambda _turn: None
    assert [item["ending"] for item in json.loads(run(*command, "--json").stdout)] == ["moved"] * 3


def test_a_group_whose_decisions_cant_be_read_holds_up_no_other(
    run: Run, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = bench.world.primaries.decisions
    bench.decide(Change(FRAUD, RegionName("a")))
    monkeypatch.setattr(
        bench.world.primaries,
        "decisions",
        lambda groups: {**whole(groups), **({FRAUD: InvariantError("newer")} if FRAUD in groups else {})},
    )
    plans = json.loads(run("failover", "--region", "a", "--to", "b", "--json").stdout)
    assert {plan["group"]: plan["refusals"] for plan in plans} == {
        BILLING: [],
        FRAUD: ["[INVARIANT] newer"],
        MAPS: [],
    }
    results = json.loads(run("failover", "--region", "a", "--to", "b", "--execute", "--json").stdout)
    assert {item["group"]: item["ending"] for item in results} == {
        BILLING: "moved",
        FRAUD: "refused",
        MAPS: "moved",
    }


def test_a_group_that_may_not_be_seen_holds_up_no_other(run: Run, bench: Bench) -> None:
    for region in "ab":
        bench.writer(region).refused[FRAUD] = "group fraud: not allowed to see it"
    plans = json.loads(run("failover", "--region", "a", "--to", "b", "--json").stdout)
    assert {plan["group"]: plan["refusals"] for plan in plans} == {
        BILLING: [],
        FRAUD: ["[CONFIG] group fraud: not allowed to see it"],
        MAPS: [],
    }
    results = json.loads(run("failover", "--region", "a", "--to", "b", "--execute", "--json").stdout)
    assert {item["group"]: item["ending"] for item in results} == {
        BILLING: "moved",
        FRAUD: "refused",
        MAPS: "moved",
    }


def test_one_group_that_stays_does_not_hold_up_the_others(run: Run, bench: Bench) -> None:
    bench.writer("a").members[FRAUD] = 1

    result = run("failover", "--region", "a", "--to", "b", "--execute", "--drain-timeout-s", "0.5", "--json")

    assert result.exit_code == 1
    endings = {item["group"]: item["ending"] for item in json.loads(result.stdout)}
    assert endings == {BILLING: "moved", FRAUD: "abandoned", MAPS: "moved"}
    assert bench.assignment(FRAUD).consumed_cluster == ON_A


def test_an_active_active_group_keeps_its_offsets_and_publishes_elsewhere(run: Run, bench: Bench) -> None:
    bench.decide(Change(FRAUD, RegionName("a"), mode=Mode.ACTIVE_ACTIVE))
    number = bench.assignment(FRAUD).decision.fencing_number
    assert "region b publishes its results" in run("failover", FRAUD, "--to", "b").stdout
    assert bench.assignment(FRAUD).is_primary(RegionName("a"))

    moved = run("failover", "--region", "a", "--to", "b", "--execute", "--disaster", "--json")

    assert {item["group"]: item["ending"] for item in json.loads(moved.stdout)} == {
        BILLING: "moved",
        FRAUD: "moved",
        MAPS: "moved",
    }
    decision = bench.assignment(FRAUD).decision
    assert (decision.primary, decision.mode, decision.stage) == ("b", Mode.ACTIVE_ACTIVE, Stage.SETTLED)
    assert decision.fencing_number > number
    assert bench.commit("b", group=FRAUD) is None
    assert "already there" in run("failover", FRAUD, "--to", "b", "--from", "a", "--execute").stdout

    refused = run("failover", "rollback", FRAUD)
    assert (refused.exit_code, "parallax failback" in refused.stdout) == (1, True)
    assert run("failback", "--region", "a", "--execute").exit_code == 0
    assert bench.assignment(FRAUD).is_primary(RegionName("a"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("failover", "--to", "b"),
        ("failover", GROUP, "--region", "a", "--to", "b"),
        ("failover", "--region", "a"),
        ("failover", "--region", "a", "--to", "b", "--from", "a"),
        ("failover", GROUP, "--to", "b", "--execute", "--dry-run"),
        ("failover", GROUP),
        ("failback",),
        ("failover", GROUP, "--to", "b", "--promote"),
        ("failback", GROUP, "--demote", "b"),
    ],
)
def test_commands_that_contradict_themselves_are_refused(run: Run, arguments: tuple[str, ...]) -> None:
    with pytest.raises(InvalidNameError):
        run(*arguments)


def test_a_plan_says_what_is_not_known(run: Run, bench: Bench) -> None:
    topic_id = bench.writer("a").infos[TOPIC].topic_id
    bench.world.groups.save_observed(
        [ObservedCommit(GROUP, ON_A, P0, topic_id, TargetOffset(15), -1, bench.world.now_ms)]
    )
    bench.writer("a").away = True

    shown = run("failover", GROUP, "--to", "b", "--disaster").stdout

    assert "aggregate-a can't be asked; the position 15 was seen" in shown


def test_a_rollback_shows_what_it_puts_back(run: Run, bench: Bench) -> None:
    bench.writer("b").commits[GROUP] = {P0: GroupCommit(TargetOffset(2), -1, "before")}
    run("failover", GROUP, "--to", "b", "--execute")
    values = json.loads(run("failover", "rollback", GROUP, "--json").stdout)
    assert [(item["cluster"], item["next_offset"]) for item in values["restore"]] == [(ON_B, 2)]
    assert "undo the move from aggregate-a to aggregate-b" in run("failover", "rollback", GROUP).stdout
