"""A child process of the workload that has nothing to talk to."""

from __future__ import annotations

from pathlib import Path

from lab.workload.plan import Phase, Plan
from lab.workload.worker import Worker, wait_until


def test_a_child_tells_what_its_threads_are_at(tmp_path: Path) -> None:
    log = tmp_path / "producer.err"
    plan = Plan((Phase(1),)).to_json()
    arguments = [
        "produce",
        "--bootstrap-servers",
        "127.0.0.1:1",
        "--region",
        "a",
        "--topic",
        "t",
        "--plan",
        plan,
    ]
    worker = Worker("producer", arguments, log).start()

    def told() -> bool:
        worker.tell_stacks()
        return "in _run_phase" in log.read_text()

    try:
        worker.wait_for("phase", within_s=60)
        wait_until(told, 60, "no stack was told")
        assert worker.running
    finally:
        worker.kill()
    worker.tell_stacks()
