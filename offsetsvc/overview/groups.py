"""Every group, and those for which something can't be published.

What a page costs: two requests for names, then one for every few groups on it, side by side. With lags, a question to the cluster
where each group consumes besides. Of groups with troubles, one request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor

from offsetsvc.clusters import Clusters
from offsetsvc.lags import LagHistories, lag_of
from offsetsvc.overview.pages import filled, limit_of
from offsetsvc.parallel import Concurrently
from parallax.client.messages import outcome_to_pb
from parallax.client.primary_messages import primaries_to_pb
from parallax.domain.ids import ClusterName, GroupName, aggregate_cluster
from parallax.domain.primary import Assignment, Mode, Stage, assignment_of
from parallax.domain.sync_status import GroupSyncStatus, SyncCycle, SyncTrouble, UnreadableGroup
from parallax.errors import InvariantError
from parallax.ports.groups import GroupStore, NamePage, PrimaryStore
from parallax.ports.status import StatusStore
from parallax.runtime.deadline import Deadline
from parallax.v1 import offsets_pb2, primaries_pb2
from parallax.v1 import overview_pb2 as pb

MOST_WITH_LAG = 100
"""Groups of a page whose lags are asked for."""

_NAMES_AT_ONCE = 200
_PLACES_WITHIN_MS = 30_000

Shown = Callable[[GroupName], bool]


class GroupLists:
    """Lists of groups. Safe to use from many threads.

    Args:
        groups: what is remembered of groups.
        primaries: decisions about them.
        status: what the sync job tells.
        clusters: where they consume.
        histories: of lags; those of a page are followed from then on.
        executor: for questions side by side.
        now_ms: the store's clock.
    """

    def __init__(
        self,
        groups: GroupStore,
        primaries: PrimaryStore,
        status: StatusStore,
        clusters: Clusters,
        histories: LagHistories,
        executor: Executor,
        now_ms: Callable[[], int],
    ) -> None:
        self._groups = groups
        self._primaries = primaries
        self._status = status
        self._clusters = clusters
        self._histories = histories
        self._executor = executor
        self._now_ms = now_ms

    def page(self, request: pb.ListGroupsRequest, shown: Shown, deadline: Deadline) -> pb.ListGroupsResponse:
        """A page of all groups.

        Raises:
            InvalidNameError: the limit is negative.
            LimitError: it is more than a page may have.
            StoreUnavailableError: the store did not answer.
            DeadlineError: the deadline passed first.
        """
        limit = limit_of(request.limit, MOST_WITH_LAG) if request.with_lag else limit_of(request.limit)
        together = Concurrently(self._executor, deadline)
        names, next_after = filled(
            lambda after, most: self._names(NamePage(most, request.prefix, after), together),
            str,
            shown,
            request.after,
            limit,
        )
        decided, (statuses, cycle) = together.both(
            lambda: self._decided(names),
            lambda: (self._status.group_statuses(names), _cycle(self._status)),
            "reading what is known of groups",
        )
        places = _places(names, decided, statuses) if request.with_lag else {}
        lags, verdicts = self._lags(places, deadline), self._verdicts(places)
        now_ms = self._now_ms()
        primaries = {
            item.group: item
            for item in primaries_to_pb(
                (name, found) for name, found in decided.items() if found is not None
            ).primaries
        }
        return pb.ListGroupsResponse(
            groups=[
                pb.GroupSummary(
                    group=name,
                    primary=primaries.get(name, primaries_pb2.Primary(group=name)),
                    sync=_sync(statuses.get(name), cycle, now_ms),
                    lag_offsets=lags.get(name),
                    lag_verdict=verdicts.get(name),
                )
                for name in names
            ],
            next_after=next_after,
        )

    def places(self, chosen: Callable[[GroupName], bool]) -> dict[GroupName, ClusterName]:
        """Where the chosen groups consume, of those of which that is known.

        Raises:
            StoreUnavailableError: the store did not answer.
        """
        together = Concurrently(self._executor, Deadline.after_ms(_PLACES_WITHIN_MS))
        found: dict[GroupName, ClusterName] = {}
        page = NamePage(_NAMES_AT_ONCE)
        while names := self._names(page, together):
            page = NamePage(_NAMES_AT_ONCE, after=names[-1])
            wanted = [name for name in names if chosen(name)]
            found |= _places(wanted, self._decided(wanted), self._status.group_statuses(wanted))
        return found

    def problems(self, request: pb.ListSyncProblemsRequest, shown: Shown) -> pb.ListSyncProblemsResponse:
        """A page of groups with troubles, and how the sync job is.

        Raises:
            InvalidNameError: the limit is negative.
            LimitError: it is more than a page may have.
            StoreUnavailableError: the store did not answer.
        """
        found, next_after = filled(
            lambda after, most: self._status.troubled(NamePage(most, request.prefix, after)),
            lambda item: item.group,
            lambda item: shown(item.group),
            request.after,
            limit_of(request.limit),
        )
        cycle = _cycle(self._status)
        return pb.ListSyncProblemsResponse(
            groups=[_problems(item) for item in found],
            next_after=next_after,
            job=None if cycle is None else _job(cycle, self._now_ms()),
        )

    def _names(self, page: NamePage, together: Concurrently) -> list[GroupName]:
        """Groups of which anything is stored, be it a decision alone."""
        known, decided = together.both(
            lambda: self._groups.group_page(page),
            lambda: self._primaries.assigned_page(page),
            "reading names of groups",
        )
        return sorted({*known, *decided})[: page.limit]

    def _decided(self, names: Collection[GroupName]) -> dict[GroupName, Assignment | InvariantError | None]:
        decisions = self._primaries.decisions(names)
        found: dict[GroupName, Assignment | InvariantError | None] = {}
        for name in names:
            try:
                found[name] = assignment_of(decisions.get(name, ()))
            except InvariantError as error:
                found[name] = error
        return found

    def _lags(
        self, places: Mapping[GroupName, ClusterName], deadline: Deadline
    ) -> dict[GroupName, int | None]:
        if not places:
            return {}
        together = Concurrently(self._executor, deadline)
        lags = together.map(
            lambda item: lag_of(self._clusters, *item), list(places.items()), "asking for lags"
        )
        return dict(zip(places, lags, strict=True))

    def _verdicts(
        self, places: Mapping[GroupName, ClusterName]
    ) -> dict[GroupName, offsets_pb2.LagVerdict | None]:
        for group, cluster in places.items():
            self._histories.looked(group, [cluster])
        return {group: self._histories.verdict(group, cluster) for group, cluster in places.items()}


def _places(
    names: Sequence[GroupName],
    decided: Mapping[GroupName, Assignment | InvariantError | None],
    statuses: Mapping[GroupName, GroupSyncStatus | UnreadableGroup],
) -> dict[GroupName, ClusterName]:
    """Where groups consume, of those of which that is known."""
    found = {name: _consumes_at(decided[name], statuses.get(name)) for name in names}
    return {name: cluster for name, cluster in found.items() if cluster is not None}


def _cycle(status: StatusStore) -> SyncCycle | None:
    try:
        return status.cycle()
    except InvariantError:  # a newer sync job's: nothing is known of it
        return None


def _consumes_at(
    decided: Assignment | InvariantError | None, status: GroupSyncStatus | UnreadableGroup | None
) -> ClusterName | None:
    """The one cluster where a group consumes, as far as that is known."""
    if isinstance(decided, InvariantError):
        return None
    if decided is not None and decided.decision.mode is Mode.ACTIVE_PASSIVE and not decided.dual_active:
        if decided.decision.stage is not Stage.SETTLED:
            return None  # at the target nobody does yet
        return decided.decision.cluster or aggregate_cluster(decided.decision.primary)
    active = status.active_at if isinstance(status, GroupSyncStatus) else ()
    return active[0] if len(active) == 1 else None


def _sync(
    status: GroupSyncStatus | UnreadableGroup | None, cycle: SyncCycle | None, now_ms: int
) -> pb.GroupSync | None:
    if status is None:
        return None
    if isinstance(status, UnreadableGroup):
        return pb.GroupSync(problem=status.problem)
    # What is not told anew still holds at the end of a later cycle.
    seen_at_ms = max(status.told_at_ms, 0 if cycle is None or cycle.problem else cycle.ended_at_ms)
    return pb.GroupSync(
        outcome=outcome_to_pb(status.outcome),
        reasons=[
            pb.ReasonCount(reason=reason, count=count) for reason, count in sorted(status.reasons.items())
        ],
        active_at=status.active_at,
        partitions=status.partitions,
        since_ms=status.since_ms,
        age_ms=max(0, now_ms - seen_at_ms),
        problem=status.problem,
    )


def _problems(status: GroupSyncStatus | UnreadableGroup) -> pb.GroupProblems:
    if isinstance(status, UnreadableGroup):
        trouble = pb.SyncProblem(reason="unreadable_row", problem=status.problem)
        return pb.GroupProblems(group=status.group, problems=[trouble], count=1)
    return pb.GroupProblems(
        group=status.group,
        problems=map(_problem, status.troubles),
        count=status.count_troubles,
        since_ms=status.since_ms,
    )


def _problem(trouble: SyncTrouble) -> pb.SyncProblem:
    place = trouble.topic_partition
    return pb.SyncProblem(
        topic="" if place is None else place.topic,
        partition=0 if place is None else place.partition,
        cluster=trouble.cluster or "",
        reason=trouble.reason,
        outcome=outcome_to_pb(trouble.outcome),
        problem=trouble.problem,
        remedy=trouble.remedy,
    )


def _job(cycle: SyncCycle, now_ms: int) -> pb.SyncJob:
    return pb.SyncJob(
        owner=cycle.owner,
        age_ms=max(0, now_ms - cycle.ended_at_ms),
        groups=cycle.groups,
        groups_with_problems=cycle.troubled,
        away=cycle.away,
        problem=cycle.problem,
    )
