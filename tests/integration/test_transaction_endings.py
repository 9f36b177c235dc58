"""What a broker makes of two transactions of a producer where the marker between them is lost, and how it is found out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.wire import Connections
from parallax.domain.ids import TargetOffset, TopicId, TopicName, TopicPartition, aggregate_cluster
from replicator.kafka.leader_epochs import LeaderEpochs
from replicator.kafka.transactions.endings import Found, Sought, TransactionEnd
from tests.integration.test_hanging_transactions import verify
from tests.support import Stack, poll_until, unique_name
from tests.worlds.deaf_producer import DeafProducer
from tests.worlds.shard_harness import Harness, create

_TIMEOUT_MS = 10_000
RECORD = (None, b"x")


@pytest.fixture
def harness(infrastructure: Stack, topic_name: str) -> Iterator[Harness]:
    made = Harness(infrastructure, topic_name)
    verify(made.target, "false")
    yield made
    verify(made.target, "true")


@pytest.mark.parametrize("newest", [False, True], ids=["version-1", "version-2"])
@pytest.mark.parametrize("committed", [False, True], ids=["then-aborted", "then-committed"])
def test_what_follows_a_transaction_without_a_marker_joins_it_and_decides_for_both(
    harness: Harness, *, newest: bool, committed: bool
) -> None:
    topic_id = TopicId(create(harness.target_admin, harness.topic, 2, {}, 1))
    hangs, other = (TopicPartition(TopicName(harness.topic), number) for number in range(2))
    cluster = aggregate_cluster(harness.route.target)
    with closing(EventLoop()) as loop:
        connections = Connections(
            loop, cluster, harness.config().cluster(cluster), client_id="t", largest_answer_bytes=2**24
        )
        connections.connect()
        leaders = LeaderEpochs(loop, connections, timeout_ms=_TIMEOUT_MS)
        assert not connections.learn_leaders([hangs, other], timeout_ms=_TIMEOUT_MS)

        def ending(offset: int) -> Found:
            return leaders.endings_of({hangs: Sought(topic_id, TargetOffset(offset))})[hangs]

        writer = DeafProducer(loop, connections, unique_name("w"), newest=newest)
        epoch = writer.producer.epoch
        first = writer.write(hangs, *[RECORD] * 3, told=False)
        writer.write(other, RECORD, told=True)
        writer.end(committed=not committed)
        assert (writer.producer.epoch > epoch) == newest, "each transaction has an epoch of its own"
        assert ending(first + 2) == Found(TransactionEnd.OPEN, TargetOffset(first + 3))
        verify(harness.target, "true")
        writer.write(hangs, RECORD, RECORD, told=True)
        assert ending(first + 2) == Found(TransactionEnd.OPEN, TargetOffset(first + 5))
        writer.end(committed=committed)
        expected = TransactionEnd.COMMITTED if committed else TransactionEnd.ABORTED
        poll_until(lambda: ending(first + 2).ending is not TransactionEnd.OPEN, 30, "a marker")
        assert ending(first + 2) == Found(expected, TargetOffset(first + 5))
        assert harness.copied().get(0, []) == (["x"] * 5 if committed else [])
        connections.close()
