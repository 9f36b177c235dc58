"""What a target answers when it does not take records: for good, for now, or because another owner has taken over."""

from __future__ import annotations

from dataclasses import dataclass

from kafka.errors import for_code

from parallax.domain.ids import TopicPartition
from parallax.errors import ClusterUnavailableError, ConfigError, FencedError, ParallaxError

TOO_LARGE = 10
_ADVICE = {
    TOO_LARGE: "raise max.message.bytes of the target's topic",
    18: "raise segment.bytes of the target's topic",
    29: "allow the replicator to write to the target's topic",
    32: (
        "widen message.timestamp.before.max.ms and message.timestamp.after.max.ms of the target's topic "
        "(the record meant may be a later one of the same batch)"
    ),
    87: (
        "the target's topic asks for more than the source's (a compacted topic refuses records without key): "
        "change its settings, or exclude the topic (the record meant may be a later one of the same batch)"
    ),
    43: "see the target's topic settings",
    44: "see the target's topic settings",
}
"""What the target says for good: saying it again would not help."""
FENCED = frozenset({47, 90})
"""Invalid producer epoch, producer fenced."""
_NOT_ALLOWED = 53


@dataclass(frozen=True, slots=True)
class Refusal:
    """A batch that the target refused for good.

    Attributes:
        index: how many records of the partition in this transaction were taken before the one refused.
    """

    topic_partition: TopicPartition
    index: int
    code: int
    message: str

    @property
    def reason(self) -> str:
        """What the target said, and what to do."""
        return f"{self.message} ({for_code(self.code).__name__}): {advice(self.code)}"


def is_for_good(code: int) -> bool:
    """Whether the target would refuse the same again."""
    return code in _ADVICE


def advice(code: int) -> str:
    """What to do about a refusal for good."""
    return _ADVICE[code]


def translated(code: int, text: str, transactional_id: str) -> ParallaxError:
    """The error of an answer that is no refusal for good.

    Args:
        code: Kafka's.
        text: what was being done, and what the broker added.
        transactional_id: the writer's, for the message that another owner has it.
    """
    text = f"{text} {for_code(code).__name__} ({code})"
    if code in FENCED:
        return FencedError(f"{text}: another owner has taken over {transactional_id}")
    if code == _NOT_ALLOWED:
        return ConfigError(text)
    return ClusterUnavailableError(text)
