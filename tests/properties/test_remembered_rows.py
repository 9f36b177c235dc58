"""A service that remembers, beside leases that write: as soon as it may read anew it knows what one that remembers nothing knows.

Turns, blocks, owners that follow each other, lost ranges and lineages that another one cuts short come in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import pytest

from offsetsvc.index import memory as memory_module
from offsetsvc.index.memory import IndexMemory, LineageRows
from offsetsvc.resume import plans as plans_module
from offsetsvc.resume.plans import PartitionPlan, PartitionPlans, PlanWanted
from parallax.domain.ids import (
    ClusterName,
    Lineage,
    RegionName,
    Route,
    RoutePartition,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.index_rows import LineageRecord, RowBatch, index_version
from parallax.domain.lineages import TopicLineages
from parallax.domain.runs import LostRange, Run
from parallax.index import tails as tails_module
from parallax.index.reader import BlockIndex
from replicator.mapping.block_writer import BlockWriter
from tests.memory.index import MemoryMappingIndex

TOPIC, TARGET_ID = TopicName("trips"), TopicId("t")
CLUSTERS = {name: ClusterName(f"aggregate-{name}") for name in "ab"}
PARTITIONS = 2
MAX_AGE_MS = 100


@dataclass
class Copy:
    """How far a route is with a partition; lineages follow each other where the target loses its tail."""

    item: RoutePartition
    generation: int = 0
    source_next: int = 0
    last_run_end: int = 0
    target_end: int = 0

    @property
    def lineage(self) -> Lineage:
        return Lineage(TopicId(f"{self.item.route.source}-1"), TARGET_ID, self.generation)


@dataclass
class Life:
    """Leases that write, and two readers of what they do."""

    chance: Random
    now_s: float = 0.0
    entries: int = 0
    changes: int = 0
    writers: dict[tuple[Route, int], BlockWriter] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = _Replaced()
        self.said: list[LineageRecord | _Turn] = []
        self.left: list[LineageRecord | _Turn] = []
        self.lost = False
        self.routes = {to: [Route.parse(f"{source}->{to}") for source in "ab"] for to in "ab"}
        self.copies = [
            Copy(RoutePartition(route, TopicPartition(TOPIC, partition)))
            for routes in self.routes.values()
            for route in routes
            for partition in range(PARTITIONS)
        ]
        for copy in self.copies:
            self._open(copy)
        index = BlockIndex(self.store, max_age_ms=5 * MAX_AGE_MS, clock=lambda: self.now_s)  # type: ignore[arg-type]
        self.memory = IndexMemory(_Reads(index, self.store), max_age_ms=MAX_AGE_MS, clock=lambda: self.now_s)
        self.plans = PartitionPlans(self.memory)

    def _open(self, copy: Copy) -> None:
        self._tell(
            LineageRecord(
                copy.item,
                copy.lineage,
                copy.generation,
                SourceOffset(copy.source_next),
                TargetOffset(copy.target_end),
                None,
                copy.generation + 1,
            )
        )

    def _writer(self, item: RoutePartition) -> BlockWriter:
        # Each partition has a lease of its own, but for those of source b.
        shard = item.topic_partition.partition if item.route.source == "a" else 0
        key = (item.route, shard)
        if key not in self.writers:
            if not self.lost:  # by its number the first term of a store tells that another one was lost
                self.store.begin_term(item.route, 0, shard)
            self.writers[key] = BlockWriter(self.store, item.route, 0, shard, most_runs=8)  # type: ignore[arg-type]
        return self.writers[key]

    def _tell(self, what: LineageRecord | _Turn) -> None:
        """Write what the run log says."""
        self.said.append(what)
        self._write(what)

    def _write(self, what: LineageRecord | _Turn) -> None:
        if isinstance(what, LineageRecord):
            self.store.write_lineages([what])
            return
        if what.lost:
            batch = RowBatch(what.item, what.lineage, (), what.lost, what.at, what.at)
            self.store.write_lost([batch])
        version = index_version(layout=0, run_log_offset=what.at)
        batch = RowBatch(what.item, what.lineage, (what.row,), (), 1_000 + what.at, version)
        self._writer(what.item).write([batch], what.at, what.at + 1)

    def lose_the_store(self) -> None:
        """Another one takes its place, and owners that begin read the run log again."""
        self.store.now, self.lost = MemoryMappingIndex(), True
        self.writers.clear()
        self.left = self.said[:]

    def write_again(self, number: int) -> None:
        """Write some of what the store had before it was lost."""
        for what in self.left[:number]:
            self._write(what)
        del self.left[:number]

    def step(self) -> None:
        """Something happens."""
        if self.left:
            self.write_again(self.chance.randint(1, 1 + len(self.left)))
            return
        copy = self.chance.choice(self.copies)
        kind = self.chance.random()
        self.changes += 1
        if kind < 0.7:
            self._turn(copy, [])
        elif kind < 0.78:
            start = copy.source_next
            copy.source_next = copy.last_run_end = start + self.chance.randint(1, 4)
            gap = LostRange(
                SourceOffset(start), SourceOffset(copy.source_next), TargetOffset(copy.target_end)
            )
            self._turn(copy, [gap])
        elif kind < 0.88:
            self._writer(copy.item).write_all()
        elif kind < 0.96:
            held = [key for key in self.writers if key[0] == copy.item.route]
            if held:  # the next owner begins
                self.writers.pop(held[0]).write_all()
        elif kind < 0.97 and not self.lost:
            self.lose_the_store()
        else:
            cut = self.chance.randint(0, copy.target_end)
            copy.target_end, copy.generation = cut, copy.generation + 1
            self._open(copy)

    def _turn(self, copy: Copy, lost: Sequence[LostRange]) -> None:
        writer = self._writer(copy.item)
        at = max(self.entries, writer.begins_at)
        self.entries = at + 1
        count = self.chance.choice([0, 1, 5])
        copy.target_end += self.chance.choice([0, 1, 3])
        row = Run(
            SourceOffset(copy.source_next),
            TargetOffset(copy.target_end),
            count,
            SourceOffset(copy.last_run_end),
            0,
        )
        if count:
            copy.source_next = copy.last_run_end = row.source_end
            copy.target_end = row.target_end
        self._tell(_Turn(copy.item, copy.lineage, row, tuple(lost), at))

    def compare(self) -> None:
        """Ask both about a partition."""
        partition = self.chance.randrange(PARTITIONS)
        fresh = IndexMemory(_Reads(BlockIndex(self.store), self.store), max_age_ms=0)  # type: ignore[arg-type]
        found, expected = (
            [self._rows(memory, to, partition) for to in "ab"] for memory in (self.memory, fresh)
        )
        for ours, theirs in zip(found, expected, strict=True):
            assert [rows.view for rows in ours] == [rows.view for rows in theirs]
            for mine, other in zip(ours, theirs, strict=True):
                here, there = mine.history().history, other.history().history
                assert list(here.rows) == list(there.rows)
                assert list(here.lost) == list(there.lost)
                assert here.epochs == there.epochs
        regions = [RegionName("a"), RegionName("b")]
        item = TopicPartition(TOPIC, partition)
        lineages = [self._lineages(self.memory, to) for to in "ab"]
        (made,) = self.plans.of([PlanWanted(CLUSTERS["a"], CLUSTERS["b"], item, regions, *lineages)])
        plan, right = made(), PartitionPlan(regions, *expected)
        assert (plan.plain is None, plan.plain_alone) == (right.plain is None, right.plain_alone)
        assert plan.row_ends == right.row_ends
        assert plan.newest_at_origin == right.newest_at_origin
        assert plan.newest_at_destination == right.newest_at_destination
        if plan.plain is not None and right.plain is not None:
            assert plan.plain.origin_known_to == right.plain.origin_known_to
            assert [item.newest for item in plan.plain.sources] == [
                item.newest for item in right.plain.sources
            ]

    def _rows(self, memory: IndexMemory, to: str, partition: int) -> list[LineageRows]:
        return memory.rows_of(self._lineages(memory, to).of(partition))

    def _lineages(self, memory: IndexMemory, to: str) -> TopicLineages:
        indexed = memory.route_topics(self.routes[to], TOPIC)
        return memory.counting_lineages(CLUSTERS[to], TOPIC, indexed, TARGET_ID)


class _Turn(NamedTuple):
    """A row of the run log, with what was lost before it."""

    item: RoutePartition
    lineage: Lineage
    row: Run
    lost: tuple[LostRange, ...]
    at: int


class _Replaced:
    """A store in whose place another one may come."""

    def __init__(self) -> None:
        self.now = MemoryMappingIndex()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.now, name)


class _Reads:
    """An index over a store, which tells of whole topics itself."""

    def __init__(self, index: BlockIndex, store: _Replaced) -> None:
        self._index, self._store = index, store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store if name == "lost_ranges" else self._index, name)


def play(seeds: range) -> int:
    """How often both were asked."""
    asked = 0
    for seed in seeds:
        life = Life(Random(seed))
        for _ in range(60):
            for _ in range(life.chance.choice([0, 0, 1, 3])):
                life.step()
            life.now_s += (
                6 * MAX_AGE_MS / 1_000
            )  # a lease that is quiet is asked again within as long as turns may be old
            life.compare()
            asked += 1
    return asked


def test_what_is_remembered_is_what_is_there() -> None:
    assert play(range(40)) == 2_400


# --- mutants -------------------------------------------------------------------------------------------------------


def _same_marks(self: Any, wanted: Sequence[Any]) -> list[tuple[int, int]]:
    del self
    return [(0, 0) for _ in wanted]


def _takeovers_unnoticed(self: Any, wanted: Sequence[Any]) -> list[tuple[int, int]]:
    return [(0, told) for _, told in RIGHT_TOLD(self, wanted)]


RIGHT_TOLD = tails_module.Tails.told_of

MUTANTS: dict[str, tuple[object, str, Callable[..., object]]] = {
    "a store that was lost is not noticed": (tails_module, "_less", lambda *_: set()),
    "nothing is ever told": (tails_module.Tails, "told_of", _same_marks),
    "blocks that take over tell nothing": (tails_module.Tails, "told_of", _takeovers_unnoticed),
    "topics never change": (tails_module.Tails, "told", lambda _self, _route: 0),
    "any rows are a plan's": (PartitionPlan, "holds", lambda *_: True),
    "as many rows are the same rows": (plans_module, "_same", lambda ours, theirs: len(ours) == len(theirs)),
    "lineages that count stay": (memory_module, "_same", lambda *_: True),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_dies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, what, wrong = MUTANTS[name]
    monkeypatch.setattr(where, what, wrong)
    with pytest.raises(AssertionError):
        play(range(40))
