"""Parallax: exact offsets across aggregate Kafka clusters.

What an application imports stands here, and comes from its module when it is first named, so that ``import parallax``
loads no Kafka client and no gRPC.
"""

from importlib import import_module
from typing import TYPE_CHECKING

import parallax.moved  # noqa: F401 - answers for old paths
from parallax.errors import (
    ClusterUnavailableError,
    ConfigError,
    DeadlineError,
    FencedError,
    ForbiddenError,
    InvalidNameError,
    InvalidOffsetError,
    InvariantError,
    LimitError,
    MetadataError,
    NotFoundError,
    ParallaxError,
    PartitionStoppedError,
    PlanChangedError,
    PreflightError,
    RefusedError,
    ServiceUnavailableError,
    StoreUnavailableError,
    UnauthenticatedError,
    UnavailableError,
    UnknownGroupError,
    UnknownPartitionError,
    UnknownRegionError,
    UnknownRouteError,
    UnknownTopicError,
    UnreadableRowError,
)

if TYPE_CHECKING:
    from parallax.client.client import OffsetClient, at_cluster, at_region
    from parallax.client.credentials import ServiceCredentials
    from parallax.consumer.aio import AIOFailoverConsumer
    from parallax.consumer.consumer import FailoverConsumer
    from parallax.consumer.errors import (
        ConsumerClosedError,
        ConsumerConfigError,
        GroupMovingError,
        NoStartOffsetError,
        OffsetServiceAwayError,
        StaleMessageError,
    )
    from parallax.consumer.events import EventKind, FailoverEvent, PartitionStart
    from parallax.producer.errors import (
        PartitionCountError,
        ProducerClosedError,
        ProducerConfigError,
        TopicRefusedError,
        TransactionsUnsupportedError,
    )
    from parallax.producer.events import DownReason, ProducerEvent, ProducerEventKind
    from parallax.producer.ledger import ProducerCounts
    from parallax.producer.producer import FailoverProducer
    from parallax.producer.site import DeliveryReport

__all__ = [
    "AIOFailoverConsumer",
    "ClusterUnavailableError",
    "ConfigError",
    "ConsumerClosedError",
    "ConsumerConfigError",
    "DeadlineError",
    "DeliveryReport",
    "DownReason",
    "EventKind",
    "FailoverConsumer",
    "FailoverEvent",
    "FailoverProducer",
    "FencedError",
    "ForbiddenError",
    "GroupMovingError",
    "InvalidNameError",
    "InvalidOffsetError",
    "InvariantError",
    "LimitError",
    "MetadataError",
    "NoStartOffsetError",
    "NotFoundError",
    "OffsetClient",
    "OffsetServiceAwayError",
    "ParallaxError",
    "PartitionCountError",
    "PartitionStart",
    "PartitionStoppedError",
    "PlanChangedError",
    "PreflightError",
    "ProducerClosedError",
    "ProducerConfigError",
    "ProducerCounts",
    "ProducerEvent",
    "ProducerEventKind",
    "RefusedError",
    "ServiceCredentials",
    "ServiceUnavailableError",
    "StaleMessageError",
    "StoreUnavailableError",
    "TopicRefusedError",
    "TransactionsUnsupportedError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnknownGroupError",
    "UnknownPartitionError",
    "UnknownRegionError",
    "UnknownRouteError",
    "UnknownTopicError",
    "UnreadableRowError",
    "__version__",
    "at_cluster",
    "at_region",
]

__version__: str

_LAZY = {
    "parallax.client.client": ("OffsetClient", "at_cluster", "at_region"),
    "parallax.client.credentials": ("ServiceCredentials",),
    "parallax.consumer.aio": ("AIOFailoverConsumer",),
    "parallax.consumer.consumer": ("FailoverConsumer",),
    "parallax.consumer.errors": (
        "ConsumerClosedError",
        "ConsumerConfigError",
        "GroupMovingError",
        "NoStartOffsetError",
        "OffsetServiceAwayError",
        "StaleMessageError",
    ),
    "parallax.consumer.events": ("EventKind", "FailoverEvent", "PartitionStart"),
    "parallax.producer.errors": (
        "PartitionCountError",
        "ProducerClosedError",
        "ProducerConfigError",
        "TopicRefusedError",
        "TransactionsUnsupportedError",
    ),
    "parallax.producer.events": ("DownReason", "ProducerEvent", "ProducerEventKind"),
    "parallax.producer.ledger": ("ProducerCounts",),
    "parallax.producer.producer": ("FailoverProducer",),
    "parallax.producer.site": ("DeliveryReport",),
}
_MODULE_OF = {name: module for module, names in _LAZY.items() for name in names}

if not TYPE_CHECKING:  # else every name would pass the type checker

    def __getattr__(name: str) -> object:
        """A public name that was not used yet."""
        if name == "__version__":
            from importlib.metadata import version  # noqa: PLC0415 - takes longer than all the rest

            value = version("parallax-kafka")
        elif name in _MODULE_OF:
            value = getattr(import_module(_MODULE_OF[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
