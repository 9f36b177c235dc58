"""Makes the clock of a Python process wrong, or its resolver slow, while it runs.

Sixteen bytes of a file, shared with the process by memory: the milliseconds that its clock is ahead, and those that
each look-up of a name takes longer. `sitecustomize` beside this module, which Python runs first wherever it is found on
the path, puts them into effect. Only Python's own calls are reached: a JVM, and librdkafka, keep the machine's clock and
resolver.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

VARIABLE = "PARALLAX_LAB_STEERING"
_FORMAT = struct.Struct("<qq")


class Steering:
    """One process's clock and resolver; the process may start and end meanwhile.

    Args:
        path: the file that both share.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_FORMAT.pack(0, 0))

    def environment(self) -> dict[str, str]:
        """What the process needs in its environment."""
        folders = [str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        return {VARIABLE: str(self._path), "PYTHONPATH": os.pathsep.join(filter(None, folders))}

    def set(self, *, clock_ahead_ms: int = 0, resolver_late_ms: int = 0) -> None:
        """From now on the clock is so far ahead (behind, where negative), and each name takes so much longer."""
        with self._path.open("r+b") as file:
            file.write(_FORMAT.pack(clock_ahead_ms, resolver_late_ms))
