"""Asks the offset service where groups resume, and reads its answers as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parallax.client.client import OffsetClient, at_cluster
from parallax.client.messages import outcome_from_pb, progress_from_pb
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    SourceId,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.metadata import CommittedMetadata, encode
from parallax.domain.outcome import Outcome
from parallax.domain.progress import SourcePosition
from parallax.domain.skips import SkipRange
from parallax.errors import LimitError
from parallax.v1 import offsets_pb2 as pb

_HARMLESS = frozenset({Outcome.OK, Outcome.STALE, Outcome.UNREACHABLE})
Pair = tuple[ClusterName, ClusterName]
"""Origin and target."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The offset service's word on one partition of a move.

    Attributes:
        origin_next_offset: the group's position that the answer was computed from; None: it has none.
        origin_indexed_to: the index tells of all records of the origin below; None: some source has no row.
        pending_records: consumed, and not at the target yet.
        target_topic_id: empty where the topic is unknown at the target.
        low_watermark, high_watermark: of the target's partition; None if it has no such partition.
        vector: how far each source is consumed.
        complete_to: below it the skip ranges are complete; None: everywhere.
    """

    topic_partition: TopicPartition
    origin_next_offset: TargetOffset | None
    resume_offset: TargetOffset
    target_topic_id: TopicId
    low_watermark: int | None
    high_watermark: int | None
    outcome: Outcome
    notes: frozenset[Outcome]
    vector: Mapping[SourceId, SourcePosition]
    skips: tuple[SkipRange, ...] = ()
    complete_to: TargetOffset | None = None
    origin_indexed_to: TargetOffset | None = None
    pending_records: int = 0

    @property
    def settled(self) -> bool:
        """Whether asking again later can't give a better answer: all that was consumed is indexed, and at the target."""
        position = self.origin_next_offset
        if position is None:
            return True
        indexed = self.origin_indexed_to is not None and self.origin_indexed_to >= position
        return indexed and self.pending_records == 0

    @property
    def final(self) -> bool:
        """Whether it also names every record to skip, and nothing is amiss: it holds while the group stands still.

        Rows of idle sources may be missing for long (STALE), and a cluster may be away (UNREACHABLE): neither changes
        what was consumed, and where it lies.
        """
        return self.settled and self.complete_to is None and self.notes <= _HARMLESS


Answers = Mapping[Pair, Mapping[TopicPartition, Answer]]


def metadata_for(answer: Answer, fencing_number: int = 0) -> str:
    """What goes beside the offset; empty where even the positions alone are too long for Kafka.

    Args:
        answer: the offset's answer.
        fencing_number: of the decision that moves the group there; 0: it is passive there.
    """
    metadata = CommittedMetadata(
        fencing_number=fencing_number,
        target_topic_id=answer.target_topic_id,
        resume_offset=answer.resume_offset,
        positions=answer.vector,
        skips=answer.skips,
        complete_to=answer.complete_to,
    )
    try:
        return encode(metadata)
    except LimitError:
        return ""


def ask(
    client: OffsetClient, group: GroupName, pair: Pair, topics: Sequence[TopicName]
) -> dict[TopicPartition, Answer]:
    """Where each partition of the topics resumes.

    Raises:
        ParallaxError: as `OffsetClient.get_group_failover_offsets` says.
    """
    origin, target = pair
    response = client.get_group_failover_offsets(
        group, origin=at_cluster(origin), to=at_cluster(target), topics=topics
    )
    answers = [answer_from_pb(offset) for offset in response.offsets]
    return {answer.topic_partition: answer for answer in answers}


def answer_from_pb(offset: pb.FailoverOffset) -> Answer:
    """One partition's answer.

    Raises:
        InvalidNameError: its outcome is unknown; the service may be newer.
    """
    origin, target = getattr(offset, "from"), offset.to
    return Answer(
        topic_partition=TopicPartition(TopicName(offset.topic), offset.partition),
        origin_next_offset=TargetOffset(origin.next_offset) if origin.HasField("next_offset") else None,
        resume_offset=TargetOffset(offset.resume_offset),
        target_topic_id=TopicId(target.topic_id),
        low_watermark=target.low_watermark if target.HasField("low_watermark") else None,
        high_watermark=target.high_watermark if target.HasField("high_watermark") else None,
        outcome=outcome_from_pb(offset.outcome),
        notes=frozenset(map(outcome_from_pb, offset.notes)),
        vector=progress_from_pb(offset.progress),
        skips=tuple(
            SkipRange(TargetOffset(item.start), TargetOffset(item.end)) for item in offset.skip_ranges
        ),
        complete_to=TargetOffset(offset.complete_to) if offset.HasField("complete_to") else None,
        origin_indexed_to=TargetOffset(origin.indexed_to) if origin.HasField("indexed_to") else None,
        pending_records=offset.pending_records,
    )
