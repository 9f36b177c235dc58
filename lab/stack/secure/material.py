"""All secrets of a secure stack, in one folder that only its owner may enter: certificates, passwords and tokens.

A password is drawn once and stays, for brokers and Cassandra keep it; certificates and tokens are signed anew at each start.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from lab.stack.ports import HOST
from lab.stack.secure.authority import DEFAULT_LIFE_S, Authority, Leaf, write_secret
from lab.stack.secure.tokens import KAFKA, SERVICES, Signer
from parallax.domain.acls import AclNames, Pattern, Process

BROKER, ADMIN = "broker", "admin"
"""What brokers are to each other, and the lab itself: the only users whom no rule holds back."""
OPERATOR, SPARK, OFFSET_SERVICE, CONSUMER, PRODUCER = "operator", "spark", "offsetsvc", "consumer", "producer"
ISSUER = "issuer"
"""The process that gives tokens."""
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
    AclNames.CANARY_TOPIC: (Pattern("parallax-canary"),),
    AclNames.GROUPS: (Pattern("*"),),
    AclNames.DRILL_GROUPS: (Pattern("parallax-drill", prefix=True),),
    AclNames.APPLICATION_TOPICS: (Pattern("*"),),
    AclNames.APPLICATION_GROUPS: (Pattern("*"),),
}
"""A stack to play with does not know what will be called how. A deployment names its topics and groups."""

CLIENTS = (OPERATOR, CONSUMER, PRODUCER, ADMIN)
"""Who shows a certificate of its own at offset services and Cassandra, besides the services."""

Mechanism = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER", "mtls"]
"""How users prove to brokers who they are, in Kafka's words: by a password, a token of the issuer, or (`mtls`) a certificate."""
MECHANISM: Mechanism = "SCRAM-SHA-512"

_PASSWORD_BYTES = 24


@dataclass(frozen=True, slots=True)
class Material:
    """The folder.

    Attributes:
        directory: `certificates`, `secrets`, `tokens`, `issuer` and `kafka-clients` lie in it.
        life_s: of certificates, and of the tokens in `tokens`.
        mechanism: how users prove to brokers who they are. With `OAUTHBEARER` they show tokens to offset services too,
            and certificates otherwise.
        issuer_port: where the issuer of tokens listens.
    """

    directory: Path
    life_s: float = DEFAULT_LIFE_S
    mechanism: Mechanism = MECHANISM
    issuer_port: int = 0

    @classmethod
    def load(cls, directory: Path) -> Material:
        """The folder as it was prepared."""
        return cls(directory, **json.loads((directory / "material.json").read_text(encoding="utf-8")))

    @property
    def authority(self) -> Authority:
        """Who signs."""
        return Authority(self.directory / "certificates", life_s=self.life_s)

    @property
    def ca(self) -> Path:
        """The authority's certificate: what everybody trusts."""
        return self.directory / "certificates" / "ca.pem"

    @property
    def signer(self) -> Signer:
        """Who signs tokens."""
        return Signer(self.directory / "issuer")

    @property
    def issuer(self) -> str:
        """The issuer's address."""
        return f"https://{HOST}:{self.issuer_port}"

    @property
    def shows_tokens(self) -> bool:
        """Whether offset services take tokens, and no certificates."""
        return self.mechanism == "OAUTHBEARER"

    def leaf(self, name: str) -> Leaf:
        """Where the certificate of a process lies."""
        folder = self.directory / "certificates"
        return Leaf(*(folder / f"{name}.{suffix}" for suffix in ("crt", "key", "pem")))

    def password_file(self, user: str) -> Path:
        """The file that holds a user's password and nothing else."""
        return self.directory / "secrets" / user

    def token_file(self, process: str) -> Path:
        """The file that holds what a process shows to offset services."""
        return self.directory / "tokens" / process

    def password(self, user: str) -> str:
        """A user's password, drawn when it is first asked for."""
        path = self.password_file(user)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_secret(path, secrets.token_urlsafe(_PASSWORD_BYTES).encode())
        return path.read_text(encoding="ascii")

    def prepare(
        self, processes: Mapping[str, str], addresses: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """Draw what is missing, and sign everything anew.

        Args:
            processes: by each process that shows a certificate, whose it is.
            addresses: by process, where it is found besides this machine.
        """
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        told = {name: value for name, value in asdict(self).items() if name != "directory"}
        write_secret(self.directory / "material.json", json.dumps(told).encode())
        authority, signer = self.authority, self.signer
        for name, principal in processes.items():
            authority.leaf(name, principal=principal, addresses=(addresses or {}).get(name, ()))
            write_secret(self.token_file(name), signer.token(principal, SERVICES, self.life_s).encode())
        for user in (*USERS, BROKER, ADMIN, SCHEMA, STORE):
            self.password(user)
        for user in (*USERS, ADMIN):
            settings = json.dumps(self.client_settings(user), indent=2)
            write_secret(client_file(self.directory, user), settings.encode())

    def client_settings(self, user: str) -> dict[str, Any]:
        """How a librdkafka client of a user connects."""
        trust = {"ssl.ca.location": str(self.ca)}
        if self.mechanism == "mtls":
            leaf = self.leaf(user)
            shown = {
                "ssl.certificate.location": str(leaf.certificate),
                "ssl.key.location": str(leaf.private_key),
            }
            return {"security.protocol": "SSL"} | trust | shown
        sasl = {"security.protocol": "SASL_SSL", "sasl.mechanism": self.mechanism} | trust
        if self.mechanism != "OAUTHBEARER":
            return sasl | {"sasl.username": user, "sasl.password": self.password(user)}
        return sasl | {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": user,
            "sasl.oauthbearer.client.secret": self.password(user),
            "sasl.oauthbearer.scope": KAFKA,
            "sasl.oauthbearer.token.endpoint.url": f"{self.issuer}/token",
            "https.ca.location": str(self.ca),
        }

    def cluster_security(self, user: str) -> dict[str, Any]:
        """The same, as the `security` section of a configuration file."""
        trust = {"ssl_ca_location": str(self.ca)}
        if self.mechanism == "mtls":
            leaf = self.leaf(user)
            shown = {
                "ssl_certificate_location": str(leaf.certificate),
                "ssl_key_location": str(leaf.private_key),
            }
            return {"protocol": "SSL"} | trust | shown
        sasl: dict[str, Any] = {"protocol": "SASL_SSL", "sasl_mechanism": self.mechanism} | trust
        secret = str(self.password_file(user))
        if self.mechanism != "OAUTHBEARER":
            return sasl | {"sasl_username": user, "sasl_password_file": secret}
        oauth = {
            "token_endpoint": f"{self.issuer}/token",
            "client_id": user,
            "client_secret_file": secret,
            "scope": KAFKA,
            "ca_location": str(self.ca),
        }
        return sasl | {"sasl_oauth": oauth}

    def service_access(self, process: str) -> dict[str, str]:
        """What a process shows to offset services, as the `client` section of a configuration file."""
        trust = {"ca": str(self.ca)}
        if self.shows_tokens:
            return trust | {"token_file": str(self.token_file(process))}
        leaf = self.leaf(process)
        return trust | {"certificate_chain": str(leaf.certificate), "private_key": str(leaf.private_key)}

    def secrets(self) -> Iterator[str]:
        """Every password: what must not be seen anywhere."""
        for path in sorted((self.directory / "secrets").iterdir()):
            yield path.read_text(encoding="ascii")


def client_file(directory: Path, user: str) -> Path:
    """Where `Material` keeps what a user's librdkafka clients need."""
    return directory / "kafka-clients" / f"{user}.json"
