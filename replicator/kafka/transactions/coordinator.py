"""The transactions of one transactional id, spoken by hand with its coordinator (KIP-98, KIP-890)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kafka.errors import for_code
from kafka.protocol.admin import DescribeTransactionsRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.wire import Connections
from parallax.domain.ids import TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError, FencedError
from parallax.runtime.deadline import Deadline
from replicator.copying.session_end import TopicsRefusedError
from replicator.kafka.refusals import FENCED, ID_NOT_ALLOWED, NOT_ALLOWED, id_not_allowed, not_writable

_NONE = 0
_MOVED = frozenset({14, 15, 16})
"""Loading, not available, not the coordinator."""
CONCURRENT_TRANSACTIONS = 51
_NOT_ATTEMPTED = 55
"""A partition was not added because another one could not be: what that one met is the cause."""
_UNEXPECTED = -1
"""The broker failed within. It does so, too, where a commit meets an owner who is just taking over (Kafka 4.3: "Preparing
transaction state transition ... while it already a pending state PREPARE_EPOCH_FENCE"); asked again, it tells."""
_UNEXPECTED_FOR_MS = 2_000
_SHORT_WAIT_MS, _LONG_WAIT_MS = 2, 50
_INVALID_STATE = 48
"""A commit meets it whose transaction the coordinator has begun to abort, or has just aborted: for a newer owner, who has the id
only afterwards, or for its age. Once the newer owner has it, the answer is that this one is fenced."""
_TRANSACTION_VERSION = 2
_TRANSACTION_KEY = 1
_COMMITTING = "committing"
_OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
_ID_NOT_FOUND = 105
SEQUENCES = 2**31
"""Sequence numbers wrap here."""


@dataclass(slots=True)
class ProducerState:
    """A transactional producer as the target knows it.

    Attributes:
        producer_id, epoch: as the coordinator gave them; either may change with every transaction.
    """

    producer_id: int
    epoch: int
    _sequences: dict[TopicPartition, int] = field(default_factory=dict)

    def take(self, item: TopicPartition, count: int) -> int:
        """The sequence number of the next batch of the partition, which has ``count`` records."""
        sequence = self._sequences.get(item, 0)
        self._sequences[item] = (sequence + count) % SEQUENCES
        return sequence

    def renewed(self, producer_id: int, epoch: int) -> None:
        """Take the id and epoch of a coordinator's answer; under new ones every sequence begins at 0."""
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self._sequences.clear()


class Coordinator:
    """One transactional id.

    Args:
        loop: turned while an answer is awaited.
        connections: to the target.
        transactional_id: the id.
        transaction_timeout_ms: after this the broker aborts a transaction by itself; also the patience with which
            an unanswered request is repeated.
        newest: whether the cluster has transaction version 2 (`has_newest_transactions`).
    """

    def __init__(
        self,
        loop: EventLoop,
        connections: Connections,
        transactional_id: str,
        transaction_timeout_ms: int,
        *,
        newest: bool,
    ) -> None:
        self._loop = loop
        self._connections = connections
        self.transactional_id = transactional_id
        self._timeout_ms = transaction_timeout_ms
        self.newest = newest
        self._node: Any = None

    def initialise(self) -> ProducerState:
        """Fence every older owner of the id and abort what it left open.

        Raises:
            ConfigError: the id is not allowed; so in every other call.
            ClusterUnavailableError: no definite answer in time.
        """
        answer = self._until_definite(
            lambda: InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=-1,
                producer_epoch=-1,
                max_version=5 if self.newest else 4,
            ),
            "initialising the transactional id",
            patience_ms=self._timeout_ms * 3,
        )
        return ProducerState(answer.producer_id, answer.producer_epoch)

    def add(self, items: Collection[TopicPartition], producer: ProducerState) -> None:
        """Let partitions join the transaction; needed before transaction version 2 only.

        Raises:
            FencedError: another owner has initialised the id.
            TopicsRefusedError: topics may not be written to.
            ClusterUnavailableError: no definite answer in time.
        """
        self._until_definite(
            lambda: AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=numbers)
                    for topic, numbers in by_topic(items).items()
                ],
                max_version=3,
            ),
            "adding partitions to the transaction",
            patience_ms=self._timeout_ms,
        )

    def end(self, producer: ProducerState, *, committed: bool) -> None:
        """Commit or abort the transaction; repeated until the answer is definite.

        Raises:
            FencedError: another owner has initialised the id, or the broker has aborted the transaction for its age.
            ClusterUnavailableError: no definite answer in time: the outcome is unknown.
        """
        answer = self._until_definite(
            lambda: EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                committed=committed,
                max_version=5 if self.newest else 3,
            ),
            _COMMITTING if committed else "aborting",
            patience_ms=self._timeout_ms,
        )
        if answer.API_VERSION >= 5 and answer.producer_id >= 0:  # noqa: PLR2004 - the first that tells them
            producer.renewed(answer.producer_id, answer.producer_epoch)

    def is_open(self) -> bool:
        """Whether the id has a transaction that is not over; nobody is fenced by that.

        Raises:
            ClusterUnavailableError: no definite answer in time.
        """
        answer = self._until_definite(
            lambda: DescribeTransactionsRequest(transactional_ids=[self.transactional_id]),
            "asking for the transaction",
            patience_ms=self._timeout_ms,
        )
        return any(state.transaction_state in _OPEN_STATES for state in answer.transaction_states)

    def _until_definite(self, request: Callable[[], Any], doing: str, *, patience_ms: float) -> Any:
        deadline, unexpected = Deadline.after_ms(patience_ms), Deadline.after_ms(_UNEXPECTED_FOR_MS)
        problem = "no answer"
        while not deadline.passed:
            try:
                node = self._found()
                answer = self._connections.ask(node, request(), doing)
            except ClusterUnavailableError as error:
                problem, self._node = str(error), None
                self._loop.pause(_LONG_WAIT_MS)
                continue
            code, where = _code_of(answer)
            if code == _NONE:
                return answer
            problem = f"{self._connections.cluster}: {doing}{where}: {for_code(code).__name__} ({code})"
            if code in FENCED or (code == _INVALID_STATE and doing == _COMMITTING):
                raise FencedError(f"{problem}: another owner has taken over {self.transactional_id}")
            if code == ID_NOT_ALLOWED:
                raise id_not_allowed(self._connections.cluster, self.transactional_id, doing)
            if code == NOT_ALLOWED:
                cluster = self._connections.cluster
                raise TopicsRefusedError(
                    {topic: not_writable(cluster, topic) for topic in _refused_by(answer)}
                )
            if code in _MOVED:
                self._node = None
                self._loop.pause(_LONG_WAIT_MS)
            elif code == CONCURRENT_TRANSACTIONS:
                self._loop.pause(_SHORT_WAIT_MS)
            elif code == _UNEXPECTED and not unexpected.passed:
                self._loop.pause(_LONG_WAIT_MS)
            else:
                break
        raise ClusterUnavailableError(problem)

    def _found(self) -> Any:
        if self._node is None:
            cluster, doing = self._connections.cluster, "finding the transaction coordinator"
            answer = self._connections.ask(
                self._connections.any_node,
                FindCoordinatorRequest(key=self.transactional_id, key_type=_TRANSACTION_KEY, max_version=3),
                doing,
            )
            if answer.error_code == ID_NOT_ALLOWED:
                raise id_not_allowed(cluster, self.transactional_id, doing)
            if answer.error_code != _NONE:
                raise ClusterUnavailableError(f"{cluster}: {doing}: {for_code(answer.error_code).__name__}")
            self._node = self._connections.coordinator(answer.host, answer.port, answer.node_id)
        return self._node


def has_newest_transactions(connections: Connections) -> bool:
    """Whether the cluster runs transaction version 2 (KIP-890): its finalised feature, not what its code could."""
    return connections.features().get("transaction.version", 0) >= _TRANSACTION_VERSION


def by_topic(items: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions' numbers by topic, as requests name them."""
    topics: dict[str, list[int]] = {}
    for item in items:
        topics.setdefault(str(item.topic), []).append(item.partition)
    return topics


def _code_of(answer: Any) -> tuple[int, str]:
    """The gravest error of an answer: of the whole, or of one of its partitions, which is then named."""
    code = int(getattr(answer, "error_code", 0) or 0)
    states = getattr(answer, "transaction_states", None) or ()
    code = code or next((int(state.error_code) for state in states if state.error_code != _ID_NOT_FOUND), 0)
    if code:
        return code, ""
    codes = [(code, f" ({item})") for item, code in _codes_by_partition(answer)]
    fatal = [found for found in codes if found[0] not in {_NONE, CONCURRENT_TRANSACTIONS, *_MOVED}]
    fatal.sort(key=lambda found: found[0] == _NOT_ATTEMPTED)
    return next(iter(fatal), max(codes, default=(_NONE, "")))


def _codes_by_partition(answer: Any) -> Iterator[tuple[TopicPartition, int]]:
    for topic in getattr(answer, "results_by_topic_v3_and_below", None) or ():
        for part in topic.results_by_partition:
            yield TopicPartition(TopicName(topic.name), part.partition_index), int(part.partition_error_code)


def _refused_by(answer: Any) -> set[TopicName]:
    return {item.topic for item, code in _codes_by_partition(answer) if code == NOT_ALLOWED}
