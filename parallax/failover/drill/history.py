"""Drills as they are kept: notes in the journal, under a name that is no group's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import structlog
from pydantic import TypeAdapter

from parallax.domain.formats import read_text, stored_text
from parallax.domain.ids import GroupName
from parallax.errors import UnreadableRowError
from parallax.failover.background import silence
from parallax.failover.drill.figures import DrillFigures, Timeline
from parallax.ports.groups import OperationJournal, OperationNote

DRILLS = GroupName("parallax.drills")
"""Groups of this form are Parallax's own (``groups.exclude``), so that no group's moves meet these notes."""


class DrillEnding(Enum):
    """What became of a drill."""

    RUNNING = "running"
    """It has not ended yet, or ended without a word (`seen`)."""
    PASSED = "passed"
    """Both moves were made, no record was lost, none came twice."""
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """It was stopped, or nobody goes on with it."""


@dataclass(frozen=True, slots=True)
class DrillRecord:
    """One drill.

    Attributes:
        problem: why it did not pass; empty otherwise.
        left: the state that it left, one sentence; empty while it runs.
        proof: the verdict of `parallax verify` over both moves; empty where it was not asked for.
        version: grows with each note: the microsecond of the newest one, by the store's clock.
        actor: whose command it was; empty: kept by a release that did not say.
    """

    drill_id: str
    group: GroupName
    topic: str
    origin: str
    to: str
    started_at_ms: int
    version: int
    ending: DrillEnding = DrillEnding.RUNNING
    problem: str = ""
    left: str = ""
    proof: str = ""
    took_ms: int = 0
    figures: DrillFigures | None = None
    timeline: Timeline | None = None
    actor: str = ""


DRILL_FORMAT = 1
"""What is written, and the newest that is read."""

_VALUES = TypeAdapter(DrillRecord)
_log = structlog.get_logger(__name__)


def keep(journal: OperationJournal, record: DrillRecord) -> None:
    """Keep it.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    body = stored_text(values_of(record), DRILL_FORMAT)
    journal.save_operation(OperationNote(DRILLS, record.started_at_ms, record.drill_id, record.version, body))


def kept(journal: OperationJournal) -> Sequence[DrillRecord]:
    """The newest drills, the newest first; those that this release can't read are told in the log.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    found = []
    for note in journal.operations(DRILLS):
        try:
            found.append(record_of(note))
        except UnreadableRowError as error:
            _log.warning("drill_unreadable", drill=note.operation_id, problem=str(error))
    return found


def seen(record: DrillRecord, now_ms: int) -> DrillRecord:
    """The drill as it is to be told of at a moment, by the store's clock: one whose process is silent runs no more."""
    if record.ending is not DrillEnding.RUNNING:
        return record
    why = silence(record.version // 1_000, now_ms)
    left = f"group {record.group} is where it was left: the next drill takes it home"
    return replace(record, ending=DrillEnding.INTERRUPTED, problem=why, left=left) if why else record


def record_of(note: OperationNote) -> DrillRecord:
    """The drill of a note that `keep` wrote; raises as `parallax.domain.formats.read_text` does."""
    where = f"operations of group {DRILLS!r}, operation {note.operation_id},"
    return read_text(note.body, DRILL_FORMAT, _VALUES.validate_python, where)


def values_of(record: DrillRecord) -> Any:
    """A drill as JSON types."""
    return _VALUES.dump_python(record, mode="json")
