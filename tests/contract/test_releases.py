"""An upgrade, services of two releases side by side, and a rollback, over one store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

import syncjob.gathering as gathering_module
from parallax.adapters.cassandra import decisions as decisions_module
from parallax.adapters.cassandra import groups as groups_module
from parallax.adapters.cassandra.connection import CassandraConnection
from parallax.config.config import Cassandra
from parallax.domain.commits import GroupCommit
from parallax.domain.formats import apart
from parallax.domain.ids import GroupName, RegionName, TargetOffset, TopicId, TopicPartition
from parallax.domain.primary import Assignment, Change
from parallax.domain.progress import Progress
from parallax.errors import InvariantError, UnreadableRowError
from parallax.failover.journal import Snapshot
from parallax.runtime.deadline import Deadline
from syncjob.decide import Reason
from syncjob.report import CycleReport
from tests.memory.cql import KEYSPACE, MemoryConnection, MemoryKeyspace
from tests.support import unique_name
from tests.worlds.failover_bench import a_move
from tests.worlds.offset_world import TOPIC, World
from tests.worlds.releases import NextConnection, NextWriter, Release
from tests.worlds.sync_bench import two_sources

P0 = TopicPartition(TOPIC, 0)
TABLES = ("group_observed", "group_progress", "group_published", "operations", "primary_decisions")


@dataclass
class Groups:
    """One group for each thing that the next release says otherwise, and one of which it says nothing new."""

    plain: GroupName
    outcome: GroupName
    left: GroupName
    mode: GroupName
    metadata: GroupName
    move: GroupName

    @property
    def all(self) -> list[GroupName]:
        return [self.plain, self.outcome, self.left, self.mode, self.metadata, self.move]

    @property
    def understood_by_the_next_alone(self) -> set[GroupName]:
        """Of which the sync job needs what only the next release can read."""
        return {self.outcome, self.left, self.mode}


@dataclass
class Stage:
    """Both releases over one store; either may be stopped by not being asked any more."""

    world: World
    groups: Groups
    old: Release
    next: Release
    bodies: Callable[[], dict[Any, str]]

    def go_on(self, next_offset: int) -> None:
        """Every group commits at region a."""
        commits = self.world.cluster("a").commits
        for group in self.groups.all:
            commits[group] = {P0: GroupCommit(TargetOffset(next_offset), -1, "")}

    def published(self) -> dict[GroupName, int]:
        """Where each group would resume in region b."""
        commits = self.world.cluster("b").commits
        return {group: commits[group][P0].next_offset for group in self.groups.all}


def words(groups: Groups) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        ("group_published", groups.outcome): {"outcome": "PARTLY_KNOWN"},
        ("group_progress", groups.left): {"format": 2},
        ("primary_decisions", groups.mode): {"mode": "active_everywhere"},
        ("operations", groups.move): {"format": 2},
    }


@pytest.fixture(params=["memory", pytest.param("cassandra", marks=pytest.mark.stack("infrastructure"))])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    groups = Groups(*(GroupName(unique_name(name)) for name in Groups.__dataclass_fields__))
    world = World(service={"cluster_timeout_ms": 2_000})
    world.let_write()
    two_sources(world)
    with ExitStack() as stack:
        if request.param == "memory":
            keyspace = MemoryKeyspace()
            connection, name = MemoryConnection(keyspace), KEYSPACE
            bodies = partial(_bodies_in_memory, keyspace)
        else:
            settings: Cassandra = request.getfixturevalue("cassandra_settings")
            connection = CassandraConnection(settings, lambda _session: None)
            stack.callback(connection.close)
            name = settings.keyspace
            bodies = partial(_bodies, connection, name, groups)
        # The keyspace of a run knows the groups of other tests.
        world.config = world.config.model_copy(
            update={"groups": world.config.groups.model_copy(update={"include": tuple(groups.all)})}
        )
        following = NextConnection(connection, words(groups))
        yield Stage(
            world,
            groups,
            Release(world, connection, name, stack),
            Release(world, following, name, stack, lambda writer: NextWriter(writer, [groups.metadata])),
            bodies,
        )


def _bodies_in_memory(keyspace: MemoryKeyspace) -> dict[Any, str]:
    return {(table, *key): body for table in TABLES for key, body in keyspace.bodies(table).items()}


def _bodies(connection: CassandraConnection, keyspace: str, groups: Groups) -> dict[Any, str]:
    keys = {
        "group_observed": "cluster, topic, partition",
        "group_progress": "topic, partition",
        "group_published": "cluster, topic, partition",
        "operations": "started_at_ms, operation_id",
        "primary_decisions": "fencing_number, decided_in",
    }
    return {
        (table, group, *row[:-1]): row[-1]
        for table, key in keys.items()
        for group in groups.all
        for row in connection.run(f"SELECT {key}, body FROM {keyspace}.{table} WHERE group_id = ?", group)  # noqa: S608 - names of our own
    }


def named(report: CycleReport) -> dict[GroupName, str]:
    """The problem that a cycle tells of each group."""
    unreadable = {
        item.group: item.problem for item in report.decisions if item.reason is Reason.UNREADABLE_ROW
    }
    return unreadable | dict(report.failures)


def after(release: Release, cycles: int = 3) -> CycleReport:
    reports = [release.cycle() for _ in range(cycles)]
    return reports[-1]


def test_upgrade_side_by_side_and_rollback(stage: Stage) -> None:
    old, new, groups = stage.old, stage.next, stage.groups

    # The old release alone.
    stage.go_on(12)
    assert named(after(old)) == {}
    assert stage.published() == dict.fromkeys(groups.all, 2)
    of_the_old = stage.bodies()

    # The next one beside it reads all of that, and begins to say what only it can say.
    stage.go_on(14)
    new.groups.save_progress(
        groups.left,
        TOPIC,
        {0: Progress(stage.world.cluster("a").cluster, TopicId("aggregate-a-1"), TargetOffset(3), {})},
        moved_at_ms=stage.world.now_ms,
    )
    new.service.primaries.set(Change(groups.mode, RegionName("a")), Deadline.after_ms(10_000))
    new.service.primaries.set(Change(groups.plain, RegionName("a")), Deadline.after_ms(10_000))
    for group in (groups.move, groups.plain):
        new.journal.begin(a_move("a", "b", group=group), Snapshot({}, {}, 0, None), None)
    assert named(after(new)) == {}
    assert stage.published() == dict.fromkeys(groups.all, 4)
    of_the_next = {key: body for key, body in stage.bodies().items() if body != of_the_old.get(key)}
    assert all("of_release_2" in json.loads(body) for body in of_the_next.values())

    # Both at work: the old one serves all that it understands, and names the rest.
    stage.go_on(16)
    problems = named(after(old))
    assert problems.keys() == groups.understood_by_the_next_alone
    assert "group_published of group" in problems[groups.outcome]
    assert "PARTLY_KNOWN" in problems[groups.outcome]
    assert "group_progress of group" in problems[groups.left]
    assert "primary_decisions of group" in problems[groups.mode]
    assert {group: offset for group, offset in stage.published().items() if offset != 6} == dict.fromkeys(
        groups.understood_by_the_next_alone, 4
    )
    # What is stored for these is as the next release left it, and the next one reads what the old one wrote meanwhile.
    for key, body in stage.bodies().items():
        if key[1] in groups.understood_by_the_next_alone:
            assert body == of_the_next.get(key, of_the_old.get(key)), key
    stage.go_on(18)
    assert named(after(new)) == {}
    assert stage.published() == dict.fromkeys(groups.all, 8)

    # The rollback: the next one is gone.
    left_behind = stage.bodies()
    stage.go_on(20)
    problems = named(after(old, 5))
    assert problems.keys() == groups.understood_by_the_next_alone
    for group, offset in stage.published().items():
        assert offset == (8 if group in groups.understood_by_the_next_alone else 20), group
    listed = old.service.primaries.all()
    assert isinstance(listed[groups.mode], InvariantError)
    assert isinstance(listed[groups.plain], Assignment)
    assert old.journal.newest(groups.plain) is not None
    refused: list[Callable[[], object]] = [
        lambda: old.service.primaries.set(Change(groups.mode, RegionName("b")), Deadline.after_ms(10_000)),
        lambda: old.journal.newest(groups.move),
        lambda: old.groups.save_progress(
            groups.left,
            TOPIC,
            {0: Progress(stage.world.cluster("b").cluster, TopicId("t"), TargetOffset(0), {})},
            moved_at_ms=stage.world.now_ms,
        ),
    ]
    for attempt in refused:
        with pytest.raises(UnreadableRowError, match=r"docs/formats\.md"):
            attempt()
    for key, body in stage.bodies().items():
        if key[1] in groups.understood_by_the_next_alone or key[0] == "operations":
            assert body == left_behind[key], key

    # And forward again: nothing was lost meanwhile.
    stage.go_on(20)
    assert named(after(new, 5)) == {}
    assert stage.published() == dict.fromkeys(groups.all, 20)


def test_an_old_sync_job_asks_a_newer_service(stage: Stage) -> None:
    """Fields that were added are passed over; a word that it does not know leaves that group's offsets as they are."""
    old, new, groups = stage.old, stage.next, stage.groups
    stage.go_on(12)
    assert named(after(old)) == {}
    old.asks, new.new_outcomes = new, [groups.outcome]
    stage.go_on(16)
    report = after(old)
    assert {item.group for item in report.decisions if item.reason is Reason.NO_ANSWER} == {groups.outcome}
    assert stage.published() == {group: 2 if group == groups.outcome else 6 for group in groups.all}


# --- what undoes it -----------------------------------------------------------------------------------------------------


def _reads_greater_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "PROGRESS_FORMAT", 99)


def _takes_an_unreadable_row_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering_module, "apart", lambda rows: (apart(rows)[0], []))


def _takes_an_unreadable_decision_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def readable(group: GroupName, rows: Any) -> Any:
        found = readable_or_not(group, rows)
        return [] if isinstance(found, InvariantError) else found

    readable_or_not = decisions_module._readable
    monkeypatch.setattr(decisions_module, "_readable", readable)


def _replaces_progress_that_it_cant_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "apart", lambda rows: (list(rows), []))


def _ends_the_cycle_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def untranslated(text: str, _newest: int, make: Callable[[Any], Any], _where: str) -> Any:
        return make(json.loads(text))

    monkeypatch.setattr(groups_module, "read_text", untranslated)


MUTANTS = (
    _reads_greater_numbers,
    _takes_an_unreadable_row_for_none,
    _takes_an_unreadable_decision_for_none,
    _replaces_progress_that_it_cant_read,
    _ends_the_cycle_of_all,
)


@pytest.mark.parametrize("stage", ["memory"], indirect=True)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__.strip("_"))
def test_mutant_dies(
    stage: Stage, mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, KeyError, pytest.fail.Exception)):
        test_upgrade_side_by_side_and_rollback(stage)
