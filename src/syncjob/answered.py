"""Which answers still hold, so that a group which stands still is not asked about in every cycle. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from parallax.domain.ids import ClusterName, GroupName, TopicId, TopicName, TopicPartition
from parallax.domain.outcome import Outcome
from parallax.domain.progress import Progress
from parallax.ports import GroupCommit
from syncjob.facts import Answer, GroupFacts, Pair

HOLDS_MS = 10_000
"""So long at most: retention at the target, and a source topic made anew, are seen by asking alone."""


@dataclass(frozen=True, slots=True)
class _Basis:
    """What an answer depends on and a cycle reads anyway."""

    topics: tuple[TopicName, ...]
    commits: Mapping[TopicPartition, GroupCommit]
    topic_ids: tuple[tuple[ClusterName, TopicName, TopicId | None], ...]
    progress: Mapping[TopicPartition, Progress]


@dataclass(frozen=True, slots=True)
class _Kept:
    basis: _Basis
    answers: Mapping[TopicPartition, Answer]
    asked_at_ms: int


class Answered:
    """The answers of former cycles that asking again could not better.

    An answer is final while the group stays where it is: nothing that it consumed is still to arrive at the target,
    and the index knows all of it. Groups may be looked at from several threads, each from one at a time.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[GroupName, Pair], _Kept] = {}

    def get(
        self, facts: GroupFacts, pair: Pair, topics: Sequence[TopicName], now_ms: int
    ) -> Mapping[TopicPartition, Answer] | None:
        """The answers for a pair, if they still hold."""
        kept = self._kept.get((facts.group, pair))
        if kept is None or not 0 <= now_ms - kept.asked_at_ms < HOLDS_MS:
            return None
        return kept.answers if kept.basis == _basis(facts, pair, topics) else None

    def keep(
        self,
        facts: GroupFacts,
        pair: Pair,
        topics: Sequence[TopicName],
        answers: Mapping[TopicPartition, Answer],
        now_ms: int,
    ) -> None:
        """Remember answers if they are final."""
        basis = _basis(facts, pair, topics)
        reachable = all(facts.sides[cluster].reachable for cluster in pair)
        if reachable and all(_is_final(answer, basis) for answer in answers.values()):
            self._kept[facts.group, pair] = _Kept(basis, answers, now_ms)

    def forget_all_but(self, groups: Collection[GroupName]) -> None:
        """Forget groups that are gone."""
        for key in [key for key in self._kept if key[0] not in groups]:
            del self._kept[key]


def _is_final(answer: Answer, basis: _Basis) -> bool:
    """The service reads the group's commits anew: an answer about newer ones than the cycle's must not outlive it."""
    commit = basis.commits.get(answer.topic_partition)
    same = commit is not None and commit.next_offset == answer.origin_next_offset
    return same and answer.complete_to is None and answer.notes <= {Outcome.OK}


def _basis(facts: GroupFacts, pair: Pair, topics: Sequence[TopicName]) -> _Basis:
    origin, _ = pair
    asked = set(topics)
    return _Basis(
        topics=tuple(topics),
        commits={
            item: seen.commit for item, seen in facts.sides[origin].commits.items() if item.topic in asked
        },
        topic_ids=tuple(
            (cluster, topic, facts.sides[cluster].topic_ids.get(topic))
            for cluster in pair
            for topic in topics
        ),
        progress={item: found for item, found in facts.progress.items() if item.topic in asked},
    )
