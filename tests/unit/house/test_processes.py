"""What tests ask of processes is answered for dying ones, too."""

from __future__ import annotations

import subprocess
import sys

import psutil

from tests.support import poll_until
from tests.worlds.processes import command_line, family, has_ended, kill_all, still_running

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


def test_a_process_that_nobody_has_waited_for_has_ended() -> None:
    with subprocess.Popen(SLEEPER) as child:
        process = psutil.Process(child.pid)
        assert SLEEPER[2] in poll_until(lambda: command_line(process), 10, "the command line")
        assert still_running([process]) == [process]
        child.kill()
        poll_until(lambda: has_ended(process), 10, "its end")
        assert process.status() == psutil.STATUS_ZOMBIE
        assert command_line(process) == ""
        assert still_running([process]) == []
        child.wait()
    assert command_line(process) == ""
    assert has_ended(process)


def test_all_of_a_family_is_killed_also_when_some_have_ended() -> None:
    program = f"import subprocess, sys, time; subprocess.Popen({SLEEPER!r}); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", program]) as parent:
        processes = poll_until(
            lambda: found if len(found := family(parent.pid)) == 2 else None, 10, "parent and child"
        )
        processes[1].kill()
        kill_all(processes)
        assert still_running(processes) == []
