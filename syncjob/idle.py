"""Which groups stand still, so that they are looked at now and then instead of in every cycle. Pure."""

from __future__ import annotations

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
"""So long, where there are not too many (`LOOKS_PER_S`): members' reports, retention and lost tails at the target, partitions that were added, and a source
topic made anew, are seen by looking alone. While a cluster is away, the age of its last positions grows by as much: it
stays well below `service.stale_after_ms` by default."""

HOLDS_ALONE_MS = 30_000
"""The same for a group without any member, of which there are many: that its commits stand is still noted every
`HOLDS_MS`, or its last positions would look old once their cluster is gone."""

READS_PER_S = 2_000
"""So many groups that stand still are read in a second at most, those first that were not read for longest: up to so many are
read in every cycle, 10,000 of them each every 5 s. One that is found to move is read in every cycle from then on."""

_LEAST_READS = 200
"""In a cycle, however short."""

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


def sight_of(
    group: GroupName,
    snapshots: Mapping[ClusterName, ClusterSnapshot | None],
    assignment: Assignment | None,
    chosen: Callable[[TopicName], bool],
) -> Sight:
    """What a cycle has read of a group on the clusters that are not away, of the topics that are chosen."""
    found = {name: snapshot for name, snapshot in snapshots.items() if snapshot is not None}
    commits = {name: _of_chosen(snapshot.commits.get(group, {}), chosen) for name, snapshot in found.items()}
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


def _of_chosen(commits: Commits, chosen: Callable[[TopicName], bool]) -> Commits:
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


class Standing:
    """The decisions of former cycles that looking again could not change.

    Nothing was to be written by them, and their answers are final: all that the group consumed is at the targets, and
    indexed, however long ago the last row was written. Groups may be looked at from several threads, each from one at a time.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[GroupName, Kept] = OrderedDict()  # those first that were not read for longest
        self._waiting: frozenset[GroupName] = frozenset()
        self._began_ms: int | None = None

    def begin(
        self,
        now_ms: int,
        *,
        read_all: bool = False,
        reported: Callable[[Mapping[GroupName, Kept]], Iterable[GroupName]] = lambda _kept: (),
    ) -> dict[GroupName, Kept]:
        """A cycle begins: which groups rest in it: they need not be read (`READS_PER_S`), and what was decided stands.

        Of the others, some may have to wait for a look although it is time for one (`LOOKS_PER_S`).

        Args:
            now_ms: the clock.
            read_all: nobody rests.
            reported: of which of some groups members have reported since they were looked at: it is time for these sooner.
        """
        since_ms = now_ms if self._began_ms is None else self._began_ms
        self._began_ms = now_ms
        reads = max(_LEAST_READS, READS_PER_S * (now_ms - since_ms) // 1_000)
        turn = list(self._kept if read_all else islice(self._kept, reads))
        for group in reported({group: self._kept[group] for group in turn}):
            self._kept[group] = replace(self._kept[group], is_reported=True)
        looks = max(1, LOOKS_PER_S * (now_ms - since_ms) // 1_000)
        late_ms = {group: self._kept[group].late_ms(now_ms) for group in turn}
        due = sorted((group for group in turn if late_ms[group] >= 0), key=lambda group: -late_ms[group])
        self._waiting = frozenset(due[looks:])
        return dict(islice(self._kept.items(), len(turn), None))

    def get(self, group: GroupName, sight: Sight, now_ms: int) -> Kept | None:
        """What was decided about the group, if it still holds."""
        kept = self._kept.get(group)
        if (
            kept is not None
            and kept.sight == sight
            and now_ms >= kept.looked_at_ms
            and (group in self._waiting or kept.late_ms(now_ms) < 0)
        ):
            self._kept.move_to_end(group)
            return kept
        self._kept.pop(group, None)  # what is seen now may pass, and the former sight come again
        return None

    def keep(
        self,
        group: GroupName,
        sight: Sight,
        decisions: Sequence[Decision],
        now_ms: int,
        to_note: frozenset[ClusterName] = frozenset(),
    ) -> None:
        """Remember decisions that `hold`."""
        reasons = Counter(decision.reason.value for decision in decisions)
        self._kept[group] = Kept(sight, tuple(decisions), reasons, now_ms, now_ms, to_note)
        self._kept.move_to_end(group)

    def noted(self, groups: Iterable[GroupName], now_ms: int) -> None:
        """Remember that the groups' commits were noted to stand."""
        for group in groups:
            self._kept[group] = replace(self._kept[group], noted_at_ms=now_ms)

    def forget_all_but(self, groups: Collection[GroupName]) -> None:
        """Forget groups that are gone."""
        for group in self._kept.keys() - set(groups):
            del self._kept[group]


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
