"""Where a group resumes: what all its partitions share is read first, then each is answered by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor

from offsetsvc.answers import FailoverAnswer
from offsetsvc.clusters import Clusters
from offsetsvc.index.lineage_memory import LineageMemory
from offsetsvc.index.tails import Tails
from offsetsvc.parallel import Concurrently
from offsetsvc.resume.by_timestamp import Times
from offsetsvc.resume.partition import answer_partition
from offsetsvc.resume.request import Asking, FailoverRequest
from parallax.config.config import Config
from parallax.domain.ids import TargetOffset, TopicPartition
from parallax.errors import InvalidOffsetError, LimitError
from parallax.ports.groups import GroupStore
from parallax.ports.index import MappingIndexReader
from parallax.runtime.deadline import Deadline


class Failover:
    """Answers failover requests. Stateless but for what `Clusters` remembers of failures."""

    def __init__(
        self,
        config: Config,
        index: MappingIndexReader,
        tails: Tails,
        groups: GroupStore,
        clusters: Clusters,
        executor: Executor,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._index = index
        self._tails = tails
        self._groups = groups
        self._clusters = clusters
        self._executor = executor
        self._now_ms = now_ms
        self._lineages = LineageMemory()

    def answers(self, request: FailoverRequest, deadline: Deadline) -> list[FailoverAnswer]:
        """Where each partition resumes, by topic and partition.

        Raises:
            UnknownTopicError: neither cluster nor the index knows a topic that was named.
            UnknownPartitionError: neither cluster nor the index knows the partition that was named.
            UnknownGroupError: nobody knows the group, and the caller brought no position.
            InvalidOffsetError: a position is negative.
            LimitError: more partitions than `service.max_partitions_per_call`.
            ClusterUnavailableError: the clusters are away and the index can't answer in their place.
            DeadlineError: the deadline passed first.
        """
        _check_positions(request.positions)
        asking = Asking(self._config, self._index, self._groups, self._clusters, request, self._lineages)
        together = Concurrently(self._executor, deadline)
        # What one partition needs is mostly remembered: threads would cost more than they save.
        run = together.run if request.only is None else together.run_here
        run(asking.of_clusters(), "asking the clusters for their topics and the group's offsets")
        wanted = asking.wanted()
        limit = self._config.service.max_partitions_per_call
        count = sum(len(items) for items in wanted.values())
        if count > limit:
            raise LimitError(
                f"{count} partitions in one call; the limit is {limit} "
                "(service.max_partitions_per_call): name topics to split the call"
            )
        run(asking.of_topics(wanted), "reading log ranges and lineages")
        questions = asking.questions(wanted)
        deadline.check("reading the index")
        tails = self._tails.read([view for question in questions for view in question.views])
        now_ms = self._now_ms()
        answers = together.map(
            lambda question: answer_partition(self._index, tails, question, now_ms),
            questions,
            "reading the index",
        )
        if request.by_timestamp is None:
            return answers
        margin_ms = request.by_timestamp.margin_ms
        times = Times(
            asking.origin,
            asking.destination,
            margin_ms=self._config.service.by_timestamp_margin_ms if margin_ms is None else margin_ms,
            timestamp_ms=request.by_timestamp.timestamp_ms,
        )
        return together.map(times.instead_of_log_start, answers, "reading record timestamps")


def _check_positions(positions: Mapping[TopicPartition, TargetOffset]) -> None:
    for partition, offset in positions.items():
        if offset < 0:
            raise InvalidOffsetError(
                f"next offset {offset} of {partition} is negative; leave it out to use the group's commit"
            )
