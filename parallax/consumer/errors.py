"""What a `FailoverConsumer` raises, besides what confluent-kafka raises itself.

ConfigError, ValueError, KafkaException (_INVALID_ARG)
└── ConsumerConfigError      a setting that a failover consumer can't honour; nothing was started
ServiceUnavailableError
└── OffsetServiceAwayError   no offset service answered in time and the policy is to stop
ParallaxError, KafkaException
├── NoStartOffsetError       _AUTO_OFFSET_RESET: a partition has neither a commit nor an answer; the policy is to stop
├── StaleMessageError        ILLEGAL_GENERATION: a message or offset of the cluster before the move was to be committed
└── GroupMovingError         REBALANCE_IN_PROGRESS: the group is being moved, and a call that needs a cluster came between
ParallaxError, RuntimeError
└── ConsumerClosedError      the consumer was closed

An application that catches what `confluent_kafka.Consumer` raises catches these too: such a `KafkaException` has a
`KafkaError` with the code that stands beside it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError

from parallax.client.kafka_error import RaisedAsKafkaError
from parallax.errors import (
    ConfigError,
    DeadlineError,
    ParallaxError,
    ServiceUnavailableError,
    UnavailableError,
)


class ConsumerConfigError(RaisedAsKafkaError, ConfigError, ValueError):
    """A setting that a failover consumer can't honour: the message says which, and what to set instead."""

    kafka_code = KafkaError._INVALID_ARG  # noqa: SLF001 - librdkafka's own code


class OffsetServiceAwayError(ServiceUnavailableError):
    """No offset service answered in time, and ``on_service_away="stop"``."""


class NoStartOffsetError(RaisedAsKafkaError, ParallaxError):
    """A partition has neither a committed offset nor an answer, and the policy is not to guess."""

    code = "NO_START_OFFSET"
    kafka_code = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 - as above


class StaleMessageError(RaisedAsKafkaError, ParallaxError):
    """A commit names a message or an offset of the cluster before the move: it means nothing in the new one."""

    code = "STALE_MESSAGE"
    kafka_code = KafkaError.ILLEGAL_GENERATION


class ConsumerClosedError(ParallaxError, RuntimeError):
    """The consumer was closed; make a new one."""

    code = "CONSUMER_CLOSED"


class GroupMovingError(RaisedAsKafkaError, ParallaxError):
    """The group is being moved and this consumer has left its cluster; `poll` goes on once it has arrived."""

    code = "GROUP_MOVING"
    kafka_code = KafkaError.REBALANCE_IN_PROGRESS


def is_away(error: Exception) -> bool:
    """Whether the error means that no service can answer now, and one may later."""
    return isinstance(error, UnavailableError | DeadlineError)


class Raised:
    """What callbacks have raised inside of librdkafka, for the application's own call to raise."""

    def __init__(self) -> None:
        self._errors: deque[BaseException] = deque()

    def kept_from(self, callback: Callable[..., None]) -> Callable[..., None]:
        """The callback, of which nothing is raised before `throw`."""

        def call(*arguments: Any) -> None:
            try:
                callback(*arguments)
            except BaseException as error:  # noqa: BLE001 - a signal handler's exit would cost the records as well
                self._errors.append(error)

        return call

    def throw(self) -> None:
        """Raise the oldest error that was kept, if there is one."""
        if self._errors:
            raise self._errors.popleft()
