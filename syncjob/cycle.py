"""One cycle after another: read the clusters, ask the offset service, decide, publish."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import structlog

from parallax.client.answer import Pair, ResumeAnswer
from parallax.config.config import Config
from parallax.domain.commits import Commits, ObservedCommit, PublishedOffset, last_seen
from parallax.domain.formats import UnreadableRow, apart
from parallax.domain.ids import ClusterName, GroupName, TopicName, TopicPartition
from parallax.domain.latencies import NO_LATENCIES, Latencies
from parallax.domain.outcome import Outcome
from parallax.domain.ownership import Offers, own_commits, standing_offers
from parallax.domain.primary import Assignment, Decisions, assignment_of
from parallax.domain.progress import Progress, moved_at
from parallax.errors import FencedError, ParallaxError, UnavailableError
from parallax.ports.audit import Auditor
from parallax.ports.clusters import ClusterWriter
from parallax.ports.groups import GroupStore, PrimaryStore, StoredGroup
from parallax.runtime.deadline import Deadline
from syncjob.active import moves_seen, pairs_to_ask
from syncjob.clusters import ClusterSnapshot, ClusterWatch, as_seen_for, to_remember
from syncjob.decide import UNPUBLISHABLE, Decision, Reason, Rules, decide, held, needs_answers, writes
from syncjob.dormant import DormantGroups
from syncjob.facts import GroupFacts, GroupSide, Place, Seen
from syncjob.idle import Kept, Sight, Standing, hold, of_chosen, sight_of
from syncjob.latency import DELAYED, CheckpointLatencies
from syncjob.patience import Patience
from syncjob.publish import Publication, publish
from syncjob.rewinds import Void, confirmed, void_of, without
from syncjob.status import FAILED_GROUPS

_log = structlog.get_logger(__name__)

_GROUPS_AT_ONCE = 8
_LOOKS_TOGETHER = 64
"""What is remembered of so many groups is in memory at a time. Their offsets are written within moments of their primaries' being read."""
_OFFSETS_LOGGED = 10
"""In one line, whose count of partitions says whether there are more."""
_DAY_MS = 86_400_000
_DECIDED_EVERY_S = 3_600.0
"""How often it is asked which groups were ever decided about: those without anything else matter for being forgotten alone."""
WRITE_WITHIN_MS = 3_000
"""So old at most is what is known of a group's primary, and of its commits at the target, when offsets are written there. Reads take
milliseconds."""

_UNPUBLISHABLE = frozenset(reason.value for reason in UNPUBLISHABLE)

Ask = Callable[[GroupName, Pair, Sequence[TopicName]], Mapping[TopicPartition, ResumeAnswer]]
"""Asks the offset service where each partition of the topics resumes (`parallax.client.answer.ask` with a client)."""


@dataclass(frozen=True, slots=True)
class CycleReport:
    """What a cycle did.

    Attributes:
        decisions: about every group but those that wait, those that stand still included.
        failures: by group, why nothing could be decided.
        away: clusters that did not answer.
        empty: groups without a commit, a member or a report in any cluster, all of which answered.
        unconfirmed: commits that have gone back, or are gone, and are not believed yet to be.
        export_problem: why checkpoints for MirrorMaker 2's clients could not be written; empty: they could.
        latencies: since the syncer began: from a commit that was seen at a group's origin to its offset that stands elsewhere.
        standing: groups about which nothing was decided anew, and what was decided before.
        made: the decisions of this cycle, about all other groups; None: all.
        waiting: groups that could not be read or looked at in this cycle; nothing is said of them.
        waiting_unpublished: for how many of them something could not be published when they were last looked at, by reason.
    """

    decisions: tuple[Decision, ...]
    failures: Mapping[GroupName, str] = field(default_factory=dict)
    away: tuple[ClusterName, ...] = ()
    moves: int = 0
    rewinds: int = 0
    empty: tuple[GroupName, ...] = ()
    unconfirmed: int = 0
    export_problem: str = ""
    latencies: Latencies = NO_LATENCIES
    standing: Mapping[GroupName, Kept] = field(default_factory=dict)
    made: tuple[Decision, ...] | None = None
    waiting: frozenset[GroupName] = frozenset()
    waiting_unpublished: Mapping[str, int] = field(default_factory=dict)

    @property
    def decided(self) -> tuple[Decision, ...]:
        """The decisions of this cycle."""
        return self.decisions if self.made is None else self.made

    @property
    def counts(self) -> dict[str, int]:
        """How many decisions there were of each reason, and what else happened, by name."""
        counted = Counter(decision.reason.value for decision in self.decided)
        for kept in self.standing.values():
            counted.update(kept.reasons)
        return {**counted, "moves": self.moves, "rewinds": self.rewinds, FAILED_GROUPS: len(self.failures)}

    @property
    def unpublished(self) -> dict[str, int]:
        """How many groups have something that can't be published, by reason; `FAILED_GROUPS`: nothing was decided."""
        held = {(item.group, item.reason) for item in self.decided if item.reason in UNPUBLISHABLE}
        counted = Counter(reason.value for _, reason in held)
        counted.update(self.waiting_unpublished)
        for kept in self.standing.values():
            counted.update(kept.reasons.keys() & _UNPUBLISHABLE)
        return {**counted, FAILED_GROUPS: counted[FAILED_GROUPS] + len(self.failures)}

    @property
    def unreadable(self) -> list[str]:
        """What is stored and can't be read, each row once."""
        # Nothing stands of which something can't be read.
        rows = (decision.problem for decision in self.decided if decision.reason is Reason.UNREADABLE_ROW)
        return list(dict.fromkeys(rows))


@dataclass(slots=True)
class _Look:
    """A look at one group, and what comes of it.

    Attributes:
        snapshots: the clusters as they are to the group.
        facts: what is known of it, once that is read.
        has_moved: it has gone on, or was decided anew, since it was last read, or what follows from that is still missing.
        holds: the decisions hold as long as the group stands still.
        whole: the clusters on which nothing else is remembered of the group than what was seen now.
        problem: why nothing could be decided; empty: it could.
    """

    group: GroupName
    snapshots: Mapping[ClusterName, ClusterSnapshot | None]
    sight: Sight
    began_ms: int
    has_moved: bool = False
    facts: GroupFacts | None = None
    decisions: list[Decision] = field(default_factory=list)
    holds: bool = False
    whole: frozenset[ClusterName] = frozenset()
    moves: int = 0
    rewinds: int = 0
    is_empty: bool = False
    unconfirmed: int = 0
    problem: str = ""

    def fail(self, error: ParallaxError) -> None:
        """Nothing came of it."""
        self.decisions, self.holds, self.is_empty, self.problem = [], False, False, _said(error)
        self.moves = self.rewinds = self.unconfirmed = 0

    def take(self, cluster: ClusterName, done: Sequence[Decision]) -> None:
        """What became of the decisions that write to a cluster."""
        if self.problem:
            return
        others = [item for item in self.decisions if item.commit is None or item.target != cluster]
        self.decisions = sorted([*others, *done], key=lambda item: (item.topic_partition, item.target))


class Syncer:
    """Publishes resume offsets of every group, cycle by cycle.

    It keeps nothing but the commits of the last cycle, so that two consecutive reads can be compared, and for
    some seconds what was decided about groups that stand still: another process may go on at any time.

    Args:
        config: groups, rules, time-outs.
        writers: every aggregate cluster.
        store: what is remembered of groups.
        primaries: where groups are primary.
        ask: asks the offset service.
        dry_run: decide and tell, write nothing anywhere.
        now_ms: the clock by which moments are saved and compared: the store's.
        auditor: keeps that a group's decisions were forgotten.
        clock: seconds, monotonic.
        tell: hears of each cycle what it did, or why it failed.
        others_within_s: after so long a cycle begins no more looks at groups that have not moved: by default ``sync.interval_ms``.
    """

    def __init__(
        self,
        config: Config,
        writers: Iterable[ClusterWriter],
        store: GroupStore,
        primaries: PrimaryStore,
        ask: Ask,
        *,
        dry_run: bool = False,
        now_ms: Callable[[], int],
        auditor: Auditor,
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[CycleReport | None, str], None] = lambda _report, _problem: None,
        others_within_s: float | None = None,
    ) -> None:
        self._config = config
        self._others_within_s = (
            config.sync.interval_ms / 1_000 if others_within_s is None else others_within_s
        )
        self._tell_of = tell
        self._watches = {
            writer.cluster: ClusterWatch(writer, config.service.cluster_timeout_ms, now_ms)
            for writer in writers
        }
        self._store = store
        self._primaries = primaries
        self._ask = ask
        self._dry_run = dry_run
        self._now_ms = now_ms
        self._clock = clock
        self._rules = Rules(config.sync.on_rewind == "propagate", config.sync.republish_after_s * 1_000)
        self._before: dict[tuple[GroupName, ClusterName], Commits] = {}
        self._assignments: dict[GroupName, Assignment | None] = {}
        self._unpublished: dict[GroupName, frozenset[str]] = {}  # by the last look
        self._behind: set[GroupName] = set()  # they have moved, and not everything that follows is published
        self._threads = ThreadPoolExecutor(_GROUPS_AT_ONCE, "sync-group")
        self._told: dict[GroupName, dict[tuple[TopicPartition, ClusterName], Reason]] = {}
        self._forget_after_ms = config.groups.forget_after_days * _DAY_MS
        self._dormant = DormantGroups(
            store, primaries, forget_after_ms=self._forget_after_ms, auditor=auditor
        )
        self._decided: frozenset[GroupName] = frozenset()
        self._decided_until_s = -math.inf
        self._standing = Standing()
        self._latencies, self._began_s = CheckpointLatencies(), clock()
        # Groups whose commits stood as they are stored, by cluster and the moment when they were read.
        self._stood: defaultdict[tuple[ClusterName, int], list[GroupName]] = defaultdict(list)
        # Nothing is forgotten by one that only looks: it tells what it sees.
        self._patience = Patience(0 if dry_run else config.sync.rewind_confirm_ms, clock)

    def close(self) -> None:
        """Stop reading."""
        for watch in self._watches.values():
            watch.close()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def cycle(self) -> CycleReport:
        """Read, decide, publish. A group that can't be served does not keep others from it.

        Raises:
            StoreUnavailableError: the store did not answer, so that no group is known.
        """
        try:
            report = self._cycle()
        except UnavailableError as error:
            self._tell_of(None, f"[{error.code}] {error}")
            raise
        self._tell_of(report, "")
        return report

    def _cycle(self) -> CycleReport:
        known, self._began_s = self._known(), self._clock()
        turn = self._standing.begin(
            self._now_ms(), sorted(known - self._dormant.names), reported=self._reported
        )
        for watch in self._watches.values():
            watch.begin(self._config.groups.chosen, turn.order, frozenset(turn.resting))
        snapshots = {name: watch.result() for name, watch in self._watches.items()}
        # Also what a read that comes late has not asked for: nobody knows whether it is the same there.
        unread = (
            frozenset[GroupName]().union(*(it.resting for it in snapshots.values() if it))
            - turn.resting.keys()
        )
        resting = dict(turn.resting) | {group: self._standing.before(group) for group in unread}
        alive = frozenset(
            group
            for snapshot in snapshots.values()
            if snapshot
            for group, commits in snapshot.commits.items()
            if commits or group in snapshot.with_members
        ).union(group for group, kept in resting.items() if kept is not None and kept.is_somewhere)
        to_come = {group for group, kept in resting.items() if kept is None}
        groups = (known - self._dormant.names) | alive | to_come
        awake = sorted(groups - resting.keys())
        decided = self._primaries.decisions(awake)
        self._forget_all_but(groups)
        self._standing.wait(to_come)
        read: dict[GroupName, Kept] = {}
        looks: list[_Look] = []
        failures: dict[GroupName, str] = {}
        for group in awake:
            try:
                look = self._sighted(group, as_seen_for(group, snapshots), decided.get(group, ()))
            except ParallaxError as error:
                failures[group] = _said(error)
                self._standing.looked(group, self._now_ms())
                continue
            kept = self._standing.get(group, look.sight, look.began_ms)
            if kept is None:
                looks.append(look)
            else:
                read[group] = kept
        looks, put_off = self._look_in_turn(looks)
        read |= self._put_off(put_off)
        failures |= {look.group: look.problem for look in looks if look.problem}
        self._note_standing(read, snapshots)
        standing = {
            group: kept for group, kept in resting.items() if kept is not None and group in groups
        } | read
        made = tuple(decision for look in looks for decision in look.decisions)
        waiting = groups - standing.keys() - failures.keys() - {look.group for look in looks}
        report = CycleReport(
            decisions=(*made, *(decision for kept in standing.values() for decision in kept.decisions)),
            failures=failures,
            away=tuple(name for name, snapshot in snapshots.items() if snapshot is None),
            moves=sum(look.moves for look in looks),
            rewinds=sum(look.rewinds for look in looks),
            empty=tuple(look.group for look in looks if look.is_empty),
            unconfirmed=sum(look.unconfirmed for look in looks),
            latencies=self._latencies.value(),
            standing=standing,
            made=made,
            waiting=waiting,
            waiting_unpublished=Counter(why for group in waiting for why in self._unpublished.get(group, ())),
        )
        self._tell(report)
        if not self._dry_run:
            self._dormant.forget_all_but(known)
            self._dormant.note(report.empty, alive, self._now_ms())
            self._standing.forget(self._dormant.names)
            if not report.away and not report.waiting:
                self._decided = self._decided.difference(self._dormant.forget_old(self._now_ms()))
        return report

    def _reported(self, kept: Mapping[GroupName, Kept]) -> list[GroupName]:
        """Of which of these groups a member has reported since they were looked at, of those for which that is asked now."""
        now_ms = self._now_ms()
        by_cluster: defaultdict[ClusterName, list[GroupName]] = defaultdict(list)
        for group, it in kept.items():
            if it.is_to_be_noted(now_ms):
                for cluster in self._watches:
                    by_cluster[cluster].append(group)
        return [
            group
            for cluster, groups in by_cluster.items()
            for group, at_ms in self._store.reported(cluster, groups).items()
            if at_ms >= kept[group].looked_at_ms
        ]

    def _known(self) -> frozenset[GroupName]:
        """Groups of which anything is stored, be it a decision alone: whoever made that up need not give the group a commit."""
        if self._clock() >= self._decided_until_s:
            self._decided = frozenset(self._primaries.assigned_groups())
            self._decided_until_s = self._clock() + _DECIDED_EVERY_S
        return frozenset(filter(self._config.groups.chosen, self._decided.union(self._store.groups())))

    def _forget_all_but(self, groups: Collection[GroupName]) -> None:
        """Keep in memory what is of these groups alone."""
        self._standing.forget_all_but(groups)
        self._patience.forget_all_but(groups)
        self._latencies.forget_all_but(groups)
        self._before = {key: commits for key, commits in self._before.items() if key[0] in groups}
        self._told = {group: told for group, told in self._told.items() if group in groups}
        self._assignments = {group: it for group, it in self._assignments.items() if group in groups}
        self._unpublished = {group: why for group, why in self._unpublished.items() if group in groups}
        self._behind.intersection_update(groups)

    def _sighted(
        self,
        group: GroupName,
        snapshots: Mapping[ClusterName, ClusterSnapshot | None],
        decided: Decisions,
    ) -> _Look:
        """What was read of a group; raises where what was decided about its primary can't be read."""
        sight = sight_of(group, snapshots, assignment_of(decided), self._config.topics.chosen)
        has_moved = (
            group in self._behind
            or self._assignments.get(group, sight.assignment) != sight.assignment
            or any(self._before.get((group, name), there) != there for name, there in sight.commits.items())
        )
        return _Look(group, snapshots, sight, self._now_ms(), has_moved)

    def _look_in_turn(self, looks: Sequence[_Look]) -> tuple[list[_Look], list[_Look]]:
        """Look at all groups that have moved, then at others while there is time, those first that were not looked at for longest.

        However little time there is, some others are looked at. Which were looked at, and which were not.
        """
        in_turn = sorted(looks, key=lambda look: self._standing.looked_at_ms(look.group))
        moved = [look for look in in_turn if look.has_moved]
        others = [look for look in in_turn if not look.has_moved]
        for start in range(0, len(moved), _LOOKS_TOGETHER):
            self._look(moved[start : start + _LOOKS_TOGETHER])
        in_time = Deadline(self._began_s + self._others_within_s, self._clock)
        done = 0
        while done < len(others) and (done == 0 or not in_time.passed):
            self._look(others[done : done + _LOOKS_TOGETHER])
            done += _LOOKS_TOGETHER
        return [*moved, *others[:done]], others[done:]

    def _put_off(self, looks: Iterable[_Look]) -> dict[GroupName, Kept]:
        """Remember how groups were read for which there is no time: which has moved is seen by that. What stands of them."""
        found = {}
        for look in looks:
            group = look.group
            self._assignments[group] = look.sight.assignment
            for cluster, commits in look.sight.commits.items():
                self._before[group, cluster] = commits
            kept = self._standing.put_off(group, look.sight)
            if kept is not None:
                found[group] = kept
        return found

    def _look(self, looks: Sequence[_Look]) -> None:
        """Look at some groups: what is remembered of all is read together, each is decided about, and all are published."""
        try:
            stored = self._stored(looks)
            deciding = [(look, stored[look.group]) for look in looks if look.group in stored]
            for _ in self._threads.map(lambda asked: self._decide(*asked), deciding):
                pass
            if not self._dry_run:
                self._publish(looks)
                for look in (look for look in looks if not look.problem):
                    self._latencies.note(look.group, look.decisions, self._began_s, self._clock())
        except ParallaxError as error:
            for look in looks:
                look.fail(error)
        for look in looks:
            group = look.group
            if look.holds and not look.problem:
                self._standing.keep(group, look.sight, look.decisions, look.began_ms, look.whole)
            else:
                self._standing.looked(group, look.began_ms)
            self._assignments[group] = look.sight.assignment
            reasons = {item.reason.value for item in look.decisions} & _UNPUBLISHABLE
            self._unpublished[group] = frozenset([*reasons, *([FAILED_GROUPS] if look.problem else [])])
            if look.has_moved and (look.problem or any(_is_behind(item) for item in look.decisions)):
                self._behind.add(group)
            else:
                self._behind.discard(group)

    def _stored(self, looks: Sequence[_Look]) -> Mapping[GroupName, StoredGroup]:
        """What is remembered of the groups; one that can't be read leaves the others to be read."""
        groups, clusters = [look.group for look in looks], list(self._watches)
        try:
            return self._store.stored(groups, clusters)
        except ParallaxError as error:
            if len(looks) == 1:
                looks[0].fail(error)
                return {}
        return {group: it for look in looks for group, it in self._stored([look]).items()}

    def _decide(self, look: _Look, stored: StoredGroup) -> None:
        """Decide about one group, and remember what was seen; nothing is published yet."""
        try:
            facts, told, whole = self._facts(look, stored)
            unconfirmed = self._patience.unconfirmed(facts)
            void = self._note_void(facts, unconfirmed)  # before what shows it is overwritten
            look.whole = frozenset() if void or unconfirmed else whole
            if not self._dry_run:
                self._remember(facts, told, look.whole, unconfirmed)
            look.facts = facts = without(facts, void)
            look.moves, look.rewinds = self._note_moves(facts, void, unconfirmed), len(void.progress)
            look.decisions, holds = self._serve(facts, unconfirmed)
            look.holds = holds and not (look.moves or void or unconfirmed)
            forget_before_ms = look.began_ms - self._forget_after_ms
            look.is_empty = _is_empty(facts, forget_before_ms) and not (void or unconfirmed)
            look.unconfirmed = len(unconfirmed)
        except ParallaxError as error:
            look.fail(error)

    def _publish(self, looks: Sequence[_Look]) -> None:
        """Write what was decided, a cluster's groups together, unless a primary was decided anew meanwhile."""
        changes: defaultdict[ClusterName, dict[GroupName, list[Decision]]] = defaultdict(dict)
        by_group = {look.group: look for look in looks}
        for look in looks:
            for cluster, items in writes(look.decisions).items():
                changes[cluster][look.group] = items
        for cluster, of_groups in changes.items():
            fresh = Deadline.after_ms(WRITE_WITHIN_MS, self._clock)
            decided = self._primaries.decisions(of_groups)
            publications = {}
            for group, items in of_groups.items():
                look = by_group[group]
                if look.facts is None or look.problem:
                    continue
                try:
                    _require_same(look.facts, decided.get(group, ()))
                except ParallaxError as error:
                    look.fail(error)
                else:
                    expected = {item: seen.commit for item, seen in look.facts.sides[cluster].commits.items()}
                    publications[group] = Publication(expected, items)
            writer = self._watches[cluster].writer
            for group, done in publish(writer, self._store, publications, fresh, self._threads.map).items():
                if done.commits is not None:
                    self._before[group, cluster] = of_chosen(done.commits, self._config.topics.chosen)
                by_group[group].take(cluster, done.decisions)

    def _remember(
        self,
        facts: GroupFacts,
        told: Sequence[ObservedCommit],
        whole: frozenset[ClusterName],
        unconfirmed: Collection[Place],
    ) -> None:
        """Save what was seen: only what is new, where it is enough to note at the cycle's end that all of it stood.

        What stood where it may come back is kept.
        """
        new = [
            item
            for item in told
            if (item.cluster, item.topic_partition) not in unconfirmed
            and not (
                item.cluster in whole
                and item.says_same(facts.sides[item.cluster].seen.get(item.topic_partition))
            )
        ]
        self._store.save_observed(new)
        for cluster in whole:
            self._stood[cluster, facts.sides[cluster].read_at_ms].append(facts.group)

    def _note_standing(
        self, kept: Mapping[GroupName, Kept], snapshots: Mapping[ClusterName, ClusterSnapshot | None]
    ) -> None:
        """Note of the groups that were read in this cycle that their commits stand, of those that stand still now and then."""
        stood, self._stood = self._stood, defaultdict(list)
        now_ms = self._now_ms()
        due = [group for group, it in kept.items() if it.is_to_be_noted(now_ms)]
        if self._dry_run:
            return
        for group in due:
            for cluster in kept[group].to_note:
                snapshot = snapshots[cluster]
                if snapshot is not None and snapshot.as_seen_for(group) is not None:
                    stood[cluster, snapshot.read_at_ms].append(group)
        for (cluster, read_at_ms), groups in stood.items():
            self._store.note_standing(cluster, groups, read_at_ms)
        self._standing.noted(due, now_ms)

    def _facts(
        self, look: _Look, stored: StoredGroup
    ) -> tuple[GroupFacts, list[ObservedCommit], frozenset[ClusterName]]:
        """What is known of the group; what is to be remembered of its commits, and on which clusters that is all there is."""
        told: list[ObservedCommit] = []
        whole: set[ClusterName] = set()
        unreadable: list[UnreadableRow] = []
        published = {name: self._published(stored.published[name], unreadable) for name in look.snapshots}
        sides = {
            name: self._side(look, name, stored.observed[name], published, told, whole, unreadable)
            for name in look.snapshots
        }
        topics = {
            item.topic for side in sides.values() for item in (*side.commits, *side.seen, *side.published)
        }
        progress: dict[TopicPartition, Progress] = {}
        for topic in sorted(topics):
            for partition, moved in stored.progress.get(topic, {}).items():
                if isinstance(moved, UnreadableRow):
                    unreadable.append(moved)
                else:
                    progress[TopicPartition(topic, partition)] = moved
        facts = GroupFacts(look.group, sides, progress, look.sight.assignment)
        if not unreadable:
            return facts, told, frozenset(whole)
        facts = facts.without(unreadable)
        # What was seen shows what a commit makes void: it has to be there for whoever can read all of it.
        return facts, [item for item in told if item.topic_partition not in facts.unreadable], frozenset()

    def _side(
        self,
        look: _Look,
        cluster: ClusterName,
        observed: Sequence[ObservedCommit | UnreadableRow],
        published: Mapping[ClusterName, Offers],
        told: list[ObservedCommit],
        whole: set[ClusterName],
        unreadable: list[UnreadableRow],
    ) -> GroupSide:
        """The group on a cluster; on one that is away, as it was last seen there.

        What is to be remembered goes to ``told``; the cluster to ``whole`` if nothing else is remembered of the group there,
        but for reports.
        """
        group, snapshot, sight = look.group, look.snapshots[cluster], look.sight
        every, not_seen = apart(observed)
        stored = [item for item in every if self._config.chosen_anywhere(item.topic_partition.topic)]
        unreadable += [row for row in not_seen if self._config.chosen_anywhere(row.topic_partition.topic)]
        if snapshot is None:
            commits, topic_ids = last_seen(stored)
            before = commits
            reported_ahead = any(item.counts_at(self._now_ms()) for item in stored)
        else:
            topic_ids, commits = snapshot.topic_ids, sight.commits[cluster]
            before = self._before.get((group, cluster), {})
            self._before[group, cluster] = commits
            found = to_remember(group, cluster, commits, before, topic_ids, stored, snapshot.read_at_ms)
            told += found
            places = {item.topic_partition for item in found}
            if not not_seen and all(item.reported or item.topic_partition in places for item in every):
                whole.add(cluster)
            reported_ahead = len(found) < len(commits)
        offers = standing_offers(cluster, topic_ids, published)
        return GroupSide(
            cluster,
            reachable=snapshot is not None,
            topic_ids=topic_ids,
            commits={item: Seen(commit, before.get(item)) for item, commit in commits.items()},
            own=own_commits(commits, topic_ids, offers),
            published=published[cluster],
            offers=offers,
            has_members=cluster in sight.with_members,
            assigned=sight.assigned.get(cluster, frozenset()),
            reported_ahead=reported_ahead,
            seen={item.topic_partition: item for item in stored},
            read_at_ms=0 if snapshot is None else snapshot.read_at_ms,
        )

    def _published(
        self, stored: Iterable[PublishedOffset | UnreadableRow], unreadable: list[UnreadableRow]
    ) -> Offers:
        """What was published for a group on a cluster; what can't be read goes to ``unreadable``."""
        found, not_found = apart(
            item for item in stored if self._config.chosen_anywhere(item.topic_partition.topic)
        )
        unreadable += not_found
        return {item.topic_partition: item for item in found}

    def _note_void(self, facts: GroupFacts, unconfirmed: Collection[Place]) -> Void:
        """Forget what the group's commits make void.

        What shows it is forgotten last: an interruption is made up for by the next cycle.
        """
        group, store = facts.group, self._store
        void = confirmed(
            facts,
            void_of(facts, unconfirmed),
            lambda cluster: self._watches[cluster].writer.committed(group),
            unconfirmed,
        )
        for item in void.progress:
            cluster = facts.progress[item].cluster
            _log.warning("rewound", group=group, partition=str(item), cluster=cluster)
        if self._dry_run or not void:
            return void
        for item, progress in void.set_back.items():
            self._save_progress(facts, item, progress)
        store.void_published(void.published)
        store.void_observed(void.observed)
        return void

    def _note_moves(self, facts: GroupFacts, void: Void, unconfirmed: Collection[Place]) -> int:
        doubtful = {item for _, item in unconfirmed}
        # What it has consumed elsewhere may be from before it was set back: that is the last word where nobody knows.
        doubtful |= {
            item for item, moved in void.set_back.items() if item in facts.sides[moved.cluster].commits
        }
        moves = [(item, progress) for item, progress in moves_seen(facts) if item not in doubtful]
        for item, progress in moves:
            _log.info("moved", group=facts.group, partition=str(item), to=progress.cluster)
            if not self._dry_run:
                self._save_progress(facts, item, progress)
        return len(moves)

    def _save_progress(self, facts: GroupFacts, item: TopicPartition, progress: Progress) -> None:
        before = [known for known in (facts.progress.get(item),) if known is not None]
        moved_at_ms = moved_at(self._now_ms(), before)
        self._store.save_progress(
            facts.group, item.topic, {item.partition: progress}, moved_at_ms=moved_at_ms
        )

    def _serve(self, facts: GroupFacts, unconfirmed: Collection[Place]) -> tuple[list[Decision], bool]:
        """Ask and decide; whether the decisions hold as long as the group stands still."""
        answers: dict[Pair, Mapping[TopicPartition, ResumeAnswer]] = {}
        wanted = pairs_to_ask(facts) if needs_answers(facts.assignment) else {}
        for pair, topics in wanted.items():
            try:
                answers[pair] = self._ask(facts.group, pair, topics)
            except ParallaxError as error:
                # The other pairs can still be served; decisions that need this answer say that it is missing.
                _log.warning(
                    "not_answered",
                    group=facts.group,
                    origin=pair[0],
                    to=pair[1],
                    problem=f"[{error.code}] {error}",
                )
        decisions = held(facts, decide(facts, answers, self._rules, self._now_ms()), unconfirmed)
        holds = len(answers) == len(wanted) and hold(facts, answers, decisions)
        return decisions, holds

    def _tell(self, report: CycleReport) -> None:
        """Log decisions whose reason is another than in the cycle before, those of a group that are alike in one line."""
        changed: defaultdict[tuple[object, ...], list[Decision]] = defaultdict(list)
        for item in report.decided:
            key = (item.topic_partition, item.target)
            told = self._told.setdefault(item.group, {})
            if told.get(key) is not item.reason:
                told[key] = item.reason
                alike = (item.group, item.origin, item.target, item.reason, item.outcome, item.problem)
                changed[alike].append(item)
        for items in changed.values():
            first = items[0]
            asks_for_somebody = first.outcome is Outcome.DUAL_ACTIVE or first.reason is Reason.UNREADABLE_ROW
            said = {"problem": first.problem} if first.problem else {}
            (_log.warning if asks_for_somebody else _log.info)(
                "decision",
                group=first.group,
                partitions=len(items),
                offsets={str(item.topic_partition): item.offset for item in items[:_OFFSETS_LOGGED]},
                origin=first.origin,
                to=first.target,
                reason=first.reason.value,
                outcome=first.outcome.name,
                **said,
            )
        for group, problem in report.failures.items():
            _log.warning("group_failed", group=group, problem=problem)


def _require_same(facts: GroupFacts, decided: Decisions) -> None:
    if assignment_of(decided) != facts.assignment:
        raise FencedError("its primary was decided anew during the cycle; the next one goes by that")


def _is_behind(decision: Decision) -> bool:
    """Whether what follows from a commit is still to come."""
    return decision.reason in DELAYED or decision.outcome is Outcome.PENDING


def _said(error: ParallaxError) -> str:
    return f"[{error.code}] {error}"


def _is_empty(facts: GroupFacts, before_ms: int) -> bool:
    """Whether there is nothing of a group anywhere, by the word of every cluster, nor a report since a moment."""
    return not facts.unreadable and all(
        side.reachable
        and not (side.commits or side.has_members)
        and all(seen.observed_at_ms <= before_ms for seen in side.seen.values())
        for side in facts.sides.values()
    )
