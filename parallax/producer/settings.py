"""The settings of a `FailoverProducer`, checked once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from parallax.producer.errors import ProducerConfigError, TransactionsUnsupportedError

OnUnacknowledged = Literal["resend", "report"]

Config = dict[str, Any]

# librdkafka's own defaults.
_MESSAGE_TIMEOUT_MS = 300_000.0
_LINGER_MS = 5.0
_MAX_MESSAGES = 100_000
_MAX_KIBIBYTES = 1_048_576
_MAX_MESSAGE_BYTES = 1_000_000

_CLUSTER_MUST_NOT_SET = (
    "partitioner",
    "acks",
    "request.required.acks",
    "enable.idempotence",
    "message.timeout.ms",
    "delivery.timeout.ms",
)
_CALLBACKS = {"error_cb": TypeError, "stats_cb": TypeError, "throttle_cb": ValueError}
"""And what confluent-kafka raises where one can't be called."""


@dataclass(frozen=True, slots=True)
class ProducerPolicies:
    """What to do where Kafka leaves a choice, and how long to wait before a region counts as down.

    Attributes:
        on_unacknowledged: a region went down owing acknowledgements: ``resend`` these records to the next region, so
            that some may be written twice; or ``report`` them as failed, so that some may have been written.
        unreachable_after_ms: no broker of a region answers for so long: it is down.
        stalled_after_ms: brokers answer, but no waiting record is acknowledged for so long: down, too. Longer
            than a cluster takes to elect leaders after a broker has died (9 s by Kafka's defaults).
        return_after_ms: a region has to be well for so long before records go back there; doubled each time that
            it goes down again soon after.
        check_interval_ms: how often the other regions are checked while nothing is wrong.
        close_timeout_ms: how long ``close`` waits for acknowledgements.
    """

    on_unacknowledged: OnUnacknowledged = "resend"
    unreachable_after_ms: float = 3_000
    stalled_after_ms: float = 20_000
    return_after_ms: float = 10_000
    check_interval_ms: float = 60_000
    close_timeout_ms: float = 10_000

    def __post_init__(self) -> None:
        """Refuse what is not a choice.

        Raises:
            ProducerConfigError: the message names the argument and the choices.
        """
        if self.on_unacknowledged not in get_args(OnUnacknowledged):
            choices = ", ".join(get_args(OnUnacknowledged))
            raise ProducerConfigError(
                f"on_unacknowledged={self.on_unacknowledged!r}: choose one of {choices}"
            )
        for name in (
            "unreachable_after_ms",
            "stalled_after_ms",
            "return_after_ms",
            "check_interval_ms",
            "close_timeout_ms",
        ):
            value = getattr(self, name)
            if not isinstance(value, int | float) or value <= 0:
                raise ProducerConfigError(f"{name} must be above 0 milliseconds, not {value!r}")


@dataclass(slots=True)
class ProducerSettings:
    """What an application's librdkafka configuration means here.

    Attributes:
        base: settings for every cluster.
        on_delivery: the callback of records that bring none of their own.
        callbacks: ``error_cb``, ``stats_cb`` and ``throttle_cb``.
        message_timeout_ms: how long a record may wait in one region; infinite for librdkafka's 0.
        linger_ms: how long a record waits for company.
        max_messages: records not reported yet, over all regions.
        max_bytes: their keys and values.
        max_message_bytes: key and value of one record.
        credentials: a login given later, for every cluster, whatever it was configured with.
    """

    base: Config
    on_delivery: Callable[..., Any] | None
    callbacks: Mapping[str, Callable[..., Any]]
    message_timeout_ms: float
    linger_ms: float
    max_messages: int
    max_bytes: int
    max_message_bytes: int
    credentials: Mapping[str, str] = field(default_factory=dict)

    def for_cluster(self, cluster: Mapping[str, Any]) -> Config:
        """The librdkafka configuration of the inner producer of a cluster, without callbacks."""
        return {
            # A region that comes back is found within a second, not after librdkafka's ten.
            "reconnect.backoff.max.ms": 1_000,
            "enable.idempotence": True,
            **self.base,
            **cluster,
            **self.credentials,
        }


def read_settings(config: Mapping[str, Any]) -> ProducerSettings:
    """Check an application's configuration.

    Raises:
        ProducerConfigError: a setting is missing or can't be honoured; the message says what to do.
        TransactionsUnsupportedError: a ``transactional.id`` is given.
        TypeError, ValueError: no mapping, or a callback that can't be called.
    """
    base = dict(config)
    if "bootstrap.servers" in base or "metadata.broker.list" in base:
        raise ProducerConfigError(
            "bootstrap.servers belongs into clusters={region: ...}, one for each region; or leave them to services=[...]"
        )
    if base.get("transactional.id"):
        raise TransactionsUnsupportedError(
            "transactional.id: a transaction can't span regions; leave it out, or use confluent_kafka.Producer"
        )
    if "default.topic.config" in base:
        raise ProducerConfigError("default.topic.config: put its settings beside the others")
    acks = str(_first(base, ("acks", "request.required.acks"), "all"))
    if acks not in {"all", "-1"}:
        raise ProducerConfigError(
            f"acks={acks}: a record that its leader alone acknowledged is lost with that leader; leave the setting out"
        )
    if str(base.get("delivery.report.only.error", "false")).lower() == "true":
        raise ProducerConfigError(
            "delivery.report.only.error: what is acknowledged has to be known here; leave the setting out"
        )
    on_delivery = base.pop("on_delivery", None)
    if on_delivery is not None and not callable(on_delivery):
        raise ProducerConfigError("on_delivery is not callable")
    callbacks = {name: base.pop(name) for name in _CALLBACKS if base.get(name) is not None}
    for name, callback in callbacks.items():
        if not callable(callback):
            raise _CALLBACKS[name](f"expected {name} property as a callable function")
    timeout_ms = _number(base, ("message.timeout.ms", "delivery.timeout.ms"), _MESSAGE_TIMEOUT_MS)
    return ProducerSettings(
        base=base,
        on_delivery=on_delivery,
        callbacks=callbacks,
        message_timeout_ms=timeout_ms or math.inf,
        linger_ms=_number(base, ("linger.ms", "queue.buffering.max.ms"), _LINGER_MS),
        max_messages=int(_number(base, ("queue.buffering.max.messages",), _MAX_MESSAGES)) or 2**31 - 1,
        max_bytes=int(_number(base, ("queue.buffering.max.kbytes",), _MAX_KIBIBYTES)) * 1024,
        max_message_bytes=int(_number(base, ("message.max.bytes",), _MAX_MESSAGE_BYTES)),
    )


def read_clusters(clusters: object) -> dict[str, Config]:
    """The settings of each region's regional cluster.

    Raises:
        ProducerConfigError: no mapping, no address, or a setting that has to be the same everywhere.
    """
    if not isinstance(clusters, Mapping):
        raise ProducerConfigError(f"clusters is a mapping {{region: 'host:port'}}, not {clusters!r}")
    return {region: _cluster(region, value) for region, value in clusters.items()}


def _cluster(region: str, value: object) -> Config:
    if not isinstance(value, str | Mapping):
        raise ProducerConfigError(
            f"clusters[{region!r}] is 'host:port' or a mapping of settings, not {value!r}"
        )
    settings = {"bootstrap.servers": value} if isinstance(value, str) else dict(value)
    if not settings.get("bootstrap.servers"):
        raise ProducerConfigError(f"clusters[{region!r}] names no bootstrap.servers")
    for key in _CLUSTER_MUST_NOT_SET:
        if key in settings:
            raise ProducerConfigError(
                f"clusters[{region!r}] sets {key}, which has to be the same in every region: put it into config"
            )
    return settings


def _first(config: Config, keys: tuple[str, ...], default: Any) -> Any:
    return next((config[key] for key in keys if key in config), default)


def _number(config: Config, keys: tuple[str, ...], default: float) -> float:
    value = _first(config, keys, default)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ProducerConfigError(f"{' or '.join(keys)}: {value!r} is not a number") from None
