"""What moves leave behind for the next one, told to the services, which keep it at their own time.

An older note never replaces a newer one, so whose clock says which is older matters: an operator's machine may be
off by hours, and what the group's own consumers report is stamped by the services too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import structlog

from offsetsvc.transport.messages import progress_to_pb
from parallax.client.client import at_cluster
from parallax.domain.ids import ClusterName, GroupName, TopicName, TopicPartition
from parallax.domain.progress import Progress
from parallax.errors import UnknownTopicError
from parallax.failover.facts import Move, PartitionFacts
from parallax.failover.journal import Snapshot
from parallax.failover.outside import Outside
from parallax.v1 import offsets_pb2 as pb

_log = structlog.get_logger(__name__)


def save_progress(outside: Outside, move: Move, partitions: Iterable[PartitionFacts]) -> None:
    """Remember what the move leaves at the target: what the next move starts from.

    Raises:
        ParallaxError: as `OffsetClient.report_positions` says.
    """
    left = {}
    for item in partitions:
        answer = item.answer
        left[item.topic_partition] = Progress(
            move.target, answer.target_topic_id, answer.resume_offset, answer.vector
        )
    _tell(outside, move.group, left)


def restore_progress(
    outside: Outside, group: GroupName, snapshot: Snapshot, topics: Iterable[TopicName]
) -> None:
    """Remember what the group's moves had left before the snapshot, and nothing that came after.

    Raises:
        ParallaxError: as `OffsetClient.report_positions` says; what was left is void then, which is safe.
    """
    for topic in sorted(set(topics)):
        before = {item: stored for item, stored in snapshot.progress.items() if item.topic == topic}
        outside.groups.void_progress(group, topic, list(outside.groups.progress(group, topic)))
        try:
            _tell(outside, group, before)
        except UnknownTopicError as error:  # created anew since, so that what was left there means nothing
            _log.info("progress_void", group=group, topic=topic, problem=str(error))


def _tell(outside: Outside, group: GroupName, left: Mapping[TopicPartition, Progress]) -> None:
    by_place: dict[tuple[ClusterName, TopicName], list[pb.PartitionMove]] = {}
    for item, progress in sorted(left.items()):
        by_place.setdefault((progress.cluster, item.topic), []).append(
            pb.PartitionMove(
                topic=item.topic,
                partition=item.partition,
                target_topic_id=progress.topic_id,
                resume_offset=progress.resume_offset,
                progress=progress_to_pb(progress.positions),
            )
        )
    for (cluster, _topic), moves in by_place.items():
        outside.client.report_positions(group, at=at_cluster(cluster), moves=moves)
