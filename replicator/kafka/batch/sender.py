"""The batches of one transaction on their way to the target: in order, many partitions to a request."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.transport import Buffer
from parallax.adapters.kafka.wire import Connections
from parallax.domain.ids import TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError, FencedError, ParallaxError
from parallax.runtime.deadline import Deadline
from replicator.copying.offset_ranges import OffsetRanges
from replicator.copying.session_end import TopicsRefusedError
from replicator.format.batch import rewrite_batch
from replicator.format.block import BatchBlock
from replicator.kafka.batch.calm import Calm
from replicator.kafka.batch.exchange import Produce
from replicator.kafka.refusals import NOT_ALLOWED, Refusal, is_for_good, not_writable, translated
from replicator.kafka.transactions.coordinator import CONCURRENT_TRANSACTIONS, Coordinator, ProducerState

MOST_REQUESTS = 5
"""In flight to one broker: Kafka keeps the order of a producer's batches only so far."""
WORTHWHILE_REQUEST_BYTES = 128 * 1024
"""While others are on their way, a request waits until it holds so much, or until a partition has a second batch
waiting: only one of each goes into a request."""
LARGEST_REQUEST_BYTES = 8 * 1024 * 1024
_TURN_MS = 20
_REJOIN_MS = 2


_Sent = tuple[BatchBlock, Sequence[Buffer]]
"""A batch, and the pieces in which it is sent."""


class _Lane:
    """The batches of one partition in the open transaction: waiting, then on their way, in order."""

    __slots__ = ("acknowledged", "joined", "on_their_way", "sent_to", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[BatchBlock] = deque()
        self.on_their_way = 0
        self.joined = False
        self.sent_to: int | None = None
        self.acknowledged = OffsetRanges()


class Sender:
    """Sends batches, those of a partition all over one connection. Whatever goes wrong makes it useless for good: `raise_problem` says what it was.

    Args:
        loop: turned while acknowledgements are awaited.
        connections: to the target.
        coordinator: of the transactional id.
        producer: numbers the batches.
        timeout_ms: the patience with which acknowledgements are awaited.
    """

    def __init__(
        self,
        loop: EventLoop,
        connections: Connections,
        coordinator: Coordinator,
        producer: ProducerState,
        *,
        timeout_ms: int,
    ) -> None:
        self._loop = loop
        self._connections = connections
        self._coordinator = coordinator
        self._producer = producer
        self._timeout_ms = timeout_ms
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._requests: dict[int, int] = {}
        self.requests_sent = 0
        """Ever."""
        self._unfinished = 0
        self._problem: ParallaxError | None = None
        self._flushing = False
        self._calm = Calm()
        self._ways: dict[TopicPartition, object | None] = {}
        """The connection over which each partition was written to."""
        self._rejoining: dict[TopicPartition, _Sent] = {}
        """Batches on their way that are sent once more, all at once."""
        self.refused: Refusal | None = None
        """The first batch that the target refused for good."""

    @property
    def acknowledged(self) -> Mapping[TopicPartition, OffsetRanges]:
        """By partition of the transaction: the target offsets of its records so far, in order."""
        return {item: lane.acknowledged for item, lane in self._lanes.items()}

    def begin(self) -> None:
        """Forget the transaction before."""
        self._lanes = {}
        self._rejoining = {}
        self._flushing = False

    def committed(self, took_ms: float) -> None:
        """A transaction has been committed, which took so long: send nothing of the next one before its markers are there (`Calm`)."""
        self._loop.after(self._calm.committed(took_ms), self._send)

    @property
    def calm_ms(self) -> float:
        """For so long nothing will be sent."""
        return self._calm.left_ms

    def add(self, block: BatchBlock) -> None:
        """Take a batch; `step` and `flush` send it."""
        lane = self._lanes.get(block.topic_partition)
        if lane is None:
            lane = self._lanes[block.topic_partition] = _Lane()
        lane.waiting.append(block)
        self._unfinished += 1

    def step(self) -> None:
        """Send what is due."""
        self._join()
        self._send()

    def _all_sent(self) -> bool:
        """Whether nothing is left to be sent for the first time, and all of it has gone to the leaders that are known now."""
        leader_of = self._connections.leader
        return all(not lane.waiting and lane.sent_to == leader_of(item) for item, lane in self._lanes.items())

    def flush(self, doing: str, when_sent: Callable[[], None] | None = None) -> None:
        """Send everything and wait until it is acknowledged, or refused.

        Args:
            doing: for messages.
            when_sent: called once, as soon as all is sent, to the leaders that are known then; never if a leader has moved since.

        Raises:
            ClusterUnavailableError: not in time, or the target failed.
            TopicsRefusedError: topics may not be written to.
            FencedError: another owner has taken over.
        """
        self._flushing = True
        self.step()
        deadline = Deadline.after_ms(self._timeout_ms)
        while True:
            if when_sent is not None and self._all_sent():
                when_sent()
                when_sent = None
            if not self._unfinished or self.refused is not None:
                break
            self.raise_problem()
            if deadline.passed:
                raise ClusterUnavailableError(
                    f"{self._connections.cluster}: {doing}: {self._unfinished} batches are not acknowledged in time"
                )
            self._loop.turn(_TURN_MS)
        self.raise_problem()

    def raise_problem(self) -> None:
        """Raise what has gone wrong, if anything has."""
        if self._problem is not None:
            raise self._problem

    # --- sending -----------------------------------------------------------------------------------------------

    def _join(self) -> None:
        """Let new partitions join the transaction, where they don't do so by themselves."""
        new = [item for item, lane in self._lanes.items() if not lane.joined]
        if not new:
            return
        missing = self._connections.learn_leaders(new, timeout_ms=self._timeout_ms / 3)
        if missing:
            raise ClusterUnavailableError(
                f"{self._connections.cluster}: no leader for {', '.join(map(str, missing))}"
            )
        if not self._coordinator.newest:
            self._coordinator.add(new, self._producer)
        for item in new:
            self._lanes[item].joined = True

    def _send(self) -> None:
        """Send to every leader as many requests as it may have and as are worth while."""
        if self._calm.left_ms:
            return
        by_leader: dict[int, list[TopicPartition]] = {}
        for item, lane in self._lanes.items():
            if lane.waiting and lane.joined:
                leader = self._connections.leader(item)
                if leader is None:
                    self._fail(ClusterUnavailableError(f"{self._connections.cluster}: no leader for {item}"))
                    return
                by_leader.setdefault(leader, []).append(item)
        for leader, items in by_leader.items():
            while self._requests.get(leader, 0) < MOST_REQUESTS and self._send_one(leader, items):
                pass

    def _send_one(self, leader: int, items: Sequence[TopicPartition]) -> bool:
        """Send one request with the next batch of each partition; False if none is worth while now."""
        chosen: list[TopicPartition] = []
        size = 0
        for item in items:
            lane = self._lanes[item]
            if lane.waiting and size < LARGEST_REQUEST_BYTES and not self._must_wait(lane):
                chosen.append(item)
                size += len(lane.waiting[0].raw)
        if not chosen:
            return False
        behind = any(len(self._lanes[item].waiting) > 1 for item in chosen)
        free = self._flushing or not self._requests.get(leader, 0)
        if not (free or behind or size >= WORTHWHILE_REQUEST_BYTES):
            return False
        batches: dict[TopicPartition, _Sent] = {}
        for item in chosen:
            lane = self._lanes[item]
            block = lane.waiting.popleft()
            lane.on_their_way += 1
            lane.sent_to = leader
            sequence = self._producer.take(item, len(block.offsets))
            pieces = rewrite_batch(block.raw, self._producer.producer_id, self._producer.epoch, sequence)
            batches[item] = (block, pieces)
        self._request(leader, batches, size)
        return True

    def _request(self, leader: int, batches: Mapping[TopicPartition, _Sent], size_bytes: int) -> None:
        way = self._connections.way_to(leader)
        if lost := [item for item in batches if self._ways.get(item, way) is not way]:
            self._fail(
                ClusterUnavailableError(
                    f"{self._connections.cluster}: {lost[0]}: the connection to its leader was lost, or it has got another one: "
                    "what was left hanging there is to be ended before anything is written"
                )
            )
            return
        request = Produce(
            {item: pieces for item, (_, pieces) in batches.items()},
            transactional_id=self._coordinator.transactional_id,
            timeout_ms=self._timeout_ms,
            newest=self._coordinator.newest,
        )
        self._requests[leader] = self._requests.get(leader, 0) + 1
        self.requests_sent += 1
        self._calm.sent(small=size_bytes < WORTHWHILE_REQUEST_BYTES)
        lanes = self._lanes

        def answered(answer: Any) -> None:
            self._requests[leader] -= 1
            self._calm.answered()
            if lanes is self._lanes:
                self._take_in(answer, batches)
                self._send()

        def failed(error: Exception) -> None:
            self._requests[leader] -= 1
            self._fail(
                ClusterUnavailableError(
                    f"{self._connections.cluster}: writing: {error} ({type(error).__name__})"
                )
            )

        self._connections.send(leader, request, answered, failed)
        self._ways |= dict.fromkeys(batches, self._connections.way_to(leader))

    def _must_wait(self, lane: _Lane) -> bool:
        """Under transaction version 2 a partition joins by its first batch, which may be told to wait a moment."""
        return self._coordinator.newest and lane.on_their_way > 0 and not lane.acknowledged

    def _take_in(self, answer: Any, batches: Mapping[TopicPartition, _Sent]) -> None:
        not_allowed: set[TopicName] = set()
        for topic in answer.responses:
            for part in topic.partition_responses:
                item = TopicPartition(TopicName(topic.name), part.index)
                lane, (block, _) = self._lanes[item], batches[item]
                code = part.error_code
                if code == CONCURRENT_TRANSACTIONS and not lane.acknowledged:
                    if not self._rejoining:
                        self._loop.after(_REJOIN_MS, self._again)
                    self._rejoining[item] = batches[item]
                    continue
                lane.on_their_way -= 1
                if code == 0:
                    lane.acknowledged.extend(range(part.base_offset, part.base_offset + len(block.offsets)))
                    self._unfinished -= 1
                elif code == NOT_ALLOWED:
                    not_allowed.add(item.topic)
                elif is_for_good(code):
                    errors = part.record_errors or ()
                    index = len(lane.acknowledged) + (errors[0].batch_index if errors else 0)
                    if self.refused is None:
                        self.refused = Refusal(item, index, code, part.error_message or "")
                else:
                    doing = f"writing to {item}" + (f": {part.error_message}" if part.error_message else "")
                    self._connections.refresh()
                    own_id = self._coordinator.transactional_id
                    self._fail(translated(code, self._connections.cluster, doing, own_id))
        if not_allowed:
            cluster = self._connections.cluster
            self._fail(TopicsRefusedError({topic: not_writable(cluster, topic) for topic in not_allowed}))

    def _again(self) -> None:
        """Send first batches of partitions once more: the transaction before was not quite over."""
        again, self._rejoining = self._rejoining, {}
        for leader, items in self._connections.by_leader(again).items():
            batches: dict[TopicPartition, _Sent] = {}
            size = 0
            for item in items:
                batches[item] = again.pop(item)
                size += len(batches[item][0].raw)
                if size >= LARGEST_REQUEST_BYTES:
                    self._request(leader, batches, size)
                    batches, size = {}, 0
            if batches:
                self._request(leader, batches, size)
        if again:
            self._fail(
                ClusterUnavailableError(
                    f"{self._connections.cluster}: no leader for {', '.join(map(str, again))}"
                )
            )

    def _fail(self, problem: ParallaxError) -> None:
        # Batches behind a refused one are out of order: that says nothing of its own.
        if isinstance(problem, FencedError) or (self._problem is None and self.refused is None):
            self._problem = problem
