"""Settings of brokers and Cassandra: the one source for the local stack and for compose/.

Chosen for a laptop: small heaps, few threads, one partition for internal topics, no start-up delays. A test
holds compose/ against these dictionaries.
"""

from __future__ import annotations

from typing import Literal

ClusterKind = Literal["regional", "aggregate"]

BROKER_HEAP_MIB = 384
CASSANDRA_HEAP_MIB = 768

# A process without memory must end, visibly, instead of answering half of the time.
COMMON_JVM_OPTIONS = ("-XX:+ExitOnOutOfMemoryError", "-Xshare:auto")
# Short start and little memory matter more here than peak speed: compile fast, collect on one thread.
QUICK_JVM_OPTIONS = (*COMMON_JVM_OPTIONS, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
HEAP_TOUCHED = "-XX:+AlwaysPreTouch"
# For benches: the JVM's full compiler.
THROUGHPUT_JVM_OPTIONS = (*COMMON_JVM_OPTIONS, "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")

_BROKER_SETTINGS: dict[str, str] = {
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.message.timestamp.type": "CreateTime",
    # The broker looks for abandoned transactions this often (10 s by default): until it has aborted one,
    # read_committed consumers of its partitions wait.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # 128 MiB by default, allocated at start: a third of the heap.
    "log.cleaner.dedupe.buffer.size": "16777216",
    # A broker that was killed can only return once its old session has run out (9 s by default).
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "4000",
    # An idle controller writes a record of nothing twice a second by default: a third of the CPU of an idle broker.
    "metadata.max.idle.interval.ms": "0",
    # A quota acts within two seconds, in small portions, instead of eleven (lab.workload.distance).
    "quota.window.num": "2",
    "num.network.threads": "2",
    "num.io.threads": "4",
}


def broker_settings(kind: ClusterKind, brokers: int) -> dict[str, str]:
    """Settings of a broker that don't depend on where it runs.

    Regional clusters create topics on a producer's first record, so that any foreign producer can begin.
    Aggregate clusters never do: a topic that appears there by accident, with a wrong partition count, would
    stop its replication.

    Args:
        kind: Which sort of cluster.
        brokers: How many brokers the cluster has; internal topics are replicated to at most three.
    """
    replicas = min(brokers, 3)
    in_sync = max(1, replicas - 1)
    return _BROKER_SETTINGS | {
        "auto.create.topics.enable": "true" if kind == "regional" else "false",
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(in_sync),
    }


CASSANDRA_SETTINGS: dict[str, object] = {
    "num_tokens": 1,
    "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
    "endpoint_snitch": "GossipingPropertyFileSnitch",
    "commitlog_sync": "periodic",
    "commitlog_sync_period": "10000ms",
    "memtable_heap_space": "64MiB",
    "memtable_offheap_space": "64MiB",
    "key_cache_size": "16MiB",
    "auto_snapshot": False,
    "authenticator": "AllowAllAuthenticator",
    "concurrent_reads": 16,
    "concurrent_writes": 16,
}

# The only node of a lone cluster need not wait for others.
CASSANDRA_SYSTEM_PROPERTIES: dict[str, str] = {
    "cassandra.ring_delay_ms": "0",
    "cassandra.skip_wait_for_gossip_to_settle": "0",
    "cassandra.superuser_setup_delay_ms": "0",
}

# What is told of keyspaces and tables is not written to disk at once, each time anew.
CASSANDRA_WITHOUT_FLUSHES: dict[str, str] = {"cassandra.unsafesystem": "true"}

# Cassandra 5 reaches into these packages of Java 17 (its own conf/jvm17-server.options lists them too).
_CASSANDRA_EXPORTS = (
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/java.lang.ref",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.util.jar",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp",
    "java.sql/java.sql",
    "jdk.management/com.sun.management.internal",
)
_CASSANDRA_OPENS = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.math",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.nio.charset",
    "java.base/java.nio.file.spi",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.locks",
    "java.base/java.util.concurrent.atomic",
    "java.base/sun.nio.ch",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.util.jar",
    "jdk.management/com.sun.management.internal",
    "java.rmi/sun.rmi.transport.tcp",
)


def cassandra_module_options() -> list[str]:
    """JVM options that open Java's modules to Cassandra."""
    return [
        *(f"--add-exports={package}=ALL-UNNAMED" for package in _CASSANDRA_EXPORTS),
        *(f"--add-opens={package}=ALL-UNNAMED" for package in _CASSANDRA_OPENS),
    ]
