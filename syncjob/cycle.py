"""One cycle after another: read the clusters, ask the offset service, decide, publish."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import structlog

from parallax.config.config import Config
from parallax.domain.commits import ObservedCommit
from parallax.domain.ids import ClusterName, GroupName, TopicPartition
from parallax.domain.outcome import Outcome
from parallax.domain.primary import Assignment, Decisions, assignment_of
from parallax.domain.progress import Progress, moved_at
from parallax.errors import FencedError, ParallaxError, UnavailableError
from parallax.ports.audit import Auditor
from parallax.ports.clusters import ClusterWriter
from parallax.ports.groups import GroupStore, PrimaryStore, StoredGroup
from parallax.runtime.deadline import Deadline
from syncjob.active import moves_seen, pairs_to_ask
from syncjob.asking import Answered, Answering, Ask, AskMany, asked_together
from syncjob.changes import ChangesLog
from syncjob.clusters import ClusterSnapshot, ClusterWatch, as_seen_for
from syncjob.decide import Decision, Rules, decide, held, needs_answers, writes
from syncjob.dormant import DormantGroups
from syncjob.facts import GroupFacts, Place
from syncjob.gathering import Gathering
from syncjob.idle import Kept, Standing, hold, of_chosen, sight_of
from syncjob.latency import DELAYED, MOST_TOLD, CheckpointLatencies
from syncjob.look import Look, said
from syncjob.patience import Patience
from syncjob.publish import Publication, publish
from syncjob.report import UNPUBLISHABLE_WORDS, CycleReport
from syncjob.rewinds import Void, confirmed, void_of, without
from syncjob.status import FAILED_GROUPS

_log = structlog.get_logger(__name__)

_GROUPS_AT_ONCE = 8
_LOOKS_TOGETHER, _PARTITIONS_TOGETHER = 512, 8_192
"""What is remembered of so many groups is in memory at a time, and asked for together: fewer, if they have more partitions."""
_PUBLISHED_TOGETHER = 64
"""Offsets of so many groups are written within moments of their primaries' being read."""
_DAY_MS = 86_400_000
_DECIDED_EVERY_S = 3_600.0
"""How often it is asked which groups were ever decided about: those without anything else matter for being forgotten alone."""
WRITE_WITHIN_MS = 3_000
"""So old at most is what is known of a group's primary, and of its commits at the target, when offsets are written there. Reads take
milliseconds."""


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
        ask_many: asks it for many groups at once; None: each is asked for by itself.
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
        ask_many: AskMany | None = None,
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
        self._ask_many = ask_many
        self._answering = Answering()
        self._dry_run = dry_run
        self._now_ms = now_ms
        self._clock = clock
        self._rules = Rules(config.sync.on_rewind == "propagate", config.sync.republish_after_s * 1_000)
        self._gathering = Gathering(config, now_ms)
        self._assignments: dict[GroupName, Assignment | None] = {}
        self._unpublished: dict[GroupName, frozenset[str]] = {}  # by the last look
        self._behind: set[GroupName] = set()  # they have moved, and not everything that follows is published
        self._threads = ThreadPoolExecutor(_GROUPS_AT_ONCE, "sync-group")
        self._changes = ChangesLog()
        self._forget_after_ms = config.groups.forget_after_days * _DAY_MS
        self._dormant = DormantGroups(
            store, primaries, forget_after_ms=self._forget_after_ms, auditor=auditor
        )
        self._decided: frozenset[GroupName] = frozenset()
        self._decided_until_s = -math.inf
        self._standing = Standing(config.sync.interval_ms)
        self._latencies, self._began_s = CheckpointLatencies(), clock()
        most_shown = config.metrics.most_shown
        self._told_latencies = MOST_TOLD if most_shown is None else min(most_shown, MOST_TOLD)
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
        self._answering = Answering()
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
        looks: list[Look] = []
        failures: dict[GroupName, str] = {}
        for group in awake:
            try:
                look = self._sighted(group, as_seen_for(group, snapshots), decided.get(group, ()))
            except ParallaxError as error:
                failures[group] = said(error)
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
            unconfirmed=sum(len(look.doubtful) for look in looks),
            latencies=self._latencies.value(),
            slowest=self._latencies.slowest(self._told_latencies),
            standing=standing,
            made=made,
            waiting=waiting,
            waiting_unpublished=Counter(why for group in waiting for why in self._unpublished.get(group, ())),
        )
        self._changes.tell(report)
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
        self._gathering.forget_all_but(groups)
        self._changes.forget_all_but(groups)
        self._assignments = {group: it for group, it in self._assignments.items() if group in groups}
        self._unpublished = {group: why for group, why in self._unpublished.items() if group in groups}
        self._behind.intersection_update(groups)

    def _sighted(
        self,
        group: GroupName,
        snapshots: Mapping[ClusterName, ClusterSnapshot | None],
        decided: Decisions,
    ) -> Look:
        """What was read of a group; raises where what was decided about its primary can't be read."""
        sight = sight_of(group, snapshots, assignment_of(decided), self._config.topics.chosen)
        has_moved = (
            group in self._behind
            or self._assignments.get(group, sight.assignment) != sight.assignment
            or self._gathering.has_moved(group, sight.commits)
        )
        began_ms = self._now_ms()
        if has_moved:
            self._standing.moved(group, began_ms)
        return Look(group, snapshots, sight, began_ms, has_moved)

    def _look_in_turn(self, looks: Sequence[Look]) -> tuple[list[Look], list[Look]]:
        """Look at all groups that have moved, then at others while there is time, those first that were not looked at for longest.

        However little time there is, some others are looked at. Which were looked at, and which were not.
        """
        in_turn = sorted(looks, key=lambda look: self._standing.looked_at_ms(look.group))
        moved = [look for look in in_turn if look.has_moved]
        others = [look for look in in_turn if not look.has_moved]
        for part in _parts(moved):
            self._look(part)
        in_time = Deadline(self._began_s + self._others_within_s, self._clock)
        done = 0
        for part in _parts(others):
            if done and in_time.passed:
                break
            self._look(part)
            done += len(part)
        return [*moved, *others[:done]], others[done:]

    def _put_off(self, looks: Iterable[Look]) -> dict[GroupName, Kept]:
        """Remember how groups were read for which there is no time: which has moved is seen by that. What stands of them."""
        found = {}
        for look in looks:
            group = look.group
            self._assignments[group] = look.sight.assignment
            for cluster, commits in look.sight.commits.items():
                self._gathering.note(group, cluster, commits)
            kept = self._standing.put_off(group, look.sight)
            if kept is not None:
                found[group] = kept
        return found

    def _look(self, looks: Sequence[Look]) -> None:
        """Look at some groups: what is remembered of all is read together, each is decided about, and all are published."""
        try:
            stored = self._stored(looks)
            known = [look for look in looks if look.group in stored]
            told = self._threads.map(lambda look: self._gather(look, stored[look.group]), known)
            gathered = [(look, new) for look, new in zip(known, list(told), strict=True) if not look.problem]
            if not self._dry_run:
                self._remember(gathered)
            self._decide([look for look, _ in gathered if not look.problem])
            if not self._dry_run:
                for start in range(0, len(looks), _PUBLISHED_TOGETHER):
                    self._publish(looks[start : start + _PUBLISHED_TOGETHER])
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
            reasons = {item.reason.value for item in look.decisions} & UNPUBLISHABLE_WORDS
            self._unpublished[group] = frozenset([*reasons, *([FAILED_GROUPS] if look.problem else [])])
            if look.has_moved and (look.problem or any(_is_behind(item) for item in look.decisions)):
                self._behind.add(group)
            else:
                self._behind.discard(group)

    def _stored(self, looks: Sequence[Look]) -> Mapping[GroupName, StoredGroup]:
        """What is remembered of the groups; one that can't be read leaves the others to be read."""
        groups, clusters = [look.group for look in looks], list(self._watches)
        try:
            return self._store.stored(groups, clusters)
        except ParallaxError as error:
            if len(looks) == 1:
                looks[0].fail(error)
                return {}
        return {group: it for look in looks for group, it in self._stored([look]).items()}

    def _gather(self, look: Look, stored: StoredGroup) -> Sequence[ObservedCommit]:
        """Bring together what is known of a group, and forget what its commits make void; what is to be remembered of it."""
        try:
            facts, told, whole = self._gathering.facts(look, stored)
            look.doubtful = self._patience.unconfirmed(facts)
            void = self._note_void(facts, look.doubtful)  # before what shows it is overwritten
            look.set_back, look.is_void, look.rewinds = void.set_back, bool(void), len(void.progress)
            look.whole = frozenset() if void or look.doubtful else whole
            look.facts = without(facts, void)
            return self._new(facts, told, look)
        except ParallaxError as error:
            look.fail(error)
            return ()

    def _decide(self, looks: Sequence[Look]) -> None:
        """Note where groups have moved, ask, and decide about each; nothing is published yet."""
        for _ in self._threads.map(self._prepare, looks):
            pass
        answered: dict[GroupName, Answered] = {}
        ask_many, answering = self._ask_many, self._answering
        if ask_many is not None:
            answered = asked_together(
                lambda pair, positions: answering.to(ask_many, pair, positions),
                [look for look in looks if look.wanted],
            )

        def decide(look: Look) -> None:
            self._serve(look, answered.get(look.group, {}))

        alone = [look for look in looks if look.wanted.keys() - answered.get(look.group, {}).keys()]
        for _ in self._threads.map(decide, alone):
            pass
        asked = {look.group for look in alone}
        for look in looks:
            if look.group not in asked:
                decide(look)

    def _prepare(self, look: Look) -> None:
        """Note where the group has moved, and what has to be asked about it."""
        facts = look.facts
        if facts is None:  # nothing is known of it
            return
        try:
            look.moves = self._note_moves(facts, look.set_back, look.doubtful)
            look.wanted = pairs_to_ask(facts) if needs_answers(facts.assignment) else {}
        except ParallaxError as error:
            look.fail(error)

    def _publish(self, looks: Sequence[Look]) -> None:
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
                    chosen = of_chosen(done.commits, self._config.topics.chosen)
                    self._gathering.note(group, cluster, chosen)
                by_group[group].take(cluster, done.decisions)

    def _new(self, facts: GroupFacts, told: Sequence[ObservedCommit], look: Look) -> Sequence[ObservedCommit]:
        """Of what was seen what is new, where it is enough to note at the cycle's end that all of it stood.

        What stood where it may come back is kept.
        """
        return [
            item
            for item in told
            if (item.cluster, item.topic_partition) not in look.doubtful
            and not (
                item.cluster in look.whole
                and item.says_same(facts.sides[item.cluster].seen.get(item.topic_partition))
            )
        ]

    def _remember(self, looks: Sequence[tuple[Look, Sequence[ObservedCommit]]]) -> None:
        """Save what is new of groups, of all together; what can't be saved of one of them keeps no other from it."""
        try:
            self._store.save_observed([item for _, told in looks for item in told])
        except ParallaxError as error:
            if len(looks) == 1:
                looks[0][0].fail(error)
            else:
                for each in looks:
                    self._remember([each])
            return
        for look, _ in looks:
            if look.facts is not None:
                for cluster in look.whole:
                    self._stood[cluster, look.facts.sides[cluster].read_at_ms].append(look.group)

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

    def _note_moves(
        self,
        facts: GroupFacts,
        set_back: Mapping[TopicPartition, Progress],
        unconfirmed: Collection[Place],
    ) -> int:
        doubtful = {item for _, item in unconfirmed}
        # What it has consumed elsewhere may be from before it was set back: that is the last word where nobody knows.
        doubtful |= {item for item, moved in set_back.items() if item in facts.sides[moved.cluster].commits}
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

    def _serve(self, look: Look, answered: Answered) -> None:
        """Decide about a group by its answers; those that are missing are asked for."""
        facts, answers = look.facts, dict(answered)
        if facts is None or look.problem:
            return
        for pair, topics in look.wanted.items():
            if pair in answers:
                continue
            try:
                answers[pair] = self._answering.to(self._ask, facts.group, pair, topics)
            except ParallaxError as error:
                # The other pairs can still be served; decisions that need this answer say that it is missing.
                _log.warning(
                    "not_answered",
                    group=facts.group,
                    origin=pair[0],
                    to=pair[1],
                    problem=f"[{error.code}] {error}",
                )
        look.decisions = held(facts, decide(facts, answers, self._rules, self._now_ms()), look.doubtful)
        look.holds = (
            len(answers) == len(look.wanted)
            and not (look.moves or look.is_void or look.doubtful)
            and hold(facts, answers, look.decisions)
        )
        forget_before_ms = look.began_ms - self._forget_after_ms
        look.is_empty = _is_empty(facts, forget_before_ms) and not (look.is_void or look.doubtful)


def _require_same(facts: GroupFacts, decided: Decisions) -> None:
    if assignment_of(decided) != facts.assignment:
        raise FencedError("its primary was decided anew during the cycle; the next one goes by that")


def _parts(looks: Sequence[Look]) -> Iterator[Sequence[Look]]:
    """Looks in parts of which not too much is remembered."""
    start = partitions = 0
    for place, look in enumerate(looks):
        own = max(map(len, look.sight.commits.values()), default=0)
        if place - start >= _LOOKS_TOGETHER or (place > start and partitions + own > _PARTITIONS_TOGETHER):
            yield looks[start:place]
            start, partitions = place, 0
        partitions += own
    if start < len(looks):
        yield looks[start:]


def _is_behind(decision: Decision) -> bool:
    """Whether what follows from a commit is still to come."""
    return decision.reason in DELAYED or decision.outcome is Outcome.PENDING


def _is_empty(facts: GroupFacts, before_ms: int) -> bool:
    """Whether there is nothing of a group anywhere, by the word of every cluster, nor a report since a moment."""
    return not facts.unreadable and all(
        side.reachable
        and not (side.commits or side.has_members)
        and all(seen.observed_at_ms <= before_ms for seen in side.seen.values())
        for side in facts.sides.values()
    )
