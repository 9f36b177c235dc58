"""Life and death of one child process, on small real ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lab.stack.errors import ProcessDiedError, ReadinessTimeoutError, StackStateError
from lab.stack.probes import Probe, http_probe
from lab.stack.process import Launcher, ManagedProcess, ProcessSpec, ProcessState
from tests.support import poll_until
from tests.worlds.processes import has_ended

GUARD = Path(sys.modules["lab.stack.process"].__file__ or "").with_name("guard.py")
SLEEPER = "import time\nprint('here', flush=True)\ntime.sleep(600)"
STUBBORN = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SLEEPER}"
WITH_GRANDCHILD = (
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print(child.pid, flush=True)\ntime.sleep(600)"
)

TICKER = "import time\nwhile True:\n    print('tick', flush=True)\n    time.sleep(0.02)"
WRITER = (
    "import os, time\n"
    "with open(os.environ['WRITER_OUT'], 'ab', buffering=0) as out:\n"
    "    while True:\n        out.write(b'x')\n        time.sleep(0.02)"
)

# The child writes a line when its parent's end closes its input.
WITH_ORDERLY_CHILD = (
    "import subprocess, sys, time\n"
    "orderly = \"import sys; print('at work', flush=True); sys.stdin.read(); print('left', flush=True)\"\n"
    "child = subprocess.Popen([sys.executable, '-c', orderly], stdin=subprocess.PIPE)\ntime.sleep(600)"
)


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    launcher.close()


def managed(
    launcher: Launcher, tmp_path: Path, program: str, probe: Probe | None = None, **times: float
) -> ManagedProcess:
    log = tmp_path / "logs" / "small.log"
    spec = ProcessSpec(
        name="small",
        command=[sys.executable, "-c", program],
        log=log,
        probe=probe or (lambda: None if log.read_bytes() else "silent"),
        environment=os.environ,
        **times,
    )
    return ManagedProcess(spec, launcher)


def test_it_starts_stops_and_starts_again(launcher: Launcher, tmp_path: Path) -> None:
    process = managed(launcher, tmp_path, SLEEPER)
    assert (process.state, process.pid) == (ProcessState.STOPPED, None)
    process.start()
    first = process.pid
    assert first is not None
    assert process.state is ProcessState.READY
    process.start()
    assert process.pid == first
    process.stop()
    assert (process.state, process.pid) == (ProcessState.STOPPED, None)
    process.start()
    assert process.pid not in (None, first)
    process.kill()
    assert (process.state, process.pid) == (ProcessState.KILLED, None)


def test_one_that_is_frozen_says_nothing_until_it_is_started(launcher: Launcher, tmp_path: Path) -> None:
    process = managed(launcher, tmp_path, TICKER)
    process.start()
    pid = process.pid
    process.freeze()
    assert process.state is ProcessState.FROZEN
    child = psutil.Process(pid)
    poll_until(lambda: child.status() == psutil.STATUS_STOPPED, 5, "it stands still")
    size = process.spec.log.stat().st_size
    process.start()
    assert (process.state, process.pid) == (ProcessState.READY, pid)
    poll_until(lambda: process.spec.log.stat().st_size > size, 5, "it goes on")
    process.freeze()
    process.stop()
    assert (process.state, process.pid) == (ProcessState.STOPPED, None)


def test_one_that_died_while_it_was_frozen_is_dead(launcher: Launcher, tmp_path: Path) -> None:
    process = managed(launcher, tmp_path, SLEEPER)
    process.start()
    process.freeze()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    poll_until(lambda: process.state is ProcessState.DIED, 5, "the death is seen")


def test_one_whose_disk_is_full_can_write_no_more_until_it_is_started_anew(
    launcher: Launcher, tmp_path: Path
) -> None:
    process = managed(
        launcher, tmp_path, WRITER, probe=lambda: None if (tmp_path / "out").exists() else "no file"
    )
    process.spec.log.parent.mkdir()
    os.environ["WRITER_OUT"] = str(tmp_path / "out")
    try:
        process.start()
        process.fill_disk()
        poll_until(lambda: process.state is ProcessState.DIED, 5, "writing fails")
        process.start()
        size = (tmp_path / "out").stat().st_size
        poll_until(lambda: (tmp_path / "out").stat().st_size > size, 5, "it writes again")
    finally:
        process.kill()
        del os.environ["WRITER_OUT"]


def test_what_does_not_run_is_not_frozen_nor_left_without_room(launcher: Launcher, tmp_path: Path) -> None:
    process = managed(launcher, tmp_path, SLEEPER)
    with pytest.raises(StackStateError, match="small does not run: it can't be frozen"):
        process.freeze()
    with pytest.raises(StackStateError, match="small does not run: it can't be left without room"):
        process.fill_disk()


def test_an_early_death_is_told_with_the_last_lines(launcher: Launcher, tmp_path: Path) -> None:
    program = "import sys\nfor n in range(100): print('line', n)\nsys.exit('no such disk')"
    process = managed(launcher, tmp_path, program, probe=lambda: "not yet")
    with pytest.raises(ProcessDiedError, match="small ended with exit code 1") as raised:
        process.start()
    assert raised.value.log_tail.splitlines()[-2:] == ["line 99", "no such disk"]
    assert len(raised.value.log_tail.splitlines()) == 30
    assert process.state is ProcessState.DIED


def test_silence_is_an_error_and_ends_the_process(launcher: Launcher, tmp_path: Path) -> None:
    process = managed(launcher, tmp_path, SLEEPER, probe=lambda: "port 1: refused", ready_within_s=0.5)
    with pytest.raises(ReadinessTimeoutError, match=r"did not answer within 0 s \(port 1: refused\)"):
        process.start()
    assert process.pid is None


def test_a_later_death_shows_in_the_state(launcher: Launcher, tmp_path: Path) -> None:
    process = managed(launcher, tmp_path, SLEEPER)
    process.start()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    poll_until(lambda: process.state is ProcessState.DIED, 5, "the death is seen")
    process.start()
    assert process.state is ProcessState.READY
    process.stop()


def test_one_that_ignores_sigterm_is_killed(launcher: Launcher, tmp_path: Path) -> None:
    process = managed(launcher, tmp_path, STUBBORN, stop_within_s=0.2)
    process.start()
    process.stop()
    assert (process.state, process.pid) == (ProcessState.STOPPED, None)


def test_its_children_end_with_it_even_after_it_was_killed_by_someone_else(
    launcher: Launcher, tmp_path: Path
) -> None:
    process = managed(launcher, tmp_path, WITH_GRANDCHILD)
    process.start()
    grandchild = psutil.Process(int(process.spec.log.read_text(encoding="utf-8")))
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    poll_until(lambda: process.pid is None, 5, "the process is dead")
    assert not has_ended(grandchild)
    process.stop()
    assert has_ended(grandchild)


def test_a_killed_process_takes_its_children_along_before_they_can_react(
    launcher: Launcher, tmp_path: Path
) -> None:
    process = managed(launcher, tmp_path, WITH_ORDERLY_CHILD)
    process.start()
    process.kill()
    assert process.spec.log.read_text(encoding="utf-8") == "at work\n"


def test_a_start_can_be_given_up(launcher: Launcher, tmp_path: Path) -> None:
    asked = threading.Event()

    def never() -> str:
        asked.set()
        return "not yet"

    process = managed(launcher, tmp_path, SLEEPER, probe=never)
    killer = threading.Thread(target=lambda: asked.wait(10) and process.kill())
    killer.start()
    with pytest.raises(StackStateError, match="was told to end while it started"):
        process.start()
    killer.join()
    assert process.pid is None


def test_a_child_does_not_outlive_its_killed_parent(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    child = f"import os, time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    parent = (
        "import os, subprocess, sys, time\n"
        f"command = [sys.executable, {str(GUARD)!r}, str(os.getpid()), sys.executable, '-c', {child!r}]\n"
        "subprocess.Popen(command)\ntime.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", parent]) as process:
        pid = poll_until(lambda: pid_file.exists() and pid_file.read_text(encoding="utf-8"), 10, "child runs")
        orphan = psutil.Process(int(pid))
        process.kill()
    poll_until(lambda: has_ended(orphan), 5, "the orphan is gone")


def test_the_guard_refuses_a_parent_that_is_gone_already() -> None:
    answer = subprocess.run(
        [sys.executable, str(GUARD), "1", sys.executable, "-c", "print('ran')"], check=False
    )
    assert answer.returncode == 97


def test_http_readiness_needs_a_200() -> None:
    problem = http_probe(1, "/readyz")()
    assert problem is not None
    assert "/readyz" in problem
