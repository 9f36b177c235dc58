"""`AuditLog` in memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from parallax.domain.audit import AuditEntry, AuditPage, AuditRow
from parallax.errors import InvalidNameError
from parallax.ports.audit import AuditQuery

_DAY_MS = 86_400_000


class MemoryAuditLog:
    """The entries of one process. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: list[AuditRow] = []

    def append(self, entries: Sequence[AuditEntry]) -> None:
        """Keep the entries, in this order."""
        with self._lock:
            for entry in entries:
                self._rows.append(AuditRow(str(len(self._rows)), entry.group, entry.at_ms, entry))

    def page(self, query: AuditQuery) -> AuditPage:
        """A page, the newest first; a day is one read."""
        if query.before and not query.before.isdigit():
            raise InvalidNameError(f"{query.before!r} is no row of the audit")
        with self._lock:
            ordered = sorted(self._rows, key=lambda row: (row.at_ms, int(row.entry_id)), reverse=True)
        if query.before:
            ids = [row.entry_id for row in ordered]
            ordered = ordered[ids.index(query.before) + 1 :]
        found: list[AuditRow] = []
        last: AuditRow | None = None
        for row in ordered:
            if not query.since_ms <= row.at_ms < query.until_ms:
                continue
            if last is not None and last.at_ms // _DAY_MS != row.at_ms // _DAY_MS and query.enough():
                return AuditPage(found, last.entry_id)
            last = row
            if query.wants(row):
                found.append(row)
                if len(found) >= query.limit:
                    return AuditPage(found, row.entry_id)
        return AuditPage(found)

    def entries(self) -> list[AuditEntry]:
        """All of them, in the order in which they were kept."""
        with self._lock:
            return [row.entry for row in self._rows if row.entry is not None]
