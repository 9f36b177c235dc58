"""Asks a cluster over connections of its own, without creating topics, and without the producer's queue in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from parallax.errors import ClusterUnavailableError
from parallax.producer.ports import ClusterTopics
from parallax.producer.site import UNKNOWN_TOPIC, error_of

_CONNECTION = (
    "bootstrap.servers",
    "security.",
    "sasl.",
    "ssl.",
    "enable.ssl.",
    "enable.sasl.",
    "oauth_cb",
    "socket.",
    "broker.",
    "client.",
    "reconnect.",
)
"""Settings of a producer that say how a cluster is reached."""

_GRACE_S = 1.0
"""librdkafka answers a request when its time is over; this is for the thread that says so."""


class KafkaProbe:
    """A probe of a real cluster.

    It asks for metadata as producers do. librdkafka's describe requests would say the same, but abort the process
    when the answer of a cluster that hangs comes just as its time is over.

    Args:
        config: librdkafka settings of a producer.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        settings = {key: value for key, value in config.items() if key.startswith(_CONNECTION)}
        # What a probe finds out is told by its answer; librdkafka's own lines on stderr add nothing.
        self._admin = AdminClient({**settings, "allow.auto.create.topics": False, "log_level": 2})

    def ask(self, topics: Sequence[str], timeout_s: float) -> Callable[[], ClusterTopics]:
        """Ask; see `parallax.producer.ports.Probe`."""
        future: Future[ClusterTopics] = Future()

        def work() -> None:
            try:
                future.set_result(self._ask(topics, time.monotonic() + timeout_s))
            except KafkaException as failure:
                error = ClusterUnavailableError(error_of(failure).str())
                error.__cause__ = failure
                future.set_exception(error)

        def answer() -> ClusterTopics:
            try:
                return future.result(timeout_s + _GRACE_S)
            except TimeoutError as late:
                raise ClusterUnavailableError(f"no answer within {timeout_s + _GRACE_S:.0f} s") from late

        threading.Thread(target=work, name="parallax-producer-probe", daemon=True).start()
        return answer

    def _ask(self, topics: Sequence[str], deadline_s: float) -> ClusterTopics:
        metadata = {} if len(topics) == 1 else self._metadata(None, deadline_s)
        for topic in topics:
            if topic not in metadata:  # a list of all leaves out what this client may not see: ask by name
                metadata |= self._metadata(topic, deadline_s)
        counts: dict[str, int] = {}
        refused: dict[str, str] = {}
        leaderless: set[str] = set()
        for topic in topics:
            error = metadata[topic].error
            if error is None:
                counts[topic] = len(metadata[topic].partitions)
                if any(partition.leader < 0 for partition in metadata[topic].partitions.values()):
                    leaderless.add(topic)
            elif error.code() not in UNKNOWN_TOPIC:
                refused[topic] = error.str()
        return ClusterTopics(counts, frozenset(leaderless), refused)

    def _metadata(self, topic: str | None, deadline_s: float) -> dict[str, Any]:
        left_s = max(0.0, deadline_s - time.monotonic())
        return dict(self._admin.list_topics(topic, left_s).topics)

    def close(self) -> None:
        """Nothing to end by hand: librdkafka ends with the last reference."""
