"""What a `FailoverConsumer` raises, besides what confluent-kafka raises itself.

ConfigError
└── ConsumerConfigError      a setting that a failover consumer can't honour; nothing was started
ServiceUnavailableError
└── OffsetServiceAwayError   no offset service answered in time and the policy is to stop
ParallaxError
├── NoStartOffsetError       a partition has neither a commit nor an answer, and the policy is to stop
├── StaleMessageError        a message or offset of the cluster before the move was given to commit
├── ConsumerClosedError      the consumer was closed
└── GroupMovingError         the group is being moved: a call that needs a cluster came in between
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from parallax.errors import ConfigError, ParallaxError, ServiceUnavailableError


class ConsumerConfigError(ConfigError):
    """A setting that a failover consumer can't honour: the message says which, and what to set instead."""


class OffsetServiceAwayError(ServiceUnavailableError):
    """No offset service answered in time, and ``on_service_away="stop"``."""


class NoStartOffsetError(ParallaxError):
    """A partition has neither a committed offset nor an answer, and the policy is not to guess."""

    code = "NO_START_OFFSET"


class StaleMessageError(ParallaxError):
    """A commit names a message or an offset of the cluster before the move: it means nothing in the new one."""

    code = "STALE_MESSAGE"


class ConsumerClosedError(ParallaxError):
    """The consumer was closed; make a new one."""

    code = "CONSUMER_CLOSED"


class GroupMovingError(ParallaxError):
    """The group is being moved and this consumer has left its cluster; `poll` goes on once it has arrived."""

    code = "GROUP_MOVING"


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
