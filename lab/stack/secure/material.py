"""All secrets of a secure stack, in one folder that only its owner may enter: certificates and passwords.

A password is drawn once and stays, for brokers and Cassandra keep it; certificates are signed anew at each start.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.stack.secure.authority import DEFAULT_LIFE_S, Authority, Leaf, write_secret
from parallax.domain.acls import AclNames, Pattern, Process

BROKER, ADMIN = "broker", "admin"
"""What brokers are to each other, and the lab itself: the only users whom no rule holds back."""
OPERATOR, SPARK, OFFSET_SERVICE, CONSUMER, PRODUCER = "operator", "spark", "offsetsvc", "consumer", "producer"
SCHEMA, STORE = "parallax_schema", "parallax"
"""Roles in Cassandra: who may create the keyspace, and who may use it."""

USERS: Mapping[str, frozenset[Process]] = {
    OPERATOR: frozenset({Process.OPERATOR, Process.DRILL}),
    # One Spark application does both here.
    SPARK: frozenset({Process.REPLICATOR, Process.SYNC_JOB}),
    OFFSET_SERVICE: frozenset({Process.OFFSET_SERVICE}),
    CONSUMER: frozenset({Process.CONSUMER}),
    PRODUCER: frozenset({Process.PRODUCER}),
}
"""The users of Kafka but those two, and what each runs."""

NAMES: Mapping[AclNames, tuple[Pattern, ...]] = {
    AclNames.REPLICATED: (Pattern("*"),),
    AclNames.OWN: (Pattern("parallax.", prefix=True),),
    AclNames.DRILL_TOPIC: (Pattern("parallax-drill"),),
    AclNames.GROUPS: (Pattern("*"),),
    AclNames.DRILL_GROUPS: (Pattern("parallax-drill", prefix=True),),
    AclNames.APPLICATION_TOPICS: (Pattern("*"),),
    AclNames.APPLICATION_GROUPS: (Pattern("*"),),
}
"""A stack to play with does not know what will be called how. A deployment names its topics and groups."""

CLIENTS = (OPERATOR, CONSUMER, PRODUCER, ADMIN)
"""Who shows a certificate of its own at offset services and Cassandra, besides the services."""

_PASSWORD_BYTES = 24
_MECHANISM = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True)
class Material:
    """The folder.

    Attributes:
        directory: `certificates`, `secrets` and `kafka-clients` lie in it.
        life_s: of certificates.
    """

    directory: Path
    life_s: float = DEFAULT_LIFE_S

    @property
    def authority(self) -> Authority:
        """Who signs."""
        return Authority(self.directory / "certificates", life_s=self.life_s)

    @property
    def ca(self) -> Path:
        """The authority's certificate: what everybody trusts."""
        return self.directory / "certificates" / "ca.pem"

    def leaf(self, name: str) -> Leaf:
        """Where the certificate of a process lies."""
        folder = self.directory / "certificates"
        return Leaf(*(folder / f"{name}.{suffix}" for suffix in ("crt", "key", "pem")))

    def password_file(self, user: str) -> Path:
        """The file that holds a user's password and nothing else."""
        return self.directory / "secrets" / user

    def password(self, user: str) -> str:
        """A user's password, drawn when it is first asked for."""
        path = self.password_file(user)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_secret(path, secrets.token_urlsafe(_PASSWORD_BYTES).encode())
        return path.read_text(encoding="ascii")

    def prepare(self, processes: Mapping[str, str]) -> None:
        """Draw what is missing, and sign everything anew.

        Args:
            processes: by each process that shows a certificate, whose it is.
        """
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        authority = self.authority
        for name, principal in processes.items():
            authority.leaf(name, principal=principal)
        for user in (*USERS, BROKER, ADMIN, SCHEMA, STORE):
            self.password(user)
        for user in (*USERS, ADMIN):
            settings = json.dumps(self.client_settings(user), indent=2)
            write_secret(client_file(self.directory, user), settings.encode())

    def client_settings(self, user: str) -> dict[str, Any]:
        """How a librdkafka client of a user connects."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": _MECHANISM,
            "sasl.username": user,
            "sasl.password": self.password(user),
            "ssl.ca.location": str(self.ca),
        }

    def cluster_security(self, user: str) -> dict[str, str]:
        """The same, as the `security` section of a configuration file."""
        return {
            "protocol": "SASL_SSL",
            "sasl_mechanism": _MECHANISM,
            "sasl_username": user,
            "sasl_password_file": str(self.password_file(user)),
            "ssl_ca_location": str(self.ca),
        }

    def secrets(self) -> Iterator[str]:
        """Every password: what must not be seen anywhere."""
        for path in sorted((self.directory / "secrets").iterdir()):
            yield path.read_text(encoding="ascii")


def client_file(directory: Path, user: str) -> Path:
    """Where `Material` keeps what a user's librdkafka clients need."""
    return directory / "kafka-clients" / f"{user}.json"
