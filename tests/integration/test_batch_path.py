"""Both copy paths on every kind of batch that there is, with owners that die, move between paths, or meet damage."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.producer import InitProducerIdRequest

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.wire import Connections
from parallax.config.config import Cluster
from parallax.domain.ids import ClusterName
from parallax.errors import FencedError
from parallax.v1.runlog_pb2 import Entry
from replicator.format.batch import HEADER_BYTES
from replicator.format.compression import Compression
from replicator.kafka.connector import connector_for
from replicator.kafka.transactions.coordinator import (
    CONCURRENT_TRANSACTIONS,
    Coordinator,
    has_newest_transactions,
)
from replicator.lease import Lease, transactional_id
from tests.support import Stack, poll_until
from tests.worlds.every_kind import CODECS, batches, produce_compacted, produce_everything
from tests.worlds.shard_harness import (
    PATIENCE_S,
    Harness,
    check_rows,
    content,
    ends,
    hold_in_process,
    same_on_both_sides,
    until,
)

PATHS = ("batch", "record")
KEPT = {"retention.ms": "-1"}
"""The records' timestamps lie years back."""
_LAST_EPOCHS = 32_750
"""Kafka gives a producer a new id some 16 epochs after this one."""
_IN_FLIGHT = 32


@pytest.fixture(params=PATHS)
def harness(infrastructure: Stack, topic_name: str, request: pytest.FixtureRequest) -> Harness:
    return Harness(infrastructure, topic_name, request.param)


def values(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def test_every_kind_of_batch_arrives_as_it_was_read(harness: Harness) -> None:
    harness.create(**KEPT)
    compacted = f"{harness.topic}-compacted"
    open_one = produce_everything(harness)
    produce_compacted(harness, compacted)
    kinds = batches(harness, harness.topic)
    assert {batch.compression for batch in kinds if not batch.is_control} == set(Compression)
    assert len(CODECS) == len(Compression)
    assert {batch.is_log_append_time for batch in kinds} == {True, False}
    assert {(batch.is_transactional, batch.is_control) for batch in kinds} == {
        (False, False),
        (True, False),
        (True, True),
    }
    assert {batch.producer_id >= 0 for batch in kinds} == {True, False}
    assert {1, 40} <= {batch.count for batch in kinds}
    assert max(len(batch.raw) for batch in kinds) > 1_000_000

    harness.copy_now()
    before = same_on_both_sides(harness)
    open_one.commit_transaction()
    harness.wait_for_markers()
    harness.copy_now()
    assert same_on_both_sides(harness) == before + 20
    assert same_on_both_sides(harness, compacted) > 0


@pytest.mark.parametrize("successor", PATHS)
def test_after_kill_9_in_mid_copy_the_next_owner_goes_on_whatever_its_path(
    harness: Harness, successor: str
) -> None:
    harness.create(2, **KEPT)
    produce_everything(harness).abort_transaction()
    noise = random.Random(4)
    for partition in (0, 1):
        harness.produce((noise.randbytes(500).hex() for _ in range(10_000)), partition)
    config = harness.config(commit_max_bytes=65_536, fetch_ahead_max_bytes=1_048_576)
    owner = multiprocessing.get_context("spawn").Process(
        target=hold_in_process, args=(config.model_dump_json(), harness.lease(config)), daemon=True
    )
    owner.start()
    half = sum(ends(harness.source, harness.topic)) // 2
    poll_until(
        lambda: sum(ends(harness.target, harness.topic)) > half // 4, PATIENCE_S, "a part of it is copied"
    )
    owner.kill()
    owner.join(PATIENCE_S)
    copied = sum(map(len, content(harness.target, harness.topic).values()))
    assert 0 < copied < 2 * half * 0.9, "it was not killed in mid-copy"
    harness.copy_path = successor
    harness.copy_now()
    same_on_both_sides(harness)


def test_a_successor_on_the_other_path_fences_its_predecessor(harness: Harness) -> None:
    harness.create()
    older = harness.own()
    harness.produce(values("a", 10))
    harness.wait_for({0: values("a", 10)})
    harness.copy_path = next(path for path in PATHS if path != harness.copy_path)
    newer = harness.own()
    harness.produce(values("b", 10))
    harness.wait_for({0: values("a", 10) + values("b", 10)})
    until(lambda: older.failure is not None, "the older owner leaves")
    with pytest.raises(FencedError):
        older.finish()
    newer.finish()
    assert check_rows(harness) == 20


def test_an_owner_whose_successor_comes_in_between_record_and_commit_is_fenced(
    infrastructure: Stack, topic_name: str
) -> None:
    harness = Harness(infrastructure, topic_name)
    harness.create()
    lease = harness.lease(harness.config())
    with closing(connector_for(harness.config()).target(lease)) as older:
        older.begin(Entry(layout=1, committed_at_ms=1_000))
        older.settle({})
        with coordinator(harness, lease) as newer:
            assert newer.is_open()
            # Not yet: the older owner's transaction has to be aborted first.
            assert begin_anew(newer, 1) == {CONCURRENT_TRANSACTIONS}
            with pytest.raises(FencedError):
                older.commit([], {})


def test_a_damaged_batch_stops_its_partition_before_it_and_no_other(
    harness: Harness, infrastructure: Stack
) -> None:
    harness.create(2)
    harness.produce(values("good", 20))
    damaged_at = len(values("good", 20))
    harness.produce(values("bad", 20))
    harness.produce(values("behind", 20))
    harness.produce(values("other", 20), partition=1)
    log = data_directory(infrastructure, "regional-a") / f"{harness.topic}-0" / f"{0:020}.log"
    found = batches(harness, harness.topic)
    begin = sum(len(batch.raw) for batch in found if batch.base_offset < damaged_at)
    with log.open("r+b") as file:
        file.seek(begin + HEADER_BYTES + 8)
        byte = file.read(1)[0]
        file.seek(begin + HEADER_BYTES + 8)
        file.write(bytes([byte ^ 0x10]))
    result = harness.copy_now()
    assert harness.copied() == {0: values("good", 20), 1: values("other", 20)}
    [(where, reason)] = result.stopped.items()
    assert where == f"{harness.topic}-0"
    assert (
        f"regional-{harness.route.source}: {harness.topic}-0: the batch at offset {damaged_at} is damaged"
        in reason
    )
    harness.produce(values("more", 5), partition=1)
    harness.copy_now()
    assert harness.copied() == {0: values("good", 20), 1: values("other", 20) + values("more", 5)}


def data_directory(stack: Stack, broker: str) -> Path:
    [process] = [found for found in stack.status()["processes"] if found["name"] == broker]
    return Path(process["log"]).parents[1] / "data" / broker / "storage"


def test_copying_goes_on_when_the_producers_epochs_run_out(infrastructure: Stack, topic_name: str) -> None:
    harness = Harness(infrastructure, topic_name)
    harness.create(2)
    lease = harness.lease(harness.config())
    before = use_up_epochs(harness, lease)
    noise = random.Random(5)
    for partition in (0, 1):
        harness.produce((noise.randbytes(500).hex() for _ in range(12_000)), partition)
    result = harness.copy_now(harness.config(commit_max_bytes=65_536, fetch_ahead_max_bytes=1_048_576))
    assert result.transactions > 2**15 - _LAST_EPOCHS
    assert result.aborts == 0
    assert same_on_both_sides(harness) == 24_000
    with coordinator(harness, lease) as asked:
        assert asked.initialise().producer_id != before


@contextmanager
def coordinator(harness: Harness, lease: Lease) -> Iterator[Coordinator]:
    loop = EventLoop()
    connections = Connections(
        loop,
        ClusterName("aggregate-b"),
        Cluster(bootstrap_servers=harness.target),
        client_id="epochs",
        largest_answer_bytes=2**20,
    )
    with closing(loop), closing(connections):
        connections.connect()
        newest = has_newest_transactions(connections)
        own_id = transactional_id(lease.route, lease.layout, lease.shard, "batch")
        yield Coordinator(loop, connections, own_id, 60_000, newest=newest)


def use_up_epochs(harness: Harness, lease: Lease) -> int:
    """Begin anew until few epochs are left; the producer id that they belong to."""
    with coordinator(harness, lease) as asked:
        assert asked.newest, "the cluster raises epochs with every transaction"
        first = asked.initialise()
        assert begin_anew(asked, _LAST_EPOCHS - first.epoch - 1) == {0}
        last = asked.initialise()
        assert (last.producer_id, last.epoch) == (first.producer_id, _LAST_EPOCHS)
        return first.producer_id


def begin_anew(asked: Coordinator, times: int) -> set[int]:
    """Initialise the id so many times, with a number of requests on their way together; the errors answered."""
    answers: list[Any] = []
    failures: list[Exception] = []
    for sent in range(1, times + 1):
        request = InitProducerIdRequest(
            transactional_id=asked.transactional_id,
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
            max_version=5,
        )
        asked._connections.send(asked._node, request, answers.append, failures.append)
        while not failures and len(answers) < (sent if sent == times else sent - _IN_FLIGHT):
            asked._loop.turn(PATIENCE_S * 1_000)
    assert not failures
    return {answer.error_code for answer in answers}
