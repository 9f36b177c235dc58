"""Pages of lists of groups: the right names, whatever buckets they fell into, and few rows read for them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from parallax.adapters.cassandra.groups import BUCKETS, GroupList, bucket_of
from parallax.domain.ids import GroupName
from parallax.ports.groups import NamePage
from tests.memory.cql import KEYSPACE, MemoryConnection, MemoryKeyspace

TABLE = f"{KEYSPACE}.assigned_groups"


class CountingConnection(MemoryConnection):
    """Counts requests and the rows that answer them."""

    def __init__(self, keyspace: MemoryKeyspace) -> None:
        super().__init__(keyspace)
        self.requests = self.rows = 0

    def run_all(self, requests: Any) -> list[list[tuple[Any, ...]]]:
        answers = super().run_all(requests)
        self.requests += len(answers)
        self.rows += sum(map(len, answers))
        return answers


def listed(names: Sequence[GroupName]) -> tuple[GroupList, CountingConnection]:
    connection = CountingConnection(MemoryKeyspace())
    groups = GroupList(connection, TABLE)  # type: ignore[arg-type] # a part of it
    MemoryConnection.run_all(connection, [groups.adding(name) for name in names])  # type: ignore[misc]
    return groups, connection


def expected(names: Sequence[GroupName], page: NamePage) -> list[GroupName]:
    return [name for name in sorted(names) if name.startswith(page.prefix) and name > page.after][
        : page.limit
    ]


def names_of(random_: random.Random) -> list[GroupName]:
    """Some that are spread evenly, and some of which a bucket or two have nearly all."""
    pool = [GroupName(f"{prefix}{number:03}") for prefix in ("a", "ab", "b", "é") for number in range(120)]
    crowded = random_.sample(range(BUCKETS), random_.choice((1, 2, BUCKETS)))
    return [name for name in pool if bucket_of(name) in crowded or random_.random() < 0.1]


@pytest.mark.parametrize("seed", range(20))
def test_a_page_is_what_all_names_would_give(seed: int) -> None:
    random_ = random.Random(seed)
    names = names_of(random_)
    groups, _ = listed(names)
    for _ in range(6):
        after = random_.choice(("", "ab", *names, f"{random_.choice(names)}-"))
        page = NamePage(random_.choice((1, 2, 17, 60, 1_000)), random_.choice(("", "a", "ab", "zz")), after)
        assert groups.page(page) == expected(names, page), page


def test_a_page_of_a_crowd_reads_little_more_than_itself() -> None:
    names = [GroupName(f"crowd-{number:04}") for number in range(2_000)]
    groups, connection = listed(names)
    page = NamePage(101, after=names[700])
    assert groups.page(page) == expected(names, page)
    assert connection.requests == 1
    assert connection.rows < 4 * page.limit


def test_a_bucket_that_has_a_page_alone_is_asked_for_all_of_it() -> None:
    names = [name for number in range(5_000) if bucket_of(name := GroupName(f"g{number:04}")) == 3]
    groups, connection = listed(names)
    page = NamePage(101)
    assert groups.page(page) == expected(names, page)
    assert connection.requests == 2
