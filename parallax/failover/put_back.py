"""Puts back what a group's moves had left, where a move that did not come to its end has replaced it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import groupby

import structlog

from parallax.domain.commits import Commits, next_offset_of
from parallax.domain.formats import UnreadableRow
from parallax.domain.ids import ClusterName, GroupName, TopicPartition
from parallax.domain.ownership import is_resume_offset
from parallax.domain.progress import Progress
from parallax.errors import ConfigError, InvalidOffsetError, UnknownPartitionError, UnknownTopicError
from parallax.failover.journal import MoveRecord
from parallax.failover.outside import Outside

_log = structlog.get_logger(__name__)

CommitsNow = Mapping[ClusterName, Commits | None]
"""By cluster; None: it does not answer."""


def replaced_progress(outside: Outside, record: MoveRecord) -> dict[TopicPartition, Progress]:
    """What moves had left before this unfinished one, by partition where that is not what is stored any more.

    Not where the group has gone on from what is stored now, nor where it has gone back in its cluster since.

    Raises:
        StoreUnavailableError: the store did not answer in time.
    """
    group, progress = record.move.group, record.snapshot.progress
    stored = {
        TopicPartition(topic, partition): left
        for topic in {item.topic for item in progress}
        for partition, left in outside.groups.progress(group, topic).items()
    }
    replaced = {item: left for item, left in progress.items() if _is_replaced(left, stored.get(item))}
    places = [*replaced.values(), *(left for item in replaced if (left := stored.get(item)) is not None)]
    clusters = {left.cluster for left in places if isinstance(left, Progress)}
    now = {name: _commits(outside, group, name) for name in clusters & outside.clusters.writers.keys()}
    void = set[TopicPartition]().union(
        *(outside.went_back(group, name, found, replaced) for name, found in now.items() if found is not None)
    )
    return {
        item: left
        for item, left in replaced.items()
        if item not in void
        and not has_gone_back(record, now, item, left.cluster)
        and not _has_gone_on(record, now, item, stored.get(item))
    }


def put_back_progress(outside: Outside, record: MoveRecord) -> bool:
    """Remember again what `replaced_progress` tells of; whether there was any.

    Raises:
        ParallaxError: as `OffsetServices.report_progress` says; putting it back again does no harm.
    """
    replaced = replaced_progress(outside, record)
    for _, items in groupby(sorted(replaced), lambda item: item.topic):
        report_left(outside, record.move.group, {item: replaced[item] for item in items})
    return bool(replaced)


def report_left(outside: Outside, group: GroupName, left: Mapping[TopicPartition, Progress]) -> None:
    """Remember what moves had left of a topic, unless that was created anew since, with fewer partitions perhaps, or cut short.

    It means nothing then.

    Raises:
        ParallaxError: as `OffsetServices.report_progress` says otherwise.
    """
    try:
        outside.services.report_progress(group, left)
    except (InvalidOffsetError, UnknownPartitionError, UnknownTopicError) as error:
        _log.info("progress_void", group=group, topics=sorted({it.topic for it in left}), problem=str(error))


def has_gone_back(
    record: MoveRecord,
    now: CommitsNow,
    item: TopicPartition,
    cluster: ClusterName,
    restored: Collection[TopicPartition] = (),
) -> bool:
    """Whether the group's commit is lower than before the move, or gone; not where it is ``restored``."""
    before = next_offset_of(record.snapshot.commits.get(cluster, {}), item)
    present = now.get(cluster)
    if before is None or present is None or item in restored:
        return False
    at = next_offset_of(present, item)
    return at is None or at < before


def _commits(outside: Outside, group: GroupName, cluster: ClusterName) -> Commits | None:
    """The group's commits there; None if the cluster does not answer, or does not let this client see the group."""
    try:
        return outside.clusters.commits(group, cluster)
    except ConfigError as error:
        _log.info("commits_unseen", group=group, cluster=cluster, problem=str(error))
        return None


def _is_replaced(before: Progress, stored: Progress | UnreadableRow | None) -> bool:
    if isinstance(stored, UnreadableRow):
        return False
    return stored is None or (stored.cluster != before.cluster and not stored.is_set_back)


def _has_gone_on(
    record: MoveRecord, now: CommitsNow, item: TopicPartition, stored: Progress | UnreadableRow | None
) -> bool:
    """Whether the group has consumed where the stored progress leads; a cluster that does not answer shows nothing."""
    present = now.get(stored.cluster) if isinstance(stored, Progress) else None
    commit = (present or {}).get(item)
    if commit is None or not isinstance(stored, Progress):
        return False
    before = record.snapshot.commits.get(stored.cluster, {}).get(item)
    return not is_resume_offset(commit) and not commit.is_same(before)
