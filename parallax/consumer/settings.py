"""The settings of a `FailoverConsumer`, checked once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from parallax.consumer.errors import ConsumerConfigError
from parallax.consumer.ports import Rebalance
from parallax.domain.ids import OWN_INSTANCE_PREFIX
from parallax.errors import UnknownRegionError

OnNoOffset = Literal["earliest", "latest", "error"]
OnServiceAway = Literal["wait", "metadata", "stop"]
MoveFrom = Literal["delivered", "committed"]
Config = dict[str, Any]
_DEFAULT_AUTO_COMMIT_INTERVAL_MS = 5_000
"""librdkafka's own default of ``auto.commit.interval.ms``."""


@dataclass(frozen=True, slots=True)
class Policies:
    """What to do where Kafka or the offset service leaves a choice.

    Attributes:
        on_no_offset: where a partition starts that the group never committed on.
        on_service_away: ``wait`` until an offset service answers; go by committed ``metadata`` alone (records
            may be read twice); or ``stop`` with `OffsetServiceAwayError`.
        move_from: the position that a move starts from: what poll() ``delivered``, or what was ``committed``.
        service_timeout_ms: how long an offset service may be away before ``on_service_away`` applies.
        index_wait_ms: how long a move waits at most, from the last record delivered, until that record is in the
            mapping index; it takes an interval of the index, with hundreds of partitions to a lease a second or two.
            Only where the replicator died with the cluster does it never come.
        report_interval_ms: how often delivered positions are reported.
        close_timeout_ms: how long ``close`` waits for the cluster.
    """

    on_no_offset: OnNoOffset = "earliest"
    on_service_away: OnServiceAway = "wait"
    move_from: MoveFrom = "delivered"
    service_timeout_ms: float = 5_000
    index_wait_ms: float = 2_500
    report_interval_ms: float = 1_000
    close_timeout_ms: float = 5_000

    def __post_init__(self) -> None:
        """Refuse what is not a choice.

        Raises:
            ConsumerConfigError: the message names the argument and the choices.
        """
        for name, choices in (
            ("on_no_offset", OnNoOffset),
            ("on_service_away", OnServiceAway),
            ("move_from", MoveFrom),
        ):
            value = getattr(self, name)
            if value not in get_args(choices):
                raise ConsumerConfigError(f"{name}={value!r}: choose one of {', '.join(get_args(choices))}")
        for name in ("service_timeout_ms", "report_interval_ms", "close_timeout_ms"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or value <= 0:
                raise ConsumerConfigError(f"{name} must be above 0 milliseconds, not {value!r}")
        if self.index_wait_ms < 0:
            raise ConsumerConfigError(f"index_wait_ms must not be negative: {self.index_wait_ms}")


@dataclass(frozen=True, slots=True)
class Settings:
    """What an application's librdkafka configuration means here.

    Attributes:
        group: ``group.id``.
        base: settings for every cluster, without ours.
        clusters: settings of each region's aggregate cluster, ``bootstrap.servers`` among them.
        auto_commit: the application wants offsets committed by itself.
        auto_commit_interval_ms: how often.
        auto_store: a delivered record counts as done (``enable.auto.offset.store``).
        cooperative: the group rebalances incrementally.
        next_generation: the group rebalances by the next-generation protocol (KIP-848).
        on_commit: the application's commit callback.
        own_instance: the ``group.instance.id`` is not the application's but made here, so that this consumer takes
            the place that it had itself when it comes back to a cluster; it has to leave by itself, too.
    """

    group: str
    base: Config
    clusters: Mapping[str, Config]
    auto_commit: bool
    auto_commit_interval_ms: float
    auto_store: bool
    cooperative: bool
    next_generation: bool = False
    on_commit: Callable[..., None] | None = field(default=None)
    own_instance: bool = False

    def for_region(self, region: str) -> Config:
        """The librdkafka configuration of the inner consumer at a region's aggregate cluster.

        Raises:
            UnknownRegionError: the region is not among ``clusters``.
        """
        if region not in self.clusters:
            known = ", ".join(sorted(self.clusters))
            raise UnknownRegionError(f"region {region!r} is not among the clusters given: {known}")
        return {
            **self.base,
            **self.clusters[region],
            "isolation.level": "read_committed",
            # Offsets are stored and committed by us: librdkafka's own way can't carry skip ranges.
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            # A partition whose offset is gone reports an error; it never jumps in silence.
            "auto.offset.reset": "error",
        }


def read_settings(
    config: Mapping[str, Any], clusters: Mapping[str, str | Mapping[str, Any]], region: str
) -> Settings:
    """Check an application's configuration.

    Raises:
        ConsumerConfigError: a setting is missing or can't be honoured; the message says what to do.
        UnknownRegionError: ``region`` is not among ``clusters``.
    """
    base = dict(config)
    group = base.get("group.id")
    if not group:
        raise ConsumerConfigError("group.id is missing")
    if "bootstrap.servers" in base or "metadata.broker.list" in base:
        raise ConsumerConfigError(
            "bootstrap.servers belongs into clusters={region: ...}, one for each region"
        )
    isolation = base.pop("isolation.level", "read_committed")
    if isolation != "read_committed":
        raise ConsumerConfigError(
            f"isolation.level={isolation!r}: aggregate clusters are written in transactions, and exactly once "
            "holds for read_committed alone; leave the setting out"
        )
    reset = base.pop("auto.offset.reset", "error")
    if reset != "error":
        raise ConsumerConfigError(
            f"auto.offset.reset={reset!r}: a failover consumer never jumps in silence; leave the setting out, and "
            "say where a partition without any commit starts by on_no_offset"
        )
    merged_clusters = _clusters(clusters)
    strategy = str(base.get("partition.assignment.strategy", ""))
    # The next-generation protocol (KIP-848) tells members that are gone by itself, within its own time-outs.
    next_generation = base.get("group.protocol") == "consumer"
    own_instance = "group.instance.id" not in base and not next_generation
    if own_instance:
        base["group.instance.id"] = f"{OWN_INSTANCE_PREFIX}{uuid.uuid4()}"
    settings = Settings(
        group=str(group),
        auto_commit=_flag(base, "enable.auto.commit", default=True),
        auto_commit_interval_ms=float(base.pop("auto.commit.interval.ms", _DEFAULT_AUTO_COMMIT_INTERVAL_MS)),
        auto_store=_flag(base, "enable.auto.offset.store", default=True),
        cooperative="cooperative" in strategy or next_generation,
        next_generation=next_generation,
        on_commit=base.pop("on_commit", None),
        own_instance=own_instance,
        base=base,
        clusters=merged_clusters,
    )
    settings.for_region(region)
    return settings


def _clusters(clusters: object) -> dict[str, Config]:
    if not isinstance(clusters, Mapping):
        raise ConsumerConfigError(f"clusters is a mapping {{region: 'host:port'}}, not {clusters!r}")
    return {name: _cluster(name, value) for name, value in clusters.items()}


def _cluster(region: str, value: object) -> Config:
    if not isinstance(value, str | Mapping):
        raise ConsumerConfigError(
            f"clusters[{region!r}] is 'host:port' or a mapping of settings, not {value!r}"
        )
    settings = {"bootstrap.servers": value} if isinstance(value, str) else dict(value)
    if not settings.get("bootstrap.servers"):
        raise ConsumerConfigError(f"clusters[{region!r}] names no bootstrap.servers")
    return settings


def _flag(config: Config, key: str, *, default: bool) -> bool:
    value = config.pop(key, default)
    if isinstance(value, bool):
        return value
    if str(value).lower() in {"true", "false"}:
        return str(value).lower() == "true"
    raise ConsumerConfigError(f"{key}={value!r} is neither true nor false")


@dataclass(frozen=True, slots=True)
class Subscription:
    """What the application subscribed to, with its callbacks."""

    topics: tuple[str, ...]
    on_assign: Rebalance | None = None
    on_revoke: Rebalance | None = None
    on_lost: Rebalance | None = None

    @property
    def plain_topics(self) -> tuple[str, ...]:
        """The topics by name; empty when one of them is a pattern."""
        return () if any(topic.startswith("^") for topic in self.topics) else self.topics
