"""The batch path's target: a transactional producer of whole batches, many partitions to a request."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import structlog
from kafka.errors import for_code

from parallax.domain.errors import ClusterUnavailableError, ConfigError, FencedError, ParallaxError
from parallax.domain.ids import TargetOffset, TopicName, TopicPartition
from parallax.runtime.deadline import Deadline
from replicator.batches import messages
from replicator.batches.block import BatchBlock
from replicator.batches.coordinator import CONCURRENT_TRANSACTIONS, Coordinator
from replicator.batches.header import Compression
from replicator.batches.records import Record, body, packed
from replicator.batches.rewrite import ProducerState, rewritten
from replicator.batches.transport import Connections, EventLoop
from replicator.offset_ranges import OffsetRanges
from replicator.pb.runlog_pb2 import Entry
from replicator.shard_ports import RecordBlock, RecordRefusedError

log = structlog.get_logger(__name__)

MOST_REQUESTS = 5
"""In flight to one broker: Kafka keeps the order of a producer's batches only so far."""
WORTHWHILE_REQUEST_BYTES = 512 * 1024
"""While others are on their way, a request waits until it holds so much."""
LARGEST_REQUEST_BYTES = 8 * 1024 * 1024
_TOO_LARGE = 10
_ADVICE = {
    _TOO_LARGE: "raise max.message.bytes of the target's topic",
    18: "raise segment.bytes of the target's topic",
    29: "allow the replicator to write to the target's topic",
    32: (
        "widen message.timestamp.before.max.ms and message.timestamp.after.max.ms of the target's topic "
        "(the record meant may be a later one of the same batch)"
    ),
    87: (
        "the target's topic asks for more than the source's (a compacted topic refuses records without key): "
        "change its settings, or exclude the topic (the record meant may be a later one of the same batch)"
    ),
    43: "see the target's topic settings",
    44: "see the target's topic settings",
}
"""What the target says of a batch for good: saying it again would not help."""
_FENCED = frozenset({47, 90})
_NOT_ALLOWED = 53
_TURN_MS = 20
_REJOIN_MS = 2


class _Lane:
    """The batches of one partition in the open transaction: waiting, then on their way, in order."""

    __slots__ = ("acknowledged", "joined", "on_their_way", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[BatchBlock] = deque()
        self.on_their_way = 0
        self.joined = False
        self.acknowledged = OffsetRanges()


class BatchTarget:
    """`TargetWriter` of raw batches, initialised by whoever made it.

    Args:
        loop: shared with the source.
        connections: to the target; closed with this, and the loop too.
        coordinator: of the transactional id.
        producer: what initialising it gave.
        run_log: the shard's partition of the run log.
        timeout_ms: the patience with which acknowledgements are awaited.
        limits: ``max.message.bytes`` of topics that refused a batch, kept beyond this object by its owner.
    """

    path = "batch"

    def __init__(
        self,
        loop: EventLoop,
        connections: Connections,
        coordinator: Coordinator,
        producer: ProducerState,
        *,
        run_log: TopicPartition,
        timeout_ms: int,
        limits: dict[TopicName, int],
    ) -> None:
        self._loop = loop
        self._connections = connections
        self._coordinator = coordinator
        self._producer = producer
        self._run_log = run_log
        self._timeout_ms = timeout_ms
        self._limits = limits
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._requests: dict[int, int] = {}
        self._unfinished = 0
        self._refused: tuple[TopicPartition, int, int, str] | None = None
        self._problem: ParallaxError | None = None
        self._flushing = False
        connections.watch([run_log.topic])

    def begin(self) -> None:
        """Begin a transaction: nothing is sent for that."""
        self._raise()
        self._lanes = {}
        self._flushing = False

    def produce(self, block: RecordBlock) -> None:
        """Take a batch; `serve` and `settle` send it."""
        self._raise()
        if not isinstance(block, BatchBlock):
            raise TypeError("the batch path copies batches only")
        item = block.topic_partition
        lane = self._lanes.get(item)
        if lane is None:
            lane = self._lanes[item] = _Lane()
        limit = self._limits.get(item.topic)
        for part in (block,) if limit is None else block.within(limit):
            lane.waiting.append(part)
            self._unfinished += 1

    def serve(self) -> None:
        """Send what is due."""
        self._join()
        self._send()
        self._loop.turn(0)
        self._raise()

    def settle(self) -> Mapping[TopicPartition, Sequence[int]]:
        """Wait until everything is acknowledged."""
        self._flush("waiting for acknowledgements")
        return {item: lane.acknowledged for item, lane in self._lanes.items()}

    def commit(self, entry: Entry) -> int:
        """Append the entry and commit."""
        record = Record(0, max(0, entry.committed_at_ms), body(None, entry.SerializeToString()))
        raw = memoryview(packed([record], Compression.NONE))
        self.produce(BatchBlock(self._run_log, -1, range(1), (raw,), len(raw)))
        self._flush("appending to the run log")
        offset = self._lanes[self._run_log].acknowledged[0]
        self._coordinator.commit(self._producer)
        return offset

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, TargetOffset]:
        """High watermarks, asked now."""
        missing = set(self._connections.learn_leaders(partitions, timeout_ms=self._timeout_ms / 3))
        by_leader: dict[int, list[TopicPartition]] = {}
        for item in partitions:
            leader = self._connections.leader(item)
            if item not in missing and leader is not None:
                by_leader.setdefault(leader, []).append(item)
        found: dict[TopicPartition, TargetOffset] = {}
        for leader, items in by_leader.items():
            request = messages.list_ends(items, timeout_ms=self._timeout_ms)
            answer = self._connections.ask(leader, request, "reading the ends of partitions")
            for topic in answer.topics:
                for part in topic.partitions:
                    place = TopicPartition(TopicName(topic.name), part.partition_index)
                    if part.error_code == 0 and part.offset >= 0:
                        found[place] = TargetOffset(part.offset)
                    else:
                        log.info("no end", partition=str(place), problem=for_code(part.error_code).__name__)
                        self._connections.refresh()
        return found

    def close(self) -> None:
        """Leave; the next owner's start aborts what is open."""
        self._lanes = {}
        self._connections.close()
        self._loop.close()

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
        busy = self._requests.get(leader, 0) > 0
        if not chosen or (busy and size < WORTHWHILE_REQUEST_BYTES and not self._flushing):
            return False
        blocks: dict[TopicPartition, BatchBlock] = {}
        raws: dict[TopicPartition, bytearray] = {}
        for item in chosen:
            lane = self._lanes[item]
            block = blocks[item] = lane.waiting.popleft()
            lane.on_their_way += 1
            count = len(block.offsets)
            raws[item] = rewritten(
                block.raw, self._producer.producer_id, self._producer.epoch, self._producer.take(item, count)
            )
        request = messages.produce(
            raws,
            transactional_id=self._coordinator.transactional_id,
            timeout_ms=self._timeout_ms,
            newest=self._coordinator.newest,
        )
        self._requests[leader] = self._requests.get(leader, 0) + 1
        lanes = self._lanes

        def answered(answer: Any) -> None:
            self._requests[leader] -= 1
            if lanes is self._lanes:
                self._take_in(answer, blocks, raws)
                self._send()

        def failed(error: Exception) -> None:
            self._requests[leader] -= 1
            self._fail(
                ClusterUnavailableError(
                    f"{self._connections.cluster}: writing: {error} ({type(error).__name__})"
                )
            )

        self._connections.send(leader, request, answered, failed)
        return True

    def _must_wait(self, lane: _Lane) -> bool:
        """Under transaction version 2 a partition joins by its first batch, which may be told to wait a moment."""
        return self._coordinator.newest and lane.on_their_way > 0 and not lane.acknowledged

    def _take_in(
        self,
        answer: Any,
        blocks: Mapping[TopicPartition, BatchBlock],
        raws: Mapping[TopicPartition, bytearray],
    ) -> None:
        for topic in answer.responses:
            for part in topic.partition_responses:
                item = TopicPartition(TopicName(topic.name), part.index)
                lane, block = self._lanes[item], blocks[item]
                code = part.error_code
                if code == CONCURRENT_TRANSACTIONS and not lane.acknowledged:
                    self._loop.after(_REJOIN_MS, partial(self._again, item, blocks[item], raws[item]))
                    continue
                lane.on_their_way -= 1
                if code == 0:
                    lane.acknowledged.extend(range(part.base_offset, part.base_offset + len(block.offsets)))
                    self._unfinished -= 1
                elif code in _ADVICE and item != self._run_log:
                    errors = part.record_errors or ()
                    index = len(lane.acknowledged) + (errors[0].batch_index if errors else 0)
                    if self._refused is None:
                        self._refused = (item, index, code, part.error_message or "")
                else:
                    self._fail(self._translated(item, code, part.error_message))

    def _again(self, item: TopicPartition, block: BatchBlock, raw: bytearray) -> None:
        """Send a partition's first batch once more: the transaction before was not quite over."""
        lane = self._lanes.get(item)
        leader = self._connections.leader(item)
        if lane is None or leader is None:
            return
        request = messages.produce(
            {item: raw},
            transactional_id=self._coordinator.transactional_id,
            timeout_ms=self._timeout_ms,
            newest=self._coordinator.newest,
        )
        lanes = self._lanes

        def answered(answer: Any) -> None:
            if lanes is self._lanes:
                self._take_in(answer, {item: block}, {item: raw})
                self._send()

        def failed(error: Exception) -> None:
            self._fail(ClusterUnavailableError(f"{self._connections.cluster}: writing: {error}"))

        self._connections.send(leader, request, answered, failed)

    def _flush(self, doing: str) -> None:
        self._flushing = True
        self._join()
        self._send()
        deadline = Deadline.after_ms(self._timeout_ms)
        while self._unfinished and self._refused is None:
            self._raise()
            if deadline.passed:
                raise ClusterUnavailableError(
                    f"{self._connections.cluster}: {doing}: {self._unfinished} batches are not acknowledged in time"
                )
            self._loop.turn(_TURN_MS)
        self._raise()
        self._refuse()

    # --- what goes wrong ---------------------------------------------------------------------------------------

    def _fail(self, problem: ParallaxError) -> None:
        if self._problem is None or isinstance(problem, FencedError):
            self._problem = problem

    def _raise(self) -> None:
        if self._problem is not None:
            raise self._problem

    def _translated(self, item: TopicPartition, code: int, message: str | None) -> ParallaxError:
        text = f"{self._connections.cluster}: writing to {item}: {message or ''} {for_code(code).__name__} ({code})"
        if code in _FENCED:
            return FencedError(f"{text}: another owner has taken over {self._coordinator.transactional_id}")
        if code == _NOT_ALLOWED:
            return ConfigError(text)
        self._connections.refresh()
        return ClusterUnavailableError(text)

    def _refuse(self) -> None:
        if self._refused is None:
            return
        item, index, code, message = self._refused
        if code == _TOO_LARGE and item.topic not in self._limits:
            self._limits[item.topic] = self._limit_of(item.topic)
            raise ClusterUnavailableError(
                f"{self._connections.cluster}: {item}: a batch is above max.message.bytes "
                f"({self._limits[item.topic]}); the next attempt divides such batches"
            )
        reason = f"{self._connections.cluster}: {message} ({for_code(code).__name__}): {_ADVICE[code]}"
        raise RecordRefusedError(item, index, reason)

    def _limit_of(self, topic: TopicName) -> int:
        answer = self._connections.ask(
            self._connections.any_node,
            messages.describe_topic(str(topic), "max.message.bytes"),
            f"reading the settings of {topic}",
        )
        for result in answer.results:
            for setting in result.configs or ():
                if setting.name == "max.message.bytes":
                    return int(setting.value)
        raise ClusterUnavailableError(
            f"{self._connections.cluster}: the settings of {topic} could not be read"
        )
