"""The target loses the ends of its logs under a shard that copies: nothing is lost, nothing is copied twice.

An unclean leader election at a partition of the target throws away its tail; other routes, aborted transactions and
markers may fill the log up again before anybody looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from parallax.domain.ids import Lineage, TargetOffset, TopicPartition
from replicator.copying import reconcile
from replicator.copying.ports import TargetEnd
from replicator.copying.state import PartitionChange, PartitionState
from replicator.kafka.transactions import hanging
from tests.worlds.sim import sides
from tests.worlds.sim.doors import SimTarget
from tests.worlds.sim.world import World

SEEDS = 120
ELECTIONS = ("target_election", "unclean_target_election")
RESHARDED = (*ELECTIONS, "resharding")
CUT = "unclean election"


class OneOwner(World):
    """Nobody dies, pauses or takes over."""

    def _something_happens(self) -> None:
        self.actions = [action for action in self.actions if "owner" not in action.name]
        super()._something_happens()


def problem(seed: int, kind: type[World], only: Sequence[str]) -> str:
    try:
        world = kind(seed, only=only)
        world.live()
        world.check()
    except Exception as error:  # noqa: BLE001 - whatever it is, the seed has failed
        return f"{type(error).__name__}: {error}"[:300]
    return ""


def first_problem(seeds: Iterable[int], kind: type[World] = World, only: Sequence[str] = ELECTIONS) -> str:
    """Of the first seed that has one; empty if none has."""
    return next((f"seed {seed}: {found}" for seed in seeds if (found := problem(seed, kind, only))), "")


@pytest.fixture
def deep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elections take up to so many offsets: down below where the present generation began."""
    monkeypatch.setattr(sides, "_TAIL", 25)


@pytest.mark.parametrize("kind", [World, OneOwner])
def test_what_a_target_has_lost_is_copied_again_once(kind: type[World]) -> None:
    assert not first_problem(range(SEEDS), kind)


@pytest.mark.usefixtures("deep")
def test_a_loss_below_where_the_present_generation_began_is_found_in_an_earlier_one() -> None:
    assert not first_problem(range(SEEDS))


def test_the_worlds_have_such_losses() -> None:
    told: list[str] = []
    for seed in range(20):
        World(seed, only=ELECTIONS, tell=told.append).live()
    assert any(CUT in line and "another route writes" in line for line in told)
    assert any(CUT in line and "another route writes" not in line for line in told)


@pytest.mark.usefixtures("deep")
def test_what_an_older_layout_wrote_and_was_left_hanging_is_ended() -> None:
    """An election takes the marker of what an older layout's owner wrote."""
    assert not first_problem(range(SEEDS), only=RESHARDED)


# --- mutants: each undoes a part, and a life shows it


def test_a_target_known_by_its_end_alone_loses_records(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_the_end(end: TargetEnd, target_floor: TargetOffset, leader_epoch: int) -> TargetOffset:
        del leader_epoch
        return min(end.next_offset, target_floor)

    monkeypatch.setattr(TargetEnd, "has_kept", by_the_end)
    assert first_problem(range(SEEDS))


def test_a_transaction_committed_under_another_leader_loses_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimTarget, "_confirm", lambda _target, _logs: None)
    assert first_problem(range(SEEDS))


@pytest.mark.usefixtures("deep")
def test_ending_what_hangs_of_the_present_layout_alone_leaves_readers_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hanging, "earlier_shards", lambda *_: ())
    assert "readers wait for transactions that never end" in first_problem(range(SEEDS), only=RESHARDED)


@pytest.mark.usefixtures("deep")
def test_going_back_in_the_present_generation_alone_loses_records(monkeypatch: pytest.MonkeyPatch) -> None:
    search = reconcile.cut_by_target

    def present_only(
        state: PartitionState, kept_to: TargetOffset, history: reconcile.RunHistory
    ) -> reconcile.Beginning:
        def changes(item: TopicPartition, lineage: Lineage) -> list[PartitionChange]:
            return [change for change in history(item, lineage) if change.state.lineage == lineage]

        return search(replace(state, target_first=min(state.target_first, kept_to)), kept_to, changes)

    monkeypatch.setattr(reconcile, "cut_by_target", present_only)
    assert first_problem(range(5 * SEEDS))  # rare: one life in a hundred
