"""Changes of a layout, on Kafka in memory: who is paused between two steps, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import NoReturn

import pytest
from confluent_kafka import KafkaError, KafkaException

from parallax.config.config import Config
from parallax.config.topics import Topics
from parallax.domain.ids import (
    Lineage,
    Route,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
    aggregate_cluster,
)
from parallax.domain.runs import Run
from parallax.errors import ClusterUnavailableError, ConfigError, FencedError, RefusedError
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.recovery import RunLogError, RunLogProblem
from replicator.copying.state import PartitionChange, PartitionState, encode, fold, pieces_of
from replicator.kafka import layout as layouts
from replicator.kafka.layout import ensure_layout, read_layout, shard_in
from replicator.kafka.layout_record import LAYOUTS_TOPIC, LayoutRecord
from replicator.kafka.run_log import load_states
from replicator.lease import Lease, shard_of, transactional_id
from tests.worlds.sim.doors import Faults
from tests.worlds.sim.kafka import ABORTED, COMMITTED, Log
from tests.worlds.sim.layouts import SimAdmin
from tests.worlds.sim.run_logs import SimRunLog
from tests.worlds.sim.world import ROUTE, World

RUNS = "parallax.runs.a"
ITEM = TopicPartition(TopicName("trips"), 0)


class LayoutKafka:
    """A route's target cluster in memory, on which nobody acts but the test."""

    def __init__(self, world: World) -> None:
        self.config, self.cluster, self._schedule = (
            world.config,
            world.aggregates[0].cluster,
            world.schedule,
        )
        self.while_watched: Callable[[], object] = lambda: None
        """Done while somebody looks whether the run log grows."""

    @property
    def logs(self) -> list[Log]:
        return self.cluster.topics[RUNS].logs

    def copy(self, layout: LayoutRecord, source_start: int, source_end: int) -> None:
        """What an owner of the partition's shard does: fence, then commit."""
        shard = shard_of(ITEM, layout.shards)
        name = transactional_id(ROUTE, layout.layout, shard, "batch")
        epoch = self.cluster.initialise(name)
        count = source_end - source_start
        row = Run(SourceOffset(source_start), TargetOffset(source_start), count, SourceOffset(source_start))
        entry = encode(
            run_log_id=layout.run_log_id,
            layout=layout.layout,
            shard=shard,
            path="batch",
            changes=[PartitionChange(state(source_end), (row,))],
            everything={},
            committed_at_ms=1,
            run_log_leader_epoch=self.logs[shard].epoch,
        )
        transaction = self.cluster.transaction(name, epoch)
        self.logs[shard].append(entry, transaction)
        transaction.decide(COMMITTED)

    def states(self, layout: LayoutRecord) -> dict[TopicPartition, PartitionState]:
        found: dict[TopicPartition, PartitionState] = {}
        for shard in range(layout.shards):
            lease = Lease(ROUTE, shard, layout.shards, layout.layout, 0, 0)
            reader = SimRunLog(self._schedule, self.cluster, RUNS, shard)
            found |= load_states(reader, shard_in(layout, lease), unexplained=lambda _states: {})[0]
        return found


def state(source_next: int) -> PartitionState:
    end, zero = SourceOffset(source_next), SourceOffset(0)
    lineage = Lineage(TopicId("s"), TopicId("d"))
    return PartitionState(ITEM, lineage, 0, zero, TargetOffset(0), end, end, TargetOffset(source_next), 0)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[LayoutKafka]:
    world = World(0, Faults(0.0), only=())
    with world.in_memory():
        kafka = LayoutKafka(world)
        monkeypatch.setattr(layouts.SystemClock, "sleep_ms", lambda *_: kafka.while_watched())
        yield kafka


def test_a_new_route_begins_with_a_snapshot_of_every_shard(kafka: LayoutKafka) -> None:
    made = ensure_layout(kafka.config, ROUTE, 3)
    assert (made.layout, made.shards, made.settled) == (1, 3, True)
    assert made.run_log_id == kafka.cluster.topics[RUNS].topic_id
    assert kafka.states(made) == {}
    assert ensure_layout(kafka.config, ROUTE, 3) == made, "a second start changes nothing"


def test_states_move_into_the_new_layout(kafka: LayoutKafka) -> None:
    kafka.copy(ensure_layout(kafka.config, ROUTE, 1), 0, 100)
    moved = ensure_layout(kafka.config, ROUTE, 4)
    assert (moved.layout, moved.shards, moved.previous_shards) == (2, 4, 1)
    assert kafka.states(moved) == {ITEM: state(100)}


def test_large_snapshots_of_a_new_layout_are_written_in_records_that_a_broker_takes(
    kafka: LayoutKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "pieces_of", partial(pieces_of, largest_bytes=1_000))
    made = ensure_layout(kafka.config, ROUTE, 2)
    items = [TopicPartition(TopicName("trips"), number) for number in range(200)]
    states = {item: replace(state(item.partition), topic_partition=item) for item in items}
    records = list(layouts.snapshots(kafka.config, ROUTE, made, states))
    found: dict[TopicPartition, PartitionState] = {}
    for shard in range(2):
        pieces = [Entry.FromString(value) for _, of, _, value in records if of == shard]
        assert len(pieces) > 2
        assert max(piece.ByteSize() for piece in pieces) < 1_100
        found |= fold({}, pieces)
    assert found == states


@pytest.mark.parametrize("paused_after", ["announced", "fenced", "loaded"])
def test_who_was_paused_while_another_changed_the_layout_writes_nothing_more(
    kafka: LayoutKafka, paused_after: str
) -> None:
    kafka.copy(ensure_layout(kafka.config, ROUTE, 1), 0, 100)

    def while_it_is_paused(step: str) -> None:
        if step == paused_after:
            kafka.copy(ensure_layout(kafka.config, ROUTE, 2), 100, 200)

    with pytest.raises(FencedError):
        ensure_layout(kafka.config, ROUTE, 2, reached=while_it_is_paused)
    settled = ensure_layout(kafka.config, ROUTE, 2)
    assert kafka.states(settled) == {ITEM: state(200)}


def test_without_the_layouts_own_transactional_id_the_paused_process_takes_positions_back(
    kafka: LayoutKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: snapshots under the id of their shard, which nobody has fenced since."""
    commit = layouts.Writer.commit

    def each_by_itself(writer: layouts.Writer, records: Iterable[layouts.Record]) -> None:
        for record in records:
            if record[0] == RUNS:
                settings = {
                    "bootstrap.servers": kafka.config.cluster(
                        aggregate_cluster(ROUTE.target)
                    ).bootstrap_servers
                }
                own = layouts.Writer(settings, ROUTE, f"snapshot of {record[1]}")
                with own:
                    commit(own, [record])
            else:
                commit(writer, [record])

    kafka.copy(ensure_layout(kafka.config, ROUTE, 1), 0, 100)
    monkeypatch.setattr(layouts.Writer, "commit", each_by_itself)

    def while_it_is_paused(step: str) -> None:
        if step == "loaded":
            kafka.copy(ensure_layout(kafka.config, ROUTE, 2), 100, 200)

    with pytest.raises(FencedError):
        ensure_layout(kafka.config, ROUTE, 2, reached=while_it_is_paused)
    with pytest.raises(RunLogError, match="back to source offset 100"):  # and then it is seen at least
        kafka.states(ensure_layout(kafka.config, ROUTE, 2))


def test_a_run_log_that_is_gone_or_another_is_not_made_anew(kafka: LayoutKafka) -> None:
    made = ensure_layout(kafka.config, ROUTE, 1)
    kafka.copy(made, 0, 100)
    del kafka.cluster.topics[RUNS]
    assert ensure_layout(kafka.config, ROUTE, 1) == made, "the lease refuses it, and other routes go on"
    assert RUNS not in kafka.cluster.topics
    with pytest.raises(
        RunLogError, match=r"^RUN_LOG_MISSING: aggregate-b: a->b: the run log parallax.runs.a"
    ):
        ensure_layout(kafka.config, ROUTE, 2)
    kafka.cluster.create(RUNS)
    with pytest.raises(RunLogError, match=r"^RUN_LOG_REPLACED: .*was deleted and created anew"):
        ensure_layout(kafka.config, ROUTE, 2)


def test_a_layout_record_that_is_gone_is_no_new_route(kafka: LayoutKafka) -> None:
    kafka.copy(ensure_layout(kafka.config, ROUTE, 1), 0, 100)
    del kafka.cluster.topics[LAYOUTS_TOPIC]
    with pytest.raises(RunLogError) as raised:
        ensure_layout(kafka.config, ROUTE, 1)
    assert raised.value.problem is RunLogProblem.LAYOUT_MISSING


def test_a_route_that_is_refused_at_the_start_holds_up_no_other(
    kafka: LayoutKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Route.parse("c->b")
    refused = RunLogError(RunLogProblem.LAYOUT_MISSING, "aggregate-b: c->b", "gone")
    made = ensure_layout(kafka.config, ROUTE, 1)

    def ensured(_config: object, route: Route, _shards: int) -> LayoutRecord:
        if route == other:
            raise refused
        return made

    monkeypatch.setattr(layouts, "ensure_layout", ensured)
    assert layouts.ensure_layouts(kafka.config, [other, ROUTE], 1) == {ROUTE: 1}
    with pytest.raises(RunLogError, match="LAYOUT_MISSING"):
        layouts.ensure_layouts(kafka.config, [other], 1)


def test_a_headless_run_log_is_not_moved_into_a_new_layout(kafka: LayoutKafka) -> None:
    kafka.copy(ensure_layout(kafka.config, ROUTE, 1), 0, 100)
    kafka.logs[0].retain_from(kafka.logs[0].end)
    with pytest.raises(RunLogError, match=r"^RUN_LOG_HEADLESS"):
        ensure_layout(kafka.config, ROUTE, 2)


def test_a_layout_record_of_a_newer_release_is_refused_and_unknown_fields_are_left_alone() -> None:
    record = LayoutRecord(1, 2, settled=True, run_log=RUNS, run_log_id=TopicId("log"))
    assert LayoutRecord.decoded(record.encoded()) == record
    assert LayoutRecord.decoded(record.encoded()[:-1] + b', "later": 1}') == record
    with pytest.raises(ConfigError, match="format 2"):
        LayoutRecord.decoded(record.encoded().replace(b'"format": 1', b'"format": 2'))
    with pytest.raises(ConfigError, match="can't be read"):
        LayoutRecord.decoded(b"[]")


def test_a_first_layout_that_was_not_finished_is_begun_again(kafka: LayoutKafka) -> None:
    """Its snapshots were aborted: they stay in the run log as offsets, and no entry is there."""
    ensure_layout(kafka.config, ROUTE, 2)
    for log in (*kafka.logs, *kafka.cluster.topics[LAYOUTS_TOPIC].logs):
        for slot in log.slots:
            assert slot.stretch is not None
            slot.stretch.outcome = ABORTED
    made = ensure_layout(kafka.config, ROUTE, 1)
    assert (made.layout, made.shards) == (1, 1)
    assert kafka.states(made) == {}


def with_topics(kafka: LayoutKafka, *include: str) -> Config:
    return kafka.config.model_copy(update={"topics": Topics(include=include)})


def two_replicators(kafka: LayoutKafka) -> str:
    """One copies trips; another one, of orders, begins while it does: what that one hears."""
    trips, orders = with_topics(kafka, "trips"), with_topics(kafka, "orders")
    layout = ensure_layout(trips, ROUTE, 1)
    kafka.while_watched = lambda: kafka.copy(layout, 0, 100)
    try:
        ensure_layout(orders, ROUTE, 1)
    except RefusedError as error:
        return str(error)
    finally:
        kafka.while_watched = lambda: None
    return ""


def test_a_second_replicator_with_other_topics_is_refused_by_name(kafka: LayoutKafka) -> None:
    told = two_replicators(kafka)
    assert told.startswith(
        "OTHER_TOPICS: aggregate-b: another replicator is copying a->b, with other topics: "
    )
    assert '"include": ["trips"]' in told
    assert '"include": ["orders"]' in told


def test_without_a_look_at_the_run_log_it_would_take_the_route(
    kafka: LayoutKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "_refuse_rival", lambda *_: None)
    assert not two_replicators(kafka)


def test_topics_may_change_once_nobody_copies(kafka: LayoutKafka) -> None:
    first = ensure_layout(with_topics(kafka, "trips"), ROUTE, 1)
    kafka.copy(first, 0, 100)
    changed = ensure_layout(with_topics(kafka, "trips", "orders"), ROUTE, 1)
    assert changed == replace(first, topics=changed.topics)
    assert '["orders", "trips"]' in changed.topics
    assert kafka.states(changed) == {ITEM: state(100)}
    kafka.while_watched = lambda: pytest.fail("the topics are the same: nobody is watched")
    assert ensure_layout(with_topics(kafka, "orders", "trips"), ROUTE, 1) == changed


def test_shards_and_topics_may_change_together(kafka: LayoutKafka) -> None:
    kafka.copy(ensure_layout(with_topics(kafka, "trips"), ROUTE, 1), 0, 100)
    moved = ensure_layout(with_topics(kafka, "orders"), ROUTE, 2)
    assert (moved.shards, moved.settled, "orders" in moved.topics) == (2, True, True)
    assert kafka.states(moved) == {ITEM: state(100)}


def test_a_route_of_which_no_topics_are_noted_gets_them(kafka: LayoutKafka) -> None:
    made = ensure_layout(kafka.config, ROUTE, 1)
    before = replace(made, topics="")
    with layouts.change_of_layout(kafka.config, ROUTE) as writer:
        writer.commit([writer.layout_record(before)])
    kafka.while_watched = lambda: pytest.fail("there is nothing to compare")
    assert ensure_layout(kafka.config, ROUTE, 1) == made


def test_an_id_that_is_not_allowed_is_named() -> None:
    def refuse(*_: object) -> NoReturn:
        raise KafkaException(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))

    settings = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    writer = layouts.Writer(settings, ROUTE, "parallax.a.b.layout")
    with pytest.raises(
        ConfigError, match=r"^RIGHT_MISSING: Write on transactional id parallax\.a\.b\.layout at "
    ):
        writer._try("initialising a transactional id", refuse)


def test_layouts_that_nobody_leads_are_not_missing(
    kafka: LayoutKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ensure_layout(kafka.config, ROUTE, 1)
    with monkeypatch.context() as leaderless:
        leaderless.setattr(SimAdmin, "log_ranges", lambda *_: {})
        with pytest.raises(ClusterUnavailableError, match=f"{LAYOUTS_TOPIC} has no leader"):
            read_layout(kafka.config, ROUTE)
        with pytest.raises(ClusterUnavailableError):
            ensure_layout(kafka.config, ROUTE, 1)
    assert read_layout(kafka.config, ROUTE) == made
