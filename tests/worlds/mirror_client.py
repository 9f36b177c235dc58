"""MirrorMaker 2's own client, `RemoteClusterUtils` of Kafka's jars, asked in a Java of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from lab.stack.artifacts import fetch_jars
from lab.stack.java import find_java
from lab.stack.versions import load_versions

POLICIES = ("DefaultReplicationPolicy", "IdentityReplicationPolicy")
_MIRROR = "org.apache.kafka.connect.mirror"
_WITHIN_S = 30


class MirrorClient:
    """What its users call."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._utils = getattr(jvm, f"{_MIRROR}.RemoteClusterUtils")

    def translated(
        self, bootstrap: str, policy: str, source: str, group: str
    ) -> Mapping[tuple[str, int], tuple[int, str]]:
        """``translateOffsets``: offset and metadata by topic and partition."""
        within = self._jvm.java.time.Duration.ofSeconds(_WITHIN_S)
        found = self._utils.translateOffsets(self._properties(bootstrap, policy), source, group, within)
        return {
            (place.topic(), place.partition()): (found[place].offset(), found[place].metadata())
            for place in found
        }

    def upstream_clusters(self, bootstrap: str, policy: str) -> set[str]:
        """``upstreamClusters``."""
        return set(self._utils.upstreamClusters(self._properties(bootstrap, policy)))

    def hops(self, bootstrap: str, policy: str, source: str) -> int:
        """``replicationHops``; -1: it is not upstream."""
        return int(self._utils.replicationHops(self._properties(bootstrap, policy), source))

    def checkpoint(self, key: bytes, value: bytes) -> tuple[str, str, int, int, int, str]:
        """A record of checkpoints as the client takes it in: group, topic, partition, upstream offset, offset, metadata."""
        record = self._jvm.org.apache.kafka.clients.consumer.ConsumerRecord("x", 0, 0, key, value)
        found = getattr(self._jvm, f"{_MIRROR}.Checkpoint").deserializeRecord(record)
        place = found.topicPartition()
        offsets = (found.upstreamOffset(), found.downstreamOffset(), found.metadata())
        return (found.consumerGroupId(), place.topic(), place.partition(), *offsets)

    def heartbeat(self, key: bytes, value: bytes) -> tuple[str, str, int]:
        """A beat as the client takes it in: source, target, time in milliseconds."""
        record = self._jvm.org.apache.kafka.clients.consumer.ConsumerRecord("x", 0, 0, key, value)
        found = getattr(self._jvm, f"{_MIRROR}.Heartbeat").deserializeRecord(record)
        return found.sourceClusterAlias(), found.targetClusterAlias(), found.timestamp()

    def heartbeats_source(self, policy: str, topic: str) -> str | None:
        """Whose copy a topic of beats is to the client; None: it is no topic of beats."""
        found = getattr(self._jvm, f"{_MIRROR}.{policy}")()
        found.configure(self._properties("", policy))
        source = found.topicSource(topic) if found.isHeartbeatsTopic(topic) else None
        return None if source is None else str(source)

    def checkpoints_topic(self, policy: str, source: str) -> str:
        """Where the client looks for checkpoints."""
        found = getattr(self._jvm, f"{_MIRROR}.{policy}")()
        found.configure(self._properties("", policy))
        return str(found.checkpointsTopic(source))

    def _properties(self, bootstrap: str, policy: str) -> Any:
        properties = self._jvm.java.util.HashMap()
        properties["bootstrap.servers"] = bootstrap
        properties["replication.policy.class"] = f"{_MIRROR}.{policy}"
        return properties


@contextmanager
def mirror_client() -> Iterator[MirrorClient]:
    """The client, as long as its Java runs."""
    java = find_java()
    jars = fetch_jars(load_versions().kafka, java, report=lambda _line: None)
    [py4j] = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port, token = launch_gateway(
        jarpath=str(py4j),
        classpath=f"{jars}/*",
        die_on_exit=True,
        java_path=str(java.executable),
        enable_auth=True,
    )
    parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
    gateway = JavaGateway(gateway_parameters=parameters)
    try:
        yield MirrorClient(gateway.jvm)
    finally:
        gateway.shutdown()
