"""The rules of setting a primary, one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parallax.domain.ids import ClusterName, GroupName, RegionName
from parallax.domain.primary import (
    DISASTER_STEP,
    Change,
    Mode,
    PrimaryDecision,
    Site,
    Stage,
    assignment_of,
    check,
    decide,
)
from parallax.errors import FencedError, InvariantError, RefusedError, UnknownRegionError

GROUP = GroupName("billing")
A, B = RegionName("a"), RegionName("b")
ON_A, ON_B = ClusterName("aggregate-a"), ClusterName("aggregate-b")
SITE = Site(frozenset({A, B, RegionName("edge")}), frozenset({ON_A, ON_B}), A)


def made(*changes: Change) -> list[PrimaryDecision]:
    """The decisions of changes made one after the other, all known."""
    found: list[PrimaryDecision] = []
    for change in changes:
        found.append(decide(change, set(found), SITE, len(found)))
    return found


def test_the_first_decision_is_active_passive_on_the_regions_own_cluster() -> None:
    (first,) = made(Change(GROUP, B))

    assert (first.mode, first.cluster, first.stage) == (Mode.ACTIVE_PASSIVE, ON_B, Stage.SETTLED)
    assert first.fencing_number == 3  # (0 + 1) * 3 regions + index 0
    assert first.supersedes == ()


def test_a_disaster_leaps() -> None:
    planned, disaster = made(Change(GROUP, A), Change(GROUP, B, disaster=True))

    assert disaster.fencing_number == (planned.fencing_number // 3 + 1 + DISASTER_STEP) * 3
    assert disaster.disaster


def test_the_same_again_changes_nothing_unless_renewed() -> None:
    first, second, renewed = made(Change(GROUP, A), Change(GROUP, A), Change(GROUP, A, renew=True))

    assert second is first
    assert renewed.fencing_number > first.fencing_number
    assert renewed.agrees_with(first)


def test_a_region_may_consume_another_regions_cluster() -> None:
    (only,) = made(Change(GROUP, A, cluster=ON_B))

    assert (only.primary, only.cluster) == (A, ON_B)


def test_the_expected_number_guards_against_somebody_else() -> None:
    known = made(Change(GROUP, A))

    with pytest.raises(FencedError, match="fencing number 3, not 0"):
        decide(Change(GROUP, B, expected_number=0), known, SITE, 1)
    assert decide(Change(GROUP, B, expected_number=3), known, SITE, 1).primary == B


@pytest.mark.parametrize("renew", [False, True])
def test_a_change_whose_answer_was_lost_may_be_asked_for_again(*, renew: bool) -> None:
    change = Change(GROUP, B, expected_number=3, renew=renew, reason="drill")
    known = made(Change(GROUP, A), change)

    assert decide(change, known, SITE, 9) is known[1]
    with pytest.raises(FencedError):
        decide(replace(change, reason="another"), known, SITE, 9)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (Change(GROUP, RegionName("x")), UnknownRegionError, "unknown region 'x'; configured: a, b, edge"),
        (Change(GROUP, RegionName("edge")), UnknownRegionError, "aggregate-edge"),
        (Change(GROUP, A, cluster=ClusterName("regional-a")), UnknownRegionError, "regional-a"),
        (Change(GROUP, A, mode=Mode.ACTIVE_ACTIVE, cluster=ON_A), RefusedError, "active/active"),
        (Change(GROUP, A, mode=Mode.ACTIVE_ACTIVE, stage=Stage.MOVING), RefusedError, "does not move"),
        (Change(GROUP, A, moving_from=ON_B), RefusedError, "only a move"),
        (Change(GROUP, A, stage=Stage.MOVING), RefusedError, "no primary yet"),
        (
            Change(GROUP, A, stage=Stage.MOVING, moving_from=ON_A),
            RefusedError,
            "consumes aggregate-a already",
        ),
        (
            Change(GROUP, A, stage=Stage.MOVING, moving_from=ClusterName("aggregate-x")),
            UnknownRegionError,
            "aggregate-x",
        ),
    ],
)
def test_what_cannot_be_is_said(change: Change, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        decide(change, [], SITE, 0)


def test_a_move_fences_then_settles() -> None:
    settled, moving, arrived = made(Change(GROUP, A), Change(GROUP, B, stage=Stage.MOVING), Change(GROUP, B))

    assert (moving.moving_from, moving.cluster) == (ON_A, ON_B)
    assert arrived.moving_from is None
    assert settled.fencing_number < moving.fencing_number < arrived.fencing_number
    under_way = assignment_of([settled, moving])
    assert under_way is not None
    assert under_way.consumed_cluster is None
    assert not under_way.is_primary(A)
    assert not under_way.is_primary(B)


def test_a_move_under_way_may_be_repeated_or_cancelled_but_not_diverted() -> None:
    three = replace(SITE, clusters=SITE.clusters | {ClusterName("aggregate-edge")})
    known = made(Change(GROUP, A), Change(GROUP, B, stage=Stage.MOVING))

    assert decide(Change(GROUP, B, stage=Stage.MOVING), known, SITE, 9) is known[1]
    assert decide(Change(GROUP, A), known, SITE, 9).stage is Stage.SETTLED
    elsewhere = Change(GROUP, RegionName("edge"), stage=Stage.MOVING)
    with pytest.raises(RefusedError, match="finish that move or roll it back"):
        decide(elsewhere, known, three, 9)
    diverted = decide(replace(elsewhere, disaster=True), known, three, 9)
    assert (diverted.moving_from, diverted.cluster) == (ON_A, "aggregate-edge")


def test_the_mode_stays_until_it_is_changed() -> None:
    both, publisher, one = made(
        Change(GROUP, A, mode=Mode.ACTIVE_ACTIVE),
        Change(GROUP, B),
        Change(GROUP, B, mode=Mode.ACTIVE_PASSIVE),
    )

    assert (both.mode, both.cluster) == (Mode.ACTIVE_ACTIVE, None)
    assert (publisher.mode, publisher.primary) == (Mode.ACTIVE_ACTIVE, B)
    assert (one.mode, one.cluster) == (Mode.ACTIVE_PASSIVE, ON_B)


def test_two_regions_that_agree_without_seeing_each_other_are_no_dual() -> None:
    first = decide(Change(GROUP, B), [], SITE, 0)
    second = decide(Change(GROUP, B), [], replace(SITE, decided_in=B), 0)
    third = decide(Change(GROUP, A), [], replace(SITE, decided_in=RegionName("edge")), 0)

    agreed = assignment_of([first, second])
    assert agreed is not None
    assert not agreed.dual_active
    dual = assignment_of([first, second, third])
    assert dual is not None
    assert dual.decision == third
    assert dual.rivals == (second, first)


def test_damaged_decisions_are_refused() -> None:
    first, second = made(Change(GROUP, A), Change(GROUP, B))

    with pytest.raises(InvariantError, match="A: two decisions"):
        assignment_of([first, replace(second, fencing_number=first.fencing_number)])
    with pytest.raises(InvariantError, match="A: decision"):
        check([replace(first, supersedes=(first.fencing_number,))])
    with pytest.raises(InvariantError, match="B: decision"):
        check([replace(first, cluster=None)])
    with pytest.raises(InvariantError, match="B: decision"):
        check([replace(first, stage=Stage.MOVING)])
    with pytest.raises(InvariantError, match="moves an active/active"):
        check([replace(first, mode=Mode.ACTIVE_ACTIVE, cluster=None, stage=Stage.MOVING, moving_from=ON_A)])
