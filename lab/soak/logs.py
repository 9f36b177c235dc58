"""Logs of processes, read on from where they were read to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


class NewLines:
    """What a log says that it had not said before.

    Args:
        path: the log; it need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._read_to = path, 0

    def read(self) -> bytes:
        """The new lines; one that is not whole yet is read again."""
        if not self._path.exists():
            return b""
        with self._path.open("rb") as log:
            log.seek(self._read_to)
            new = log.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read_to += len(whole)
        return whole


class NewLeases:
    """Which processes of Spark have begun to hold a lease that they had not held before, by Spark's log."""

    def __init__(self, path: Path) -> None:
        self._lines = NewLines(path)
        self._held: set[tuple[int, str]] = set()

    def read(self) -> Iterator[int]:
        """Their process ids, as far as the log has told of them since the last time."""
        for line in self._lines.read().splitlines():
            if b'"lease_begun"' not in line:
                continue
            with suppress(ValueError, KeyError):
                told = json.loads(line)
                # The layout and the epoch follow: a shard's lease is the same in all of them.
                begun = (int(told["process"]), str(told["lease"]).partition(" layout ")[0])
                if begun not in self._held:
                    self._held.add(begun)
                    yield begun[0]
