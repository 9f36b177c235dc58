"""How a session of the copy loop ends, and what outlives it: nothing that the run log would have to know."""

from __future__ import annotations

from dataclasses import dataclass, field

from parallax.domain.ids import Lineage, SourceOffset, TopicPartition
from parallax.errors import ParallaxError


class SessionError(ParallaxError):
    """The session can't go on; another one may, from the run log."""

    code = "SESSION"


class PartitionRefusedError(SessionError):
    """The target refused a record for good. The next session stops its partition before it.

    Attributes:
        stop: where and why.
    """

    def __init__(self, stop: Stop) -> None:
        super().__init__(f"{stop.topic_partition}: {stop.reason}")
        self.stop = stop


@dataclass(frozen=True, slots=True)
class Stop:
    """A partition that can't go beyond ``source_next``, for as long as its lineage lasts."""

    topic_partition: TopicPartition
    lineage: Lineage
    source_next: SourceOffset
    reason: str


@dataclass(slots=True)
class Counts:
    """What was committed since the lease began; outlives the session."""

    records: dict[TopicPartition, int] = field(default_factory=dict)
    size_bytes: int = 0
    transactions: int = 0
    aborts: int = 0
    watermarks: int = 0
    bytes_of: dict[TopicPartition, int] = field(default_factory=dict)
