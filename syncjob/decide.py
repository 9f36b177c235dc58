"""What to publish where, and why or why not: one decision for each group, partition and passive cluster. Pure.

The rules, each with its `Reason`:

* A group is active on its recorded primary, else where its progress vector holds what the others hold; its
  offsets are published to the others. Active/active groups and groups that are moving are left alone.
* A commit is replaced only if two consecutive reads agree on it and it is ours or dominated: somebody who commits
  now is at work there, whether or not the group has members.
* What was published is not made worse unasked: without a rewind the offset does not go back.
* Unchanged offsets are left alone until they are in danger of expiring.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from parallax.client.answer import Answers, ResumeAnswer
from parallax.domain.commits import GroupCommit, PublishedOffset
from parallax.domain.ids import ClusterName, GroupName, TargetOffset, TopicPartition
from parallax.domain.metadata import is_ours
from parallax.domain.outcome import Outcome
from parallax.domain.primary import Assignment, Mode, Stage
from parallax.domain.progress import Progress
from syncjob.active import Active, where_active
from syncjob.facts import GroupFacts, GroupSide, Place, Seen


class Reason(Enum):
    """What was done with an offset, or why nothing was."""

    PUBLISHED = "published"
    """A new offset, or a new progress at the same offset."""
    REFRESHED = "refreshed"
    """The same as before, written again so that it does not expire."""
    UNCHANGED = "unchanged"
    KEPT_BETTER = "kept_better"
    """The offset published before is further and still safe."""
    REWIND_REFUSED = "rewind_refused"
    """The group was rewound, and configuration says not to follow."""
    WAITING = "waiting"
    """The commit at the target was read for the first time: one more read must agree."""
    CONFIRMING = "confirming"
    """A commit is gone, or has gone back, and that was not seen for long enough to be believed: what was published stays."""
    ACTIVE_AT_TARGET = "active_at_target"
    """Somebody commits at the target, or has joined the group there."""
    DUAL_ACTIVE = "dual_active"
    """The group makes progress in several clusters, each on its own."""
    ACTIVE_ACTIVE = "active_active"
    """The group is declared to consume in every region: each keeps its own offsets."""
    MOVING = "moving"
    """A move is under way: whoever moves the group writes its offsets."""
    UNBEGUN = "unbegun"
    """The group has not begun to consume at its recorded primary, so there is nothing to publish yet."""
    ACTIVE_ELSEWHERE = "active_elsewhere"
    """The group goes on consuming another cluster than its recorded primary, where it has not begun: which of the
    two is right only an operator can say (`parallax failover`, or `parallax primary --set`)."""
    UNDECIDED = "undecided"
    """Where the group is active can't be told: an answer is missing."""
    TARGET_AWAY = "target_away"
    """The target cluster does not answer."""
    NO_TOPIC = "no_topic"
    """The target has no such topic or partition."""
    NO_ANSWER = "no_answer"
    """The offset service gave no answer for the partition."""
    UNREADABLE_ROW = "unreadable_row"
    """Something is stored of the partition that this release can't read; the others go on."""
    WRITE_FAILED = "write_failed"
    """The target did not confirm the write; the next cycle tries again."""


UNPUBLISHABLE = (
    Reason.REWIND_REFUSED,
    Reason.ACTIVE_AT_TARGET,
    Reason.DUAL_ACTIVE,
    Reason.ACTIVE_ELSEWHERE,
    Reason.UNDECIDED,
    Reason.TARGET_AWAY,
    Reason.NO_TOPIC,
    Reason.NO_ANSWER,
    Reason.UNREADABLE_ROW,
    Reason.WRITE_FAILED,
)
"""What keeps an offset from being published that should be; the other reasons are as they should be, or pass by themselves."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens to one partition of a group on one passive cluster.

    Attributes:
        origin: where the group is active; None where that is not known.
        offset: what is published there now or shall be; None if nothing is.
        outcome: the answer's, or the reason's own word among outcomes.
        commit, published: what to write; None: nothing.
        problem: with UNREADABLE_ROW, which row it is, why, and what to do; empty otherwise.
        origin_next_offset: the commit at the origin that the offset was computed from, if one of ours stands there or shall.
    """

    group: GroupName
    topic_partition: TopicPartition
    origin: ClusterName | None
    target: ClusterName
    reason: Reason
    offset: TargetOffset | None = None
    outcome: Outcome = Outcome.OK
    commit: GroupCommit | None = None
    published: PublishedOffset | None = None
    problem: str = ""
    origin_next_offset: TargetOffset | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """What configuration says.

    Attributes:
        follow_rewinds: whether a rewind on the active side goes on to the passive ones.
        republish_after_ms: unchanged offsets are written again after this time.
    """

    follow_rewinds: bool
    republish_after_ms: int


def decide(facts: GroupFacts, answers: Answers, rules: Rules, now_ms: int) -> list[Decision]:
    """One decision for each partition of the group's topics and each cluster on which it is not active."""
    answered = {item for found in answers.values() for item in found}
    items = sorted(answered.union(facts.partitions()) - facts.unreadable.keys())
    refused = [
        Decision(facts.group, item, None, target, Reason.UNREADABLE_ROW, problem=problem)
        for item, problem in sorted(facts.unreadable.items())
        for target in facts.sides
    ]
    standstill = _standstill(facts.assignment)
    if standstill is not None:
        return refused + [
            Decision(facts.group, item, None, target, standstill[0], side.offset(item), standstill[1])
            for item in items
            for target, side in facts.sides.items()
        ]
    return refused + [
        decision
        for item, active in where_active(facts, answers, items).items()
        for decision in _for_partition(facts, answers, rules, now_ms, item, active)
    ]


def _standstill(assignment: Assignment | None) -> tuple[Reason, Outcome] | None:
    """Why nothing at all is published for a group, by what was decided about its primary."""
    if assignment is None:
        return None
    if assignment.dual_active:
        return Reason.DUAL_ACTIVE, Outcome.DUAL_ACTIVE
    if assignment.decision.mode is Mode.ACTIVE_ACTIVE:
        return Reason.ACTIVE_ACTIVE, Outcome.OK
    return (Reason.MOVING, Outcome.OK) if assignment.decision.stage is Stage.MOVING else None


def needs_answers(assignment: Assignment | None) -> bool:
    """Whether `decide` looks at answers at all."""
    return _standstill(assignment) is None


def _for_partition(
    facts: GroupFacts, answers: Answers, rules: Rules, now_ms: int, item: TopicPartition, active: Active
) -> Iterable[Decision]:
    for target, side in facts.sides.items():
        if active.cluster is None:
            reason, outcome = _undecided(active)
            yield Decision(facts.group, item, active.elsewhere, target, reason, side.offset(item), outcome)
        elif target != active.cluster:
            answer = answers.get((active.cluster, target), {}).get(item)
            yield _Deciding(facts, rules, now_ms, item, active.cluster, side).decision(answer)


def _undecided(active: Active) -> tuple[Reason, Outcome]:
    if active.dual:
        return Reason.DUAL_ACTIVE, Outcome.DUAL_ACTIVE
    if active.elsewhere is not None:
        return Reason.ACTIVE_ELSEWHERE, Outcome.DUAL_ACTIVE
    return (Reason.UNBEGUN if active.unbegun else Reason.UNDECIDED), Outcome.OK


@dataclass(frozen=True, slots=True)
class _Deciding:
    """One partition and one passive cluster."""

    facts: GroupFacts
    rules: Rules
    now_ms: int
    item: TopicPartition
    origin: ClusterName
    side: GroupSide

    def decision(self, answer: ResumeAnswer | None) -> Decision:
        if answer is None:
            reason = Reason.NO_ANSWER if self.side.reachable else Reason.TARGET_AWAY
            return self._nothing(reason, Outcome.OK if self.side.reachable else Outcome.UNREACHABLE)
        obstacle = self._obstacle(answer)
        if obstacle is not None:
            return self._nothing(*obstacle)
        seen = self.side.commits.get(self.item)
        rewound = self._rewound(answer)
        if seen is None or not self._stays(answer, seen.commit.next_offset, rewound=rewound):
            return self._publish(answer, rewound=rewound)
        if rewound:
            return self._nothing(Reason.REWIND_REFUSED, Outcome.REWOUND)
        unchanged = Outcome.NO_COMMIT in answer.notes
        return self._same(Reason.UNCHANGED if unchanged else Reason.KEPT_BETTER, answer)

    def _obstacle(self, answer: ResumeAnswer) -> tuple[Reason, Outcome] | None:
        """What forbids to write, whatever the answer."""
        if not self.side.reachable:
            return Reason.TARGET_AWAY, Outcome.UNREACHABLE
        topic_id = self.side.topic_ids.get(self.item.topic)
        if answer.high_watermark is None and Outcome.UNREACHABLE in answer.notes:
            return Reason.TARGET_AWAY, Outcome.UNREACHABLE  # for the service, which asks by itself
        if topic_id is None or answer.high_watermark is None or answer.target_topic_id != topic_id:
            return Reason.NO_TOPIC, answer.outcome
        seen = self.side.commits.get(self.item)
        if self.side.has_members or (seen is not None and self._is_somebodys(seen)):
            return Reason.ACTIVE_AT_TARGET, Outcome.ACTIVE_AT_TARGET
        if seen is not None and seen.before is None:
            return Reason.WAITING, answer.outcome
        return None

    def _is_somebodys(self, seen: Seen) -> bool:
        """Whether somebody has committed there since the last reading; another sync job may have published."""
        if seen.before is None or seen.steady:
            return False
        return not is_ours(seen.commit.metadata) or self.item in self.side.own

    def _rewound(self, answer: ResumeAnswer) -> bool:
        told, moved = self.side.published.get(self.item), self.facts.progress.get(self.item)
        set_back = moved is not None and moved.is_set_back and moved.cluster == self.origin
        if Outcome.REWOUND in answer.notes or (set_back and self._came_of_more(told, moved)):
            return True
        return (
            told is not None
            and told.origin_cluster == self.origin
            and told.origin_next_offset is not None
            and (answer.origin_next_offset is None or answer.origin_next_offset < told.origin_next_offset)
        )

    def _came_of_more(self, told: PublishedOffset | None, set_back: Progress | None) -> bool:
        """Whether nothing was published from where the group is since it was set back there."""
        since_ms = 0 if set_back is None else set_back.moved_at_ms
        return told is None or told.origin_cluster != self.origin or told.published_at_ms < since_ms

    def _stays(self, answer: ResumeAnswer, standing: TargetOffset, *, rewound: bool) -> bool:
        """Whether the offset that is there shall stay.

        Where a group without a commit starts is said once: an end that moves on changes nothing. If it had one, and has none
        any more, what was published from that goes back with it, and never on. Otherwise a further offset stays: it was proven safe, and that of an origin that only goes on never goes back. A lower
        answer means that rows are missing now, unless the target was made anew or lost its tail.
        """
        low, high = answer.low_watermark or 0, answer.high_watermark or 0
        if not low <= standing <= high:
            return False
        if Outcome.NO_COMMIT in answer.notes and not (rewound and answer.resume_offset < standing):
            return True
        if answer.resume_offset >= standing:
            return False
        if rewound:
            return not self.rules.follow_rewinds
        if Outcome.EARLIEST_FALLBACK in answer.notes:
            return True
        ours = self.item not in self.side.own
        return ours and Outcome.LINEAGE_CHANGED not in answer.notes

    def _publish(self, answer: ResumeAnswer, *, rewound: bool) -> Decision:
        seen = self.side.commits.get(self.item)
        progress, commit = answer.progress, answer.commit()
        told = self.side.published.get(self.item)
        if (
            seen is not None
            and told is not None
            and told.progress == progress
            and commit.is_same(seen.commit)
        ):
            return self._same(Reason.UNCHANGED, answer)
        return self._write(Reason.PUBLISHED, answer, commit, progress, rewound=rewound)

    def _same(self, reason: Reason, answer: ResumeAnswer) -> Decision:
        """Leave what is there, or write it again if it is old."""
        seen, told = self.side.commits[self.item], self.side.published.get(self.item)
        due = told is not None and self.now_ms - told.published_at_ms >= self.rules.republish_after_ms
        if told is None or self.item in self.side.own:
            return self._nothing(reason, answer.outcome)
        if not due:
            standing = self._nothing(reason, answer.outcome)
            from_here = told.origin_cluster == self.origin
            return replace(standing, origin_next_offset=told.origin_next_offset if from_here else None)
        return self._write(Reason.REFRESHED, answer, seen.commit, told.progress, rewound=False)

    def _write(
        self, reason: Reason, answer: ResumeAnswer, commit: GroupCommit, progress: Progress, *, rewound: bool
    ) -> Decision:
        outcome = (
            Outcome.REWOUND if rewound and answer.outcome.value < Outcome.REWOUND.value else answer.outcome
        )
        published = PublishedOffset(
            group=self.facts.group,
            topic_partition=self.item,
            progress=progress,
            origin_cluster=self.origin,
            origin_next_offset=answer.origin_next_offset,
            outcome=outcome,
            published_at_ms=self.now_ms,
        )
        return Decision(
            self.facts.group,
            self.item,
            self.origin,
            self.side.cluster,
            reason,
            commit.next_offset,
            outcome,
            commit,
            published,
            origin_next_offset=answer.origin_next_offset,
        )

    def _nothing(self, reason: Reason, outcome: Outcome = Outcome.OK) -> Decision:
        offset = self.side.offset(self.item)
        return Decision(self.facts.group, self.item, self.origin, self.side.cluster, reason, offset, outcome)


def held(facts: GroupFacts, decisions: Sequence[Decision], unconfirmed: Collection[Place]) -> list[Decision]:
    """The decisions, less what they write of partitions on which a commit is not yet believed to have gone back."""
    items = {item for _, item in unconfirmed}
    return [
        replace(
            decision,
            reason=Reason.CONFIRMING,
            offset=facts.sides[decision.target].offset(decision.topic_partition),
            commit=None,
            published=None,
            origin_next_offset=None,
        )
        if decision.commit is not None and decision.topic_partition in items
        else decision
        for decision in decisions
    ]


def writes(decisions: Sequence[Decision]) -> dict[ClusterName, list[Decision]]:
    """Decisions that write something, by cluster."""
    found: dict[ClusterName, list[Decision]] = {}
    for decision in decisions:
        if decision.commit is not None:
            found.setdefault(decision.target, []).append(decision)
    return found
