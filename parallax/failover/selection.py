"""Which moves an operator's words mean."""

from __future__ import annotations

from collections.abc import Callable

from parallax.domain.ids import ClusterName, GroupName, RegionName, aggregate_cluster, region_of
from parallax.domain.primary import Assignment, Mode, Stage
from parallax.errors import InvalidNameError, NotFoundError, UnknownRegionError
from parallax.failover.facts import Kind, Move
from parallax.failover.journal import MoveRecord, Step
from parallax.failover.many import ASKED_AT_ONCE, groups_on, side_by_side
from parallax.failover.outside import Outside


def destination(
    outside: Outside, to_region: str | None, to_cluster: str | None
) -> tuple[RegionName | None, ClusterName]:
    """The region that shall be primary (None: as before) and the cluster to consume.

    Raises:
        InvalidNameError: not exactly one of both is named.
        UnknownRegionError: there is no such aggregate cluster.
    """
    if (to_region is None) == (to_cluster is None):
        raise InvalidNameError(
            "name where the group goes: --to REGION, or --to-cluster CLUSTER if only a cluster is down"
        )
    if to_region is not None:
        cluster = aggregate_cluster(RegionName(to_region))
        outside.writer(cluster)
        return RegionName(to_region), cluster
    cluster = ClusterName(to_cluster or "")
    outside.writer(cluster)
    return None, cluster


def one_move(
    outside: Outside,
    group: GroupName,
    *,
    to_region: str | None,
    to_cluster: str | None,
    origin: str | None,
    kind: Kind,
) -> Move:
    """The move of one group.

    Args:
        outside: services, clusters, store.
        group: the group.
        to_region: the region that shall be primary; or
        to_cluster: the cluster that the present primary shall consume.
        origin: a region or cluster; None: where the group is recorded, else the only other cluster.
        kind: what is left of the origin.

    Raises:
        InvalidNameError: the origin can't be told, or is the target.
        UnknownRegionError: a region or cluster is not configured.
    """
    region, target = destination(outside, to_region, to_cluster)
    assignment = outside.assignment(group)
    source = _origin(outside, group, target, origin, assignment)
    outside.writer(source)
    if region is None:
        region = region_of(source) if assignment is None else assignment.decision.primary
    return Move(group, source, target, region, kind)


def _origin(
    outside: Outside, group: GroupName, target: ClusterName, named: str | None, assignment: Assignment | None
) -> ClusterName:
    if named is not None:
        cluster = (
            ClusterName(named) if named.startswith("aggregate-") else aggregate_cluster(RegionName(named))
        )
    elif assignment is not None and assignment.decision.mode is Mode.ACTIVE_ACTIVE:
        cluster = aggregate_cluster(assignment.decision.primary)
    elif assignment is not None and assignment.decision.stage is Stage.MOVING:
        cluster = assignment.decision.moving_from or target
    elif assignment is not None and assignment.decision.cluster not in {None, target}:
        cluster = assignment.decision.cluster or target
    else:
        others = [name for name in sorted(outside.writers) if name != target]
        if len(others) != 1:
            raise InvalidNameError(
                f"--from: say where group {group} consumes; {', '.join(others) or 'no cluster'} is possible"
            )
        cluster = others[0]
    if cluster == target:
        raise InvalidNameError(f"from and to are the same cluster, {target}: nothing has to be moved")
    return cluster


def region_moves(
    outside: Outside, region: str, to_region: str, chosen: Callable[[GroupName], bool], kind: Kind
) -> dict[GroupName, Move]:
    """The moves of every group that consumes a region's aggregate cluster.

    Raises:
        InvalidNameError: both are the same region.
        UnknownRegionError: a region has no aggregate cluster.
    """
    origin, target = aggregate_cluster(RegionName(region)), aggregate_cluster(RegionName(to_region))
    for cluster in (origin, target):
        outside.writer(cluster)
    if origin == target:
        raise InvalidNameError(f"--region and --to are the same region, {region!r}")
    return {
        group: Move(group, origin, target, RegionName(to_region), kind)
        for group in groups_on(outside, origin, chosen, to=target)
    }


def way_back(outside: Outside, group: GroupName, kind: Kind) -> Move:
    """The move that takes a group back to where its last one came from.

    Raises:
        NotFoundError: it was never moved, or its last move did not come to its end.
    """
    record = _last_done(outside, group)
    if record is None:
        raise NotFoundError(
            f"group {group!r} has no move to go back from: name where it goes with `parallax failover`"
        )
    return _back(record, kind)


def ways_back(
    outside: Outside, region: str, chosen: Callable[[GroupName], bool], kind: Kind
) -> dict[GroupName, Move]:
    """The moves that take back every group whose last move left the region's aggregate cluster.

    Raises:
        UnknownRegionError: the region has no aggregate cluster.
    """
    home = aggregate_cluster(RegionName(region))
    if home not in outside.writers:
        raise UnknownRegionError(
            f"unknown aggregate cluster {home!r}; known: {', '.join(sorted(outside.writers))}"
        )
    names = [GroupName(item.group) for item in outside.client.list_primaries().primaries]
    records = side_by_side(
        [group for group in names if chosen(group)],
        lambda group: _last_done(outside, group),
        at_once=ASKED_AT_ONCE,
    )
    return {
        group: _back(record, kind)
        for group, record in records.items()
        if record is not None and record.move.origin == home
    }


def _last_done(outside: Outside, group: GroupName) -> MoveRecord | None:
    """The newest move that counts: an unfinished way back leaves the one before in force."""
    done = [record for record in outside.records(group) if record.step in {Step.DONE, Step.ROLLED_BACK}]
    return done[0] if done and done[0].step is Step.DONE else None


def _back(record: MoveRecord, kind: Kind) -> Move:
    back = record.move.reversed(record.snapshot.primary)
    return Move(back.group, back.origin, back.target, back.region, kind)
