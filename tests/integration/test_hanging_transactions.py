"""Transactions whose markers the cluster has lost: made by not telling the coordinator of their partitions.

The brokers' check that a partition belongs to a transaction is off meanwhile: with it, no client could do that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from confluent_kafka import IsolationLevel
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import OffsetSpec
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from parallax.adapters.kafka.librdkafka import list_offsets
from parallax.domain.ids import TopicName, TopicPartition, aggregate_cluster
from parallax.errors import ClusterUnavailableError
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.openings import Openings
from replicator.copying.ports import TargetLog
from replicator.kafka import connector
from replicator.kafka.batch.target import BatchTarget
from replicator.kafka.layout import ensure_layout, read_layout, snapshots
from replicator.kafka.run_log import run_log_topic
from replicator.kafka.transactions.coordinator import Coordinator, ProducerState
from replicator.kafka.transactions.hanging import connected
from replicator.kafka.transactions.hanging_changes import LAYOUTS, settle_changes
from replicator.lease import Lease, change_id
from tests.support import Stack, poll_until
from tests.worlds.deaf_producer import DeafProducer
from tests.worlds.shard_harness import PATIENCE_S, Harness, check_rows

PARTITIONS = 2
VERIFICATION = "transaction.partition.verification.enable"


@pytest.fixture
def harness(infrastructure: Stack, topic_name: str) -> Iterator[Harness]:
    made = Harness(infrastructure, topic_name)
    verify(made.target, "false")
    yield made
    verify(made.target, "true")


def verify(bootstrap_servers: str, value: str) -> None:
    """Turn the brokers' check on or off: a dynamic setting, which takes a moment."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    try:
        broker = ConfigResource(ConfigResourceType.BROKER, "1", {VERIFICATION: value})
        admin.alter_configs([broker])
        asked = ConfigResource(ConfigResourceType.BROKER, "1", [VERIFICATION])
        poll_until(
            # Until the broker has heard of its first dynamic setting, it may leave the key out.
            lambda: (
                admin.describe_configs([asked])["broker"]["1"].get(VERIFICATION, {}).get("value") == value
            ),
            30,
            VERIFICATION,
        )
    finally:
        admin.close()


class Loss:
    """Once, in the first transaction with records: which partitions get their marker, which one, and then the end.

    The owner begins no session afterwards: it would end what hangs, before or after a test looks.

    Args:
        told: whether the coordinator hears of a partition, so that it writes its marker.
        committed: which marker that is.
        entry_written: whether the owner lives long enough to append the entry.
        opened: the first one that an opening begins, instead. The coordinator does not hear of the run log.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        harness: Harness,
        told: Collection[int],
        *,
        committed: bool,
        entry_written: bool = True,
        opened: bool = False,
    ) -> None:
        self.done = False
        self._concerned = False
        self.openings = 0
        run_log = run_log_topic(harness.config(), harness.route.source)
        real_add, real_end = Coordinator.add, Coordinator.end

        def add(this: Coordinator, items: Collection[TopicPartition], producer: ProducerState) -> None:
            mine = [item for item in items if item.topic == harness.topic]
            is_opened = any(item.topic == run_log for item in items)
            self._concerned = self._concerned or (bool(mine) and is_opened is opened and not self.done)
            if self.done or not self._concerned:
                real_add(this, items, producer)
                return
            self.openings += is_opened and bool(mine)
            if heard := [item for item in mine if item.partition in told]:
                real_add(this, heard, producer)

        def end(this: Coordinator, producer: ProducerState, *, committed: bool) -> None:
            if self.done or not self._concerned:
                real_end(this, producer, committed=committed)
                return
            if told:
                real_end(this, producer, committed=decided)
            self._die()

        def commit(
            this: BatchTarget, entries: Sequence[Entry], logs: Mapping[TopicPartition, TargetLog]
        ) -> Sequence[int]:
            if self._concerned and not entry_written:
                if told:
                    real_end(this._coordinator, this._producer, committed=decided)
                self._die()
            return real_commit(this, entries, logs)

        self._let_no_session_begin_once_done(monkeypatch)
        monkeypatch.setattr(Openings, "wanted", lambda *_: opened)
        decided, real_commit = committed, BatchTarget.commit
        monkeypatch.setattr(BatchTarget, "commit", commit)
        monkeypatch.setattr(connector, "has_newest_transactions", lambda _connections: False)
        monkeypatch.setattr(Coordinator, "add", add)
        monkeypatch.setattr(Coordinator, "end", end)

    def _let_no_session_begin_once_done(self, monkeypatch: pytest.MonkeyPatch) -> None:
        settle = connector.KafkaConnector.settle

        def checked(this: connector.KafkaConnector, lease: Lease) -> None:
            if self.done:
                raise ClusterUnavailableError("the cluster is dead")
            settle(this, lease)

        monkeypatch.setattr(connector.KafkaConnector, "settle", checked)

    def _die(self) -> None:
        self.done, self._concerned = True, False
        raise ClusterUnavailableError("the cluster died here")


def everything(prefix: str) -> dict[int, list[str]]:
    return {number: [f"{prefix}{number}-{index}" for index in range(50)] for number in range(PARTITIONS)}


def stable_ends(harness: Harness, isolation: IsolationLevel) -> list[int]:
    request = {KafkaPartition(harness.topic, number): OffsetSpec.latest() for number in range(PARTITIONS)}  # type: ignore[no-untyped-call] # the library leaves it untyped
    answers = list_offsets(
        harness.target_admin, request, isolation_level=isolation, request_timeout=PATIENCE_S
    )
    return [future.result(timeout=30).offset for future in answers.values()]


@pytest.mark.parametrize(
    ("opened", "path"),
    [(False, "batch"), (False, "record"), (True, "batch")],
    ids=["", "to-record", "opened"],
)
@pytest.mark.parametrize(
    ("told", "committed", "entry_written"),
    [
        pytest.param([], True, True, id="no-marker"),
        pytest.param([0], True, True, id="one-committed"),
        pytest.param([0], False, True, id="one-aborted"),
        pytest.param([], False, False, id="no-entry"),
        pytest.param([0], False, False, id="no-entry-and-one-aborted"),
    ],
)
def test_the_next_session_ends_it_as_it_must_and_copies_each_record_once(
    harness: Harness,
    monkeypatch: pytest.MonkeyPatch,
    *,
    told: list[int],
    committed: bool,
    entry_written: bool,
    opened: bool,
    path: str,
) -> None:
    harness.create(PARTITIONS)
    first, second, third = everything("a"), everything("b"), everything("c")
    for number in range(PARTITIONS):
        harness.produce(first[number], number)
    harness.copy_now()
    if not opened:
        for number in range(PARTITIONS):
            harness.produce(second[number], number)
    with monkeypatch.context() as patched:
        loss = Loss(patched, harness, told, committed=committed, entry_written=entry_written, opened=opened)
        owner = harness.own(harness.config(commit_min_interval_ms=300, commit_max_interval_ms=600))
        if opened:  # the owner's first entry is a snapshot, and has no opening
            poll_until(lambda: owner.progress and owner.progress[-1].transactions, 30, "the first entry")
            for number in range(PARTITIONS):
                harness.produce(second[number], number)
        poll_until(lambda: loss.done, 30, "a transaction that hangs")
        owner.finish()
    assert bool(loss.openings) is opened
    harness.copy_path = path
    for number in range(PARTITIONS):
        harness.produce(third[number], number)
    harness.copy_now()
    assert harness.copied() == {number: first[number] + second[number] + third[number] for number in first}
    check_rows(harness)
    assert stable_ends(harness, IsolationLevel.READ_COMMITTED) == stable_ends(
        harness, IsolationLevel.READ_UNCOMMITTED
    )


@pytest.mark.parametrize("gone", [0, 1], ids=["where-it-has-its-marker", "where-it-hangs"])
def test_what_retention_has_taken_of_a_transaction_holds_up_no_session(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, *, gone: int
) -> None:
    """The partition that has its marker tells nothing any more, or the other one hangs from below its beginning on."""
    harness.create(PARTITIONS)
    first, second = everything("a"), everything("b")
    for number in range(PARTITIONS):
        harness.produce(first[number], number)
    with monkeypatch.context() as patched:
        loss = Loss(patched, harness, [0], committed=True)
        owner = harness.own(harness.config(commit_min_interval_ms=300, commit_max_interval_ms=600))
        poll_until(lambda: loss.done, 30, "a transaction that hangs")
        owner.finish()
    (taken,) = harness.target_admin.delete_records([KafkaPartition(harness.topic, gone, -1)]).values()
    assert taken.result(timeout=30).low_watermark >= len(first[gone])
    for number in range(PARTITIONS):
        harness.produce(second[number], number)
    harness.copy_now()
    expected = {number: first[number] + second[number] for number in first}
    expected[gone] = second[gone]
    assert harness.copied() == expected
    assert stable_ends(harness, IsolationLevel.READ_COMMITTED) == stable_ends(
        harness, IsolationLevel.READ_UNCOMMITTED
    )


def test_an_entry_that_retention_has_taken_from_the_run_log_hides_not_what_is_wrong_with_that(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hung for as long as nothing was copied; what has no entry is nobody's any more."""
    harness.create(PARTITIONS)
    for number, values in everything("a").items():
        harness.produce(values, number)
    with monkeypatch.context() as patched:
        loss = Loss(patched, harness, [], committed=True)
        owner = harness.own(harness.config(commit_min_interval_ms=300, commit_max_interval_ms=600))
        poll_until(lambda: loss.done, 30, "a transaction that hangs")
        owner.finish()
    run_log = run_log_topic(harness.config(), harness.route.source)
    (taken,) = harness.target_admin.delete_records([KafkaPartition(run_log, 0, -1)]).values()
    taken.result(timeout=30)
    owner = harness.own()
    poll_until(
        lambda: bool(owner.progress) and owner.progress[-1].waiting_for.startswith("RUN_LOG_HEADLESS: "),
        30,
        "the refusal",
    )
    owner.finish()
    assert stable_ends(harness, IsolationLevel.READ_COMMITTED) == stable_ends(
        harness, IsolationLevel.READ_UNCOMMITTED
    )
    assert harness.copied() == {}


@pytest.mark.parametrize("settled", [False, True], ids=["announced", "settled"])
def test_a_change_of_the_layout_that_hangs_holds_up_no_route(harness: Harness, *, settled: bool) -> None:
    """Committed if its snapshots were; what was announced alone is taken back."""
    config, cluster = harness.config(), aggregate_cluster(harness.route.target)
    before = ensure_layout(config, harness.route, 1)
    following = replace(before, layout=2, settled=settled, previous_shards=1)
    with connected(config, cluster, "test") as (loop, connections):
        producer = DeafProducer(loop, connections, change_id(harness.route))
        run_log = TopicPartition(TopicName(before.run_log), 0)
        assert not connections.learn_leaders([LAYOUTS, run_log], timeout_ms=10_000)
        if settled:
            (snapshot,) = snapshots(config, harness.route, following, {})
            producer.write(run_log, (None, snapshot[3]), told=True)
        producer.write(LAYOUTS, (str(harness.route).encode(), following.encoded()), told=False)
        if settled:
            producer.end(committed=True)
    with pytest.raises(ClusterUnavailableError, match="a transaction is still open"):
        read_layout(config, harness.route, timeout_ms=1_000)
    assert ensure_layout(config, harness.route, 1).layout == (2 if settled else 1)
    assert read_layout(config, harness.route) == (following if settled else before)


def test_a_change_of_the_layout_that_goes_on_is_left_alone(harness: Harness) -> None:
    config, cluster = harness.config(), aggregate_cluster(harness.route.target)
    before = ensure_layout(config, harness.route, 1)
    record = (str(harness.route).encode(), replace(before, topics="others").encoded())
    with connected(config, cluster, "test") as (loop, connections):
        producer = DeafProducer(loop, connections, change_id(harness.route))
        assert not connections.learn_leaders([LAYOUTS], timeout_ms=10_000)
        producer.write(LAYOUTS, record, told=True)
        settle_changes(config, cluster)
        producer.end(committed=True)
    assert read_layout(config, harness.route) == replace(before, topics="others")
