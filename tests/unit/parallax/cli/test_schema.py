"""`parallax schema apply`: whose it was is kept before anything is changed, as soon as there is a table that keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from parallax.adapters.cassandra.migrations import AUDIT_VERSION, LATEST_VERSION, MIGRATIONS, Migration
from parallax.adapters.cassandra.schema import SchemaStatus
from parallax.cli import schema as module
from parallax.cli.schema import apply_audited
from parallax.domain.audit import NO_GROUP, AuditEntry, AuditStage
from parallax.domain.rights import Principal, ProvenBy
from parallax.errors import StoreUnavailableError
from parallax.ports.audit import Auditor
from tests.memory.audit import MemoryAuditLog

OPERATOR = Principal("alice", ProvenBy.OWN_WORD)
LATER = Migration(LATEST_VERSION + 1, "a later step", ())


class Keyspace:
    """A schema of some version, and what the audit had when it was changed; before its table comes nothing can be kept."""

    def __init__(self, version: int, steps: Sequence[Migration]) -> None:
        self.version = version
        self.steps = steps
        self.kept: list[AuditStage] | None = None
        self.audit = Table(self)

    def status(self) -> Any:
        missing = [step for step in self.steps if step.version > self.version]
        return type("Status", (), {"version": self.version, "missing": missing})

    def apply(self) -> Sequence[Migration]:
        self.kept = [entry.stage for entry in self.audit.entries()]
        taken = self.status().missing
        self.version = self.steps[-1].version
        return taken


class Table(MemoryAuditLog):
    def __init__(self, of: Keyspace) -> None:
        super().__init__()
        self._of = of
        self.away = False

    def append(self, entries: Sequence[AuditEntry]) -> None:
        if self.away or self._of.version < AUDIT_VERSION:
            raise StoreUnavailableError("store: unconfigured table audit")
        super().append(entries)


def applied(keyspace: Any) -> Sequence[Migration]:
    with capture_logs():
        return apply_audited(keyspace, Auditor(keyspace.audit, lambda: 7), OPERATOR)


def test_an_upgrade_is_kept_from_before_it_begins() -> None:
    keyspace = Keyspace(LATEST_VERSION, [*MIGRATIONS, LATER])
    assert applied(keyspace) == [LATER]
    assert keyspace.kept == [AuditStage.INTENDED]
    intended, done = keyspace.audit.entries()
    assert (intended.call, intended.group, intended.principal) == ("schema apply", NO_GROUP, OPERATOR)
    assert intended.before == {"version": str(LATEST_VERSION)}
    assert (done.stage, done.after) == (AuditStage.DONE, {"steps": f"{LATER.version} a later step"})


def test_an_upgrade_that_can_not_be_kept_is_not_done() -> None:
    keyspace = Keyspace(AUDIT_VERSION, [*MIGRATIONS, LATER])
    keyspace.audit.away = True
    with pytest.raises(StoreUnavailableError):
        applied(keyspace)
    assert keyspace.kept is None


@pytest.mark.parametrize("version", [0, AUDIT_VERSION - 1])
def test_the_step_that_brings_the_table_is_kept_after_it(version: int) -> None:
    keyspace = Keyspace(version, MIGRATIONS)
    assert len(applied(keyspace)) == LATEST_VERSION - version
    assert keyspace.kept == []
    assert [entry.stage for entry in keyspace.audit.entries()] == [AuditStage.INTENDED, AuditStage.DONE]
    assert keyspace.audit.entries()[0].before == {"version": str(version)}


def test_a_step_that_is_done_is_told_of_though_it_can_not_be_kept() -> None:
    keyspace = Keyspace(0, MIGRATIONS)
    keyspace.audit.away = True
    with capture_logs() as logs:
        taken = apply_audited(keyspace, Auditor(keyspace.audit, lambda: 7), OPERATOR)  # type: ignore[arg-type]
    assert len(taken) == LATEST_VERSION
    assert [line["event"] for line in logs] == ["audit_end_lost"]


def test_what_changes_nothing_is_not_kept() -> None:
    keyspace = Keyspace(LATEST_VERSION, MIGRATIONS)
    assert applied(keyspace) == ()
    assert (keyspace.kept, keyspace.audit.entries()) == (None, [])


def test_an_upgrade_that_is_kept_too_late_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AUDIT_VERSION", LATEST_VERSION + 1)
    with pytest.raises(AssertionError):
        test_an_upgrade_is_kept_from_before_it_begins()


def test_the_audit_comes_with_the_step_that_makes_its_table() -> None:
    (step,) = [step for step in MIGRATIONS if any(".audit (" in text for text in step.statements)]
    assert step.version == AUDIT_VERSION
    assert SchemaStatus("parallax", AUDIT_VERSION).version == AUDIT_VERSION
