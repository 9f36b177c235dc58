"""A consumer group that moves between two aggregate clusters, by the real offset service and the real sync job."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from offsetsvc.answers import FailoverAnswer
from offsetsvc.messages import failover_to_pb, group_to_pb
from offsetsvc.resume.call import FailoverRequest
from offsetsvc.resume.skip_updates import WatchRequest
from offsetsvc.service import UseCases
from parallax.client.answer import Pair, ResumeAnswer, answer_from_pb, answers_from_pb
from parallax.domain.commits import GroupCommit
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
    aggregate_cluster,
)
from parallax.domain.metadata import CommittedMetadata, decode, encode
from parallax.domain.outcome import Outcome
from parallax.domain.place import LogRange
from parallax.domain.skips import after_skips, as_ranges, merge_ranges
from parallax.errors import UnavailableError
from parallax.ports.audit import Auditor
from parallax.ports.clusters import TopicInfo
from parallax.runtime.deadline import Deadline
from syncjob.cycle import Syncer
from tests.memory.audit import MemoryAuditLog
from tests.memory.cql import MemoryKeyspace, WrittenStores
from tests.memory.groups import MemoryGroupStore, MemoryOperationJournal, MemoryPrimaryStore
from tests.worlds.offset_world import Writer
from tests.worlds.sim.doors import SimClock
from tests.worlds.sim.kafka import Cluster, Log
from tests.worlds.sim.sides import PARTITIONS, TOPIC, SourceRecord

if TYPE_CHECKING:
    from tests.worlds.sim.world import World

GROUP = GroupName("billing")
_PATIENCE_MS = 60_000
_BELIEVED_AFTER_CYCLES = 3
"""To the sync job's monotonic clock two cycles take as long as it waits until it believes that a commit is gone."""
_FOLLOWED_AFTER_CYCLES = _BELIEVED_AFTER_CYCLES + 2
"""What was set back or deleted is published by then: two reads have to agree."""
_EXACT = frozenset({Outcome.OK, Outcome.PENDING})


class SimWriter(Writer):
    """`ClusterWriter` over an aggregate cluster in memory."""

    kafka: Cluster

    def topics(self) -> Mapping[TopicName, TopicInfo]:
        self._answer()
        topic = self.kafka.topics.get(TOPIC)
        name = TopicName(TOPIC)
        return {} if topic is None else {name: TopicInfo(name, TopicId(topic.topic_id), len(topic.logs))}

    def log_ranges(
        self, partitions: Collection[TopicPartition], *, fresh: bool = False
    ) -> Mapping[TopicPartition, LogRange]:
        del fresh  # it remembers nothing
        self._answer()
        topic = self.kafka.topics.get(TOPIC)
        return {
            item: LogRange(
                TargetOffset(topic.logs[item.partition].start), TargetOffset(topic.logs[item.partition].end)
            )
            for item in partitions
            if topic is not None and item.topic == TOPIC and item.partition < len(topic.logs)
        }


@dataclass
class _Place:
    """Where the group is on a partition.

    Attributes:
        skipping: what its last move left; None: nothing is skipped.
    """

    next_offset: int = 0
    skipping: CommittedMetadata | None = None


class GroupLife:
    """A group with one member at a time.

    Args:
        world: has both clusters.
        skips: whether it asks the offset service and skips what it had, as a FailoverConsumer does; else it is a plain
            consumer, which starts where the sync job has published.
    """

    def __init__(self, world: World, *, skips: bool) -> None:
        self.world = world
        self.skips = skips
        self.clocks = {"service": SimClock(world.schedule), "sync": SimClock(world.schedule)}
        self.store = MemoryGroupStore()
        self.writers: dict[ClusterName, SimWriter] = {}
        for aggregate in world.aggregates:
            writer = SimWriter(aggregate_cluster(aggregate.region))
            writer.kafka = aggregate.cluster
            self.writers[writer.cluster] = writer
        primaries = MemoryPrimaryStore()
        self._service = UseCases(
            world.config,
            world.aggregates[0].region,
            world.index,
            self.store,
            self.writers,
            primaries,
            MemoryOperationJournal(),
            WrittenStores(MemoryKeyspace()).status,
            now_ms=self.clocks["service"].now_ms,
            audit=MemoryAuditLog(),
            cache=False,
        )
        confirm_s = world.config.sync.rewind_confirm_ms / 1_000
        self._cycles = 0
        self._sync = Syncer(
            world.config,
            self.writers.values(),
            self.store,
            primaries,
            self._ask,
            now_ms=self.clocks["sync"].now_ms,
            auditor=Auditor(MemoryAuditLog(), self.clocks["sync"].now_ms),
            clock=lambda: self._cycles * confirm_s / (_BELIEVED_AFTER_CYCLES - 1),
        )
        self.cluster = next(iter(self.writers))
        self.consumed: set[int] = set()
        self.excused: set[int] = set()
        self.may_repeat: set[int] = set()
        """Consumed before a move that promised less than once."""
        self.moves = 0
        self.repeated = 0
        self._places = {number: _Place() for number in range(PARTITIONS)}
        self._began_before_cycles = _FOLLOWED_AFTER_CYCLES
        self._is_left_elsewhere = False
        """Whether it was deleted here alone, and has committed nothing since: what it has left in the other cluster goes on standing there."""
        self._clocks_differ = False

    def close(self) -> None:
        """End service and sync job."""
        self._sync.close()
        self._service.close()

    # --- what it does ------------------------------------------------------------------------------------------

    def consume(self, limit: int = 12) -> str:
        """Read on, up to so many records of each partition."""
        if not self._begins():
            return ""
        for number, place in self._places.items():
            log = self._log(number)
            if log is not None:
                self._read(number, place, log, limit)
        at = ", ".join(str(place.next_offset) for place in self._places.values())
        return f"reads {self.cluster} up to {at}"

    def commit(self) -> str:
        """Commit what was read."""
        if not self._begins():
            return ""
        for number, place in self._places.items():
            log = self._log(number)
            if log is None:
                continue
            text = "" if place.skipping is None else encode(place.skipping)
            epoch = log.epoch_below(place.next_offset)
            self._write(number, GroupCommit(TargetOffset(place.next_offset), epoch, text))
        if self._is_left_elsewhere:
            self._is_left_elsewhere = False
            self._began_before_cycles = _BELIEVED_AFTER_CYCLES
        return f"commits in {self.cluster}"

    def restart(self) -> str:
        """A member that begins anew knows what is committed, and nothing else."""
        if not self._begins():
            return ""
        commits = self.writers[self.cluster].commits.get(GROUP, {})
        self.may_repeat |= self.consumed  # what was read and not committed comes again, as with Kafka
        for number, place in self._places.items():
            log, found = self._log(number), commits.get(_item(number))
            if log is not None:
                self._start(place, log, found)
        return f"begins anew in {self.cluster}"

    def move(self) -> str:
        """Go on in the other cluster."""
        if not self._begins():
            return ""
        (to,) = self.writers.keys() - {self.cluster}
        if any(TOPIC not in writer.kafka.topics for writer in self.writers.values()):
            return ""
        return self._move_asking(to) if self.skips else self._move_plainly(to)

    def refresh(self) -> str:
        """Learn of further records to skip, while some are pending."""
        if self._index_is_away():
            return ""
        for number, place in self._places.items():
            skipping = place.skipping
            if skipping is None or skipping.complete_to is None:
                continue
            request = WatchRequest(
                _item(number),
                self.cluster,
                skipping.target_topic_id,
                skipping.positions,
                skipping.complete_to,
                next(iter(self.writers.keys() - {self.cluster})),
            )
            deadline = Deadline.after_ms(_PATIENCE_MS)
            for page in self._service.skips.updates(request, deadline, lambda _s: True):
                skips = tuple(merge_ranges([*skipping.skips, *as_ranges(page.skip_ranges)]))
                place.skipping = skipping = replace(skipping, skips=skips, complete_to=page.complete_to)
            self._check_skips(number, place)
        return ""

    def sync(self) -> str:
        """One cycle of the sync job."""
        self._cycles += 1
        report = self._sync.cycle()
        if not report.failures and not report.away and not self._index_is_away():
            self._began_before_cycles += 1
        elif report.away and not self._begins():
            self._began_before_cycles = 0  # the wait begins anew
        return ""

    def delete(self) -> str:
        """The group is deleted, here or everywhere; then another one of its name begins with the earliest records."""
        if not self._may_be_set_back():
            return ""
        everywhere = self.world.random.random() < 0.5 or not self._is_known_to_be_here()
        for cluster, writer in self.writers.items():
            if everywhere or cluster == self.cluster:
                writer.commits.pop(GROUP, None)
        self.consumed.clear()
        self._places = {number: _Place() for number in self._places}
        self._began_before_cycles = 0  # nobody reads on before the sync job has seen it for long enough
        self._is_left_elsewhere = not everywhere
        return f"deleted {'everywhere' if everywhere else f'in {self.cluster}'}, begins anew"

    def reset(self) -> str:
        """Its offsets are set back where it is."""
        if not self._may_be_set_back():
            return ""
        commits = self.writers[self.cluster].commits.get(GROUP, {})
        told = {}
        for number, place in self._places.items():
            log, commit = self._log(number), commits.get(_item(number))
            if log is None or commit is None or not commit.next_offset:
                continue
            back_to = self.world.random.randrange(commit.next_offset)
            below = {slot.value for slot in log.slots[: max(0, back_to - log.start)] if slot.visible}
            self.consumed -= {
                record.serial
                for regional in self.world.regionals
                for record in regional.records
                if record.partition == number and record not in below
            }
            self._write(number, GroupCommit(TargetOffset(back_to), -1, ""))
            self._places[number] = _Place(back_to)
            told[number] = f"{place.next_offset} -> {back_to}"
        self._began_before_cycles = 0
        return f"set back in {self.cluster}: {told}"

    def step_a_clock(self, step_ms: int) -> str:
        """The clock of the offset service or of the sync job; not while it has yet to notice what was set back."""
        if self._began_before_cycles < _FOLLOWED_AFTER_CYCLES:
            return ""
        name = self.world.random.choice(sorted(self.clocks))
        self.clocks[name].stepped_ms += step_ms
        self._clocks_differ = True
        return f"{name} by {step_ms} ms"

    # --- moves ---------------------------------------------------------------------------------------------------

    def _move_asking(self, to: ClusterName) -> str:
        if self._index_is_away():
            return ""
        positions = {_item(number): TargetOffset(place.next_offset) for number, place in self._places.items()}
        request = FailoverRequest(GROUP, self.cluster, to, positions, (TopicName(TOPIC),))
        try:
            answers = self._service.failover.answers(
                request, Deadline.after_ms(_PATIENCE_MS), record_move=True
            )
        except UnavailableError as error:
            return f"not answered: {error}"
        self._leave(to)
        told = []
        for answer in answers:
            number = answer.topic_partition.partition
            plain = answer_from_pb(failover_to_pb(answer))
            self._excuse(answer)
            if not plain.indexed or not set(answer.notes) <= _EXACT:
                self.may_repeat |= self.consumed
            place = _Place(answer.resume_offset, plain.metadata(self.moves))
            self._places[number] = place
            self._check_passed(number, place.next_offset, f"resume offset, {answer.outcome.name}")
            self._check_skips(number, place)
            self._write(number, plain.commit(self.moves))
            told.append(f"{number}: {answer.resume_offset} {answer.outcome.name}")
        return f"moves to {to}: {', '.join(told)}"

    def _move_plainly(self, to: ClusterName) -> str:
        if self._began_before_cycles < _FOLLOWED_AFTER_CYCLES or self._is_left_elsewhere:
            return ""  # docs/failover.md: delete a group in every cluster
        self._leave(to)
        commits = self.writers[to].commits.get(GROUP, {})
        for number in self._places:
            place = _Place()
            self._start(place, self._log_of(number), commits.get(_item(number)))
            self._places[number] = place
            self._check_passed(number, place.next_offset, "published offset")
        return f"moves plainly to {to}: {[place.next_offset for place in self._places.values()]}"

    def _leave(self, to: ClusterName) -> None:
        self.cluster = to
        self.moves += 1

    def _start(self, place: _Place, log: Log, found: GroupCommit | None) -> None:
        place.next_offset = log.start if found is None else found.next_offset
        place.skipping = None
        metadata = decode(found.metadata) if found is not None and found.metadata and self.skips else None
        if metadata is not None and metadata.resume_offset <= place.next_offset:
            place.skipping = metadata

    def _excuse(self, answer: FailoverAnswer) -> None:
        """Records of ranges that the answer names as never delivered, or as trimmed."""
        for view in answer.sources:
            ranges = [(gap.source_start, gap.source_end) for gap in view.answer.lost]
            if view.answer.trimmed is not None:
                ranges.append(view.answer.trimmed)
            source = view.answer.source
            self.excused |= {
                record.serial
                for regional in self.world.regionals
                if regional.region == source.region
                for record in regional.records
                if record.incarnation == source.topic_id
                and record.partition == answer.topic_partition.partition
                and any(start <= record.offset < end for start, end in ranges)
            }

    def _may_be_set_back(self) -> bool:
        """Whether it is known where the group is: what nobody has seen can't be missed.

        Left out: a move whose time was told by a clock days ahead, behind which what is set back is not seen.
        """
        if self._clocks_differ:
            return False
        commits = self.writers[self.cluster].commits.get(GROUP, {})
        seen = {item.topic_partition: item for item in self.store.observed(GROUP, self.cluster)}
        moved = self.store.progress(GROUP, TopicName(TOPIC))
        return all(
            (known := seen.get(item)) is not None
            and known.next_offset == commit.next_offset
            and (
                (last := moved.get(item.partition)) is None
                or (last.cluster == self.cluster and last.moved_at_ms <= known.observed_at_ms)
            )
            for item, commit in commits.items()
        )

    def _is_known_to_be_here(self) -> bool:
        """Whether the sync job can tell that what is gone here was not just what it had published."""
        moved = self.store.progress(GROUP, TopicName(TOPIC))
        here = all(number in moved and moved[number].cluster == self.cluster for number in self._places)
        (other,) = self.writers.keys() - {self.cluster}
        return here or not self.writers[other].commits.get(GROUP)

    def _begins(self) -> bool:
        return self._began_before_cycles >= _BELIEVED_AFTER_CYCLES

    # --- what must hold ------------------------------------------------------------------------------------------

    def _read(self, number: int, place: _Place, log: Log, limit: int) -> None:
        end = log.stable_end
        skipping = place.skipping
        if skipping is not None and skipping.complete_to is not None:
            end = min(end, skipping.complete_to)
        place.next_offset = max(place.next_offset, log.start)
        while place.next_offset < end and limit:
            slot = log.slot(place.next_offset)
            here = TargetOffset(place.next_offset)
            place.next_offset += 1
            if not slot.visible or not isinstance(slot.value, SourceRecord):
                continue
            record = slot.value
            if skipping is not None and after_skips(here, skipping.skips) > here:
                assert self._had(record), f"{self.cluster}: {record} is skipped and was never consumed"
                continue
            limit -= 1
            if record.serial in self.consumed:
                self.repeated += 1
                assert not self._promised(record), f"{self.cluster}: {record} comes again at {number}@{here}"
            self.consumed.add(record.serial)

    def _promised(self, record: SourceRecord) -> bool:
        """Whether it may not come twice: a source whose tail was lost makes answers early, and so do clocks that differ."""
        early = self._clocks_differ or any(regional.thrown_away for regional in self.world.regionals)
        early |= any(life.twice_told for life in self.world.lives)
        return self.skips and record.serial not in self.may_repeat and not early

    def _check_passed(self, number: int, end: int, why: str) -> None:
        log = self._log_of(number)
        for slot in log.slots[: max(0, end - log.start)]:
            if slot.visible and isinstance(slot.value, SourceRecord):
                assert self._had(slot.value), (
                    f"{self.cluster}: {slot.value} at {number}@{slot.offset} is passed by the {why} {end}, and was never consumed"
                )

    def _check_skips(self, number: int, place: _Place) -> None:
        log = self._log_of(number)
        for item in place.skipping.skips if place.skipping is not None else ():
            for offset in range(max(item.start, log.start), min(item.end, log.end)):
                record = log.slot(offset).value
                if log.slot(offset).visible and isinstance(record, SourceRecord):
                    assert self._had(record), (
                        f"{self.cluster}: {record} at {number}@{offset} is to be skipped"
                    )

    def _had(self, record: SourceRecord) -> bool:
        return record.serial in self.consumed or record.serial in self.excused or self._is_undone(record)

    def _is_undone(self, record: SourceRecord) -> bool:
        """Whether its source took back that it was committed, and one target alone had copied it before (docs/decisions/0003)."""
        if not any(record.serial in regional.undone for regional in self.world.regionals):
            return False
        topics = [writer.kafka.topics.get(TOPIC) for writer in self.writers.values()]
        logs = [log for topic in topics if topic is not None for log in topic.logs]
        # Also where readers can't get yet, since another's transaction is open below: that takes no copy back.
        return sum(slot.visible and slot.value == record for log in logs for slot in log.slots) == 1

    def finish(self) -> None:
        """Everything has arrived: it reads to the end, and nothing is missing there."""
        for _ in range(_FOLLOWED_AFTER_CYCLES):
            self.sync()
        self.refresh()
        self.consume(limit=10**9)
        for number, place in self._places.items():
            log = self._log_of(number)
            gate = None if place.skipping is None else place.skipping.complete_to
            missed = [
                str(slot.value)
                for slot in log.committed()
                if isinstance(slot.value, SourceRecord) and not self._had(slot.value)
            ]
            assert not missed, f"{self.cluster}: {number}: never consumed (gate {gate}): {missed}"

    # --- doors ---------------------------------------------------------------------------------------------------

    def _ask(
        self, group: GroupName, pair: Pair, topics: Collection[TopicName]
    ) -> Mapping[TopicPartition, ResumeAnswer]:
        request = FailoverRequest(group, *pair, topics=tuple(topics))
        if self._index_is_away():
            raise UnavailableError("the index is away")
        answers = self._service.failover.answers(request, Deadline.after_ms(_PATIENCE_MS))
        for answer in answers:
            self._excuse(answer)
        return answers_from_pb(group_to_pb(answers))

    def _index_is_away(self) -> bool:
        schedule = self.world.schedule
        return not schedule.calm and schedule.now_ms < self.world.index.away_until_ms

    def _log(self, number: int) -> Log | None:
        topic = self.writers[self.cluster].kafka.topics.get(TOPIC)
        return None if topic is None else topic.logs[number]

    def _log_of(self, number: int) -> Log:
        log = self._log(number)
        assert log is not None
        return log

    def _write(self, number: int, commit: GroupCommit) -> None:
        self.writers[self.cluster].commits.setdefault(GROUP, {})[_item(number)] = commit


def _item(number: int) -> TopicPartition:
    return TopicPartition(TopicName(TOPIC), number)
