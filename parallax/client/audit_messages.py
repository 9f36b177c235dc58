"""Between the messages of `audit.proto` and the rows of the domain. Needs the base install only."""

from __future__ import annotations

from parallax.domain.audit import AuditEntry, AuditPage, AuditRow, AuditStage
from parallax.domain.ids import GroupName
from parallax.domain.rights import Principal, ProvenBy
from parallax.v1 import audit_pb2 as pb


def row_to_pb(row: AuditRow) -> pb.AuditEntry:
    """One row; of one that can't be read, its place and why."""
    entry = row.entry
    if entry is None:
        return pb.AuditEntry(entry_id=row.entry_id, group=row.group, at_ms=row.at_ms, problem=row.problem)
    return pb.AuditEntry(
        entry_id=row.entry_id,
        group=row.group,
        at_ms=row.at_ms,
        act_id=entry.act_id,
        stage=entry.stage.value,
        principal=entry.principal.name,
        proven_by=entry.principal.proven_by.value,
        call=entry.call,
        before=entry.before,
        after=entry.after,
        reason=entry.reason,
        region=entry.region,
        process=entry.process,
        problem=entry.problem,
    )


def row_from_pb(item: pb.AuditEntry) -> AuditRow:
    """One row; words that this program does not know make it one that can't be read."""
    group = GroupName(item.group)
    if not item.stage:
        return AuditRow(item.entry_id, group, item.at_ms, None, item.problem)
    try:
        stage, proven_by = AuditStage(item.stage), ProvenBy(item.proven_by)
    except ValueError as error:
        problem = f"entry {item.entry_id}: {error}: the server may be newer than this program"
        return AuditRow(item.entry_id, group, item.at_ms, None, problem)
    entry = AuditEntry(
        act_id=item.act_id,
        at_ms=item.at_ms,
        stage=stage,
        principal=Principal(item.principal, proven_by),
        call=item.call,
        group=group,
        before=dict(sorted(item.before.items())),
        after=dict(sorted(item.after.items())),
        reason=item.reason,
        region=item.region,
        process=item.process,
        problem=item.problem,
    )
    return AuditRow(item.entry_id, group, item.at_ms, entry)


def page_from_pb(answer: pb.ListAuditResponse) -> AuditPage:
    """A page."""
    return AuditPage([row_from_pb(item) for item in answer.entries], answer.next_before)
