"""Connections that carry Kafka's own messages.

kafka-python's public clients open every batch. Its network layer (bootstrap, TLS, SASL, version negotiation) and
its generated messages do not, but they are no public front door: the version is pinned, and this module, `event_loop`
and `transport` alone know its inner parts. Everything runs in the caller's thread, inside `EventLoop.turn`. The batch path
speaks through it (docs/decisions/0007-copy-paths.md), and what the services ask brokers
(docs/decisions/0010-admin-client.md).
"""

from __future__ import annotations

import logging
import socket
import time
import uuid
from base64 import urlsafe_b64decode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import kafka.errors
from kafka.future import Future
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.protocol.metadata import ApiVersionsRequest
from kafka.structs import TopicPartition as KafkaPartition

from parallax.adapters.kafka.addresses import Address, UnresolvedError, is_number, of_number, shared
from parallax.adapters.kafka.event_loop import EventLoop, Timers
from parallax.adapters.kafka.proof import UNWELCOME, ClientProof
from parallax.adapters.kafka.transport import Messages, TlsRefusedError, TlsTransport, Transport
from parallax.config.config import Cluster
from parallax.domain.ids import ClusterName, TopicId, TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError, ConfigError, ParallaxError
from parallax.runtime.deadline import Deadline

# What goes wrong is raised here; kafka-python's own lines would say it a second time, on stderr.
logging.getLogger("kafka").setLevel(logging.CRITICAL)

MOST_IN_FLIGHT = 64
"""Per connection; the paths keep their own, smaller bounds. kafka-python fails a request beyond it."""
_TURN_MS = 20
_SETUP_MS = 2_000
"""So long a broker has for a connection at first, and longer after each failure: with TLS twice that. One that takes
connections and says nothing then leaves time to try another one."""
_UNWELCOME_MS = 5_000
"""So long a broker is left alone that has refused us: passwords and certificates are seldom put right sooner."""
_FRESH_MS = 500
"""So long a connection waits for its broker's present address before it takes the last known one."""


class _Manager(KafkaConnectionManager):  # type: ignore[misc] # as above
    """Builds connections on `Transport` and `TlsTransport`, and has them speak `Messages`."""

    def __init__(self, net: Any, proof: ClientProof, **config: Any) -> None:
        super().__init__(net, **config, **proof.fixed_settings())
        self._proof = proof
        self.unwelcome: dict[Any, Exception] = {}
        """By node: why it does not accept us, or we don't accept it."""
        self.last_error: Exception | None = None
        """What stood in our own way, rather than in a broker's, such as an issuer of tokens that does not answer."""
        self.refusals: dict[Any, bool] = {}
        """By node: whether it refused the last connection, instead of being silent."""
        self.unread = ""
        """What was wrong with the last answer that could not be read."""
        self.every_bootstrap_broker: Callable[[], Sequence[Any]] = self.cluster.bootstrap_brokers
        self.cluster.bootstrap_brokers = self._least_failed

    def _least_failed(self) -> Sequence[Any]:
        """Those of the configured brokers that have failed least: kafka-python tries one by chance, the same perhaps again."""
        brokers = self.every_bootstrap_broker()
        failures = {broker.node_id: self._backoff.get(broker.node_id, (0,))[0] for broker in brokers}
        return [broker for broker in brokers if failures[broker.node_id] == min(failures.values())]

    async def _connect(self, node: Any, conn: Any, **how: Any) -> None:
        made = conn.connection_made

        def connection_made(transport: Any) -> None:
            made(transport)
            conn.parser = Messages(
                client_id=self.config["client_id"],
                receive_message_max_bytes=self.config["receive_message_max_bytes"],
                ident=str(conn.node_id),
            )

        conn.connection_made = connection_made
        conn.net = Timers(self._net)
        self._proof.attend(conn, self._net)
        conn.close_future.add_errback(self._note_unread)
        await super()._connect(node, conn, **how)
        # kafka-python itself would try again at once, for ever.
        error = conn.init_future.exception if conn.init_future.is_done else None
        if isinstance(error, ParallaxError):
            self.last_error = error
        if isinstance(error, UNWELCOME):
            self.unwelcome[node.node_id] = error
            self.update_backoff(node.node_id)
        elif conn.connected:
            self.unwelcome.pop(node.node_id, None)

    def update_backoff(self, node_id: Any) -> Any:
        """Wait before the next attempt: long, where the last one was refused."""
        backoff_ms = super().update_backoff(node_id)
        if node_id in self.unwelcome:
            failures, _, connect_ms = self._backoff[node_id]
            backoff_ms = _UNWELCOME_MS
            self._backoff[node_id] = (failures, time.monotonic() + backoff_ms / 1_000, connect_ms)
        return backoff_ms

    def _note_unread(self, error: BaseException) -> None:
        if isinstance(error, kafka.errors.KafkaProtocolError):
            self.unread = str(error)

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        try:
            transport = await self._transport(node, timeout_at)
        except BaseException as error:
            self.refusals[node.node_id] = isinstance(error, kafka.errors.KafkaConnectionError | OSError)
            raise
        self.refusals[node.node_id] = False
        return transport

    async def _transport(self, node: Any, timeout_at: float | None) -> Any:
        sock = await self._connected(node, timeout_at)
        if not self.ssl_enabled:
            return Transport(self._net, sock, host=node.host)
        try:
            context = self._proof.tls_context()  # anew: certificates may have been renewed
            transport = TlsTransport(self._net, sock, host=node.host, timeout_at=timeout_at, context=context)
        except BaseException:
            sock.close()
            raise
        await transport.handshake()
        return transport

    async def _connected(self, node: Any, timeout_at: float | None) -> Any:
        """A connected socket. kafka-python's own way waits for the resolver, and forgets to close what did not connect."""
        network = KafkaNetSocket()
        problem: Exception = kafka.errors.KafkaConnectionError(f"{node.host} has no address")
        for family, kind, protocol, _, address in await self._addresses(node.host, node.port, timeout_at):
            sock = network.socket(family, kind, protocol)
            try:
                sock.setblocking(False)  # noqa: FBT003 - the socket's own method
                for option in self.config["socket_options"]:
                    sock.setsockopt(*option)
                return await network.sock_connect(self._net, sock, address, timeout_at=timeout_at)
            except (kafka.errors.KafkaError, OSError) as error:
                sock.close()
                problem = error
            except BaseException:
                sock.close()
                raise
        raise problem

    async def _addresses(self, host: str, port: int, timeout_at: float | None) -> Sequence[Address]:
        """The host's addresses: its present ones, or the last known while the resolver is slow or away."""
        if is_number(host):
            return of_number(host, port)
        resolver, net, heard = shared(), self._net, Future()
        patience_ms = _FRESH_MS if resolver.knows(host, port) else self.config["request_timeout_ms"]
        latest = time.monotonic() + patience_ms / 1_000

        def stop_waiting() -> None:
            if not heard.is_done:
                heard.success(None)

        def tell() -> None:
            try:
                net.call_soon_threadsafe(stop_waiting)
            except RuntimeError:  # the loop was closed meanwhile
                return

        resolver.ask(host, port, tell)
        timer = net.call_at(latest if timeout_at is None else min(latest, timeout_at), stop_waiting)
        try:
            await heard
        finally:
            net.cancel(timer)
        try:
            return resolver.known(host, port)
        except UnresolvedError as error:
            kind = kafka.errors.KafkaTimeoutError if error.is_silence else kafka.errors.KafkaConnectionError
            raise kind(str(error)) from error


def topic_uuid(topic_id: TopicId) -> uuid.UUID:
    """The id as messages carry it."""
    return uuid.UUID(bytes=urlsafe_b64decode(topic_id + "=" * (-len(topic_id) % 4)))


def _buffers(settings: Cluster) -> list[tuple[int, int, int]]:
    """Options of a socket, before it is connected: TCP agrees then on how much may be under way."""
    wanted = {
        socket.SO_SNDBUF: settings.socket_send_buffer_bytes,
        socket.SO_RCVBUF: settings.socket_receive_buffer_bytes,
    }
    return [(socket.SOL_SOCKET, option, size) for option, size in wanted.items() if size is not None]


class Connections:
    """Connections to the brokers of one cluster.

    Args:
        loop: turns them.
        cluster: its name, for messages.
        settings: address and security.
        client_id: as brokers log it.
        largest_answer_bytes: a longer answer closes the connection.
        timeout_ms: bound of `connect` and of each request.
    """

    def __init__(
        self,
        loop: EventLoop,
        cluster: ClusterName,
        settings: Cluster,
        *,
        client_id: str,
        largest_answer_bytes: int,
        timeout_ms: int = 10_000,
    ) -> None:
        self._loop = loop
        self.cluster = cluster
        self._timeout_ms = timeout_ms
        security = settings.security
        self._proof = ClientProof(security)
        self._manager = _Manager(
            loop.net,
            self._proof,
            bootstrap_servers=settings.bootstrap_servers.split(","),
            client_id=client_id,
            receive_message_max_bytes=largest_answer_bytes,
            request_timeout_ms=timeout_ms,
            reconnect_backoff_max_ms=1_000,
            socket_connection_setup_timeout_ms=_SETUP_MS
            if security.protocol == "PLAINTEXT"
            else 2 * _SETUP_MS,
            max_in_flight_requests_per_connection=MOST_IN_FLIGHT,
            socket_options=[*KafkaConnectionManager.DEFAULT_CONFIG["socket_options"], *_buffers(settings)],
        )
        self._manager.cluster.config["allow_auto_create_topics"] = False
        self._bootstrap = self._manager.bootstrap_async(None)

    def connect(self, *, timeout_ms: float | None = None) -> None:
        """Turn the loop until a broker has told of the cluster. Without it, that happens in later turns.

        Args:
            timeout_ms: how long; may be called again after that. None: the bound of each request.

        Raises:
            ClusterUnavailableError: no broker answered in time.
            ConfigError: a broker refused the credentials.
        """
        within_ms = timeout_ms or self._timeout_ms
        self._loop.pause(within_ms, lambda: self._bootstrap.is_done or self._all_refuse())
        if self._bootstrap.is_done and self._bootstrap.exception is None:
            return
        if (refused := self._refused()) is not None:
            raise refused
        if self._bootstrap.is_done:
            raise self._translated(self._bootstrap.exception, "connecting")
        last = self._manager.last_error
        raise ClusterUnavailableError(
            f"{self.cluster}: connecting: no answer within {within_ms:.0f} ms{f' (last: {last})' if last else ''}"
        )

    @property
    def problem(self) -> str:
        """Why nothing is known of the cluster yet; empty once something is."""
        if self._bootstrap.is_done and self._bootstrap.exception is None:
            return ""
        last = self._manager.last_error or self._manager.unread
        return str(self._refused() or self._bootstrap.exception or last or "no broker has answered yet")

    @property
    def refused(self) -> bool:
        """Whether every node that was tried refused the last connection to it."""
        return bool(self._manager.refusals) and all(self._manager.refusals.values())

    def _refused(self) -> Exception | None:
        """The error of a broker that does not accept us, or that we don't accept."""
        for broker in self._manager.every_bootstrap_broker():
            error = self._manager.unwelcome.get(broker.node_id)
            if error is not None:
                return self._translated(error, f"connecting to {broker.host}:{broker.port}")
        return None

    def _all_refuse(self) -> bool:
        """Whether waiting is of no use: each configured broker has refused us, or been refused."""
        return all(
            broker.node_id in self._manager.unwelcome for broker in self._manager.every_bootstrap_broker()
        )

    def close(self) -> None:
        """Close all connections at once; what was still to be sent is not."""
        for connection in list(self._manager._conns.values()):  # noqa: SLF001 - its own close() waits for the loop
            if connection.transport is not None:
                connection.transport.abort()
        self._manager.close()

    # --- requests ----------------------------------------------------------------------------------------------

    def send(
        self,
        node: Any,
        request: Any,
        answered: Callable[[Any], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Send now; one of the two is called from inside a turn (``failed`` perhaps at once)."""
        try:
            future = self._sent(node, request)
        except kafka.errors.KafkaError as error:
            failed(error)
            return
        future.add_callback(self._loop.guarded(answered))
        future.add_errback(self._loop.guarded(failed))

    def ask(self, node: Any, request: Any, doing: str, *, timeout_ms: float | None = None) -> Any:
        """Send and turn the loop until the answer is there.

        Raises:
            ClusterUnavailableError: it did not come in time, or the connection was lost.
            ConfigError: a broker refused the credentials.
        """
        try:
            future = self._sent(node, request)
        except (kafka.errors.KafkaError, ParallaxError) as error:
            raise self._translated(error, doing) from error
        return self._wait(future, timeout_ms or self._timeout_ms, doing)

    def _sent(self, node: Any, request: Any) -> Any:
        error = self._manager.unwelcome.get(node)
        if error is not None and self._manager.connection_delay(node) > 0:
            raise error  # rather than that the node is not ready
        return self._manager.send(request, node_id=node)

    def _wait(self, future: Any, timeout_ms: float, doing: str) -> Any:
        self._loop.pause(timeout_ms, lambda: future.is_done)
        if not future.is_done:
            raise ClusterUnavailableError(f"{self.cluster}: {doing}: no answer within {timeout_ms:.0f} ms")
        if future.exception is not None:
            raise self._translated(future.exception, doing) from future.exception
        return future.value

    def _translated(self, error: BaseException, doing: str) -> Exception:
        if isinstance(error, ParallaxError):
            return type(error)(f"{self.cluster}: {doing}: {error}")
        if isinstance(error, TlsRefusedError):
            return ConfigError(f"{self.cluster}: {doing}: {error}")
        if isinstance(error, kafka.errors.SaslAuthenticationFailedError):
            return ConfigError(
                f"{self.cluster}: {doing}: the broker refuses {self._proof.who}: {error}: check security.sasl_* and what the broker "
                "knows of it"
            )
        refused = (*UNWELCOME, kafka.errors.AuthorizationError)
        kind = ConfigError if isinstance(error, refused) else ClusterUnavailableError
        return kind(f"{self.cluster}: {doing}: {error} ({type(error).__name__})")

    # --- metadata ----------------------------------------------------------------------------------------------

    @property
    def any_node(self) -> Any:
        """Some broker."""
        return self._manager.least_loaded_node()

    def leader(self, item: TopicPartition) -> int | None:
        """The partition's leader as last heard; None: not known, or none."""
        node = self._manager.cluster.leader_for_partition(KafkaPartition(str(item.topic), item.partition))
        return None if node is None or node < 0 else int(node)

    def way_to(self, node: int) -> object | None:
        """The connection to a broker, only to be compared: another one after it was lost. None: there is none at the moment."""
        found: object | None = self._manager._conns.get(node)  # noqa: SLF001 - asking for it would make one
        return found

    def leader_epoch(self, item: TopicPartition) -> int:
        """The epoch of that leader; -1: not known."""
        epoch = self._manager.cluster.leader_epoch_for_partition(
            KafkaPartition(str(item.topic), item.partition)
        )
        return -1 if epoch is None else int(epoch)

    def topic_id(self, topic: TopicName) -> uuid.UUID | None:
        """The topic's id as last heard."""
        found: uuid.UUID | None = self._manager.cluster.topic_id(str(topic))
        return found

    def watch(self, topics: Iterable[TopicName]) -> None:
        """Hear of these topics too, from now on."""
        for topic in topics:
            self._manager.cluster.add_topic(str(topic))

    def refresh(self) -> Any:
        """Ask for metadata anew; the result has ``is_done``."""
        return self._manager.cluster.request_update()

    def learn_anew(self, *, timeout_ms: float) -> None:
        """Turn the loop until metadata have been asked for anew, or the time is over. Brokers are not asked without a pause."""
        asked = self.refresh()
        self._loop.pause(timeout_ms, lambda: asked.is_done)

    def learn_leaders(
        self, items: Collection[TopicPartition], *, timeout_ms: float
    ) -> Collection[TopicPartition]:
        """Turn the loop until the leaders are known, or the time is over: those that are not.

        Metadata are asked for anew in any case, so that a later call knows more.
        """
        self.watch({item.topic for item in items})
        deadline = Deadline.after_ms(timeout_ms)
        asked: Any = None
        while True:
            missing = [item for item in items if self.leader(item) is None]
            if missing and (asked is None or asked.is_done):
                asked = self.refresh()
            if not missing or deadline.passed:
                return missing
            self._loop.turn(_TURN_MS)

    def by_leader(self, items: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The partitions by their leaders; those without a known one are left out."""
        found: dict[int, list[TopicPartition]] = {}
        for item in items:
            leader = self.leader(item)
            if leader is not None:
                found.setdefault(leader, []).append(item)
        return found

    def coordinator(self, host: str, port: int, node: int) -> Any:
        """The node by which `send` reaches this coordinator, over a connection of its own."""
        answer = _Coordinator(node, host, port)
        return self._manager.cluster.add_coordinator(answer, 1, f"{host}:{port}")

    def features(self) -> Mapping[str, int]:
        """Finalised feature levels, such as ``transaction.version``."""
        request = ApiVersionsRequest(
            client_software_name="parallax", client_software_version="0", max_version=4, min_version=3
        )
        answer = self.ask(self.any_node, request, "asking for its features")
        return {feature.name: feature.max_version_level for feature in answer.finalized_features or ()}


class _Coordinator:
    """What `ClusterMetadata.add_coordinator` reads of an answer."""

    error_code = 0

    def __init__(self, node_id: int, host: str, port: int) -> None:
        self.node_id, self.host, self.port = node_id, host, port
