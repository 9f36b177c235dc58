"""Who decided and who moved is kept before anything changes; what changes nothing is counted, and not kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from structlog.testing import capture_logs

from offsetsvc import primaries
from offsetsvc.answers import ReportedMove, ReportedPosition
from offsetsvc.service import UseCases
from parallax.domain.audit import LONGEST_TEXT, MOST_NAMES, AuditEntry, AuditStage
from parallax.domain.ids import ClusterName, GroupName, RegionName, TargetOffset, TopicId, TopicPartition
from parallax.domain.primary import Change, PrimaryDecision
from parallax.domain.progress import Progress
from parallax.domain.rights import Principal, ProvenBy
from parallax.errors import FencedError, StoreUnavailableError
from parallax.ports.audit import Auditor
from parallax.ports.groups import PrimaryLog, Reach
from parallax.runtime.deadline import Deadline
from tests.memory.audit import MemoryAuditLog
from tests.memory.groups import MemoryPrimaryStore
from tests.worlds.failover_bench import two_sources
from tests.worlds.offset_world import GROUP, TOPIC, World

A, B = (ClusterName(f"aggregate-{name}") for name in "ab")
P0 = TopicPartition(TOPIC, 0)
ALICE = Principal("spiffe://bank/alice", ProvenBy.CERTIFICATE)
INTENDED, DONE, FAILED, UNKNOWN = AuditStage


@pytest.fixture
def world() -> World:
    """a: a0..9 b0..9; b: b0..9 a0..9."""
    made = World()
    two_sources(made)
    return made


@pytest.fixture
def service(world: World) -> Iterator[UseCases]:
    with world.service() as made:
        yield made


@pytest.fixture
def unaudited(service: UseCases) -> Counter[str]:
    """Reports that were only counted, by call."""
    counted: Counter[str] = Counter()
    service.moves.tell_unaudited = lambda call: counted.update([call])
    return counted


def soon() -> Deadline:
    return Deadline.after_ms(5_000)


def stages(world: World) -> list[AuditStage]:
    return [entry.stage for entry in world.audit.entries()]


class DownLog(MemoryAuditLog):
    """A store that takes so many entries, and no more."""

    def __init__(self, takes: int) -> None:
        super().__init__()
        self.takes = takes

    def append(self, entries: Sequence[AuditEntry]) -> None:
        if self.takes < len(entries):
            raise StoreUnavailableError("store: no answer")
        self.takes -= len(entries)
        super().append(entries)


# --- decisions --------------------------------------------------------------------------------------------------------


def test_a_decision_is_kept_before_and_after_with_whoever_made_it(world: World, service: UseCases) -> None:
    first = service.primaries.set(Change(GROUP, RegionName("a")), soon())
    change = Change(GROUP, RegionName("b"), reason="region a is slow")
    second = service.primaries.set(change, soon(), by=ALICE)

    _, _, intended, done = world.audit.entries()
    assert (intended.stage, done.stage) == (INTENDED, DONE)
    assert intended.act_id == done.act_id
    assert {intended.principal, done.principal} == {ALICE}
    assert (intended.call, intended.group, intended.region) == ("SetPrimary", GROUP, "a")
    assert intended.reason == "region a is slow"
    assert (intended.before["primary"], intended.after["primary"]) == ("a", "b")
    assert intended.before["fencing_number"] == str(first.decision.fencing_number)
    assert intended.after["fencing_number"] == str(second.decision.fencing_number)
    assert world.audit.entries()[0].principal.proven_by is ProvenBy.NOTHING


def test_what_changes_nothing_is_not_kept(world: World, service: UseCases) -> None:
    change = Change(GROUP, RegionName("a"))
    service.primaries.set(change, soon(), dry_run=True, by=ALICE)
    assert stages(world) == []
    service.primaries.set(change, soon(), by=ALICE)
    service.primaries.set(change, soon(), by=ALICE)
    with pytest.raises(FencedError):
        service.primaries.set(Change(GROUP, RegionName("b"), expected_number=7), soon(), by=ALICE)
    assert stages(world) == [INTENDED, DONE]


def test_a_store_that_can_not_keep_who_decided_refuses_the_decision(world: World) -> None:
    world.audit = DownLog(0)
    with world.service() as service:
        with pytest.raises(StoreUnavailableError):
            service.primaries.set(Change(GROUP, RegionName("a"), disaster=True), soon(), by=ALICE)
        assert service.primaries.get(GROUP) is None


def test_an_end_that_can_not_be_kept_does_not_undo_the_decision_and_is_told(world: World) -> None:
    world.audit = DownLog(1)
    with world.service() as service, capture_logs() as logs:
        service.primaries.set(Change(GROUP, RegionName("a")), soon(), by=ALICE)
        assert service.primaries.get(GROUP) is not None
    assert stages(world) == [INTENDED]
    assert [entry["stage"] for entry in logs if entry["event"] == "audit"] == ["intended", "done"]
    assert [entry["stage"] for entry in logs if entry["event"] == "audit_end_lost"] == ["done"]


class LostAnswer(MemoryPrimaryStore):
    """Appends, and its answer does not come."""

    def append(self, decision: PrimaryDecision, *, log: PrimaryLog, reach: Reach) -> bool:
        super().append(decision, log=log, reach=reach)
        raise StoreUnavailableError("store: no answer")


def test_a_decision_whose_answer_was_lost_is_not_called_failed(world: World) -> None:
    world.primaries = LostAnswer()
    with world.service() as service, pytest.raises(StoreUnavailableError):
        service.primaries.set(Change(GROUP, RegionName("a")), soon(), by=ALICE)
    assert stages(world) == [INTENDED, UNKNOWN]


class Overtaken(MemoryPrimaryStore):
    """Somebody else is faster once."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 1

    def append(self, decision: PrimaryDecision, *, log: PrimaryLog, reach: Reach) -> bool:
        self.times -= 1
        return self.times < 0 and super().append(decision, log=log, reach=reach)


def test_a_decision_that_was_overtaken_is_kept_as_such(world: World) -> None:
    world.primaries = Overtaken()
    with world.service() as service:
        service.primaries.set(Change(GROUP, RegionName("a")), soon(), by=ALICE)
    assert stages(world) == [INTENDED, FAILED, INTENDED, DONE]
    assert "somebody else decided" in world.audit.entries()[1].problem


def test_without_its_audit_a_decision_would_be_anybodys(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: the entry after the deed. A store that keeps none lets the decision through."""

    def append(
        self: primaries.Primaries, decision: PrimaryDecision, log: object, reach: Reach, by: Principal
    ) -> bool:
        del log, by
        return self._store.append(decision, log=PrimaryLog((), 0), reach=reach)

    monkeypatch.setattr(primaries.Primaries, "_append", append)
    world.audit = DownLog(0)
    with world.service() as service:
        service.primaries.set(Change(GROUP, RegionName("a")), soon(), by=ALICE)
        assert service.primaries.get(GROUP) is not None


# --- moves ------------------------------------------------------------------------------------------------------------


def move(resume_offset: int) -> ReportedMove:
    topic_id = TopicId("aggregate-b-1")
    return ReportedMove(P0, topic_id, Progress(B, topic_id, TargetOffset(resume_offset), {}))


def test_a_move_reported_is_kept_where_it_changes_what_is_recorded(
    world: World, service: UseCases, unaudited: Counter[str]
) -> None:
    service.positions.report(GROUP, B, [], [move(4)], by=ALICE)
    service.positions.report(GROUP, B, [], [move(4)], by=ALICE)
    service.positions.report(GROUP, B, [], [move(7)], by=ALICE)

    entries = [entry for entry in world.audit.entries() if entry.stage is INTENDED]
    assert [(dict(entry.before), dict(entry.after)) for entry in entries] == [
        ({}, {"trips-0": "aggregate-b@4"}),
        ({"trips-0": "aggregate-b@4"}, {"trips-0": "aggregate-b@7"}),
    ]
    assert {(entry.principal, entry.call) for entry in entries} == {(ALICE, "ReportPositions")}
    assert stages(world) == [INTENDED, DONE, INTENDED, DONE]
    assert unaudited == {"ReportPositions": 1}


def test_positions_are_counted_and_not_kept(world: World, service: UseCases, unaudited: Counter[str]) -> None:
    for offset in range(5):
        service.positions.report(GROUP, A, [ReportedPosition(P0, TargetOffset(offset))], [], by=ALICE)
    assert stages(world) == []
    assert unaudited == {"ReportPositions": 5}


def test_a_move_recorded_with_an_answer_is_kept(world: World, service: UseCases) -> None:
    world.commit("a", 5)
    service.failover.answers(world.request("a", "b"), soon(), by=ALICE)
    assert stages(world) == []
    (answer,) = service.failover.answers(world.request("a", "b"), soon(), record_move=True, by=ALICE)
    intended, _ = world.audit.entries()
    assert (intended.call, intended.principal) == ("GetGroupFailoverOffsets", ALICE)
    assert intended.after["trips-0"].startswith(f"aggregate-b@{answer.resume_offset} (")


def test_a_move_that_can_not_be_kept_is_refused(world: World) -> None:
    world.audit = DownLog(0)
    with world.service() as service, pytest.raises(StoreUnavailableError):
        service.positions.report(GROUP, B, [], [move(4)], by=ALICE)
    assert world.groups.progress(GROUP, TOPIC) == {}


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_an_act_over_many_partitions_has_several_small_entries_and_names_them_all() -> None:
    log = MemoryAuditLog()
    after = {f"trips-{number}": "x" * 10_000 for number in range(2 * MOST_NAMES + 1)}
    with Auditor(log, lambda: 1).act(
        Principal("p" * 10_000, ProvenBy.TOKEN),
        "call",
        GroupName("g"),
        before={},
        after=after,
        reason="r" * 10_000,
    ):
        pass
    *intended, done = log.entries()
    assert [len(entry.after) for entry in intended] == [MOST_NAMES, MOST_NAMES, 1]
    assert {name for entry in intended for name in entry.after} == set(after)
    for entry in log.entries():
        texts = [entry.reason, entry.principal.name, *entry.after.values()]
        assert max(map(len, texts)) <= LONGEST_TEXT
        assert entry.reason.endswith("[cut]")
    assert {entry.act_id for entry in intended} == {done.act_id}


@pytest.mark.parametrize(
    ("raised", "stage"),
    [(FencedError("no"), FAILED), (StoreUnavailableError("gone"), UNKNOWN), (KeyboardInterrupt(), UNKNOWN)],
)
def test_how_an_act_ends_is_kept(raised: BaseException, stage: AuditStage) -> None:
    log = MemoryAuditLog()
    with (
        pytest.raises(type(raised)),
        Auditor(log, lambda: 1).act(ALICE, "call", GroupName("g"), before={}, after={}),
    ):
        raise raised
    assert [entry.stage for entry in log.entries()] == [INTENDED, stage]
    assert log.entries()[1].problem
