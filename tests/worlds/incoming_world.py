"""A cluster in both roles, in memory: producers write to its partitions, and routes copy into them; every record knows which.

Transactions end as on a real cluster: their markers are written to each partition for itself, in any order and at any time
after the commit. So a reader may see copies before the run log shows the entry that tells of them.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from parallax.domain.ids import (
    Lineage,
    RegionName,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.runs import Run
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.origins import LoggedEntry, OriginRule, Origins, ReadPart, RecordFate, take_in
from replicator.copying.ports import EndReached, ReadFrom, RecordBlock, SourceEvent, TargetEnd
from replicator.copying.reconcile import Beginning, begin
from replicator.copying.state import PartitionChange, PartitionState, encode
from replicator.lease import shard_of

TOPIC = TopicName("t")
TOPIC_ID = TopicId("here")
ITEMS = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))
PRODUCED = RegionName("here")


class Transaction:
    """Open until ``ended``; then each log waits for its marker."""

    def __init__(self) -> None:
        self.logs: list[Log] = []
        self.committed: bool | None = None


@dataclass(slots=True)
class Slot:
    """One offset: a record, or a marker (``value`` None)."""

    value: object
    epoch: int
    transaction: Transaction | None = None


class Log:
    """One partition."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.start = 0
        self.epoch = 0
        self.undecided: list[Transaction] = []

    @property
    def end(self) -> int:
        return len(self.slots)

    @property
    def stable_end(self) -> int:
        """Below which every transaction is decided."""
        firsts = (
            number
            for number, slot in enumerate(self.slots)
            if slot.transaction is not None and slot.value is not None and slot.transaction in self.undecided
        )
        return next(firsts, self.end)

    def append(self, value: object, transaction: Transaction | None = None) -> int:
        if transaction is not None and self not in transaction.logs:
            transaction.logs.append(self)
            self.undecided.append(transaction)
        self.slots.append(Slot(value, self.epoch, transaction))
        return self.end - 1

    def mark(self, transaction: Transaction) -> None:
        self.undecided.remove(transaction)
        transaction.logs.remove(self)
        self.slots.append(Slot(None, self.epoch, transaction))

    def visible(self, begin: int, end: int) -> list[tuple[int, Slot]]:
        """Committed records of ``[begin, end)``."""
        return [
            (number, slot)
            for number, slot in enumerate(self.slots[begin:end], begin)
            if slot.value is not None and (slot.transaction is None or slot.transaction.committed)
        ]


@dataclass
class Copying:
    """A route into the cluster, as its replicator keeps it."""

    source: RegionName
    run_log: list[Log]
    layout: int = 1
    shards: int = 1
    states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    source_next: int = 0

    def entry(self, shard: int, changes: Sequence[PartitionChange], *, snapshot: bool, path: str) -> Entry:
        after = {item: state for item, state in self.states.items() if shard_of(item, self.shards) == shard}
        return encode(
            run_log_id=TopicId("log"),
            layout=self.layout,
            shard=shard,
            path=path,
            changes=[
                change for change in changes if shard_of(change.state.topic_partition, self.shards) == shard
            ],
            everything=after if snapshot else None,
            committed_at_ms=0,
        )


class World:
    """The cluster, and all that happens there at random."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.data = {item: Log() for item in ITEMS}
        self.routes: list[Copying] = []
        self.ending: list[Transaction] = []
        self.records = 0
        self.trimmed: dict[TopicPartition, int] = {}
        """Below these offsets retention has taken what told of a record."""

    # --- what happens ------------------------------------------------------------------------------------------

    def happen(self) -> None:
        draw = self.draw
        actions = [self.produce] * 4 + [self.copy] * 6 + [self.write_marker] * 8 + [self.change_leader]
        if len(self.routes) < 2 and draw.random() < 0.3:
            actions.append(self.add_route)
        if draw.random() < 0.1:
            actions += [self.change_layout, self.lose_tail, self.trim]
        draw.choice(actions)()

    def add_route(self) -> None:
        shards = self.draw.randint(1, 2)
        route = Copying(RegionName(f"r{len(self.routes)}"), [Log() for _ in range(shards)], shards=shards)
        self._settle(route)
        self.routes.append(route)

    def produce(self) -> None:
        log = self.data[self.draw.choice(ITEMS)]
        transaction = Transaction() if self.draw.random() < 0.3 else None
        for _ in range(self.draw.randint(1, 3)):
            log.append(self._record(PRODUCED), transaction)
        if transaction is not None:
            self._end(transaction, committed=self.draw.random() < 0.7)

    def copy(self) -> None:
        """One transaction of a route: copies, and the entry that tells of them."""
        if not self.routes:
            return
        route = self.draw.choice(self.routes)
        shard = self.draw.randrange(route.shards)
        transaction = Transaction()
        changes: list[PartitionChange] = []
        fits = True
        for item in (item for item in ITEMS if shard_of(item, route.shards) == shard):
            state = route.states.get(item)
            if state is None or self.draw.random() < 0.2:
                changes += self._settled(route, item)
            else:
                rows = self._copies(route, item, state, transaction)
                fits = fits and state.target_leader_epoch == self.data[item].epoch
                if rows and fits:
                    changes.append(
                        PartitionChange(state.after(rows, SourceOffset(route.source_next)), tuple(rows))
                    )
        committed = fits and self.draw.random() < 0.9
        if committed:
            route.states |= {
                change.state.topic_partition: change.state for change in changes if not change.closed
            }
        if changes and fits:
            snapshot = self.draw.random() < 0.2
            route.run_log[shard].append(
                route.entry(shard, changes, snapshot=snapshot, path="batch"), transaction
            )
        self._end(transaction, committed=committed and bool(changes))

    def _copies(
        self, route: Copying, item: TopicPartition, state: PartitionState, transaction: Transaction
    ) -> list[Run]:
        log, rows = self.data[item], list[Run]()
        for _ in range(self.draw.randint(0, 3)):
            if self.draw.random() < 0.3:  # another's record comes between
                log.append(self._record(PRODUCED))
            first, count = route.source_next, self.draw.randint(1, 3)
            places = [log.append(self._record(route.source), transaction) for _ in range(count)]
            previous = rows[-1].source_end if rows else state.last_run_end
            rows.append(Run(SourceOffset(first), TargetOffset(places[0]), count, previous))
            route.source_next += count
        return rows

    def change_leader(self) -> None:
        self.data[self.draw.choice(ITEMS)].epoch += 1

    def lose_tail(self) -> None:
        """An unclean election: what is written next takes the offsets of what is lost."""
        log = self.data[self.draw.choice(ITEMS)]
        while log.undecided:  # what is open at both leaders is no matter here
            self._mark(log.undecided[0], log)
        del log.slots[max(0, log.end - self.draw.randint(1, 6)) :]
        log.epoch += 1

    def change_layout(self) -> None:
        if self.routes:
            route = self.draw.choice(self.routes)
            while any(log.undecided for log in route.run_log):  # its owners are fenced
                self.write_marker()
            route.layout += 1
            route.shards = self.draw.randint(1, 3)
            route.run_log += [Log() for _ in range(route.shards - len(route.run_log))]
            self._settle(route)

    def trim(self) -> None:
        """Retention takes the beginning of a run log."""
        if self.routes:
            log = self.draw.choice(self.draw.choice(self.routes).run_log)
            log.start = self.draw.randint(log.start, log.stable_end)

    def write_marker(self) -> None:
        if self.ending:
            transaction = self.draw.choice(self.ending)
            self._mark(transaction, self.draw.choice(transaction.logs))

    def write_all_markers(self) -> None:
        while self.ending:
            self.write_marker()

    def _settled(self, route: Copying, item: TopicPartition) -> list[PartitionChange]:
        """What the route has to say before it goes on: that it begins, or that the target has another leader."""
        log, state = self.data[item], route.states.get(item)
        end = TargetEnd(TargetOffset(log.end), log.epoch)
        lineage = Lineage(TopicId(route.source), TOPIC_ID)
        if state is None:
            return list(begin(item, Beginning(lineage, SourceOffset(0), "first seen"), None, end))
        kept = min(log.end, self._kept(log, state.target_leader_epoch), state.target_floor)
        if kept < state.target_floor:
            cut = Beginning(
                lineage._replace(generation=state.lineage.generation + 1),
                state.source_next,
                "the target lost its tail",
                parted_at=state.source_next,
            )
            return list(begin(item, cut, state, replace(end, next_offset=TargetOffset(kept))))
        return [PartitionChange(replace(state, target_leader_epoch=log.epoch))]

    @staticmethod
    def _kept(log: Log, epoch: int) -> int:
        return next((number for number, slot in enumerate(log.slots) if slot.epoch > epoch), log.end)

    def _settle(self, route: Copying) -> None:
        transaction = Transaction()
        for shard in range(route.shards):
            entry = route.entry(shard, [], snapshot=True, path="layout")
            route.run_log[shard].append(entry, transaction)
        self._end(transaction, committed=True)
        while transaction in self.ending:
            self._mark(transaction, transaction.logs[0])

    def _end(self, transaction: Transaction, *, committed: bool) -> None:
        transaction.committed = committed
        if transaction.logs:
            self.ending.append(transaction)

    def _mark(self, transaction: Transaction, log: Log) -> None:
        log.mark(transaction)
        if not transaction.logs:
            self.ending.remove(transaction)

    def _record(self, source: RegionName) -> tuple[RegionName, int]:
        self.records += 1
        return source, self.records


class DataReader:
    """`SourceReader` of the cluster's partitions."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.positions: dict[TopicPartition, int] = {}

    def take(self, positions: Mapping[TopicPartition, ReadFrom]) -> None:
        self.positions |= {item: int(place.source_next) for item, place in positions.items()}

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        for item in partitions:
            self.positions.pop(item, None)

    def poll(self, max_records: int, _timeout_ms: float) -> Sequence[SourceEvent]:
        events: list[SourceEvent] = []
        for item in self.positions if max_records else ():
            log, draw = self._world.data[item], self._world.draw
            end = draw.randint(self.positions[item], max(self.positions[item], log.stable_end))
            found = log.visible(self.positions[item], end)
            while found:
                same = 1
                while same < len(found) and found[same][1].epoch == found[0][1].epoch and draw.random() < 0.8:
                    same += 1
                records = [slot.value for _, slot in found[:same]]
                offsets = [number for number, _ in found[:same]]
                events.append(RecordBlock(item, found[0][1].epoch, offsets, records, same))
                del found[:same]
            self.positions[item] = end
            if end == log.stable_end:
                events.append(EndReached(item, SourceOffset(end)))
        return events

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {item: self._world.data[item].end for item in partitions}

    def close(self) -> None:
        """Nothing is held."""


class LogReader:
    """`IncomingLogs` of the world, which reads on now and then (`turn`)."""

    def __init__(self, world: World, rule: OriginRule, reach: int) -> None:
        self._world, self._rule, self._reach = world, rule, reach
        self._origins = Origins(rule, lambda _item: True)
        self._needed: dict[TopicPartition, tuple[TopicId, int]] = {}
        self._positions: dict[tuple[RegionName, int], int] = {}
        self._goals: dict[tuple[RegionName, int], int] = {}
        self._asked = self._requested = self._settled = 0
        self._names_all = False

    def need(self, positions: Mapping[TopicPartition, tuple[TopicId, int]]) -> None:
        self._needed |= positions
        whole = False
        while not whole and not (self._names_all and self._tells(positions)):
            whole = self._load()
            self._reach, positions = 2 * self._reach, self._needed

    def _tells(self, positions: Mapping[TopicPartition, tuple[TopicId, int]]) -> bool:
        return all(self._origins.reach(item, topic_id, at) for item, (topic_id, at) in positions.items())

    def _load(self) -> bool:
        """Whether there is no more to be read."""
        self._origins, parts, layouts = Origins(self._rule, lambda _item: True), [], {}
        for route in self._world.routes:
            layouts[route.source] = (route.layout, route.shards)
            for shard, log in enumerate(route.run_log):
                end = self._positions[route.source, shard] = log.stable_end
                start = max(log.start, end - self._reach)
                entries = [slot.value for _, slot in log.visible(start, end) if isinstance(slot.value, Entry)]
                parts.append(ReadPart(route.source, shard, entries, start == log.start, log.start > 0))
        self._names_all = take_in(self._origins, parts, layouts)
        for item, (topic_id, at) in self._needed.items():
            self._origins.forget_below(item, topic_id, at)
        return all(part.from_start for part in parts)

    def turn(self) -> None:
        """Ask, or read on, a little."""
        for route in self._world.routes:
            for shard, log in enumerate(route.run_log):
                at = self._positions.setdefault((route.source, shard), 0)
                end = self._world.draw.randint(at, max(at, log.stable_end))
                for _, slot in log.visible(at, end):
                    if isinstance(slot.value, Entry):
                        self._origins.add(LoggedEntry(route.source, shard, slot.value))
                self._positions[route.source, shard] = end
        if all(self._positions[place] >= goal for place, goal in self._goals.items()):
            self._settled = self._asked
            if self._requested > self._asked:
                self._asked = self._requested
                self._goals = {
                    (route.source, shard): log.end
                    for route in self._world.routes
                    for shard, log in enumerate(route.run_log)
                }
                for place in self._goals:
                    self._positions.setdefault(place, 0)

    def request(self) -> int:
        self._requested += 1
        return self._requested

    def settled(self) -> int:
        return self._settled

    def judge(
        self, item: TopicPartition, topic_id: TopicId, leader_epoch: int, offsets: Sequence[int]
    ) -> list[tuple[int, int, RecordFate]]:
        return self._origins.judge(item, topic_id, leader_epoch, offsets)

    def forget_below(self, item: TopicPartition, topic_id: TopicId, offset: int) -> None:
        self._needed[item] = (topic_id, offset)
        self._origins.forget_below(item, topic_id, offset)

    def close(self) -> None:
        """Nothing is held."""
