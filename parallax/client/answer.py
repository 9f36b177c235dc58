"""Asks the offset service where groups resume, and reads its answers as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from parallax.client.client import OffsetClient, at_cluster
from parallax.client.messages import outcome_from_pb, progress_from_pb, skips_from_pb
from parallax.domain.commits import GroupCommit
from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    ClusterName,
    GroupName,
    RegionName,
    SourceId,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.metadata import CommittedMetadata, encode
from parallax.domain.outcome import Outcome
from parallax.domain.progress import Progress, SourcePosition
from parallax.domain.skips import SkipRange
from parallax.errors import LimitError
from parallax.v1 import offsets_pb2 as pb

_HARMLESS = frozenset({Outcome.OK, Outcome.STALE, Outcome.UNREACHABLE})
Pair = tuple[ClusterName, ClusterName]
"""Origin and target."""


@dataclass(frozen=True, slots=True)
class LostSource:
    """Source records that retention took before they were copied: ``[start, end)``."""

    region: RegionName
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ResumeAnswer:
    """The offset service's word on one partition of a move.

    Attributes:
        origin, target: the clusters that the group leaves and goes to.
        origin_next_offset: the group's position that the answer was computed from; None: it has none.
        origin_indexed_to: the index tells of all records of the origin below; None: some source has no row.
        origin_without_rows: source regions of which the index has no row at the origin.
        origin_answers: whether the origin's cluster told its log's end.
        basis: whose word the position is: caller, committed, observed, policy.
        observed_at_ms: when the position was seen, milliseconds since the Unix epoch, if not just now.
        outcome: the gravest of the notes.
        target_topic_id: empty where the topic is unknown at the target.
        low_watermark, high_watermark: of the target's partition; None if it has no such partition.
        vector: how far each source is consumed.
        skips: target offsets consumed already, at or above the resume offset, in order.
        complete_to: below it the skip ranges are complete; None: everywhere.
        skips_cut: more skip ranges are known than the answer holds.
        pending_records: consumed, and not at the target yet.
        redelivery_records: what a plain client reads again; None: record timestamps decided, so that it can't be known.
        redelivery_at_most_offsets: then, the most of what the target holds now.
        freshness_ms: age of the newest row at the target of the source that lags most; None: some source has no row.
        timestamp_problem: why record timestamps, though asked for, could not decide; empty otherwise.
    """

    topic_partition: TopicPartition
    origin: ClusterName
    target: ClusterName
    origin_next_offset: TargetOffset | None
    origin_indexed_to: TargetOffset | None
    origin_without_rows: tuple[RegionName, ...]
    origin_answers: bool
    basis: str
    observed_at_ms: int | None
    resume_offset: TargetOffset
    target_topic_id: TopicId
    low_watermark: int | None
    high_watermark: int | None
    outcome: Outcome
    notes: frozenset[Outcome]
    explanation: str
    vector: Mapping[SourceId, SourcePosition]
    skips: tuple[SkipRange, ...]
    complete_to: TargetOffset | None
    skips_cut: bool
    pending_records: int
    redelivery_records: int | None
    redelivery_at_most_offsets: int | None
    freshness_ms: int | None
    lost: tuple[LostSource, ...]
    timestamp_problem: str

    @property
    def indexed(self) -> bool:
        """Whether the index tells of all that was consumed at the origin."""
        position, indexed_to = self.origin_next_offset, self.origin_indexed_to
        return position is None or (indexed_to is not None and indexed_to >= position)

    @property
    def settled(self) -> bool:
        """Whether asking again later can't give a better answer: all that was consumed is indexed, and at the target.

        Where record timestamps decided, the operator has chosen not to wait for rows. A group without a position
        has nothing to wait for.
        """
        if self.origin_next_offset is None or Outcome.BY_TIMESTAMP in self.notes:
            return True
        return self.indexed and self.pending_records == 0

    @property
    def lacks(self) -> str:
        """What a settled answer needs and this one lacks, in words; empty if it is settled."""
        if self.settled:
            return ""
        if self.origin_without_rows:
            return (
                f"the index has no row of source {', '.join(self.origin_without_rows)} in {self.origin}: its route there "
                "has not run yet, or the index is not complete"
            )
        if not self.indexed:
            return (
                f"the index covers {self.origin} up to {self.origin_indexed_to or 0} only, and the group has consumed up "
                f"to {self.origin_next_offset}"
            )
        return f"{self.pending_records} consumed record(s) have not reached {self.target}"

    @property
    def final(self) -> bool:
        """Whether it also names every record to skip, and nothing is amiss: it holds while the group stands still.

        Rows of idle sources may be missing for long (STALE), and a cluster may be away (UNREACHABLE): neither changes
        what was consumed, and where it lies.
        """
        return self.settled and self.complete_to is None and self.notes <= _HARMLESS

    @property
    def skip_records(self) -> int:
        """How many offsets the skip ranges hold."""
        return sum(item.offsets for item in self.skips)

    @property
    def lag_offsets(self) -> int | None:
        """What lies at the target from the resume offset on; None: its end is not known."""
        return None if self.high_watermark is None else max(0, self.high_watermark - self.resume_offset)

    @property
    def progress(self) -> Progress:
        """What the move leaves at the target."""
        return Progress(self.target, self.target_topic_id, self.resume_offset, self.vector)

    def metadata(self, fencing_number: int = 0) -> CommittedMetadata:
        """What goes beside the offset.

        Args:
            fencing_number: of the decision that moves the group there; 0: it is passive there.
        """
        return CommittedMetadata(
            fencing_number=fencing_number,
            target_topic_id=self.target_topic_id,
            resume_offset=self.resume_offset,
            positions=self.vector,
            skips=self.skips,
            complete_to=self.complete_to,
        )

    def commit(self, fencing_number: int = 0) -> GroupCommit:
        """What to commit at the target; without metadata where even the positions alone are too long for Kafka.

        Args:
            fencing_number: as in `metadata`.
        """
        try:
            text = encode(self.metadata(fencing_number))
        except LimitError:
            text = ""
        return GroupCommit(self.resume_offset, UNKNOWN_EPOCH, text)


Answers = Mapping[Pair, Mapping[TopicPartition, ResumeAnswer]]


def ask(
    client: OffsetClient, group: GroupName, pair: Pair, topics: Sequence[TopicName]
) -> dict[TopicPartition, ResumeAnswer]:
    """Where each partition of the topics resumes.

    Raises:
        ParallaxError: as `OffsetClient.get_group_failover_offsets` says.
    """
    origin, target = pair
    return answers_from_pb(
        client.get_group_failover_offsets(
            group, origin=at_cluster(origin), to=at_cluster(target), topics=topics, pack_skip_ranges=True
        )
    )


def answers_from_pb(response: pb.GetGroupFailoverOffsetsResponse) -> dict[TopicPartition, ResumeAnswer]:
    """A group's answer, by partition; raises as `answer_from_pb` does."""
    answers = map(answer_from_pb, response.offsets)
    return {answer.topic_partition: answer for answer in answers}


def answer_from_pb(offset: pb.FailoverOffset) -> ResumeAnswer:
    """One partition's answer.

    Raises:
        InvalidNameError: its outcome is unknown; the service may be newer.
        InvalidOffsetError: an offset of its progress is negative.
    """
    origin, target, by_time = getattr(offset, "from"), offset.to, offset.by_timestamp
    # Both end what is known: some source is not there yet, or not all ranges fitted in.
    bounds = (present(offset, "complete_to"), present(offset, "skip_ranges_continue_at"))
    return ResumeAnswer(
        topic_partition=TopicPartition(TopicName(offset.topic), offset.partition),
        origin=ClusterName(origin.cluster),
        target=ClusterName(target.cluster),
        origin_next_offset=present(origin, "next_offset"),
        origin_indexed_to=present(origin, "indexed_to"),
        origin_without_rows=tuple(map(RegionName, origin.regions_without_rows)),
        origin_answers=origin.HasField("high_watermark"),
        basis=origin.basis,
        observed_at_ms=present(origin, "observed_at_ms"),
        resume_offset=TargetOffset(offset.resume_offset),
        target_topic_id=TopicId(target.topic_id),
        low_watermark=present(target, "low_watermark"),
        high_watermark=present(target, "high_watermark"),
        outcome=outcome_from_pb(offset.outcome),
        notes=frozenset(map(outcome_from_pb, (offset.outcome, *offset.notes))),
        explanation=offset.explanation,
        vector=progress_from_pb(offset.progress),
        skips=skips_from_pb(offset),
        complete_to=min((bound for bound in bounds if bound is not None), default=None),
        skips_cut=offset.HasField("skip_ranges_continue_at"),
        pending_records=offset.pending_records,
        redelivery_records=present(offset, "redelivery_records"),
        redelivery_at_most_offsets=present(by_time, "redelivery_at_most_offsets"),
        freshness_ms=present(offset, "freshness_ms"),
        lost=tuple(
            LostSource(RegionName(source.region), gap.start, gap.end)
            for source in offset.sources
            for gap in source.never_delivered
        ),
        timestamp_problem=by_time.problem,
    )


def present(message: Message, field: str) -> Any:
    """The field's value; None where it is absent."""
    return getattr(message, field) if message.HasField(field) else None
