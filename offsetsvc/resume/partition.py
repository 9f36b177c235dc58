"""One partition's answer: apply the resume rule, tell all that it found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from offsetsvc.answers import Basis, Commit, FailoverAnswer, Side, SourceView
from offsetsvc.resume.own import NO_OWN, NO_ROWS, OwnRoutes, none_of, of_regions, own_source
from offsetsvc.resume.plans import PartitionPlan, PlanWanted
from offsetsvc.resume.skips import Limits, Skips, collect_plain_skips, collect_skips
from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    ClusterName,
    GroupName,
    RegionName,
    Route,
    SourceId,
    TargetOffset,
    TopicId,
    TopicPartition,
    region_of,
)
from parallax.domain.lineages import TopicLineages
from parallax.domain.nearest_checkpoint import nearest_checkpoint_minimum
from parallax.domain.outcome import Outcome
from parallax.domain.place import KeptEpoch, LogRange, Via
from parallax.domain.plain import consumed_plainly, resume_plainly
from parallax.domain.progress import (
    START,
    Progress,
    SourcePosition,
    TargetTruncation,
    consumed_position,
    settled_commit,
)
from parallax.domain.resume import Resume, SourceAnswer, resume
from parallax.domain.runs import Run


class ClusterState(NamedTuple):
    """What is known of one cluster's side of a partition.

    Attributes:
        reachable: whether the cluster could be asked about the partition: it answers, and a leader is there.
        log: None: the cluster could not be asked, or has no such partition.
        kept: what the log has of the leader epoch in which the group has read it last (`Question.read_epochs`); None: not told.
        partitions: partition count of the topic; None: the cluster could not be asked or lacks the topic.
    """

    cluster: ClusterName
    lineages: TopicLineages
    reachable: bool
    topic_id: TopicId
    partitions: int | None
    log: LogRange | None
    kept: KeptEpoch | None = None


class Question(NamedTuple):
    """All that one partition's answer depends on, beside the rows.

    Attributes:
        regions: those whose records lie at the destination: the sources of the routes into it, and itself if producers write there.
        progress: what the group's last move left at the origin; its cluster and topic id were checked.
        starts_at_end: policy for partitions without a commit: the end (``latest``), not the log start.
        nearest_checkpoint: whether to tell for comparison where the nearest-checkpoint rule would resume.
        notes: what was found out before.
        own: how the clusters copy what is produced at them.
    """

    group: GroupName
    topic_partition: TopicPartition
    origin: ClusterState
    destination: ClusterState
    regions: Sequence[RegionName]
    commit: Commit
    progress: Progress | None
    starts_at_end: bool
    stale_after_ms: int
    limits: Limits
    nearest_checkpoint: bool = False
    notes: frozenset[Outcome] = frozenset()
    own: OwnRoutes = NO_OWN

    @property
    def plan(self) -> PlanWanted:
        """Of what its plan is made."""
        return PlanWanted(
            self.origin.cluster,
            self.destination.cluster,
            self.topic_partition,
            self.regions,
            self.origin.lineages,
            self.destination.lineages,
        )

    @property
    def read_epochs(self) -> tuple[int, int]:
        """The leader epochs in which the group has read last at the origin, and at the destination on an earlier stay.

        Of clusters that may have records which no route has copied yet: UNKNOWN_EPOCH where that is of no matter.
        """
        origin = destination = UNKNOWN_EPOCH
        if self.own.at_all and self.commit.next_offset:
            origin = self.commit.epoch
        if self.own.there and self.progress is not None:
            own = SourceId(region_of(self.destination.cluster), self.destination.topic_id)
            destination = self.progress.positions.get(own, START).leader_epoch
        return origin, destination


def answer_partition(question: Question, plan: PartitionPlan, now_ms: int) -> FailoverAnswer:
    """Where the group resumes on the partition.

    Args:
        question: the partition.
        plan: made of `Question.plan`.
        now_ms: the wall clock.

    Raises:
        StoreUnavailableError: the index did not answer in time.
        InvariantError: stored rows contradict each other.
    """
    return _PartitionAnswer(question, plan, now_ms).answer()


class _PartitionAnswer:
    """One answer while it is put together."""

    def __init__(self, question: Question, plan: PartitionPlan, now_ms: int) -> None:
        self._question = question
        self._now_ms = now_ms
        partition = question.topic_partition.partition
        self._origin_views = question.origin.lineages.of(partition)
        self._destination_views = question.destination.lineages.of(partition)
        self._plan = plan
        self._own_here = self._own_there = NO_ROWS
        if question.own.at_all:
            here = self._own_source(question.origin, question.own.out, question.destination)
            there = self._own_source(question.destination, question.own.back, question.origin)
            self._own_here = question.own.at_origin(here, plan.destination)
            self._own_there = question.own.at_destination(there, plan.origin)
        self._notes = set(question.notes)

    def _own_source(self, state: ClusterState, route: Route | None, other: ClusterState) -> SourceId:
        partition = self._question.topic_partition.partition
        return own_source(state.cluster, state.topic_id, route, partition, other.lineages)

    def _with_own(self, commit: TargetOffset) -> PartitionPlan:
        """The plan with what was produced at either cluster."""
        own, plan, there = self._question.own, self._plan, self._own_there.source
        at_origin, at_destination = [], []
        if own.out is not None:
            at_origin += self._own_here.read_to(commit, self._question.commit.epoch)
        if own.there:
            if own.back is None:
                at_origin.append(none_of(there, commit))
            lost = self._question.destination.lineages.truncations(self._question.topic_partition.partition)
            at_destination += self._own_there.consumed_before(
                self._moved(commit).get(there), lost, self._question.destination.kept
            )
        return PartitionPlan(
            plan.regions,
            plan.origin,
            plan.destination,
            at_origin,
            at_destination,
            own.whole is not None,
        )

    def answer(self) -> FailoverAnswer:
        question = self._question
        commit = self._effective_commit()
        if question.own.at_all:
            self._plan = self._with_own(commit)
        destination_log = self._destination_log()
        place, by_short_cut = self._resume(commit, destination_log)
        nothing_consumed = question.commit.next_offset is None and not question.starts_at_end
        self._notes |= set(place.notes) - {Outcome.OK}
        if by_short_cut and self._plan.plain_alone:
            positions = {item.source: item.consumed for item in place.sources}
        else:
            positions = {**place.positions, **self._consumed_positions(commit)}
        if nothing_consumed:
            # The policy is the log start itself, whatever the first rows say.
            self._notes -= {Outcome.EARLIEST_FALLBACK, Outcome.TRIMMED, Outcome.NEVER_DELIVERED}
            skips = Skips((), destination_log.low_watermark, {}, None)
        else:
            skips = self._skips(place, positions, by_short_cut=by_short_cut)
        return self._put_together(commit, place, positions, skips)

    def _skips(
        self, place: Resume, positions: Mapping[SourceId, SourcePosition], *, by_short_cut: bool
    ) -> Skips:
        plan, start, limits = self._plan, place.resume_offset, self._question.limits
        if by_short_cut:
            found = collect_plain_skips(place.sources, plan.at_destination, start, limits)
            if found is not None:
                return found
        return collect_skips(
            positions=positions,
            origin=plan.from_origin,
            destination=plan.at_destination,
            start=start,
            limits=limits,
        )

    def _resume(self, commit: TargetOffset, destination_log: LogRange) -> tuple[Resume, bool]:
        """What the rule says, and whether its short cut said it."""
        plan, progress = self._plan, self._progress()
        if progress is not None:
            there = {item.source.region for item in plan.at_destination}
            progress = of_regions(progress, {*plan.regions, *there})
        if plan.plain is not None:
            place = resume_plainly(
                plan.plain, commit=commit, destination_log=destination_log, progress=progress
            )
            if place is not None:
                return place, True
        found = resume(
            commit=commit,
            regions=plan.regions,
            origin=plan.leading_on,
            destination=plan.at_destination,
            destination_log=destination_log,
            progress=progress,
        )
        return found, False

    def _effective_commit(self) -> TargetOffset:
        """The next offset that the rule takes: within the log, settled where the origin lost its tail."""
        question = self._question
        log = question.origin.log
        if question.commit.next_offset is None:
            self._notes.add(Outcome.NO_COMMIT)
            if not question.starts_at_end:
                return TargetOffset(0)
            ends = [view.newest.row.target_end for view in self._origin_views if view.newest is not None]
            ends += [item.history.newest.target_end for item in self._own_here.known if item.history.newest]
            return log.high_watermark if log is not None else max(ends, default=TargetOffset(0))
        commit = question.commit.next_offset
        if log is not None and commit > log.high_watermark:
            self._notes.add(Outcome.CLAMPED_TO_END)
            commit = log.high_watermark
        lost = question.origin.lineages.truncations(question.topic_partition.partition)
        lost += self._own_here.lost(commit, question.commit.epoch)
        if question.origin.kept is not None and question.origin.kept.end < commit:
            # The group has not noticed yet; it would go on there itself.
            lost.append(TargetTruncation(question.origin.kept.end, commit, UNKNOWN_EPOCH))
        settled = settled_commit(commit, lost, question.commit.leader_epoch)
        if settled < commit:
            self._notes.add(Outcome.LINEAGE_CHANGED)
        return settled

    def _progress(self) -> Progress | None:
        return self._question.progress if self._question.commit.next_offset is not None else None

    def _moved(self, commit: TargetOffset) -> Mapping[SourceId, SourcePosition]:
        progress = self._progress()
        return progress.positions if progress is not None and commit >= progress.resume_offset else {}

    def _consumed_positions(self, commit: TargetOffset) -> dict[SourceId, SourcePosition]:
        """How far each source was consumed, sources without a route onwards included."""
        moved = self._moved(commit)
        known = (*self._plan.from_origin, *self._plan.at_destination)
        sources = dict.fromkeys([*(item.source for item in known), *moved])
        return {source: self._consumed(source, commit, moved.get(source, START)) for source in sources}

    def _consumed(self, source: SourceId, commit: TargetOffset, moved: SourcePosition) -> SourcePosition:
        at_origin = [item for item in self._plan.from_origin if item.source == source]
        if len(at_origin) == 1 and not at_origin[0].history.lost:
            return consumed_plainly(commit, at_origin[0], moved)[0]
        return consumed_position(commit, at_origin, moved)[0]

    def _destination_log(self) -> LogRange:
        """The destination's log; while it can't be asked, all that the index knows of it."""
        state = self._question.destination
        if state.log is not None:
            return state.log
        if state.reachable:
            return LogRange(TargetOffset(0), TargetOffset(0))
        ends = [view.newest.row.target_end for view in self._destination_views if view.newest is not None]
        return LogRange(TargetOffset(0), max(ends, default=TargetOffset(0)))

    def _put_together(
        self,
        commit: TargetOffset,
        place: Resume,
        positions: Mapping[SourceId, SourcePosition],
        skips: Skips,
    ) -> FailoverAnswer:
        question = self._question
        resume_offset = skips.first_new
        complete_to = place.complete_to
        if skips.cut_at is not None:
            complete_to = skips.cut_at if complete_to is None else min(complete_to, skips.cut_at)
        if complete_to is not None:
            complete_to = max(complete_to, resume_offset)
        views = self._source_views(place, skips)
        ends = self._plan.row_ends
        self._note_age(commit, views)
        notes = tuple(sorted(self._notes or {Outcome.OK}, key=lambda note: note.value, reverse=True))
        return FailoverAnswer(
            group=question.group,
            topic_partition=question.topic_partition,
            origin=self._origin_side(place),
            destination=Side(
                question.destination.cluster,
                question.destination.topic_id,
                resume_offset,
                question.destination.log,
                None if -1 in ends.values() else min(ends.values(), default=None),
                without_rows=tuple(region for region, end in ends.items() if end < 0),
            ),
            resume_offset=resume_offset,
            notes=notes,
            sources=views,
            # Only the first one can end there: they are in order, and apart.
            skip_ranges=skips.ranges[1:]
            if skips.ranges and skips.ranges[0][1] <= resume_offset
            else skips.ranges,
            complete_to=complete_to,
            skip_ranges_continue_at=complete_to if skips.cut_at is not None else None,
            progress={
                source: position.bounded() for source, position in positions.items() if source.topic_id
            },
            nearest_checkpoint_offset=self._nearest_checkpoint(commit)
            if question.nearest_checkpoint
            else None,
        )

    def _nearest_checkpoint(self, commit: TargetOffset) -> TargetOffset | None:
        """For comparison: where the nearest-checkpoint rule would resume."""
        plan = self._plan
        if not plan.at_destination:
            return None
        return nearest_checkpoint_minimum(
            commit=commit,
            regions=plan.regions,
            origin=plan.from_origin,
            destination=plan.at_destination,
            log_start=self._destination_log().low_watermark,
        )

    def _origin_side(self, place: Resume) -> Side:
        question = self._question
        return Side(
            question.origin.cluster,
            question.origin.topic_id,
            question.commit.next_offset,
            question.origin.log,
            place.origin_known_to,
            question.commit.basis,
            question.commit.observed_at_ms,
            place.without_rows,
        )

    def _source_views(self, place: Resume, skips: Skips) -> tuple[SourceView, ...]:
        views = []
        newest = self._plan.newest_at_destination
        own = self._question.own
        for item in place.sources:
            stamped = newest.get(item.source.region)
            freshness_ms = None if stamped is None else max(0, self._now_ms - stamped.committed_at_ms)
            if item.source == self._own_there.source and own.there and own.back:
                freshness_ms = 0  # its records are there as soon as they are produced
            pending = 0 if item.pending is None else item.pending[1] - item.pending[0]
            views.append(
                SourceView(
                    item,
                    *self._proofs(item),
                    redelivery_records=skips.by_source.get(item.source, 0) + pending,
                    freshness_ms=freshness_ms,
                )
            )
        return tuple(views)

    def _proofs(self, item: SourceAnswer) -> tuple[Run | None, Run | None]:
        """The rows of a source's answer by side: the origin's comes first, and either may be missing."""
        if len(item.rows) != 1:
            return (item.rows[0], item.rows[1]) if item.rows else (None, None)
        only = item.rows[0]
        # From below its start on: a watermark may stand where a run begins.
        span = TargetOffset(only.target_start - 1), TargetOffset(only.target_start + 1)
        at_destination = any(
            only in list(there.history.between_targets(*span))
            for there in self._plan.at_destination
            if there.source == item.source
        )
        return (None, only) if at_destination and item.via is not Via.CONSUMED else (only, None)

    def _note_age(self, commit: TargetOffset, views: Sequence[SourceView]) -> None:
        """STALE: rows that would matter are missing for longer than a healthy replicator takes."""
        bound = self._question.stale_after_ms
        if any(view.freshness_ms is not None and view.freshness_ms > bound for view in views):
            self._notes.add(Outcome.STALE)
        newest = self._plan.newest_at_origin.values()
        behind = [stamped for stamped in newest if stamped.row.target_end < commit]
        if self._question.commit.basis is not Basis.POLICY and any(
            self._now_ms - stamped.committed_at_ms > bound for stamped in behind
        ):
            self._notes.add(Outcome.STALE)
        observed_at_ms = self._question.commit.observed_at_ms
        if observed_at_ms is not None and self._now_ms - observed_at_ms > bound:
            self._notes.add(Outcome.STALE)
