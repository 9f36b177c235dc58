"""Brokers that ask who is there: SASL over TLS for clients and each other, mutual TLS for controllers, ACLs for all.

At a listener of its own clients show certificates instead. Whoever is not named has no right
(`allow.everyone.if.no.acl.found=false`). The names of users and their passwords are in the metadata from the first moment
on: the storage tool puts them there when it formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from lab.stack.errors import StackError
from lab.stack.secure.authority import write_secret
from lab.stack.secure.material import ADMIN, BROKER, NAMES, USERS, Material
from lab.stack.secure.tokens import ISSUER_NAME, KAFKA
from lab.stack.settings import ClusterKind
from parallax.domain.acls import Acl, Operation, Resource, acls_of

LISTENER, MUTUAL = "CLIENTS", "MUTUAL"
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")
_SCRAM = tuple(name for name in MECHANISMS if name.startswith("SCRAM"))
_LOGIN = "org.apache.kafka.common.security"
_ITERATIONS = 4096
_ANSWER_S = 30.0

_RESOURCES = {
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.GROUP: ResourceType.GROUP,
    Resource.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS = {
    Operation.READ: AclOperation.READ,
    Operation.WRITE: AclOperation.WRITE,
    Operation.CREATE: AclOperation.CREATE,
    Operation.ALTER: AclOperation.ALTER,
    Operation.DESCRIBE: AclOperation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS: AclOperation.ALTER_CONFIGS,
}


def broker_security(material: Material, broker: str) -> dict[str, str]:
    """What a secure broker's settings say besides its addresses.

    Args:
        material: certificates and passwords.
        broker: the process, whose certificate this is.
    """
    settings = {
        "listener.security.protocol.map": f"{LISTENER}:SASL_SSL,FAR:SASL_SSL,{MUTUAL}:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": LISTENER,
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.mechanism.inter.broker.protocol": _SCRAM[0],
        **broker_certificate(material, broker),
        "listener.name.controller.ssl.client.auth": "required",
        f"listener.name.{MUTUAL.lower()}.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        "super.users": f"User:{ADMIN};User:{BROKER}",
    }
    own = f'username="{BROKER}" password="{material.password(BROKER)}"'
    users = " ".join(f'user_{user}="{material.password(user)}"' for user in (*USERS, ADMIN))
    for name in ("clients", "far"):
        listener = f"listener.name.{name}"
        for mechanism in _SCRAM:
            settings[f"{listener}.{mechanism.lower()}.sasl.jaas.config"] = (
                f"{_LOGIN}.scram.ScramLoginModule required {own};"
            )
        settings[f"{listener}.plain.sasl.jaas.config"] = (
            f"{_LOGIN}.plain.PlainLoginModule required {own} {users};"
        )
        tokens = f"{listener}.oauthbearer.sasl"
        settings |= {
            f"{tokens}.jaas.config": f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
            f"{tokens}.server.callback.handler.class": f"{_LOGIN}.oauthbearer.OAuthBearerValidatorCallbackHandler",
            f"{tokens}.oauthbearer.jwks.endpoint.url": material.signer.public_keys.as_uri(),
            f"{tokens}.oauthbearer.expected.audience": KAFKA,
            f"{tokens}.oauthbearer.expected.issuer": ISSUER_NAME,
        }
    return settings


def broker_certificate(material: Material, broker: str) -> dict[str, str]:
    """What a broker shows on its listeners that speak TLS, and whom it trusts there."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(material.leaf(broker).both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(material.ca),
        "ssl.enabled.protocols": "TLSv1.3,TLSv1.2",
    }


def java_options(material: Material) -> list[str]:
    """What the Java of a secure broker is told: where it may read keys of tokens."""
    return [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={material.signer.public_keys.as_uri()}"]


def format_arguments(material: Material, path: Path) -> list[str]:
    """Arguments of the storage tool that make the users, by way of a file: a command line is for all to see."""
    lines = []
    for user in (BROKER, ADMIN, *USERS):
        for mechanism in _SCRAM:
            secret = f"name={user},password={material.password(user)},iterations={_ITERATIONS}"
            lines += ["--add-scram", f"{mechanism}=[{secret}]"]
    write_secret(path, "".join(f"{line}\n" for line in lines).encode())
    return [f"@{path}"]


def bindings(kind: ClusterKind) -> Iterator[tuple[str, Acl]]:
    """Every right at a cluster of a kind, with the user who has it."""
    for user, processes in USERS.items():
        for acl in acls_of(processes, kind, NAMES):
            yield user, acl


def binding(user: str, acl: Acl) -> AclBinding:
    """A right as Kafka's admin client takes it."""
    pattern = ResourcePatternType.PREFIXED if acl.pattern.prefix else ResourcePatternType.LITERAL
    return AclBinding(
        _RESOURCES[acl.resource],
        acl.pattern.name,
        pattern,
        f"User:{user}",
        "*",
        _OPERATIONS[acl.operation],
        AclPermissionType.ALLOW,
    )


def grant(bootstrap_servers: str, kind: ClusterKind, material: Material) -> int:
    """Give all users their rights at a cluster; what they have already stays. Returns how many rules there are.

    Raises:
        StackError: the cluster did not take them.
    """
    admin = AdminClient(
        {"bootstrap.servers": bootstrap_servers, "log_level": 0, **material.client_settings(ADMIN)}
    )
    rules = [binding(user, acl) for user, acl in bindings(kind)]
    for rule, future in admin.create_acls(rules, request_timeout=_ANSWER_S).items():
        try:
            future.result(timeout=_ANSWER_S + 1)
        except (KafkaException, TimeoutError) as error:
            raise StackError(f"{bootstrap_servers}: {rule} was not granted: {error}") from error
    return len(rules)
