"""Asks where groups at many positions resume, and reads the answers, which are in columns, as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from parallax.client.answer import Pair, ResumeAnswer, present
from parallax.client.client import OffsetClient, at_cluster
from parallax.client.messages import NO_COMMIT, outcome_from_pb, unpacked
from parallax.domain.ids import (
    ClusterName,
    RegionName,
    SourceId,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.outcome import Outcome
from parallax.domain.progress import MAX_EPOCH_ENDS, SourcePosition
from parallax.v1 import offsets_pb2 as pb

MOST_POSITIONS = 20_000
"""In one call."""

Mapped = Mapping[TopicPartition, Mapping[int, ResumeAnswer]]
"""Answers by position; those that are left out have to be asked for group by group."""


def map_positions(
    client: OffsetClient, pair: Pair, positions: Mapping[TopicPartition, Sequence[int]]
) -> Mapped:
    """Where groups at these positions resume that have not moved to the origin before.

    Args:
        client: asks.
        pair: origin and target.
        positions: next offsets by partition, ascending, each once; `NO_COMMIT` first.

    Raises:
        ParallaxError: as `OffsetClient.map_positions` says.
    """
    origin, target = map(at_cluster, pair)
    found: dict[TopicPartition, dict[int, ResumeAnswer]] = {}
    for part in _parts(positions):
        response = client.map_positions(part, origin=origin, to=target)
        for item in response.partitions:
            place = TopicPartition(TopicName(item.topic), item.partition)
            found.setdefault(place, {}).update(answers_of(item, part[place]))
    return found


def _parts(
    positions: Mapping[TopicPartition, Sequence[int]],
) -> Iterator[Mapping[TopicPartition, Sequence[int]]]:
    """The same in parts of `MOST_POSITIONS` at most."""
    part: dict[TopicPartition, Sequence[int]] = {}
    room = MOST_POSITIONS
    for item, offsets in positions.items():
        for start in range(0, len(offsets), MOST_POSITIONS):
            some = offsets[start : start + MOST_POSITIONS]
            if len(some) > room or item in part:
                yield part
                part, room = {}, MOST_POSITIONS
            part[item] = some
            room -= len(some)
    if part:
        yield part


def answers_of(mapped: pb.MappedPartition, offsets: Sequence[int]) -> dict[int, ResumeAnswer]:
    """A partition's answers by the position that was asked for.

    Raises:
        InvalidNameError: an outcome is unknown; the service may be newer.
    """
    if len(mapped.left_out) == len(offsets):
        return {}
    origin, target = getattr(mapped, "from"), mapped.to
    shared: dict[str, Any] = {
        "topic_partition": TopicPartition(TopicName(mapped.topic), mapped.partition),
        "origin": ClusterName(origin.cluster),
        "target": ClusterName(target.cluster),
        "origin_indexed_to": present(origin, "indexed_to"),
        "origin_without_rows": tuple(map(RegionName, origin.regions_without_rows)),
        "origin_answers": origin.HasField("high_watermark"),
        "observed_at_ms": None,
        "target_topic_id": TopicId(target.topic_id),
        "low_watermark": present(target, "low_watermark"),
        "high_watermark": present(target, "high_watermark"),
        "explanation": "",
        "skips_cut": False,
        "redelivery_records": None,
        "redelivery_at_most_offsets": None,
        "freshness_ms": None,
        "lost": (),
        "timestamp_problem": "",
    }
    notes = {bits: _notes(bits) for bits in set(mapped.notes)}
    left_out = set(mapped.left_out)
    distances = iter(mapped.packed_skip_ranges)
    found: dict[int, ResumeAnswer] = {}
    rows = zip(
        offsets,
        mapped.resume_offsets,
        mapped.complete_to,
        mapped.notes,
        mapped.pending_records,
        mapped.skip_counts,
        _vectors(mapped),
        strict=True,
    )
    for place, (offset, resume_offset, complete_to, bits, pending, skips, vector) in enumerate(rows):
        ranges = unpacked(islice(distances, 2 * skips)) if skips else ()
        if place in left_out:
            continue
        noted, outcome = notes[bits]
        found[offset] = ResumeAnswer(
            origin_next_offset=None if offset == NO_COMMIT else TargetOffset(offset),
            basis="policy" if offset == NO_COMMIT else "committed",
            resume_offset=TargetOffset(resume_offset),
            outcome=outcome,
            notes=noted,
            vector=vector,
            skips=ranges,
            complete_to=None if complete_to < 0 else TargetOffset(complete_to),
            pending_records=pending,
            **shared,
        )
    return found


def _notes(bits: int) -> tuple[frozenset[Outcome], Outcome]:
    """The notes of an answer, and the gravest."""
    if not bits:
        return frozenset({Outcome.OK}), Outcome.OK
    numbers = [number for number in range(bits.bit_length()) if bits >> number & 1]
    return frozenset(map(outcome_from_pb, numbers)), outcome_from_pb(numbers[-1])


def _vectors(mapped: pb.MappedPartition) -> Iterator[Mapping[SourceId, SourcePosition]]:
    """The progress of each position."""
    sources = [
        (
            SourceId(RegionName(item.region), TopicId(item.source_topic_id)),
            tuple((end.leader_epoch, SourceOffset(end.source_next_offset)) for end in item.epoch_ends),
        )
        for item in mapped.sources
    ]
    nexts = zip(*(item.source_next_offsets for item in mapped.sources), strict=True)
    epochs = zip(*(item.source_leader_epochs for item in mapped.sources), strict=True)
    many_epochs = any(len(ends) > MAX_EPOCH_ENDS for _, ends in sources)
    for consumed, of_epochs in zip(nexts, epochs, strict=True):
        vector = {
            source: SourcePosition(
                epoch,
                SourceOffset(offset),
                tuple([(known, end if end < offset else SourceOffset(offset)) for known, end in ends]),
            )
            for (source, ends), offset, epoch in zip(sources, consumed, of_epochs, strict=True)
        }
        if many_epochs:
            vector = {source: position.bounded() for source, position in vector.items()}
        yield vector
