"""Offsets over two routes, a->b->c, held against the content of all three logs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from offsetsvc import chains
from offsetsvc.lookups import MappingLookups
from offsetsvc.service import UseCases
from parallax.config.config import Config
from parallax.domain.ids import (
    ClusterName,
    Lineage,
    Route,
    RoutePartition,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.index_rows import LineageRecord, RowBatch
from parallax.domain.place import LogRange, Via
from parallax.domain.runs import Run, watermark
from parallax.errors import UnknownRouteError
from parallax.ports.clusters import TopicInfo
from parallax.v1 import offsets_pb2 as pb
from replicator.copying.offset_ranges import OffsetRanges, runs_of
from tests.memory.index import MemoryMappingIndex
from tests.worlds.offset_world import World

WORLDS = 60
ITEM = TopicPartition(TopicName("trips"), 0)
PATH = (Route.parse("a->b"), Route.parse("b->c"))
AT_B, AT_C = ClusterName("aggregate-b"), ClusterName("aggregate-c")
KAFKA = {"bootstrap_servers": "127.0.0.1:1"}


@dataclass
class Chain:
    """What lies where: a record of a is its offset, anything else None."""

    seed: int
    a: list[int | None] = field(default_factory=list)
    b: list[int | None] = field(default_factory=list)
    c: list[int | None] = field(default_factory=list)
    rows: dict[Route, list[Run]] = field(default_factory=lambda: {route: [] for route in PATH})
    source_of_b: str = "at-b"
    """Of which topic b->c's rows are."""

    def __post_init__(self) -> None:
        draw = random.Random(self.seed)
        self.a = [number if draw.random() < 0.8 else None for number in range(draw.randint(1, 40))]
        ends = [draw.randint(0, len(self.a)) if draw.random() < 0.3 else len(self.a)]
        own_at_b: set[int] = set()
        self._copy(
            draw,
            PATH[0],
            {n for n, v in enumerate(self.a) if v is not None},
            ends[0],
            self.a,
            self.b,
            own_at_b,
        )
        compacted = {n for n in range(len(self.b)) if draw.random() < 0.15} if draw.random() < 0.3 else set()
        there = {n for n, v in enumerate(self.b) if v is not None or n in own_at_b} - compacted
        end = draw.randint(0, len(self.b)) if draw.random() < 0.3 else len(self.b)
        self._copy(draw, PATH[1], there, end, self.b, self.c, set())

    def _copy(
        self,
        draw: random.Random,
        route: Route,
        records: set[int],
        end: int,
        source: list[int | None],
        target: list[int | None],
        own: set[int],
    ) -> None:
        """Copy the source's records below ``end`` in transactions, between which others write."""
        position = last_end = 0
        while position < end:
            for _ in range(draw.randint(0, 2)):
                if draw.random() < 0.5:
                    own.add(len(target))
                target.append(None)
            upto = min(end, position + draw.randint(1, 8))
            offsets = [n for n in range(position, upto) if n in records]
            places = range(len(target), len(target) + len(offsets))
            target += [source[n] for n in offsets]
            rows = list(
                runs_of(
                    OffsetRanges(offsets),
                    OffsetRanges(places),
                    previous_source_end=SourceOffset(last_end),
                    source_leader_epoch=0,
                )
            )
            if rows:
                last_end = rows[-1].source_end
            self.rows[route] += rows
            target.append(None)
            position = upto
            if draw.random() < 0.4:
                self.rows[route].append(
                    watermark(
                        source_next=SourceOffset(position),
                        target_end=TargetOffset(len(target)),
                        last_run_end=SourceOffset(last_end),
                        source_leader_epoch=0,
                    )
                )

    def service(self) -> UseCases:
        """An offset service whose index has the rows."""
        world = World(("a", "b", "c"))
        world.config = config()
        world.index = MemoryMappingIndex(8)
        ids = [("at-a", "at-b"), (self.source_of_b, "at-c")]
        for version, (route, (source_id, target_id)) in enumerate(zip(PATH, ids, strict=True)):
            item = RoutePartition(route, ITEM)
            lineage = Lineage(TopicId(source_id), TopicId(target_id))
            record = LineageRecord(item, lineage, 0, SourceOffset(0), TargetOffset(0), None, 2 * version + 1)
            world.index.write_lineages([record])
            opening = Run(SourceOffset(0), TargetOffset(0), 0, SourceOffset(0), 0)
            rows = (opening, *self.rows[route])
            world.index.write_rows([RowBatch(item, lineage, rows, (), world.now_ms, 2 * version + 2)])
        for cluster, topic_id, log in ((AT_B, "at-b", self.b), (AT_C, "at-c", self.c)):
            world.clusters[cluster].infos = {ITEM.topic: TopicInfo(ITEM.topic, TopicId(topic_id), 1)}
            world.clusters[cluster].ranges = {ITEM: LogRange(TargetOffset(0), TargetOffset(len(log)))}
        return world.service()


def config(routes: tuple[object, ...] = ("a->b", {"route": "b->c", "copies": "all"})) -> Config:
    return Config.model_validate(
        {
            "regions": {name: {"cluster": KAFKA} for name in "abc"},
            "cassandra": {"contact_points": ["127.0.0.1"]},
            "routes": list(routes),
        }
    )


def check(chain: Chain) -> int:
    """Every offset of a, and every one of c on the way back; how many were exact."""
    exact = 0
    with chain.service() as service:
        for offset in range(len(chain.a) + 1):
            found = service.chains.translate(PATH, ITEM, source_next=SourceOffset(offset))
            place = found.target_next_offset
            passed = [value for value in chain.c[:place] if value is not None and value >= offset]
            assert not passed, f"{offset} is {place}, and {passed} lie below"
            if Via(found.via) is Via.EXACT:
                around = chain.c[max(0, place - 1) : place], chain.c[place : place + 1]
                assert around[0] == [offset - 1] or around[1] == [offset]
                exact += 1
        for offset in range(len(chain.c) + 1):
            found = service.chains.translate(PATH, ITEM, target_next=TargetOffset(offset))
            below = {
                value for value in chain.c[offset:] if value is not None and value < found.source_next_offset
            }
            assert not below, f"{offset} has come to {found.source_next_offset}, and {below} lie above"
        for offset, value in enumerate(chain.c):
            origin = service.chains.origin(AT_C, ITEM, offset)
            if value is not None:
                assert [hop.source_record_offset for hop in origin.hops][-1:] == [value]
                assert [hop.route for hop in origin.hops] == ["b->c", "a->b"]
                assert origin.hops[-1].source_cluster == "regional-a"
            else:
                assert all(hop.route == "b->c" for hop in origin.hops)
    return exact


def test_no_offset_of_a_chain_leads_past_a_record() -> None:
    assert sum(check(Chain(seed)) for seed in range(WORLDS)) > WORLDS


def test_a_hop_whose_topic_was_made_anew_is_not_guessed() -> None:
    chain = Chain(3, source_of_b="the one before")
    with chain.service() as service:
        found = service.chains.translate(PATH, ITEM, source_next=SourceOffset(5))
        back = service.chains.translate(PATH, ITEM, target_next=TargetOffset(5))
    assert (found.target_next_offset, found.via, found.outcome) == (0, "log_start", pb.EARLIEST_FALLBACK)
    assert [bool(hop.lineage) for hop in found.hops] == [True, False]
    assert (back.source_next_offset, back.outcome) == (0, pb.EARLIEST_FALLBACK)


@pytest.mark.parametrize(
    ("path", "routes"),
    [
        ([], None),
        (["a->c"], None),
        (["b->c", "a->b"], None),
        (["a->b", "b->c"], ("a->b", "b->c")),
    ],
    ids=["none", "not configured", "not one behind the other", "copies none of a's records"],
)
def test_a_path_that_no_record_takes_is_unknown(path: list[str], routes: tuple[object, ...] | None) -> None:
    with Chain(1).service() as service:
        service.chains._config = config() if routes is None else config(routes)
        with pytest.raises(UnknownRouteError):
            service.chains.translate([Route.parse(text) for text in path], ITEM, source_next=SourceOffset(0))


Mutant = Callable[[pytest.MonkeyPatch], None]


def the_strongest_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "_FORCE", list(reversed(Via)))


def after_is_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    right = chains.Chains._hop

    def wrong(self: chains.Chains, leg: object, *args: object, **more: object) -> object:
        hop = right(self, leg, *args, **more)  # type: ignore[arg-type] # as they came
        hop.target_next_offset += 1
        return hop

    monkeypatch.setattr(chains.Chains, "_hop", wrong)


def _check_all() -> None:
    for seed in range(WORLDS):
        check(Chain(seed))


@pytest.mark.parametrize("mutant", [the_strongest_wins, after_is_one_more])
def test_mutants_die(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        _check_all()


def test_rows_of_any_topic_of_the_name_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = MappingLookups.translate

    def wrong(self: MappingLookups, *args: object, of: TopicId | None, **more: object) -> object:
        del of
        return right(self, *args, **more)  # type: ignore[arg-type] # as they came

    monkeypatch.setattr(MappingLookups, "translate", wrong)
    with pytest.raises(AssertionError):
        test_a_hop_whose_topic_was_made_anew_is_not_guessed()
