"""Asks the offset service where a group resumes, and reads its answers as plain values."""

from __future__ import annotations

from collections.abc import Sequence

from offsetsvc.transport.messages import outcome_from_pb, progress_from_pb
from parallax.client.client import OffsetClient, at_cluster
from parallax.domain.ids import GroupName, TargetOffset, TopicId, TopicName, TopicPartition
from parallax.domain.skips import SkipRange
from parallax.v1 import offsets_pb2 as pb
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
