from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from parallax.domain.ids import ClusterName, GroupName, RegionName
from parallax.domain.primary import (
    KEPT_DECISIONS,
    Change,
    Mode,
    PrimaryDecision,
    Site,
    Stage,
    assignment_of,
    decide,
)
from parallax.errors import InvariantError
from parallax.ports.groups import NamePage, PrimaryLog, PrimaryStore, Reach
from tests.support import unique_name

A, B = RegionName("a"), RegionName("b")
SITE = Site(frozenset({A, B}), frozenset({ClusterName("aggregate-a"), ClusterName("aggregate-b")}), A)


def readable(primaries: PrimaryStore, group: GroupName) -> list[PrimaryDecision]:
    found = primaries.decisions([group])[group]
    assert not isinstance(found, InvariantError)
    return list(found)


@pytest.fixture
def group() -> GroupName:
    return GroupName(unique_name("group"))


@pytest.fixture(params=list(Reach))
def reach(request: pytest.FixtureRequest) -> Reach:
    found: Reach = request.param
    return found


def append(primaries: PrimaryStore, change: Change, reach: Reach) -> PrimaryDecision:
    log = primaries.read_log(change.group, reach)
    decision = decide(change, log.decisions, SITE, decided_at_ms=1_700_000_000_000)
    assert primaries.append(decision, log=log, reach=reach)
    return decision


def test_a_group_without_decisions_has_an_empty_log(
    primaries: PrimaryStore, group: GroupName, reach: Reach
) -> None:
    log = primaries.read_log(group, reach)
    assert (log.decisions, log.latest) == ((), 0)
    assert primaries.decisions([group]) == {}
    assert group not in primaries.assigned_groups()


def test_decisions_are_returned_as_they_were_appended_the_newest_first(
    primaries: PrimaryStore, group: GroupName, reach: Reach
) -> None:
    made = [
        append(primaries, Change(group, A, reason='for "tests": ünïcode'), reach),
        append(primaries, Change(group, B, stage=Stage.MOVING), reach),
        append(primaries, Change(group, B, cluster=ClusterName("aggregate-a"), disaster=True), reach),
        append(primaries, Change(group, A, mode=Mode.ACTIVE_ACTIVE), reach),
    ]

    log = primaries.read_log(group, reach)
    assert list(log.decisions) == made[::-1]
    assert log.latest == made[-1].fencing_number
    assert readable(primaries, group) == made[::-1]
    assert group in primaries.assigned_groups()


def test_of_two_that_read_the_same_log_one_appends(
    primaries: PrimaryStore, group: GroupName, reach: Reach
) -> None:
    append(primaries, Change(group, A), reach)
    log = primaries.read_log(group, reach)
    first = decide(Change(group, B), log.decisions, SITE, 1)
    second = decide(Change(group, B, mode=Mode.ACTIVE_ACTIVE), log.decisions, SITE, 2)

    assert primaries.append(first, log=log, reach=reach)
    assert not primaries.append(second, log=log, reach=reach)

    assert primaries.read_log(group, reach).decisions[0] == first


def test_of_many_at_once_one_appends_first(primaries: PrimaryStore, group: GroupName) -> None:
    def attempt(turn: int) -> bool:
        change = Change(group, A if turn % 2 else B, reason=str(turn))
        return primaries.append(decide(change, [], SITE, turn), log=PrimaryLog((), 0), reach=Reach.HERE)

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(attempt, range(8))) == 1
    assert len(primaries.read_log(group, Reach.HERE).decisions) == 1


def test_groups_are_read_side_by_side(primaries: PrimaryStore) -> None:
    groups = [GroupName(unique_name("group")) for _ in range(120)]
    made = {group: append(primaries, Change(group, A), Reach.HERE) for group in groups[:15]}
    forgotten = append(primaries, Change(groups[15], A), Reach.HERE)
    assert primaries.forget(groups[15], [forgotten])

    found = primaries.decisions([*groups, *groups[:3]])

    assert set(found) == set(made)
    assert {group: readable(primaries, group) for group in found} == {
        group: [decision] for group, decision in made.items()
    }
    assert set(groups[:15]) <= set(primaries.assigned_groups())
    assert primaries.decisions([]) == {}


def test_assigned_groups_come_page_by_page(primaries: PrimaryStore) -> None:
    prefix = unique_name("paged")
    names = sorted(GroupName(f"{prefix}{end}") for end in ("", "-A", "-a", "-é", "-日", "-\U0001f600", ".9"))
    for name in names:
        append(primaries, Change(name, A), Reach.HERE)
    found: list[GroupName] = []
    while page := primaries.assigned_page(NamePage(3, prefix, found[-1] if found else "")):
        found += page
    assert found == names


def test_nothing_of_one_group_is_another_groups(primaries: PrimaryStore, group: GroupName) -> None:
    append(primaries, Change(group, A), Reach.HERE)
    other = GroupName(unique_name("group"))
    assert primaries.read_log(other, Reach.HERE).decisions == ()


def test_long_superseded_decisions_are_forgotten_and_rivals_are_not(
    primaries: PrimaryStore, group: GroupName
) -> None:
    made = [append(primaries, Change(group, A), Reach.HERE)]
    rival = decide(Change(group, A, renew=True), made, SITE, decided_at_ms=1)
    made += [
        append(primaries, Change(group, B, renew=True, disaster=True), Reach.HERE)
        for _ in range(KEPT_DECISIONS + 2)
    ]
    assert len(readable(primaries, group)) == KEPT_DECISIONS
    assert primaries.append(rival, log=PrimaryLog((), made[-1].fencing_number), reach=Reach.HERE)
    found = assignment_of(readable(primaries, group))
    assert found is not None
    assert found.rivals == (rival,)


def test_forgotten_decisions_leave_their_number(primaries: PrimaryStore, group: GroupName) -> None:
    made = append(primaries, Change(group, A), Reach.EVERYWHERE)
    assert not primaries.forget(group, [])
    assert group in primaries.assigned_groups()

    assert primaries.forget(group, [made])

    assert group not in primaries.assigned_groups()
    assert primaries.decisions([group]) == {}
    log = primaries.read_log(group, Reach.EVERYWHERE)
    assert (log.decisions, log.latest) == ((), made.fencing_number)
    again = decide(Change(group, B), log.decisions, SITE, 1, log.latest)
    assert again.fencing_number > made.fencing_number
    assert primaries.append(again, log=log, reach=Reach.EVERYWHERE)
    assert group in primaries.assigned_groups()
