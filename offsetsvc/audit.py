"""What is kept of who changed what, read for those who administer: a page at a time, each of a bounded cost."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from parallax.client.audit_messages import row_to_pb
from parallax.domain.ids import GroupName
from parallax.errors import InvalidNameError, LimitError
from parallax.ports.audit import AuditLog, AuditQuery
from parallax.runtime.deadline import Deadline
from parallax.v1 import audit_pb2 as pb

MOST_ENTRIES = 1_000
"""Of a page."""

_ENTRIES = 100
_MOST_BYTES = 4 * 1024 * 1024
"""Of a page's entries; the last one may go beyond."""
_MOST_READS = 100
"""Of the store, for a page: each is of some thousand rows at most."""
_DAY_MS = 86_400_000
_LONGEST_KEPT_MS = 3_650 * _DAY_MS
"""`audit.retention_days` may be no longer."""
_AHEAD_MS = 60_000
"""What other processes write in this very moment is wanted too."""


class AuditReader:
    """Answers from the audit. Safe to use from many threads.

    Args:
        log: where entries are kept.
        now_ms: the store's clock.
    """

    def __init__(self, log: AuditLog, now_ms: Callable[[], int]) -> None:
        self._log = log
        self._now_ms = now_ms

    def page(
        self, request: pb.ListAuditRequest, shown: Callable[[GroupName], bool], deadline: Deadline
    ) -> pb.ListAuditResponse:
        """One page.

        Args:
            request: what is wanted.
            shown: whether entries of a group may be shown.
            deadline: half of what is left until then is spent on reading; the rest is for the next page.

        Raises:
            InvalidNameError: ``before`` is no place in the log, or the limit is negative.
            LimitError: more entries are wanted than a page may have.
            StoreUnavailableError: the store did not answer.
        """
        if request.limit < 0:
            raise InvalidNameError(f"limit: {request.limit} is negative")
        if request.limit > MOST_ENTRIES:
            raise LimitError(f"limit: {request.limit} entries; a page has {MOST_ENTRIES} at most")
        now_ms = self._now_ms()
        latest_ms = now_ms + _AHEAD_MS
        reads, budget_ms = count(1), deadline.remaining_ms / 2
        query = AuditQuery(
            since_ms=max(request.since_ms, now_ms - _LONGEST_KEPT_MS),
            until_ms=max(0, min(request.until_ms, latest_ms)) if request.HasField("until_ms") else latest_ms,
            limit=request.limit or _ENTRIES,
            group=GroupName(request.group) if request.HasField("group") else None,
            principal=request.principal or None,
            before=request.before,
            call=request.call or None,
            shown=shown,
            enough=lambda: next(reads) >= _MOST_READS or deadline.remaining_ms < budget_ms,
        )
        page = self._log.page(query)
        answer = pb.ListAuditResponse(next_before=page.next_before)
        size = 0
        for number, row in enumerate(page.rows, 1):
            entry = row_to_pb(row)
            answer.entries.append(entry)
            size += entry.ByteSize()
            if size >= _MOST_BYTES and number < len(page.rows):
                answer.next_before = row.entry_id
                break
        return answer
