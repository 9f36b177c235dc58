"""What a consumer process delivered: a text file, one line a record, written before its offset is committed.

The oracle judges by these files alone. A line is handed to the operating system before the consumer commits, so a
killed process has delivered what its file says, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TextIO

from lab.workload.events import RecordId


class DeliveredRecord(NamedTuple):
    """One record as one consumer process delivered it.

    ``stage`` counts the group's moves: 0 before the first, 1 after it, and so on. ``record_offset`` is the record's
    place in ``cluster``; ``at_ms`` the wall clock (milliseconds since the Unix epoch).
    """

    stage: int
    record: RecordId
    cluster: str
    partition: int
    record_offset: int
    at_ms: int


class DeliveredLog:
    """Appends deliveries to a file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = path.open("a", encoding="ascii")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, stage: int, cluster: str, records: Iterable[tuple[RecordId, int, int]]) -> None:
        """Write deliveries of this moment: record, partition and record offset of each."""
        at_ms = int(time.time() * 1_000)
        self._file.writelines(
            f"{stage} {record.region} {record.seq} {cluster} {partition} {offset} {at_ms}\n"
            for record, partition, offset in records
        )
        self._file.flush()


def read_deliveries(path: Path) -> Iterator[DeliveredRecord]:
    """The deliveries of one process, in order; an unfinished last line (the process was killed) is left out."""
    with path.open(encoding="ascii") as file:
        for line in file:
            if not line.endswith("\n"):
                return
            stage, region, seq, cluster, partition, offset, at_ms = line.split()
            yield DeliveredRecord(
                int(stage), RecordId(region, int(seq)), cluster, int(partition), int(offset), int(at_ms)
            )


def read_group(directory: Path) -> list[DeliveredRecord]:
    """The deliveries of all processes of a group, by wall clock; the files are ``directory/*.log``."""
    found = [delivery for path in sorted(directory.glob("*.log")) for delivery in read_deliveries(path)]
    found.sort(key=lambda delivery: delivery.at_ms)  # stable: order within a process is kept
    return found
