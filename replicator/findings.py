"""What checks before a start find: each with its gravity, its place and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from parallax.domain.ids import TopicName


class Severity(Enum):
    """How grave a finding is."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Problem(Enum):
    """What a finding is about."""

    TOO_FEW_SLOTS = "TOO_FEW_SLOTS"
    TRANSACTIONS_REFUSED = "TRANSACTIONS_REFUSED"
    CLUSTER_REFUSED = "CLUSTER_REFUSED"
    CLUSTER_UNREACHABLE = "CLUSTER_UNREACHABLE"
    SAME_CLUSTER = "SAME_CLUSTER"
    NOT_REPLICATED_YET = "NOT_REPLICATED_YET"
    CYCLE = "CYCLE"
    TWO_PATHS = "TWO_PATHS"
    NAMING_COLLISION = "NAMING_COLLISION"
    NAME_TOO_LONG = "NAME_TOO_LONG"
    COPIES_NOTHING = "COPIES_NOTHING"
    NO_TOPICS = "NO_TOPICS"
    TOPICS_LEFT_OUT = "TOPICS_LEFT_OUT"
    TOPICS_NOT_ADDED = "TOPICS_NOT_ADDED"
    PARTITION_MISMATCH = "PARTITION_MISMATCH"
    MESSAGES_TOO_LARGE = "MESSAGES_TOO_LARGE"
    TIMESTAMPS_OUT_OF_BOUNDS = "TIMESTAMPS_OUT_OF_BOUNDS"
    TIMESTAMPS_REWRITTEN = "TIMESTAMPS_REWRITTEN"
    RECOMPRESSED = "RECOMPRESSED"
    TARGET_MAY_LOSE = "TARGET_MAY_LOSE"
    RUN_LOG_TOO_SHORT = "RUN_LOG_TOO_SHORT"
    RUN_LOG_MISSING = "RUN_LOG_MISSING"
    RUN_LOG_UNFIT = "RUN_LOG_UNFIT"
    RUN_LOG_REFUSED = "RUN_LOG_REFUSED"
    NO_NEARER_REPLICA = "NO_NEARER_REPLICA"
    STATUS_OUT_OF_REACH = "STATUS_OUT_OF_REACH"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not fit.

    Attributes:
        where: a cluster, a route, or ``route/topic``.
        topic: the only topic that is concerned; None: all of ``where``.
    """

    severity: Severity
    problem: Problem
    where: str
    message: str
    advice: str
    topic: TopicName | None = None

    @property
    def blocks(self) -> bool:
        """Whether nothing may be started because of it."""
        return self.severity is Severity.ERROR

    def to_json(self) -> dict[str, str | None]:
        """The finding as JSON types."""
        return {
            "severity": self.severity.value,
            "problem": self.problem.value,
            "where": self.where,
            "topic": self.topic,
            "message": self.message,
            "advice": self.advice,
        }
