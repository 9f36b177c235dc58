"""What a commit's metadata says of skipping, as the consumer uses it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import structlog

from parallax.consumer.start import Skipping
from parallax.domain import metadata as codec
from parallax.domain.ids import RegionName, SourceId, SourceOffset, TargetOffset, TopicId
from parallax.domain.metadata import CommittedMetadata
from parallax.domain.progress import SourcePosition
from parallax.domain.skips import SkipRange
from parallax.errors import LimitError
from parallax.v1 import offsets_pb2 as pb

_log = structlog.get_logger("parallax.failover_consumer")


def encode(skipping: Skipping, ranges: Sequence[SkipRange], known_to: int | None) -> str:
    """The metadata of a commit from which ``ranges`` are to be skipped.

    Empty, with a warning in the log, if the progress of very many sources does not fit: a consumer that starts
    from this commit then reads the consumed records again.
    """
    metadata = CommittedMetadata(
        fencing_number=skipping.fencing_number,
        target_topic_id=TopicId(skipping.topic_id),
        resume_offset=TargetOffset(skipping.floor),
        positions=_positions(skipping.progress),
        skips=ranges,
        complete_to=None if known_to is None else TargetOffset(known_to),
    )
    try:
        return codec.encode(metadata)
    except LimitError as error:
        _log.warning("metadata_too_large", error=str(error))
        return ""


def decode(text: str | None, next_offset: int) -> Skipping | None:
    """What is to be skipped from a commit on.

    Returns:
        None where the metadata is not ours, or void because the commit lies below the move's resume offset.

    Raises:
        MetadataError: it is ours, and damaged or of a version unknown to this release.
    """
    if not codec.is_ours(text):
        return None
    found = codec.decode(text)
    if next_offset < found.resume_offset:
        return None
    return Skipping(
        floor=found.resume_offset,
        topic_id=found.target_topic_id,
        progress=tuple(_message(source, position) for source, position in found.positions.items()),
        skip_ranges=tuple(found.skips),
        known_to=found.complete_to,
        fencing_number=found.fencing_number,
    )


def _positions(progress: Iterable[pb.SourceProgress]) -> dict[SourceId, SourcePosition]:
    return {
        SourceId(RegionName(item.region), TopicId(item.source_topic_id)): SourcePosition(
            item.source_leader_epoch,
            SourceOffset(item.source_next_offset),
            tuple((end.leader_epoch, SourceOffset(end.source_next_offset)) for end in item.epoch_ends),
        )
        for item in progress
    }


def _message(source: SourceId, position: SourcePosition) -> pb.SourceProgress:
    return pb.SourceProgress(
        region=source.region,
        source_topic_id=source.topic_id,
        source_next_offset=position.source_next,
        source_leader_epoch=position.leader_epoch,
        epoch_ends=[
            pb.EpochEnd(leader_epoch=epoch, source_next_offset=end) for epoch, end in position.epoch_ends
        ],
    )
