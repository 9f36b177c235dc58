"""Process specs of Kafka brokers: KRaft, controller and broker in one process."""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.stack.errors import StackError
from lab.stack.java import Java
from lab.stack.ports import HOST
from lab.stack.probes import kafka_probe
from lab.stack.process import ProcessSpec
from lab.stack.secure.authority import write_secret
from lab.stack.secure.brokers import (
    LISTENER,
    MUTUAL,
    broker_certificate,
    broker_security,
    format_arguments,
    java_options,
)
from lab.stack.secure.material import ADMIN, Material
from lab.stack.settings import HEAP_TOUCHED, QUICK_JVM_OPTIONS, THROUGHPUT_JVM_OPTIONS, broker_settings
from lab.stack.spec import ClusterSpec, StackSpec

_FORMAT_TIMEOUT_S = 120


_FORMAT_HEAP_MIB = 128


LOG4J2 = """\
Configuration:
  Appenders:
    Console: {name: STDOUT, PatternLayout: {Pattern: "[%d] %p %m (%c)%n"}}
  Loggers:
    Root: {level: WARN, AppenderRef: {ref: STDOUT}}
"""
"""Logging of Kafka's own programs: warnings to standard output. The format's braces are log4j2's own."""


_NEAREST = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def rack_of(broker_id: int) -> str:
    """Each broker of a cluster that has several stands in a rack of its own; readers that name one are sent there."""
    return f"rack-{broker_id}"


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where one broker listens; ids count from 1 in each cluster.

    ``far_port`` is the port of a second listener, advertised as ``far_advertised_port``, ``tls_port`` that of one that speaks
    TLS, ``mutual_port`` that of one where clients show certificates; None: there is none.
    """

    name: str
    broker_id: int
    port: int
    controller_port: int
    far_port: int | None = None
    far_advertised_port: int | None = None
    tls_port: int | None = None
    mutual_port: int | None = None


def broker_specs(
    cluster: ClusterSpec,
    addresses: Sequence[BrokerAddress],
    *,
    spec: StackSpec,
    java: Java,
    jars: Path,
    directory: Path,
    environment: Mapping[str, str],
    class_options: Sequence[str] = (),
    material: Material | None = None,
    tls_material: Material | None = None,
) -> list[ProcessSpec]:
    """Process specs of a cluster's brokers.

    Args:
        cluster: The cluster.
        addresses: One per broker.
        spec: Heap sizes and JVM profile.
        java: Runs them.
        jars: Folder of Kafka's jars.
        directory: The stack's folder; a broker keeps `data/NAME` and `logs/NAME.log` in it.
        environment: Environment of the processes.
        class_options: What `class_archive.archive_options` says of these jars.
        material: Of a secure stack.
        tls_material: Of one whose brokers speak TLS at another address.
    """
    cluster_id = _cluster_id(directory / "data" / f"{cluster.name}.cluster-id")
    quorum = ",".join(f"{address.broker_id}@{HOST}:{address.controller_port}" for address in addresses)
    return [
        _broker_spec(
            cluster,
            address,
            cluster_id=cluster_id,
            quorum=quorum,
            spec=spec,
            java=java,
            jars=jars,
            directory=directory,
            environment=environment,
            class_options=class_options,
            material=material,
            tls_material=tls_material,
        )
        for address in addresses
    ]


def _broker_spec(
    cluster: ClusterSpec,
    address: BrokerAddress,
    *,
    cluster_id: str,
    quorum: str,
    spec: StackSpec,
    java: Java,
    jars: Path,
    directory: Path,
    environment: Mapping[str, str],
    class_options: Sequence[str],
    material: Material | None,
    tls_material: Material | None,
) -> ProcessSpec:
    home = directory / "data" / address.name
    properties = home / "server.properties"
    storage = home / "storage"  # where StackLayout.storage_path says
    settings = broker_settings(cluster.kind, cluster.brokers) | {
        "process.roles": "broker,controller",
        "node.id": str(address.broker_id),
        "controller.quorum.voters": quorum,
        "listeners": f"{LISTENER}://{HOST}:{address.port},CONTROLLER://{HOST}:{address.controller_port}",
        "advertised.listeners": f"{LISTENER}://{HOST}:{address.port}",
        "listener.security.protocol.map": f"{LISTENER}:PLAINTEXT,FAR:PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": LISTENER,
        "log.dirs": str(storage),
    }
    if cluster.brokers > 1:
        settings |= {"broker.rack": rack_of(address.broker_id), "replica.selector.class": _NEAREST}
    if address.far_port is not None:
        settings["listeners"] += f",FAR://{HOST}:{address.far_port}"
        settings["advertised.listeners"] += f",FAR://{HOST}:{address.far_advertised_port}"
    if address.tls_port is not None and tls_material is not None:
        settings["listeners"] += f",TLS://{HOST}:{address.tls_port}"
        settings["advertised.listeners"] += f",TLS://{HOST}:{address.tls_port}"
        settings |= broker_certificate(tls_material, address.name)
    port = address.port
    options: list[str] = []
    access: dict[str, Any] = {}
    if material is not None:
        settings["listeners"] += f",{MUTUAL}://{HOST}:{address.mutual_port}"
        settings["advertised.listeners"] += f",{MUTUAL}://{HOST}:{address.mutual_port}"
        settings |= broker_security(material, address.name)
        options, access = java_options(material), material.client_settings(ADMIN)
        if material.mechanism == "mtls":
            port = address.mutual_port or port
    log4j2 = home / "log4j2.yaml"
    class_path = [*class_options, *options, "-cp", f"{jars}/*"]
    logging = f"-Dlog4j2.configurationFile={log4j2}"

    def prepare() -> None:
        home.mkdir(parents=True, exist_ok=True)
        log4j2.write_text(LOG4J2, encoding="utf-8")
        write_secret(properties, "".join(f"{key}={value}\n" for key, value in settings.items()).encode())
        if (storage / "meta.properties").exists():
            return
        command = [str(java.executable), f"-Xmx{_FORMAT_HEAP_MIB}m", *QUICK_JVM_OPTIONS, logging, *class_path]
        command += ["kafka.tools.StorageTool", "format"]
        command += ["-t", cluster_id, "-c", str(properties)]
        if material is not None:
            command += format_arguments(material, home / "users.txt")
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=_FORMAT_TIMEOUT_S,
            env=dict(environment),
        )
        if answer.returncode != 0:
            raise StackError(
                f"Formatting the storage of {address.name} in {storage} failed: {answer.stdout}{answer.stderr}"
            )

    profile = QUICK_JVM_OPTIONS if spec.jvm == "quick" else THROUGHPUT_JVM_OPTIONS
    heap = [f"-Xms{spec.broker_heap_mib}m", f"-Xmx{spec.broker_heap_mib}m"]
    return ProcessSpec(
        name=address.name,
        command=[
            str(java.executable),
            *heap,
            *profile,
            *([HEAP_TOUCHED] if spec.heap_touched else []),
            logging,
            *class_path,
            "kafka.Kafka",
            str(properties),
        ],
        log=directory / "logs" / f"{address.name}.log",
        probe=kafka_probe(port, address.broker_id, access),
        environment=environment,
        prepare=prepare,
    )


def _cluster_id(path: Path) -> str:
    """The cluster's id, drawn once: all its brokers are formatted with the same one."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # A leading "-" would look like an option to the storage tool: the first character is fixed.
        drawn = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        path.write_text("P" + drawn[1:], encoding="ascii")
    return path.read_text(encoding="ascii")
