"""Every error that Parallax raises on purpose.

    ParallaxError
    ├── ConfigError                  the configuration is wrong; nothing was started
    ├── InvalidNameError             a name that can't exist (region, cluster, route, topic, group)
    ├── NotFoundError
    │   ├── UnknownRegionError
    │   ├── UnknownRouteError
    │   ├── UnknownTopicError
    │   ├── UnknownPartitionError
    │   └── UnknownGroupError
    ├── InvalidOffsetError           an offset outside of what the partition can hold
    ├── InvariantError               a mapping that contradicts itself; the row is refused
    │   └── UnreadableRowError       a stored row that this release can't read; it is left as it is
    ├── MetadataError                committed metadata that is foreign, damaged or of an unknown version
    ├── UnavailableError             try again later
    │   ├── ClusterUnavailableError  a Kafka cluster did not answer in time
    │   ├── StoreUnavailableError    Cassandra did not answer in time
    │   └── ServiceUnavailableError  no offset service answered in time
    ├── DeadlineError                the caller's deadline passed first
    ├── FencedError                  another owner has taken over; this one stops
    ├── RefusedError                 it could be done, and would do harm or contradict what was decided
    │   └── PlanChangedError         a move would not do any more what was agreed to
    ├── UnauthenticatedError         nobody proved who calls
    ├── ForbiddenError               who calls lacks the right
    ├── PreflightError               source and target don't fit; nothing was copied
    ├── PartitionStoppedError        one partition can't go on; the others do
    └── LimitError                   a request beyond a configured bound

``code`` is the word that gRPC, REST, logs and metrics use for the class.
"""

from __future__ import annotations

from typing import Any, ClassVar


class ParallaxError(Exception):
    """Base of every error that Parallax raises on purpose."""

    code: ClassVar[str] = "INTERNAL"


class ConfigError(ParallaxError):
    """The configuration is wrong: the message names the key, the line and what would be right."""

    code = "CONFIG"


class InvalidNameError(ParallaxError):
    """A name that can't exist."""

    code = "INVALID_NAME"


class NotFoundError(ParallaxError):
    """Something named in the request does not exist."""

    code = "NOT_FOUND"


class UnknownRegionError(NotFoundError):
    """The region or cluster is not configured."""

    code = "UNKNOWN_REGION"


class UnknownRouteError(NotFoundError):
    """No such route is configured."""

    code = "UNKNOWN_ROUTE"


class UnknownTopicError(NotFoundError):
    """The topic exists in none of the clusters asked, and no mapping knows it."""

    code = "UNKNOWN_TOPIC"


class UnknownPartitionError(NotFoundError):
    """The topic has no such partition."""

    code = "UNKNOWN_PARTITION"


class UnknownGroupError(NotFoundError):
    """The group has never committed, and none of our tables knows it."""

    code = "UNKNOWN_GROUP"


class InvalidOffsetError(ParallaxError):
    """An offset outside of what the partition can hold."""

    code = "INVALID_OFFSET"


class InvariantError(ParallaxError):
    """A mapping row that contradicts the rows before it. The message names the invariant by its letter."""

    code = "INVARIANT"


class UnreadableRowError(InvariantError):
    """A stored row that this release can't read, of a newer format or damaged; it is left as it is.

    It concerns its own group or partition alone. The message names table and key, what was found and what to do.
    """

    code = "UNREADABLE_ROW"


class MetadataError(ParallaxError):
    """Committed metadata that is foreign, damaged or of an unknown version; what it says is not used."""

    code = "METADATA"


class UnavailableError(ParallaxError):
    """Something that is needed did not answer; the same call may succeed later."""

    code = "UNAVAILABLE"


class ClusterUnavailableError(UnavailableError):
    """A Kafka cluster did not answer in time."""

    code = "CLUSTER_UNAVAILABLE"


class StoreUnavailableError(UnavailableError):
    """Cassandra did not answer in time."""

    code = "STORE_UNAVAILABLE"


class ServiceUnavailableError(UnavailableError):
    """No offset service answered in time."""

    code = "SERVICE_UNAVAILABLE"


class DeadlineError(ParallaxError):
    """The caller's deadline passed before the answer was there."""

    code = "DEADLINE"


class FencedError(ParallaxError):
    """Another owner has taken over this shard or group; this one must stop, and its work is void."""

    code = "FENCED"


class RefusedError(ParallaxError):
    """What was asked for would do harm or contradicts what was decided; the message says what to do instead."""

    code = "REFUSED"


class PlanChangedError(RefusedError):
    """A move would not do any more what was agreed to; nothing was changed. Plan it again, and look at it."""

    code = "PLAN_CHANGED"
    plan: Any = None
    """The new plan, a `PlannedMove`, where the offset service raises it; its REST passes it on."""


class UnauthenticatedError(ParallaxError):
    """Who calls was not proven: no certificate or token, or one that is not accepted; the message says what is wrong."""

    code = "UNAUTHENTICATED"


class ForbiddenError(ParallaxError):
    """Who calls lacks the right, which the message names; whether what was asked for exists is not told."""

    code = "FORBIDDEN"


class PreflightError(ParallaxError):
    """Source and target don't fit together; nothing was copied."""

    code = "PREFLIGHT"


class PartitionStoppedError(ParallaxError):
    """One partition can't go on (the message says why and what to do); the others do."""

    code = "PARTITION_STOPPED"


class LimitError(ParallaxError):
    """A request beyond a configured bound."""

    code = "LIMIT"
