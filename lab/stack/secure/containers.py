"""What the secure variant of compose/ needs from outside of its containers: certificates and passwords, then rights.

Run as ``python -m lab.stack.secure.containers STEP FOLDER``: ``material`` on the host before the first start, the other
steps in containers of their own, which compose.secure.yaml starts in order.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from lab.stack.secure import material as who
from lab.stack.secure.brokers import grant
from lab.stack.secure.material import Material
from lab.stack.secure.store import cassandra_security, create_roles, grant_use
from lab.stack.settings import CASSANDRA_SETTINGS
from lab.stack.spec import StackSpec

INSIDE = Path("/etc/parallax/security")
"""Where each container finds what is its own, and nothing of the others."""
CASSANDRA_ADDRESS = "172.31.77.10"
"""Cassandra tells its clients an address, not a name: its certificate has to hold both."""
_SPEC = StackSpec()
_BROKERS = tuple(cluster.name for cluster in _SPEC.clusters)
PRINCIPALS: Mapping[str, str] = {
    **dict.fromkeys(_BROKERS, who.BROKER),
    "cassandra": "cassandra",
    **dict.fromkeys(("replicator-a", "replicator-b", "syncjob"), who.SPARK),
    **dict.fromkeys(("offsetsvc-a", "offsetsvc-b"), who.OFFSET_SERVICE),
    "schema": who.SCHEMA,
}
"""By the containers that hold a certificate, whose it is."""
_READABLE = 0o644
"""Containers run as users of their own. On the host only the owner may enter the folder above."""


def material_of(folder: Path) -> Material:
    """The material of the containers: brokers go by certificates."""
    return Material(folder.absolute(), mechanism="mtls")


def write_material(folder: Path) -> None:
    """Draw and sign everything; for each container in a folder of its own, and for people on the host in `certificates`."""
    material = material_of(folder)
    clients = {name: name for name in (*who.USERS, *who.CLIENTS)}
    material.prepare({**clients, **PRINCIPALS}, addresses={"cassandra": [CASSANDRA_ADDRESS]})
    for name in PRINCIPALS:
        own = folder / "containers" / name
        own.mkdir(parents=True, exist_ok=True)
        leaf = material.leaf(name)
        files = {"ca.pem": material.ca, "own.crt": leaf.certificate, "own.key": leaf.private_key}
        role = who.SCHEMA if name == "schema" else who.STORE
        for file, source in (
            files | {"own.pem": leaf.both, "password": material.password_file(role)}
        ).items():
            shutil.copyfile(source, own / file)
            (own / file).chmod(_READABLE)
        if name in _BROKERS:
            (own / "client.properties").write_text(_client_properties(), encoding="utf-8")
            (own / "password").unlink()
    _write_cassandra(material, folder / "containers" / "cassandra")


def _client_properties() -> str:
    """How Kafka's own tools reach the broker in whose container they run: for its health check."""
    settings = {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": INSIDE / "own.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": INSIDE / "ca.pem",
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _write_cassandra(material: Material, own: Path) -> None:
    """A whole configuration, for the image sets little of it by variables."""
    (own / "password").unlink()
    data = Path("/var/lib/cassandra")
    settings = CASSANDRA_SETTINGS | {
        "cluster_name": "parallax",
        "listen_address": "cassandra",
        "rpc_address": "0.0.0.0",  # noqa: S104 - of its container
        "broadcast_rpc_address": CASSANDRA_ADDRESS,
        "seed_provider": [
            {
                "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
                "parameters": [{"seeds": "cassandra:7000"}],
            }
        ],
        "data_file_directories": [str(data / "data")],
        **{
            f"{name}_directory": str(data / name)
            for name in ("commitlog", "saved_caches", "hints", "cdc_raw")
        },
    }
    outside = cassandra_security(material, "cassandra")
    text = yaml.safe_dump(settings | outside)
    for path, inside in ((material.leaf("cassandra").both, "own.pem"), (material.ca, "ca.pem")):
        text = text.replace(str(path), str(INSIDE / inside))
    (own / "cassandra.yaml").write_text(text, encoding="utf-8")


def give_rights(folder: Path) -> None:
    """Every user's rights at the brokers."""
    material = material_of(folder)
    for cluster in _SPEC.clusters:
        grant(f"{cluster.name}:9092", cluster.kind, material)


def make_roles(folder: Path) -> None:
    """Cassandra's roles."""
    create_roles(
        9042, material_of(folder), dict.fromkeys(_SPEC.cassandra_nodes.values(), 1), host="cassandra"
    )


def allow_use(folder: Path) -> None:
    """Let the services use the keyspace, which is there now."""
    grant_use(9042, material_of(folder), "parallax", host="cassandra")


STEPS: Mapping[str, Callable[[Path], None]] = {
    "material": write_material,
    "rights": give_rights,
    "roles": make_roles,
    "use": allow_use,
}


def main() -> None:
    """One step."""
    step, folder = sys.argv[1:]
    STEPS[step](Path(folder))


if __name__ == "__main__":
    main()
