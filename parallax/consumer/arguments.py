"""Refuses the arguments that `confluent_kafka.Consumer` refuses, with the same errors."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from parallax.consumer.errors import ConsumerConfigError
from parallax.consumer.ports import Rebalance
from parallax.consumer.settings import Subscription

_MOST_MESSAGES = 1_000_000
"""What one ``consume`` may ask for: librdkafka's bound."""


def check_partition(item: object) -> None:
    """Refuse what is no partition.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(item, TopicPartition):
        raise TypeError(f"expected confluent_kafka.TopicPartition, not {type(item).__name__}")


def check_partitions(items: object) -> None:
    """Refuse what is no list of partitions.

    Raises:
        TypeError: it is something else, or has something else in it.
    """
    if not isinstance(items, list):
        raise TypeError(f"requires list of TopicPartition, not {type(items).__name__}")
    for item in items:
        check_partition(item)


def check_count(num_messages: object) -> None:
    """Refuse a number of messages that can't be fetched in one call.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is out of bounds.
    """
    if not 0 <= operator.index(num_messages) <= _MOST_MESSAGES:  # type: ignore[arg-type] # it tells by raising
        raise ValueError(f"num_messages must be between 0 and {_MOST_MESSAGES}, not {num_messages}")


def check_done(message: object, offsets: object) -> None:
    """Refuse what can't be committed or stored.

    Raises:
        TypeError: something that is neither a message nor a list of partitions.
        ValueError: both are given.
        KafkaException: the message is an error, which has no offset (``_INVALID_ARG``).
    """
    if message is not None and offsets is not None:
        raise ValueError("message and offsets are mutually exclusive")
    if offsets is not None:
        check_partitions(offsets)
    if message is None:
        return
    if not isinstance(message, Message):
        raise TypeError(f"expected confluent_kafka.Message, not {type(message).__name__}")
    error = message.error()
    if error is not None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, f"a message with an error: {error}"))  # noqa: SLF001 - librdkafka's own code


def check_callable(name: str, callback: object) -> None:
    """Refuse a callback that can't be called.

    Raises:
        TypeError: it can't; None is no callback and right.
    """
    if callback is not None and not callable(callback):
        raise TypeError(f"{name} expects a callable, not {type(callback).__name__}")


def subscription_of(
    topics: Sequence[str], on_assign: Rebalance | None, on_revoke: Rebalance | None, on_lost: Rebalance | None
) -> Subscription:
    """What is subscribed to.

    Raises:
        TypeError: the topics are no list, or a callback can't be called.
        ConsumerConfigError: there is no topic.
    """
    callbacks: dict[str, Any] = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
    for name, callback in callbacks.items():
        check_callable(name, callback)
    if not isinstance(topics, list):
        raise TypeError(f"expected list of topics, not {type(topics).__name__}")
    if not topics:
        raise ConsumerConfigError("subscribe needs a topic; unsubscribe() leaves the group")
    return Subscription(tuple(str(topic) for topic in topics), **callbacks)
