"""What becomes of each key of MirrorMaker 2 that says nothing of clusters, topics or names."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class KeyVerdict(Enum):
    """What became of a key."""

    MAPPED = "MAPPED"
    """A key of ours says the same."""
    CHANGED = "CHANGED"
    """Parallax does something else in its place, and the reason says what."""
    IMPLIED = "IMPLIED"
    """There is nothing to set: Parallax does it anyway, or has no part that it would be about."""
    UNSUPPORTED = "UNSUPPORTED"
    """It asks for what Parallax does not do."""
    UNKNOWN = "UNKNOWN"
    """It is no key of MirrorMaker 2, Connect or Kafka's clients."""

    @property
    def blocks(self) -> bool:
        """Whether the file is not to be used before somebody has looked at this."""
        return self in {KeyVerdict.UNSUPPORTED, KeyVerdict.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Ruling:
    """What becomes of a key.

    Attributes:
        to: the key of ours that says it; empty: none.
        why: for people.
    """

    verdict: KeyVerdict
    why: str
    to: str = ""


def _implied(why: str) -> Callable[[str], Ruling]:
    return lambda _value: Ruling(KeyVerdict.IMPLIED, why)


def _changed(why: str, to: str = "") -> Callable[[str], Ruling]:
    return lambda _value: Ruling(KeyVerdict.CHANGED, why, to)


def _unsupported(why: str) -> Callable[[str], Ruling]:
    return lambda _value: Ruling(KeyVerdict.UNSUPPORTED, why)


def _switch(on: Ruling, off: Ruling) -> Callable[[str], Ruling]:
    def rule(value: str) -> Ruling:
        if value.lower() not in {"true", "false"}:
            return Ruling(KeyVerdict.UNSUPPORTED, f"it is neither true nor false, but {value!r}")
        return on if value.lower() == "true" else off

    return rule


def _standard_class(names: str, why: str) -> Callable[[str], Ruling]:
    def rule(value: str) -> Ruling:
        if value.rpartition(".")[2] in names.split():
            return Ruling(KeyVerdict.IMPLIED, why)
        return Ruling(
            KeyVerdict.UNSUPPORTED, f"{value} is a class of somebody's own, and Parallax loads none"
        )

    return rule


_NOTHING = Ruling(KeyVerdict.IMPLIED, "Parallax does nothing of the kind")
_MAPPING = (
    "each record's place is in the run log, with its copy, in one transaction: there are no samples to tune"
)
PUBLISHED = Ruling(
    KeyVerdict.CHANGED,
    "the sync job publishes them, exact ones, for all groups that are chosen; where nobody produces at the target, call it 'aggregate' instead of "
    "'cluster': offsets there are early else (docs/topologies.md)",
    "sync.interval_ms",
)
"""Of group offsets, where copies keep their names."""
_NOT_PUBLISHED = "offsets of groups are published where copies keep their names; here a group's topics are called otherwise at the target"
_PACE = "offsets are published every sync.interval_ms, a second if not set"
_DISCOVERY = "new topics and groups are found within seconds (replicator.discovery_interval_ms)"
_NEW_TOPICS = "new topics are found within seconds; with 'topics.new: manual', which you set yourself, they wait until somebody adds them"
_WORKER = "there is no Connect worker"
_OWN_CLIENTS = "Parallax tunes its own clients"
_HEARTBEATS = "beats are written where mm2_export.heartbeats says so, which you set yourself: lag and freshness are metrics without them"
_CHECKPOINTS = "checkpoints are written where mm2_export.checkpoints says so, which you set yourself"
_TOPIC_CONFIG = "settings of topics are kept in step by rules of their own (topics.config_sync)"
_NO_ACLS = "ACLs are not copied unless topics.acl_sync says so, which you set yourself"

RULES: dict[str, Callable[[str], Ruling]] = {
    **dict.fromkeys(
        (
            "offset.lag.max",
            "emit.offset-syncs.enabled",
            "checkpoints.topic.replication.factor",
            "offset-syncs.topic.replication.factor",
            "offset-syncs.topic.location",
            "offset.flush.interval.ms",
            "offset.flush.timeout.ms",
        ),
        _implied(_MAPPING),
    ),
    **dict.fromkeys(
        (
            "refresh.topics.interval.seconds",
            "refresh.groups.enabled",
            "refresh.groups.interval.seconds",
        ),
        _changed(_DISCOVERY, "replicator.discovery_interval_ms"),
    ),
    "refresh.topics.enabled": _switch(
        Ruling(KeyVerdict.CHANGED, _DISCOVERY, "replicator.discovery_interval_ms"),
        Ruling(KeyVerdict.CHANGED, _NEW_TOPICS, "topics.new"),
    ),
    "sync.group.offsets.enabled": _switch(Ruling(KeyVerdict.UNSUPPORTED, _NOT_PUBLISHED), _NOTHING),
    "sync.group.offsets.interval.seconds": _implied(_PACE),
    **dict.fromkeys(
        ("emit.checkpoints.enabled", "emit.checkpoints.interval.seconds"),
        _changed(_CHECKPOINTS, "mm2_export.checkpoints"),
    ),
    **dict.fromkeys(
        (
            "emit.heartbeats.interval.seconds",
            "heartbeats.topic.replication.factor",
        ),
        _implied(_HEARTBEATS),
    ),
    **dict.fromkeys(
        ("emit.heartbeats.enabled", "heartbeats.replication.enabled"),
        _switch(Ruling(KeyVerdict.CHANGED, _HEARTBEATS, "mm2_export.heartbeats"), _NOTHING),
    ),
    "sync.topic.configs.enabled": _switch(
        Ruling(KeyVerdict.CHANGED, _TOPIC_CONFIG), Ruling(KeyVerdict.CHANGED, _TOPIC_CONFIG)
    ),
    "sync.topic.configs.interval.seconds": _changed(_TOPIC_CONFIG),
    **dict.fromkeys(
        ("config.properties.exclude", "config.properties.blacklist", "use.defaults.from"),
        _changed(f"{_TOPIC_CONFIG}; throttles, timestamp bounds and the like are left out"),
    ),
    "sync.topic.acls.enabled": _switch(Ruling(KeyVerdict.CHANGED, _NO_ACLS), _NOTHING),
    "sync.topic.acls.interval.seconds": _implied(_NO_ACLS),
    "tasks.max": _changed(
        "a route has one lease, which copies all its partitions; more share them if you raise it",
        "replicator.shards_per_route",
    ),
    "exactly.once.source.support": lambda value: Ruling(
        KeyVerdict.IMPLIED if value == "enabled" else KeyVerdict.CHANGED, "copying is always exactly once"
    ),
    "topic.filter.class": _standard_class("DefaultTopicFilter", "patterns are all there is"),
    "group.filter.class": _standard_class("DefaultGroupFilter", "patterns are all there is"),
    "config.property.filter.class": _standard_class("DefaultConfigPropertyFilter", _TOPIC_CONFIG),
    "forwarding.admin.class": _standard_class("ForwardingAdmin", "Parallax has its own admin client"),
    **dict.fromkeys(
        ("key.converter", "value.converter", "header.converter"),
        _standard_class("ByteArrayConverter", "bytes pass as they are"),
    ),
    "replication.policy.internal.topic.separator.enabled": _implied(_MAPPING),
    "provider.private": _implied(_WORKER),
    "admin.timeout.ms": _implied(_OWN_CLIENTS),
    "consumer.poll.timeout.ms": _implied(_OWN_CLIENTS),
    "add.source.alias.to.metrics": _implied("every metric names its route"),
    "topic.creation.enable": _changed("topics that a target lacks are created"),
    "metric.reporters": _unsupported("metrics are served for Prometheus at replicator.status_address"),
    "errors.tolerance": _changed("a partition that can't go on stops by itself, and nothing is skipped"),
}

_BEGINNINGS: tuple[tuple[str, Callable[[str], Ruling]], ...] = (
    ("transforms", _unsupported("records pass as they are: there are no transforms")),
    ("predicates", _unsupported("records pass as they are: there are no transforms")),
    (
        "config.providers",
        _changed("secrets come from files (keys that end with _file) or environment variables"),
    ),
    ("topic.creation.", _changed("a copy's topic is created with its source's configuration")),
    ("errors.", _changed("a partition that can't go on stops by itself, and says why")),
    ("metrics.", _implied("metrics are served for Prometheus at replicator.status_address")),
)

_WORKER_KEYS = re.compile(
    r"(offset|config|status)\.storage\..*|dedicated\.mode\..*|listeners.*|rest\..*|plugin\..*|access\.control\..*|admin\.listeners.*"
    r"|group\.id|bootstrap\.servers\.override|task\.shutdown\..*|scheduled\.rebalance\..*|connect\.protocol|inter\.worker\..*"
    r"|(key|value|header)\.converter\..*|internal\..*|connector\.client\..*|topic\.tracking\..*|worker\..*|heartbeat\.interval\.ms"
    r"|session\.timeout\.ms|rebalance\.timeout\.ms|response\.http\..*|client\.id|client\.dns\.lookup"
)

_TUNING = frozenset(
    [
        "acks",
        "allow.auto.create.topics",
        "auto.include.jmx.reporter",
        "batch.size",
        "buffer.memory",
        "check.crcs",
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "connections.max.idle.ms",
        "default.api.timeout.ms",
        "delivery.timeout.ms",
        "enable.auto.commit",
        "auto.commit.interval.ms",
        "enable.idempotence",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "group.id",
        "group.instance.id",
        "heartbeat.interval.ms",
        "interceptor.classes",
        "linger.ms",
        "max.block.ms",
        "max.in.flight.requests.per.connection",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "max.poll.records",
        "max.request.size",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "partitioner.class",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retries",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "transaction.timeout.ms",
        "transactional.id",
        "partitioner.ignore.keys",
        "enable.metrics.push",
        "metadata.recovery.strategy",
    ]
)


def rule_of(key: str, value: str) -> Ruling | None:
    """What becomes of a key of the engine, without its flow or cluster; None: it is none."""
    if key in RULES:
        return RULES[key](value)
    for beginning, rule in _BEGINNINGS:
        if key == beginning or key.startswith(beginning if beginning.endswith(".") else f"{beginning}."):
            return rule(value)
    return Ruling(KeyVerdict.IMPLIED, _WORKER) if _WORKER_KEYS.fullmatch(key) else None


def rule_of_client(kind: str, key: str, value: str) -> Ruling | None:
    """What becomes of a setting of a Kafka client.

    Args:
        kind: ``consumer``, ``producer`` or ``admin``; empty: of all three.
        key: without the kind.
        value: the value.
    """
    if key.startswith("override."):
        key = key.removeprefix("override.")
    if key == "isolation.level":
        if value == "read_committed":
            return Ruling(KeyVerdict.IMPLIED, "aborted records are never copied")
        return Ruling(
            KeyVerdict.CHANGED,
            "aborted records are never copied; MirrorMaker 2 copies them as if they were committed",
        )
    if key == "compression.type" and kind != "consumer":
        return Ruling(KeyVerdict.CHANGED, "batches pass as they are, in their producers' compression")
    if key.startswith(("sasl.", "ssl.", "security.")):
        return Ruling(
            KeyVerdict.UNSUPPORTED,
            "Parallax has one identity at a cluster: set it for the cluster, without the kind of client",
        )
    if key in {"key.serializer", "value.serializer", "key.deserializer", "value.deserializer"}:
        return Ruling(KeyVerdict.IMPLIED, "bytes pass as they are")
    return Ruling(KeyVerdict.IMPLIED, _OWN_CLIENTS) if key in _TUNING else None


def known_keys() -> list[str]:
    """Keys that a wrong one may have been meant to be."""
    return [
        *RULES,
        "topics",
        "topics.exclude",
        "groups",
        "groups.exclude",
        "enabled",
        "replication.factor",
        *_TUNING,
    ]
