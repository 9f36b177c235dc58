"""A stack for the length of a demonstration: a child of this process, or one that stays."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from lab.stack.control import StackClient
from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack, wipe
from lab.stack.supervisor import start_detached

Stack = LocalStack | StackClient


@contextmanager
def running_stack(
    spec: StackSpec, directory: Path, report: Callable[[str], None], *, keep: bool
) -> Iterator[Stack]:
    """An empty stack, ready to use.

    Args:
        spec: what to run.
        directory: its folder; what an earlier stack left there is deleted.
        report: gets a line for each part's progress.
        keep: leave it running when the block ends well. It is stopped in every other case.

    Raises:
        StackStateError: a stack runs in this folder.
        DevstackError: it did not come up; nothing is left running.
    """
    wipe(directory)
    if not keep:
        with LocalStack(spec, directory, report) as stack:
            yield stack
        return
    client = start_detached(spec, directory, report)
    try:
        yield client
    except BaseException:
        client.down()
        raise


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into KeyboardInterrupt; later ones don't disturb the clean-up."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        for name in before:
            signal.signal(name, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}
    for name in before:
        signal.signal(name, interrupt)
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
