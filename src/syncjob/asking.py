"""Asks the offset service where a group resumes, and reads its answers as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offsetsvc.client import OffsetClient, at_cluster
from offsetsvc.pb import offsets_pb2 as pb
from parallax.domain.ids import (
    GroupName,
    RegionName,
    SourceId,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.outcome import Outcome
from parallax.domain.progress import SourcePosition
from parallax.domain.skips import SkipRange
from syncjob.facts import Answer, Pair


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
    """One partition's answer."""
    origin, target = getattr(offset, "from"), offset.to
    return Answer(
        topic_partition=TopicPartition(TopicName(offset.topic), offset.partition),
        origin_next_offset=TargetOffset(origin.next_offset) if origin.HasField("next_offset") else None,
        resume_offset=TargetOffset(offset.resume_offset),
        target_topic_id=TopicId(target.topic_id),
        low_watermark=target.low_watermark if target.HasField("low_watermark") else None,
        high_watermark=target.high_watermark if target.HasField("high_watermark") else None,
        outcome=Outcome[pb.Outcome.Name(offset.outcome)],
        notes=frozenset(Outcome[pb.Outcome.Name(note)] for note in offset.notes),
        vector=vector_from_pb(offset.progress),
        skips=tuple(
            SkipRange(TargetOffset(item.start), TargetOffset(item.end)) for item in offset.skip_ranges
        ),
        complete_to=TargetOffset(offset.complete_to) if offset.HasField("complete_to") else None,
    )


def vector_to_pb(vector: Mapping[SourceId, SourcePosition]) -> list[pb.SourceProgress]:
    """The way back."""
    return [
        pb.SourceProgress(
            region=source.region,
            source_topic_id=source.topic_id,
            source_next_offset=position.source_next,
            source_leader_epoch=position.leader_epoch,
            epoch_ends=[
                pb.EpochEnd(leader_epoch=epoch, source_next_offset=end) for epoch, end in position.epoch_ends
            ],
        )
        for source, position in vector.items()
    ]


def vector_from_pb(progress: Sequence[pb.SourceProgress]) -> Mapping[SourceId, SourcePosition]:
    """How far each source is consumed; the order is kept."""
    return {
        SourceId(RegionName(item.region), TopicId(item.source_topic_id)): SourcePosition(
            item.source_leader_epoch,
            SourceOffset(item.source_next_offset),
            tuple((end.leader_epoch, SourceOffset(end.source_next_offset)) for end in item.epoch_ends),
        )
        for item in progress
    }
