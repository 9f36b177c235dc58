"""The local stack on real brokers and a real Cassandra."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cassandra.cluster import Cluster
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lab.stack.control import is_running
from lab.stack.errors import ProcessDiedError, UnknownProcessError
from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack
from parallax.config.config import load
from tests.support import Stack, poll_until
from tests.worlds.kafka_tools import CONSOLE_PRODUCER, kafka_tool
from tests.worlds.processes import command_line, descendants, still_running

_OWN_STACK_TIMEOUT_S = 600


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def read_all(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[bytes] = []
        deadline = time.monotonic() + 30
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                values.append(message.value())
        return values
    finally:
        consumer.close()


def test_each_part_answers(infrastructure: Stack) -> None:
    for cluster in ("regional-a", "aggregate-a", "regional-b", "aggregate-b"):
        metadata = AdminClient({"bootstrap.servers": infrastructure.bootstrap(cluster)}).list_topics(
            timeout=10
        )
        assert list(metadata.brokers) == [1]
    host, port = infrastructure.cassandra_address().split(":")
    cluster = Cluster([host], port=int(port), protocol_version=5)
    try:
        row = cluster.connect().execute("SELECT release_version, data_center FROM system.local").one()
    finally:
        cluster.shutdown()
    assert row.release_version.startswith("5.0.")
    assert row.data_center == load(infrastructure.config_path).cassandra.local_datacenter


def test_the_written_config_names_the_clusters(infrastructure: Stack) -> None:
    config = load(infrastructure.config_path)
    assert sorted(config.regions) == ["a", "b"]
    regional = config.regions["a"].regional
    assert regional is not None
    assert regional.bootstrap_servers == infrastructure.bootstrap("regional-a")


def test_only_regional_clusters_create_topics_by_themselves(infrastructure: Stack, topic_name: str) -> None:
    produce(infrastructure.bootstrap("regional-a"), topic_name, [b"first"])
    assert read_all(infrastructure.bootstrap("regional-a"), topic_name, 1) == [b"first"]
    aggregate = AdminClient({"bootstrap.servers": infrastructure.bootstrap("aggregate-a")})
    metadata = aggregate.list_topics(topic_name, timeout=10)
    assert metadata.topics[topic_name].error is not None
    assert topic_name not in aggregate.list_topics(timeout=10).topics


def test_kafkas_own_producer_can_begin_a_topic(infrastructure: Stack, topic_name: str) -> None:
    bootstrap = infrastructure.bootstrap("regional-b")
    command = kafka_tool(CONSOLE_PRODUCER, "--bootstrap-server", bootstrap, "--topic", topic_name)
    subprocess.run(command, input=b"one\ntwo\nthree\n", check=True, capture_output=True, timeout=60)
    assert read_all(bootstrap, topic_name, 3) == [b"one", b"two", b"three"]


def test_a_killed_broker_returns_with_its_port_and_data(infrastructure: Stack, topic_name: str) -> None:
    bootstrap = infrastructure.bootstrap("aggregate-b")
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic_name, 1)])[topic_name].result(10)
    produce(bootstrap, topic_name, [b"kept", b"as well"])
    infrastructure.kill("aggregate-b")
    try:
        state = {p["name"]: p for p in infrastructure.status()["processes"]}["aggregate-b"]
        assert (state["state"], state["pid"]) == ("killed", None)
        host, port = bootstrap.split(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=1)
    finally:
        infrastructure.start("aggregate-b")
    assert infrastructure.bootstrap("aggregate-b") == bootstrap
    assert read_all(bootstrap, topic_name, 2) == [b"kept", b"as well"]


def test_a_wrong_name_names_the_nearest(infrastructure: Stack) -> None:
    with pytest.raises(UnknownProcessError, match="Did you mean 'aggregate-a'") as raised:
        infrastructure.kill("agregate-a")
    assert "region-b" in raised.value.valid_names


@pytest.mark.stack
@pytest.mark.timeout(_OWN_STACK_TIMEOUT_S)
def test_nothing_outlives_ctrl_c_during_the_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "parallax", "stack", "up", "--only-infrastructure"]
    command += ["--regions", "d", "--dir", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as parent:
        children = poll_until(lambda: descendants(parent.pid), 60, "the first broker is started")
        parent.send_signal(signal.SIGINT)
        parent.wait(60)
    assert not still_running(children)
    assert not is_running(tmp_path)


@pytest.mark.stack
@pytest.mark.timeout(_OWN_STACK_TIMEOUT_S)
def test_an_early_death_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    storage = tmp_path / "data" / "regional-e" / "storage"
    storage.mkdir(parents=True)
    (storage / "meta.properties").write_text("version=1\ncluster.id=elsewhere\nnode.id=9\n", encoding="utf-8")
    with pytest.raises(ProcessDiedError) as raised, LocalStack(StackSpec(("e",), services=False), tmp_path):
        pass
    error = raised.value
    assert error.name == "regional-e"
    assert error.exit_code == 1
    assert "node id" in error.log_tail
    assert str(error.log_path) in str(error)
    left = still_running(descendants(os.getpid()))
    assert not [process for process in left if str(tmp_path) in command_line(process)]
