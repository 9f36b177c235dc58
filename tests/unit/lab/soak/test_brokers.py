"""A broker whose group coordinator is broken is told by its own log, and restarted once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.soak.brokers import BrokerCare
from lab.workload.worker import WorkerError

LINE = (
    "[2026-11-24 15:03:01,100] ERROR [GroupCoordinator id=1] The state machine of the coordinator "
    "__consumer_offsets-0 is out of sync with the underlying log. The last written offset returned is 52 while "
    "the coordinator expected 51. (org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime)\n"
)


class FakeStack:
    def __init__(self, folder: Path) -> None:
        self.layout = SimpleNamespace(log_path=lambda name: folder / f"{name}.log")
        self.pids = {"aggregate-a": 1, "aggregate-b": 2}
        self.done: list[str] = []

    def status(self) -> dict[str, Any]:
        return {"processes": [{"name": name, "pid": pid} for name, pid in self.pids.items()]}

    def stop(self, name: str) -> None:
        self.done.append(f"stop {name}")

    def start(self, name: str) -> None:
        self.done.append(f"start {name}")
        self.pids[name] += 10

    def says(self, name: str, text: str) -> None:
        with self.layout.log_path(name).open("a") as log:
            log.write(text)


class Case:
    def __init__(self, folder: Path) -> None:
        self.stack, self.now_s, self.told = FakeStack(folder), 0.0, list[str]()
        self.care = BrokerCare(
            self.stack,  # type: ignore[arg-type] # as much of one as is asked for
            ("aggregate-a", "aggregate-b"),
            self.told.append,
            lambda: self.now_s,
        )

    def go_on(self, seconds: float) -> None:
        for _ in range(int(seconds * 2)):
            self.now_s += 0.5
            self.care.look()


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_a_broker_that_says_so_is_restarted_once_and_told_of(case: Case) -> None:
    case.stack.says("aggregate-a", "[2026-11-24 15:03:00,000] WARN nothing much\n")
    case.go_on(20)
    assert case.stack.done == []
    case.stack.says("aggregate-a", LINE)
    case.go_on(9)
    assert case.stack.done == []  # it may help itself
    case.go_on(60)
    assert case.stack.done == ["stop aggregate-a", "start aggregate-a"]
    assert case.care.restarted == ["aggregate-a"]
    assert [text.split()[0] for text in case.told] == ["aggregate-a"]
    case.stack.says("aggregate-a", LINE)
    case.go_on(20)
    assert case.care.restarted == ["aggregate-a", "aggregate-a"]  # it has said so again


def test_half_a_line_is_read_to_its_end(case: Case) -> None:
    case.stack.says("aggregate-b", LINE[:120])
    case.go_on(20)
    assert case.care.restarted == []
    case.stack.says("aggregate-b", LINE[120:])
    case.go_on(20)
    assert case.care.restarted == ["aggregate-b"]


def test_one_that_was_killed_meanwhile_has_begun_anew(case: Case) -> None:
    case.stack.says("aggregate-a", LINE)
    case.go_on(5)
    case.stack.pids["aggregate-a"] = 77
    case.go_on(60)
    assert case.stack.done == []


@pytest.mark.parametrize("broken", [True, False])
def test_a_wait_is_taken_up_again_only_if_a_broker_was_restarted_in_it(case: Case, *, broken: bool) -> None:
    waits = 0

    def wait() -> None:
        nonlocal waits
        waits += 1
        case.go_on(30)
        if waits == 1:
            raise WorkerError("not every group has been delivered 20 more records")

    if broken:
        case.stack.says("aggregate-a", LINE)
        case.care.patiently(wait)
        assert waits == 2
    else:
        with pytest.raises(WorkerError):
            case.care.patiently(wait)
        assert waits == 1
