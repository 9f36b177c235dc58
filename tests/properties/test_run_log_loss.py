"""A shard whose run log is lost between two owners, or under one: nothing is copied a second time, and the lease says why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from parallax.domain.ids import TopicId
from parallax.errors import StoreUnavailableError
from parallax.v1.runlog_pb2 import Entry
from replicator import shard as shard_module
from replicator.copying.rebuild import GoingOn
from replicator.copying.recovery import RunLogProblem
from replicator.copying.state import fold
from replicator.kafka.layout_record import LayoutRecord
from replicator.kafka.transactions import fates
from replicator.lease import Lease, LeaseProgress
from tests.worlds.sim.doors import Faults, SimConnector
from tests.worlds.sim.kafka import MARKER
from tests.worlds.sim.route import RouteLife
from tests.worlds.sim.sides import TOPIC, Regional, SourceRecord
from tests.worlds.sim.world import World

LOST = {
    "retention": RunLogProblem.RUN_LOG_HEADLESS,
    "deleted": RunLogProblem.RUN_LOG_REPLACED,
    "deleted for good": RunLogProblem.RUN_LOG_MISSING,
    "tail": RunLogProblem.RUN_LOG_TRUNCATED,
    "stray record": RunLogProblem.RUN_LOG_FOREIGN,
    "forged snapshot": RunLogProblem.RUN_LOG_FOREIGN,
}


@pytest.fixture
def world() -> Iterator[World]:
    made = World(3, Faults(0.0), only=())
    made.schedule.calm = True
    made.regionals[0].begin_anew()
    if TOPIC not in made.aggregates[0].cluster.topics:
        made.aggregates[0].cluster.create(TOPIC, 2)
    for _ in range(20):
        made.regionals[0].produce()
    with made.in_memory():
        made.lives[0].plan(1)
        made.schedule.run(made.caught_up, at_most_steps=30_000)
        yield made


def own(world: World) -> None:
    layout = world.lives[0].layout()
    assert layout is not None
    world.lives[0].own(layout, 0)


def end_owner(world: World) -> None:
    owner = world.lives[0].owners[-1]
    owner.actor.doomed = True
    world.schedule.run(lambda: owner.over, at_most_steps=30_000)


def lose(world: World, kind: str) -> None:
    life = world.lives[0]
    life.run_log_harmed = True
    topics = life.aggregate.cluster.topics
    log = topics[life.run_log].logs[0]
    if kind == "retention":
        log.retain_from(log.end)
    elif kind == "tail":
        log.elect_unclean(log.end - 4)
    elif kind.startswith("deleted"):
        del topics[life.run_log]
        if kind == "deleted":
            life.aggregate.cluster.create(life.run_log)
    elif kind == "stray record":
        log.append("typed by somebody")
    elif kind == "forged snapshot":
        log.append(Entry(layout=1, snapshot=True))


def go_on(world: World, steps: int = 2_000) -> list[LeaseProgress]:
    reports: list[LeaseProgress] = []
    world.report = reports.append
    own(world)
    for _ in range(5):
        world.regionals[0].produce()
    until = world.schedule.steps + steps
    world.schedule.run(lambda: world.schedule.steps > until, at_most_steps=30_000)
    world.finish = True
    world.schedule.run(lambda: not world.owners(), at_most_steps=30_000)
    return reports


def copies(world: World) -> Counter[int]:
    return Counter(
        slot.value.serial
        for log in world.aggregates[0].cluster.topics[TOPIC].logs
        for slot in log.committed()
        if isinstance(slot.value, SourceRecord)
    )


def twice(world: World) -> list[int]:
    return [serial for serial, count in copies(world).items() if count > 1]


@pytest.mark.parametrize("kind", LOST)
def test_a_lost_run_log_stops_the_lease_with_its_name_and_nothing_is_copied(world: World, kind: str) -> None:
    before = copies(world)
    end_owner(world)
    lose(world, kind)
    reports = go_on(world)
    assert reports[-1].waiting_for.startswith(f"{LOST[kind].value}: aggregate-b: ")
    assert "parallax runlog rebuild" in reports[-1].waiting_for
    assert copies(world) == before


def test_an_unharmed_run_log_is_gone_on_with(world: World) -> None:
    end_owner(world)
    reports = go_on(world)
    assert reports[-1].waiting_for == ""
    assert not twice(world)
    assert len(copies(world)) == len(world.regionals[0].records)


@pytest.mark.parametrize("kind", ["deleted", "tail"])
def test_a_run_log_that_is_lost_under_its_owner_is_seen_at_its_next_entry(world: World, kind: str) -> None:
    reports: list[LeaseProgress] = []
    world.report = reports.append
    own(world)  # takes over, and reports
    world.schedule.run(lambda: bool(reports), at_most_steps=30_000)
    lose(world, kind)
    until = world.schedule.steps + 3_000
    world.schedule.run(lambda: world.schedule.steps > until, at_most_steps=30_000)
    assert reports[-1].waiting_for.startswith(("RUN_LOG_REPLACED: ", "RUN_LOG_TRUNCATED: "))
    assert not twice(world)


def test_an_entry_that_told_of_the_targets_lost_tail_is_missed_when_it_is_lost_with_the_run_logs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was copied again lies below what the entries that are left had told of, where the target had other records."""
    end_owner(world)
    monkeypatch.setattr(world.index, "_may_be_away", _away)
    run_log = world.aggregates[0].cluster.topics[world.lives[0].run_log].logs[0]
    told_up_to = run_log.end
    logs = world.aggregates[0].cluster.topics[TOPIC].logs
    for log in logs:
        log.elect_unclean(next(at for at in range(log.end - 2, 0, -1) if log.slot(at - 1).value is MARKER))
    kept = copies(world)
    own(world)
    everything = len(world.regionals[0].records)
    world.schedule.run(lambda: len(copies(world)) == everything > len(kept), at_most_steps=30_000)
    end_owner(world)
    before = copies(world)
    world.lives[0].run_log_harmed = True
    run_log.elect_unclean(told_up_to)
    reports = go_on(world)
    assert reports[-1].waiting_for.startswith("RUN_LOG_TRUNCATED: ")
    assert copies(world) == before


def _away() -> None:
    raise StoreUnavailableError("away")


LIVES = range(195, 235)
MOST_LIVES = 400
"""In which a mutant must fail."""


def life_of(seed: int) -> World:
    found = World(seed, only=("run_log_cut",))
    found.live()
    found.check()
    return found


def lives_of(seeds: Iterable[int]) -> None:
    for seed in seeds:
        life_of(seed)


def test_entries_that_are_lost_before_anything_knew_of_them_stop_the_lease_or_left_no_record() -> None:
    lives = [life_of(seed).lives[0] for seed in LIVES]
    assert any(life.ever_refused for life in lives)
    assert any(life.run_log_harmed and not life.ever_refused for life in lives)


def test_without_the_next_owner_a_change_of_the_layout_that_hangs_hides_the_run_log_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An election takes the marker of the layout's first snapshot."""
    monkeypatch.setattr(fates, "is_settled_change", lambda *_: False)
    with pytest.raises(AssertionError, match="not done"):
        lives_of(range(100, MOST_LIVES))


def test_without_a_look_at_the_target_their_records_come_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimConnector, "unexplained", lambda *_: {})
    with pytest.raises(AssertionError, match="copied twice"):
        lives_of(range(MOST_LIVES))


def test_a_route_that_stood_still_while_anothers_run_log_lost_its_head_is_refused_and_mended_exactly() -> (
    None
):
    """After an election, what the other one has copied meanwhile looks like its own, unheard of; the index explains it."""
    world = World(3, Faults(0.0), sources=("a", "b"), only=())
    world.schedule.calm = True
    for regional in world.regionals:
        regional.begin_anew()
    busy, still = world.lives
    cluster = busy.aggregate.cluster

    def produce_and_copy(regional: Regional, life: RouteLife) -> None:
        for _ in range(10):
            regional.produce()
        life.plan(1)
        world.schedule.run(life.caught_up, at_most_steps=30_000)

    def snapshots() -> list[int]:
        return [offset for _, offset, entry in busy.entries() if entry.snapshot]

    with world.in_memory():
        for regional, life in zip(world.regionals, world.lives, strict=True):
            produce_and_copy(regional, life)
        for owner in still.owners:
            owner.actor.doomed = True
        produce_and_copy(world.regionals[0], busy)
        log, copied_up_to = cluster.topics[busy.run_log].logs[0], len(snapshots())
        world.schedule.run(lambda: len(snapshots()) > copied_up_to + 1, at_most_steps=30_000)
        busy.harm_run_log({log: (log.start, snapshots()[-1])})
        log.retain_from(snapshots()[-1])
        cluster.topics[still.run_log].logs[0].elect()
        world.regionals[1].produce()
        world.schedule.run(world.caught_up, at_most_steps=30_000)
        world.finish = True
        world.schedule.run(lambda: all(actor.over for actor in world.schedule.actors), at_most_steps=30_000)
    (plan,) = still.rebuilt
    assert str(plan.refused[0]).startswith("RUN_LOG_TRUNCATED: ")
    assert {item.going_on for item in plan.partitions} == {GoingOn.EXACT}
    assert not busy.rebuilt
    world.check()


def test_a_loss_under_a_living_owner_is_seen_before_its_next_entry_is_committed(world: World) -> None:
    reports: list[LeaseProgress] = []
    world.report = reports.append
    own(world)
    world.schedule.run(lambda: bool(reports), at_most_steps=30_000)
    log = world.aggregates[0].cluster.topics[world.lives[0].run_log].logs[0]
    lose(world, "tail")
    kept = log.end
    for _ in range(5):
        world.regionals[0].produce()
    until = world.schedule.steps + 3_000
    world.schedule.run(lambda: world.schedule.steps > until, at_most_steps=30_000)
    assert reports[-1].waiting_for.startswith("RUN_LOG_TRUNCATED: ")
    assert not list(log.committed(kept))


@pytest.mark.parametrize("kind", ["retention", "deleted", "tail", "forged snapshot"])
def test_without_the_refusal_everything_is_copied_twice(
    world: World, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: a log without a snapshot is taken for a new route's, whichever topic and end it has."""

    def credulous(reader, _shard, *, known_end=0, unexplained):  # noqa: ANN001, ANN202, ARG001
        end = reader.end()
        return fold({}, [entry for _, entry in reader.read(reader.start(), end) if entry is not None]), end

    def layout(_connector: SimConnector, _lease: Lease) -> LayoutRecord:
        life = world.lives[0]
        known = life.layout()
        assert known is not None
        present = TopicId(life.aggregate.cluster.topics[life.run_log].topic_id)
        return replace(known, run_log_id=present)

    monkeypatch.setattr(shard_module, "load_states", credulous)
    monkeypatch.setattr(shard_module._Holder, "_refuse_truncated", lambda *_: None)
    monkeypatch.setattr(SimConnector, "layout", layout)
    end_owner(world)
    lose(world, kind)
    go_on(world)
    assert twice(world)
