"""Which groups move, and which stand still or wait, so that they are read and looked at in turn. Pure."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from parallax.client.answer import Answers, ResumeAnswer
from parallax.domain.commits import Commits
from parallax.domain.ids import ClusterName, GroupName, TopicId, TopicName
from parallax.domain.primary import Assignment
from syncjob.clusters import ClusterSnapshot
from syncjob.decide import Decision
from syncjob.facts import GroupFacts

HOLDS_MS = 5_000
"""So long, where there are not too many (`READS_PER_S`, `LOOKS_PER_S`): members' reports, retention and lost tails at the target, partitions that were added, and a source
topic made anew, are seen by looking alone. While a cluster is away, the age of its last positions grows by as much: it
stays well below `service.stale_after_ms` by default."""

HOLDS_ALONE_MS = 30_000
"""The same for a group without any member, of which there are many: that its commits stand is still noted every
`HOLDS_MS`, or its last positions would look old once their cluster is gone."""

READS_PER_S, MOST_READS_PER_S = 1_000, 2_000
"""So many groups that stand still, or wait for a look, are read in a second, those first that were not read for longest: up to so many
are read in every cycle, 10,000 of them each every 10 s; of more so many more that it stays at that, up to the second number. A new commit
waits for whatever is read. One that is found to move is read in every cycle from then on."""

_READ_WITHIN_S = 10

_LATE_MS = 1_000
"""A cycle that begins later than it should reads for no more than so much longer: what it reads would make the next one later still."""

LATELY_MS = 30_000
"""A group that has moved is read in every cycle for so long, though it stands still meanwhile: clients commit every 5 s by default. Of
these as many are read in a cycle as of all others."""

_LEAST_READS = 200
"""In a cycle, however short."""

_FIRST_CYCLE_MS = 1_000
"""So long it is taken to have been since a cycle before the first."""

_MOVING_IN_A_ROW = 4
"""So many groups that move are read before one that does not."""

LOOKS_PER_S = 50
"""So many groups that stand still are looked at in a second at most, those first for which it has been time for longest. Where
more of them are due, each is looked at less often, and those that move are not kept waiting."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What every cycle reads of a group, and its decisions depend on.

    Attributes:
        commits, topic_ids, assigned: by cluster that answers; a topic that does not exist there has no id.
        with_members: the clusters where it has members.
        complete: every cluster answers.
    """

    assignment: Assignment | None
    commits: Mapping[ClusterName, Commits]
    topic_ids: Mapping[ClusterName, Mapping[TopicName, TopicId | None]]
    assigned: Mapping[ClusterName, frozenset[TopicName]]
    with_members: frozenset[ClusterName]
    complete: bool

    @property
    def holds_ms(self) -> int:
        """How long decisions about a group that looks like this may be kept."""
        return HOLDS_ALONE_MS if self.complete and not self.with_members else HOLDS_MS

    def says_same(self, other: Sight) -> bool:
        """Whether both tell the same, as far as it is of clusters that answer in both."""
        both = self.commits.keys() & other.commits.keys()
        return (
            bool(both)
            and self.assignment == other.assignment
            and self.with_members & both == other.with_members & both
            and all(
                self.commits[name] == other.commits[name]
                and self.assigned[name] == other.assigned[name]
                and all(
                    self.topic_ids[name][topic] == other.topic_ids[name][topic]
                    for topic in self.topic_ids[name].keys() & other.topic_ids[name].keys()
                )
                for name in both
            )
        )


def sight_of(
    group: GroupName,
    snapshots: Mapping[ClusterName, ClusterSnapshot | None],
    assignment: Assignment | None,
    chosen: Callable[[TopicName], bool],
) -> Sight:
    """What a cycle has read of a group on the clusters that are not away, of the topics that are chosen."""
    found = {name: snapshot for name, snapshot in snapshots.items() if snapshot is not None}
    commits = {name: of_chosen(snapshot.commits.get(group, {}), chosen) for name, snapshot in found.items()}
    assigned = {
        name: frozenset(filter(chosen, snapshot.assigned.get(group, ()))) for name, snapshot in found.items()
    }
    topics = {item.topic for there in commits.values() for item in there}.union(*assigned.values())
    return Sight(
        assignment,
        commits,
        {
            name: {topic: snapshot.topic_ids.get(topic) for topic in topics}
            for name, snapshot in found.items()
        },
        assigned,
        frozenset(name for name, snapshot in found.items() if group in snapshot.with_members),
        complete=len(found) == len(snapshots),
    )


def of_chosen(commits: Commits, chosen: Callable[[TopicName], bool]) -> Commits:
    """The commits on topics that are chosen."""
    left_out = {topic for topic in {item.topic for item in commits} if not chosen(topic)}
    if not left_out:
        return commits
    return {item: commit for item, commit in commits.items() if item.topic not in left_out}


@dataclass(frozen=True, slots=True)
class Kept:
    """What was decided about a group.

    Attributes:
        reasons: how many decisions there are of each reason, by its word.
        looked_at_ms: when.
        noted_at_ms: when it was last noted that its commits stand.
        to_note: the clusters of which that can be said of the group as a whole.
        is_reported: a member has reported of the group since.
    """

    sight: Sight
    decisions: tuple[Decision, ...]
    reasons: Mapping[str, int]
    looked_at_ms: int
    noted_at_ms: int
    to_note: frozenset[ClusterName] = frozenset()
    is_reported: bool = False

    @property
    def is_somewhere(self) -> bool:
        """Whether it has a commit, or a member, in some cluster."""
        return bool(self.sight.with_members) or any(self.sight.commits.values())

    def is_to_be_noted(self, now_ms: int) -> bool:
        """Whether it is time to note that the commits stand."""
        return now_ms - self.noted_at_ms >= HOLDS_MS

    def late_ms(self, now_ms: int) -> int:
        """For how long it has been time to look anew; negative: not yet."""
        return now_ms - self.looked_at_ms - (HOLDS_MS if self.is_reported else self.sight.holds_ms)


@dataclass(frozen=True, slots=True)
class ReadTurn:
    """What is read in a cycle, and what is not.

    Attributes:
        order: the groups to read. Wherever there is no time for more, those that move and the others had their share.
        resting: those that need not be read, and what was decided about each, which stands; None: it waits for a look.
    """

    order: Sequence[GroupName]
    resting: Mapping[GroupName, Kept | None]


class Standing:
    """Every group that was seen: when it is read, when it is looked at, and the decisions that looking again could not change.

    Nothing was to be written by these, and their answers are final: all that the group consumed is at the targets, and
    indexed, however long ago the last row was written.

    Args:
        interval_ms: from the beginning of one cycle to the next, unless that is late.
    """

    def __init__(self, interval_ms: int = _FIRST_CYCLE_MS) -> None:
        self._most_ms = interval_ms + _LATE_MS
        # Those first that were not read for longest; None: nothing stands.
        self._kept: OrderedDict[GroupName, Kept | None] = OrderedDict()
        # Of the last cycle's looks nothing stands: they are read in every cycle.
        self._restless: set[GroupName] = set()
        self._looked_at_ms: dict[GroupName, int] = {}
        self._moved_at_ms: dict[GroupName, int] = {}
        self._waiting: frozenset[GroupName] = frozenset()
        self._began_ms: int | None = None

    def begin(
        self,
        now_ms: int,
        known: Iterable[GroupName] = (),
        *,
        reported: Callable[[Mapping[GroupName, Kept]], Iterable[GroupName]] = lambda _kept: (),
    ) -> ReadTurn:
        """A cycle begins: which groups are read in it (`READS_PER_S`).

        Of those that stand, some may have to wait for a look although it is time for one (`LOOKS_PER_S`).

        Args:
            now_ms: the clock.
            known: groups that there are.
            reported: of which of some groups members have reported since they were looked at: it is time for these sooner.
        """
        took_ms = _FIRST_CYCLE_MS if self._began_ms is None else now_ms - self._began_ms
        self._began_ms = now_ms
        self.wait(known)
        calm = [group for group in self._kept if group not in self._restless]
        reads = self._reads(len(calm), took_ms)
        lately = self._lately(calm, now_ms)[:reads]
        first = frozenset(lately)
        others = [group for group in calm if group not in first]
        turn = [*lately, *others[:reads]]
        stood = {group: kept for group in turn if (kept := self._kept[group]) is not None}
        for group in reported(stood):
            self._kept[group] = stood[group] = replace(stood[group], is_reported=True)
        looks = max(1, LOOKS_PER_S * took_ms // 1_000)
        late_ms = {group: kept.late_ms(now_ms) for group, kept in stood.items()}
        due = sorted((group for group in stood if late_ms[group] >= 0), key=lambda group: -late_ms[group])
        self._waiting = frozenset(due[looks:])
        restless = [group for group in self._kept if group in self._restless]
        order = _mixed([*restless, *lately], others[:reads])
        return ReadTurn(order, {group: self._kept[group] for group in others[reads:]})

    def _reads(self, calm: int, took_ms: int) -> int:
        """How many of so many groups are read in a cycle that begins so long after the last one."""
        per_s = min(MOST_READS_PER_S, max(READS_PER_S, math.ceil(calm / _READ_WITHIN_S)))
        return max(_LEAST_READS, per_s * min(took_ms, self._most_ms) // 1_000)

    def _lately(self, calm: Sequence[GroupName], now_ms: int) -> list[GroupName]:
        """Of some groups those that have moved lately."""
        self._moved_at_ms = {
            group: at_ms for group, at_ms in self._moved_at_ms.items() if 0 <= now_ms - at_ms < LATELY_MS
        }
        return [group for group in calm if group in self._moved_at_ms]

    def get(self, group: GroupName, sight: Sight, now_ms: int) -> Kept | None:
        """What was decided about a group that was read, if it holds without a look; else `keep`, `looked` or `put_off` follows."""
        kept = self._kept.get(group)
        if (
            kept is not None
            and kept.sight == sight
            and now_ms >= kept.looked_at_ms
            and (group in self._waiting or kept.late_ms(now_ms) < 0)
        ):
            self._kept.move_to_end(group)
            return kept
        return None

    def before(self, group: GroupName) -> Kept | None:
        """What was decided about a group that could not be read, and stands."""
        return self._kept.get(group)

    def keep(
        self,
        group: GroupName,
        sight: Sight,
        decisions: Sequence[Decision],
        now_ms: int,
        to_note: frozenset[ClusterName] = frozenset(),
    ) -> None:
        """The group was looked at: remember decisions that `hold`."""
        reasons = Counter(decision.reason.value for decision in decisions)
        self._kept[group] = Kept(sight, tuple(decisions), reasons, now_ms, now_ms, to_note)
        self._kept.move_to_end(group)
        self._restless.discard(group)
        self._looked_at_ms[group] = now_ms

    def looked(self, group: GroupName, now_ms: int) -> None:
        """The group was looked at, and nothing holds: what is seen now may pass, and the former sight come again."""
        self._kept[group] = None
        self._kept.move_to_end(group)
        self._restless.add(group)
        self._looked_at_ms[group] = now_ms

    def moved(self, group: GroupName, now_ms: int) -> None:
        """The group was seen to have gone on, or to have been decided anew."""
        self._moved_at_ms[group] = now_ms

    def put_off(self, group: GroupName, sight: Sight) -> Kept | None:
        """The group was read, but there is no time to look at it; what was decided before, if that is no less true."""
        kept = self._kept.get(group)
        if kept is not None and not kept.sight.says_same(sight):
            kept = None
        self._kept[group] = kept
        self._kept.move_to_end(group)
        self._restless.discard(group)
        return kept

    def wait(self, groups: Iterable[GroupName]) -> None:
        """There are groups that could not be read yet."""
        for group in groups:
            self._kept.setdefault(group, None)

    def looked_at_ms(self, group: GroupName) -> int:
        """When a group was last looked at; 0: never."""
        return self._looked_at_ms.get(group, 0)

    def noted(self, groups: Iterable[GroupName], now_ms: int) -> None:
        """Remember that the groups' commits were noted to stand."""
        for group in groups:
            if (kept := self._kept[group]) is not None:
                self._kept[group] = replace(kept, noted_at_ms=now_ms)

    def forget_all_but(self, groups: Collection[GroupName]) -> None:
        """Forget groups that are gone."""
        self.forget(self._kept.keys() - set(groups))

    def forget(self, groups: Collection[GroupName]) -> None:
        """Forget groups that are gone, or dormant: they are not to be read again."""
        for group in self._kept.keys() & set(groups):
            del self._kept[group]
            self._restless.discard(group)
            self._looked_at_ms.pop(group, None)
            self._moved_at_ms.pop(group, None)


def _mixed(moving: Sequence[GroupName], others: Iterable[GroupName]) -> list[GroupName]:
    found: list[GroupName] = []
    rest = iter(others)
    for start in range(0, len(moving), _MOVING_IN_A_ROW):
        found += moving[start : start + _MOVING_IN_A_ROW]
        found += islice(rest, 1)
    return [*found, *rest]


def hold(facts: GroupFacts, answers: Answers, decisions: Sequence[Decision]) -> bool:
    """Whether decisions stay what they are for as long as the group is seen like this.

    Args:
        facts: what they were made of.
        answers: of every pair that was to be asked.
        decisions: of this cycle.
    """
    sides = facts.sides.values()
    return (
        not facts.unreadable
        and all(seen.steady for side in sides for seen in side.commits.values())
        and not any(side.reported_ahead for side in sides)
        and all(decision.commit is None for decision in decisions)
        and all(
            _is_final(answer, facts, pair[0]) for pair, found in answers.items() for answer in found.values()
        )
    )


def _is_final(answer: ResumeAnswer, facts: GroupFacts, origin: ClusterName) -> bool:
    """The service reads the group's commits anew: an answer about newer ones than the cycle's must not outlive it."""
    seen = facts.sides[origin].commits.get(answer.topic_partition)
    return answer.final and seen is not None and seen.commit.next_offset == answer.origin_next_offset
