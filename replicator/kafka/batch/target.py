"""The batch path's target: a transactional producer of whole batches."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import structlog
from kafka.errors import for_code
from kafka.protocol.admin import DescribeConfigsRequest

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.logs import LATEST, list_offsets_request
from parallax.adapters.kafka.wire import Connections
from parallax.domain.ids import TargetOffset, TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.ports import RecordBlock, RecordRefusedError, TargetEnd, TargetLog
from replicator.format.batch import Record, make_batch, record_body
from replicator.format.block import BatchBlock
from replicator.format.compression import Compression
from replicator.kafka.batch.sender import Sender
from replicator.kafka.leader_epochs import Confirmation, LeaderEpochs, with_kept
from replicator.kafka.refusals import TOO_LARGE
from replicator.kafka.transactions.coordinator import Coordinator, ProducerState

_LEADERS_WITHIN_MS = 1_000
"""A topic that was just created has leaders by then."""
_TOPIC = 2

log = structlog.get_logger(__name__)


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
    opens_run_log = True

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
        self._leader_epochs = LeaderEpochs(loop, connections, timeout_ms=timeout_ms)
        self._sender = Sender(loop, connections, coordinator, producer, timeout_ms=timeout_ms)
        self._asked: tuple[Mapping[TopicPartition, TargetLog], Confirmation] | None = None
        connections.watch([run_log.topic])

    @property
    def calm_ms(self) -> float:
        """As long as the sender keeps quiet."""
        return self._sender.calm_ms

    def begin(self, opening: Entry | None = None) -> None:
        """Begin a transaction: nothing is sent for that. An opening goes with the first batches, in one request where it can.

        So the run log's partition joins the transaction together with theirs. Under transaction version 2 that is a round trip
        between brokers, for which the entry would wait otherwise.
        """
        self._sender.raise_problem()
        self._sender.begin()
        self._asked = None
        if opening is not None:
            self._append(opening)

    def produce(self, block: RecordBlock) -> None:
        """Take a batch; `serve` and `settle` send it."""
        self._sender.raise_problem()
        if not isinstance(block, BatchBlock):
            raise TypeError("the batch path copies batches only")
        limit = self._limits.get(block.topic_partition.topic)
        for part in (block,) if limit is None else block.within(limit):
            self._sender.add(part)

    def serve(self) -> None:
        """Send what is due."""
        self._sender.step()
        self._loop.turn(0)
        self._sender.raise_problem()

    def settle(self, logs: Mapping[TopicPartition, TargetLog]) -> Mapping[TopicPartition, Sequence[int]]:
        """Wait until everything is acknowledged.

        The question about the logs goes behind the batches in the same connections, which brokers serve in order: so its answers
        hold for when they were acknowledged, and come hardly later.
        """
        asked_at = -1

        def ask() -> None:
            nonlocal asked_at
            asked_at, self._asked = self._sender.requests_sent, (logs, self._leader_epochs.confirm(logs))

        self._sender.flush("waiting for acknowledgements", ask)
        if asked_at != self._sender.requests_sent:  # a batch had to be sent again, behind the question
            self._asked = None
        self._refuse()
        return self._sender.acknowledged

    def commit(self, entries: Sequence[Entry], logs: Mapping[TopicPartition, TargetLog]) -> Sequence[int]:
        """See that the leaders still have the same logs, append the entries, each in a batch of its own, and commit."""
        # First: where the run log has lost the marker of the transaction before, an entry would join that one there.
        for confirmation in self._confirmations(logs):
            confirmation.wait()
        for entry in entries:
            self._append(entry)
        self._sender.flush("appending to the run log")
        self._refuse()
        offsets = self._sender.acknowledged[self._run_log]
        begun = time.monotonic()
        self._coordinator.end(self._producer, committed=True)
        if self._coordinator.newest:
            self._sender.committed((time.monotonic() - begun) * 1_000)
        return offsets

    def ends(
        self, partitions: Mapping[TopicPartition, int], *, patient: bool = False
    ) -> Mapping[TopicPartition, TargetEnd]:
        """Where partitions end, asked now."""
        self._connections.learn_leaders(partitions.keys(), timeout_ms=_LEADERS_WITHIN_MS if patient else 0)
        ends: dict[TopicPartition, TargetEnd] = {}
        for leader, items in self._connections.by_leader(partitions).items():
            request = list_offsets_request(items, LATEST, timeout_ms=self._timeout_ms)
            answer = self._connections.ask(leader, request, "reading the ends of partitions")
            for topic in answer.topics:
                for part in topic.partitions:
                    place = TopicPartition(TopicName(topic.name), part.partition_index)
                    if part.error_code == 0 and part.offset >= 0:
                        ends[place] = TargetEnd(TargetOffset(part.offset), part.leader_epoch)
                    else:
                        log.info(
                            "partition_end_unknown",
                            partition=str(place),
                            problem=for_code(part.error_code).__name__,
                        )
                        self._connections.refresh()
        return with_kept(ends, partitions, self._leader_epochs)

    def undone(
        self, records: Mapping[TopicPartition, tuple[TargetLog, TargetOffset]]
    ) -> Mapping[TopicPartition, bool]:
        """Whether the transactions that wrote records were aborted, asked now."""
        return self._leader_epochs.undone(records)

    def close(self) -> None:
        """Leave; the next owner's start aborts what is open."""
        self._connections.close()
        self._loop.close()

    def _confirmations(self, logs: Mapping[TopicPartition, TargetLog]) -> Sequence[Confirmation]:
        """That leaders have these logs: what `settle` has asked, and what it has not."""
        known, asked = self._asked or ({}, None)
        self._asked = None
        rest = {item: log for item, log in logs.items() if known.get(item) != log}
        found = [] if asked is None else [asked]
        return [*found, self._leader_epochs.confirm(rest)] if rest else found

    def _append(self, entry: Entry) -> None:
        record = Record(0, max(0, entry.committed_at_ms), record_body(None, entry.SerializeToString()))
        # Partitions of a topic repeat its name and ids: four of them halve the entry, of one it would grow.
        compression = Compression.LZ4 if len(entry.partitions) > 1 else Compression.NONE
        raw = memoryview(make_batch([record], compression))
        self.produce(BatchBlock(self._run_log, -1, range(1), (raw,), len(raw)))

    def _refuse(self) -> None:
        refused = self._sender.refused
        if refused is None:
            return
        item, cluster = refused.topic_partition, self._connections.cluster
        if item == self._run_log:
            raise ClusterUnavailableError(f"{cluster}: appending to the run log {item}: {refused.reason}")
        if refused.code == TOO_LARGE:
            # Asked each time: it may have been lowered once more.
            limit, known = self._limit_of(item.topic), self._limits.get(item.topic)
            if known is None or limit < known:
                self._limits[item.topic] = limit
                raise ClusterUnavailableError(
                    f"{cluster}: {item}: a batch is above max.message.bytes "
                    f"({limit}); the next attempt divides such batches"
                )
        raise RecordRefusedError(item, refused.index, f"{cluster}: {refused.reason}")

    def _limit_of(self, topic: TopicName) -> int:
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_TOPIC, resource_name=str(topic), configuration_keys=["max.message.bytes"]
        )
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=False, include_documentation=False
        )
        doing = f"reading the settings of {topic}"
        answer = self._connections.ask(self._connections.any_node, request, doing)
        for result in answer.results:
            for setting in result.configs or ():
                if setting.name == "max.message.bytes":
                    return int(setting.value)
        raise ClusterUnavailableError(
            f"{self._connections.cluster}: the settings of {topic} could not be read"
        )
