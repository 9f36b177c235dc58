"""Where everything of a stack is: names, ports, addresses, files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.stack.errors import StackStateError, UnknownProcessError
from lab.stack.ports import HOST
from lab.stack.secure.material import ISSUER, Material
from lab.stack.spec import ClusterSpec, StackSpec

SPARK = "spark"


def default_directory() -> Path:
    """The folder of the stack that commands mean: PARALLAX_STACK_DIR, or build/stack here."""
    return Path(os.environ.get("PARALLAX_STACK_DIR") or Path("build") / "stack").absolute()


def port_names(spec: StackSpec) -> list[str]:
    """Names of all ports that a stack needs."""
    names = []
    for cluster in spec.clusters:
        for broker in cluster.broker_names:
            names += [broker, f"{broker}/controller"]
            if spec.steerable or cluster.name in spec.far:
                names += [f"{broker}/far", f"{broker}/far-listener"]
            if spec.tls:
                names.append(f"{broker}/tls")
            if spec.secure:
                names.append(f"{broker}/mutual")
    for node in spec.cassandra_nodes:
        names += [node, f"{node}/storage"]
        if spec.steerable:
            names.append(f"{node}/far")
    for region in spec.regions:
        names += [f"offsetsvc-{region}/grpc", f"offsetsvc-{region}/rest"]
        if spec.consoles:
            names.append(f"console-{region}/http")
    return [*names, *([ISSUER] if spec.secure else []), f"{SPARK}/status"]


@dataclass(frozen=True, slots=True)
class StackLayout:
    """A stack's names and addresses; says nothing about what is running.

    Attributes:
        spec: What the stack consists of.
        directory: Its folder: `data`, `logs`, `parallax.yaml`, `stack.json`.
        ports: Port by name (see `port_names`).
    """

    spec: StackSpec
    directory: Path
    ports: Mapping[str, int]

    @property
    def config_path(self) -> Path:
        """The configuration file of services and commands that fits this stack."""
        return self.directory / "parallax.yaml"

    def log_path(self, process: str) -> Path:
        """The log of a process."""
        return self.directory / "logs" / f"{process}.log"

    def cluster(self, name: str) -> ClusterSpec:
        """A Kafka cluster by its name.

        Raises:
            UnknownProcessError: There is none of that name.
        """
        clusters = {known: cluster for cluster in self.spec.clusters for known in cluster.names}
        if name not in clusters:
            raise UnknownProcessError(name, sorted(clusters))
        return clusters[name]

    def bootstrap(self, cluster: str) -> str:
        """Bootstrap servers of a cluster, `127.0.0.1:PORT`, comma-separated where it has several brokers.

        Raises:
            UnknownProcessError: There is no cluster of that name.
        """
        listener = "/mutual" if self.spec.mechanism == "mtls" else ""
        return ",".join(
            f"{HOST}:{self.ports[name + listener]}" for name in self.cluster(cluster).broker_names
        )

    def far_bootstrap(self, cluster: str) -> str:
        """The far address of a cluster that has one: where its clients expect a proxy to listen.

        Raises:
            UnknownProcessError: There is no cluster of that name.
        """
        return ",".join(f"{HOST}:{self.ports[f'{name}/far']}" for name in self.cluster(cluster).broker_names)

    def tls_bootstrap(self, cluster: str) -> str:
        """The address where a cluster speaks TLS, of a stack that has both.

        Raises:
            UnknownProcessError: There is no cluster of that name.
        """
        return ",".join(f"{HOST}:{self.ports[f'{name}/tls']}" for name in self.cluster(cluster).broker_names)

    @property
    def link_ports(self) -> dict[str, dict[int, int]]:
        """The links of a steerable stack: by cluster or Cassandra node, the port behind each port where a link listens."""
        if not self.spec.steerable:
            return {}
        ports = self.ports
        links = {
            cluster.name: {
                ports[f"{name}/far"]: ports[f"{name}/far-listener"] for name in cluster.broker_names
            }
            for cluster in self.spec.clusters
        }
        return links | {node: {ports[f"{node}/far"]: ports[node]} for node in self.spec.cassandra_nodes}

    def storage_path(self, node: str) -> Path:
        """What a Kafka broker keeps (a folder for each partition), or a Cassandra node."""
        return self.directory / "data" / node / "storage"

    def steering_path(self, process: str) -> Path:
        """What the clock and the resolver of a service go by (`lab.stack.steering`)."""
        return self.directory / "data" / "steering" / process

    def cassandra_address(self, region: str | None = None) -> str:
        """Host and CQL port of the Cassandra node that a region uses (the first region by default)."""
        node = self.spec.cassandra_node_of(region or self.spec.regions[0])
        return f"{HOST}:{self.ports[node]}"

    def grpc_address(self, region: str) -> str:
        """Host and port of a region's offset service."""
        return f"{HOST}:{self.ports[f'offsetsvc-{region}/grpc']}"

    def rest_url(self, region: str) -> str:
        """Base URL of a region's REST service."""
        return f"{'https' if self.spec.secure else 'http'}://{self.rest_address(region)}"

    def rest_address(self, region: str) -> str:
        """Host and port of a region's REST service."""
        return f"{HOST}:{self.ports[f'offsetsvc-{region}/rest']}"

    def replicator_url(self, region: str) -> str | None:
        """Base URL of the status server of the replicator into a region, one process for all; None: there is none."""
        if not self.spec.services or region not in self.spec.receiving:
            return None
        return f"{'https' if self.spec.secure else 'http'}://{HOST}:{self.ports[f'{SPARK}/status']}"

    def console_url(self, region: str) -> str | None:
        """Base URL of a region's web console; None: there are none."""
        return f"http://{HOST}:{self.ports[f'console-{region}/http']}" if self.has_consoles else None

    @property
    def has_consoles(self) -> bool:
        """Whether each region has a web console."""
        return self.spec.services and self.spec.consoles

    @property
    def material(self) -> Material | None:
        """Certificates and passwords of a secure stack; None: it asks for none."""
        return self._material if self.spec.secure else None

    @property
    def tls_material(self) -> Material | None:
        """Certificates of brokers that speak TLS at another address; None: they don't."""
        return self._material if self.spec.tls else None

    @property
    def _material(self) -> Material:
        spec = self.spec
        return Material(
            self.directory / "security", spec.certificate_life_s, spec.mechanism, self.ports.get(ISSUER, 0)
        )

    @property
    def service_names(self) -> tuple[str, ...]:
        """Process names of the services, in the order of their start; none for a bare infrastructure."""
        if not self.spec.services:
            return ()
        consoles = [f"console-{region}" for region in self.spec.regions] if self.has_consoles else []
        return (*(f"offsetsvc-{region}" for region in self.spec.regions), SPARK, *consoles)

    @property
    def infrastructure_names(self) -> tuple[str, ...]:
        """Process names of brokers and Cassandra nodes, and of a secure stack's issuer of tokens."""
        brokers = [broker for cluster in self.spec.clusters for broker in cluster.broker_names]
        nodes = self.spec.cassandra_nodes if self.spec.store else ()
        return (*brokers, *nodes, *((ISSUER,) if self.spec.secure else ()))

    def resolve(self, name: str) -> tuple[str, ...]:
        """Process names meant by a process, a cluster (`aggregate-a`) or a region (`region-a`).

        Raises:
            UnknownProcessError: It is none of them; the message names the nearest.
        """
        groups: dict[str, tuple[str, ...]] = {
            process: (process,) for process in (*self.infrastructure_names, *self.service_names)
        }
        for cluster in self.spec.clusters:
            groups |= dict.fromkeys(cluster.names, cluster.broker_names)
        for region in self.spec.regions:
            own = [
                broker
                for cluster in self.spec.clusters
                if cluster.region == region
                for broker in cluster.broker_names
            ]
            own += [
                process
                for process in groups
                if process in (f"offsetsvc-{region}", f"console-{region}", f"cassandra-{region}")
            ]
            groups[f"region-{region}"] = tuple(own)
        if name not in groups:
            raise UnknownProcessError(name, sorted(groups))
        return groups[name]

    def regions_status(self) -> dict[str, dict[str, str]]:
        """The `regions` part of `parallax stack status --json`."""
        return {
            region: {
                name.removesuffix(f"-{region}"): self.bootstrap(name)
                for cluster in self.spec.clusters
                if cluster.region == region
                for name in sorted(cluster.names, reverse=True)
            }
            | {
                "grpc": self.grpc_address(region),
                "rest": self.rest_url(region),
                "cassandra": self.cassandra_address(region),
            }
            | {
                name: url
                for name, url in (
                    ("replicator", self.replicator_url(region)),
                    ("console", self.console_url(region)),
                )
                if url is not None
            }
            for region in self.spec.regions
        }

    def save(self) -> None:
        """Write the layout into the stack's folder, for other processes and for the next start."""
        document = {"spec": self.spec.to_json(), "ports": dict(self.ports)}
        write_json(self.directory / "layout.json", document)

    @classmethod
    def load(cls, directory: Path) -> StackLayout:
        """Read what `save` wrote.

        Raises:
            StackStateError: No stack was ever started there.
        """
        path = directory / "layout.json"
        if not path.is_file():
            raise StackStateError(
                f"No stack was started in {directory}. Start one with `parallax stack up --detach`, or name its "
                "folder with --dir or PARALLAX_STACK_DIR."
            )
        document = json.loads(path.read_text(encoding="utf-8"))
        return cls(StackSpec.from_json(document["spec"]), directory, document["ports"])


def write_json(path: Path, document: Mapping[str, Any], mode: int = 0o644) -> None:
    """Replace a JSON file in one step, so that a reader never sees half of it."""
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    draft.touch(mode=mode)
    draft.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    draft.replace(path)
