"""Answers failover requests: each partition of a group, or many positions at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from itertools import islice
from operator import ge

from offsetsvc.answers import FailoverAnswer
from offsetsvc.clusters import Clusters
from offsetsvc.index.memory import IndexMemory
from offsetsvc.moves import RecordedMoves
from offsetsvc.parallel import Concurrently
from offsetsvc.resume.ahead import AT_ONCE, READING, read_ahead
from offsetsvc.resume.by_timestamp import Times
from offsetsvc.resume.call import FailoverCall, FailoverRequest, Shared, Topics, way_between
from offsetsvc.resume.many import ManyMapped, answer_many
from offsetsvc.resume.partition import Question, answer_partition
from offsetsvc.resume.plain_many import NONE
from offsetsvc.resume.plans import PartitionPlan, PartitionPlans
from offsetsvc.shared_reads import SharedReads
from parallax.client.messages import NO_COMMIT
from parallax.config.config import Config
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    TargetOffset,
    TopicPartition,
)
from parallax.domain.progress import Progress
from parallax.domain.rights import ANYBODY, Principal
from parallax.errors import (
    InvalidNameError,
    InvalidOffsetError,
    LimitError,
    UnreadableRowError,
)
from parallax.ports.groups import GroupStore
from parallax.runtime.deadline import Deadline
from parallax.runtime.newest import Newest

_MOST_NAMES = 10_000
"""Of topics of which it is remembered whether a route writes to them."""

MOST_POSITIONS = 100_000
"""In one call (`Failover.answers_many`)."""


class Failover:
    """Answers failover requests. Stateless but for what `Clusters` remembers of failures."""

    def __init__(
        self,
        config: Config,
        index: IndexMemory,
        groups: GroupStore,
        clusters: Clusters,
        executor: Executor,
        now_ms: Callable[[], int],
        moves: RecordedMoves,
    ) -> None:
        self._config = config
        self._index = index
        self._groups = groups
        self._clusters = clusters
        self._executor = executor
        self._now_ms = now_ms
        self._moves = moves
        self._plans = PartitionPlans(index)
        self._shared = SharedReads()
        self._ways = lru_cache(_MOST_NAMES)(partial(way_between, config))
        self._topics: Topics = Newest(_MOST_NAMES)
        self._writes_to = lru_cache(_MOST_NAMES)(lambda route, topic: config.route_topics(route).make(topic))

    def answers(
        self,
        request: FailoverRequest,
        deadline: Deadline,
        *,
        record_move: bool = False,
        by: Principal = ANYBODY,
    ) -> list[FailoverAnswer]:
        """Where each partition resumes, by topic and partition.

        Args:
            request: the group and its move.
            deadline: the answers must be there by then.
            record_move: remember each answer as the group's progress at the destination; audited where it changes that.
            by: who asks.

        Raises:
            InvalidNameError: origin and destination are the same cluster.
            RefusedError: producers write to the origin, and no route brings that to the destination.
            UnknownTopicError: neither cluster nor the index knows a topic that was named.
            UnknownPartitionError: neither cluster nor the index knows the partition that was named.
            UnknownGroupError: nobody knows the group, and the caller brought no position.
            InvalidOffsetError: a position is negative.
            LimitError: more partitions than `service.max_partitions_per_call`.
            ClusterUnavailableError: the clusters are away and the index can't answer in their place.
            UnreadableRowError: what is stored of one of the partitions can't be read by this release.
            DeadlineError: the deadline passed first.
        """
        _check(request)
        call = self._call(request)
        together = Concurrently(self._executor, deadline)
        # What one partition needs is mostly remembered: threads would cost more than they save.
        run = together.run if request.only is None else together.run_here
        run(call.first_reads(), "asking the clusters for their topics and the group's offsets")
        partitions = call.partitions()
        limit = self._config.service.max_partitions_per_call
        if len(partitions) > limit:
            raise LimitError(
                f"{len(partitions)} partitions in one call; the limit is {limit} "
                "(service.max_partitions_per_call): name topics to split the call"
            )
        questions = call.with_kept(call.questions(partitions, call.read_shared(partitions, run)), run)
        deadline.check(READING)
        plans = self._plans.of([question.plan for question in questions])
        now_ms = self._now_ms()
        answers = self._answered(list(zip(questions, plans, strict=True)), together, deadline, now_ms)
        if request.by_timestamp is not None:
            margin_ms = request.by_timestamp.margin_ms
            times = Times(
                call.origin,
                call.destination,
                margin_ms=self._config.service.by_timestamp_margin_ms if margin_ms is None else margin_ms,
                timestamp_ms=request.by_timestamp.timestamp_ms,
            )
            answers = together.map(times.instead_of_log_start, answers, "reading record timestamps")
        if record_move:
            self._record(request.group, answers, call.moves_before(), by)
        return answers

    def answers_many(
        self,
        origin: ClusterName,
        destination: ClusterName,
        positions: Mapping[TopicPartition, Sequence[int]],
        deadline: Deadline,
    ) -> list[ManyMapped]:
        """Where groups at these positions resume that have not moved to the origin before (`answer_many`).

        Positions of a partition of which the index holds what can't be read are left out: whoever asks about one of them hears why.

        Args:
            origin: where the positions are.
            destination: where the groups go.
            positions: next offsets by partition, ascending, each once; `NO_COMMIT` first.
            deadline: the answers must be there by then.

        Raises:
            InvalidNameError, RefusedError, UnknownTopicError, UnknownPartitionError: as `answers` says.
            InvalidOffsetError: positions are not in order.
            LimitError: more partitions than `service.max_partitions_per_call`, or more than `MOST_POSITIONS` positions.
            ClusterUnavailableError: the clusters are away.
            DeadlineError: the deadline passed first.
        """
        nobody = dict.fromkeys(positions, TargetOffset(0))
        request = FailoverRequest(GroupName(""), origin, destination, nobody)
        _check(request)
        _check_many(positions, self._config.service.max_partitions_per_call)
        call = self._call(request)
        together = Concurrently(self._executor, deadline)
        together.run([call.origin.topics, call.destination.topics], "asking the clusters for their topics")
        partitions = list(positions)
        for partition in partitions:
            call.require_partition(partition)
        shared = call.read_shared(partitions, together.run, of_group=False)
        questions = _questions_of(call, partitions, shared)
        plans = self._plans_of(questions)
        now_ms = self._now_ms()
        found = {item: ManyMapped(item, None, None, len(positions[item]), NONE) for item in partitions}
        for question, plan in zip(questions, plans, strict=True):
            deadline.check(READING)
            item = question.topic_partition
            try:
                found[item] = answer_many(question, plan(), positions[item], now_ms)
            except UnreadableRowError:
                found[item] = replace(found[item], question=question)
        return list(found.values())

    def _plans_of(self, questions: Sequence[Question]) -> list[Callable[[], PartitionPlan]]:
        """A plan for each question: one by one, where rows of some can't be read."""
        try:
            return self._plans.of([question.plan for question in questions])
        except UnreadableRowError:
            return [partial(self._plan_alone, question) for question in questions]

    def _plan_alone(self, question: Question) -> PartitionPlan:
        (plan,) = self._plans.of([question.plan])
        return plan()

    def _answered(
        self,
        asked: Sequence[tuple[Question, Callable[[], PartitionPlan]]],
        together: Concurrently,
        deadline: Deadline,
        now_ms: int,
    ) -> list[FailoverAnswer]:
        """The answer of each partition; some at a time share what they read."""
        answers: list[FailoverAnswer] = []
        for start in range(0, len(asked), AT_ONCE):
            some: list[tuple[Question, PartitionPlan]] = []
            for question, plan in asked[start : start + AT_ONCE]:
                deadline.check(READING)
                some.append((question, plan()))
            kept = read_ahead(some, self._index.read_blocks, deadline)
            answers += together.map_here_first(lambda item: answer_partition(*item, now_ms), some, READING)
            del kept
        return answers

    def is_away(self, cluster: ClusterName) -> bool:
        """Whether a cluster can't be asked now."""
        view = self._clusters.view(cluster)
        view.topics()
        return not view.reachable

    def _call(self, request: FailoverRequest) -> FailoverCall:
        return FailoverCall(
            self._config,
            self._index,
            self._groups,
            self._clusters,
            request,
            self._writes_to,
            self._ways(request.origin, request.destination),
            self._shared,
            self._topics,
        )

    def _record(
        self,
        group: GroupName,
        answers: Sequence[FailoverAnswer],
        before: Iterable[Progress],
        by: Principal,
    ) -> None:
        left = {
            answer.topic_partition: Progress(
                answer.destination.cluster,
                answer.destination.topic_id,
                answer.resume_offset,
                answer.progress,
            )
            for answer in answers
        }
        if left:
            self._moves.save(by, "GetGroupFailoverOffsets", group, left, self._now_ms(), before)


def _questions_of(call: FailoverCall, partitions: Sequence[TopicPartition], shared: Shared) -> list[Question]:
    """A question about each partition, but for those of which rows that it takes can't be read."""
    try:
        return call.questions(partitions, shared)
    except UnreadableRowError:
        found: list[Question] = []
        for partition in partitions:
            with suppress(UnreadableRowError):
                found += call.questions([partition], shared)
        return found


def _check_many(positions: Mapping[TopicPartition, Sequence[int]], most_partitions: int) -> None:
    count = sum(map(len, positions.values()))
    if len(positions) > most_partitions or count > MOST_POSITIONS:
        raise LimitError(
            f"{count} positions on {len(positions)} partitions in one call; the limits are {MOST_POSITIONS} and "
            f"{most_partitions} (service.max_partitions_per_call): split the call"
        )
    for partition, offsets in positions.items():
        if offsets and (offsets[0] < NO_COMMIT or any(map(ge, offsets, islice(offsets, 1, None)))):
            raise InvalidOffsetError(
                f"next offsets of {partition} are not in order, or one is below {NO_COMMIT}: name each once, ascending"
            )


def _check(request: FailoverRequest) -> None:
    if request.origin == request.destination:
        raise InvalidNameError(
            f"from and to are the same cluster, {request.origin}: nothing has to be translated"
        )
    for partition, offset in request.positions.items():
        if offset < 0:
            raise InvalidOffsetError(
                f"next offset {offset} of {partition} is negative; leave it out to use the group's commit"
            )
