"""Which moves an operator's words mean: of one group or of a region's groups, there or back; and many at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from typing import TypeVar

from parallax.domain.commits import Commits, last_seen
from parallax.domain.formats import apart
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    RegionName,
    TopicId,
    TopicName,
    aggregate_cluster,
    is_aggregate,
    region_of,
)
from parallax.domain.ownership import own_commits, standing_offers
from parallax.domain.primary import Assignment, Mode, Stage
from parallax.errors import (
    ClusterUnavailableError,
    ConfigError,
    InvalidNameError,
    NotFoundError,
    RefusedError,
    UnreadableRowError,
)
from parallax.failover.facts import Move, MoveKind
from parallax.failover.journal import MoveRecord, Step, home_of
from parallax.failover.outside import Outside
from parallax.ports.groups import StoredGroup

ASKED_AT_ONCE = 16
"""Groups that are asked about side by side before any is moved: each waits for a store or a cluster mostly."""
_ASKED_TOGETHER = 64
"""Groups of which one question asks."""

Result = TypeVar("Result")


def one_move(
    outside: Outside,
    group: GroupName,
    *,
    to_region: str | None,
    to_cluster: str | None,
    origin: str | None,
    kind: MoveKind,
) -> Move:
    """The move of one group.

    Args:
        outside: services and clusters.
        group: the group.
        to_region: the region that shall be primary; or
        to_cluster: the cluster that the present primary shall consume.
        origin: a region or cluster; None: where the group is recorded, else the only other cluster.
        kind: what is left of the origin.

    Raises:
        InvalidNameError: the origin can't be told, or is the target, or not exactly one target is named.
        UnknownRegionError: a region or cluster is not configured.
    """
    if (to_region is None) == (to_cluster is None):
        raise InvalidNameError(
            "name where the group goes: --to REGION, or --to-cluster CLUSTER if only a cluster is down"
        )
    region = None if to_region is None else RegionName(to_region)
    target = ClusterName(to_cluster or "") if region is None else aggregate_cluster(region)
    outside.clusters.writer(target)
    assignment = outside.services.assignment(group)
    source = _origin(outside, group, target, region, origin, assignment)
    outside.clusters.writer(source)
    if region is None:
        region = _home(outside, group, assignment) or region_of(source)
    return Move(group, source, target, region, kind)


def _home(outside: Outside, group: GroupName, assignment: Assignment | None) -> RegionName | None:
    moving = assignment is not None and assignment.decision.stage is Stage.MOVING
    return home_of(assignment, outside.journal.newest(group) if moving else None)


def _origin(
    outside: Outside,
    group: GroupName,
    target: ClusterName,
    region: RegionName | None,
    named: str | None,
    assignment: Assignment | None,
) -> ClusterName:
    if named is not None:
        cluster = ClusterName(named) if is_aggregate(named) else aggregate_cluster(RegionName(named))
    elif assignment is not None and _publishes_elsewhere(assignment, target):
        cluster = aggregate_cluster(assignment.decision.primary)
    elif assignment is not None and assignment.decision.stage is Stage.MOVING:
        cluster = assignment.decision.moving_from or target
    elif assignment is not None and assignment.decision.cluster not in {None, target}:
        cluster = assignment.decision.cluster or target
    else:
        others = [name for name in sorted(outside.clusters.writers) if name != target]
        there = _is_there(assignment, target, region)
        if len(others) != 1 and not (others and there):
            raise InvalidNameError(
                f"--from: say where group {group} consumes; {', '.join(others) or 'no cluster'} is possible"
            )
        cluster = _left(outside, group, target, others) if there else others[0]
    if cluster == target:
        raise InvalidNameError(f"from and to are the same cluster, {target}: nothing has to be moved")
    return cluster


def _is_there(assignment: Assignment | None, target: ClusterName, region: RegionName | None) -> bool:
    """Whether nothing has to be moved; ``region``: as in `one_move`, None: the present primary."""
    if assignment is None or region not in {None, assignment.decision.primary}:
        return False
    return assignment.decision.mode is Mode.ACTIVE_ACTIVE or assignment.consumed_cluster == target


def _publishes_elsewhere(assignment: Assignment, target: ClusterName) -> bool:
    """Whether it is an active/active group whose results another region than the target's publishes."""
    decision = assignment.decision
    return decision.mode is Mode.ACTIVE_ACTIVE and aggregate_cluster(decision.primary) != target


def _left(
    outside: Outside, group: GroupName, target: ClusterName, others: Sequence[ClusterName]
) -> ClusterName:
    """Which of the others the group has left when it was moved to the target last; any, if no move of it is kept."""
    origins = (record.move.origin for record in outside.journal.each(group) if record.move.target == target)
    return next((origin for origin in origins if origin in others), others[0])


def region_moves(
    outside: Outside, region: str, to_region: str, chosen: Callable[[GroupName], bool], kind: MoveKind
) -> dict[GroupName, Move]:
    """The moves of every group that consumes a region's aggregate cluster.

    Raises:
        InvalidNameError: both are the same region.
        UnknownRegionError: a region has no aggregate cluster.
    """
    origin, target = aggregate_cluster(RegionName(region)), aggregate_cluster(RegionName(to_region))
    for cluster in (origin, target):
        outside.clusters.writer(cluster)
    if origin == target:
        raise InvalidNameError(f"--region and --to are the same region, {region!r}")
    return {
        group: Move(group, origin, target, RegionName(to_region), kind)
        for group in groups_on(outside, origin, chosen, to=target)
    }


def way_back(outside: Outside, group: GroupName, kind: MoveKind) -> Move:
    """The move that takes a group back to where its last one came from.

    Raises:
        NotFoundError: it was never moved, or its last move did not come to its end.
    """
    record = _last_done(outside, group, partial(outside.services.assignment, group))
    if record is None:
        raise NotFoundError(
            f"group {group!r} has no move to go back from: name where it goes with `parallax failover`"
        )
    return _back(record, kind)


def ways_back(
    outside: Outside,
    region: str,
    chosen: Callable[[GroupName], bool],
    kind: MoveKind,
    untold: Callable[[GroupName, str], None],
) -> dict[GroupName, Move]:
    """The moves that take back every group whose last move left the region's aggregate cluster.

    Args:
        outside: services and clusters.
        region: the region.
        chosen: which groups are meant.
        kind: what is left of the origin.
        untold: told of each group whose last move can't be read by this release, and why; the others go.

    Raises:
        UnknownRegionError: the region has no aggregate cluster.
    """
    home = aggregate_cluster(RegionName(region))
    outside.clusters.writer(home)
    assignments = outside.services.assignments()
    records = side_by_side(
        [group for group in assignments if chosen(group)],
        lambda group: _last_done_or_why_not(outside, group, assignments[group]),
        at_once=ASKED_AT_ONCE,
    )
    moves = {}
    for group, record in records.items():
        if isinstance(record, UnreadableRowError):
            untold(group, f"[{record.code}] {record}")
        elif record is not None and record.move.origin == home:
            moves[group] = _back(record, kind)
    return moves


def _last_done(
    outside: Outside, group: GroupName, assignment: Callable[[], Assignment | None]
) -> MoveRecord | None:
    """The newest move that counts: an unfinished way back leaves the one before in force.

    Args:
        outside: journal.
        group: whose.
        assignment: asks where the group is primary, if it takes that to tell whether a move has come to its end.

    Raises:
        UnreadableRowError: it, or a later one, can't be read by this release.
    """
    for record in outside.journal.each(group):
        if record.step is Step.ROLLED_BACK:
            return None
        if record.step is Step.DONE or (not record.ended and record.done(assignment())):
            return record
    return None


def _last_done_or_why_not(
    outside: Outside, group: GroupName, assignment: Assignment | None
) -> MoveRecord | UnreadableRowError | None:
    try:
        return _last_done(outside, group, lambda: assignment)
    except UnreadableRowError as error:
        return error


def _back(record: MoveRecord, kind: MoveKind) -> Move:
    return replace(record.move.reversed(record.snapshot.primary), kind=kind)


# --- who consumes a cluster ------------------------------------------------------------------------------------------


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
    recorded = outside.services.assignments()
    assignments = {group: item for group, item in recorded.items() if item is not None}
    listed = set(outside.groups.groups()) | set(recorded)
    topic_ids: Mapping[TopicName, TopicId] = {}
    try:
        writer = outside.clusters.writer(cluster)
        listed |= {state.group for state in writer.groups()}
        topic_ids = {name: info.topic_id for name, info in writer.topics().items()}
    except ClusterUnavailableError:
        pass  # what the store remembers has to do: a dead cluster is what this command is for
    groups = [group for group in sorted(listed) if chosen(group)]
    undecided = [group for group in groups if group not in assignments]
    consuming = _consuming(outside, undecided, cluster, topic_ids)
    return [
        group
        for group in groups
        if (_leaves(assignments[group], cluster, to) if group in assignments else group in consuming)
    ]


def _leaves(assignment: Assignment, cluster: ClusterName, to: ClusterName) -> bool:
    decision = assignment.decision
    if decision.mode is Mode.ACTIVE_ACTIVE:  # it consumes everywhere already: who publishes its results moves
        return aggregate_cluster(decision.primary) == cluster
    if decision.stage is Stage.MOVING:
        return (decision.moving_from, decision.cluster) == (cluster, to)
    return decision.cluster == cluster


def _consuming(
    outside: Outside,
    groups: Sequence[GroupName],
    cluster: ClusterName,
    topic_ids: Mapping[TopicName, TopicId],
) -> set[GroupName]:
    """Which of the groups have a commit there that was not put there for them, or may have, where that can't be read.

    One that this client may not see there is among them: its own move says so.
    """
    parts = {
        groups[start]: groups[start : start + _ASKED_TOGETHER]
        for start in range(0, len(groups), _ASKED_TOGETHER)
    }

    def ask(first: GroupName) -> list[GroupName]:
        asked = parts[first]
        commits = outside.clusters.commits_each(asked, cluster) if topic_ids else None
        stored = outside.groups.stored(asked, list(outside.clusters.writers))
        return [
            group
            for group in asked
            if _consumes(stored[group], cluster, None if commits is None else commits[group], topic_ids)
        ]

    found = side_by_side(list(parts), ask, at_once=ASKED_AT_ONCE)
    return {group for part in found.values() for group in part}


def _consumes(
    stored: StoredGroup,
    cluster: ClusterName,
    commits: Commits | ConfigError | None,
    topic_ids: Mapping[TopicName, TopicId],
) -> bool:
    """Whether a group has a commit there that was not put there for it; true where that can't be read, or seen.

    Args:
        stored: what is remembered of the group.
        cluster: which cluster.
        commits: the group's there, or why they can't be seen; None: it does not answer.
        topic_ids: the topics there.
    """
    if isinstance(commits, ConfigError):
        return True
    published = {
        name: {item.topic_partition: item for item in apart(offers)[0]}
        for name, offers in stored.published.items()
    }
    if commits is None:
        observed, unreadable = apart(stored.observed[cluster])
        if unreadable:
            return True
        commits, topic_ids = last_seen(observed)
    return bool(own_commits(commits, topic_ids, standing_offers(cluster, topic_ids, published)))


# --- many groups -----------------------------------------------------------------------------------------------------


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
                for result in future.result():
                    results[futures[future]] = result
                    done(futures[future], result)
        except BaseException:
            failed.set()
            raise
    return {group: results[group] for group in groups}
