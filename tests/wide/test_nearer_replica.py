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


class Brokers:
    """Which broker of the source the first partition was read from, and from when."""

    def __init__(self, lately_s: float) -> None:
        self._lately_s = lately_s
        self._noted: list[tuple[float, int]] = []

    def note(self, broker: int) -> None:
        self._noted.append((time.monotonic(), broker))

    def mostly(self, broker: int) -> bool:
        """Whether it was that one nine of ten times lately."""
        since = time.monotonic() - self._lately_s
        lately = [noted for at, noted in self._noted if at >= since]
        return len(lately) > 5 and lately.count(broker) >= 0.9 * len(lately)


def fetched_from(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    """Which ones the batch path asks for records."""
    brokers = Brokers(lately_s=3.0)

    class Noting(Connections):
        def send(self, node: Any, request: Any, *told: Callable[[Any], None]) -> None:
            if isinstance(request, Fetch) and self.cluster.startswith("regional"):
                parts = [part.partition for topic in request._request.topics for part in topic.partitions]
                if 0 in parts:
                    brokers.note(int(node))
            super().send(node, request, *told)

    monkeypatch.setattr(connector, "Connections", Noting)
    return brokers


def consumed_from(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    """Which ones the record path's reader of near replicas reads from, as librdkafka tells."""
    brokers = Brokers(lately_s=2.0)

    def note(told: str) -> None:
        for topic in json.loads(told)["topics"].values():
            part = topic["partitions"].get("0", {})
            if part.get("fetch_state") == "active":
                brokers.note(int(part["broker"]))

    class Noting(KafkaSource):
        def __init__(self, settings: Mapping[str, Any], cluster: ClusterName) -> None:
            noting = {"statistics.interval.ms": 200, "stats_cb": note} if "client.rack" in settings else {}
            super().__init__({**settings, **noting}, cluster)

    monkeypatch.setattr(connector, "KafkaSource", Noting)
    return brokers


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


def configure(admin: AdminClient, of: ResourceType, which: str, name: str, value: str | None) -> None:
    """Set a configuration of a broker or a topic; None: take it back."""
    kind = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value or "", incremental_operation=kind)
    resource = ConfigResource(of, which, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)


def throttle(admin: AdminClient, broker: int, rate: str | None) -> None:
    """How fast the broker takes records of throttled replicas from leaders, in bytes a second."""
    configure(admin, ResourceType.BROKER, str(broker), "follower.replication.throttled.rate", rate)


def brake(admin: AdminClient, topic: str, broker: int) -> None:
    """Let the broker's replica of the topic lack what is written from now on.

    A brake is felt by replicas that are out of sync, as this one will be; what sets it is asked of the broker itself.
    """
    configure(admin, ResourceType.TOPIC, topic, "follower.replication.throttled.replicas", "*")
    throttle(admin, broker, "1")


def come_back_empty(stack: LocalStack, topic: str, broker: int) -> int:
    """Start a broker that was killed without the topic's records, and wait until it is asked in vain; for the log's end."""
    name = f"{CLUSTER}-{broker}"
    shutil.rmtree(stack.layout.storage_path(name) / f"{topic}-0")
    stack.start(name)
    end = ends(stack.bootstrap(CLUSTER), topic)[0]
    poll_until(lambda: asked_in_vain(ask(stack, topic, broker, end)), _WITHIN_S, "it lacks what was read")
    return end


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
    fetches = fetched_from(monkeypatch)
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

    brake(admin, topic, near)
    stack.kill(f"{CLUSTER}-{near}")
    route.goes_on(owner, "without it")
    assert not fetches.mostly(near)

    # It comes back without a record, and gets them slowly: a replica that lacks what was read long ago.
    end = come_back_empty(stack, topic, near)
    route.goes_on(owner, "beside a replica that lacks nearly all")
    assert asked_in_vain(ask(stack, topic, near, end)), "it is not behind any more"
    assert near not in in_sync(admin, topic)

    throttle(admin, near, None)
    poll_until(lambda: near in in_sync(admin, topic), _WITHIN_S, "it has caught up")
    poll_until(lambda: fetches.mostly(near), _WITHIN_S, "it is read from again")
    route.goes_on(owner, "from the replica that has come back")
    route.finish(owner)


@pytest.mark.stack
@pytest.mark.timeout(_TIMEOUT_S)
def test_record_by_record_a_nearer_replica_is_read_from_and_not_believed_either(
    stack: LocalStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_from = consumed_from(monkeypatch)
    admin = AdminClient({"bootstrap.servers": stack.bootstrap(CLUSTER)})
    route = Route(stack, "record")
    topic = route.harness.topic
    near = next(broker for broker in (1, 2, 3) if broker != leader(admin, topic))
    route.stand_in(rack_of(near))
    owner = route.own()
    route.goes_on(owner, "at first")
    poll_until(lambda: read_from.mostly(near), _WITHIN_S, "the nearer replica is read from")
    route.goes_on(owner, "from the nearer replica")

    brake(admin, topic, near)
    stack.kill(f"{CLUSTER}-{near}")
    end = come_back_empty(stack, topic, near)
    route.goes_on(owner, "beside a replica that lacks nearly all")
    assert asked_in_vain(ask(stack, topic, near, end)), "it is not behind any more"
    throttle(admin, near, None)
    poll_until(lambda: near in in_sync(admin, topic), _WITHIN_S, "it has caught up")
    route.goes_on(owner, "once it has caught up")
    route.finish(owner)


def asked_in_vain(part: FetchedPartition) -> bool:
    """Whether a client that took this for a leader's word would believe that the log's tail was lost."""
    return part.error_code == OUT_OF_RANGE or part.diverging_from is not None


@pytest.mark.stack
@pytest.mark.timeout(_TIMEOUT_S)
def test_who_leads_a_partition_no_more_is_asked_no_more(
    stack: LocalStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches = fetched_from(monkeypatch)
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
