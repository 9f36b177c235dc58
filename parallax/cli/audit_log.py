"""`parallax audit-log`: who decided, moved and practised."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console

from parallax.adapters.cassandra.stores import CassandraStores
from parallax.cli import completion
from parallax.cli.connecting import connect
from parallax.cli.options import (
    TIMEOUT_MS,
    AuthorityOption,
    JsonOption,
    ServiceOption,
    ServicesConfigOption,
    TimeoutOption,
)
from parallax.cli.output import console, log_beside_result, table
from parallax.cli.rows import DocumentFormat, DocumentOption, written
from parallax.client.audit_messages import page_from_pb
from parallax.client.client import OffsetClient
from parallax.config.config import load
from parallax.domain.audit import AuditEntry, AuditPage, AuditRow, AuditStage, entry_values
from parallax.domain.ids import GroupName
from parallax.errors import InvalidNameError
from parallax.ports.audit import AuditQuery
from parallax.runtime.deadline import wall_clock_ms

_MOST_AT_ONCE = 1_000
"""Entries that a service gives in a page."""
_UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
_STYLES = {AuditStage.FAILED: "red", AuditStage.UNKNOWN: "yellow"}


def audit_log(
    config: ServicesConfigOption = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            help="Of this group alone; '': of acts about no group.",
            autocompletion=completion.groups,
        ),
    ] = None,
    call: Annotated[
        str | None, typer.Option("--call", help="Of acts of this call or command alone, such as SetPrimary.")
    ] = None,
    principal: Annotated[
        str | None, typer.Option("--principal", help="Of acts of this principal alone: its whole name.")
    ] = None,
    since: Annotated[
        str, typer.Option("--since", help="From then on: 30m, 24h or 7d ago, or 2026-11-24T18:00:00Z.")
    ] = "7d",
    until: Annotated[
        str | None, typer.Option("--until", help="Before then, written likewise. Default: now.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="So many entries at most.")] = 100,
    before: Annotated[
        str, typer.Option("--before", help="Where the page before ended, as it said: the next page.")
    ] = "",
    store: Annotated[
        bool,
        typer.Option(
            "--store",
            help="Read the store itself, as --config says: where no service answers. Needs the store's password.",
        ),
    ] = False,
    service: ServiceOption = None,
    tls_ca: AuthorityOption = None,
    timeout_ms: TimeoutOption = TIMEOUT_MS,
    output: DocumentOption = DocumentFormat.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Show who decided, moved and practised, the newest first: of the groups that you may administer."""
    log_beside_result(json=as_json)

    def query(now_ms: int) -> AuditQuery:
        return AuditQuery(
            since_ms=moment_of(since, now_ms, "--since"),
            # What other processes write in this very moment is wanted too.
            until_ms=now_ms + _UNITS_MS["m"] if until is None else moment_of(until, now_ms, "--until"),
            limit=limit,
            group=None if group is None else GroupName(group),
            principal=principal,
            before=before,
            call=call,
        )

    if store:
        if config is None:
            raise InvalidNameError("--store: name the configuration that says where the store is (--config)")
        settings = load(config)
        with CassandraStores(settings.cassandra, settings.index, audit=settings.audit) as stores:
            found = read(stores.audit.page, query(stores.clock.now_ms()))
    else:
        with connect(config, service, tls_ca, timeout_ms) as client:
            found = read(partial(asked, client), query(wall_clock_ms()))
    if written([row_values(row) for row in found.rows], output, as_json=as_json):
        return
    show(found.rows, console())
    if found.next_before:
        console().print(f"there may be more: --before {found.next_before}", markup=False)


def read(page: Callable[[AuditQuery], AuditPage], query: AuditQuery) -> AuditPage:
    """As many rows as are wanted, over as many pages as that takes."""
    rows: list[AuditRow] = []
    while True:
        found = page(replace(query, limit=query.limit - len(rows)))
        rows += found.rows
        if not found.next_before or len(rows) >= query.limit:
            return AuditPage(rows, found.next_before)
        query = replace(query, before=found.next_before)


def asked(client: OffsetClient, query: AuditQuery) -> AuditPage:
    """A page of an offset service's."""
    return page_from_pb(
        client.list_audit(
            since_ms=query.since_ms,
            until_ms=query.until_ms,
            group=query.group,
            call=query.call or "",
            principal=query.principal or "",
            limit=min(query.limit, _MOST_AT_ONCE),
            before=query.before,
        )
    )


def moment_of(text: str, now_ms: int, option: str) -> int:
    """The moment, milliseconds since the Unix epoch, that lies so long ago, or that is written out.

    Raises:
        InvalidNameError: it is neither.
    """
    ago = re.fullmatch(r"(\d{1,12})([mhd])", text)
    if ago is not None:
        return max(0, now_ms - int(ago[1]) * _UNITS_MS[ago[2]])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidNameError(
            f"{option} {text!r}: write how long ago (30m, 24h, 7d), or a moment such as 2026-11-24T18:00:00Z"
        ) from error
    if moment.tzinfo is None:
        raise InvalidNameError(f"{option} {text!r}: say in which time zone, such as {text}Z")
    return max(0, int(moment.timestamp() * 1_000))


def row_values(row: AuditRow) -> dict[str, Any]:
    """A row as JSON types."""
    known = {} if row.entry is None else entry_values(row.entry)
    return {
        "entry_id": row.entry_id,
        "group": row.group,
        **known,
        "at_ms": row.at_ms,
        "problem": row.problem or known.get("problem", ""),
    }


def show(rows: Sequence[AuditRow], out: Console) -> None:
    """A line for each act: what was intended, and what became of it as far as these rows say."""
    if not rows:
        out.print("nothing was kept of that time")
        return
    entries = [row.entry for row in rows if row.entry is not None]
    ends = {entry.act_id: entry for entry in entries if entry.stage is not AuditStage.INTENDED}
    intended = {entry.act_id for entry in entries if entry.stage is AuditStage.INTENDED}
    lines = table("when | ~who | call | ~group | ~before | ~after | became | ~reason | where")
    for row in rows:
        entry = row.entry
        if entry is None:
            out.print(row.problem, style="bold red", markup=False)
        elif entry.stage is AuditStage.INTENDED:
            _add(lines, row, entry, ends.get(entry.act_id))
        elif entry.act_id not in intended:  # that stands on another page
            _add(lines, row, entry, entry)
    out.print(lines)


def _add(lines: Any, row: AuditRow, entry: AuditEntry, end: AuditEntry | None) -> None:
    stage = AuditStage.INTENDED if end is None else end.stage
    problem = "" if end is None else end.problem
    after = {**entry.after, **({} if end is None else end.after)}
    who = f"{entry.principal.name} ({entry.principal.proven_by.value})"
    lines.add_row(
        f"{datetime.fromtimestamp(row.at_ms / 1_000, UTC):%Y-%m-%d %H:%M:%S}Z",
        who,
        entry.call,
        entry.group,
        _listed(entry.before),
        _listed(after),
        stage.value,
        "; ".join(filter(None, (entry.reason, problem))),
        " ".join(filter(None, (entry.region, entry.process))),
        style=_STYLES.get(stage),
    )


def _listed(values: Any) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items()) or "-"
