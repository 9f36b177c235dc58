"""Lives in which the target's cluster dies upon a decision, and comes back without some of its markers (docs/decisions/0008)."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from parallax.v1.runlog_pb2 import Entry
from replicator.kafka.transactions import fates
from tests.worlds.deadly import Mutants, death
from tests.worlds.sim import doors, layouts, settling
from tests.worlds.sim.doors import SimTarget
from tests.worlds.sim.kafka import ABORTED, COMMITTED, Log
from tests.worlds.sim.run import problem_of
from tests.worlds.sim.world import World

SEEDS = 60
MUTANT_SEEDS = range(2_000)

MUTANTS = Mutants()


@MUTANTS.add
def marker_that_ended_two_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the next transaction's marker did to one that it had joined counts as how that one was decided."""
    monkeypatch.setattr(Log, "is_joined", lambda *_: False)


@MUTANTS.add
def written_over_another_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """An opening is sent though the connection was lost, or the leader is another one, since the last commit."""
    monkeypatch.setattr(SimTarget, "_has_lost_connection", lambda *_: False)


CHANGE_MUTANTS = Mutants()


@CHANGE_MUTANTS.add
def changes_of_the_layout_left_hanging(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (doors, layouts):
        monkeypatch.setattr(module, "settle_changes", lambda *_: None)


@CHANGE_MUTANTS.add
def changes_of_the_layout_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the run log tells of it, such a change is aborted."""
    monkeypatch.setattr(settling, "was_settled", lambda *_: False)


@CHANGE_MUTANTS.add
def changes_of_the_layout_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the run log tells of it, such a change is committed."""
    monkeypatch.setattr(settling, "was_settled", lambda *_: True)


def problem(seed: int, upon: Collection[str] = (COMMITTED, ABORTED)) -> str:
    """Of a life in which the cluster may die upon such a decision."""
    sources = ("a", "b") if seed % 3 == 0 else ("a",)
    world = World(seed, sources=sources, only=("markers_left_out",))
    for aggregate in world.aggregates:
        aggregate.cluster.dies_upon = upon
    return problem_of(world)


def change_problem(seed: int) -> str:
    """Of a life in which the layout is changed and drivers die besides."""
    return problem_of(World(seed, only=("kill_a_driver", "resharding", "markers_left_out")))


@pytest.mark.parametrize("block", range(4))
def test_what_hangs_is_ended_as_it_was_told_and_every_record_is_copied_once(block: int) -> None:
    assert not [(seed, found) for seed in range(block, SEEDS, 4) if (found := problem(seed))]


def test_the_lives_have_entries_that_hang_with_an_opening_and_without_all_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right, found = fates.entry_in_doubt, list[str]()

    def watched(entry_at: Callable[[int], Entry | None], start: int) -> Entry | None:
        entry, first = right(entry_at, start), entry_at(start)
        assert first is not None
        found.append("missing" if entry is None else "opened" if first.pieces else "one record")
        return entry

    monkeypatch.setattr(fates, "entry_in_doubt", watched)
    assert not [(seed, told) for seed in range(SEEDS) if (told := problem(seed) or problem(seed, (ABORTED,)))]
    assert set(found) == {"missing", "opened", "one record"}


def test_a_change_of_the_layout_that_hangs_is_ended_as_it_was_told() -> None:
    assert not [(seed, found) for seed in range(SEEDS) if (found := change_problem(seed))]


@pytest.mark.parametrize("name", CHANGE_MUTANTS)
def test_mutant_of_hanging_changes_dies(
    name: str, monkeypatch: pytest.MonkeyPatch, record_property: Callable[..., None]
) -> None:
    CHANGE_MUTANTS[name](monkeypatch)
    found = death(name, MUTANT_SEEDS, change_problem, record_property)
    assert found.startswith(("AssertionError", "InvariantError")), f"mutant {name} survived"


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_of_left_out_markers_dies(
    name: str, monkeypatch: pytest.MonkeyPatch, record_property: Callable[..., None]
) -> None:
    MUTANTS[name](monkeypatch)
    found = death(name, MUTANT_SEEDS, problem, record_property)
    assert found.startswith(("AssertionError", "InvariantError")), f"mutant {name} survived"
