"""What a secure stack's configuration says, and what of it each process has for itself: its name and its secrets.

The file is the operator's: whoever runs `parallax failover` with it is known as one. A service is told by its environment
who it is instead.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lab.stack.layout import SPARK, StackLayout
from lab.stack.secure import material as who
from lab.stack.secure.authority import principal_uri
from lab.stack.secure.tokens import ISSUER_NAME, SERVICES


def secure_config(layout: StackLayout) -> dict[str, Any]:
    """What the configuration says besides addresses; nothing for a stack that is not secure."""
    material = layout.material
    if material is None:
        return {}
    security = material.cluster_security(who.OPERATOR)
    spark = material.leaf(SPARK)
    own, service = material.leaf(who.OPERATOR), material.leaf(f"offsetsvc-{layout.spec.regions[0]}")
    return {
        "regions": {
            region: {kind: {"security": dict(security)} for kind in ("regional", "aggregate")}
            for region in layout.spec.regions
        },
        "cassandra": {
            "username": who.STORE,
            "password_file": str(material.password_file(who.STORE)),
            "tls": {"ca": str(material.ca), "certificate": str(own.both)},
        },
        "replicator": {
            "status_tls": {
                "certificate_chain": str(spark.certificate),
                "private_key": str(spark.private_key),
                "ca": str(material.ca),
            },
        },
        "client": material.service_access(who.OPERATOR),
        "service": {
            "tls": {
                "certificate_chain": str(service.certificate),
                "private_key": str(service.private_key),
                **({} if material.shows_tokens else {"client_ca": str(material.ca)}),
            },
            "auth": _auth(material),
        },
    }


def _auth(material: who.Material) -> dict[str, Any]:
    """Who may call offset services, by the name in a token or in a certificate."""
    mode: dict[str, Any] = {"mode": "mtls"}
    if material.shows_tokens:
        jwt = {"issuer": ISSUER_NAME, "audience": SERVICES, "jwks": f"{material.issuer}/jwks.json"}
        mode = {"mode": "jwt", "jwt": jwt | {"jwks_ca": str(material.ca)}}
    rules = [
        {
            "principals": [name if material.shows_tokens else principal_uri(name)],
            "groups": [".*"],
            "allow": [right],
        }
        for name, right in _RIGHTS.items()
    ]
    return mode | {"rules": rules}


_RIGHTS = {
    who.OPERATOR: "administer",
    who.SPARK: "read",
    who.CONSUMER: "report",
    who.PRODUCER: "read",
    who.ADMIN: "read",
}
"""At the offset service: the lab itself only looks on."""


def identity(layout: StackLayout, process: str) -> dict[str, str]:
    """The variables by which a process is itself and not the operator; none where nobody asks.

    Args:
        layout: the stack.
        process: the service, or the role that applies the schema.
    """
    material = layout.material
    if material is None:
        return {}
    if process == who.SCHEMA:
        return {
            "PARALLAX__CASSANDRA__USERNAME": who.SCHEMA,
            "PARALLAX__CASSANDRA__PASSWORD_FILE": str(material.password_file(who.SCHEMA)),
        }
    user = who.SPARK if process == SPARK else who.OFFSET_SERVICE
    operators = dict(_keys(material.cluster_security(who.OPERATOR)))
    found = {
        f"PARALLAX__REGIONS__{region}__{kind}__SECURITY__{key}".upper(): value
        for region in layout.spec.regions
        for kind in ("regional", "aggregate")
        for key, value in _keys(material.cluster_security(user))
        if value != operators[key]
    }
    own = material.leaf(process)
    found["PARALLAX__CASSANDRA__TLS__CERTIFICATE"] = str(own.both)
    found["PARALLAX__SERVICE__TLS__CERTIFICATE_CHAIN"] = str(own.certificate)
    found["PARALLAX__SERVICE__TLS__PRIVATE_KEY"] = str(own.private_key)
    return found | _client(material, process)


def _keys(section: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Every key of a section and of those below it, as variables write them."""
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _keys(value, f"{above}{key}__")
        else:
            yield above + key, value


def viewer(layout: StackLayout) -> dict[str, str]:
    """The variables by which a console asks as somebody who may only look; none where nobody asks."""
    material = layout.material
    if material is None:
        return {}
    return _client(material, who.ADMIN)


def _client(material: who.Material, process: str) -> dict[str, str]:
    """The variables that say what a process shows to offset services."""
    return {
        f"PARALLAX__CLIENT__{key}".upper(): value for key, value in material.service_access(process).items()
    }


def tls_of(layout: StackLayout) -> Callable[[], ssl.SSLContext] | None:
    """How the lab itself connects to services; None: in plain text."""
    material = layout.material
    if material is None:
        return None

    def context() -> ssl.SSLContext:
        leaf = material.leaf(who.ADMIN)
        found = ssl.create_default_context(cafile=str(material.ca))
        found.load_cert_chain(leaf.certificate, leaf.private_key)
        return found

    return context
