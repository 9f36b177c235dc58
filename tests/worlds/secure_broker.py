"""One broker that speaks TLS and every SASL mechanism that can be tried on one machine, and plain text for whoever looks on."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from lab.stack.artifacts import fetch_jars
from lab.stack.class_archive import archive_options
from lab.stack.java import find_java
from lab.stack.kafka_broker import LOG4J2
from lab.stack.settings import QUICK_JVM_OPTIONS, broker_settings
from lab.stack.versions import load_versions
from tests.support import poll_until
from tests.worlds.certificates import Pair
from tests.worlds.replication import free_port
from tests.worlds.token_issuer import AUDIENCE, TokenIssuer

USER, PASSWORD = "parallax", "pa-ss w0rd"
REAUTHENTICATE_MS = 4_000
"""A session lasts no longer: whoever stays has to prove itself again."""
_LOGIN = "org.apache.kafka.common.security"


class SecureBroker:
    """Where it listens."""

    def __init__(self) -> None:
        self.plain, self.sasl, self.mutual, self.controller = (f"127.0.0.1:{free_port()}" for _ in range(4))

    def bootstrap(self, _name: str) -> str:
        """What `shard_harness.Harness` asks a stack for."""
        return self.plain


def _settings(broker: SecureBroker, server: Pair, ca: Path, issuer: TokenIssuer) -> Mapping[str, Any]:
    sasl = "listener.name.secure"
    return broker_settings("aggregate", 1) | {
        "auto.create.topics.enable": "false",
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{broker.controller}",
        "listeners": f"PLAINTEXT://{broker.plain},SECURE://{broker.sasl},MUTUAL://{broker.mutual},CONTROLLER://{broker.controller}",
        "advertised.listeners": f"PLAINTEXT://{broker.plain},SECURE://{broker.sasl},MUTUAL://{broker.mutual}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,MUTUAL:SSL,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": server.both,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ca,
        "listener.name.mutual.ssl.client.auth": "required",
        "connections.max.reauth.ms": REAUTHENTICATE_MS,
        f"{sasl}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{sasl}.plain.sasl.jaas.config": f'{_LOGIN}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
        f"{sasl}.scram-sha-256.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
        f"{sasl}.scram-sha-512.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
        f"{sasl}.oauthbearer.sasl.jaas.config": f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
        f"{sasl}.oauthbearer.sasl.server.callback.handler.class": f"{_LOGIN}.oauthbearer.OAuthBearerValidatorCallbackHandler",
        f"{sasl}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": issuer.jwks.as_uri(),
        f"{sasl}.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
    }


@contextmanager
def secure_broker(directory: Path, server: Pair, ca: Path, issuer: TokenIssuer) -> Iterator[SecureBroker]:
    """A broker that shows a certificate, trusts an authority's clients, and tokens of an issuer."""
    directory.mkdir(parents=True)
    java, jars = find_java(), fetch_jars(load_versions().kafka, find_java(), report=lambda _line: None)
    broker = SecureBroker()
    settings = {**_settings(broker, server, ca, issuer), "log.dirs": directory / "storage"}
    properties, log4j2 = directory / "server.properties", directory / "log4j2.yaml"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    log4j2.write_text(LOG4J2, encoding="utf-8")
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.jwks.as_uri()}"
    java_command = [str(java.executable), "-Xmx320m", *QUICK_JVM_OPTIONS]
    java_command += archive_options(java, jars, report=lambda _line: None)
    java_command += [f"-Dlog4j2.configurationFile={log4j2}", allowed, "-cp", f"{jars}/*"]
    users = [f"{kind}=[name={USER},password={PASSWORD}]" for kind in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
    scram = [part for user in users for part in ("--add-scram", user)]
    format_command = [*java_command, "kafka.tools.StorageTool", "format", "-t", "P" + uuid.uuid4().hex[:21]]
    subprocess.run(
        [*format_command, "-c", str(properties), *scram], check=True, capture_output=True, timeout=120
    )
    log = directory / "broker.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*java_command, "kafka.Kafka", str(properties)], stdout=out, stderr=out, env=dict(os.environ)
        )
        try:
            poll_until(lambda: _answers(broker, process, log), 90, "the secure broker answers")
            yield broker
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(broker: SecureBroker, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text(encoding="utf-8")[-4_000:]
    try:
        AdminClient({"bootstrap.servers": broker.plain, "log_level": 0}).list_topics(timeout=1)
    except KafkaException:
        return False
    return True
