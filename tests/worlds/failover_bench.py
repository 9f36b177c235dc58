"""A world whose groups can be moved: real use cases, rule and executor over clusters and stores in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from offsetsvc.messages import group_to_pb, move_from_pb, policy_from_pb
from offsetsvc.resume.call import FailoverRequest
from offsetsvc.service import UseCases
from parallax.client.client import OffsetClient
from parallax.client.primary_messages import primaries_to_pb, primary_to_pb
from parallax.domain.commits import GroupCommit, ObservedCommit, PublishedOffset
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    RegionName,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.outcome import Outcome
from parallax.domain.primary import Assignment, Change
from parallax.domain.progress import Progress
from parallax.domain.rights import ANYBODY, Principal, ProvenBy
from parallax.errors import ParallaxError, StoreUnavailableError
from parallax.failover.clusters import AggregateClusters
from parallax.failover.execute import Mover
from parallax.failover.facts import Move, MoveKind
from parallax.failover.journal import MoveJournal, Step, record_of
from parallax.failover.outside import Outside
from parallax.failover.plan import MoveLimits, Result
from parallax.failover.services import OffsetServices
from parallax.failover.timekeeper import Timekeeper
from parallax.failover.verify.verifier import Verifier
from parallax.identity.identity import in_whose_name
from parallax.ports.audit import Auditor
from parallax.ports.groups import OperationNote
from parallax.runtime.deadline import Deadline
from parallax.v1 import offsets_pb2 as pb
from parallax.v1 import primaries_pb2
from tests.memory.groups import MemoryOperationJournal
from tests.worlds.offset_world import GROUP, TOPIC, World, Writer

P0 = TopicPartition(TOPIC, 0)
BILLING, FRAUD, MAPS = GROUP, GroupName("fraud"), GroupName("maps")
_BUDGET_MS = 10_000


@dataclass
class DirectClient:
    """An `OffsetClient` without a wire; a test may make any call fail, or answer from older commits."""

    service: UseCases
    origin_commits: dict[TopicPartition, GroupCommit] | None = None
    failing: dict[str, ParallaxError] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def _begin(self, method: str) -> None:
        self.calls.append(method)
        if method in self.failing:
            raise self.failing[method]

    def get_group_failover_offsets(
        self,
        group: str,
        *,
        to: pb.Place,
        origin: pb.Place,
        positions: Sequence[pb.PartitionPosition] = (),
        topics: Sequence[str] = (),
        by_timestamp: pb.TimestampPolicy | None = None,
    ) -> pb.GetGroupFailoverOffsetsResponse:
        self._begin("offsets")
        own = {
            TopicPartition(TopicName(item.topic), item.partition): TargetOffset(item.next_offset)
            for item in positions
        }
        older = {item: commit.next_offset for item, commit in (self.origin_commits or {}).items()}
        request = FailoverRequest(
            GroupName(group),
            ClusterName(origin.cluster),
            ClusterName(to.cluster),
            positions={**older, **own},
            topics=tuple(TopicName(topic) for topic in topics),
            by_timestamp=policy_from_pb(pb.GetGroupFailoverOffsetsRequest(by_timestamp=by_timestamp)),
        )
        return group_to_pb(self.service.failover.answers(request, Deadline.after_ms(_BUDGET_MS)))

    def report_positions(
        self, group: str, *, at: pb.Place, moves: Sequence[pb.PartitionMove]
    ) -> pb.ReportPositionsResponse:
        self._begin("report_positions")
        cluster = ClusterName(at.cluster)
        made = [move_from_pb(item, cluster) for item in moves]
        self.service.positions.report(GroupName(group), cluster, [], made)
        return pb.ReportPositionsResponse()

    def get_primary(self, group: str) -> primaries_pb2.Primary:
        self._begin("get_primary")
        return primary_to_pb(GroupName(group), self.service.primaries.get(GroupName(group)))

    def list_primaries(self) -> primaries_pb2.ListPrimariesResponse:
        return primaries_to_pb(self.service.primaries.all().items())

    def set_primary(self, change: Change, *, actor: str = "") -> primaries_pb2.Primary:
        self._begin(f"set_primary {change.stage.value}")
        by = in_whose_name(ANYBODY, actor)
        found = self.service.primaries.set(change, Deadline.after_ms(_BUDGET_MS), by=by)
        return primary_to_pb(change.group, found)


@dataclass
class Bench:
    """A world with everything that moves groups."""

    world: World
    client: DirectClient
    outside: Outside
    waits: int = 0
    while_waiting: Callable[[int], None] = lambda _turn: None

    def wait(self, _seconds: float) -> None:
        """Time passes: the world's clock goes on, and the test may change the world."""
        self.world.now_ms += 250
        self.waits += 1
        self.while_waiting(self.waits)

    def writer(self, region: str) -> Writer:
        found = self.world.cluster(region)
        assert isinstance(found, Writer)
        return found

    def commit(self, region: str, partition: int = 0, group: GroupName = GROUP) -> int | None:
        found = self.writer(region).commits.get(group, {}).get(TopicPartition(TOPIC, partition))
        return None if found is None else found.next_offset

    def put(self, region: str, next_offset: int, group: GroupName, partition: int = 0) -> None:
        """Another group commits."""
        commits = self.writer(region).commits.setdefault(group, {})
        commits[TopicPartition(TOPIC, partition)] = GroupCommit(TargetOffset(next_offset), -1, "")

    def publish(self, region: str, next_offset: int, partition: int = 0) -> None:
        """The sync job publishes there, from the other region."""
        self.put(region, next_offset, GROUP, partition)
        here, there = (ClusterName(f"aggregate-{name}") for name in (region, "b" if region == "a" else "a"))
        progress = Progress(here, TopicId(f"{here}-1"), TargetOffset(next_offset), {})
        item = TopicPartition(TOPIC, partition)
        self.world.groups.save_published(
            [PublishedOffset(GROUP, item, progress, there, TargetOffset(0), Outcome.OK, self.world.now_ms)]
        )

    def decide(self, change: Change) -> None:
        """Somebody decides where a group is primary."""
        self.client.service.primaries.set(change, Deadline.after_ms(1_000))

    def observed(self) -> list[ObservedCommit]:
        """The group's commits on a, as they were seen 0.7 s ago."""
        at_a, seen_at_ms = self.writer("a"), self.world.now_ms - 700
        return [
            ObservedCommit(
                GROUP, at_a.cluster, item, at_a.infos[TOPIC].topic_id, commit.next_offset, -1, seen_at_ms
            )
            for item, commit in at_a.commits[GROUP].items()
        ]

    def assignment(self, group: GroupName = GROUP) -> Assignment:
        found = self.client.service.primaries.get(group)
        assert found is not None
        return found

    def verifier(self) -> Verifier:
        outside, world = self.outside, self.world
        return Verifier(
            outside.clusters,
            outside.groups,
            outside.journal,
            outside.time,
            world.index,
            world.config,
            world.primaries,
        )

    def mover(self, **limits: Any) -> Mover:
        return Mover(self.outside, MoveLimits(**{"drain_ms": 0, "catch_up_ms": 0, **limits}))

    def move(
        self,
        origin: str,
        target: str,
        kind: MoveKind = MoveKind.PLANNED,
        group: GroupName = GROUP,
        **limits: Any,
    ) -> Result:
        self.world.now_ms += 1_000
        return self.mover(**limits).move(a_move(origin, target, kind, group))


def a_move(origin: str, target: str, kind: MoveKind = MoveKind.PLANNED, group: GroupName = GROUP) -> Move:
    names = ClusterName(f"aggregate-{origin}"), ClusterName(f"aggregate-{target}")
    return Move(group, *names, RegionName(target), kind)


def two_sources(world: World, partitions: Iterable[int] = (0,)) -> None:
    """On a: a0..9 b0..9. On b: b0..9 a0..9. All indexed, nothing pending."""
    for partition in partitions:
        for source, target in (("a", "a"), ("b", "a"), ("b", "b"), ("a", "b")):
            world.copy(source, target, 10, partition)
        world.watermarks(partition)


@contextmanager
def unnoted(bench: Bench, step: Step) -> Iterator[None]:
    """The store is away whenever a move is to be noted at this step."""
    notes = bench.outside.journal.notes
    save = notes.save_operation

    def unless_at(note: OperationNote) -> None:
        if record_of(note).step is step:
            raise StoreUnavailableError("store: away")
        save(note)

    notes.save_operation = unless_at  # type: ignore[method-assign] # for a while
    try:
        yield
    finally:
        notes.save_operation = save  # type: ignore[method-assign] # as it was


OPERATOR = Principal("operator@bench", ProvenBy.ACCOUNT)


@contextmanager
def failover_bench(regions: Sequence[str] = ("a", "b"), **options: Any) -> Iterator[Bench]:
    """A bench over a new world."""
    world = World(regions, **options)
    world.let_write()
    writers = {name: item for name, item in world.clusters.items() if isinstance(item, Writer)}
    with world.service() as service:
        client = DirectClient(service)
        time = Timekeeper(now_ms=lambda: world.now_ms, clock=lambda: world.now_ms / 1_000)
        outside = Outside(
            OffsetServices(cast("OffsetClient", client)),
            AggregateClusters(writers, time.clock),
            world.groups,
            MoveJournal(MemoryOperationJournal(), time),
            time,
            Auditor(world.audit, time.now_ms),
            OPERATOR,
        )
        bench = Bench(world, client, outside)
        time.wait = bench.wait
        yield bench


@contextmanager
def region_bench() -> Iterator[Bench]:
    """A bench with three groups on a, and one on b."""
    with failover_bench() as bench:
        two_sources(bench.world)
        for group, offset in ((BILLING, 15), (FRAUD, 10), (MAPS, 20)):
            bench.put("a", offset, group)
        bench.put("b", 7, GroupName("local-to-b"))
        yield bench
