"""Commands that change rules of access or settings of topics: whose word it was is kept before anything is changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from parallax.cli import acl, audited, topic_settings
from parallax.config.config import Config
from parallax.domain.access_rules import (
    AccessFinding,
    AccessKind,
    AccessOperation,
    AccessRule,
    AccessState,
    NameMatch,
)
from parallax.domain.audit import NO_GROUP, AuditStage
from parallax.domain.ids import ClusterName, TopicName
from parallax.domain.rights import Principal, ProvenBy
from parallax.domain.topic_settings import SettingFinding, SettingState
from parallax.errors import StoreUnavailableError
from parallax.ports.audit import Auditor
from parallax.upkeep.access import AccessRow
from parallax.upkeep.settings import SettingsRow
from tests.memory.audit import MemoryAuditLog

CLUSTER = ClusterName("aggregate-t")


def rule(principal: str) -> AccessRule:
    write = AccessOperation.WRITE
    return AccessRule(AccessKind.TOPIC, NameMatch.LITERAL, "trips", principal, "*", write, allow=True)


def access(principal: str, state: AccessState) -> AccessRow:
    return AccessRow(CLUSTER, AccessFinding(rule(principal), state))


def setting(key: str, state: SettingState) -> SettingsRow:
    return SettingsRow(
        CLUSTER,
        TopicName("trips"),
        SettingFinding(key, state, wanted="1", present=None, sources={}, problem=""),
    )


ADDED = f"{CLUSTER} {rule('User:p').line()}"
ACCESS = [access("User:p", AccessState.ADD), access("User:q", AccessState.ACL_WIDE)]
SETTINGS = [setting("retention.ms", SettingState.CHANGE), setting("segment.ms", SettingState.CONFIG_DRIFT)]


@dataclass
class Plan:
    """Of two rows, of which one is to be changed."""

    found: Sequence[Any]
    unreadable: dict[str, str] = field(default_factory=dict)
    topics: Sequence[Any] = ()

    def rows(self) -> list[Any]:
        return list(self.found)

    def changes(self) -> list[Any]:
        return list(self.found[:1])


class Keeper:
    """Has, when it is asked to change something, what the audit knows by then."""

    kept: ClassVar[list[AuditStage]]
    changed: ClassVar[bool]
    takes: ClassVar[bool]
    log: ClassVar[MemoryAuditLog]
    cluster = CLUSTER

    def __init__(self, found: Sequence[Any]) -> None:
        self._found = found

    def plan(self, *_: object, **__: object) -> Plan:
        return Plan(self._found)

    def carry_out(self, plan: Plan) -> list[Any]:
        return [self._done(plan.found[0]), *plan.found[1:]]

    def promotion(self, _plan: Plan, _topics: object) -> list[Any]:
        return [access("User:p", AccessState.ACL_WITHHELD)]

    def promote(self, rows: Sequence[AccessRow]) -> list[Any]:
        return [self._done(replace(row, finding=ACCESS[0].finding)) for row in rows]

    def demotion(self, _plan: Plan, _topics: object) -> list[Any]:
        return [access("User:p", AccessState.REMOVE)]

    def demote(self, rows: Sequence[AccessRow]) -> list[Any]:
        return [self._done(row) for row in rows]

    def _done(self, row: Any) -> Any:
        Keeper.kept = [entry.stage for entry in Keeper.log.entries()]
        Keeper.changed = True
        return replace(row, applied=Keeper.takes)


Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    Keeper.kept, Keeper.changed, Keeper.takes, Keeper.log = [], False, True, MemoryAuditLog()
    config = tmp_path / "parallax.yaml"
    config.touch()

    @contextmanager
    def opened(_config: Config) -> Iterator[Auditor]:
        yield Auditor(Keeper.log, lambda: 7)

    monkeypatch.setattr(audited, "open_auditor", opened)
    apps = {"acl": acl.app, "topics": typer.Typer()}
    apps["topics"].command("sync")(topic_settings.sync)
    apps["topics"].command("diff")(topic_settings.diff)
    for module, found in ((acl, ACCESS), (topic_settings, SETTINGS)):
        monkeypatch.setattr(module, "load", lambda _path: None)
        monkeypatch.setattr(module, "_keepers", lambda _config, _to, found=found: [Keeper(found)])

    def ran(command: str, *arguments: str) -> Result:
        name, *rest = command.split()
        return CliRunner().invoke(apps[name], [*rest, *arguments, "--config", str(config), "-o", "json"])

    return ran


CHANGES = {
    "acl sync": ({ADDED: "not there"}, {ADDED: "there"}, {ADDED: "ADDED"}),
    "acl promote --to t": ({ADDED: "not there"}, {ADDED: "there"}, {ADDED: "ADDED"}),
    "acl demote --to t": ({ADDED: "there"}, {ADDED: "not there"}, {ADDED: "REMOVED"}),
    "topics sync": (
        {f"{CLUSTER} trips retention.ms": "not set"},
        {f"{CLUSTER} trips retention.ms": "'1'"},
        {f"{CLUSTER} trips retention.ms": "CHANGED"},
    ),
}
"""What was there, what shall be there, and what became of it."""


@pytest.mark.parametrize("command", CHANGES)
def test_whose_word_it_was_is_kept_from_before_anything_is_changed(run: Run, command: str) -> None:
    run(command, "--actor", "alice")
    assert (Keeper.changed, Keeper.log.entries()) == (False, [])
    run(command, "--execute", "--actor", "alice")
    assert (Keeper.changed, Keeper.kept) == (True, [AuditStage.INTENDED])
    intended, done = Keeper.log.entries()
    assert intended.principal == Principal("alice", ProvenBy.OWN_WORD)
    assert (intended.call, intended.group) == (command.partition(" --")[0], NO_GROUP)
    assert (intended.before, intended.after, done.after) == CHANGES[command]
    assert (done.stage, done.problem) == (AuditStage.DONE, "")


@pytest.mark.parametrize("command", CHANGES)
def test_what_a_cluster_did_not_take_is_kept_as_failed(run: Run, command: str) -> None:
    Keeper.takes = False
    run(command, "--execute")
    *_, ended = Keeper.log.entries()
    assert ended.principal.proven_by is ProvenBy.ACCOUNT
    assert ended.stage is AuditStage.FAILED
    assert CLUSTER in ended.problem


@pytest.mark.parametrize("command", CHANGES)
def test_what_can_not_be_kept_is_not_done(run: Run, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise StoreUnavailableError("store: no answer")

    monkeypatch.setattr(Keeper.log, "append", away)
    assert isinstance(run(command, "--execute").exception, StoreUnavailableError)
    assert not Keeper.changed


def test_where_nothing_is_to_be_changed_nothing_is_kept(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "changes", lambda _plan: [])
    result = run("acl sync", "--execute")
    assert len(json.loads(result.stdout)) == 2
    assert Keeper.log.entries() == []
