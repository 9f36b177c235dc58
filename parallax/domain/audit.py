"""Who changed what, as it is kept for whoever has to answer for it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Any

from parallax.domain.formats import read_text, stored_text
from parallax.domain.ids import GroupName
from parallax.domain.rights import Principal, ProvenBy

AUDIT_FORMAT = 1
"""What is written, and the newest that is read."""

MOST_NAMES = 64
"""What an entry says before and after, at most: an act that changes more has several entries."""

LONGEST_TEXT = 1_000
"""Characters of each text in an entry; what is longer is cut, and says so."""

_CUT = " [cut]"

NO_GROUP = GroupName("")
"""Of acts that are about no group: the schema, a run log."""


class AuditStage(Enum):
    """What an entry says about its act."""

    INTENDED = "intended"
    """It was allowed and was about to be done; written before anything was changed."""
    DONE = "done"
    FAILED = "failed"
    """It was refused, in whole or in part, or took back what it had done; `AuditEntry.problem` says why."""
    UNKNOWN = "unknown"
    """It may have changed something: an answer was lost, or it was stopped half-way."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One thing that is known of an act.

    Attributes:
        act_id: the same for all entries of an act.
        at_ms: when it was written, by the store's clock.
        principal: whose act it is, and how the name was proven.
        call: the call's or the command's name.
        before: what the act replaces, by name (a partition, say); empty where nothing was there.
        after: what it puts there.
        reason: the caller's own words.
        region: where the process runs; empty for a command.
        process: its kind, machine and process id.
        problem: why it was not done, or is not known to be.
    """

    act_id: str
    at_ms: int
    stage: AuditStage
    principal: Principal
    call: str
    group: GroupName
    before: Mapping[str, str]
    after: Mapping[str, str]
    reason: str = ""
    region: str = ""
    process: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An entry as it is kept.

    Attributes:
        entry_id: its place in the log.
        at_ms: when it was written.
        entry: None: this release can't read it, and ``problem`` says why.
    """

    entry_id: str
    group: GroupName
    at_ms: int
    entry: AuditEntry | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Some of the rows that were asked for, the newest first.

    Attributes:
        next_before: where the next page goes on; empty: there are no more. A page may have few rows, or none, and not be
            the last.
    """

    rows: Sequence[AuditRow]
    next_before: str = ""


def bounded(text: str) -> str:
    """The text, cut where it is too long for an entry."""
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - len(_CUT)] + _CUT


def in_parts(
    before: Mapping[str, str], after: Mapping[str, str]
) -> Sequence[tuple[dict[str, str], dict[str, str]]]:
    """Both, in as many parts as keep each entry small; one at least, and no name is left out."""
    names = list(dict.fromkeys(chain(before, after)))
    return [
        (
            {bounded(name): bounded(before[name]) for name in part if name in before},
            {bounded(name): bounded(after[name]) for name in part if name in after},
        )
        for start in range(0, len(names), MOST_NAMES)
        for part in [names[start : start + MOST_NAMES]]
    ] or [({}, {})]


def entry_to_text(entry: AuditEntry) -> str:
    """What the key of an entry does not say, as JSON."""
    return stored_text(entry_values(entry), AUDIT_FORMAT)


def entry_values(entry: AuditEntry) -> dict[str, Any]:
    """An entry as JSON types, without its group."""
    return {
        "act_id": entry.act_id,
        "at_ms": entry.at_ms,
        "stage": entry.stage.value,
        "principal": entry.principal.name,
        "proven_by": entry.principal.proven_by.value,
        "call": entry.call,
        "before": dict(entry.before),
        "after": dict(entry.after),
        "reason": entry.reason,
        "region": entry.region,
        "process": entry.process,
        "problem": entry.problem,
    }


def entry_from_text(group: GroupName, entry_id: str, text: str) -> AuditEntry:
    """The entry that `entry_to_text` wrote.

    Raises:
        UnreadableRowError: see `parallax.domain.formats.read_text`.
    """

    def entry(values: Mapping[str, Any]) -> AuditEntry:
        return AuditEntry(
            act_id=values["act_id"],
            at_ms=values["at_ms"],
            stage=AuditStage(values["stage"]),
            principal=Principal(values["principal"], ProvenBy(values["proven_by"])),
            call=values["call"],
            group=group,
            before=dict(values["before"]),
            after=dict(values["after"]),
            reason=values["reason"],
            region=values["region"],
            process=values["process"],
            problem=values["problem"],
        )

    return read_text(text, AUDIT_FORMAT, entry, f"audit of group {group!r}, entry {entry_id},")
