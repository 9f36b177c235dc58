"""What the sync job tells the store of its cycles."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from parallax.domain.ids import ClusterName, GroupName, TopicName, TopicPartition
from parallax.domain.outcome import Outcome
from parallax.domain.sync_status import MOST_TROUBLES, GroupSyncStatus
from parallax.errors import StoreUnavailableError
from parallax.ports.groups import NamePage
from syncjob.decide import Decision, Reason
from syncjob.report import CycleReport
from syncjob.telling import MOST_AT_ONCE, REFRESH_S, REMEDIES, TELL_EVERY_S, SyncTeller, statuses_of
from tests.memory.cql import MemoryKeyspace, WrittenStores

ON_A, ON_B = ClusterName("aggregate-a"), ClusterName("aggregate-b")
GROUP = GroupName("billing")

NO_TROUBLE = {
    Reason.PUBLISHED,
    Reason.REFRESHED,
    Reason.UNCHANGED,
    Reason.KEPT_BETTER,
    Reason.WAITING,
    Reason.CONFIRMING,
    Reason.ACTIVE_ACTIVE,
    Reason.MOVING,
    Reason.UNBEGUN,
}


def decision(
    reason: Reason, outcome: Outcome = Outcome.OK, partition: int = 0, group: GroupName = GROUP
) -> Decision:
    return Decision(group, TopicPartition(TopicName("trips"), partition), ON_A, ON_B, reason, None, outcome)


class Told:
    """A teller over a store in memory, and its clock."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.store = WrittenStores(MemoryKeyspace()).status
        self.teller = SyncTeller(self.store, "sync@x:1", lambda: int(self.now_s * 1_000), lambda: self.now_s)

    def tell(self, *decisions: Decision, **values: Any) -> None:
        self.now_s += TELL_EVERY_S
        self.teller.tell(CycleReport(decisions, **values))

    def status(self, group: GroupName = GROUP) -> GroupSyncStatus:
        found = self.store.group_statuses([group])[group]
        assert isinstance(found, GroupSyncStatus)
        return found

    def troubled(self) -> list[str]:
        return [item.group for item in self.store.troubled(NamePage(1_000))]


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.name)
def test_every_reason_is_a_trouble_with_a_remedy_or_none(reason: Reason) -> None:
    assert (reason in REMEDIES) != (reason in NO_TROUBLE)
    [status] = statuses_of(CycleReport((decision(reason),)), 5).values()
    assert [item.remedy for item in status.troubles] == ([REMEDIES[reason]] if reason in REMEDIES else [])


def test_a_group_is_told_by_its_gravest_outcome() -> None:
    [status] = statuses_of(
        CycleReport(
            (
                decision(Reason.PUBLISHED),
                decision(Reason.PUBLISHED, Outcome.PENDING, 1),
                decision(Reason.NO_TOPIC, Outcome.PARTITION_MISMATCH, 2),
            )
        ),
        5,
    ).values()
    assert (status.outcome, status.active_at, status.partitions) == (Outcome.PARTITION_MISMATCH, (ON_A,), 3)
    assert status.reasons == {"no_topic": 1, "published": 2}
    assert [item.topic_partition for item in status.troubles] == [TopicPartition(TopicName("trips"), 2)]


def test_of_many_troubles_the_gravest_are_kept_and_all_counted() -> None:
    mild = [decision(Reason.NO_ANSWER, partition=number) for number in range(30)]
    grave = decision(Reason.TARGET_AWAY, Outcome.UNREACHABLE, 99)
    [status] = statuses_of(CycleReport((*mild, grave)), 5).values()
    assert (len(status.troubles), status.count_troubles) == (MOST_TROUBLES, 31)
    assert status.troubles[0].reason == "target_away"


def test_a_group_about_which_nothing_was_decided_says_why() -> None:
    [status] = statuses_of(CycleReport((), {GROUP: "[STORE_UNAVAILABLE] no answer"}), 5).values()
    assert (status.problem, status.troubles[0].reason) == ("[STORE_UNAVAILABLE] no answer", "failed")


def test_since_when_it_is_so_stays_until_it_changes() -> None:
    told = Told()
    told.tell(decision(Reason.PUBLISHED))
    began_ms = told.status().since_ms
    for _ in range(int(REFRESH_S / TELL_EVERY_S) + 1):
        told.tell(decision(Reason.UNCHANGED))
    assert told.status().since_ms == began_ms
    assert told.status().told_at_ms > began_ms  # it was told again
    told.tell(decision(Reason.NO_TOPIC))
    assert told.status().since_ms == int(told.now_s * 1_000)


def test_a_trouble_that_is_solved_is_listed_no_more() -> None:
    told = Told()
    told.tell(decision(Reason.NO_TOPIC))
    assert told.troubled() == [GROUP]
    told.tell(decision(Reason.PUBLISHED))
    assert told.troubled() == []
    told.tell(decision(Reason.NO_TOPIC))
    told.tell()
    assert told.troubled() == []
    assert told.store.group_statuses([GROUP]) == {}


def test_the_job_tells_of_its_cycles_and_of_those_that_failed() -> None:
    told = Told()
    told.tell(decision(Reason.NO_TOPIC), away=(ON_B,))
    cycle = told.store.cycle()
    assert cycle is not None
    assert (cycle.owner, cycle.groups, cycle.troubled, cycle.away) == ("sync@x:1", 1, 1, (ON_B,))
    told.teller.tell(None, "too early to tell anything")
    assert told.store.cycle() == cycle
    told.now_s += TELL_EVERY_S
    told.teller.tell(None, "[STORE_UNAVAILABLE] no answer")
    failed = told.store.cycle()
    assert failed is not None
    assert failed.problem == "[STORE_UNAVAILABLE] no answer"
    assert told.troubled() == [GROUP]  # nothing is known to have changed


def test_of_many_groups_some_are_told_at_a_time_and_none_is_left_out() -> None:
    told = Told()
    groups = [GroupName(f"group-{number:04}") for number in range(2 * MOST_AT_ONCE + 1)]
    counts = []
    for turn in range(3):
        reason = Reason.NO_TOPIC if turn % 2 else Reason.NO_ANSWER  # all of them change all the time
        told.tell(*(decision(reason, group=group) for group in groups))
        counts.append(len(told.troubled()))
    assert counts == [MOST_AT_ONCE, 2 * MOST_AT_ONCE, 1_000]
    assert told.store.troubled(NamePage(10, after=groups[999]))[0].group == groups[1_000]


def test_a_store_that_is_away_is_told_later(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailableError("nobody answers")

    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(told.store, "save_groups", away)
        told.tell(decision(Reason.NO_TOPIC))
        told.tell(decision(Reason.NO_TOPIC))
    assert [entry["event"] for entry in logs] == ["status_not_told"]
    told.tell(decision(Reason.NO_TOPIC))
    assert told.troubled() == [GROUP]


def test_a_group_that_waits_is_as_it_was_told_and_none_that_is_gone() -> None:
    it, other = Told(), GroupName("other")
    it.tell(decision(Reason.NO_TOPIC), decision(Reason.UNCHANGED, group=other))
    told = it.status()
    it.tell(decision(Reason.UNCHANGED, group=other), waiting=frozenset({GROUP, GroupName("never looked at")}))
    assert it.status() == told
    assert it.troubled() == [GROUP]
    cycle = it.store.cycle()
    assert cycle is not None
    assert (cycle.groups, cycle.troubled) == (3, 1)
    it.tell(decision(Reason.UNCHANGED, group=other))
    assert it.troubled() == []
