"""What a shell is offered when somebody presses Tab: the installed command, asked as the shell's script asks it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from parallax.cli import completion
from parallax.domain.commits import ObservedCommit
from parallax.domain.ids import ClusterName, GroupName, TargetOffset, TopicId, TopicName, TopicPartition
from tests.worlds.offset_servers import serving
from tests.worlds.offset_world import TOPIC, World

PARALLAX = Path(sys.executable).with_name("parallax")
GROUPS = ["billing", "billing-late", "invoices", "bill$(touch /tmp/x)", "bill'ing", "bill ing", "billing\nx"]


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    world = World()
    place = TopicPartition(TopicName(TOPIC), 0)
    cluster = ClusterName("aggregate-a")
    world.groups.save_observed(
        [
            ObservedCommit(GroupName(name), cluster, place, TopicId(""), TargetOffset(1), -1, 1)
            for name in GROUPS
        ]
    )
    with serving(world) as served:
        yield served.target


def offered(*words: str, shell: str = "bash", **environment: str) -> list[str]:
    """What is offered for the last word."""
    asked = subprocess.run(
        [PARALLAX],
        env=os.environ
        | {
            "_PARALLAX_COMPLETE": f"complete_{shell}",
            "COMP_WORDS": " ".join(("parallax", *words)),
            "COMP_CWORD": str(len(words)),
        }
        | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert asked.stderr == ""
    return [line for line in asked.stdout.split("\n") if line]


def test_commands_and_their_options_are_offered() -> None:
    assert offered("gro") == ["groups"]
    assert offered("groups", "--pre") == ["--prefix"]
    assert offered("config", "") == ["view", "check", "schema"]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no service that is away."""
    monkeypatch.setattr(completion, "_TIMEOUT_MS", 30_000)


@pytest.mark.usefixtures("patient")
def test_groups_are_those_of_the_service_that_the_command_would_ask(target: str) -> None:
    asked: Any = SimpleNamespace(params={"service": [target]})
    assert completion.groups(asked, "bil") == ["billing", "billing-late"]
    assert completion.groups(asked, "nobody") == []


@pytest.mark.usefixtures("patient")
def test_a_name_that_a_shell_would_act_upon_is_not_offered(target: str) -> None:
    asked: Any = SimpleNamespace(params={"service": [target]})
    assert completion.groups(asked, "") == ["billing", "billing-late", "invoices"]


@pytest.mark.usefixtures("patient")
def test_without_a_configuration_the_service_tells_topics_and_regions(target: str) -> None:
    asked: Any = SimpleNamespace(params={"service": [target]})
    assert completion.topics(asked, "") == [TOPIC]
    assert completion.regions(asked, "") == ["a", "b"]
    assert completion.clusters_and_regions(asked, "a") == ["a", "aggregate-a", "aggregate-b"]


def test_regions_are_those_of_the_configuration_which_asks_nobody(tmp_path: Path) -> None:
    cluster = {"bootstrap_servers": "127.0.0.1:1"}
    config = tmp_path / "parallax.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "regions": {name: {"regional": cluster, "aggregate": cluster} for name in ("east", "west")},
                "cassandra": {"contact_points": ["127.0.0.1:1"]},
            }
        ),
        encoding="utf-8",
    )
    by_environment = {"PARALLAX_CONFIG": str(config)}
    assert offered("failover", "billing", "--to", "", **by_environment) == ["east", "west"]
    assert offered("offsets", "--config", str(config), "billing", "--to", "aggregate-") == [
        "aggregate-east",
        "aggregate-west",
    ]


def test_where_nobody_answers_nothing_is_offered_and_nothing_said(tmp_path: Path) -> None:
    assert offered("offsets", "--service", "127.0.0.1:1", "b") == []
    assert offered("offsets", "--config", str(tmp_path / "none.yaml"), "b") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell: str) -> None:
    made = subprocess.run(
        [PARALLAX, "completion", shell], capture_output=True, text=True, timeout=120, check=False
    )
    assert (made.returncode, made.stderr) == (0, "")
    assert "_PARALLAX_COMPLETE" in made.stdout
