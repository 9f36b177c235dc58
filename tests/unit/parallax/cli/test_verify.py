"""`parallax verify`: exit codes and what it prints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from parallax.cli import verify as command
from parallax.cli.main import app
from parallax.domain.ids import ClusterName
from parallax.failover.plan import Ending
from parallax.failover.verify.verdict import Consumers
from parallax.failover.verify.verifier import Verifier
from tests.worlds.failover_bench import Bench, failover_bench, two_sources
from tests.worlds.offset_world import GROUP

ON_A, ON_B = ClusterName("aggregate-a"), ClusterName("aggregate-b")


@pytest.fixture
def bench() -> Iterator[Bench]:
    """The group has consumed a0..9 and b0..4 on a, and was moved to b at 5, where a0..9 are to be skipped."""
    with failover_bench() as made:
        two_sources(made.world)
        made.world.commit("a", 15)
        assert made.move("a", "b", drain_ms=1_000).ending is Ending.MOVED
        yield made


@pytest.mark.parametrize(
    ("consumers", "code"),
    [("failover", 0), ("plain", 3), ("auto", 5)],
)
def test_the_exit_code_tells_the_verdict(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, consumers: str, code: int
) -> None:
    bench.world.commit("b", 20)
    made = bench.verifier()

    @contextmanager
    def opened(_config: object) -> Iterator[Verifier]:
        yield made

    monkeypatch.setattr(command, "open_verifier", opened)
    monkeypatch.setattr(command, "load", Path)
    monkeypatch.setattr(command, "log_beside_result", lambda **_: None)  # it would keep the runner's stream
    arguments = ["verify", GROUP, "--config", "unread", "--consumers", consumers]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == code, done.output
    assert f'"group": "{GROUP}"' in done.output

    table = CliRunner().invoke(app, arguments)
    assert table.exit_code == code
    assert "aggregate-a to aggregate-b" in table.output


def test_ranges_are_listed(bench: Bench) -> None:
    bench.world.commit("b", 20)
    out = Console(width=160, record=True, file=None)
    with out.capture() as captured:
        command.show_verdict(bench.verifier().verify(GROUP, consumers=Consumers.PLAIN), out)
    assert "trips-0 of a: twice: [0, 10)" in captured.get()
