"""Where a group has gone, without a recorded primary: by its moves and commits, not by what once stood elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from parallax.domain.ids import ClusterName, RegionName, TargetOffset, aggregate_cluster
from parallax.runtime.deadline import Deadline
from syncjob import active as active_module
from tests.worlds.offset_world import GROUP, TOPIC
from tests.worlds.sync_bench import Bench, consuming

A, B = (aggregate_cluster(RegionName(name)) for name in "ab")


def move(it: Bench, origin: str, to: str) -> TargetOffset:
    """A client's move: the service records it, and the client commits where it resumes."""
    it.world.now_ms += 100
    (answer,) = it.service.failover.answers(
        it.world.request(origin, to), Deadline.after_ms(1_000), record_move=True
    )
    it.world.commit(to, answer.resume_offset)
    return answer.resume_offset


def last_move_to(it: Bench) -> ClusterName:
    return it.world.groups.progress(GROUP, TOPIC)[0].cluster


def test_an_older_offer_makes_no_newer_move(bench: Callable[..., Bench]) -> None:
    """The group went to b and came back before anybody looked: its commits there are above what was published."""
    it = consuming(bench, 15, cycles=3)
    move(it, "a", "b")
    it.world.commit("b", 8)
    move(it, "b", "a")
    it.world.commit("a", 19)
    moved = it.world.groups.progress(GROUP, TOPIC)

    assert it.cycle().moves == 0
    assert last_move_to(it) == A
    assert it.world.groups.progress(GROUP, TOPIC) == moved


def test_a_newer_offer_makes_one(bench: Callable[..., Bench]) -> None:
    it = consuming(bench, 15, cycles=3)
    move(it, "a", "b")
    move(it, "b", "a")
    it.world.commit("a", 16)
    for _ in range(3):
        it.cycle()
    published = it.commit("b")
    assert published is not None
    it.world.commit("b", published.next_offset + 1)

    assert it.cycle().moves == 1
    assert last_move_to(it) == B


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "an_offer_is_never_too_old": lambda patch: patch.setattr(active_module, "_is_before", lambda *_: False),
}

SCENARIOS: dict[str, Callable[[Callable[..., Bench]], None]] = {
    "an_offer_is_never_too_old": test_an_older_offer_makes_no_newer_move,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_dies(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    MUTANTS[name](monkeypatch)
    with pytest.raises(AssertionError):
        SCENARIOS[name](bench)
