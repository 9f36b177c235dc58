"""Several groups: which ones a region has, in which order they move, side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from parallax.client.primary_messages import primary_from_pb
from parallax.domain.ids import ClusterName, GroupName, TopicId, TopicName, aggregate_cluster
from parallax.domain.primary import Assignment, Mode, Stage
from parallax.errors import ClusterUnavailableError, RefusedError
from parallax.failover.outside import Outside
from parallax.ports.clusters import GroupCommit
from syncjob.facts import GroupFacts, Seen, Side, is_own

ASKED_AT_ONCE = 16
"""Groups that are asked about side by side before any is moved: each waits for a store or a cluster mostly."""

Result = TypeVar("Result")


def groups_on(
    outside: Outside, cluster: ClusterName, chosen: Callable[[GroupName], bool], *, to: ClusterName
) -> list[GroupName]:
    """The groups that consume a cluster, by name: recorded there, or with commits of their own there.

    Of active/active groups, which consume everywhere, those whose results its region publishes.
    Groups that are on their way from there to ``to`` are among them, so that an interrupted command goes on.

    Raises:
        UnavailableError: the services or the store do not answer.
    """
    # Of those that can't be read the move itself says so: it ends for that group alone.
    recorded = {
        GroupName(item.group): found
        for item in outside.client.list_primaries().primaries
        if not item.problem and (found := primary_from_pb(item)) is not None
    }
    listed = set(outside.groups.groups()) | set(recorded)
    topic_ids: Mapping[TopicName, TopicId] = {}
    try:
        writer = outside.writer(cluster)
        listed |= {state.group for state in writer.groups()}
        topic_ids = {name: info.topic_id for name, info in writer.topics().items()}
    except ClusterUnavailableError:
        pass  # what the store remembers has to do: a dead cluster is what this command is for
    # What each was seen at is several questions of its own.
    there = side_by_side(
        [group for group in sorted(listed) if chosen(group)],
        lambda group: _is_there(outside, group, cluster, to, recorded.get(group), topic_ids),
        at_once=ASKED_AT_ONCE,
    )
    return [group for group, is_there in there.items() if is_there]


def _is_there(
    outside: Outside,
    group: GroupName,
    cluster: ClusterName,
    to: ClusterName,
    assignment: Assignment | None,
    topic_ids: Mapping[TopicName, TopicId],
) -> bool:
    if assignment is None:
        return _consumes(outside, group, cluster, topic_ids)
    decision = assignment.decision
    if decision.mode is Mode.ACTIVE_ACTIVE:  # it consumes everywhere already: who publishes its results moves
        return aggregate_cluster(decision.primary) == cluster
    if decision.stage is Stage.MOVING:
        return (decision.moving_from, decision.cluster) == (cluster, to)
    return decision.cluster == cluster


def _consumes(
    outside: Outside, group: GroupName, cluster: ClusterName, topic_ids: Mapping[TopicName, TopicId]
) -> bool:
    """Whether the group has a commit there that was not put there for it."""
    sides = {name: _side(outside, group, name) for name in outside.writers if name != cluster}
    here = _side(outside, group, cluster)
    found = outside.commits(group, cluster) if topic_ids else None
    if found is None:
        observed = outside.groups.observed(group, cluster)
        found = {
            item.topic_partition: GroupCommit(item.next_offset, item.leader_epoch, "") for item in observed
        }
        topic_ids = {item.topic_partition.topic: item.topic_id for item in observed}
    side = Side(
        cluster,
        reachable=True,
        topic_ids=topic_ids,
        commits={item: Seen(commit, commit) for item, commit in found.items()},
        published=here.published,
    )
    facts = GroupFacts(group, {**sides, cluster: side}, {})
    return any(is_own(facts, cluster, item) for item in side.commits)


def _side(outside: Outside, group: GroupName, cluster: ClusterName) -> Side:
    published = {item.topic_partition: item for item in outside.groups.published(group, cluster)}
    return Side(cluster, reachable=False, topic_ids={}, commits={}, published=published)


def in_order(groups: Iterable[GroupName], first: Sequence[GroupName]) -> list[GroupName]:
    """The groups, those named first in front in their order, the others by name.

    Raises:
        RefusedError: a group named first is not among them.
    """
    present = set(groups)
    missing = [group for group in first if group not in present]
    if missing:
        raise RefusedError(
            f"--first: {', '.join(missing)} is not among the groups to move: {', '.join(sorted(present)) or 'none'}"
        )
    front = list(dict.fromkeys(first))
    return front + sorted(present.difference(front))


def side_by_side(
    groups: Sequence[GroupName],
    task: Callable[[GroupName], Result],
    *,
    at_once: int,
    done: Callable[[GroupName, Result], None] = lambda _group, _result: None,
) -> dict[GroupName, Result]:
    """The task's result for each group, in the order of the groups; they begin in that order.

    Args:
        groups: which groups.
        task: what to do; after an exception none begins any more, and it is raised once those under way have ended.
        at_once: how many at a time.
        done: called after each, in this thread.
    """
    results: dict[GroupName, Result] = {}
    failed = threading.Event()

    def unless_failed(group: GroupName) -> list[Result]:
        if failed.is_set():
            return []
        try:
            return [task(group)]
        except BaseException:
            failed.set()  # here, not where the result is looked at: the next task would have begun by then
            raise

    with ThreadPoolExecutor(at_once, "failover") as threads:
        futures = {threads.submit(unless_failed, group): group for group in groups}
        try:
            for future in as_completed(futures):
                for found in future.result():
                    results[futures[future]] = found
                    done(futures[future], found)
        except BaseException:
            failed.set()
            raise
    return {group: results[group] for group in groups}
