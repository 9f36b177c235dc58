"""The long way between two regions: a replication route that gets only so many bytes a second.

On one machine every route is equally short. A client quota of the source cluster (Kafka's own, by client id) holds
one route back as a narrow link between regions would; nothing else on the machine notices.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

from kafka.protocol.admin import AlterClientQuotasRequest

from lab.stack.access import kafka_cluster
from lab.stack.errors import StackError
from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.wire import Connections
from parallax.domain.ids import ClusterName
from parallax.errors import ParallaxError


def reader_of(region: str) -> str:
    """Client id of those who read regional clusters for a region's aggregate cluster: at each, one route."""
    return f"parallax-{region}"


FAR_READER = reader_of("b")
"""At regional-a it is the route from a to b."""

_QUOTA = "consumer_byte_rate"
_TIMEOUT_MS = 30_000
_LARGEST_ANSWER_BYTES = 1024 * 1024


class NarrowLink:
    """Holds back the clients of one id at one cluster.

    Args:
        bootstrap_servers: the cluster that is read.
        client_id: of the readers.
    """

    def __init__(self, bootstrap_servers: str, client_id: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client_id = client_id

    def narrow(self, bytes_per_s: int) -> None:
        """Let them have so many bytes a second from now on.

        Raises:
            StackError: the cluster did not take the quota.
        """
        self._alter(AlterClientQuotasRequest.EntryData.OpData(key=_QUOTA, value=bytes_per_s, remove=False))

    def widen(self) -> None:
        """Let them have all they want again.

        Raises:
            StackError: the cluster did not take it.
        """
        self._alter(AlterClientQuotasRequest.EntryData.OpData(key=_QUOTA, value=0, remove=True))

    def _alter(self, change: Any) -> None:
        entry = AlterClientQuotasRequest.EntryData
        request = AlterClientQuotasRequest(
            entries=[
                entry(
                    entity=[entry.EntityData(entity_type="client-id", entity_name=self._client_id)],
                    ops=[change],
                )
            ],
            validate_only=False,
        )
        doing = f"setting the quota of client {self._client_id!r}"
        try:
            answer = self._ask(request, doing)
        except ParallaxError as error:
            raise StackError(str(error)) from error
        refused = [item.error_message for item in answer.entries if item.error_code]
        if refused:
            raise StackError(f"{doing}: refused: {refused[0]}")

    def _ask(self, request: Any, doing: str) -> Any:
        settings = kafka_cluster(self._bootstrap_servers)
        with closing(EventLoop()) as loop:
            connections = Connections(
                loop,
                ClusterName(self._bootstrap_servers),
                settings,
                client_id="parallax-narrow-link",
                largest_answer_bytes=_LARGEST_ANSWER_BYTES,
                timeout_ms=_TIMEOUT_MS,
            )
            with closing(connections):
                connections.connect()
                return connections.ask(connections.any_node, request, doing)
