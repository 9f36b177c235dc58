"""The consumer group of the model, behaving as a client that promises "once" must, and judging each answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from parallax.domain import progress as progress_module
from parallax.domain import resume as resume_module
from parallax.domain import skips as skips_module
from parallax.domain.history import History
from parallax.domain.ids import UNKNOWN_EPOCH, SourceId, TargetOffset
from parallax.domain.metadata import CommittedMetadata, decode, encode
from parallax.domain.outcome import Outcome
from parallax.domain.place import Via
from parallax.domain.progress import Progress, SourceHistory, TargetTruncation
from parallax.domain.resume import Resume, SourceAnswer
from parallax.domain.runs import LostRange
from tests.worlds.model_logs import Cluster, Record, ViolationError
from tests.worlds.model_replication import Replication


class Group:
    """One consumer group, behaving as a client that promises "once" must."""

    def __init__(self, world: Replication, cluster: Cluster) -> None:
        self.world = world
        self.cluster = cluster
        self.commit = 0
        self.commit_epoch = 0
        self.progress: Progress | None = None
        self.consumed: set[Record] = set()
        self.consumed_before_move: set[Record] = set()
        self.skips: Sequence[skips_module.SkipRange] = ()
        self.complete_to: int | None = None
        self.metadata = ""
        self.redelivered = 0
        self.skipped = 0
        self.moves = 0
        self.pending_moves = 0

    def is_consumed(self, record: Record) -> bool:
        world = self.world
        return any(
            record in some for some in (self.consumed, world.excused, world.unknowable, world.compacted)
        )

    @property
    def waiting(self) -> bool:
        """Whether records wait behind ``complete_to``."""
        return self.complete_to is not None and self.complete_to < self.cluster.stable_end()

    def settled_commit(self) -> int:
        """Where the group goes on here, whether or not it has noticed yet that a tail was lost."""
        cuts = [loss.cut for loss in self.cluster.truncations if self.commit_epoch < loss.leader_epoch]
        return min([self.commit, *cuts])

    def _forgotten(self, record: Record) -> bool:
        """Whether the position that was stored no longer names the record's leader epoch (`MAX_EPOCH_ENDS`)."""
        position = None if self.progress is None else self.progress.positions.get(record.source)
        kept = () if position is None else position.epoch_ends
        return len(dict(kept)) == progress_module.MAX_EPOCH_ENDS and record.epoch < kept[0][0]

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
            skipped = skips_module.after_skips(place, self.skips) > place
            if record is None:
                continue
            if skipped:
                self.skipped += 1
                if not self.is_consumed(record):
                    raise ViolationError(f"lost: skipped {record} at {place}, never consumed")
                continue
            limit -= 1
            if record in self.consumed and record not in self.world.excused:
                self.redelivered += 1
                told = self.world.options.complete and not self.world.options.truncation
                if told and not self._forgotten(record):
                    raise ViolationError(f"redelivered: {record} at {place}")
            self.consumed.add(record)

    def refresh_if_truncated(self) -> None:
        """Skip ranges above a cut name offsets that hold other records now."""
        if self.cluster.truncations and self.progress is not None:
            self.refresh()

    def refresh(self) -> None:
        """Ask again while something is pending, and take further skip ranges."""
        self._notice_truncation()
        self._notice_rewind()
        if self.progress is None:
            return
        histories = self.world.told(self.cluster).histories
        # The origin is not asked: what was consumed there is fixed in the progress vector.
        answer = resume_module.resume(
            commit=self.progress.resume_offset,
            regions=self.world.regions,
            origin=(),
            destination=histories,
            destination_log=self.cluster.log_range(),
            progress=self.progress,
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
        self.metadata = encode(
            CommittedMetadata(
                self.moves,
                self.cluster.topic_id,
                self.progress.resume_offset,
                self.progress.positions,
                self.skips,
                answer.complete_to,
            )
        )
        for item in self.skips:
            for place in range(max(item.start, self.cluster.low), item.end):
                record = self.cluster.entries[place]
                if record is not None and not self.is_consumed(record):
                    raise ViolationError(f"lost: {record} at {place} in a skip range, never consumed")

    def move(self, destination: Cluster) -> None:
        if destination is self.cluster:
            return
        world = self.world
        self.moves += 1
        origin = self.cluster
        if world.options.complete:
            world.settle(origin)
            if world.random.random() < 0.5:
                world.settle(destination)
        from_origin, destination_rows = world.told(origin), world.told(destination).histories
        origin_rows = from_origin.histories
        commit = self._settled(from_origin.truncations)
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
        self.pending_moves += answer.complete_to is not None
        self._check_lost_are_new(answer, (origin, origin_rows), (destination, destination_rows))
        self._excuse(answer, destination)
        self._check_lost_are_told(answer, commit, (origin, origin_rows), (destination, destination_rows))
        self.consumed_before_move = set(self.consumed)
        self.cluster, self.commit, self.commit_epoch = (
            destination,
            answer.resume_offset,
            destination.leader_epoch,
        )
        self.progress = Progress(
            destination.name, destination.topic_id, answer.resume_offset, answer.positions
        )
        for place in range(destination.low, answer.resume_offset):
            record = destination.entries[place]
            if record is not None and not self.is_consumed(record):
                raise ViolationError(f"lost: {record} at {place} below resume {answer.resume_offset}")
        self._take_skips(answer, origin_rows, destination_rows)
        if world.options.complete and not world.options.truncation:
            self._check_tight(answer, destination, origin_rows, destination_rows)

    def _check_lost_are_new(
        self,
        answer: Resume,
        origin: tuple[Cluster, Sequence[SourceHistory]],
        destination: tuple[Cluster, Sequence[SourceHistory]],
    ) -> None:
        """No record that the group has read is told as lost, where every row is there to say so."""
        if not self.world.options.complete or self.world.options.truncation:
            return
        lost: dict[tuple[SourceId, int], list[bool]] = {}
        for side, read in ((origin, self.consumed_before_move), (destination, self.consumed)):
            for history, _, record in _lost_records(*side):
                known = record in self.consumed and self._is_told_by_epochs(record, history, read)
                lost.setdefault((record.source, record.offset), []).append(known)
        for part in answer.sources:
            # What was read behind a lost range says nothing of the log before it.
            known_from = max(part.consumed.starts, default=0)
            for offset in (offset for gap in part.lost for offset in range(gap.source_start, gap.source_end)):
                if offset < known_from:
                    continue
                known_read = lost.get((part.source, offset), [])
                if known_read and all(known_read):
                    raise ViolationError(f"told as lost, though read: {part.source} {offset} of {part.lost}")

    def _is_told_by_epochs(self, record: Record, history: History, read: Iterable[Record]) -> bool:
        """Whether anything tells that what was lost is what was read: a leader epoch that goes on behind it in both logs."""
        runs = [row for row in history.rows if not row.is_watermark]
        behind = {row.source_leader_epoch for row in runs if row.source_start > record.offset}
        own = behind or {row.source_leader_epoch for row in runs[-1:]}
        mine = {
            other.epoch
            for other in read
            if other.source == record.source and other.offset >= record.offset and not self._forgotten(other)
        }
        return not own or bool(own & mine)

    def _check_lost_are_told(
        self,
        answer: Resume,
        commit: int,
        origin: tuple[Cluster, Sequence[SourceHistory]],
        destination: tuple[Cluster, Sequence[SourceHistory]],
    ) -> None:
        """Every record that the destination will never deliver is told, or lies before the group at the origin, too.

        Once the source has lost its tail, nothing may tell whose log a range was of until the group has passed it.
        """
        if self.world.options.truncation:
            return
        to_pass = {record for _, gap, record in _lost_records(*origin) if gap.target_at >= commit}
        coming = {record for record in destination[0].entries[answer.resume_offset :] if record is not None}
        for _, gap, record in _lost_records(*destination):
            if not self.is_consumed(record) and record not in to_pass and record not in coming:
                raise ViolationError(f"lost, and not told: {record} in {gap}")

    def _settled(self, truncations: Sequence[TargetTruncation]) -> TargetOffset:
        """The part of the commit that counts; not every client stores a leader epoch with it (KIP-320).

        Where no row tells of what was lost, be it by a commit's epoch or at all, nobody can know whether what was written
        there since has been read (docs/decisions/0003-lineage.md).
        """
        cuts = [loss.cut for loss in self.cluster.truncations if self.commit_epoch < loss.leader_epoch]
        low = min([cut for cut in cuts if cut < self.commit], default=self.commit)

        def tells(epoch: int) -> bool:
            return low == self.commit or any(
                loss.cut <= low
                and (epoch < loss.leader_epoch if epoch != UNKNOWN_EPOCH else self.commit <= loss.old_end)
                for loss in truncations
            )

        epoch = self.commit_epoch
        if not tells(epoch):
            self.world.unknowable.update(filter(None, self.cluster.entries[low : self.commit]))
        elif tells(UNKNOWN_EPOCH) and self.world.random.random() < 0.5:
            epoch = UNKNOWN_EPOCH
        return progress_module.settled_commit(TargetOffset(self.commit), truncations, epoch)

    def _excuse(self, answer: Resume, destination: Cluster) -> None:
        """Records in ranges that the answer names as never delivered, or as trimmed."""
        world = self.world
        named: set[tuple[SourceId, int]] = set()
        for part in answer.sources:
            ranges = [(gap.source_start, gap.source_end) for gap in part.lost]
            if part.trimmed is not None:
                ranges.append(part.trimmed)
            named |= {(part.source, offset) for start, end in ranges for offset in range(start, end)}
        logs = [cluster.entries for cluster in world.clusters]
        logs += [log.ever for incarnations in world.incarnations.values() for log in incarnations]
        world.excused |= {
            record
            for log in logs
            for record in log
            if record is not None and (record.source, record.offset) in named
        }
        if not world.options.complete:  # nobody can name what rows no longer tell of
            world.excused |= {
                record for record in destination.entries[: destination.low] if record is not None
            }

    def _check_tight(
        self,
        answer: Resume,
        destination: Cluster,
        origin_rows: Sequence[SourceHistory],
        destination_rows: Sequence[SourceHistory],
    ) -> None:
        """With all rows and current watermarks the record at the answer is an unconsumed one."""
        if any(self._place_unknown(part, origin_rows, destination_rows) for part in answer.sources):
            return
        newest = [copier.newest for copier in destination.copiers.values()]
        if any(row is None or row.target_end != len(destination.entries) for row in newest):
            return
        place = skips_module.after_skips(answer.resume_offset, self.skips)
        while place < len(destination.entries) and destination.entries[place] is None:
            place = skips_module.after_skips(TargetOffset(place + 1), self.skips)  # markers are not records
        record = destination.entries[place] if place < len(destination.entries) else None
        if record is None or record in self.world.excused or self._forgotten(record):
            return
        if record in self.consumed:
            raise ViolationError(
                f"too early: {record} at {place} was consumed; resume {answer.resume_offset}"
            )

    def _place_unknown(
        self, part: SourceAnswer, origin: Sequence[SourceHistory], destination: Sequence[SourceHistory]
    ) -> bool:
        """Whether it can't be told where an incarnation belongs that the destination never saw.

        A topic that is created anew twice before a replicator looks: it copies the last one alone.
        """
        here = [item.source for item in destination if item.source.region == part.source.region]
        return part.source not in here and (
            part.via is Via.LOG_START or not {item.source for item in origin}.issuperset(here[-1:])
        )

    def restart(self) -> None:
        """A client that starts anew knows what its committed offset says, and nothing else.

        What it says is void below the resume offset that it names.
        """
        self._notice_truncation()
        self._notice_rewind()
        if self.progress is None:
            return
        known = decode(self.metadata)
        assert known.resume_offset == self.progress.resume_offset
        assert known.positions == self.progress.positions
        self.skips = tuple(
            skips_module.SkipRange(TargetOffset(max(item.start, self.commit)), item.end)
            for item in known.skips
            if item.end > self.commit
        )
        self.complete_to = known.complete_to

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
        if self.progress is not None and to >= self.progress.resume_offset:
            self.refresh()  # a client set back above it asks again: an operator's commit carries no metadata


def _lost_records(
    cluster: Cluster, histories: Sequence[SourceHistory]
) -> Iterator[tuple[History, LostRange, Record]]:
    """What retention took before it was copied to a cluster, as far as the rows tell of it."""
    for item in histories:
        lost = cluster.copiers[item.source.region].lost_records
        for gap in item.history.lost:
            yield from (
                (item.history, gap, record) for record in lost.get(gap, ()) if record.source == item.source
            )
