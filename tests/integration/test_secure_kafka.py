"""Every SASL mechanism that can be tried on one machine, over TLS, by both Kafka clients; and every way to be refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from parallax.adapters.kafka import tokens
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.librdkafka import client_settings
from parallax.adapters.kafka.wire import Connections
from parallax.config.config import Cluster, Config
from parallax.domain.ids import ClusterName, TopicName
from parallax.errors import ClusterUnavailableError, ConfigError
from replicator.kafka.topics import TopicAdmin
from tests.support import poll_until, unique_name
from tests.worlds.certificates import Authority, Pair, tls_server
from tests.worlds.secure_broker import PASSWORD, REAUTHENTICATE_MS, USER, SecureBroker, secure_broker
from tests.worlds.shard_harness import Harness, content
from tests.worlds.token_issuer import CLIENT, SECRET, TokenIssuer

pytestmark = pytest.mark.stack

NAME = ClusterName("aggregate-b")
OPENS = "opens it"
PATIENCE_MS = 60_000
"""So long a broker may take to answer while the machine is busy; one that refuses is not waited for."""
AWAY_MS = 10_000
"""So long somebody is waited for who is away."""
LIBRDKAFKA_S = 10.0
"""So long librdkafka waits where it is refused; after it our own connections ask for the reason."""
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "mutual TLS"]


@dataclass(frozen=True)
class World:
    source: SecureBroker
    target: SecureBroker
    authority: Authority
    client: Pair
    issuer: TokenIssuer
    directory: Path

    def file(self, name: str, content: str) -> str:
        path = self.directory / name
        path.write_text(content + "\n", encoding="utf-8")
        return str(path)

    def security(self, mechanism: str) -> dict[str, Any]:
        """Settings that are accepted."""
        ca = {"ssl_ca_location": str(self.authority.certificate)}
        if mechanism == "mutual TLS":
            opens = self.file("key-password", OPENS)
            shown = {
                "ssl_certificate_location": str(self.client.certificate),
                "ssl_key_location": str(self.client.key),
            }
            return ca | shown | {"protocol": "SSL", "ssl_key_password_file": opens}
        sasl = ca | {"protocol": "SASL_SSL", "sasl_mechanism": mechanism}
        if mechanism == "OAUTHBEARER":
            client = {"client_id": CLIENT, "client_secret_file": self.file("client-secret", SECRET)}
            return sasl | {"sasl_oauth": client | {"token_endpoint": self.issuer.url, "scope": "kafka"}}
        return sasl | {"sasl_username": USER, "sasl_password_file": self.file("password", PASSWORD)}

    def cluster(self, broker: SecureBroker, mechanism: str, **changed: Any) -> Cluster:
        address = broker.mutual if mechanism == "mutual TLS" else broker.sasl
        security = self.security(mechanism) | changed
        return Cluster.model_validate({"bootstrap_servers": address, "security": security})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("secure")
    authority = Authority(directory)
    server, client = authority.pair("server"), authority.pair("client", password=OPENS)
    with ExitStack() as stack:
        issuer = stack.enter_context(TokenIssuer(directory))
        source, target = (
            stack.enter_context(secure_broker(directory / name, server, authority.certificate, issuer))
            for name in ("source", "target")
        )
        yield World(source, target, authority, client, issuer, directory)


@pytest.fixture(autouse=True)
def _no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_sources", {})


class SecureHarness(Harness):
    """A route whose copier speaks to secure listeners; who makes topics and looks on does not."""

    def __init__(self, world: World, topic: str, copy_path: str, mechanism: str) -> None:
        super().__init__(world.source, topic, copy_path)  # type: ignore[arg-type] # as much of a stack as is used
        other = Harness(world.target, topic, copy_path)  # type: ignore[arg-type] # as above
        self.target, self.target_admin = other.target, other.target_admin
        self._clusters = [world.cluster(broker, mechanism) for broker in (world.source, world.target)]

    def config(self, **replicator: Any) -> Config:
        config = super().config(**replicator)
        source, target = self._clusters
        regions = {
            self.route.source: config.regions[self.route.source].model_copy(update={"regional": source}),
            self.route.target: config.regions[self.route.target].model_copy(update={"aggregate": target}),
        }
        return config.model_copy(update={"regions": regions})


@pytest.mark.parametrize("copy_path", ["batch", "record"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_records_are_copied(world: World, mechanism: str, copy_path: str) -> None:
    harness = SecureHarness(world, unique_name("copied"), copy_path, mechanism)
    harness.create(2)
    harness.produce([f"v{number}" for number in range(50)])

    assert harness.copy_now().records == 50
    assert content(harness.target, harness.topic) == content(harness.source, harness.topic)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_cluster_is_asked_and_read(world: World, mechanism: str) -> None:
    harness = Harness(world.target, unique_name("read"))  # type: ignore[arg-type] # as above
    harness.create(1)
    harness.produce(["one", "two"])
    settings = world.cluster(world.target, mechanism)
    topic = TopicName(harness.topic)

    assert topic in KafkaCluster(NAME, settings, timeout_ms=PATIENCE_MS).topics()
    assert topic in TopicAdmin(NAME, settings, timeout_ms=PATIENCE_MS).configs([topic])
    with closing(
        Consumer(
            {
                **client_settings(settings, client_id="t"),
                "group.id": harness.topic,
                "auto.offset.reset": "earliest",
            }
        )
    ) as consumer:
        consumer.subscribe([harness.topic])
        read = [message.value() for message in consumer.consume(2, timeout=30)]
    assert read == [b"one", b"two"]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
def test_a_connection_outlives_its_session(
    world: World, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker closes connections that have not proved themselves again in time (KIP-368)."""
    monkeypatch.setattr(world.issuer, "life_s", 6)
    asked = len(world.issuer.asked)
    loop = EventLoop()
    connections = Connections(
        loop, NAME, world.cluster(world.target, mechanism), client_id="t", largest_answer_bytes=1_000_000
    )
    with closing(loop), closing(connections):
        connections.connect()
        connections.features()
        transports = {node: conn.transport for node, conn in connections._manager._conns.items()}
        assert transports
        ends_at = time.monotonic() + 2.5 * REAUTHENTICATE_MS / 1_000
        while time.monotonic() < ends_at:
            loop.turn(50)
            connections.features()
        assert {node: conn.transport for node, conn in connections._manager._conns.items()} == transports
    if mechanism == "OAUTHBEARER":
        assert len(world.issuer.asked) - asked in {2, 3, 4}  # one at first, and one for each of its lives


@contextmanager
def connected(settings: Cluster) -> Iterator[Callable[[], dict[str, object]]]:
    """Asks over the batch path's connections, and says which ones they are."""
    loop = EventLoop()
    connections = Connections(loop, NAME, settings, client_id="t", largest_answer_bytes=1_000_000)

    def ask() -> dict[str, object]:
        loop.turn(50)
        connections.features()
        return {node: conn.transport for node, conn in connections._manager._conns.items()}

    with closing(loop), closing(connections):
        connections.connect()
        yield ask


def tell_password(broker: SecureBroker, user: str, password: str) -> None:
    """What `kafka-configs.sh --alter --entity-type users` does."""
    admin = AdminClient({"bootstrap.servers": broker.plain, "log_level": 0})
    told = UserScramCredentialUpsertion(
        user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096), password.encode()
    )
    for future in admin.alter_user_scram_credentials([told]).values():
        future.result(timeout=20)


def test_a_password_changes_under_load_without_a_failed_call(world: World, tmp_path: Path) -> None:
    """Connections that stand prove themselves again by the new one, and new ones begin with it."""
    for attempt in range(5):
        user, file = unique_name("rotated"), tmp_path / f"password-{attempt}"
        file.write_text("the old one\n", encoding="utf-8")
        tell_password(world.target, user, "the old one")
        settings = world.cluster(
            world.target, "SCRAM-SHA-512", sasl_username=user, sasl_password_file=str(file)
        )
        poll_until(partial(is_welcome, settings), 20, "the broker knows the user")
        began = time.monotonic()
        with connected(settings) as ask:
            first = ask()
            tell_password(world.target, user, "the new one")
            newer = tmp_path / "newer"
            newer.write_text("the new one\n", encoding="utf-8")
            newer.replace(file)
            if time.monotonic() - began > REAUTHENTICATE_MS / 2_000:
                continue  # it may have had to prove itself between the two: as the page says, that is refused
            while time.monotonic() < began + 2.5 * REAUTHENTICATE_MS / 1_000:
                assert ask() == first
            by_the_batch_path(settings)
        old = world.cluster(
            world.target,
            "SCRAM-SHA-512",
            sasl_username=user,
            sasl_password_file=world.file("old", "the old one"),
        )
        with pytest.raises(ConfigError, match=r"security\.sasl"):
            by_the_batch_path(old)
        return
    pytest.fail("this machine never changed a password within half a session")


def is_welcome(settings: Cluster) -> bool:
    try:
        by_the_batch_path(settings)
    except ConfigError:
        return False
    return True


def test_each_new_connection_shows_the_certificate_of_now(world: World, tmp_path: Path) -> None:
    shown, foreign = world.authority.pair("shown"), Authority(tmp_path).pair("foreign")
    settings = world.cluster(
        world.target,
        "mutual TLS",
        ssl_certificate_location=str(shown.certificate),
        ssl_key_location=str(shown.key),
        ssl_key_password_file=None,
    )

    def show(pair: Pair) -> None:
        shown.key.write_bytes(pair.key.read_bytes())
        shown.certificate.write_bytes(pair.certificate.read_bytes())

    with connected(settings) as ask:
        first = ask()
        show(foreign)
        assert ask() == first
        with pytest.raises(ConfigError, match="refuses our certificate"):
            by_the_batch_path(settings)
        show(world.authority.pair("second"))
        by_the_batch_path(settings)
        assert ask() == first


def by_the_batch_path(settings: Cluster, timeout_ms: int = PATIENCE_MS) -> None:
    loop = EventLoop()
    connections = Connections(
        loop, NAME, settings, client_id="t", largest_answer_bytes=1_000_000, timeout_ms=timeout_ms
    )
    with closing(loop), closing(connections):
        connections.connect()


def by_librdkafka(settings: Cluster, timeout_ms: int = PATIENCE_MS) -> None:
    admin = TopicAdmin(NAME, settings, timeout_ms=timeout_ms)
    admin._link.longest_s = LIBRDKAFKA_S
    admin.configs([TopicName("t")])


def by_links(settings: Cluster, timeout_ms: int = PATIENCE_MS) -> None:
    KafkaCluster(NAME, settings, timeout_ms=timeout_ms).topics()


@pytest.fixture(params=[by_the_batch_path, by_librdkafka, by_links])
def connect(request: pytest.FixtureRequest) -> Callable[..., None]:
    found: Callable[..., None] = request.param
    return found


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_named_at_once(
    world: World, connect: Callable[..., None], mechanism: str
) -> None:
    wrong = world.cluster(world.target, mechanism, sasl_password_file=world.file("wrong", "hunter2"))
    began = time.monotonic()
    with pytest.raises(ConfigError, match=r"aggregate-b: .*parallax.*security\.sasl") as caught:
        connect(wrong)
    assert "hunter2" not in str(caught.value)
    assert time.monotonic() - began < (25 if connect is by_librdkafka else 8)


def test_a_token_of_another_issuer_is_refused(
    world: World, connect: Callable[..., None], tmp_path: Path
) -> None:
    with TokenIssuer(tmp_path) as foreign:
        settings = replace(world, issuer=foreign).cluster(world.target, "OAUTHBEARER")
        with pytest.raises(ConfigError, match=r"aggregate-b: .*parallax"):
            connect(settings)


def test_a_client_that_the_issuer_refuses_is_named(world: World, connect: Callable[..., None]) -> None:
    settings = world.cluster(world.target, "OAUTHBEARER")
    oauth = settings.security.sasl_oauth
    assert oauth is not None
    wrong = oauth.model_copy(update={"client_secret_file": world.file("wrong", "hunter2")})
    security = settings.security.model_copy(update={"sasl_oauth": wrong})
    with pytest.raises(ConfigError, match="refuses client 'parallax': HTTP 401 invalid_client") as caught:
        connect(settings.model_copy(update={"security": security}))
    assert "hunter2" not in str(caught.value)


def test_an_issuer_that_is_away_is_not_our_mistake(world: World, connect: Callable[..., None]) -> None:
    settings = world.cluster(world.target, "OAUTHBEARER")
    oauth = settings.security.sasl_oauth
    assert oauth is not None
    away = oauth.model_copy(update={"token_endpoint": "http://127.0.0.1:1/"})
    security = settings.security.model_copy(update={"sasl_oauth": away})
    with pytest.raises(
        ClusterUnavailableError, match=r"token endpoint http://127\.0\.0\.1:1/: did not answer"
    ):
        connect(settings.model_copy(update={"security": security}), timeout_ms=AWAY_MS)


def test_a_broker_of_another_authority_is_not_trusted(
    world: World, connect: Callable[..., None], tmp_path: Path
) -> None:
    foreign = str(Authority(tmp_path).certificate)
    with pytest.raises(ConfigError, match=r"aggregate-b: .*not signed by an authority that is trusted here"):
        connect(world.cluster(world.target, "PLAIN", ssl_ca_location=foreign))


@pytest.mark.parametrize("shown", [None, "foreign"])
def test_a_broker_that_wants_another_certificate_says_so(
    world: World, connect: Callable[..., None], tmp_path: Path, shown: str | None
) -> None:
    pair = Authority(tmp_path).pair("client")
    files = {"ssl_certificate_location": str(pair.certificate), "ssl_key_location": str(pair.key)}
    changed = dict.fromkeys(files) if shown is None else files
    with pytest.raises(ConfigError, match=r"aggregate-b: .*refuses our certificate"):
        connect(world.cluster(world.target, "mutual TLS", **changed, ssl_key_password_file=None))


def test_another_name_is_another_broker(world: World, connect: Callable[..., None]) -> None:
    """The certificate is for 127.0.0.1."""
    port = world.target.sasl.rpartition(":")[2]
    settings = world.cluster(world.target, "PLAIN").model_copy(
        update={"bootstrap_servers": f"localhost:{port}"}
    )
    with pytest.raises(ConfigError, match=r"aggregate-b: .*for another name"):
        connect(settings)

    security = settings.security.model_copy(update={"ssl_verify_hostname": False})
    connect(settings.model_copy(update={"security": security}))


def test_an_expired_certificate_is_named(world: World, connect: Callable[..., None]) -> None:
    with tls_server(world.authority.pair("expired", life=timedelta(hours=-1))) as address:
        settings = world.cluster(world.target, "PLAIN").model_copy(update={"bootstrap_servers": address})
        with pytest.raises(ConfigError, match=r"aggregate-b: .*has expired"):
            connect(settings)
