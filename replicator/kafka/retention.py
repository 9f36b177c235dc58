"""Asks sources how long they keep records of the topics that are copied."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from parallax.adapters.kafka.topic_settings import SettingsDoor
from parallax.domain.ids import TopicName
from parallax.domain.topic_settings import Settings
from parallax.errors import RefusedError

INTERVAL_S = 30.0
TIMEOUT_MS = 10_000


class RetentionReader:
    """Asks one source; for one thread.

    Args:
        door: the source's settings.
        topics: those to ask about.
        learn: is told after how many milliseconds a topic's records may go; None: time takes none.
    """

    def __init__(
        self,
        door: SettingsDoor,
        topics: Callable[[], Collection[TopicName]],
        learn: Callable[[Mapping[TopicName, int | None]], None],
    ) -> None:
        self._door = door
        self._topics = topics
        self._learn = learn

    def round(self) -> None:
        """Ask once.

        Raises:
            RefusedError: the source does not show settings of all of them.
            ConfigError: it refuses this client.
            ClusterUnavailableError: it did not answer; what it said before still holds.
        """
        seen = self._door.read(self._topics())
        self._learn({topic: retention_of(settings) for topic, settings in seen.topics.items()})
        if seen.refused:
            first = min(seen.refused)
            more = f", and {len(seen.refused) - 1} more" if len(seen.refused) > 1 else ""
            raise RefusedError(f"{seen.refused[first]}{more}: nobody can tell when records are lost there")


def retention_of(settings: Settings) -> int | None:
    """After how long a topic's records may go, ms; None: time takes none."""
    policy, kept = settings.get("cleanup.policy"), settings.get("retention.ms")
    if kept is None or (policy is not None and "delete" not in policy.value.split(",")):
        return None
    return None if int(kept.value) < 0 else int(kept.value)
