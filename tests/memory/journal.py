"""`OperationJournal` in memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from parallax.domain.ids import GroupName
from parallax.ports.decisions import OperationNote


class MemoryOperationJournal:
    """The commands of one process. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notes: dict[tuple[GroupName, int, str], OperationNote] = {}

    def operations(self, group: GroupName) -> Sequence[OperationNote]:
        """The newest note of each of the group's operations, the newest operation first."""
        with self._lock:
            found = [note for key, note in self._notes.items() if key[0] == group]
        return sorted(found, key=lambda note: (-note.started_at_ms, note.operation_id))

    def save_operation(self, note: OperationNote) -> None:
        """Keep a note; one with a smaller version than the stored one is ignored."""
        key = (note.group, note.started_at_ms, note.operation_id)
        with self._lock:
            stored = self._notes.get(key)
            if stored is None or stored.version <= note.version:
                self._notes[key] = note
