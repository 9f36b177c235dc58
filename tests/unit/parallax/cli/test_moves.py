"""`parallax failover --detach` and `parallax moves watch`: a service carries a move out, and commands follow it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from structlog.testing import capture_logs
from typer.testing import CliRunner

from parallax.cli.main import app
from parallax.cli.moves import SeenMove, followed
from parallax.errors import InvalidNameError, NotFoundError, ParallaxError, RefusedError
from parallax.failover.desk import MoveState
from parallax.failover.journal import Step, note_of
from tests.contract.test_service_overview import move
from tests.worlds.failover_bench import two_sources
from tests.worlds.offset_servers import Served, serving
from tests.worlds.offset_world import GROUP, World


@pytest.fixture
def served() -> Iterator[Served]:
    world = World()
    world.let_write()
    two_sources(world)
    world.commit("a", 15)
    with capture_logs(), serving(world) as found:  # its logs would go to the commands' standard output
        yield found


@pytest.fixture
def configured(served: Served, tmp_path: Path) -> Path:
    """A configuration whose services are the one that is served."""
    nowhere = {"bootstrap_servers": "127.0.0.1:1"}
    region = {"regional": nowhere, "aggregate": nowhere, "offsetsvc": {"grpc": served.target}}
    values = {
        "regions": {"a": region, "b": region},
        "cassandra": {"contact_points": ["127.0.0.1:1"], "local_datacenter": "a"},
        "topics": {"include": ["trips"]},
    }
    path = tmp_path / "parallax.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def run(path: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--config", str(path)], env={"PARALLAX_CONFIG": ""})


def refused(result: Result, kind: type[ParallaxError]) -> str:
    assert isinstance(result.exception, kind), result.output
    return str(result.exception)


def test_a_service_carries_a_move_out_and_it_is_followed(configured: Path, served: Served) -> None:
    sent = run(configured, "failover", GROUP, "--to", "b", "--execute", "--detach", "--reason", "TICKET-7")
    assert sent.exit_code == 0, sent.output
    move_id = sent.stdout.split()[-1]
    watched = run(configured, "moves", "watch", move_id)
    assert watched.exit_code == 0, watched.output
    assert watched.stdout.splitlines()[-1].startswith("moved; fencing number ")
    assert "Z switching" in watched.stdout, "what it did, with the time of that"
    assert any(
        "TICKET-7" in entry.reason for entry in served.world.audit.entries() if entry.call == "failover"
    )
    back = run(configured, "failback", GROUP, "--execute", "--detach", "--json")
    begun = json.loads(back.stdout)["move"]
    assert begun["state"] in {"running", "moved"}
    assert run(configured, "moves", "watch", begun["move_id"]).exit_code == 0
    by_group = run(configured, "moves", "watch", GROUP, "--json")
    assert (by_group.exit_code, json.loads(by_group.stdout)["target"]) == (0, "aggregate-a")


def test_what_is_there_already_is_left_alone(configured: Path) -> None:
    sent = run(configured, "failover", GROUP, "--to", "b", "--execute", "--detach")
    assert run(configured, "moves", "watch", sent.stdout.split()[-1]).exit_code == 0
    again = run(configured, "failover", GROUP, "--to", "b", "--from", "a", "--execute", "--detach")
    assert again.exit_code == 0, again.output
    assert "there already" in again.stdout
    assert "moves watch" not in again.stdout


def test_what_forbids_it_is_told_and_nothing_begins(configured: Path, served: Served) -> None:
    served.world.trim("b", 8)
    words = refused(run(configured, "failover", GROUP, "--to", "b", "--execute", "--detach"), RefusedError)
    assert "--accept-gaps" in words
    with served.client() as client:
        assert not client.list_moves(GROUP).moves


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["failover", GROUP, "--to", "b", "--detach"], "--execute"),
        (["failover", "--region", "a", "--to", "b", "--execute", "--detach"], "--region"),
        (
            ["failover", GROUP, "--to", "b", "--execute", "--detach", "--max-redelivered", "3"],
            "--max-redelivered",
        ),
        (
            ["failover", GROUP, "--to", "b", "--execute", "--detach", "--drain-timeout-s", "5"],
            "--drain-timeout-s",
        ),
        (["failback", GROUP, "--execute", "--detach", "--first", GROUP], "--first"),
        (["failback", GROUP, "--execute", "--detach", "-o", "markdown"], "ticket"),
    ],
)
def test_what_a_service_does_not_take_is_refused(configured: Path, words: list[str], says: str) -> None:
    assert says in refused(run(configured, *words), InvalidNameError)


def test_a_move_of_a_killed_process_is_interrupted(configured: Path, served: Served) -> None:
    served.world.operations.save_operation(note_of(move(GROUP, -60_000, Step.FENCED)))
    found = run(configured, "moves", "watch", GROUP)
    assert found.exit_code == 1
    assert "interrupted" in found.stdout
    assert "interrupted: run again: no process has told of it for" in found.stdout
    listed = run(configured, "moves", GROUP, "-o", "json")
    assert [(item["state"], item["step"]) for item in json.loads(listed.stdout)] == [
        ("interrupted", "fenced")
    ]


def test_a_move_is_followed_by_the_id_that_the_list_prints(configured: Path, served: Served) -> None:
    for step in (Step.FENCED, Step.ABANDONED):
        served.world.operations.save_operation(note_of(move(GROUP, -60_000, step)))
        [listed] = json.loads(run(configured, "moves", "-o", "json").stdout)
        found = run(configured, "moves", "watch", listed["move_id"], "--json")
        told = json.loads(found.stdout)
        assert (told["group"], told["move_id"], told["state"]) == (GROUP, listed["move_id"], listed["state"])


def test_what_can_not_be_followed_is_told(configured: Path) -> None:
    assert "ever moved" in refused(run(configured, "moves", "watch", "nosuch"), NotFoundError)


def test_lists_need_no_further_word(configured: Path) -> None:
    for words in (["moves"], ["moves", GROUP], ["moves", "list", GROUP], ["moves", "-o", "json"]):
        assert run(configured, *words).exit_code == 0, words


def test_what_nobody_begins_is_not_waited_for_for_ever() -> None:
    now_s = 0.0

    def wait(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    planned = SeenMove(MoveState.PLANNED, (), "", 0, {})
    assert followed(lambda: planned, lambda *_: None, clock=lambda: now_s, wait=wait) == planned
    assert 14 < now_s < 17


def test_each_word_is_said_once() -> None:
    looks: list[tuple[MoveState, tuple[tuple[int, str], ...]]] = [
        (MoveState.PLANNED, ()),
        (MoveState.RUNNING, ((5, "planning"), (5, "fencing"))),
        (MoveState.RUNNING, ((0, "fenced"),)),  # another service answers
        (MoveState.RUNNING, ((0, "fenced"),)),
        (MoveState.MOVED, ((5, "planning"), (5, "fencing"), (9, "switching"))),
    ]
    told = iter(looks)
    said: list[Any] = []

    def look() -> SeenMove:
        state, words = next(told)
        return SeenMove(state, words, "", 0, {})

    found = followed(look, lambda at_ms, words: said.append((at_ms, words)), wait=lambda _s: None)
    assert found.state is MoveState.MOVED
    assert said == [(5, "planning"), (5, "fencing"), (0, "fenced"), (9, "switching")]
