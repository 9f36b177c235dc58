"""Proof after the fact: what a group consumed before and after its moves, by what is recorded of both.

Positions come from the moves' records and from commits and reports as they stand now; where records lie comes from
the index. Nothing is taken from the answers that the moves went by, but for what consumers were told to skip.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from parallax.config.config import Config
from parallax.domain.commits import Commits, GroupCommit, ObservedCommit, PublishedOffset
from parallax.domain.formats import UnreadableRow, apart
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    Route,
    SourceId,
    SourceOffset,
    TargetOffset,
    TopicName,
    TopicPartition,
    region_of,
)
from parallax.domain.lineages import LineageView, TopicLineages
from parallax.domain.ownership import own_commits, standing_offers
from parallax.domain.primary import Assignment, assignment_of
from parallax.domain.progress import Progress, holds_for_topic
from parallax.domain.route_graph import CopiesKind
from parallax.errors import ClusterUnavailableError, InvariantError, NotFoundError
from parallax.failover.clusters import AggregateClusters
from parallax.failover.journal import MoveJournal, MoveRecord
from parallax.failover.timekeeper import Timekeeper
from parallax.failover.verify.rows import Stay, verify_sources
from parallax.failover.verify.verdict import Consumers, GroupVerdict, PartitionVerdict, Visit
from parallax.ports.clusters import TopicInfo
from parallax.ports.groups import GroupStore, PrimaryStore
from parallax.ports.index import MappingIndexReader, topic_lineages

_POLL_S = 0.5


def last_moves(
    records: Sequence[MoveRecord], group: GroupName, count: int, assignment: Assignment | None = None
) -> tuple[list[MoveRecord], list[str]]:
    """The newest of the group's moves that came to their end and follow on each other, the oldest first; and notes.

    ``assignment`` is what holds for the group: it tells of a move whose last note is missing that it has come to its end.

    Raises:
        NotFoundError: there is none.
    """
    notes = []
    if records and not records[0].ended and not records[0].done(assignment):
        notes.append(f"a move to {records[0].move.target} is under way ({records[0].step.value})")
    moves: list[MoveRecord] = []
    for record in records:
        if not record.done(assignment if record is records[0] else None) or not record.written:
            continue
        if moves and record.move.target != moves[-1].move.origin:
            notes.append(
                f"before its move to {moves[-1].move.target} the group was moved otherwise than by "
                "`parallax failover`"
            )
            break
        moves.append(record)
        if len(moves) == count:
            break
    if not moves:
        raise NotFoundError(
            f"no move of group {group!r} by `parallax failover` has come to its end: there is nothing to compare"
        )
    return moves[::-1], notes


@dataclass(frozen=True, slots=True)
class _Now:
    """The group on one cluster as it stands.

    Attributes:
        commits: None: the cluster does not answer.
        unreadable: what is stored of it and can't be read, by partition.
    """

    commits: Commits | None
    observed: Mapping[TopicPartition, ObservedCommit]
    published: Mapping[TopicPartition, PublishedOffset]
    topics: Mapping[TopicName, TopicInfo]
    unreadable: Mapping[TopicPartition, UnreadableRow]


@dataclass(slots=True)
class _Findings:
    unknown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Verifier:
    """Verifies groups; the offset services are not asked.

    Attributes:
        clusters: where groups consume.
        groups: what is remembered of groups.
        journal: their moves.
        time: waits before asking again.
        index: where records lie.
        config: the routes.
        primaries: where groups are primary.
    """

    clusters: AggregateClusters
    groups: GroupStore
    journal: MoveJournal
    time: Timekeeper
    index: MappingIndexReader
    config: Config
    primaries: PrimaryStore

    def verify(
        self,
        group: GroupName,
        *,
        moves: int = 1,
        consumers: Consumers = Consumers.AUTO,
        wait_ms: float = 0,
    ) -> GroupVerdict:
        """What the group consumed over its last moves.

        Args:
            group: the group.
            moves: how many of its moves, at most.
            consumers: what its members are.
            wait_ms: how long to wait for an index that lags behind the group.

        Raises:
            NotFoundError: no move of the group is recorded.
            StoreUnavailableError: the store did not answer in time.
        """
        deadline = self.time.deadline(wait_ms)
        while True:
            verdict = self._verdict(group, moves, consumers)
            if not verdict.behind or deadline.passed:
                return verdict
            self.time.pause(_POLL_S)

    def _verdict(self, group: GroupName, moves: int, consumers: Consumers) -> GroupVerdict:
        records, notes = self._last_moves(group, moves)
        clusters = [records[0].move.origin, *(record.move.target for record in records)]
        now = {cluster: self._look(group, cluster) for cluster in dict.fromkeys(clusters)}
        if consumers is Consumers.AUTO and any(
            item.reported for state in now.values() for item in state.observed.values()
        ):
            consumers = Consumers.FAILOVER
        partitions = sorted({item for record in records for item in record.written})
        work = _Work(self, group, records, now, consumers)
        return GroupVerdict(
            group, tuple(records), consumers, tuple(map(work.partition, partitions)), tuple(notes)
        )

    def _last_moves(self, group: GroupName, count: int) -> tuple[list[MoveRecord], list[str]]:
        records = list(self.journal.records(group))
        if not records or records[0].ended or not records[0].written:
            return last_moves(records, group, count)
        try:
            assignment = assignment_of(self.primaries.decisions([group]).get(group, ()))
        except InvariantError:  # what holds can't be read: the record alone tells
            assignment = None
        return last_moves(records, group, count, assignment)

    def _look(self, group: GroupName, cluster: ClusterName) -> _Now:
        commits = self.clusters.commits(group, cluster)
        topics: Mapping[TopicName, TopicInfo] = {}
        if commits is not None:
            try:
                topics = self.clusters.writer(cluster).topics()
            except ClusterUnavailableError:
                commits = None
        observed, not_seen = apart(self.groups.observed(group, cluster))
        published, not_told = apart(self.groups.published(group, cluster))
        return _Now(
            commits,
            {item.topic_partition: item for item in observed},
            {item.topic_partition: item for item in published},
            topics,
            {row.topic_partition: row for row in (*not_seen, *not_told)},
        )


@dataclass(slots=True)
class _Work:
    """One verification."""

    _verifier: Verifier
    _group: GroupName
    _records: Sequence[MoveRecord]
    _now: Mapping[ClusterName, _Now]
    _consumers: Consumers
    _lineages: dict[tuple[ClusterName, TopicName], TopicLineages] = field(default_factory=dict)
    _progress: dict[TopicName, Mapping[int, Progress | UnreadableRow]] = field(default_factory=dict)

    def partition(self, item: TopicPartition) -> PartitionVerdict:
        findings = _Findings(
            [now.unreadable[item].problem for now in self._now.values() if item in now.unreadable]
        )
        records = _since_first(self._records, item)
        visits = self._visits(item, records, findings)
        own = self._own_of(item, {visit.cluster: None for visit in visits}, findings)
        stays = [
            replace(
                self._stay(item, records, place, visit, findings),
                own=own[visit.cluster][0],
                whole=own[visit.cluster][1],
            )
            for place, visit in enumerate(visits)
        ]
        if self._consumers is Consumers.AUTO and not all(stay.skips_known for stay in stays):
            findings.notes.append(
                "whether its consumers skip is not recorded: say --consumers failover, or plain"
            )
        sources = verify_sources(self._verifier.index, stays)
        if not sources:
            findings.unknown += _untold(stays)
        return PartitionVerdict(item, tuple(visits), sources, tuple(findings.unknown), tuple(findings.notes))

    # --- where the group was -------------------------------------------------------------------------------

    def _visits(
        self, item: TopicPartition, records: Sequence[MoveRecord], findings: _Findings
    ) -> list[Visit]:
        """The oldest first; none where it can't be told."""
        visits: list[Visit] = []
        start = TargetOffset(0)
        for record in records:
            left_at = _left_at(record, item)
            began = self._began(item, records, findings) if left_at is None and not visits else None
            if began is not None:
                visits.append(began)
                start = began.end
                continue
            if left_at is None:
                findings.unknown.append(f"how far the group was in {record.move.origin} is not recorded")
                return []
            visits.append(Visit(record.move.origin, start, max(start, left_at)))
            mark = record.written.get(item)
            if mark is None:
                findings.unknown.append(f"the move to {record.move.target} had no part in this partition")
                return []
            start = mark.next_offset
        last = records[-1].move.target
        there = self._now[last].commits
        if there is not None and item not in there:
            findings.unknown.append(
                f"the group's commit in {last} is gone, which its move had put at {start}: it was deleted or has "
                "expired, so that how far the group came is not recorded"
            )
            return []
        end = self._position(last, item, findings)
        if end is not None and end < start:
            findings.unknown.append(
                f"the group was set back in {last}, to {end}, below where its move led ({start}): what it read "
                "again is not recorded"
            )
            return []
        visits.append(Visit(last, start, start if end is None else end))
        return self._with_stragglers(item, visits, findings)

    def _began(
        self, item: TopicPartition, records: Sequence[MoveRecord], findings: _Findings
    ) -> Visit | None:
        """Where the first move let the group begin that had never committed there: below it lies what `sync.no_commit` has left out.

        None: it had committed, or that is not known, or there are records at the target that no mapping tells of.
        """
        record = records[0]
        move, mark = record.move, record.written.get(item)
        there = self._now[move.origin].commits
        if mark is None or move.origin not in record.snapshot.commits or there is None:
            return None
        came_back = any(later.move.target == move.origin for later in records)
        if item in there and self._is_own(move.origin, item, there[item]) and not came_back:
            return None  # somebody has, meanwhile
        if self._verifier.config.is_produced_at(move.target):
            return None
        findings.notes.append(
            f"the group had never committed in {move.origin}: it began in {move.target} at {mark.next_offset}"
        )
        return Visit(move.target, TargetOffset(0), mark.next_offset)

    def _position(
        self, cluster: ClusterName, item: TopicPartition, findings: _Findings
    ) -> TargetOffset | None:
        """How far the group is; a member's report may be ahead of its commit."""
        now = self._now[cluster]
        seen = now.observed.get(item)
        reported = seen.next_offset if seen is not None and seen.reported else None
        if now.commits is None:
            position = "nothing was seen there" if seen is None else f"{seen.next_offset} was seen last"
            findings.unknown.append(f"{cluster} can't be asked how far the group is: {position}")
            return None if seen is None else seen.next_offset
        committed = now.commits[item].next_offset
        return committed if reported is None else max(committed, reported)

    def _with_stragglers(self, item: TopicPartition, visits: list[Visit], findings: _Findings) -> list[Visit]:
        """With what was consumed of a cluster after the group had left it for good."""
        final = visits[-1].cluster
        last_at = {visit.cluster: place for place, visit in enumerate(visits)}
        for cluster, place in last_at.items():
            if cluster == final:
                continue
            visit, now = visits[place], self._now[cluster]
            if now.commits is None:
                findings.unknown.append(
                    f"{cluster} can't be asked what was consumed there beyond {visit.end}, where the group left it"
                )
                continue
            commit = now.commits.get(item)
            if commit is None or commit.next_offset <= visit.end or not self._is_own(cluster, item, commit):
                continue
            findings.notes.append(
                f"somebody consumed {cluster} after the group had left it at {visit.end}, up to {commit.next_offset}"
            )
            visits[place] = Visit(cluster, visit.start, commit.next_offset)
        return visits

    def _is_own(self, cluster: ClusterName, item: TopicPartition, commit: GroupCommit) -> bool:
        """Whether somebody has consumed up to there: it was not put there for the way back."""
        info = self._now[cluster].topics.get(item.topic)
        ids = {} if info is None else {item.topic: info.topic_id}
        published = {
            name: {item: now.published[item]} if item in now.published else {}
            for name, now in self._now.items()
        }
        return item in own_commits({item: commit}, ids, standing_offers(cluster, ids, published))

    # --- what belongs to it --------------------------------------------------------------------------------

    def _stay(
        self,
        item: TopicPartition,
        records: Sequence[MoveRecord],
        place: int,
        visit: Visit,
        findings: _Findings,
    ) -> Stay:
        lineages = self._lineages_of(visit.cluster, item.topic)
        stay = Stay(visit, item.partition, visit.end, lineages)
        if place == 0:
            before = records[0].snapshot.progress.get(item)
            if before is not None and before.cluster == visit.cluster and visit.end >= before.resume_offset:
                stay = replace(stay, given=_consumed(before))
            return stay
        if place == len(records):
            stay = replace(stay, passed_to=max(visit.end, self._log_start(visit, item, findings)))
        left = self._left_by(records[place:], item, findings)
        if left is not None and not holds_for_topic(left.topic_id, left.resume_offset, lineages.topic_id):
            findings.unknown.append(
                f"{item.topic} was created anew at {visit.cluster} since the group moved there"
            )
        if self._consumers is Consumers.PLAIN:
            return stay
        if left is None or left.cluster != visit.cluster:  # void, or replaced since
            return replace(stay, skipped=None, skips_known=False)
        return replace(stay, skipped=_consumed(left), skips_known=self._consumers is Consumers.FAILOVER)

    def _own_of(
        self, item: TopicPartition, clusters: Mapping[ClusterName, None], findings: _Findings
    ) -> dict[ClusterName, tuple[LineageView | None, bool]]:
        """By cluster that the group read, what tells of the records that were produced there, and whether that is all of its log."""
        return {cluster: self._own_at(cluster, clusters, item, findings) for cluster in clusters}

    def _own_at(
        self,
        cluster: ClusterName,
        clusters: Mapping[ClusterName, None],
        item: TopicPartition,
        findings: _Findings,
    ) -> tuple[LineageView | None, bool]:
        config = self._verifier.config
        produced = config.is_produced_at(cluster)
        routes = {other: config.route_from_log(cluster, other) for other in clusters if other != cluster}
        found = [(other, route) for other, route in routes.items() if route is not None]
        if len(found) < len(routes):
            if produced:
                other = next(other for other, route in routes.items() if route is None)
                findings.unknown.append(
                    f"producers write to {cluster}, and no route brings to {other}, under the same names, what they write: configure "
                    f"{Route(region_of(cluster), region_of(other))}, or make {cluster} an 'aggregate' if nobody writes there"
                )
            return None, False
        views = [
            view
            for other, route in found
            for view in self._lineages_of(other, item.topic).of(item.partition)
            if view.partition.route == route
        ]
        info = self._now[cluster].topics.get(item.topic)
        if info is not None:
            views = [view for view in views if view.lineage.source_topic_id == info.topic_id]
        if not views:
            if produced and found:
                findings.unknown.append(
                    f"no row of what is produced at {cluster} at {', '.join(other for other, _ in found)}"
                )
            return None, False
        whole = all(config.settings_of(route).copied().kind is CopiesKind.ALL for _, route in found)
        return max(views, key=lambda view: -1 if view.newest is None else view.newest.row.source_end), whole

    def _left_by(
        self, later: Sequence[MoveRecord], item: TopicPartition, findings: _Findings
    ) -> Progress | None:
        """What the move before these left: kept by the next one's snapshot, that of the last one in the store."""
        if later:
            return later[0].snapshot.progress.get(item)
        if item.topic not in self._progress:
            self._progress[item.topic] = self._verifier.groups.progress(self._group, item.topic)
        left = self._progress[item.topic].get(item.partition)
        if isinstance(left, UnreadableRow):
            findings.unknown.append(left.problem)
            return None
        return left

    def _lineages_of(self, cluster: ClusterName, topic: TopicName) -> TopicLineages:
        key = (cluster, topic)
        if key not in self._lineages:
            info = self._now[cluster].topics.get(topic)
            region = region_of(cluster)
            routes = [route for route in self._verifier.config.all_routes() if route.target == region]
            topic_id = None if info is None else info.topic_id
            self._lineages[key] = topic_lineages(self._verifier.index, routes, topic, topic_id)
        return self._lineages[key]

    def _log_start(self, visit: Visit, item: TopicPartition, findings: _Findings) -> TargetOffset:
        if self._now[visit.cluster].commits is None:
            return visit.end
        try:
            log = self._verifier.clusters.writer(visit.cluster).log_ranges([item]).get(item)
        except ClusterUnavailableError:
            findings.unknown.append(f"{visit.cluster} does not tell its log start")
            return visit.end
        if log is None:
            findings.unknown.append(f"{visit.cluster} has no such partition any more, or no leader of it")
            return visit.end
        if log.low_watermark > visit.end:
            findings.notes.append(
                f"retention at {visit.cluster} has taken records that the group had not consumed: its log starts "
                f"at {log.low_watermark}, the group is at {visit.end}"
            )
        return log.low_watermark


def _since_first(records: Sequence[MoveRecord], item: TopicPartition) -> Sequence[MoveRecord]:
    """From the first move on that had a part in the partition: the topic may have grown since the one before."""
    tell = (
        place
        for place, record in enumerate(records)
        if item in record.written or _left_at(record, item) is not None
    )
    return records[next(tell) :]


def _untold(stays: Sequence[Stay]) -> Iterator[str]:
    """Why it can't be said that there was nothing to consume, where no source has the partition."""
    for stay in stays:
        visit = stay.visit
        if not stay.lineages.of(stay.partition):
            yield f"the index has no row of this partition at {visit.cluster}"
        elif visit.end:
            yield f"the index tells of no record of this partition at {visit.cluster}; the group was at {visit.end}"


def _consumed(progress: Progress) -> dict[SourceId, SourceOffset]:
    return {source: position.source_next for source, position in progress.positions.items()}


def _left_at(record: MoveRecord, item: TopicPartition) -> TargetOffset | None:
    """How far the group was at the origin: what the move went by, or its last commit there if that is later."""
    went_by = record.left_at.get(item)
    commit = record.snapshot.commits.get(record.move.origin, {}).get(item)
    if commit is None:
        return went_by
    return commit.next_offset if went_by is None else max(went_by, commit.next_offset)
