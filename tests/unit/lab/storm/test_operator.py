from __future__ import annotations

import json
from collections.abc import Sequence

import httpx
import pytest

from lab.storm import operating
from lab.storm.operating import Ended, Operator, index_lag
from lab.workload.worker import WorkerError

MOVE = ("failover", "--region", "a", "--to", "b", "--disaster")


def result(group: str, ending: str, problem: str = "") -> dict[str, object]:
    return {"group": group, "ending": ending, "problem": problem, "took_ms": 1_200}


class Commands:
    """Answers in turn."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)
        self.given: list[list[str]] = []
        self.remarks: list[str] = []

    def operator(self) -> Operator:
        return Operator(self._run, self.remarks.append)

    def _run(self, arguments: Sequence[str]) -> Ended:
        self.given.append(list(arguments))
        answer = self._answers.pop(0)
        return answer if isinstance(answer, Ended) else Ended(0, json.dumps(answer), "")


def test_a_move_that_ends_well_is_ordered_once() -> None:
    commands = Commands(result("g", "moved"))
    commands.operator().move(("failover", "g", "--to", "b"), ["g"])
    assert commands.given == [["failover", "g", "--to", "b", "--execute"]]
    assert commands.remarks == ["failover g --to b: g moved in 1.2 s"]


def test_a_command_that_ends_half_way_is_given_again() -> None:
    commands = Commands(
        Ended(1, "", "2026 warning\nerror [UNAVAILABLE]: no service\n"),
        [result("g", "moved"), result("h", "interrupted", "the store did not answer")],
        [result("h", "moved")],
    )
    commands.operator().move(MOVE, ["g", "h"])
    assert len(commands.given) == 3
    assert commands.remarks[0].endswith("exit code 1: error [UNAVAILABLE]: no service")
    assert "h interrupted in 1.2 s (the store did not answer)" in commands.remarks[1]


def test_three_attempts_are_enough() -> None:
    commands = Commands(*[result("g", "abandoned", "it still has members")] * 3)
    with pytest.raises(WorkerError, match="did not move g in 3 attempts: it still has members"):
        commands.operator().move(("failover", "g", "--to", "b"), ["g"])


def test_no_group_is_not_the_group_that_was_meant() -> None:
    with pytest.raises(WorkerError, match="did not move g in 3 attempts: no group to move"):
        Commands([], [], []).operator().move(MOVE, ["g"])


def test_a_group_that_was_not_meant_is_told() -> None:
    commands = Commands([result("g", "moved"), result("other", "moved")])
    with pytest.raises(WorkerError, match="took along other"):
        commands.operator().move(MOVE, ["g"])


def test_a_primary_that_is_not_recorded_is_told() -> None:
    commands = Commands(Ended(0, "{}", ""), Ended(1, "", "error [UNAVAILABLE]: no service"))
    operator = commands.operator()
    operator.set_primary("g", "a")
    assert commands.given == [["primary", "g", "--set", "a"]]
    with pytest.raises(WorkerError, match="no service"):
        operator.set_primary("g", "a")


@pytest.mark.parametrize(
    ("answer", "lag_ms"),
    [
        (
            httpx.Response(
                200,
                json={
                    "leases": [
                        {"index_lag_ms": 40.0, "ended": False},
                        {"index_lag_ms": 900.0, "ended": False},
                        {"index_lag_ms": 70_000.0, "ended": True},
                    ]
                },
            ),
            900.0,
        ),
        (httpx.Response(200, json={"leases": []}), None),
        (httpx.Response(503), None),
        (httpx.ConnectError("nobody listens"), None),
    ],
)
def test_the_longest_lag_of_the_index_is_told(
    monkeypatch: pytest.MonkeyPatch, answer: httpx.Response | Exception, lag_ms: float | None
) -> None:
    def get(url: str, *, timeout: float) -> httpx.Response:
        assert (url, timeout > 0) == ("http://driver/status", True)
        if isinstance(answer, Exception):
            raise answer
        answer.request = httpx.Request("GET", url)
        return answer

    monkeypatch.setattr(operating.httpx, "get", get)
    assert index_lag("http://driver")() == lag_ms
