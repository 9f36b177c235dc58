"""A console at which people sign in, at an issuer on loopback."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from console.command import start
from parallax.config.config import parse
from parallax.domain.ids import RegionName
from tests.worlds.people_issuer import CLIENT, SECRET, PeopleIssuer
from tests.worlds.replication import free_port

ROLES = [
    {"role": "viewer", "members_of": ["staff"]},
    {"role": "admin", "users": ["ada", "bob"], "groups": ["bill.*"]},
]


def starting(stack: ExitStack, issuer: PeopleIssuer, *, target: str = "127.0.0.1:1", **values: Any) -> str:
    """Start a console; its address.

    Args:
        stack: stops it.
        issuer: is told of it.
        target: its offset service.
        values: sections of the configuration; ``oidc`` adds to the console's.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    issuer.registered = (*issuer.registered, f"{url}/signed-in")
    oidc = {"issuer": issuer.url, "client_id": CLIENT, "client_secret": SECRET, "url": url}
    auth = {"mode": "oidc", "oidc": {**oidc, **values.pop("oidc", {})}, "roles": ROLES}
    cluster = {"bootstrap_servers": "127.0.0.1:1"}
    config = parse(
        {
            "regions": {"a": {"aggregate": cluster, "offsetsvc": {"grpc": target}}},
            "cassandra": {"contact_points": ["127.0.0.1"]},
            "console": {"auth": auth},
            **values,
        }
    )
    started = start(config, RegionName("a"), f"127.0.0.1:{port}", stack)
    assert started == url
    return url
