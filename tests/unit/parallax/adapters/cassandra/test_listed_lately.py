"""Of however many groups something is saved in turn, most need not be listed again."""

from __future__ import annotations

from typing import Any

import pytest

from parallax.adapters.cassandra.groups import CassandraGroupStore, ListedLately
from parallax.domain.commits import ObservedCommit
from parallax.domain.ids import ClusterName, GroupName, TargetOffset, TopicId, TopicName, TopicPartition
from tests.memory.cql import KEYSPACE, MemoryConnection, MemoryKeyspace

MOST = 100
NAMES = [GroupName(f"group-{number:03}") for number in range(3 * MOST)]


class Case:
    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.listed = ListedLately(MOST, lambda: self.now_s)

    def save(self, names: list[GroupName], at_once: int = 16) -> int:
        """Save of each, some together; how many of them were listed for it."""
        count = 0
        for start in range(0, len(names), at_once):
            lacking = self.listed.lacking(names[start : start + at_once])
            self.listed.note(sorted(lacking))
            count += len(lacking)
        return count


@pytest.fixture
def case() -> Case:
    return Case()


@pytest.mark.parametrize("groups", [MOST // 2 + 1, MOST])
def test_groups_that_are_remembered_are_listed_once_in_ten_minutes(case: Case, groups: int) -> None:
    assert case.save(NAMES[:groups]) == groups
    case.now_s += 599
    assert case.save(NAMES[:groups]) == 0
    case.now_s += 1
    assert case.save(NAMES[:groups]) == groups
    case.now_s += 599
    assert case.save(NAMES[:groups]) == 0


def test_of_more_groups_in_turn_as_many_as_ever_are_not_listed_again(case: Case) -> None:
    assert case.save(NAMES) == len(NAMES)
    for _ in range(5):
        assert case.save(NAMES) == len(NAMES) - MOST


def test_the_place_of_those_that_are_old_is_free_for_others(case: Case) -> None:
    case.save(NAMES[:60])
    case.now_s += 300
    case.save(NAMES[60:120])
    case.now_s += 300
    assert case.save(NAMES[120:180]) == 60
    assert case.save(NAMES[60:180]) == 20, "these had found no place"
    assert case.save(NAMES[:60]) == 60


def test_a_group_that_is_taken_off_the_list_is_listed_again(case: Case) -> None:
    case.save(NAMES[:2])
    case.listed.forget(NAMES[0])
    assert case.listed.lacking(NAMES[:2]) == {NAMES[0]}


class CountingConnection(MemoryConnection):
    """Counts the groups that are listed."""

    listed = 0

    def run_together(self, parts: Any) -> None:
        parts = [list(part) for part in parts]
        self.listed += sum("known_groups" in str(request[0]) for part in parts for request in part)
        super().run_together(parts)


def test_the_store_lists_a_group_once_and_again_when_it_was_forgotten() -> None:
    connection: Any = CountingConnection(MemoryKeyspace())
    store = CassandraGroupStore(connection, KEYSPACE)
    commit = ObservedCommit(
        NAMES[0],
        ClusterName("aggregate-a"),
        TopicPartition(TopicName("trips"), 0),
        TopicId("t"),
        TargetOffset(7),
        -1,
        1,
    )
    for _ in range(2):
        store.save_observed([commit])
    assert connection.listed == 1
    store.forget(NAMES[0], at_ms=2)
    assert store.groups() == []
    store.save_observed([commit])
    assert (connection.listed, store.groups()) == (2, [NAMES[0]])
