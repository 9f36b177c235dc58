"""A Cassandra that asks who is there: TLS with certificates on both sides, passwords, and roles with least rights.

The role that applies the schema may create keyspaces. The one that services and commands use may read and write what
is in theirs, and no more.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import RoundRobinPolicy

from lab.stack.errors import StackError
from lab.stack.ports import HOST
from lab.stack.secure.material import ADMIN, SCHEMA, STORE, Material

_FIRST = ("cassandra", "cassandra")
"""Cassandra makes this superuser when it first starts; it may not log in any more once there is another one."""
_TIMEOUT_S = 30.0


def cassandra_security(material: Material, node: str) -> dict[str, object]:
    """What a secure node's settings say besides its addresses."""
    stores = {
        "ssl_context_factory": {"class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory"},
        "keystore": str(material.leaf(node).both),
        "truststore": str(material.ca),
        "require_client_auth": True,
        "optional": False,
    }
    return {
        "authenticator": "PasswordAuthenticator",
        "authorizer": "CassandraAuthorizer",
        "role_manager": "CassandraRoleManager",
        "client_encryption_options": {"enabled": True, **stores},
        "server_encryption_options": {"internode_encryption": "all", **stores},
    }


def open_node(port: int, material: Material, host: str = HOST) -> Cluster:
    """A driver's cluster for the superuser: until the roles are made, for the one that Cassandra makes by itself."""
    user, password = (ADMIN, material.password(ADMIN)) if _roles_made(material).exists() else _FIRST
    leaf = material.leaf(ADMIN)
    context = ssl.create_default_context(cafile=str(material.ca))
    context.load_cert_chain(leaf.certificate, leaf.private_key)
    return Cluster(
        [host],
        port=port,
        auth_provider=PlainTextAuthProvider(user, password),
        ssl_context=context,
        ssl_options={"server_hostname": host},
        connect_timeout=_TIMEOUT_S,
        execution_profiles={
            EXEC_PROFILE_DEFAULT: ExecutionProfile(RoundRobinPolicy(), request_timeout=_TIMEOUT_S)
        },
        protocol_version=5,
    )


def create_roles(port: int, material: Material, datacenters: Mapping[str, int], host: str = HOST) -> None:
    """Make the roles; what is there already stays. The superuser that Cassandra came with may not log in any more.

    Args:
        port: of a node.
        material: the roles' passwords.
        datacenters: how often each keeps the roles: where only one node of one had them, losing it would lock all out.
        host: of the node.

    Raises:
        StackError: the store refused.
    """
    copies = "".join(f", '{name}': {count}" for name, count in datacenters.items())
    if not _roles_made(material).exists():
        keep = f"ALTER KEYSPACE system_auth WITH replication = {{'class': 'NetworkTopologyStrategy'{copies}}}"
        _run(port, material, host, [keep, _role(ADMIN, material, "SUPERUSER = true AND LOGIN = true")])
        _roles_made(material).touch()
    then = [
        "ALTER ROLE cassandra WITH SUPERUSER = false AND LOGIN = false",
        _role(SCHEMA, material, "LOGIN = true"),
        f"GRANT CREATE ON ALL KEYSPACES TO {SCHEMA}",
        _role(STORE, material, "LOGIN = true"),
    ]
    _run(port, material, host, then)


def grant_use(port: int, material: Material, keyspace: str, host: str = HOST) -> None:
    """Let services use a keyspace that exists.

    Raises:
        StackError: the store refused.
    """
    rights = [f"GRANT {right} ON KEYSPACE {keyspace} TO {STORE}" for right in ("SELECT", "MODIFY")]
    _run(port, material, host, rights)


def _roles_made(material: Material) -> Path:
    return material.directory / "cassandra-roles-made"


def _role(name: str, material: Material, options: str) -> str:
    return f"CREATE ROLE IF NOT EXISTS {name} WITH PASSWORD = '{material.password(name)}' AND {options}"


def _run(port: int, material: Material, host: str, statements: list[str]) -> None:
    with _shut_down(open_node(port, material, host)) as node:
        try:
            session = node.connect()
            for statement in statements:
                session.execute(statement)
        except Exception as error:  # the driver's errors have no common base that means "refused"
            # Without the statement: it may hold a password.
            raise StackError(f"Cassandra at port {port} did not take its roles: {error}") from error


@contextmanager
def _shut_down(node: Cluster) -> Iterator[Cluster]:
    try:
        yield node
    finally:
        node.shutdown()
