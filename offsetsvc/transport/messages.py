"""Between the messages of `offsets.proto` and the values of the domain, both ways. Needs the base install only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from offsetsvc.answers import (
    FailoverAnswer,
    Origin,
    ReportedMove,
    ReportedPosition,
    RouteView,
    RunsPage,
    Side,
    SkipPage,
    SourceView,
    Translation,
)
from offsetsvc.transport.timestamp_convert import by_timestamp_to_pb
from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    ClusterName,
    RegionName,
    SourceId,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
    aggregate_cluster,
    regional_cluster,
)
from parallax.domain.outcome import Outcome, gravest
from parallax.domain.progress import Progress, SourcePosition
from parallax.domain.runs import LostRange, Run
from parallax.domain.skips import SkipRange
from parallax.errors import InvalidNameError, InvalidOffsetError, UnknownPartitionError
from parallax.v1 import offsets_pb2 as pb

# --- outcomes --------------------------------------------------------------------------------------------------


def outcome_to_pb(outcome: Outcome) -> pb.Outcome:
    """The same word in the proto; both enums carry the same numbers too."""
    return pb.Outcome.Value(outcome.name)  # type: ignore[return-value] # the stub calls the number an int


def outcome_from_pb(value: int) -> Outcome:
    """The domain's outcome.

    Raises:
        InvalidNameError: the number is none of ours.
    """
    try:
        return Outcome(value)
    except ValueError as error:
        raise InvalidNameError(
            f"outcome {value} is unknown; the server may be newer than this client"
        ) from error


# --- progress --------------------------------------------------------------------------------------------------


def progress_to_pb(positions: Mapping[SourceId, SourcePosition]) -> list[pb.SourceProgress]:
    """A progress vector, in its order."""
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
        for source, position in positions.items()
    ]


def progress_from_pb(items: Iterable[pb.SourceProgress]) -> dict[SourceId, SourcePosition]:
    """The progress vector.

    Raises:
        InvalidOffsetError: an offset is negative.
    """
    return {
        SourceId(RegionName(item.region), TopicId(item.source_topic_id)): SourcePosition(
            item.source_leader_epoch,
            SourceOffset(_offset(item.source_next_offset, "source_next_offset")),
            tuple(
                (end.leader_epoch, SourceOffset(_offset(end.source_next_offset, "source_next_offset")))
                for end in item.epoch_ends
            ),
        )
        for item in items
    }


# --- requests --------------------------------------------------------------------------------------------------


def position_from_pb(item: pb.PartitionPosition) -> ReportedPosition:
    """A caller's position.

    Raises:
        InvalidOffsetError: the offset is negative.
        UnknownPartitionError: the partition is negative.
        InvalidNameError: the topic's name is empty.
    """
    return ReportedPosition(
        partition_from(item.topic, item.partition),
        TargetOffset(_offset(item.next_offset, f"next_offset of {item.topic}-{item.partition}")),
        item.leader_epoch if item.HasField("leader_epoch") else UNKNOWN_EPOCH,
    )


def move_from_pb(item: pb.PartitionMove, cluster: ClusterName) -> ReportedMove:
    """A move to ``cluster`` that a caller has made; raises as `position_from_pb` does."""
    topic_id = TopicId(item.target_topic_id)
    resume_offset = TargetOffset(
        _offset(item.resume_offset, f"resume_offset of {item.topic}-{item.partition}")
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


def _offset(value: int, what: str) -> int:
    if value < 0:
        raise InvalidOffsetError(f"{what} {value} is negative; leave an unknown offset out")
    return value


# --- answers ---------------------------------------------------------------------------------------------------


def failover_to_pb(answer: FailoverAnswer) -> pb.FailoverOffset:
    """A partition's answer."""
    sides: dict[str, Any] = {"from": _side(answer.origin), "to": _side(answer.destination)}
    return pb.FailoverOffset(
        group=answer.group,
        topic=answer.topic_partition.topic,
        partition=answer.topic_partition.partition,
        resume_offset=answer.resume_offset,
        outcome=outcome_to_pb(answer.outcome),
        notes=[outcome_to_pb(note) for note in answer.notes],
        explanation=answer.explanation,
        sources=[_source(view, answer) for view in answer.sources],
        skip_ranges=[_range(item) for item in answer.skip_ranges],
        complete_to=answer.complete_to,
        skip_ranges_continue_at=answer.skip_ranges_continue_at,
        redelivery_records=answer.redelivery_records,
        pending_records=answer.pending_records,
        freshness_ms=answer.freshness_ms,
        progress=progress_to_pb(answer.progress),
        nearest_checkpoint_offset=answer.nearest_checkpoint_offset,
        by_timestamp=by_timestamp_to_pb(answer.by_timestamp),
        **sides,
    )


def group_to_pb(answers: Iterable[FailoverAnswer]) -> pb.GetGroupFailoverOffsetsResponse:
    """A group's answer."""
    items = list(answers)
    return pb.GetGroupFailoverOffsetsResponse(
        offsets=[failover_to_pb(item) for item in items],
        outcome=outcome_to_pb(gravest(item.outcome for item in items)),
    )


def page_to_pb(page: SkipPage) -> pb.SkipUpdate:
    """An update of a watch."""
    return pb.SkipUpdate(
        skip_ranges=[_range(item) for item in page.skip_ranges],
        complete_to=page.complete_to,
        pending_records=page.pending_records,
    )


def translation_to_pb(found: Translation) -> pb.TranslateOffsetResponse:
    """A translated offset."""
    return pb.TranslateOffsetResponse(
        source_next_offset=found.source_next,
        target_next_offset=found.target_next,
        via=found.via.value,
        lineage=str(found.lineage),
        runs=[_run(row) for row in found.rows],
    )


def origin_to_pb(found: Origin) -> pb.LookupOriginResponse:
    """Where a record came from."""
    if found.route is None or found.source is None:
        return pb.LookupOriginResponse(found=False, complete=found.complete)
    return pb.LookupOriginResponse(
        found=True,
        route=str(found.route),
        source_cluster=regional_cluster(found.route.source),
        source_topic_id=found.source.topic_id,
        source_record_offset=found.source_record_offset,
        complete=found.complete,
    )


def routes_to_pb(views: Iterable[RouteView]) -> pb.ListRoutesResponse:
    """Routes with their topics."""
    return pb.ListRoutesResponse(
        routes=[
            pb.RouteInfo(
                route=str(view.route),
                source_cluster=regional_cluster(view.route.source),
                target_cluster=aggregate_cluster(view.route.target),
                topics=[
                    pb.RouteTopic(
                        topic=item.topic, partitions=item.partitions, freshness_ms=item.freshness_ms
                    )
                    for item in view.topics
                ],
            )
            for view in views
        ]
    )


def runs_to_pb(page: RunsPage) -> pb.ListRunsResponse:
    """Runs by lineage."""
    return pb.ListRunsResponse(
        lineages=[
            pb.ListRunsResponse.LineageRuns(
                lineage=str(item.lineage),
                runs=[_run(row) for row in item.rows],
                lost=[_lost(gap) for gap in item.lost],
                closed_at=item.closed_at,
            )
            for item in page.lineages
        ],
        continue_at=page.continue_at,
    )


def _side(side: Side) -> pb.ClusterPosition:
    return pb.ClusterPosition(
        cluster=side.cluster,
        topic_id=side.topic_id,
        next_offset=side.next_offset,
        low_watermark=None if side.log is None else side.log.low_watermark,
        high_watermark=None if side.log is None else side.log.high_watermark,
        lag_offsets=side.lag_offsets,
        observed_at_ms=side.observed_at_ms,
        basis="" if side.basis is None else side.basis.value,
        indexed_to=side.indexed_to,
    )


def _source(view: SourceView, whole: FailoverAnswer) -> pb.SourcePart:
    answer = view.answer
    proofs = ((view.proof, whole.origin.cluster), (view.place, whole.destination.cluster))
    pending = answer.pending
    return pb.SourcePart(
        region=answer.source.region,
        source_topic_id=answer.source.topic_id,
        consumed_next_offset=answer.consumed.source_next,
        consumed_leader_epoch=answer.consumed.leader_epoch,
        position=answer.position,
        via=answer.via.value,
        reached_next_offset=answer.reached_next,
        pending=None if pending is None else pb.OffsetRange(start=pending[0], end=pending[1]),
        pending_records=view.pending_records,
        redelivery_records=view.redelivery_records,
        freshness_ms=view.freshness_ms,
        never_delivered=[_lost(gap) for gap in answer.lost],
        runs=[_run(row, cluster) for row, cluster in proofs if row is not None],
    )


def _run(row: Run, cluster: str = "") -> pb.Run:
    return pb.Run(
        source_start=row.source_start,
        target_start=row.target_start,
        count_records=row.count,
        previous_source_end=row.previous_source_end,
        source_leader_epoch=row.source_leader_epoch,
        cluster=cluster,
    )


def _range(item: SkipRange) -> pb.OffsetRange:
    return pb.OffsetRange(start=item.start, end=item.end)


def _lost(gap: LostRange) -> pb.OffsetRange:
    return pb.OffsetRange(start=gap.source_start, end=gap.source_end)
