"""What librdkafka's clients need of us: settings, their errors as ours, and care where an answer is not what it seems."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from functools import cache, partial
from typing import Any
from weakref import WeakMethod

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from parallax.adapters.kafka.tokens import TokenSource, token_source
from parallax.config.config import Cluster
from parallax.config.security import Security
from parallax.domain.ids import ClusterName, TopicId
from parallax.errors import (
    ClusterUnavailableError,
    ConfigError,
    FencedError,
    ParallaxError,
    UnknownPartitionError,
    UnknownTopicError,
)

Settings = dict[str, Any]
EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call] # the library leaves it untyped
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call] # as above
BY_CODE: dict[int, type[ParallaxError]] = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: UnknownTopicError,
    KafkaError._UNKNOWN_TOPIC: UnknownTopicError,  # noqa: SLF001 - librdkafka's local codes are named so
    KafkaError._UNKNOWN_PARTITION: UnknownPartitionError,  # noqa: SLF001 - as above
    KafkaError.UNKNOWN_TOPIC_ID: UnknownTopicError,
    KafkaError.UNKNOWN_MEMBER_ID: FencedError,
    KafkaError.NON_EMPTY_GROUP: FencedError,
    KafkaError.ILLEGAL_GENERATION: FencedError,
    KafkaError.REBALANCE_IN_PROGRESS: FencedError,
    KafkaError.FENCED_INSTANCE_ID: FencedError,
    KafkaError.PRODUCER_FENCED: FencedError,
    KafkaError.INVALID_PRODUCER_EPOCH: FencedError,
    KafkaError._FENCED: FencedError,  # noqa: SLF001 - as above
    KafkaError.SASL_AUTHENTICATION_FAILED: ConfigError,
    KafkaError._AUTHENTICATION: ConfigError,  # noqa: SLF001 - as above
    KafkaError.TOPIC_AUTHORIZATION_FAILED: ConfigError,
    KafkaError.GROUP_AUTHORIZATION_FAILED: ConfigError,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: ConfigError,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ConfigError,
}
"""What a code means. Every other code means that the cluster could not serve the call now."""

_OUTDATED = {
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}
DOWN_TIMEOUT_S = 0.5
"""So long a cluster gets whose brokers all refuse connections: a failover is short beside the time-out of a silent
one, and a broker that is about to come back may."""

_HOLDS_S = 1.5
"""librdkafka tries to connect at least once a second (`reconnect.backoff.max.ms`), and tells when that fails."""


def client_settings(cluster: Cluster, *, client_id: str) -> Settings:
    """Address and security of a cluster, in librdkafka's names. Files with secrets are read now.

    Raises:
        ConfigError: a secret can't be read, an issuer refuses to give a token, or this librdkafka lacks the mechanism.
        ClusterUnavailableError: the issuer did not answer.
    """
    security = cluster.security
    settings: Settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "client.id": client_id,
        "security.protocol": security.protocol,
        # What a call could not do is raised by the call; librdkafka's own lines on stderr add nothing.
        "log_level": 2,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        "socket.connection.setup.timeout.ms": 5_000,
    }
    certificate, key = security.ssl_certificate_location, security.ssl_key_location
    optional = {
        "socket.send.buffer.bytes": cluster.socket_send_buffer_bytes,
        "socket.receive.buffer.bytes": cluster.socket_receive_buffer_bytes,
        "ssl.ca.location": security.ssl_ca_location,
        "ssl.certificate.location": certificate,
        "ssl.key.location": certificate if key is None else key,
        "ssl.key.password": security.key_password(),
        "ssl.endpoint.identification.algorithm": None if security.ssl_verify_hostname else "none",
    }
    settings.update({name: value for name, value in optional.items() if value is not None})
    return settings | (_sasl_settings(security) if security.sasl_mechanism else {})


def _sasl_settings(security: Security) -> Settings:
    source = token_source(security)
    if source is not None:
        source.get()  # says what is wrong; librdkafka would wait for 10 s, and then say that there is no token
        return {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": partial(_oauth, source)}
    mechanism = str(security.sasl_mechanism)
    if mechanism == "GSSAPI":
        _check_kerberos()
        # An empty command: tickets are the platform's business, for both clients alike (KRB5_CLIENT_KTNAME, kinit).
        return {
            "sasl.mechanism": mechanism,
            "sasl.kerberos.service.name": security.sasl_kerberos_service_name,
            "sasl.kerberos.kinit.cmd": "",
        }
    optional = {"sasl.username": security.sasl_username, "sasl.password": security.password()}
    return {
        "sasl.mechanism": mechanism,
        **{name: value for name, value in optional.items() if value is not None},
    }


def _oauth(source: TokenSource, _config: str) -> tuple[str, float, str, dict[str, str]]:
    """A token as confluent-kafka takes it; called in a thread of librdkafka's, at 80 % of the last one's life again."""
    token = source.get()
    return token.value, token.expires_at_s, "", dict(token.extensions)


@cache
def _check_kerberos() -> None:
    try:
        AdminClient(
            {
                "bootstrap.servers": "127.0.0.1:1",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "GSSAPI",
                "log_level": 0,
            }
        )
    except KafkaException as error:
        raise ConfigError(
            "security.sasl_mechanism GSSAPI: the librdkafka in confluent-kafka's wheels has no Kerberos; build confluent-kafka "
            f"from source on a librdkafka with libsasl2 ({error.args[0].str()})"
        ) from None


def translated(error: Exception, cluster: ClusterName, doing: str) -> ParallaxError:
    """The error to raise for one of librdkafka's: names the cluster, what was tried, and what came back."""
    inner = error.args[0] if isinstance(error, KafkaException) and error.args else error
    if isinstance(inner, KafkaError):
        kind = BY_CODE.get(inner.code(), ClusterUnavailableError)
        return kind(f"{cluster}: {doing}: {inner.str()} ({inner.name()})")
    return ClusterUnavailableError(f"{cluster}: {doing}: {inner}")


def topic_id(printed: str) -> TopicId:
    """A topic id in Kafka's own spelling (base64 for URLs); librdkafka prints the other alphabet."""
    return TopicId(printed.replace("+", "-").replace("/", "_"))


def list_offsets(
    admin: AdminClient,
    request: Mapping[KafkaPartition, OffsetSpec],
    *,
    isolation_level: IsolationLevel,
    request_timeout: float,
) -> dict[KafkaPartition, Future[Any]]:
    """`AdminClient.list_offsets`, asked again with fresh metadata if the client's own was outdated.

    librdkafka sends the leader epoch that it has cached and doesn't refresh it when the broker refuses it: after a
    broker's restart the same client would fail with FENCED_LEADER_EPOCH for minutes (seen with 2.16).

    A leader that dies while it is asked leaves librdkafka with offset -1001 and no error (seen with 2.16): taken
    for an end, it would say that the log is empty. Such a future fails with _TIMED_OUT here.
    """
    asked = dict(request)
    futures: dict[KafkaPartition, Future[Any]] = admin.list_offsets(
        asked, isolation_level=isolation_level, request_timeout=request_timeout
    )
    wait_for(futures.values(), timeout=request_timeout + 1)
    if any(_outdated(future) for future in futures.values()):
        try:
            admin.list_topics(timeout=request_timeout)
        except KafkaException:  # the cluster is away: the first answers say so well enough
            return _checked(futures)
        futures = admin.list_offsets(asked, isolation_level=isolation_level, request_timeout=request_timeout)
    return _checked(futures)


def _outdated(future: Future[Any]) -> bool:
    error = future.exception() if future.done() else None
    return isinstance(error, KafkaException) and error.args[0].code() in _OUTDATED


def _checked(futures: Mapping[KafkaPartition, Future[Any]]) -> dict[KafkaPartition, Future[Any]]:
    """The same answers, but those without an offset fail."""
    checked: dict[KafkaPartition, Future[Any]] = {}
    for place, future in futures.items():
        checked[place] = Future()
        future.add_done_callback(partial(_pass_on, checked[place]))
    return checked


def _pass_on(to: Future[Any], done: Future[Any]) -> None:
    error = done.exception()
    if error is None and done.result().offset == OFFSET_INVALID:
        why = "the partition's leader went away before it answered"
        error = KafkaException(KafkaError(KafkaError._TIMED_OUT, why))  # noqa: SLF001 - librdkafka's name for it
    if error is None:
        to.set_result(done.result())
    else:
        to.set_exception(error)


class AdminLink:
    """One cluster's admin client, and how long its next call may take.

    A broker that refuses connections would cost every call its whole time-out, although librdkafka knows at
    once. A cluster that is merely silent costs the time-out.

    Args:
        settings: librdkafka's.
        timeout_s: bound of a call.
        clock: seconds, never going back.
    """

    def __init__(
        self, settings: Settings, *, timeout_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.longest_s = timeout_s
        self._clock = clock
        self._down_at_s: float | None = None
        # A client that knew its link would hold threads and connections until the collector looks at objects so old.
        on_error = WeakMethod(self.on_error)

        def tell(error: KafkaError) -> None:
            if (method := on_error()) is not None:
                method(error)

        self.client = AdminClient(
            {**settings, "error_cb": tell}  # type: ignore[dict-item] # the stub knows no callbacks
        )

    def timeout_s(self) -> float:
        """Bound of the next call."""
        self.client.poll(0)
        return min(self.longest_s, DOWN_TIMEOUT_S) if self._is_down() else self.longest_s

    def on_error(self, error: KafkaError) -> None:
        """Take note of what librdkafka tells of connections, while `timeout_s` polls it."""
        lost_all = error.code() == KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 - librdkafka's name for it
        still = error.code() == KafkaError._TRANSPORT and self._is_down()  # noqa: SLF001 - as above
        if lost_all or still:
            self._down_at_s = self._clock()

    def _is_down(self) -> bool:
        return self._down_at_s is not None and self._clock() - self._down_at_s < _HOLDS_S
