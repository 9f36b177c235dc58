"""Moves of which every request is counted: to the store, to the index, to clusters and to an offset service.

Command and service are two processes over one keyspace, with the real adapters of what is remembered of groups. A request is what
Cassandra is sent: a statement, or a batch. What a service remembers of the index it remembers here, by the world's clock; of clusters
nothing is remembered, so that each question counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from offsetsvc.index.flights import Flights
from offsetsvc.service import UseCases
from parallax.client.client import OffsetClient
from parallax.failover.clusters import AggregateClusters
from parallax.failover.journal import MoveJournal
from parallax.failover.outside import Outside
from parallax.failover.services import OffsetServices
from parallax.failover.timekeeper import Timekeeper
from parallax.ports.audit import Auditor
from tests.memory.cql import MemoryConnection, MemoryKeyspace, WrittenStores
from tests.worlds.failover_bench import OPERATOR, Bench, DirectClient, two_sources
from tests.worlds.offset_world import World, Writer

_OF_INDEX: dict[str, Callable[..., int]] = {
    "told_topics": lambda routes, _topic: 2 * len(routes),
    "lost_ranges": len,
    "reached": len,
    "turns": len,
    "keys_below": lambda wanted, _limit: len(wanted),
    "keys_from": len,
    "blocks": lambda names: len({(name.target, name.topic_partition, name.key.section) for name in names}),
}
"""So many requests `CassandraRecords` and `CassandraBlocks` make of each question."""


@dataclass
class Counts:
    """What was asked since the last `taken`, by who asks and what; and how long each pause was, ms."""

    asked: Counter[str] = field(default_factory=Counter)
    pauses_ms: list[int] = field(default_factory=list)

    def taken(self) -> dict[str, int]:
        """What was asked; it is forgotten."""
        found, self.asked = dict(sorted(self.asked.items())), Counter()
        self.pauses_ms = []
        return found


class _Connection(MemoryConnection):
    """Counts requests by table."""

    def __init__(self, keyspace: MemoryKeyspace, asked: Callable[[str], None]) -> None:
        super().__init__(keyspace)
        self._asked = asked

    def run(self, cql: str, *values: object) -> list[tuple[Any, ...]]:
        self._asked(_said(cql))
        return super().run(cql, *values)

    def run_all(self, requests: Iterable[tuple[str, Sequence[Any]]]) -> list[list[tuple[Any, ...]]]:
        queued = list(requests)
        for cql, _ in queued:
            self._asked(_said(cql))
        return super().run_all(queued)

    def run_together(self, parts: Iterable[Sequence[tuple[str, Sequence[Any]]]]) -> None:
        for part in parts:
            self._asked(_said(part[0][0]))
            super().run_all(part)

    def run_at(
        self, cql: str, values: Sequence[object], *, level: int, serial_level: int | None = None
    ) -> list[tuple[Any, ...]]:
        self._asked(f"{_said(cql)}, {'transaction' if cql.startswith('BEGIN') else 'serial'}")
        return super().run_at(cql, values, level=level, serial_level=serial_level)


def _said(cql: str) -> str:
    verb = "read" if cql.startswith("SELECT") else "write"
    table = next(word for word in cql.split() if word.startswith("memory."))
    return f"{verb} {table.partition('.')[2]}"


class _Cluster:
    """A cluster that is asked by one side."""

    def __init__(self, writer: Writer, asked: Callable[[str], None]) -> None:
        self._writer = writer
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._writer, name)
        if not callable(found):
            return found

        def ask(*arguments: Any, **options: Any) -> Any:
            self._asked(f"ask {self._writer.cluster} {name}")
            return found(*arguments, **options)

        return ask


@dataclass
class CountedBench(Bench):
    """A bench with counts; time passes by what is waited alone."""

    counts: Counts = field(default_factory=Counts)

    def wait(self, seconds: float) -> None:
        """A little longer than is waited for, as everywhere."""
        waited_ms = round(seconds * 1_000)
        self.counts.pauses_ms.append(waited_ms)
        self.world.now_ms += waited_ms + 1
        self.waits += 1
        self.while_waiting(self.waits)


class _Client(DirectClient):
    """Tells which calls it makes."""

    asked: Callable[[str], None] = lambda _call: None

    def _begin(self, method: str) -> None:
        self.asked(f"call {method.partition(' ')[0]}")
        super()._begin(method)

    def list_primaries(self) -> Any:
        self._begin("list_primaries")
        return super().list_primaries()


@contextmanager
def counted_bench(partitions: int = 2) -> Iterator[CountedBench]:
    """Two regions with one topic; `GROUP` has consumed a0..9 and b0..4 of each partition on a."""
    world, counts, keyspace = World(("a", "b"), partitions=partitions), Counts(), MemoryKeyspace()

    def by(who: str) -> Callable[[str], None]:
        return lambda what: counts.asked.update([f"{who}: {what}"])

    command, service = (
        WrittenStores(keyspace, _Connection(keyspace, by(who))) for who in ("command", "service")
    )
    world.let_write()
    clock = lambda: world.now_ms / 1_000  # noqa: E731 - of everything
    world.index._max_age_s, world.index._clock, world.index._tails._clock = 0.5, clock, clock
    two_sources(world, range(partitions))
    for partition in range(partitions):
        world.commit("a", 15, partition)
    _count(world.index, by("service"))
    world.groups, world.primaries, world.audit = service.groups, service.primaries, service.audit  # type: ignore[assignment]
    clusters = {
        who: {
            name: cast("Writer", _Cluster(cast("Writer", item), by(who)))
            for name, item in world.clusters.items()
        }
        for who in ("command", "service")
    }
    with UseCases(
        world.config,
        world.regions[0],
        world.index,
        service.groups,
        clusters["service"],
        service.primaries,
        service.operations,
        service.status,
        now_ms=lambda: world.now_ms,
        audit=service.audit,
    ) as use_cases:
        # What is read anew behind the calls is there at once or with the next call, as threads happen to go.
        use_cases._index._clock, use_cases._index._flights = clock, Flights(None)
        client = _Client(use_cases)
        client.asked = by("command")
        time = Timekeeper(now_ms=lambda: world.now_ms, clock=clock)
        outside = Outside(
            OffsetServices(cast("OffsetClient", client)),
            AggregateClusters(clusters["command"], time.clock),
            command.groups,
            MoveJournal(command.operations, time),
            time,
            Auditor(command.audit, time.now_ms),
            OPERATOR,
        )
        bench = CountedBench(world, client, outside, counts=counts)
        time.wait = bench.wait
        yield bench


def _count(index: Any, asked: Callable[[str], None]) -> None:
    """Let an index in memory tell what it is asked."""
    for name, requests in _OF_INDEX.items():
        setattr(index, name, _counting(getattr(index, name), f"index {name}", requests, asked))


def _counting(
    ask: Callable[..., Any], said: str, requests: Callable[..., int], asked: Callable[[str], None]
) -> Callable[..., Any]:
    def counted(*arguments: Any) -> Any:
        for _ in range(requests(*arguments)):
            asked(said)
        return ask(*arguments)

    return counted


def of_kind(counted: dict[str, int], *words: str) -> int:
    """How many of the requests bear one of the words."""
    return sum(count for what, count in counted.items() if any(f" {word}" in what for word in words))
