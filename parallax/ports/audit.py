"""The door to the audit, and how an act goes through it: nothing is changed before its entry is kept.

Why in this order: docs/decisions/0015-audit.md. The rules of `parallax.ports.clusters` hold here too.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

import structlog

from parallax.domain.audit import AuditEntry, AuditPage, AuditRow, AuditStage, bounded, entry_values, in_parts
from parallax.domain.ids import GroupName
from parallax.domain.rights import Principal, ProvenBy
from parallax.errors import InvalidNameError, ParallaxError, UnavailableError
from parallax.runtime.process import account_name

_log = structlog.get_logger(__name__)


def _everything(_group: GroupName) -> bool:
    return True


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """Which entries are wanted, the newest first.

    Attributes:
        since_ms: entries from this moment on.
        until_ms: entries before this moment.
        limit: so many at most.
        group: of this group alone; None: of every group.
        principal: of acts of this principal alone; entries that can't be read are among them, for they may be.
        before: `AuditPage.next_before` of the page before this one, or a row's id; empty: the first page.
        call: of acts of this call alone; likewise.
        shown: whether entries of a group may be among them.
        enough: asked before every read of the store but the first: true: the page ends there.
    """

    since_ms: int
    until_ms: int
    limit: int
    group: GroupName | None = None
    principal: str | None = None
    before: str = ""
    call: str | None = None
    shown: Callable[[GroupName], bool] = _everything
    enough: Callable[[], bool] = _never

    def wants(self, row: AuditRow) -> bool:
        """Whether a row of its time is among those that are wanted."""
        if (self.group is not None and row.group != self.group) or not self.shown(row.group):
            return False
        entry = row.entry
        return entry is None or (
            self.principal in {None, entry.principal.name} and self.call in {None, entry.call}
        )


class AuditLog(Protocol):
    """Entries: appended, read, and forgotten when they are old. Nothing changes one, and nothing takes one away."""

    def append(self, entries: Sequence[AuditEntry]) -> None:
        """Keep the entries, in this order.

        Raises:
            StoreUnavailableError: not all of them are known to be kept.
        """

    def page(self, query: AuditQuery) -> AuditPage:
        """A page.

        Raises:
            InvalidNameError: ``query.before`` is no place in the log.
            StoreUnavailableError: the store did not answer.
        """


@dataclass(slots=True)
class AuditedAct:
    """An act under way; its intention is kept.

    Attributes:
        after: what it is found to have done, told with its end; empty: as intended.
        problem: why it was not done, where nothing is raised for it; empty: it was.
    """

    intended: AuditEntry
    after: dict[str, str] = field(default_factory=dict)
    problem: str = ""


class Auditor:
    """Keeps what this process does for somebody. Safe to use from many threads.

    Args:
        log: where entries are kept.
        now_ms: the clock that entries bear: the store's.
        process: see `AuditEntry`.
        region: see `AuditEntry`.
    """

    def __init__(
        self, log: AuditLog, now_ms: Callable[[], int], *, process: str = "", region: str = ""
    ) -> None:
        self._log = log
        self._now_ms = now_ms
        self._process = process
        self._region = region

    def begin(
        self,
        principal: Principal,
        call: str,
        group: GroupName,
        *,
        before: Mapping[str, str],
        after: Mapping[str, str],
        reason: str = "",
    ) -> AuditedAct:
        """Keep that an act is intended; `end` must follow.

        Raises:
            StoreUnavailableError: it is not known to be kept: the act must not be done.
        """
        whole = AuditEntry(
            act_id=uuid.uuid4().hex,
            at_ms=self._now_ms(),
            stage=AuditStage.INTENDED,
            principal=replace(principal, name=bounded(principal.name)),
            call=call,
            group=group,
            before={},
            after={},
            reason=bounded(_words_of(principal, reason)),
            region=self._region,
            process=self._process,
        )
        entries = [replace(whole, before=old, after=new) for old, new in in_parts(before, after)]
        self._log.append(entries)
        for entry in entries:
            _tell(entry)
        return AuditedAct(whole)

    def end(self, act: AuditedAct, stage: AuditStage, problem: str = "") -> None:
        """Keep what became of an act. It is over: that this can't be kept is told in the log alone."""
        ended = replace(act.intended, stage=stage, problem=bounded(problem))
        try:
            ended = replace(ended, at_ms=self._now_ms())
            entries = [replace(ended, after=new) for _, new in in_parts({}, act.after)]
            self._log.append(entries)
        except ParallaxError as error:
            _log.warning(
                "audit_end_lost",
                act=ended.act_id,
                group=ended.group,
                stage=stage.value,
                problem=f"[{error.code}] {error}",
            )
            entries = [replace(ended, after=dict(act.after))]
        for entry in entries:
            _tell(entry)

    @contextmanager
    def act(
        self,
        principal: Principal,
        call: str,
        group: GroupName,
        *,
        before: Mapping[str, str],
        after: Mapping[str, str],
        reason: str = "",
    ) -> Iterator[AuditedAct]:
        """Do something between `begin` and `end`; what it raises says how it ended, and is passed on.

        Raises:
            StoreUnavailableError: as `begin` says; nothing was done.
        """
        made = self.begin(principal, call, group, before=before, after=after, reason=reason)
        try:
            yield made
        except UnavailableError as error:
            self.end(made, AuditStage.UNKNOWN, f"[{error.code}] {error}")
            raise
        except ParallaxError as error:
            self.end(made, AuditStage.FAILED, f"[{error.code}] {error}")
            raise
        except BaseException as error:
            self.end(made, AuditStage.UNKNOWN, type(error).__name__)
            raise
        self.end(made, AuditStage.FAILED if made.problem else AuditStage.DONE, made.problem)


def operator_of(actor: str | None, why: str = "") -> Principal:
    """Whose command this is: whom it names, or the account that it runs under.

    Args:
        actor: whom it names; None: nobody.
        why: what it says of its reason, kept with each act.

    Raises:
        InvalidNameError: it names nobody.
    """
    if actor is None:
        return Principal(account_name(), ProvenBy.ACCOUNT, why=why.strip())
    if not actor.strip():
        raise InvalidNameError("--actor: name whose command this is, or leave it out")
    return Principal(actor, ProvenBy.OWN_WORD, why=why.strip())


def _words_of(principal: Principal, reason: str) -> str:
    """The reason, with for whom it was and why, which are the principal's own words as well."""
    for_whom = f"for {principal.acts_for}" if principal.acts_for else ""
    return ": ".join(filter(None, (for_whom, principal.why, reason)))


def _tell(entry: AuditEntry) -> None:
    _log.info("audit", group=entry.group, **entry_values(entry))
