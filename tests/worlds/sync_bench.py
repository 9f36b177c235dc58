"""A syncjob over a world whose every record is known, with the real offset service's use cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from offsetsvc.messages import group_to_pb, mapped_to_pb
from offsetsvc.resume.call import FailoverRequest
from offsetsvc.service import UseCases
from parallax.client.answer import Pair, ResumeAnswer, answers_from_pb
from parallax.client.mapped import Mapped, answers_of
from parallax.domain.commits import GroupCommit, ObservedCommit
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.ports.audit import Auditor
from parallax.runtime.deadline import Deadline
from syncjob.cycle import Syncer
from syncjob.decide import Decision
from syncjob.report import CycleReport
from tests.worlds.offset_world import GROUP, TOPIC, World, Writer

P0 = TopicPartition(TOPIC, 0)
OTHER = GroupName("other")
DAY_MS = 86_400_000


@dataclass
class Bench:
    """A world with a syncjob in it."""

    world: World
    syncer: Syncer
    asked: list[Pair]
    """Each group's questions, and those of several that were asked together once."""
    service: UseCases

    def apart(self) -> Bench:
        """The same, asking for each group by itself from now on."""
        self.syncer._ask_many = None
        return self

    def another(self, *, dry_run: bool) -> Syncer:
        world = self.world
        writers = [item for item in world.clusters.values() if isinstance(item, Writer)]
        return Syncer(
            world.config,
            writers,
            world.groups,
            world.primaries,
            self.syncer._ask,
            dry_run=dry_run,
            now_ms=lambda: world.now_ms,
            auditor=Auditor(world.audit, lambda: world.now_ms),
            clock=lambda: world.now_ms / 1_000,
        )

    def cycle(self) -> CycleReport:
        self.world.now_ms += 1_000
        return self.syncer.cycle()

    def confirm(self) -> None:
        """Go on until what has vanished, or gone back, by the last cycle is about to be believed."""
        for _ in range(self.world.config.sync.rewind_confirm_ms // 1_000 - 1):
            self.cycle()

    def decision(self, target: str, partition: int = 0) -> Decision:
        """What a cycle decides for the group on a region's cluster."""
        return only(self.cycle(), target, partition)

    def writer(self, region: str) -> Writer:
        found = self.world.cluster(region)
        assert isinstance(found, Writer)
        return found

    def commit(self, region: str, partition: int = 0, group: GroupName = GROUP) -> GroupCommit | None:
        return self.writer(region).commits.get(group, {}).get(TopicPartition(TOPIC, partition))


def partitions_of(topic: TopicName, partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in range(partitions)]


def only(report: CycleReport, target: str, partition: int = 0, group: GroupName = GROUP) -> Decision:
    found = [
        item
        for item in report.decisions
        if (item.group, item.target, item.topic_partition.partition)
        == (group, f"aggregate-{target}", partition)
    ]
    assert len(found) == 1, report
    return found[0]


def two_sources(world: World) -> None:
    """On a: a0..9 b0..9. On b: b0..9 a0..9. All indexed, nothing pending."""
    world.copy("a", "a", 10)
    world.copy("b", "a", 10)
    world.copy("b", "b", 10)
    world.copy("a", "b", 10)
    world.watermarks()


def consuming(bench: Callable[..., Bench], next_offset: int, *, cycles: int = 0) -> Bench:
    """Both sources are copied, the group consumes region a's cluster, and the syncjob has looked so often."""
    it = bench()
    two_sources(it.world)
    it.world.commit("a", next_offset)
    for _ in range(cycles):
        it.cycle()
    return it


def report(it: Bench, next_offset: int) -> int:
    """A member's word on what it has delivered; when it came, milliseconds since the Unix epoch."""
    it.world.now_ms += 100
    it.world.groups.save_observed(
        [
            ObservedCommit(
                GROUP,
                ClusterName("aggregate-a"),
                P0,
                TopicId("aggregate-a-1"),
                TargetOffset(next_offset),
                -1,
                it.world.now_ms,
                reported=True,
            )
        ]
    )
    return it.world.now_ms


@contextmanager
def sync_benches() -> Iterator[Callable[..., Bench]]:
    """Makes benches, and closes what they hold. Without ``together`` each group is asked for by itself."""
    with ExitStack() as stack:

        def make(
            *regions: str,
            dry_run: bool = False,
            partitions: int = 1,
            timeout_ms: int = 5_000,
            together: bool = True,
            **sync: Any,
        ) -> Bench:
            world = World(
                regions or ("a", "b"),
                partitions=partitions,
                service={"cluster_timeout_ms": timeout_ms},
                sync=sync,
            )
            world.let_write()
            service = stack.enter_context(world.service())
            asked: list[Pair] = []

            def ask(
                group: GroupName, pair: Pair, topics: Sequence[TopicName]
            ) -> Mapping[TopicPartition, ResumeAnswer]:
                asked.append(pair)
                request = FailoverRequest(group, *pair, topics=tuple(topics))
                answers = service.failover.answers(request, Deadline.after_ms(10_000))
                return answers_from_pb(group_to_pb(answers))

            def ask_many(pair: Pair, positions: Mapping[TopicPartition, Sequence[int]]) -> Mapped:
                asked.append(pair)
                found = service.failover.answers_many(*pair, positions, Deadline.after_ms(10_000))
                told = zip(positions.items(), mapped_to_pb(found).partitions, strict=True)
                return {item: answers_of(message, offsets) for (item, offsets), message in told}

            writers = [item for item in world.clusters.values() if isinstance(item, Writer)]
            syncer = Syncer(
                world.config,
                writers,
                world.groups,
                world.primaries,
                ask,
                ask_many=ask_many if together else None,
                dry_run=dry_run,
                now_ms=lambda: world.now_ms,
                auditor=Auditor(world.audit, lambda: world.now_ms),
                clock=lambda: world.now_ms / 1_000,
            )
            stack.callback(syncer.close)
            return Bench(world, syncer, asked, service)

        yield make
