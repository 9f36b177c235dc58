"""Old decisions are forgotten; a rival never is, however many others were made since."""

from __future__ import annotations

import random

import pytest

from parallax.domain import primary as primary_module
from parallax.domain.ids import ClusterName, GroupName, RegionName
from parallax.domain.primary import KEPT_DECISIONS, Change, Site, assignment_of, decide, outlived
from parallax.ports.groups import PrimaryLog, Reach
from tests.memory.cql import MemoryKeyspace, WrittenStores
from tests.memory.groups import MemoryPrimaryStore

A, B = RegionName("a"), RegionName("b")
CLUSTERS = frozenset({ClusterName("aggregate-a"), ClusterName("aggregate-b")})
GROUP = GroupName("billing")


def site(region: RegionName) -> Site:
    return Site(frozenset({A, B}), CLUSTERS, region)


def change(region: RegionName, *, disaster: bool = True) -> Change:
    return Change(GROUP, region, renew=True, disaster=disaster)


def append(store: MemoryPrimaryStore, region: RegionName) -> None:
    log = store.read_log(GROUP, Reach.HERE)
    made = decide(change(region), log.decisions, site(region), 0, log.latest)
    assert store.append(made, log=log, reach=Reach.HERE)


@pytest.mark.parametrize("after", [1, KEPT_DECISIONS - 1, KEPT_DECISIONS + 1, 3 * KEPT_DECISIONS])
def test_a_rival_is_seen_however_many_decisions_were_made_since(after: int) -> None:
    """Region a decided while it was cut off, and its decision comes into sight last."""
    here, cut_off = MemoryPrimaryStore(), MemoryPrimaryStore()
    append(here, A)
    cut_off.absorb(here)
    append(cut_off, A)
    for _ in range(after):
        append(here, B)
    latest = here.read_log(GROUP, Reach.HERE).latest
    here.absorb(cut_off)

    found = assignment_of(here.decisions([GROUP])[GROUP])

    assert found is not None
    assert found.dual_active
    assert len(here.decisions([GROUP])[GROUP]) <= KEPT_DECISIONS + 2
    settled = decide(change(B), here.decisions([GROUP])[GROUP], site(B), 0, latest)
    assert settled.fencing_number > latest


def test_the_stores_rows_show_it_too() -> None:
    """All rows are read; the row of the rival is written as another region's copy of the store brings it."""
    keyspace = MemoryKeyspace()
    store = WrittenStores(keyspace).primaries
    first = decide(change(A), (), site(A), 0)
    assert store.append(first, log=PrimaryLog((), 0), reach=Reach.HERE)
    rival = decide(change(A), [first], site(A), 1)
    for _ in range(2 * KEPT_DECISIONS):
        log = store.read_log(GROUP, Reach.HERE)
        made = decide(change(B), log.decisions, site(B), 2, log.latest)
        assert store.append(made, log=log, reach=Reach.HERE)
    assert len(store.read_log(GROUP, Reach.HERE).decisions) == KEPT_DECISIONS
    before = store.read_log(GROUP, Reach.HERE).latest
    assert store.append(rival, log=PrimaryLog((), before), reach=Reach.HERE)

    decisions = store.decisions([GROUP])[GROUP]
    assert isinstance(decisions, list)
    found = assignment_of(decisions)
    assert found is not None
    assert [item.fencing_number for item in found.rivals] == [rival.fencing_number]


def test_forgotten_decisions_leave_their_number() -> None:
    for store in (MemoryPrimaryStore(), WrittenStores(MemoryKeyspace()).primaries):
        first = decide(change(A), (), site(A), 0)
        assert store.append(first, log=PrimaryLog((), 0), reach=Reach.HERE)
        assert not store.forget(GROUP, [])  # somebody has decided since that was read
        assert store.forget(GROUP, [first])
        log = store.read_log(GROUP, Reach.HERE)
        assert (log.decisions, log.latest) == ((), first.fencing_number)
        assert GROUP not in store.assigned_groups()
        again = decide(change(B), log.decisions, site(B), 0, log.latest)
        assert again.fencing_number > first.fencing_number
        assert store.append(again, log=log, reach=Reach.HERE)
        assert GROUP in store.assigned_groups()


@pytest.mark.parametrize("seed", range(200))
def test_what_holds_is_the_same_without_what_is_outlived(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while they are being forgotten, one after the other."""
    monkeypatch.setattr(primary_module, "KEPT_DECISIONS", 3)
    draw = random.Random(seed)
    decisions = []
    for _ in range(draw.randrange(2, 25)):
        known = [item for item in decisions if draw.random() < draw.choice([0.5, 1.0])]
        made = decide(
            change(draw.choice([A, B]), disaster=False), known, site(draw.choice([A, B])), 0, len(decisions)
        )
        if all(item.fencing_number != made.fencing_number for item in decisions):
            decisions.append(made)
    before = assignment_of(decisions)
    left = list(decisions)
    for item in outlived(decisions):
        left.remove(item)
        assert assignment_of(left) == before
