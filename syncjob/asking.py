"""Asks the offset service for groups: for many at once by their positions, for the others one by one."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ParamSpec, TypeVar

import structlog

from parallax.client.answer import Pair, ResumeAnswer
from parallax.client.mapped import Mapped
from parallax.client.messages import NO_COMMIT
from parallax.domain.commits import went_back
from parallax.domain.ids import GroupName, TargetOffset, TopicName, TopicPartition
from parallax.domain.plain import is_within
from parallax.errors import ClusterUnavailableError, DeadlineError, ParallaxError, UnavailableError
from syncjob.facts import GroupFacts, GroupSide
from syncjob.look import Look

_log = structlog.get_logger(__name__)

Ask = Callable[[GroupName, Pair, Sequence[TopicName]], Mapping[TopicPartition, ResumeAnswer]]
"""Asks the offset service where each partition of the topics resumes (`parallax.client.answer.ask` with a client)."""

AskMany = Callable[[Pair, Mapping[TopicPartition, Sequence[int]]], Mapped]
"""Asks it where positions resume, whosever they are (`parallax.client.mapped.map_positions` with a client)."""

_Positions = Mapping[TopicPartition, int]
"""Where a group is on each partition of the topics that it is asked about; `NO_COMMIT`."""

Answered = dict[Pair, Mapping[TopicPartition, ResumeAnswer]]
"""A group's answers, those of a pair together or not at all."""

_CALLS_IN_VAIN = 2
"""So many in a row, and no service answers: of one alone its own size may be the reason."""

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


class Answering:
    """Whether services answer in a cycle: once none does, nothing more is asked in it. Safe to share between threads.

    Each call waits for as long as a call may take, so that a cycle of many groups would take longer than a lease.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers = self._in_vain = 0
        self._away: ParallaxError | None = None

    def to(self, question: Callable[Asked, Answer], *arguments: Asked.args, **named: Asked.kwargs) -> Answer:
        """The answer to a question.

        Raises:
            ParallaxError: the question's own, or that of the last one if no service answers any more.
        """
        with self._lock:
            before, away = self._answers, self._away
        if away is not None:
            raise type(away)(*away.args)
        try:
            found = question(*arguments, **named)
        except ParallaxError as error:
            with self._lock:
                if not _is_silence(error):
                    self._answered()
                elif self._answers == before:
                    self._in_vain += 1
                    if self._in_vain >= _CALLS_IN_VAIN:
                        self._away = error
            raise
        with self._lock:
            self._answered()
        return found

    def _answered(self) -> None:
        self._answers += 1
        self._in_vain = 0


def _is_silence(error: ParallaxError) -> bool:
    """Whether no service could answer; one that says that a cluster is away answers."""
    return isinstance(error, UnavailableError | DeadlineError) and not isinstance(
        error, ClusterUnavailableError
    )


def asked_together(ask_many: AskMany, looks: Iterable[Look]) -> dict[GroupName, Answered]:
    """The answers of groups of which nothing but their positions decides: the others have to be asked for one by one.

    Args:
        ask_many: asks for all groups of a pair together.
        looks: of which it is known what is wanted.
    """
    asked: defaultdict[Pair, defaultdict[TopicPartition, set[int]]] = defaultdict(lambda: defaultdict(set))
    wanted: list[tuple[GroupFacts, Pair, _Positions]] = []
    for look in looks:
        for pair, topics in look.wanted.items():
            positions = _positions(look, pair, topics)
            if look.facts is None or positions is None:
                continue
            wanted.append((look.facts, pair, positions))
            for item, position in positions.items():
                asked[pair][item].add(position)
    mapped: dict[Pair, Mapped] = {}
    for pair, of_pair in asked.items():
        try:
            mapped[pair] = ask_many(pair, {item: sorted(of_pair[item]) for item in sorted(of_pair)})
        except ParallaxError as error:
            _log.warning(
                "not_answered_together", origin=pair[0], to=pair[1], problem=f"[{error.code}] {error}"
            )
            if _is_silence(error):
                break  # whether services answer at all is seen by a smaller question
    found: defaultdict[GroupName, Answered] = defaultdict(dict)
    for facts, pair, positions in wanted:
        answers = _answers(facts, facts.sides[pair[0]], positions, mapped.get(pair, {}))
        if answers is not None:
            found[facts.group][pair] = answers
    return found


def _positions(look: Look, pair: Pair, topics: Sequence[TopicName]) -> _Positions | None:
    """Where the group is; None: that is not all that decides, or what is known of it has changed since it was read."""
    facts, origin, target = look.facts, look.snapshots[pair[0]], look.snapshots[pair[1]]
    if facts is None or origin is None or target is None or facts.unreadable or look.moves or look.is_void:
        return None
    found: dict[TopicPartition, int] = {}
    for topic in topics:
        if topic not in origin.partitions or topic not in target.partitions:
            return None
        for partition in range(max(origin.partitions[topic], target.partitions[topic])):
            found[TopicPartition(topic, partition)] = NO_COMMIT
    asked = set(topics)
    for item, seen in facts.sides[pair[0]].commits.items():
        if item.topic in asked:
            if item not in found:
                return None
            found[item] = seen.commit.next_offset
    return found


def _answers(
    facts: GroupFacts, side: GroupSide, positions: _Positions, mapped: Mapped
) -> Mapping[TopicPartition, ResumeAnswer] | None:
    """A group's answers for a pair; None: one is missing, or an earlier move makes it another one."""
    found: dict[TopicPartition, ResumeAnswer] = {}
    for item, position in positions.items():
        answer = mapped.get(item, {}).get(position)
        if answer is None or not _holds(facts, side, item, answer):
            return None
        found[item] = answer
    return found


def _holds(facts: GroupFacts, side: GroupSide, item: TopicPartition, answer: ResumeAnswer) -> bool:
    """Whether what is answered to the position is answered to the group: whether its last move adds nothing to what the rows tell."""
    moved = facts.progress.get(item)
    if moved is None or not moved.holds_in(side.cluster, side.topic_ids.get(item.topic)):
        return True
    position: TargetOffset | None = answer.origin_next_offset
    if position is None or position < moved.resume_offset:
        return False
    return not went_back(position, side.seen.get(item), moved) and all(
        source in answer.vector and is_within(before, answer.vector[source])
        for source, before in moved.positions.items()
    )
