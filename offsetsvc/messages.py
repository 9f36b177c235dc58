"""Between the messages of `offsets.proto` and the values that answers are made of, both ways."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from offsetsvc.answers import (
    ByTimestamp,
    FailoverAnswer,
    ReportedMove,
    ReportedPosition,
    Side,
    SkipPage,
    SourceView,
    TimestampPolicy,
)
from offsetsvc.resume.explain import explain
from offsetsvc.resume.many import ManyMapped
from offsetsvc.resume.partition import ClusterState
from parallax.client.messages import (
    offset_from_pb,
    outcome_to_pb,
    packed,
    progress_fields,
    progress_from_pb,
)
from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    ClusterName,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.lineage_history import Stretch
from parallax.domain.outcome import Outcome, gravest
from parallax.domain.progress import Progress
from parallax.domain.runs import LostRange, Run
from parallax.errors import InvalidNameError, InvalidOffsetError, UnknownPartitionError
from parallax.v1 import offsets_pb2 as pb


def policy_from_pb(
    request: pb.GetFailoverOffsetRequest | pb.GetGroupFailoverOffsetsRequest,
) -> TimestampPolicy | None:
    """The caller's choice of record timestamps; None: it did not choose them.

    Raises:
        InvalidOffsetError: a time is negative.
    """
    if not request.HasField("by_timestamp"):
        return None
    policy = request.by_timestamp
    margin_ms = policy.margin_ms if policy.HasField("margin_ms") else None
    timestamp_ms = policy.timestamp_ms if policy.HasField("timestamp_ms") else None
    for value, what in ((margin_ms, "margin_ms"), (timestamp_ms, "timestamp_ms")):
        if value is not None and value < 0:
            raise InvalidOffsetError(f"{what} {value} is negative")
    return TimestampPolicy(margin_ms, timestamp_ms)


def position_from_pb(item: pb.PartitionPosition) -> ReportedPosition:
    """A caller's position.

    Raises:
        InvalidOffsetError: the offset is negative.
        UnknownPartitionError: the partition is negative.
        InvalidNameError: the topic's name is empty.
    """
    return ReportedPosition(
        partition_from(item.topic, item.partition),
        TargetOffset(offset_from_pb(item.next_offset, f"next_offset of {item.topic}-{item.partition}")),
        item.leader_epoch if item.HasField("leader_epoch") else UNKNOWN_EPOCH,
    )


def move_from_pb(item: pb.PartitionMove, cluster: ClusterName) -> ReportedMove:
    """A move to ``cluster`` that a caller has made; raises as `position_from_pb` does."""
    topic_id = TopicId(item.target_topic_id)
    resume_offset = TargetOffset(
        offset_from_pb(item.resume_offset, f"resume_offset of {item.topic}-{item.partition}")
    )
    return ReportedMove(
        partition_from(item.topic, item.partition),
        topic_id,
        Progress(cluster, topic_id, resume_offset, progress_from_pb(item.progress)),
    )


def partition_from(topic: str, partition: int) -> TopicPartition:
    """A partition of a request.

    Raises:
        InvalidNameError: the topic's name is empty.
        UnknownPartitionError: the number is negative.
    """
    if not topic:
        raise InvalidNameError("topic: the name is empty")
    if partition < 0:
        raise UnknownPartitionError(f"partition {partition} of topic {topic!r} is negative")
    return TopicPartition(TopicName(topic), partition)


def failover_to_pb(answer: FailoverAnswer, *, pack: bool = False) -> pb.FailoverOffset:
    """A partition's answer.

    Args:
        answer: the answer.
        pack: tell its skip ranges as ``packed_skip_ranges``.
    """
    # What is made within the message that holds it need not be copied there.
    parts: dict[str, Any] = {
        "from": _side(answer.origin),
        "to": _side(answer.destination),
        "sources": [_source(view, answer) for view in answer.sources],
        "progress": progress_fields(answer.progress),
    }
    return pb.FailoverOffset(
        group=answer.group,
        topic=answer.topic_partition.topic,
        partition=answer.topic_partition.partition,
        resume_offset=answer.resume_offset,
        outcome=outcome_to_pb(answer.outcome),
        notes=[outcome_to_pb(note) for note in answer.notes],
        explanation=explain(answer),
        skip_ranges=() if pack else _ranges(answer.skip_ranges),
        packed_skip_ranges=packed(answer.skip_ranges) if pack else (),
        complete_to=answer.complete_to,
        skip_ranges_continue_at=answer.skip_ranges_continue_at,
        redelivery_records=answer.redelivery_records,
        pending_records=answer.pending_records,
        freshness_ms=answer.freshness_ms,
        nearest_checkpoint_offset=answer.nearest_checkpoint_offset,
        by_timestamp=_by_timestamp(answer.by_timestamp),
        **parts,
    )


def group_to_pb(
    answers: Iterable[FailoverAnswer], *, origin_away: bool = False, pack: bool = False
) -> pb.GetGroupFailoverOffsetsResponse:
    """A group's answer; one without offsets says why there are none.

    Args:
        answers: of its partitions.
        origin_away: the origin could not be asked.
        pack: as in `failover_to_pb`.
    """
    items = list(answers)
    nothing = Outcome.UNREACHABLE if origin_away else Outcome.NO_COMMIT
    return pb.GetGroupFailoverOffsetsResponse(
        offsets=[failover_to_pb(item, pack=pack) for item in items],
        outcome=outcome_to_pb(gravest(item.outcome for item in items) if items else nothing),
    )


def positions_from_pb(request: pb.MapPositionsRequest) -> dict[TopicPartition, Sequence[int]]:
    """The positions of a request by partition; raises as `partition_from` does, and `InvalidNameError` where one is named twice."""
    found: dict[TopicPartition, Sequence[int]] = {}
    for item in request.partitions:
        partition = partition_from(item.topic, item.partition)
        if partition in found:
            raise InvalidNameError(f"partition {partition} is named twice")
        found[partition] = list(item.next_offsets)
    return found


def mapped_to_pb(items: Iterable[ManyMapped]) -> pb.MapPositionsResponse:
    """Answers for many positions."""
    return pb.MapPositionsResponse(partitions=map(_mapped, items))


def _mapped(item: ManyMapped) -> pb.MappedPartition:
    question, found, partition = item.question, item.answers, item.topic_partition
    sides: dict[str, Any] = {}
    if question is not None:
        sides |= {"from": _end_of(question.origin), "to": _end_of(question.destination)}
    if found is None:
        return pb.MappedPartition(
            topic=partition.topic, partition=partition.partition, left_out=item.left_out, **sides
        )
    sides["from"]["indexed_to"] = item.origin_known_to
    return pb.MappedPartition(
        topic=partition.topic,
        partition=partition.partition,
        resume_offsets=found.resume_offsets.tolist(),
        complete_to=found.complete_to.tolist(),
        notes=found.notes.tolist(),
        pending_records=found.pending.tolist(),
        sources=[
            pb.MappedSource(
                region=source.source.region,
                source_topic_id=source.source.topic_id,
                source_next_offsets=source.consumed.tolist(),
                source_leader_epochs=source.epochs.tolist(),
                epoch_ends=[
                    pb.EpochEnd(leader_epoch=epoch, source_next_offset=end) for epoch, end in source.ends
                ],
            )
            for source in found.sources
        ],
        skip_counts=found.skip_counts.tolist(),
        packed_skip_ranges=found.packed_skips().tolist(),
        left_out=item.left_out,
        **sides,
    )


def _end_of(state: ClusterState) -> dict[str, Any]:
    """The fields of a ``ClusterPosition`` that no position has a part in."""
    return {
        "cluster": state.cluster,
        "topic_id": state.topic_id,
        "low_watermark": None if state.log is None else state.log.low_watermark,
        "high_watermark": None if state.log is None else state.log.high_watermark,
    }


def page_to_pb(page: SkipPage) -> pb.SkipUpdate:
    """An update of a watch."""
    return pb.SkipUpdate(
        skip_ranges=_ranges(page.skip_ranges),
        complete_to=page.complete_to,
        pending_records=page.pending_records,
    )


def _by_timestamp(choice: ByTimestamp | None) -> pb.ByTimestamp | None:
    if choice is None:
        return None
    return pb.ByTimestamp(
        basis=choice.basis.value,
        margin_ms=choice.margin_ms,
        timestamp_ms=choice.timestamp_ms,
        problem=choice.problem,
        redelivery_at_most_offsets=choice.redelivery_at_most_offsets,
    )


def _side(side: Side) -> dict[str, Any]:
    """The fields of a ``ClusterPosition``."""
    return {
        "cluster": side.cluster,
        "topic_id": side.topic_id,
        "next_offset": side.next_offset,
        "low_watermark": None if side.log is None else side.log.low_watermark,
        "high_watermark": None if side.log is None else side.log.high_watermark,
        "lag_offsets": side.lag_offsets,
        "observed_at_ms": side.observed_at_ms,
        "basis": "" if side.basis is None else side.basis.value,
        "indexed_to": side.indexed_to,
        "regions_without_rows": side.without_rows,
    }


def _source(view: SourceView, whole: FailoverAnswer) -> dict[str, Any]:
    """The fields of a ``SourcePart``."""
    answer = view.answer
    proofs = ((view.proof, whole.origin.cluster), (view.place, whole.destination.cluster))
    pending = answer.pending
    return {
        "region": answer.source.region,
        "source_topic_id": answer.source.topic_id,
        "consumed_next_offset": answer.consumed.source_next,
        "consumed_leader_epoch": answer.consumed.leader_epoch,
        "position": answer.position,
        "via": answer.via.value,
        "reached_next_offset": answer.reached_next,
        "pending": None if pending is None else {"start": pending[0], "end": pending[1]},
        "pending_records": view.pending_records,
        "redelivery_records": view.redelivery_records,
        "freshness_ms": view.freshness_ms,
        "never_delivered": [lost_to_pb(gap) for gap in answer.lost],
        "runs": [_run(row, cluster) for row, cluster in proofs if row is not None],
    }


def run_to_pb(row: Run) -> pb.Run:
    """A row of the index."""
    return pb.Run(**_run(row))


def _run(row: Run, cluster: str = "") -> dict[str, Any]:
    """The fields of a ``Run``; ``cluster`` where an answer speaks of two."""
    return {
        "source_start": row.source_start,
        "target_start": row.target_start,
        "count_records": row.count,
        "previous_source_end": row.previous_source_end,
        "source_leader_epoch": row.source_leader_epoch,
        "cluster": cluster,
    }


def _ranges(items: Sequence[Stretch]) -> Sequence[pb.OffsetRange]:
    """Ranges for a message that is made: there may be thousands, and of each a message of its own would take longer."""
    return cast("Sequence[pb.OffsetRange]", [{"start": start, "end": end} for start, end in items])


def lost_to_pb(gap: LostRange) -> pb.OffsetRange:
    """A lost range, in source offsets."""
    return pb.OffsetRange(start=gap.source_start, end=gap.source_end)
