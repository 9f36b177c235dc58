"""`parallax verify` where groups read at clusters that producers write to: worlds whose every record is known by name."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from parallax.domain.commits import GroupCommit
from parallax.domain.consumption import ConsumptionKind
from parallax.domain.ids import TargetOffset, region_of
from parallax.domain.progress import Progress
from parallax.failover.clusters import AggregateClusters
from parallax.failover.facts import Move, MoveKind
from parallax.failover.journal import MoveJournal, Snapshot, Step, mark_of
from parallax.failover.timekeeper import Timekeeper
from parallax.failover.verify.verdict import Consumers, GroupVerdict, Verdict
from parallax.failover.verify.verifier import Verifier
from parallax.ports.clusters import ClusterWriter
from tests.memory.groups import MemoryOperationJournal, MemoryPrimaryStore
from tests.worlds.offset_world import GROUP, NOW_MS, TOPIC
from tests.worlds.own_world import ITEM, OwnWorld

GRAPHS = [
    "two-way",
    "two-way and a third source",
    "standby that nobody writes to",
    "forwarding",
    "one side in both roles",
]
"""Where rows tell of all that lies at both clusters."""


class Moved(OwnWorld):
    """A world whose group's moves are kept in a journal, as commands keep them.

    Attributes:
        ahead: so many offsets further than the answer says the group goes on.
    """

    def __init__(self, seed: int, graph: str) -> None:
        time = Timekeeper(now_ms=lambda: NOW_MS)
        self.journal = MoveJournal(MemoryOperationJournal(), time)
        self.ahead = 0
        self.moves = 0
        super().__init__(seed, graph, told=True)
        writers = {name: cast("ClusterWriter", cluster) for name, cluster in self.clusters.items()}
        clusters = AggregateClusters(writers)
        self.verifier = Verifier(
            clusters, self.groups, self.journal, time, self.index, self.config, MemoryPrimaryStore()
        )

    def move(self) -> None:
        """The group moves, and that is kept."""
        origin, left_at = self.at, TargetOffset(self.position)
        before = self.groups.progress(GROUP, TOPIC).get(0)
        super().move()
        if self.at == origin:
            return
        self.position = min(self.position + self.ahead, len(self.log(self.at).slots))
        self.moves += 1
        kept = {ITEM: before} if isinstance(before, Progress) else {}
        snapshot = Snapshot({origin: {ITEM: GroupCommit(left_at, -1, "")}}, kept, 0, None)
        move = Move(GROUP, origin, self.at, region_of(self.at), MoveKind.PLANNED)
        record = self.journal.begin(move, snapshot, self.journal.newest(GROUP))
        written = {ITEM: mark_of(GroupCommit(TargetOffset(self.position), -1, ""))}
        self.journal.keep(replace(record, step=Step.DONE, written=written, left_at={ITEM: left_at}))

    def live(self, moves: int) -> None:
        """Until the group has moved so often, and has read all."""
        while self.moves < moves:
            for _ in range(15):
                self.step()
            self.move()
        self.finish()
        self._set_ends()

    def verified(self, moves: int) -> GroupVerdict:
        return self.verifier.verify(GROUP, moves=moves, consumers=Consumers.FAILOVER)


@pytest.mark.parametrize("graph", GRAPHS)
def test_what_was_read_once_is_told_so(graph: str) -> None:
    for seed in range(6):
        world = Moved(seed, graph)
        with world.service:
            world.live(3)
            for moves in (1, 2, 3):
                found = world.verified(moves)
                unknown = [text for item in found.partitions for text in item.unknown]
                unknown += [
                    text for item in found.partitions for source in item.sources for text in source.unknown
                ]
                assert (found.verdict, unknown) == (Verdict.ONCE, []), (seed, moves)


def test_what_was_passed_by_is_told_as_never() -> None:
    """Own records of the destination, and copies of the origin's."""
    kinds: set[bool] = set()
    for seed in range(20):
        world = Moved(seed, "two-way")
        world.ahead = 6
        with world.service:
            world.live(1)
            there = {slot.name for slot in world.log(world.at).slots if slot.name is not None}
            left_out = there - set(world.delivered)
            found = world.verified(1)
            assert found.records(ConsumptionKind.NEVER) == len(left_out), seed
            assert found.verdict is (Verdict.NEVER if left_out else Verdict.ONCE), seed
            kinds |= {where == world.key(world.at) for where, _ in left_out}
    assert kinds == {True, False}


def test_where_no_route_leads_back_the_verdict_says_what_is_missing() -> None:
    world = Moved(0, "standby that is written to")
    with world.service:
        world.at = world.homes[0]
        world._read(0)
        world.live(1)
        found = world.verified(1)
        assert found.verdict is Verdict.UNKNOWN
        (text,) = found.partitions[0].unknown
        assert text.startswith("producers write to aggregate-y, and no route brings to aggregate-x")
        assert "configure y->x, or make aggregate-y an 'aggregate'" in text
