"""How the lab's own clients, and those of its workload, are let in by brokers: whoever runs a secure stack says as whom.

An environment variable names the stack's folder of secrets, for a workload's processes inherit it; without it every
broker takes everybody.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.stack.secure.material import ADMIN, Material, client_file
from parallax.client.client import OffsetClient
from parallax.client.credentials import ServiceCredentials
from parallax.config.config import Cluster

VARIABLE = "PARALLAX_LAB_SECRETS"


def kafka_client(bootstrap_servers: str, user: str = ADMIN) -> dict[str, Any]:
    """The settings of a librdkafka client by which it reaches a cluster.

    Args:
        bootstrap_servers: the cluster.
        user: as whom, where brokers ask.
    """
    address = {"bootstrap.servers": bootstrap_servers}
    if not (folder := os.environ.get(VARIABLE)):
        return dict(address)
    known: dict[str, Any] = json.loads(client_file(Path(folder), user).read_text(encoding="utf-8"))
    return known | address


def kafka_cluster(bootstrap_servers: str) -> Cluster:
    """The same for the product's own clients, as whoever is above the rules."""
    found: dict[str, Any] = {"bootstrap_servers": bootstrap_servers}
    if folder := os.environ.get(VARIABLE):
        found["security"] = Material.load(Path(folder)).cluster_security(ADMIN)
    return Cluster.model_validate(found)


def offset_client(targets: Sequence[str], user: str = ADMIN) -> OffsetClient:
    """A client of offset services; whoever opens it closes it.

    Args:
        targets: their addresses.
        user: as whom, where services ask.
    """
    if not (folder := os.environ.get(VARIABLE)):
        return OffsetClient(targets)
    shown = Material.load(Path(folder)).service_access(user)
    credentials = ServiceCredentials(
        ca=shown["ca"],
        certificate=shown.get("certificate_chain"),
        key=shown.get("private_key"),
        token_file=shown.get("token_file"),
    )
    return OffsetClient(targets, credentials=credentials)


@contextmanager
def let_in(material: Material | None) -> Iterator[None]:
    """From now on this process and those that it starts have what a stack's brokers ask for; None: they ask nothing."""
    before = os.environ.pop(VARIABLE, None)
    if material is not None:
        os.environ[VARIABLE] = str(material.directory)
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        if before is not None:
            os.environ[VARIABLE] = before
