"""Making a stack secure, from outside: its material before anything starts, its rights once brokers and Cassandra answer."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from lab.stack.layout import StackLayout
from lab.stack.probes import http_probe
from lab.stack.process import ProcessSpec
from lab.stack.secure import material as who
from lab.stack.secure.brokers import grant
from lab.stack.secure.services import tls_of
from lab.stack.secure.store import create_roles, grant_use
from parallax.config.config import load


def prepare_material(layout: StackLayout) -> None:
    """Draw and sign what a secure stack needs, and certificates alone where brokers just speak TLS."""
    processes = {broker: who.BROKER for cluster in layout.spec.clusters for broker in cluster.broker_names}
    if layout.tls_material is not None:
        for broker, principal in processes.items():
            layout.tls_material.authority.leaf(broker, principal=principal)
    if layout.material is None:
        return
    processes |= {node: node for node in layout.spec.cassandra_nodes}
    processes |= {f"offsetsvc-{region}": who.OFFSET_SERVICE for region in layout.spec.regions}
    layout.material.prepare(processes | {name: name for name in (*who.USERS, *who.CLIENTS, who.ISSUER)})


def issuer_specs(layout: StackLayout, environment: Mapping[str, str]) -> list[ProcessSpec]:
    """The issuer of tokens, of a secure stack."""
    if layout.material is None:
        return []
    port = layout.ports[who.ISSUER]
    program = [sys.executable, "-m", "lab.stack.secure.issuer", str(layout.material.directory), str(port)]
    probe = http_probe(port, "/jwks.json", tls_of(layout))
    return [ProcessSpec(who.ISSUER, program, layout.log_path(who.ISSUER), probe, environment)]


def grant_rights(layout: StackLayout) -> int:
    """Make Cassandra's roles, if it is there, and give every user of Kafka what it needs; how many rules there are at brokers.

    Raises:
        StackError: somebody refused.
    """
    if layout.material is None:
        return 0
    if layout.spec.store:
        nodes = layout.spec.cassandra_nodes
        create_roles(
            layout.ports[next(iter(nodes))], layout.material, dict.fromkeys(sorted(set(nodes.values())), 1)
        )
    return sum(
        grant(layout.bootstrap(cluster.name), cluster.kind, layout.material)
        for cluster in layout.spec.clusters
    )


def grant_store(layout: StackLayout) -> None:
    """Let services use the keyspace, once it is there; nothing for a stack that is not secure.

    Raises:
        StackError: Cassandra refused.
    """
    if layout.material is not None:
        grant_use(
            layout.ports[next(iter(layout.spec.cassandra_nodes))],
            layout.material,
            load(layout.config_path).cassandra.keyspace,
        )
