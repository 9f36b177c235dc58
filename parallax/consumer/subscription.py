"""What an application subscribes to."""

from __future__ import annotations

from dataclasses import dataclass

from parallax.consumer.ports import Rebalance


@dataclass(frozen=True, slots=True)
class Subscription:
    """What the application subscribed to, with its callbacks."""

    topics: tuple[str, ...]
    on_assign: Rebalance | None = None
    on_revoke: Rebalance | None = None
    on_lost: Rebalance | None = None

    @property
    def plain_topics(self) -> tuple[str, ...]:
        """The topics by name; empty when one of them is a pattern."""
        return () if any(topic.startswith("^") for topic in self.topics) else self.topics
