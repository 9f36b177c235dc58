"""The product's own commands, run as a viewer would type them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from lab.stack.errors import StackError
from lab.stack.services import PARALLAX

_WITHIN_S = 180.0
_JSON = "--json"
_TAIL_CHARACTERS = 2_000


def shortest(path: Path) -> Path:
    """The path as one would type it here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


class Commands:
    """Runs `parallax` commands in processes of their own.

    Args:
        config: of the stack; the commands find it by PARALLAX_CONFIG.
        log: gets what they log.
    """

    def __init__(self, config: Path, log: Path) -> None:
        self._environment = dict(os.environ) | {"PARALLAX_CONFIG": str(config)}
        self._log = log

    def run(self, *arguments: str) -> Any:
        """Run one with ``--json``; returns what it printed.

        Raises:
            StackError: it failed, or did not end in time.
        """
        return json.loads(self._output(*arguments, _JSON))

    def start_ms(self, command: str) -> int:
        """How long this machine takes, beside all that it does now, to start the command and have it say its options.

        Raises:
            StackError: it failed, or did not end in time.
        """
        began_s = time.monotonic()
        self._output(command, "--help")
        return round((time.monotonic() - began_s) * 1_000)

    def _output(self, *arguments: str) -> str:
        typed = f"`parallax {' '.join(argument for argument in arguments if argument != _JSON)}`"
        with self._log.open("ab") as log:
            try:
                done = subprocess.run(
                    [*PARALLAX, *arguments],
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    check=False,
                    timeout=_WITHIN_S,
                    env=self._environment,
                )
            except subprocess.TimeoutExpired as error:
                raise StackError(
                    f"{typed} has not ended in {_WITHIN_S:.0f} s; its log is {self._log}"
                ) from error
        if done.returncode != 0:
            raise StackError(
                f"{typed} failed with exit code {done.returncode}; its log is {self._log}; it printed:\n"
                f"{done.stdout[-_TAIL_CHARACTERS:]}"
            )
        return done.stdout
