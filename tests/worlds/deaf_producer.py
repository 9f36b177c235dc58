"""Makes transactions that lack a marker, on real brokers."""

from __future__ import annotations

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.wire import Connections
from parallax.domain.ids import TopicPartition
from replicator.format.batch import Record, make_batch, record_body, rewrite_batch
from replicator.format.compression import Compression
from replicator.kafka.batch.exchange import Produce
from replicator.kafka.transactions.coordinator import Coordinator, ProducerState
from tests.support import poll_until

_TIMEOUT_MS = 10_000


class DeafProducer:
    """A producer by hand, whose coordinator writes no marker where it was not told that it has written.

    The brokers' check that a partition belongs to a transaction has to be off for that.
    """

    def __init__(
        self, loop: EventLoop, connections: Connections, transactional_id: str, *, newest: bool = False
    ) -> None:
        self._connections, self._newest = connections, newest
        self._coordinator = Coordinator(loop, connections, transactional_id, 60_000, newest=newest)
        self.producer: ProducerState = self._coordinator.initialise()

    def write(self, item: TopicPartition, *records: tuple[bytes | None, bytes], told: bool) -> int:
        """Write records of these keys and values in a batch; the offset of the first."""
        newest = self._newest and told
        if told and not newest:
            self._coordinator.add([item], self.producer)
        raw = make_batch([Record(0, 1_000, record_body(*record)) for record in records], Compression.NONE)
        sequence = self.producer.take(item, len(records))
        pieces = rewrite_batch(raw, self.producer.producer_id, self.producer.epoch, sequence)
        offsets: list[int] = []

        def acknowledged() -> bool:
            leader = self._connections.leader(item)
            request = Produce(
                {item: pieces},
                transactional_id=self._coordinator.transactional_id,
                timeout_ms=_TIMEOUT_MS,
                newest=newest,
            )
            part = self._connections.ask(leader, request, "writing").responses[0].partition_responses[0]
            assert part.error_code in {0, 51}, part  # the transaction before is not quite over
            offsets.append(part.base_offset)
            return bool(part.error_code == 0)

        poll_until(acknowledged, 30, "an acknowledgement")
        return offsets[-1]

    def end(self, *, committed: bool) -> None:
        """End the transaction, with a marker on what the coordinator was told of."""
        self._coordinator.end(self.producer, committed=committed)
