"""What a `FailoverProducer` raises or tells, besides what confluent-kafka raises itself.

ConfigError
└── ProducerConfigError           a setting that a failover producer can't honour; nothing was started
RefusedError
└── TransactionsUnsupportedError  a transaction can't span regions
ParallaxError
├── PartitionCountError           two regions hold a topic with different numbers of partitions
├── TopicRefusedError             a region does not let this client see a topic
└── ProducerClosedError           the producer was closed

What `confluent_kafka.Producer` raises in the same place is a base, too: `ProducerConfigError` and
`TransactionsUnsupportedError` are a KafkaException with a KafkaError, `ProducerClosedError` is a RuntimeError.
"""

from __future__ import annotations

from confluent_kafka import KafkaError

from parallax.client.kafka_error import RaisedAsKafkaError
from parallax.errors import ConfigError, ParallaxError, RefusedError


class ProducerConfigError(RaisedAsKafkaError, ConfigError):
    """A setting that a failover producer can't honour: the message says which, and what to set instead."""

    kafka_code = KafkaError._INVALID_ARG  # noqa: SLF001 - librdkafka's own code


class TransactionsUnsupportedError(RaisedAsKafkaError, RefusedError):
    """A transaction lives in one cluster: it can't be moved, and half of it can't be taken back."""

    kafka_code = KafkaError._NOT_CONFIGURED  # noqa: SLF001 - librdkafka's own code


class PartitionCountError(ParallaxError):
    """A topic has another number of partitions there, so that its keys would go to other partitions."""

    code = "PARTITION_COUNT"


class TopicRefusedError(ParallaxError):
    """The cluster answered, and does not let this client see a topic that it produces to."""

    code = "TOPIC_REFUSED"


class ProducerClosedError(ParallaxError, RuntimeError):
    """The producer was closed; make a new one."""

    code = "PRODUCER_CLOSED"
