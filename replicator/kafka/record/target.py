"""The record path's target: one transactional producer, which passes on all that a record has, one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog
from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
)
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from parallax.adapters.kafka.librdkafka import LATEST, Settings, list_offsets, translated
from parallax.domain.ids import UNKNOWN_EPOCH, ClusterName, TargetOffset, TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError, FencedError, InvariantError
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.ports import RecordBlock, RecordRefusedError, TargetEnd, TargetLog
from replicator.copying.session_end import TopicsRefusedError
from replicator.kafka.leader_epochs import LeaderEpochs, with_kept
from replicator.kafka.refusals import (
    ID_NOT_ALLOWED,
    NOT_ALLOWED,
    advice,
    id_not_allowed,
    is_for_good,
    not_writable,
)
from replicator.kafka.survey import FORGETFUL

log = structlog.get_logger(__name__)

_LARGEST_MESSAGE_BYTES = 100_000_000
LARGEST_BATCH_BYTES = 1_000_000
_SMALLEST_BATCH_BYTES = 1_000
_BATCH_OVERHEAD_BYTES = 200
_PURGED = frozenset(
    {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._STATE}  # noqa: SLF001 - librdkafka's local codes are named so
)
"""What librdkafka says of the records of a transaction that has failed, and of those that come after."""
_EARLIEST_MS = 1
"""librdkafka takes timestamp 0 for "now"; a record that bears it gets the nearest that can be said."""


def batch_limit(admin: AdminClient, topics: Collection[TopicName], *, timeout_s: float) -> int:
    """How large a batch of several records may be so that each of these topics takes it.

    Raises:
        ClusterUnavailableError: the cluster did not answer in time.
    """
    limit = LARGEST_BATCH_BYTES
    if not topics:
        return limit
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    for future in admin.describe_configs(resources, request_timeout=timeout_s).values():
        try:
            setting = future.result(timeout=timeout_s + 1)["max.message.bytes"].value
        except TimeoutError as error:
            raise ClusterUnavailableError(f"reading max.message.bytes: {error}") from error
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                continue
            raise ClusterUnavailableError(f"reading max.message.bytes: {error.args[0].str()}") from error
        limit = min(limit, max(_SMALLEST_BATCH_BYTES, int(setting) - _BATCH_OVERHEAD_BYTES))
    return limit


class KafkaTarget:
    """`TargetWriter` over one transactional producer, initialised on construction.

    Args:
        settings: address and security of the target.
        cluster: its name, for messages.
        run_log_topic: where entries go.
        shard: the partition of the run log.
        transactional_id: fences older owners.
        transaction_timeout_ms: after this the broker aborts a transaction by itself.
        largest_batch_bytes: no batch of several records is larger.
        leader_epochs: asks the partitions' leaders; closed with this.

    Raises:
        ClusterUnavailableError: the cluster did not answer in time.
        FencedError: another owner initialised the id at the same moment.
        ConfigError: the id is not allowed.
    """

    path = "record"
    opens_run_log = False
    calm_ms = 0.0

    def __init__(
        self,
        settings: Settings,
        cluster: ClusterName,
        *,
        run_log_topic: TopicName,
        shard: int,
        transactional_id: str,
        transaction_timeout_ms: int,
        largest_batch_bytes: int,
        leader_epochs: LeaderEpochs,
        timeout_ms: int = 10_000,
    ) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._run_log = (str(run_log_topic), shard)
        self._timeout_s = timeout_ms / 1_000
        self._leader_epochs = leader_epochs
        self._largest_batch_bytes = largest_batch_bytes
        self._commit_timeout_s = transaction_timeout_ms / 1_000
        self._acknowledged: dict[TopicPartition, list[int]] = {}
        self._callbacks: dict[TopicPartition, Callable[[KafkaError | None, Message], None]] = {}
        self._partitions: dict[TopicName, int] = {}
        self._failed: tuple[TopicPartition, KafkaError] | None = None
        self._nowhere: TopicPartition | None = None
        """A partition of which a record was acknowledged without an offset. librdkafka takes some refusals after a repetition for
        the proof that the record is there; in a partition that its broker has just begun it is not."""
        self._entry_offsets: list[int] = []
        self._admin = AdminClient({**settings, **FORGETFUL})
        self._producer = Producer(
            {
                **settings,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": transaction_timeout_ms,
                "message.timeout.ms": transaction_timeout_ms,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 5,
                "batch.num.messages": 50_000,
                "batch.size": largest_batch_bytes,
                "message.max.bytes": _LARGEST_MESSAGE_BYTES,
                "queue.buffering.max.messages": 500_000,
                "queue.buffering.max.kbytes": 262_144,
                "topic.metadata.propagation.max.ms": 5_000,
                "topic.metadata.refresh.interval.ms": 5_000,  # partitions may be added
            }
        )
        self._call(
            "initialising the transactional id", self._producer.init_transactions, self._commit_timeout_s * 3
        )

    def begin(self, opening: Entry | None = None) -> None:
        """Begin a transaction; without an opening."""
        if opening is not None:
            raise InvariantError(
                "the record path opens no run log: a partition costs librdkafka a request of its own"
            )
        self._acknowledged = {}
        self._callbacks = {}
        self._entry_offsets = []
        self._nowhere = None
        self._call("beginning a transaction", self._producer.begin_transaction)

    def produce(self, block: RecordBlock) -> None:
        """Send records."""
        item = block.topic_partition
        callback = self._callbacks.get(item)
        if callback is None:
            self._learn_of(item)
            callback = self._callbacks[item] = self._acknowledger(item)
        topic, partition, produce = str(item.topic), item.partition, self._producer.produce
        for record in block.records:
            produced = {
                "value": record.value(),
                "key": record.key(),
                "partition": partition,
                "on_delivery": callback,
                "timestamp": record.timestamp()[1] or _EARLIEST_MS,
            }
            headers = record.headers()
            if headers:
                produced["headers"] = headers
            try:
                produce(topic, **produced)
            except BufferError:
                self._produce_when_there_is_room(topic, produced)
            except KafkaException as error:
                raise self._translated(error, f"writing to {item}") from error

    def serve(self) -> None:
        """Take in acknowledgements."""
        self._call("writing", self._producer.poll, 0)

    def settle(self, logs: Mapping[TopicPartition, TargetLog]) -> Mapping[TopicPartition, Sequence[int]]:
        """Wait for all acknowledgements. Of the logs `commit` asks: librdkafka's connections are not ours to ask in order."""
        del logs
        remaining = self._call("waiting for acknowledgements", self._producer.flush, self._commit_timeout_s)
        if self._failed is not None:
            item, error = self._failed
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE and self._batches_too_large(item):
                raise ClusterUnavailableError(
                    f"{self._cluster}: batches have to become smaller: {error.str()}"
                )
            if is_for_good(error.code()):
                reason = f"{self._cluster}: {error.str()} ({error.name()}): {advice(error.code())}"
                raise RecordRefusedError(item, len(self._acknowledged.get(item, ())), reason)
            raise self._translated(KafkaException(error), f"writing to {item}")
        if remaining:
            raise ClusterUnavailableError(
                f"{self._cluster}: {remaining} records are not acknowledged in time"
            )
        if self._nowhere is not None:
            raise ClusterUnavailableError(
                f"{self._cluster}: {self._nowhere}: a record was acknowledged without an offset, and may not be there"
            )
        return self._acknowledged

    def commit(self, entries: Sequence[Entry], logs: Mapping[TopicPartition, TargetLog]) -> Sequence[int]:
        """See that the leaders still have the same logs, append the entries and commit."""
        self._leader_epochs.confirm(logs).wait()
        topic, shard = self._run_log
        try:
            for entry in entries:
                self._producer.produce(
                    topic, entry.SerializeToString(), partition=shard, on_delivery=self._entry_acknowledged
                )
        except (KafkaException, BufferError) as error:
            raise self._translated(error, "appending to the run log") from error
        self._call("committing", self._producer.commit_transaction, self._commit_timeout_s)
        if len(self._entry_offsets) != len(entries):
            raise ClusterUnavailableError(f"{self._cluster}: the run-log entry was not acknowledged")
        return self._entry_offsets

    def ends(
        self,
        partitions: Mapping[TopicPartition, int],
        *,
        patient: bool = False,  # noqa: ARG002 - librdkafka looks for leaders by itself
    ) -> Mapping[TopicPartition, TargetEnd]:
        """Where partitions end, asked now."""
        request = {KafkaPartition(item.topic, item.partition): LATEST for item in partitions}
        if not request:
            return {}
        futures = list_offsets(
            self._admin,
            request,
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=self._timeout_s,
        )
        ends: dict[TopicPartition, TargetEnd] = {}
        for item, future in futures.items():
            place = TopicPartition(TopicName(item.topic), item.partition)
            try:
                found = future.result(timeout=self._timeout_s + 1)
                epoch = UNKNOWN_EPOCH if found.leader_epoch is None else found.leader_epoch
                ends[place] = TargetEnd(TargetOffset(found.offset), epoch)
            except TimeoutError as error:
                raise translated(error, self._cluster, f"reading the end of {place}") from error
            except KafkaException as error:
                # librdkafka's own codes: the cluster was not reached. But if none of the partitions has a leader, their
                # topics being gone, it says that it found no entry.
                if error.args[0].code() < 0 and error.args[0].code() != KafkaError._NOENT:  # noqa: SLF001 - librdkafka's own code
                    raise translated(error, self._cluster, f"reading the end of {place}") from error
                log.info("partition_end_unknown", partition=str(place), problem=error.args[0].str())
        return with_kept(ends, partitions, self._leader_epochs)

    def undone(
        self, records: Mapping[TopicPartition, tuple[TargetLog, TargetOffset]]
    ) -> Mapping[TopicPartition, bool]:
        """Whether the transactions that wrote records were aborted, asked now."""
        return self._leader_epochs.undone(records)

    def close(self) -> None:
        """Leave; what is open is aborted if the cluster answers quickly."""
        # Not Producer.close(), which waits for the cluster (20 s were seen): whatever is open is aborted by the
        # next owner's start. Purging frees what would have been acknowledged.
        self._leader_epochs.close()
        with suppress(KafkaException):
            self._producer.purge(blocking=False)
            self._producer.poll(0)
        del self._producer

    def _learn_of(self, item: TopicPartition) -> None:
        """Let the producer look at the topic again: by older metadata it would refuse a partition added since."""
        if item.partition >= self._partitions.get(item.topic, 0):
            metadata = self._call(
                f"asking for the partitions of {item.topic}",
                self._producer.list_topics,
                str(item.topic),
                self._timeout_s,
            )
            self._partitions[item.topic] = len(metadata.topics[str(item.topic)].partitions)

    def _acknowledger(self, item: TopicPartition) -> Callable[[KafkaError | None, Message], None]:
        append = self._acknowledged.setdefault(item, []).append

        def acknowledged(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offset = message.offset()
                if offset is None:
                    self._nowhere = item
                else:
                    append(offset)
            elif self._failed is None:
                self._failed = (item, error)

        return acknowledged

    def _batches_too_large(self, item: TopicPartition) -> bool:
        """Whether several records together may have been refused that would pass one by one."""
        limit = batch_limit(self._admin, [item.topic], timeout_s=self._timeout_s)
        return limit < self._largest_batch_bytes

    def _entry_acknowledged(self, error: KafkaError | None, message: Message) -> None:
        offset = message.offset() if error is None else None
        if offset is not None:
            self._entry_offsets.append(offset)

    def _produce_when_there_is_room(self, topic: str, produced: Mapping[str, Any]) -> None:
        for _ in range(max(1, int(self._timeout_s * 10))):
            self._producer.poll(0.1)
            try:
                self._producer.produce(topic, **produced)
            except BufferError:
                continue
            return
        raise ClusterUnavailableError(f"{self._cluster}: takes no more records")

    def _call(self, doing: str, method: Callable[..., Any], *args: object) -> Any:
        try:
            return method(*args)
        except SystemError as error:
            raise self._translated(self._lost_error(), doing) from error
        except Exception as error:
            # A fatal error comes out of whatever call serves callbacks, as a bare KafkaError.
            if not isinstance(error, KafkaException | KafkaError):
                raise
            raise self._translated(error, doing) from error

    def _lost_error(self) -> BaseException:
        """The fatal error that confluent-kafka 2.16 at times loses on its way out of a callback: later calls repeat it."""
        try:
            self._producer.begin_transaction()  # within a transaction it never succeeds
        except KafkaException as error:
            return error
        return KafkaException(KafkaError(KafkaError._FAIL, "the library failed without saying why"))  # noqa: SLF001 - public in all but name

    def _translated(self, error: BaseException, doing: str) -> Exception:
        inner = error.args[0] if isinstance(error, KafkaException) else error
        problem = translated(
            error if isinstance(error, KafkaException) else KafkaException(inner), self._cluster, doing
        )
        if isinstance(problem, FencedError):
            return problem
        cause = self._cause(inner)
        if isinstance(cause, KafkaError) and cause.code() == ID_NOT_ALLOWED:
            return id_not_allowed(self._cluster, self._transactional_id, doing)
        if (refused := self._refused(cause)) is not None:
            return refused
        if isinstance(inner, KafkaError) and inner.fatal() and inner.code() == KafkaError._STATE:  # noqa: SLF001 - as above
            return FencedError(str(problem))
        return ClusterUnavailableError(str(problem))

    def _cause(self, error: object) -> object:
        """What a transaction met whose records librdkafka has purged."""
        if isinstance(error, KafkaError) and not error.fatal() and error.code() in _PURGED:
            return self._lost_error().args[0]
        return error

    def _refused(self, error: object) -> TopicsRefusedError | None:
        """Which topics may not be written to, if that is the matter; None: it is not, or no longer.

        Where partitions may not join a transaction, librdkafka names no topic.
        """
        if not isinstance(error, KafkaError) or error.code() != NOT_ALLOWED or not self._callbacks:
            return None
        names = sorted({str(item.topic) for item in self._callbacks})
        found = self._admin.describe_topics(
            TopicCollection(names), include_authorized_operations=True, request_timeout=self._timeout_s
        )
        reasons = {}
        for name, future in found.items():
            try:
                allowed = future.result(timeout=self._timeout_s + 1).authorized_operations or ()
            except (KafkaException, TimeoutError):
                continue  # the next survey tells of a topic that is not shown any more
            if AclOperation.WRITE not in allowed:
                reasons[TopicName(name)] = not_writable(self._cluster, TopicName(name))
        return TopicsRefusedError(reasons) if reasons else None
