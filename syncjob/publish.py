"""Writes decisions to a passive cluster, and looks whether anybody was faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from parallax.domain.commits import Commits
from parallax.domain.ids import GroupName
from parallax.domain.outcome import Outcome
from parallax.errors import FencedError, ParallaxError
from parallax.ports.clusters import ClusterWriter
from parallax.ports.groups import GroupStore
from parallax.runtime.deadline import Deadline
from syncjob.decide import Decision, Reason

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Published:
    """What became of the decisions of one group and cluster.

    Attributes:
        decisions: all of them; the reason says what really happened.
        commits: the group's commits as they were read back; None if they were not.
    """

    decisions: tuple[Decision, ...]
    commits: Commits | None


def publish(
    writer: ClusterWriter,
    store: GroupStore,
    group: GroupName,
    expected: Commits,
    decisions: Sequence[Decision],
    fresh: Deadline,
) -> Published:
    """Write the decisions' offsets as the group's commits on a cluster where it is passive.

    1. Read the commits once more: what has changed since the decision is left alone.
    2. Write, unless it was too long ago that anything was read: a process that was stopped in between knows nothing of
       what a move has done since. The cluster refuses if the group has members.
    3. Read back. A commit that is not what was written shows that somebody is at work there: what was overwritten
       of theirs in the same breath is restored.
    4. Remember in the store what now stands there. Not earlier: it must not claim what was never written. If this
       process dies before, the commit's own metadata still says whose it is.

    Args:
        writer: the cluster.
        store: remembers what was published.
        group: the group.
        expected: its commits there when the decisions were made.
        decisions: those with something to write, all of this group and cluster.
        fresh: until when what was read of the group's primary, and is read here, may be taken for true.

    Raises:
        StoreUnavailableError: the store did not answer; the offsets are written, the next cycle saves them.
    """
    try:
        before = writer.committed(group)
        moved = {item for item in before if before[item] != expected.get(item)}
        free = [decision for decision in decisions if decision.topic_partition not in moved]
        wanted = {item.topic_partition: item.commit for item in free if item.commit is not None}
        fresh.check("publishing: what was read before is too old, the next cycle reads again")
        writer.commit_for(group, wanted)
        after = writer.committed(group)
        lost = {item for item, commit in wanted.items() if not commit.is_same(after.get(item))}
        if lost:
            fresh.check("restoring what was overwritten: what was read before is too old")
            _restore(writer, group, before, after, wanted)
            after = writer.committed(group)
    except FencedError:
        return Published(tuple(_active(item) for item in decisions), None)
    except ParallaxError as error:
        _log.warning("publishing_failed", group=group, cluster=writer.cluster, problem=str(error))
        failed = (
            replace(item, reason=Reason.WRITE_FAILED, published=None, commit=None, origin_next_offset=None)
            for item in decisions
        )
        return Published(tuple(failed), None)
    written = [] if lost else free
    store.save_published([item.published for item in written if item.published is not None])
    return Published(
        tuple(item if item in written else _active(item) for item in decisions),
        after,
    )


def _restore(
    writer: ClusterWriter, group: GroupName, before: Commits, after: Commits, wanted: Commits
) -> None:
    """Put back the commits that stood before, where ours still stand."""
    back = {
        item: before[item]
        for item, commit in wanted.items()
        if item in before and commit.is_same(after.get(item))
    }
    writer.commit_for(group, back)
    _log.warning("restored", group=group, cluster=writer.cluster, partitions=[str(item) for item in back])


def _active(decision: Decision) -> Decision:
    return replace(
        decision,
        reason=Reason.ACTIVE_AT_TARGET,
        outcome=Outcome.ACTIVE_AT_TARGET,
        commit=None,
        published=None,
        origin_next_offset=None,
    )
