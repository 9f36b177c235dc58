"""Typed errors of the local stack: what is wrong, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import ClassVar

from parallax.errors import ParallaxError


class StackError(ParallaxError):
    """Base of every error that the local stack raises on purpose."""

    code: ClassVar[str] = "STACK"


class JavaNotFoundError(StackError):
    """No Java of an accepted version is on this machine or in the virtual environment."""


class ArtifactError(StackError):
    """The jars of Kafka or Cassandra could not be fetched."""


class PortError(StackError):
    """No free port was found, or a port that must stay the same is taken by someone else."""


class StackStateError(StackError):
    """The command does not fit the state of the stack (not running, already running, another layout)."""


class SpecError(StackError):
    """The description of the stack is contradictory."""


class UnknownProcessError(StackError):
    """A name that is no process, cluster or region of this stack.

    Attributes:
        name: What was asked for.
        valid_names: Everything that could have been asked for.
    """

    def __init__(self, name: str, valid_names: Sequence[str]) -> None:
        self.name = name
        self.valid_names = tuple(valid_names)
        nearest = get_close_matches(name, valid_names, n=1, cutoff=0.4)
        hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
        super().__init__(f"The stack has no process {name!r}.{hint} Valid names: {', '.join(valid_names)}.")


class ProcessDiedError(StackError):
    """A process ended before it was ready.

    Attributes:
        name: The process.
        exit_code: Its exit code; negative: the signal that ended it.
        log_path: Its whole log.
        log_tail: The last lines of its log.
    """

    def __init__(self, name: str, exit_code: int, log_path: Path, log_tail: str) -> None:
        self.name = name
        self.exit_code = exit_code
        self.log_path = log_path
        self.log_tail = log_tail
        super().__init__(
            f"{name} ended with exit code {exit_code} before it was ready. The end of {log_path}:\n{log_tail}"
        )


class ReadinessTimeoutError(StackError):
    """A process lives but did not answer in time.

    Attributes:
        name: The process.
        log_path: Its whole log.
        log_tail: The last lines of its log.
    """

    def __init__(self, name: str, waited_s: float, last_problem: str, log_path: Path, log_tail: str) -> None:
        self.name = name
        self.log_path = log_path
        self.log_tail = log_tail
        super().__init__(
            f"{name} did not answer within {waited_s:.0f} s ({last_problem}). The end of {log_path}:\n{log_tail}"
        )
