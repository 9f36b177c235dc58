"""Whose command it was is kept before its first write, and what became of it after its last."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from parallax.domain.audit import AuditEntry, AuditStage
from parallax.domain.rights import ProvenBy
from parallax.errors import InvalidNameError, StoreUnavailableError
from parallax.failover.execute import Mover
from parallax.failover.facts import MoveKind
from parallax.failover.plan import Ending
from parallax.failover.rollback import plan_rollback, roll_back
from parallax.ports.audit import Auditor, operator_of
from tests.memory.audit import MemoryAuditLog
from tests.worlds.failover_bench import OPERATOR, Bench, a_move
from tests.worlds.offset_world import GROUP

INTENDED, DONE, FAILED, UNKNOWN = AuditStage


class Down(MemoryAuditLog):
    """A store that takes no entry."""

    def append(self, entries: Sequence[AuditEntry]) -> None:
        raise StoreUnavailableError(f"store: no answer to {len(entries)} entries")


def acts(bench: Bench, call: str) -> list[AuditEntry]:
    return [entry for entry in bench.world.audit.entries() if entry.call == call]


def test_a_move_is_kept_from_before_its_first_write(bench: Bench) -> None:
    assert bench.move("a", "b", drain_ms=10_000).ending is Ending.MOVED
    intended, done = acts(bench, "failover")
    assert (intended.stage, done.stage) == (INTENDED, DONE)
    assert intended.principal == OPERATOR
    assert (intended.before["cluster"], intended.after["cluster"]) == ("aggregate-a", "aggregate-b")
    assert (intended.after["kind"], done.after["ending"]) == ("planned", "moved")
    assert done.after["fencing_number"] == str(bench.assignment().decision.fencing_number)
    # What it asked of the service was begun after, and ended before.
    assert bench.world.audit.entries()[0] == intended
    assert bench.world.audit.entries()[-1] == done
    assert acts(bench, "SetPrimary")


def test_a_move_that_changes_nothing_is_not_kept(bench: Bench) -> None:
    bench.move("a", "b", drain_ms=10_000)
    before = bench.world.audit.entries()
    assert bench.move("a", "b", drain_ms=10_000).ending is Ending.ALREADY_THERE
    assert bench.world.audit.entries() == before


def test_a_move_that_can_not_be_kept_does_not_begin(bench: Bench) -> None:
    bench.outside.auditor = Auditor(Down(), lambda: 1)
    result = bench.move("a", "b", drain_ms=10_000)
    assert result.ending is Ending.INTERRUPTED
    assert "no answer" in result.problem
    assert bench.outside.journal.records(GROUP) == []
    assert bench.client.service.primaries.get(GROUP) is None


def test_without_its_entry_a_move_would_begin(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mover, "_begin_act", lambda *_: None)
    bench.outside.auditor = Auditor(Down(), lambda: 1)
    assert bench.move("a", "b", drain_ms=10_000).ending is Ending.MOVED


def test_a_move_that_was_fenced_ahead_is_one_act(bench: Bench) -> None:
    mover = bench.mover()
    move = a_move("a", "b", MoveKind.DISASTER)
    mover.fence_ahead(move)
    assert [entry.stage for entry in acts(bench, "failover")] == [INTENDED]
    mover.move(move)
    assert [entry.stage for entry in acts(bench, "failover")] == [INTENDED, DONE]
    assert len({entry.act_id for entry in acts(bench, "failover")}) == 1


def test_an_interrupted_move_is_not_called_failed(bench: Bench) -> None:
    bench.client.failing["set_primary settled"] = StoreUnavailableError("store: away")
    assert bench.move("a", "b", drain_ms=10_000).ending is Ending.INTERRUPTED
    end = acts(bench, "failover")[-1]
    assert (end.stage, "store: away" in end.problem) == (UNKNOWN, True)


def test_an_abandoned_move_is_kept_as_failed(bench: Bench) -> None:
    bench.writer("a").members[GROUP] = 1
    assert bench.move("a", "b", drain_ms=1_000).ending is Ending.ABANDONED
    assert [entry.stage for entry in acts(bench, "failover")] == [INTENDED, FAILED]


def test_a_rollback_is_kept(bench: Bench) -> None:
    bench.move("a", "b", drain_ms=10_000)
    bench.world.now_ms += 1_000
    roll_back(bench.outside, plan_rollback(bench.outside, GROUP))
    intended, done = acts(bench, "rollback")
    assert (intended.stage, done.stage, intended.principal) == (INTENDED, DONE, OPERATOR)
    assert (intended.before["cluster"], intended.after["cluster"]) == ("aggregate-b", "aggregate-a")


def test_a_rollback_that_can_not_be_kept_changes_nothing(bench: Bench) -> None:
    bench.move("a", "b", drain_ms=10_000)
    bench.world.now_ms += 1_000
    standing = bench.assignment()
    bench.outside.auditor = Auditor(Down(), lambda: 1)
    with pytest.raises(StoreUnavailableError):
        roll_back(bench.outside, plan_rollback(bench.outside, GROUP))
    assert bench.assignment() == standing


def test_whose_command_it_is_and_how_that_is_known() -> None:
    own = operator_of(None)
    assert own.proven_by is ProvenBy.ACCOUNT
    assert own.name.count("@") == 1
    named = operator_of("alice")
    assert (named.name, named.proven_by) == ("alice", ProvenBy.OWN_WORD)
    with pytest.raises(InvalidNameError, match="--actor"):
        operator_of(" ")
