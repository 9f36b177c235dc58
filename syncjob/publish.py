"""Writes decisions about groups to a cluster where they are passive, and looks whether anybody was faster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
class Publication:
    """What is to be written for one group on a cluster.

    Attributes:
        expected: the group's commits there when the decisions were made.
        decisions: those with something to write.
    """

    expected: Commits
    decisions: Sequence[Decision]


@dataclass(frozen=True, slots=True)
class Published:
    """What became of the decisions of one group and cluster.

    Attributes:
        decisions: all of them; the reason says what really happened.
        commits: the group's commits as they were read back; None if they were not.
    """

    decisions: tuple[Decision, ...]
    commits: Commits | None


SideBySide = Callable[
    [Callable[[GroupName], ParallaxError | None], Iterable[GroupName]], Iterable[ParallaxError | None]
]
"""As `map`, several at a time."""


def publish(
    writer: ClusterWriter,
    store: GroupStore,
    publications: Mapping[GroupName, Publication],
    fresh: Deadline,
    side_by_side: SideBySide = map,
) -> dict[GroupName, Published]:
    """Write the decisions' offsets as the groups' commits on a cluster where they are passive.

    1. Read the commits of all once more: what has changed since the decision is left alone.
    2. Write, unless it was too long ago that anything was read: a process that was stopped in between knows nothing of
       what a move has done since. The cluster refuses if the group has members.
    3. Read back. A commit that is not what was written shows that somebody is at work there: what was overwritten
       of theirs in the same breath is restored.
    4. Remember in the store what now stands there. Not earlier: it must not claim what was never written. If this
       process dies before, the commit's own metadata still says whose it is.

    A group that can't be written keeps none of the others from it.

    Args:
        writer: the cluster.
        store: remembers what was published.
        publications: what is to be written, by group.
        fresh: until when what was read of the groups' primaries, and is read here, may be taken for true.
        side_by_side: writes.

    Raises:
        StoreUnavailableError: the store did not answer; the offsets are written, the next cycle saves them.
    """
    problems: dict[GroupName, ParallaxError] = {}
    before = _read(writer, publications, problems)
    free = {
        group: [
            item
            for item in publications[group].decisions
            if commits.get(item.topic_partition) == publications[group].expected.get(item.topic_partition)
        ]
        for group, commits in before.items()
    }
    wanted = {
        group: {item.topic_partition: item.commit for item in items if item.commit is not None}
        for group, items in free.items()
    }

    def write(group: GroupName) -> ParallaxError | None:
        try:
            fresh.check("publishing: what was read before is too old, the next cycle reads again")
            writer.commit_for(group, wanted[group])
        except ParallaxError as error:
            return error
        return None

    found = zip(wanted, side_by_side(write, wanted), strict=True)
    problems |= {group: problem for group, problem in found if problem is not None}
    after = _read(writer, wanted.keys() - problems.keys(), problems)
    lost = [
        group
        for group, commits in after.items()
        if not all(commit.is_same(commits.get(item)) for item, commit in wanted[group].items())
    ]
    for group in lost:
        try:
            fresh.check("restoring what was overwritten: what was read before is too old")
            _restore(writer, group, before[group], after[group], wanted[group])
            after[group] = writer.committed(group)
        except ParallaxError as error:
            problems[group] = error
    written = {group: free[group] for group in after if group not in problems and group not in lost}
    store.save_published(
        [item.published for items in written.values() for item in items if item.published is not None]
    )
    return {
        group: Published(
            tuple(
                item if item in written.get(group, ()) else _active(item)
                for item in publications[group].decisions
            ),
            after[group],
        )
        if group not in problems
        else _unpublished(writer, group, publications[group].decisions, problems[group])
        for group in publications
    }


def _read(
    writer: ClusterWriter, groups: Collection[GroupName], problems: dict[GroupName, ParallaxError]
) -> dict[GroupName, Commits]:
    """The commits of groups; of those that can't be read, why not goes to ``problems``."""
    try:
        found = writer.committed_each(groups) if groups else {}
    except ParallaxError as error:
        problems.update(dict.fromkeys(groups, error))
        return {}
    problems.update({group: it for group, it in found.items() if isinstance(it, ParallaxError)})
    return {group: it for group, it in found.items() if not isinstance(it, ParallaxError)}


def _unpublished(
    writer: ClusterWriter, group: GroupName, decisions: Sequence[Decision], problem: ParallaxError
) -> Published:
    if isinstance(problem, FencedError):
        return Published(tuple(_active(item) for item in decisions), None)
    _log.warning("publishing_failed", group=group, cluster=writer.cluster, problem=str(problem))
    failed = (
        replace(item, reason=Reason.WRITE_FAILED, published=None, commit=None, origin_next_offset=None)
        for item in decisions
    )
    return Published(tuple(failed), None)


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
