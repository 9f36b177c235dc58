"""Both copy paths beside three real brokers in racks: replicas are read from, and leaders alone decide."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from lab.stack.kafka_broker import rack_of
from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack
from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.wire import Connections
from parallax.config.config import Cluster, Config
from parallax.domain.ids import ClusterName, TopicName, TopicPartition
from replicator.kafka import connector
from replicator.kafka.batch.exchange import Fetch, FetchedPartition, WantedPartition
from replicator.kafka.record.source import KafkaSource
from replicator.kafka.topics import TopicAdmin
from tests.support import poll_until, unique_name
from tests.worlds.shard_harness import Harness, Owner, ends, same_on_both_sides

_TIMEOUT_S = 600
_LEASE_S = 500
_WITHIN_S = 120.0
_RECORDS = 400
_VALUE_BYTES = 4_000
"""With keys as long: a round is more than a replica fetches before its brake is felt."""
CLUSTER = "regional-m"
OUT_OF_RANGE = 1


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    spec = StackSpec(("m",), brokers={CLUSTER: 3}, services=False, store=False)
    with LocalStack(spec, tmp_path_factory.mktemp("racks")) as made:
        yield made


class Fetches:
    """Which broker of the source was asked for records of the first partition, and from when."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[float, int]] = []
        noted = self.asked

        class Noting(Connections):
            def send(self, node: Any, request: Any, *told: Callable[[Any], None]) -> None:
                if isinstance(request, Fetch) and self.cluster.startswith("regional"):
                    parts = [part.partition for topic in request._request.topics for part in topic.partitions]
                    if 0 in parts:
                        noted.append((time.monotonic(), int(node)))
                super().send(node, request, *told)

        monkeypatch.setattr(connector, "Connections", Noting)

    def mostly(self, broker: int, seconds: float = 3.0) -> bool:
        """Whether nine of ten went there lately."""
        since = time.monotonic() - seconds
        nodes = [node for at, node in self.asked if at >= since]
        return len(nodes) > 5 and nodes.count(broker) >= 0.9 * len(nodes)


class ReadFrom:
    """Which broker the record path's reader of near replicas has the first partition from, as librdkafka tells."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.brokers: list[tuple[float, int]] = []

        def note(told: str) -> None:
            for topic in json.loads(told)["topics"].values():
                part = topic["partitions"].get("0", {})
                if part.get("fetch_state") == "active":
                    self.brokers.append((time.monotonic(), int(part["broker"])))

        class Noting(KafkaSource):
            def __init__(self, settings: Mapping[str, Any], cluster: ClusterName) -> None:
                noting = (
                    {"statistics.interval.ms": 200, "stats_cb": note} if "client.rack" in settings else {}
                )
                super().__init__({**settings, **noting}, cluster)

        monkeypatch.setattr(connector, "KafkaSource", Noting)

    def mostly(self, broker: int, seconds: float = 2.0) -> bool:
        """Whether nine of ten times it was that one lately."""
        since = time.monotonic() - seconds
        nodes = [node for at, node in self.brokers if at >= since]
        return len(nodes) > 5 and nodes.count(broker) >= 0.9 * len(nodes)


class Route:
    """A route that is being copied, of one topic with two partitions."""

    def __init__(self, stack: LocalStack, copy_path: str = "batch") -> None:
        self.harness = Harness(
            stack,
            unique_name("racks"),
            clusters=(CLUSTER, "aggregate-m"),
            source_replicas=3,
            copy_path=copy_path,
        )
        self.harness.create(2)
        self.config = self.harness.config()
        self.written = 0

    def stand_in(self, rack: str) -> None:
        """The replicator stands there."""
        settings = self.config.model_dump()
        settings["regions"][self.harness.route.source]["regional"]["client_rack"] = rack
        self.config = Config.model_validate(settings)

    def own(self) -> Owner:
        lease = replace(
            self.harness.lease(self.config), deadline_unix_ms=int((time.time() + _LEASE_S) * 1_000)
        )
        return self.harness.own(self.config, lease=lease)

    def produce(self) -> None:
        for partition in (0, 1):
            values = (f"{self.written + number:_<{_VALUE_BYTES}}" for number in range(_RECORDS))
            self.harness.produce(values, partition=partition)
        self.written += _RECORDS

    def goes_on(self, owner: Owner, what: str) -> None:
        self.produce()
        wanted = 2 * self.written

        def copied() -> int:
            return sum(part.records for part in owner.progress[-1].partitions) if owner.progress else 0

        poll_until(lambda: copied() == wanted, _WITHIN_S, f"all is copied {what}")

    def finish(self, owner: Owner) -> None:
        result = owner.finish()
        assert result.stopped == {}
        assert (
            same_on_both_sides(self.harness)
            == result.records
            == sum(ends(self.harness.source, self.harness.topic))
        )


def leader(admin: AdminClient, topic: str) -> int:
    return int(admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader)


def in_sync(admin: AdminClient, topic: str) -> set[int]:
    return set(admin.list_topics(topic, timeout=10).topics[topic].partitions[0].isrs)


def set_broker(admin: AdminClient, broker: int, name: str, value: str | None) -> None:
    kind = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value or "", incremental_operation=kind)
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)


def ask(stack: LocalStack, topic: str, broker: int, offset: int) -> FetchedPartition:
    """What this very broker answers, whoever leads."""
    loop, item = EventLoop(), TopicPartition(TopicName(topic), 0)
    connections = Connections(
        loop,
        ClusterName(CLUSTER),
        Cluster(bootstrap_servers=stack.bootstrap(CLUSTER)),
        client_id="racks",
        largest_answer_bytes=2**26,
    )
    try:
        connections.connect()
        assert not connections.learn_leaders([item], timeout_ms=10_000)
        topic_id, epoch = connections.topic_id(item.topic), connections.leader_epoch(item)
        assert topic_id is not None
        assert epoch >= 0
        wanted = WantedPartition(topic_id, 0, offset, epoch, epoch)
        request = Fetch([wanted], wait_ms=10, most_bytes=2**20, partition_bytes=2**20)
        [part] = connections.ask(broker, request, "asking a replica").partitions
        return part
    finally:
        connections.close()
        loop.close()


@pytest.mark.stack
@pytest.mark.timeout(_TIMEOUT_S)
def test_the_nearer_replica_is_read_from_and_never_believed_about_the_logs_end(
    stack: LocalStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches = Fetches(monkeypatch)
    admin = AdminClient({"bootstrap.servers": stack.bootstrap(CLUSTER)})
    route = Route(stack)
    topic = route.harness.topic
    near = next(broker for broker in (1, 2, 3) if broker != leader(admin, topic))
    route.stand_in(rack_of(near))
    cluster = ClusterName(f"regional-{route.harness.route.source}")
    racks = TopicAdmin(cluster, route.config.cluster(cluster), timeout_ms=10_000).racks()
    assert set(racks) == {rack_of(broker) for broker in (1, 2, 3)}

    owner = route.own()
    route.goes_on(owner, "at first")
    poll_until(lambda: fetches.mostly(near), _WITHIN_S, "the nearer replica is read from")
    route.goes_on(owner, "from the nearer replica")

    name = f"{CLUSTER}-{near}"
    # A brake is felt by replicas that are out of sync, as this one will be; what sets it is asked of the broker itself.
    set_topic(admin, topic, "follower.replication.throttled.replicas", "*")
    set_broker(admin, near, "follower.replication.throttled.rate", "1")
    stack.kill(name)
    route.goes_on(owner, "without it")
    assert not fetches.mostly(near)

    # It comes back without a record, and gets them slowly: a replica that lacks what was read long ago.
    shutil.rmtree(stack.layout.storage_path(name) / f"{topic}-0")
    stack.start(name)
    end = ends(stack.bootstrap(CLUSTER), topic)[0]
    poll_until(lambda: asked_in_vain(ask(stack, topic, near, end)), _WITHIN_S, "it lacks what was read")
    route.goes_on(owner, "beside a replica that lacks nearly all")
    assert asked_in_vain(ask(stack, topic, near, end)), "it is not behind any more"
    assert near not in in_sync(admin, topic)

    set_broker(admin, near, "follower.replication.throttled.rate", None)
    poll_until(lambda: near in in_sync(admin, topic), _WITHIN_S, "it has caught up")
    poll_until(lambda: fetches.mostly(near), _WITHIN_S, "it is read from again")
    route.goes_on(owner, "from the replica that has come back")
    route.finish(owner)


@pytest.mark.stack
@pytest.mark.timeout(_TIMEOUT_S)
def test_record_by_record_a_nearer_replica_is_read_from_and_not_believed_either(
    stack: LocalStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_from = ReadFrom(monkeypatch)
    admin = AdminClient({"bootstrap.servers": stack.bootstrap(CLUSTER)})
    route = Route(stack, "record")
    topic = route.harness.topic
    near = next(broker for broker in (1, 2, 3) if broker != leader(admin, topic))
    route.stand_in(rack_of(near))
    owner = route.own()
    route.goes_on(owner, "at first")
    poll_until(lambda: read_from.mostly(near), _WITHIN_S, "the nearer replica is read from")
    route.goes_on(owner, "from the nearer replica")

    name = f"{CLUSTER}-{near}"
    set_topic(admin, topic, "follower.replication.throttled.replicas", "*")
    set_broker(admin, near, "follower.replication.throttled.rate", "1")
    stack.kill(name)
    shutil.rmtree(stack.layout.storage_path(name) / f"{topic}-0")
    stack.start(name)
    end = ends(stack.bootstrap(CLUSTER), topic)[0]
    poll_until(lambda: asked_in_vain(ask(stack, topic, near, end)), _WITHIN_S, "it lacks what was read")
    route.goes_on(owner, "beside a replica that lacks nearly all")
    assert asked_in_vain(ask(stack, topic, near, end)), "it is not behind any more"
    set_broker(admin, near, "follower.replication.throttled.rate", None)
    poll_until(lambda: near in in_sync(admin, topic), _WITHIN_S, "it has caught up")
    route.goes_on(owner, "once it has caught up")
    route.finish(owner)


def asked_in_vain(part: FetchedPartition) -> bool:
    """Whether a client that took this for a leader's word would believe that the log's tail was lost."""
    return part.error_code == OUT_OF_RANGE or part.diverging_from is not None


def set_topic(admin: AdminClient, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)


@pytest.mark.stack
@pytest.mark.timeout(_TIMEOUT_S)
def test_who_leads_a_partition_no_more_is_asked_no_more(
    stack: LocalStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches = Fetches(monkeypatch)
    admin = AdminClient({"bootstrap.servers": stack.bootstrap(CLUSTER)})
    route = Route(stack)
    topic = route.harness.topic
    preferred = leader(admin, topic)
    stack.kill(f"{CLUSTER}-{preferred}")
    poll_until(lambda: leader(admin, topic) not in {-1, preferred}, _WITHIN_S, "another one leads")
    stack.start(f"{CLUSTER}-{preferred}")
    poll_until(lambda: preferred in in_sync(admin, topic), _WITHIN_S, "it is back")
    other = leader(admin, topic)
    owner = route.own()
    route.goes_on(owner, "at first")
    poll_until(lambda: fetches.mostly(other), _WITHIN_S, "the leader is read from")

    # No connection is lost, and the old leader answers readers as any replica does.
    admin.elect_leaders(ElectionType.PREFERRED, [KafkaPartition(topic, 0)]).result(30)
    poll_until(lambda: leader(admin, topic) == preferred, _WITHIN_S, "leadership has gone back")
    poll_until(lambda: fetches.mostly(preferred), 20, "the new leader is read from")
    route.goes_on(owner, "from the new leader")
    route.finish(owner)
