"""Readiness probes that talk to a server as its clients do.

A probe returns None when the server answered, or else one line about what is missing.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import RoundRobinPolicy
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from lab.stack.ports import HOST

Probe = Callable[[], str | None]

_CONNECT_TIMEOUT_S = 0.5
_ANSWER_TIMEOUT_S = 5.0


def kafka_probe(port: int, broker_id: int, access: Mapping[str, Any]) -> Probe:
    """The broker answers a metadata request, is itself registered in its cluster, and knows a controller.

    Args:
        port: where it listens.
        broker_id: its id.
        access: librdkafka's settings that a client needs to be let in.
    """

    def probe() -> str | None:
        if (problem := port_problem(port)) is not None:
            return problem
        admin = AdminClient({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0, **access})
        try:
            metadata = admin.list_topics(timeout=_ANSWER_TIMEOUT_S)
        except KafkaException as error:
            return f"no metadata yet: {error}"
        if broker_id not in metadata.brokers:
            return f"broker {broker_id} has not joined its cluster yet"
        return None if metadata.controller_id >= 0 else "the cluster has no controller yet"

    return probe


def open_cassandra(port: int) -> Cluster:
    """A driver's cluster for a node that lets everybody in."""
    return Cluster(
        [HOST],
        port=port,
        connect_timeout=_ANSWER_TIMEOUT_S,
        execution_profiles={EXEC_PROFILE_DEFAULT: ExecutionProfile(RoundRobinPolicy())},
        protocol_version=5,
    )


def cassandra_probe(
    port: int, expected_nodes: int, open_node: Callable[[int], Cluster] = open_cassandra
) -> Probe:
    """A driver session opens and sees the expected number of nodes."""

    def probe() -> str | None:
        if (problem := port_problem(port)) is not None:
            return problem
        cluster = open_node(port)
        try:
            session = cluster.connect()
            peers = len(list(session.execute("SELECT peer FROM system.peers_v2")))
        except NoHostAvailable as error:
            return f"no session yet: {error}"
        finally:
            cluster.shutdown()
        return None if peers + 1 >= expected_nodes else f"{peers + 1} of {expected_nodes} nodes have joined"

    return probe


def http_probe(port: int, path: str, tls: Callable[[], ssl.SSLContext] | None = None) -> Probe:
    """A GET of `path` answers 200; with ``tls`` over a connection that it describes, asked each time."""

    def probe() -> str | None:
        connection = (
            http.client.HTTPConnection(HOST, port, timeout=_ANSWER_TIMEOUT_S)
            if tls is None
            else http.client.HTTPSConnection(HOST, port, timeout=_ANSWER_TIMEOUT_S, context=tls())
        )
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read(500).decode("utf-8", errors="replace")
        except (OSError, http.client.HTTPException) as error:
            return f"GET {path}: {error}"
        finally:
            connection.close()
        return None if response.status == HTTPStatus.OK else f"GET {path}: {response.status} {body}"

    return probe


def port_problem(port: int) -> str | None:
    """None when something listens on the port, or else what a connection came to."""
    try:
        with socket.create_connection((HOST, port), timeout=_CONNECT_TIMEOUT_S):
            return None
    except OSError as error:
        return f"port {port}: {error}"
