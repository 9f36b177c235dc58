"""Progress, commits and published offsets as JSON text: readable in cqlsh, one cell each. Pure."""

from __future__ import annotations

import json
from typing import Any

from parallax.domain.ids import (
    ClusterName,
    GroupName,
    RegionName,
    SourceId,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicPartition,
)
from parallax.domain.outcome import Outcome
from parallax.domain.progress import Progress, SourcePosition
from parallax.ports.clusters import ObservedCommit, PublishedOffset


def progress_to_text(progress: Progress) -> str:
    """The progress as text; the order of its sources is kept."""
    return json.dumps(_progress_values(progress))


def progress_from_text(text: str) -> Progress:
    """The progress written by `progress_to_text`."""
    return _progress(json.loads(text))


def observed_to_text(commit: ObservedCommit) -> str:
    """What the key of a commit does not say."""
    return json.dumps(
        {
            "topic_id": commit.topic_id,
            "next_offset": commit.next_offset,
            "leader_epoch": commit.leader_epoch,
            "observed_at_ms": commit.observed_at_ms,
            "reported": commit.reported,
        }
    )


def observed_from_text(
    group: GroupName, cluster: ClusterName, topic_partition: TopicPartition, text: str
) -> ObservedCommit:
    """The commit of that key, written by `observed_to_text`."""
    values = json.loads(text)
    return ObservedCommit(
        group=group,
        cluster=cluster,
        topic_partition=topic_partition,
        topic_id=TopicId(values["topic_id"]),
        next_offset=TargetOffset(values["next_offset"]),
        leader_epoch=values["leader_epoch"],
        observed_at_ms=values["observed_at_ms"],
        reported=values.get("reported", False),  # rows of earlier versions don't say
    )


def published_to_text(offset: PublishedOffset) -> str:
    """What the key of a published offset does not say."""
    return json.dumps(
        {
            "progress": _progress_values(offset.progress),
            "origin_cluster": offset.origin_cluster,
            "origin_next_offset": offset.origin_next_offset,
            "outcome": offset.outcome.name,
            "published_at_ms": offset.published_at_ms,
        }
    )


def published_from_text(group: GroupName, topic_partition: TopicPartition, text: str) -> PublishedOffset:
    """The published offset of that key, written by `published_to_text`."""
    values = json.loads(text)
    return PublishedOffset(
        group=group,
        topic_partition=topic_partition,
        progress=_progress(values["progress"]),
        origin_cluster=ClusterName(values["origin_cluster"]),
        origin_next_offset=values["origin_next_offset"],
        outcome=Outcome[values["outcome"]],
        published_at_ms=values["published_at_ms"],
    )


def _progress_values(progress: Progress) -> dict[str, Any]:
    return {
        "cluster": progress.cluster,
        "topic_id": progress.topic_id,
        "resume_offset": progress.resume_offset,
        "positions": [
            {
                "region": source.region,
                "topic_id": source.topic_id,
                "leader_epoch": position.leader_epoch,
                "source_next": position.source_next,
                "epoch_ends": [list(pair) for pair in position.epoch_ends],
            }
            for source, position in progress.positions.items()
        ],
    }


def _progress(values: dict[str, Any]) -> Progress:
    return Progress(
        cluster=ClusterName(values["cluster"]),
        topic_id=TopicId(values["topic_id"]),
        resume_offset=TargetOffset(values["resume_offset"]),
        positions={
            SourceId(RegionName(item["region"]), TopicId(item["topic_id"])): SourcePosition(
                item["leader_epoch"],
                SourceOffset(item["source_next"]),
                tuple((epoch, SourceOffset(end)) for epoch, end in item["epoch_ends"]),
            )
            for item in values["positions"]
        },
    )
