"""Runs a command that must not outlive its parent: `python guard.py PARENT_PID COMMAND...`.

Run as a script by `lab.stack.process`, with the standard library only: it arms the kernel's parent-death signal
and then becomes the command, so the process keeps its id and no wrapper stays behind. (A hook between fork and
exec could do the same, but is unsafe in a program with threads.)
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PARENT_IS_GONE = 97


def main() -> None:
    """Arm the signal, make sure that the parent still lives, become the command."""
    parent_pid, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
        if os.getppid() != parent_pid:
            # It died between the fork and the call above: the signal would never come.
            sys.exit(_PARENT_IS_GONE)
    os.execvp(command[0], command)  # noqa: S606 - becoming the command is this script's purpose


if __name__ == "__main__":
    main()
