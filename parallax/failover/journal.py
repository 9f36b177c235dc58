"""What a move has done so far, as kept in the journal: enough to go on, and to go back."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from itertools import dropwhile, islice
from typing import Any, TypeVar

from parallax.adapters.cassandra.groups import progress_from_text, progress_to_text
from parallax.domain.commits import Commits, GroupCommit
from parallax.domain.formats import read_text, stored_text
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    RegionName,
    TargetOffset,
    TopicName,
    TopicPartition,
    region_of,
)
from parallax.domain.metadata import decode, encode, is_ours
from parallax.domain.primary import Assignment, Mode
from parallax.domain.progress import Progress
from parallax.errors import LimitError, MetadataError
from parallax.failover.facts import Move, MoveKind
from parallax.failover.timekeeper import Timekeeper
from parallax.ports.groups import OperationJournal, OperationNote

T = TypeVar("T")

MOVE_FORMAT = 1
SUMMARY_FORMAT = 1
"""What is written, and the newest that is read."""

_DIGEST_DIGITS = 16


class Step(Enum):
    """How far a move is; each step may be taken again."""

    BEGUN = "begun"
    """The snapshot is kept; nothing was changed."""
    FENCED = "fenced"
    """The group is recorded as moving: nobody consumes, nobody else publishes."""
    WRITTEN = "written"
    """The final offsets stand at the target."""
    DONE = "done"
    """The target is primary."""
    ABANDONED = "abandoned"
    """The fence was lifted before anything was written, and the group goes on where it was; or another move led it elsewhere."""
    ROLLED_BACK = "rolled_back"
    """The snapshot was put back."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A commit that a move has made, as far as it takes to know it again.

    Attributes:
        digest: of its metadata, which may be 4 KB long.
    """

    next_offset: TargetOffset
    digest: str


def reason_of(operation_id: str) -> str:
    """How the reasons of a move's decisions begin, by which they are known again."""
    return f"failover {operation_id}"


def own_reason(words: str) -> str:
    """The reason of one attempt's decisions: what another process decides for the same thing is no repetition of them."""
    return f"{words} {uuid.uuid4().hex[:12]}"


def mark_of(commit: GroupCommit) -> Mark:
    """What the commit is known again by."""
    digest = hashlib.sha256(commit.metadata.encode()).hexdigest()
    return Mark(commit.next_offset, digest[:_DIGEST_DIGITS])


def without_skips(commit: GroupCommit) -> GroupCommit:
    """A commit of ours with the same meaning in fewer bytes: what is to be skipped is asked for where it is needed."""
    if not is_ours(commit.metadata):
        return commit
    try:
        metadata = decode(commit.metadata)
        shorter = replace(metadata, skips=(), complete_to=metadata.resume_offset)
        return replace(commit, metadata=encode(shorter)) if metadata.skips else commit
    except (LimitError, MetadataError):
        return commit


ENDED = {Step.DONE, Step.ABANDONED, Step.ROLLED_BACK}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A group before a move.

    Attributes:
        commits: by cluster, of those that answered; those put at the target by us without their skip ranges.
        progress: what its last moves had left.
        fencing_number: 0 if no primary was recorded.
        primary: the region that was primary; None if none was recorded.
    """

    commits: Mapping[ClusterName, Commits]
    progress: Mapping[TopicPartition, Progress]
    fencing_number: int
    primary: RegionName | None


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """A move as far as it has come.

    Attributes:
        version: grows with each note.
        assigned: topics that were assigned to the group's members before the fence made them leave.
        fencing_number: of its latest decision.
        written: by what the commits put at the target are known again.
        left_at: the positions at the origin that these were computed from.
        problem: what stopped it last; empty otherwise.
        actor: whose command took it on last; empty: kept by a release that did not say.
    """

    move: Move
    operation_id: str
    started_at_ms: int
    version: int
    step: Step
    snapshot: Snapshot
    assigned: frozenset[TopicName] = frozenset()
    fencing_number: int = 0
    written: Mapping[TopicPartition, Mark] = field(default_factory=dict)
    left_at: Mapping[TopicPartition, TargetOffset] = field(default_factory=dict)
    problem: str = ""
    actor: str = ""

    @property
    def ended(self) -> bool:
        """Whether there is nothing to go on with."""
        return self.step in ENDED

    @property
    def fenced(self) -> bool:
        """Whether the group is known to consume nowhere."""
        return self.step in {Step.FENCED, Step.WRITTEN}

    def done(self, assignment: Assignment | None) -> bool:
        """Whether the target is primary, as the record says or, where its last note is missing, what holds for the group."""
        if self.ended or assignment is None:
            return self.step is Step.DONE
        if assignment.decision.mode is Mode.ACTIVE_ACTIVE:
            # No offsets are written: the decision says whose it is.
            return assignment.decision.reason.startswith(reason_of(self.operation_id))
        if not self.written:
            return False
        settled = (assignment.consumed_cluster, assignment.decision.primary)
        return settled == (self.move.target, self.move.region)

    @property
    def standing(self) -> str:
        """What an interruption leaves behind, to be told after its cause."""
        if not self.fenced:
            return "; whether the group is fenced already is not known (parallax primary)"
        written = (
            f"its offsets stand in {self.move.target}, and unless it is primary there already (parallax primary) "
            if self.step is Step.WRITTEN
            else ""
        )
        return (
            f"; {written}the group is fenced and consumes nowhere (fencing number {self.fencing_number}): run the "
            "command again, or `parallax failover rollback`"
        )


def home_of(assignment: Assignment | None, newest: MoveRecord | None) -> RegionName | None:
    """The region that is primary, or was before the move that is under way; None: none is recorded.

    Args:
        assignment: what holds for the group.
        newest: its newest operation.
    """
    if assignment is None:
        return None
    left = assignment.decision.moving_from
    if left is None:
        return assignment.decision.primary
    under_way = newest is not None and not newest.ended and newest.move.origin == left
    primary = newest.snapshot.primary if newest is not None and under_way else None
    return region_of(left) if primary is None else primary


class MoveJournal:
    """The moves of all groups, as far as they have come.

    Args:
        notes: where they are kept.
        time: what time it is.
    """

    def __init__(self, notes: OperationJournal, time: Timekeeper) -> None:
        self.notes = notes
        self._time = time

    def now_ms(self) -> int:
        """The clock by which records are kept."""
        return self._time.now_ms()

    def records(self, group: GroupName) -> Sequence[MoveRecord]:
        """The group's moves, the newest first.

        Raises:
            UnreadableRowError: one can't be read by this release.
        """
        return list(self.each(group))

    def each(self, group: GroupName) -> Iterator[MoveRecord]:
        """The same one after the other, each read when it is asked for; raises as `records` does."""
        return map(record_of, self.notes.operations(group))

    def newest(self, group: GroupName) -> MoveRecord | None:
        """The group's newest move; None: it was never moved.

        Raises:
            UnreadableRowError: it can't be read by this release.
        """
        return next(self.each(group), None)

    def begin(
        self,
        move: Move,
        snapshot: Snapshot,
        newest: MoveRecord | None,
        assigned: frozenset[TopicName] = frozenset(),
        *,
        actor: str = "",
        operation_id: str = "",
    ) -> MoveRecord:
        """A new operation after the group's ``newest`` one, kept before anything is changed.

        Args:
            move: what is done.
            snapshot: the group before it.
            newest: the group's newest operation until now.
            assigned: as in `MoveRecord`.
            actor: as in `MoveRecord`.
            operation_id: what it is called; empty: a name of its own.
        """
        # Records are sorted by this, and not every operator's clock is right.
        now_ms = self._time.now_ms()
        started_ms = now_ms if newest is None else max(now_ms, newest.started_at_ms + 1)
        return self.keep(
            MoveRecord(
                move,
                operation_id or uuid.uuid4().hex,
                started_ms,
                started_ms * 1_000,
                Step.BEGUN,
                snapshot,
                assigned,
                actor=actor,
            )
        )

    def keep(self, record: MoveRecord) -> MoveRecord:
        """Keep how far a move is; returns it with its new version."""
        newer = replace(record, version=max(record.version + 1, self._time.now_ms() * 1_000))
        self.notes.save_operation(note_of(newer))
        return newer

    def supersede(self, record: MoveRecord) -> None:
        """End the moves of the same group, before one that is done, that left the same cluster and did not come to their end.

        Raises:
            UnreadableRowError: one can't be read by this release.
        """
        since = dropwhile(lambda item: item.operation_id != record.operation_id, self.each(record.move.group))
        for item in islice(since, 1, None):
            if item.step in {Step.DONE, Step.ROLLED_BACK}:
                return
            if not item.ended and item.move.origin == record.move.origin:
                words = f"superseded by move {record.operation_id} to {record.move.target}"
                self.keep(replace(item, step=Step.ABANDONED, problem=words))


def note_of(record: MoveRecord) -> OperationNote:
    """The record for the journal."""
    move, snapshot = record.move, record.snapshot
    body = {
        "origin": move.origin,
        "target": move.target,
        "region": move.region,
        "kind": move.kind.value,
        "step": record.step.value,
        "fencing_number": record.fencing_number,
        "problem": record.problem,
        "actor": record.actor,
        "assigned": sorted(record.assigned),
        "written": _listed(record.written, lambda mark: (mark.next_offset, mark.digest)),
        "left_at": _listed(record.left_at, lambda offset: (offset,)),
        "snapshot": {
            "fencing_number": snapshot.fencing_number,
            "primary": snapshot.primary,
            "commits": {
                cluster: _listed(
                    items, lambda commit: (commit.next_offset, commit.leader_epoch, commit.metadata)
                )
                for cluster, items in snapshot.commits.items()
            },
            "progress": _listed(snapshot.progress, lambda left: (progress_to_text(left),)),
        },
    }
    return OperationNote(
        move.group,
        record.started_at_ms,
        record.operation_id,
        record.version,
        stored_text(body, MOVE_FORMAT),
        summary_to_text(summary_of(record)),
    )


@dataclass(frozen=True, slots=True)
class MoveSummary:
    """A move as lists show it: without what it takes to go on with it, which may be large.

    Attributes:
        partitions: whose offsets it has written.
        problem: what stopped it last; empty otherwise.
        actor: whose command took it on last; empty: kept by a release that did not say.
    """

    move: Move
    operation_id: str
    started_at_ms: int
    updated_at_ms: int
    step: Step
    fencing_number: int
    partitions: int
    problem: str
    actor: str = ""


def summary_of(record: MoveRecord) -> MoveSummary:
    """The summary of a move."""
    return MoveSummary(
        record.move,
        record.operation_id,
        record.started_at_ms,
        record.version // 1_000,
        record.step,
        record.fencing_number,
        len(record.written),
        record.problem,
        record.actor,
    )


def summary_to_text(summary: MoveSummary) -> str:
    """What the key of a summary does not say."""
    move = summary.move
    values = {
        "origin": move.origin,
        "target": move.target,
        "region": move.region,
        "kind": move.kind.value,
        "step": summary.step.value,
        "updated_at_ms": summary.updated_at_ms,
        "fencing_number": summary.fencing_number,
        "partitions": summary.partitions,
        "problem": summary.problem,
        "actor": summary.actor,
    }
    return stored_text(values, SUMMARY_FORMAT)


def summary_from(note: OperationNote) -> MoveSummary:
    """The summary of a note, or of the record in its body; raises as `parallax.domain.formats.read_text` does."""
    if not note.summary:
        return summary_of(record_of(note))
    where = f"operations_by_week of group {note.group!r}, operation {note.operation_id},"
    return read_text(note.summary, SUMMARY_FORMAT, partial(_summary, note), where)


def _summary(note: OperationNote, values: Mapping[str, Any]) -> MoveSummary:
    return MoveSummary(
        _move(note.group, values),
        note.operation_id,
        note.started_at_ms,
        values["updated_at_ms"],
        Step(values["step"]),
        values["fencing_number"],
        values["partitions"],
        values["problem"],
        values.get("actor", ""),  # summaries of earlier versions don't say
    )


def _move(group: GroupName, values: Mapping[str, Any]) -> Move:
    return Move(
        group,
        ClusterName(values["origin"]),
        ClusterName(values["target"]),
        RegionName(values["region"]),
        MoveKind(values["kind"]),
    )


def record_of(note: OperationNote) -> MoveRecord:
    """The record written by `note_of`; raises as `parallax.domain.formats.read_text` does."""
    where = f"operations of group {note.group!r}, operation {note.operation_id},"
    return read_text(note.body, MOVE_FORMAT, partial(_record, note), where)


def _record(note: OperationNote, body: Mapping[str, Any]) -> MoveRecord:
    snapshot = body["snapshot"]
    primary = snapshot["primary"]
    return MoveRecord(
        move=_move(note.group, body),
        operation_id=note.operation_id,
        started_at_ms=note.started_at_ms,
        version=note.version,
        step=Step(body["step"]),
        snapshot=Snapshot(
            commits={
                ClusterName(cluster): _mapped(rows, GroupCommit)
                for cluster, rows in snapshot["commits"].items()
            },
            progress=_mapped(snapshot["progress"], progress_from_text),
            fencing_number=snapshot["fencing_number"],
            primary=None if primary is None else RegionName(primary),
        ),
        assigned=frozenset(TopicName(topic) for topic in body["assigned"]),
        fencing_number=body["fencing_number"],
        written=_mapped(body["written"], Mark),
        left_at=_mapped(body.get("left_at", ()), TargetOffset),  # notes of earlier versions don't say
        problem=body["problem"],
        actor=body.get("actor", ""),
    )


def _listed(values: Mapping[TopicPartition, T], cells: Callable[[T], tuple[Any, ...]]) -> list[list[Any]]:
    return [[item.topic, item.partition, *cells(value)] for item, value in values.items()]


def _mapped(rows: Iterable[list[Any]], make: Callable[..., T]) -> dict[TopicPartition, T]:
    return {TopicPartition(TopicName(topic), partition): make(*cells) for topic, partition, *cells in rows}
