"""A brute-force model of the world that the resume rule lives in.

Regional logs, replicators that copy them in transactions, aggregate logs and one consumer group, all as plain
lists. The model knows every record by name (`Record`), so it can tell what the group has consumed without any
offset arithmetic, and it judges the production rule by that alone. Everything random comes from one seeded
generator.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from parallax.domain import progress as progress_module
from parallax.domain import resume as resume_module
from parallax.domain import skips as skips_module
from parallax.domain.history import History
from parallax.domain.ids import (
    ClusterName,
    Lineage,
    RegionName,
    SourceId,
    SourceOffset,
    TargetOffset,
    TopicId,
)
from parallax.domain.outcome import Outcome
from parallax.domain.progress import Progress, SourceHistory, TargetTruncation
from parallax.domain.resume import LogRange, Resume
from parallax.domain.run import LostRange, Run, build_runs, watermark


class ViolationError(AssertionError):
    """A property does not hold; the message says which."""


@dataclass(frozen=True)
class Record:
    """A record's name: offset and leader epoch are unique within one incarnation of a topic."""

    source: SourceId
    offset: int
    epoch: int


@dataclass
class SourceLog:
    """One incarnation of a region's topic. ``log`` holds None where no consumer could ever see a record."""

    source: SourceId
    epoch: int = 0
    low: int = 0
    log: list[Record | None] = field(default_factory=list)
    truncations: list[tuple[int, int]] = field(default_factory=list)  # (end, epoch that began with it)
    deleted: bool = False

    def records(self, start: int, limit: int) -> list[Record]:
        found: list[Record] = []
        for record in self.log[max(start, self.low) :]:
            if len(found) == limit:
                break
            if record is not None:
                found.append(record)
        return found


@dataclass
class Copier:
    """A replicator's state for one source lineage on one aggregate cluster; all of it as committed."""

    source: SourceLog
    generation: int
    rows: list[Run] = field(default_factory=list)
    lost: list[LostRange] = field(default_factory=list)
    source_next: int = 0
    last_record_end: int = 0
    last_epoch: int = -1
    epoch_seen: int = 0
    closed_at: int | None = None
    cut: int | None = None
    open_batch: list[tuple[Record, int]] = field(default_factory=list)


@dataclass
class Cluster:
    """An aggregate partition: entries are records, or None for markers and aborted records."""

    name: ClusterName
    entries: list[Record | None] = field(default_factory=list)
    low: int = 0
    leader_epoch: int = 0
    truncations: list[TargetTruncation] = field(default_factory=list)
    copiers: dict[RegionName, list[Copier]] = field(default_factory=dict)
    topic_id: TopicId = TopicId("t0")

    def stable_end(self) -> int:
        """The last stable offset: what read_committed consumers may read up to."""
        starts = [item.open_batch[0][1] for items in self.copiers.values() for item in items if item.open_batch]
        return min(starts, default=len(self.entries))

    def log_range(self) -> LogRange:
        return LogRange(TargetOffset(self.low), TargetOffset(len(self.entries)))


@dataclass(frozen=True)
class Options:
    """What may happen in a world. Without ``truncation`` and with ``complete`` rows nothing may be read twice."""

    regions: int = 2
    clusters: int = 2
    complete: bool = True
    truncation: bool = False
    retention: bool = False
    recreation: bool = False
    rewinds: bool = False
    compaction: bool = False
    epochs: bool = False


class World:
    """The whole stage. `step` does one random thing; each move checks every property."""

    def __init__(self, seed: int, options: Options) -> None:
        self.random = random.Random(seed)
        self.options = options
        self.regions = [RegionName("abcd"[index]) for index in range(options.regions)]
        self.rates = {region: self.random.choice([0, 1, 1, 3, 8]) for region in self.regions}
        self.incarnations: dict[RegionName, list[SourceLog]] = {}
        for region in self.regions:
            self.incarnations[region] = [SourceLog(SourceId(region, TopicId(f"{region}0")))]
        self.clusters = [Cluster(ClusterName(f"aggregate-{index}")) for index in range(options.clusters)]
        for cluster in self.clusters:
            for region in self.regions:
                cluster.copiers[region] = []
                self._open(cluster, self.incarnations[region][0], 0, 0)
        self.group = Group(self, self.clusters[0])
        self.excused: set[Record] = set()
        self.compacted: set[Record] = set()
        self.redelivered = 0
        self.skipped = 0
        self.moves = 0
        self.pending_moves = 0

    # --- producers -------------------------------------------------------------------------------------------

    def produce(self) -> None:
        region = self.random.choice(self.regions)
        log = self.incarnations[region][-1]
        for _ in range(self.random.randint(0, 2) * self.rates[region]):
            log.log.append(Record(log.source, len(log.log), log.epoch))
            if self.random.random() < 0.15:  # a transaction marker, or an aborted transaction
                log.log += [None] * self.random.randint(1, 3)
        if self.options.epochs and self.random.random() < 0.2:
            log.epoch += self.random.randint(1, 2)

    def truncate_source(self) -> None:
        log = self.incarnations[self.random.choice(self.regions)][-1]
        end = self.random.randint(max(log.low, len(log.log) - 6), len(log.log))
        log.epoch += 1
        log.truncations.append((end, log.epoch))
        del log.log[end:]

    def trim_source(self) -> None:
        log = self.incarnations[self.random.choice(self.regions)][-1]
        log.low = self.random.randint(log.low, len(log.log))

    def compact_source(self) -> None:
        log = self.incarnations[self.random.choice(self.regions)][-1]
        for index, record in enumerate(log.log):
            if record is not None and self.random.random() < 0.2:
                self.compacted.add(record)
                log.log[index] = None

    def recreate_source(self) -> None:
        region = self.random.choice(self.regions)
        self.incarnations[region][-1].deleted = True
        number = len(self.incarnations[region])
        self.incarnations[region].append(SourceLog(SourceId(region, TopicId(f"{region}{number}"))))

    # --- replicators -----------------------------------------------------------------------------------------

    def _open(self, cluster: Cluster, source: SourceLog, at: int, generation: int) -> Copier:
        copier = Copier(source, generation, source_next=at, epoch_seen=source.epoch)
        opening = Run(SourceOffset(at), TargetOffset(len(cluster.entries)), 0, SourceOffset(0), -1)
        if generation:
            opening = Run(opening.source_start, opening.target_start, 0, SourceOffset(0), source.epoch)
        copier.rows.append(opening)
        cluster.copiers[source.source.region].append(copier)
        return copier

    def _close(self, cluster: Cluster, copier: Copier) -> None:
        self._abort(copier, cluster)
        self._write_watermark(cluster, copier)
        copier.closed_at = copier.source_next

    def _abort(self, copier: Copier, cluster: Cluster) -> None:
        for _, place in copier.open_batch:
            cluster.entries[place] = None
        if copier.open_batch:
            cluster.entries.append(None)
        copier.open_batch = []

    def _current(self, cluster: Cluster, region: RegionName) -> Copier:
        """The open copier, after it has looked for a recreated topic and a truncated log."""
        copier = cluster.copiers[region][-1]
        newest = self.incarnations[region][-1]
        if copier.source is not newest:
            self._close(cluster, copier)
            following = self.incarnations[region][self.incarnations[region].index(copier.source) + 1]
            return self._open(cluster, following, 0, 0)
        lost = [end for end, epoch in copier.source.truncations if epoch > copier.epoch_seen]
        fetched = copier.open_batch[-1][0].offset + 1 if copier.open_batch else copier.source_next
        if lost and min(lost) < fetched:
            self._abort(copier, cluster)
        if lost and min(lost) < copier.source_next:
            self._close(cluster, copier)
            return self._open(cluster, newest, min(lost), copier.generation + 1)
        copier.epoch_seen = newest.epoch
        return copier

    def replicate(self, cluster: Cluster, region: RegionName) -> None:
        """Begin a transaction, commit it, or abort it."""
        copier = self._current(cluster, region)
        if copier.open_batch:
            if self.random.random() < 0.2:
                self._abort(copier, cluster)
            else:
                self._commit(copier, cluster)
            return
        source = copier.source
        if source.low > copier.source_next:
            gone = LostRange(
                SourceOffset(copier.source_next), SourceOffset(source.low), TargetOffset(len(cluster.entries))
            )
            copier.lost.append(gone)
            copier.source_next = copier.last_record_end = source.low
        for record in source.records(copier.source_next, self.random.randint(1, 6)):
            if copier.open_batch and self.random.random() < 0.1:
                break
            copier.open_batch.append((record, len(cluster.entries)))
            cluster.entries.append(record)
        if not copier.open_batch:
            copier.source_next = len(source.log)
        elif self.random.random() < 0.7:
            self._commit(copier, cluster)

    def _commit(self, copier: Copier, cluster: Cluster) -> None:
        for epoch in sorted({record.epoch for record, _ in copier.open_batch}):
            batch = [(record, place) for record, place in copier.open_batch if record.epoch == epoch]
            copier.rows += build_runs(
                [record.offset for record, _ in batch],
                [place for _, place in batch],
                previous_source_end=SourceOffset(copier.last_record_end),
                source_leader_epoch=epoch,
            )
            copier.last_record_end = copier.source_next = batch[-1][0].offset + 1
            copier.last_epoch = epoch
        copier.open_batch = []
        cluster.entries.append(None)

    def write_watermark(self, cluster: Cluster, region: RegionName) -> None:
        copier = self._current(cluster, region)
        if self.watermark_allowed(copier):
            self._write_watermark(cluster, copier)

    def watermark_allowed(self, copier: Copier) -> bool:
        """A watermark is committed in a fenced transaction of its own: never while another is open."""
        return not copier.open_batch

    def watermark_position(self, copier: Copier) -> int:
        """The position of the last committed transaction; never a fetch position."""
        return copier.source_next

    def watermark_target_end(self, cluster: Cluster) -> int:
        """The high watermark; never the last stable offset."""
        return len(cluster.entries)

    def _write_watermark(self, cluster: Cluster, copier: Copier) -> None:
        copier.rows.append(
            watermark(
                source_next=SourceOffset(self.watermark_position(copier)),
                target_end=TargetOffset(self.watermark_target_end(cluster)),
                last_run_end=SourceOffset(copier.last_record_end),
                source_leader_epoch=copier.last_epoch,
            )
        )

    # --- aggregate clusters ----------------------------------------------------------------------------------

    def trim_target(self) -> None:
        cluster = self.random.choice(self.clusters)
        limit = cluster.stable_end()
        if cluster is self.group.cluster:  # a group that retention overtakes loses records on its own cluster
            limit = min(limit, self.group.commit)
        cluster.low = self.random.randint(cluster.low, max(limit, cluster.low))

    def truncate_target(self) -> None:
        cluster = self.random.choice(self.clusters)
        for items in cluster.copiers.values():
            self._abort(items[-1], cluster)
        lowest = max([cluster.low, *(items[-1].rows[0].target_start for items in cluster.copiers.values())])
        old_end = len(cluster.entries)
        cut = self.random.randint(max(lowest, old_end - 12), old_end)
        cluster.leader_epoch += 1
        loss = TargetTruncation(TargetOffset(cut), TargetOffset(old_end), cluster.leader_epoch)
        cluster.truncations.append(loss)
        del cluster.entries[cut:]
        for items in cluster.copiers.values():
            copier = items[-1]
            history = History(Lineage(copier.source.source.topic_id, cluster.topic_id), copier.rows)
            kept = history.cut_at(TargetOffset(cut))
            newest = kept.newest
            copier.rows = list(kept.rows)
            copier.lost = [gap for gap in copier.lost if gap.target_at <= cut]
            copier.closed_at = copier.source_next = 0 if newest is None else newest.source_end
            again = self._open(cluster, copier.source, copier.closed_at, copier.generation + 1)
            again.epoch_seen = copier.epoch_seen  # a tail that the source lost as well is looked at next

    # --- what the rule is given --------------------------------------------------------------------------------

    def histories(self, cluster: Cluster) -> list[SourceHistory]:
        """The rows of a cluster as the index gives them: all, or a random part."""
        result = []
        for region, items in cluster.copiers.items():
            if not self.options.complete and self.random.random() < 0.1:
                continue
            for item in items:
                rows = item.rows
                if not self.options.complete:
                    keep = self.random.choice([0.1, 0.5, 0.9])
                    rows = [row for row in rows if self.random.random() < keep]
                lineage = Lineage(item.source.source.topic_id, cluster.topic_id, item.generation)
                closed = None if item.closed_at is None else SourceOffset(item.closed_at)
                history = History(lineage, rows, item.lost)
                result.append(SourceHistory(SourceId(region, lineage.source_topic_id), history, closed))
        return result

    def settle(self, cluster: Cluster) -> None:
        """Commit what is open and write current watermarks."""
        for region in self.regions:
            while (copier := self._current(cluster, region)).source is not self.incarnations[region][-1]:
                pass
            if copier.open_batch:
                self._commit(copier, cluster)
        for region in self.regions:
            self.write_watermark(cluster, region)

    # --- one thing after the other ---------------------------------------------------------------------------

    def step(self) -> None:
        options = self.options
        cluster = self.random.choice(self.clusters)
        region = self.random.choice(self.regions)
        actions = [
            (8, self.produce),
            (14, lambda: self.replicate(cluster, region)),
            (3, lambda: self.write_watermark(cluster, region)),
            (6, lambda: self.group.consume(self.random.randint(0, 12))),
            (2, self.group.refresh),
            (2, lambda: self.group.move(self.random.choice(self.clusters))),
        ]
        if options.truncation:
            actions += [(1, self.truncate_source), (0.3, self.truncate_target)]
        if options.retention:
            actions += [(0.5, self.trim_source), (0.7, self.trim_target)]
        if options.recreation:
            actions.append((0.5, self.recreate_source))
        if options.rewinds:
            actions.append((0.5, self.group.rewind))
        if options.compaction:
            actions.append((0.5, self.compact_source))
        self.random.choices([action for _, action in actions], [weight for weight, _ in actions])[0]()

    def finish(self) -> None:
        """Let everything arrive, and check that the group gets it."""
        cluster = self.group.cluster
        for _ in range(400):
            if all(
                items[-1].source is self.incarnations[region][-1]
                and items[-1].source_next >= len(self.incarnations[region][-1].log)
                and not items[-1].open_batch
                for region, items in cluster.copiers.items()
            ):
                break
            for region in self.regions:
                self.replicate(cluster, region)
        self.settle(cluster)
        self.group.refresh()
        self.group.consume(len(cluster.entries))
        missed = [
            record
            for record in cluster.entries[cluster.low :]
            if record is not None and not self.is_consumed(record)
        ]
        if missed and not self.group.waiting:
            raise ViolationError(f"lost at the end: {missed[:5]}")
        if self.group.waiting and self.options.complete and not self.options.truncation:
            raise ViolationError("still waiting although everything has arrived")

    def is_consumed(self, record: Record) -> bool:
        return record in self.group.consumed or record in self.excused or record in self.compacted


class Group:
    """One consumer group, behaving as a client that promises "once" must."""

    def __init__(self, world: World, cluster: Cluster) -> None:
        self.world = world
        self.cluster = cluster
        self.commit = 0
        self.commit_epoch = 0
        self.progress: Progress | None = None
        self.consumed: set[Record] = set()
        self.consumed_before_move: set[Record] = set()
        self.skips: Sequence[skips_module.SkipRange] = ()
        self.complete_to: int | None = None

    @property
    def waiting(self) -> bool:
        """Whether records wait behind ``complete_to``."""
        return self.complete_to is not None and self.complete_to < self.cluster.stable_end()

    def _notice_truncation(self) -> None:
        """What a consumer does by itself (KIP-320): it goes back to where the logs agree."""
        for loss in self.cluster.truncations:
            if self.commit_epoch < loss.leader_epoch:
                self.commit = min(self.commit, loss.cut)
                self.commit_epoch = loss.leader_epoch
                if self.progress is not None and self.commit < self.progress.resume_offset:
                    self.progress, self.skips, self.complete_to = None, (), None

    def _notice_rewind(self) -> None:
        """The vector of a group that was set back is void for good, however far it reads again."""
        if self.progress is not None and self.commit < self.progress.resume_offset:
            self.progress = None

    def consume(self, limit: int) -> None:
        self._notice_truncation()
        self._notice_rewind()
        self.refresh_if_truncated()
        end = self.cluster.stable_end()
        if self.complete_to is not None:
            end = min(end, self.complete_to)
        self.commit = max(self.commit, self.cluster.low)
        while self.commit < end and limit > 0:
            place = TargetOffset(self.commit)
            self.commit += 1
            record = self.cluster.entries[place]
            skipped = skips_module.beyond(place, self.skips) > place
            if record is None:
                continue
            if skipped:
                self.world.skipped += 1
                if not self.world.is_consumed(record):
                    raise ViolationError(f"lost: skipped {record} at {place}, never consumed")
                continue
            limit -= 1
            if record in self.consumed and record not in self.world.excused:
                self.world.redelivered += 1
                if self.world.options.complete and not self.world.options.truncation:
                    raise ViolationError(f"redelivered: {record} at {place}")
            self.consumed.add(record)

    def refresh_if_truncated(self) -> None:
        """Skip ranges above a cut name offsets that hold other records now."""
        if self.cluster.truncations and self.progress is not None:
            self.refresh()

    def refresh(self) -> None:
        """Ask again while something is pending, and take further skip ranges."""
        if self.progress is None:
            return
        self._notice_truncation()
        self._notice_rewind()
        if self.progress is None:
            return
        histories = self.world.histories(self.cluster)
        answer = resume_module.ask_again(
            progress=self.progress,
            regions=self.world.regions,
            destination=histories,
            destination_log=self.cluster.log_range(),
        )
        self._take_skips(answer, (), histories)

    def _take_skips(
        self, answer: Resume, origin: Sequence[SourceHistory], destination: Sequence[SourceHistory]
    ) -> None:
        assert self.progress is not None
        self.complete_to = answer.complete_to
        end = len(self.cluster.entries)
        self.skips = skips_module.skip_ranges(
            positions=self.progress.positions,
            origin=origin,
            destination=destination,
            start=TargetOffset(min(self.commit, self.progress.resume_offset)),
            end=TargetOffset(end if answer.complete_to is None else answer.complete_to),
        )
        for item in self.skips:
            for place in range(max(item.start, self.cluster.low), item.end):
                record = self.cluster.entries[place]
                if record is not None and not self.world.is_consumed(record):
                    raise ViolationError(f"lost: {record} at {place} in a skip range, never consumed")

    def move(self, destination: Cluster) -> None:
        if destination is self.cluster:
            return
        world = self.world
        world.moves += 1
        origin = self.cluster
        if world.options.complete:
            world.settle(origin)
            if world.random.random() < 0.5:
                world.settle(destination)
        origin_rows, destination_rows = world.histories(origin), world.histories(destination)
        told = world.random.random() < 0.5
        commit = progress_module.settled_commit(
            TargetOffset(self.commit), origin.truncations, self.commit_epoch if told else -1
        )
        progress = self.progress
        answer = resume_module.resume(
            commit=commit,
            regions=world.regions,
            origin=origin_rows,
            destination=destination_rows,
            destination_log=destination.log_range(),
            progress=progress,
        )
        if (Outcome.PENDING in answer.notes) != (answer.complete_to is not None):
            raise ViolationError("PENDING and complete_to disagree")
        world.pending_moves += answer.complete_to is not None
        self._excuse(answer, destination)
        self.consumed_before_move = set(self.consumed)
        self.cluster, self.commit, self.commit_epoch = destination, answer.resume_offset, destination.leader_epoch
        self.progress = Progress(
            destination.name, destination.topic_id, answer.resume_offset, answer.positions
        )
        for place in range(destination.low, answer.resume_offset):
            record = destination.entries[place]
            if record is not None and not world.is_consumed(record):
                raise ViolationError(f"lost: {record} at {place} below resume {answer.resume_offset}")
        self._take_skips(answer, origin_rows, destination_rows)
        if world.options.complete and not world.options.truncation:
            self._check_tight(answer, destination)

    def _excuse(self, answer: Resume, destination: Cluster) -> None:
        """Records in ranges that the answer names as never delivered, or as trimmed."""
        for part in answer.sources:
            trimmed = [] if part.trimmed is None else [LostRange(*part.trimmed, TargetOffset(0))]
            for gap in [*part.lost, *trimmed]:
                for cluster in self.world.clusters:
                    for record in cluster.entries:
                        if (
                            record is not None
                            and record.source == part.source
                            and gap.source_start <= record.offset < gap.source_end
                        ):
                            self.world.excused.add(record)
        if not self.world.options.complete:  # nobody can name what rows no longer tell of
            self.world.excused.update(
                record for record in destination.entries[: destination.low] if record is not None
            )
        for part in answer.sources:
            for gap in part.lost:
                for log in self.world.incarnations[part.source.region]:
                    if log.source == part.source:
                        self.world.excused.update(
                            record
                            for record in log.log[gap.source_start : gap.source_end]
                            if record is not None
                        )

    def _check_tight(self, answer: Resume, destination: Cluster) -> None:
        """With all rows and current watermarks the record at the answer is an unconsumed one."""
        if any(rows[-1].rows[-1].target_end != len(destination.entries) for rows in destination.copiers.values()):
            return
        place = skips_module.beyond(answer.resume_offset, self.skips)
        while place < len(destination.entries) and destination.entries[place] is None:
            place = TargetOffset(place + 1)  # markers are not records
        record = destination.entries[place] if place < len(destination.entries) else None
        if record is not None and record in self.consumed and record not in self.world.excused:
            raise ViolationError(f"too early: {record} at {place} was consumed; resume {answer.resume_offset}")

    def rewind(self) -> None:
        """An operator sets the group back on its own cluster."""
        self._notice_truncation()
        to = self.world.random.randint(self.cluster.low, max(self.commit, self.cluster.low))
        if to >= self.commit:
            return
        here = {record for record in self.cluster.entries if record is not None}
        below = {record for record in self.cluster.entries[:to] if record is not None}
        kept = self.consumed_before_move
        if self.progress is None or to < self.progress.resume_offset:
            self.skips, self.complete_to, kept = (), None, set()
        self.world.excused |= self.consumed - here  # nobody said whether to read these again
        self.consumed = (self.consumed & below) | (self.consumed & kept)
        self.commit = to


def run_world(seed: int, options: Options, steps: int = 60) -> World:
    """Play one world from its seed.

    Raises:
        ViolationError: a property does not hold, or the production code raised on a valid history.
    """
    world = World(seed, options)
    try:
        for _ in range(steps):
            world.step()
        world.finish()
    except ViolationError as violation:
        raise ViolationError(f"seed {seed}, {options}: {violation}") from violation
    except Exception as error:
        raise ViolationError(f"seed {seed}, {options}: raised {error!r}") from error
    return world


def options_of(seed: int) -> Options:
    """A varied world for a seed."""
    choice = random.Random(f"options-{seed}")
    return Options(
        regions=choice.randint(1, 4),
        clusters=choice.choice([2, 2, 3]),
        complete=choice.random() < 0.7,
        truncation=choice.random() < 0.25,
        retention=choice.random() < 0.3,
        recreation=choice.random() < 0.3,
        rewinds=choice.random() < 0.3,
        compaction=choice.random() < 0.2,
        epochs=choice.random() < 0.5,
    )
