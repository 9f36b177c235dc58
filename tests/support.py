"""Helpers shared by tests."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import TypeVar

from lab.stack.control import StackClient
from lab.stack.stack import LocalStack

Answer = TypeVar("Answer")

# A stack of this process, or one that runs elsewhere: both answer the same questions.
Stack = LocalStack | StackClient

_POLL_EVERY_S = 0.05


def poll_until(condition: Callable[[], Answer | None], within_s: float, what: str) -> Answer:
    """Ask until the answer is truthy and return it; fail the test at the deadline.

    A condition may not be false and absent at the same time: return None (or False) for "not yet".
    """
    deadline = time.monotonic() + within_s
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {within_s} s (last answer: {answer!r})")
        time.sleep(_POLL_EVERY_S)


def unique_name(prefix: str) -> str:
    """A name that no other test uses, for topics, groups, keyspaces and transactional ids."""
    return f"{prefix}-{uuid.uuid4().hex[:10]}"
