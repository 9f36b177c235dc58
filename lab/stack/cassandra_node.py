"""Process specs of Cassandra nodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from lab.stack.java import Java
from lab.stack.ports import HOST
from lab.stack.probes import cassandra_probe, open_cassandra
from lab.stack.process import ProcessSpec
from lab.stack.secure.material import Material
from lab.stack.secure.store import cassandra_security, open_node
from lab.stack.settings import (
    CASSANDRA_SETTINGS,
    CASSANDRA_SYSTEM_PROPERTIES,
    CASSANDRA_WITHOUT_FLUSHES,
    HEAP_TOUCHED,
    QUICK_JVM_OPTIONS,
    cassandra_module_options,
)
from lab.stack.spec import StackSpec

# Nodes of one machine hear of each other at once; the default of 30 s is for real networks.
_RING_DELAY_OF_SEVERAL_MS = "2000"

_LOGBACK = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>[%date] %level %msg \\(%logger{0}\\)%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""


def cassandra_spec(
    name: str,
    *,
    port: int,
    storage_port: int,
    seed_storage_port: int,
    position: int,
    spec: StackSpec,
    java: Java,
    jars: Path,
    directory: Path,
    environment: Mapping[str, str],
    material: Material | None = None,
) -> ProcessSpec:
    """The process spec of one node.

    Args:
        name: Process name, a key of `spec.cassandra_nodes`.
        port: CQL port.
        storage_port: Port for other nodes.
        seed_storage_port: The seed's port for other nodes (its own for the seed).
        position: Place among the nodes, from 0: node n waits until n + 1 nodes have joined.
        spec: Heap size and datacenters.
        java: Runs it.
        jars: Folder of Cassandra's jars.
        directory: The stack's folder; the node keeps `data/NAME` and `logs/NAME.log` in it.
        environment: Environment of the process.
        material: Of a secure stack.
    """
    home = directory / "data" / name
    conf = home / "conf"
    data = home / "storage"
    settings: dict[str, object] = CASSANDRA_SETTINGS | {
        "cluster_name": "parallax",
        "listen_address": HOST,
        "rpc_address": HOST,
        "native_transport_port": port,
        "storage_port": storage_port,
        "seed_provider": [
            {
                "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
                "parameters": [{"seeds": f"{HOST}:{seed_storage_port}"}],
            }
        ],
        "data_file_directories": [str(data / "data")],
        "commitlog_directory": str(data / "commitlog"),
        "saved_caches_directory": str(data / "saved_caches"),
        "hints_directory": str(data / "hints"),
        "cdc_raw_directory": str(data / "cdc_raw"),
    }
    if material is not None:
        settings |= cassandra_security(material, name)

    def prepare() -> None:
        conf.mkdir(parents=True, exist_ok=True)
        data.mkdir(parents=True, exist_ok=True)
        (conf / "cassandra.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
        (conf / "logback.xml").write_text(_LOGBACK, encoding="utf-8")
        rack = f"dc={spec.cassandra_nodes[name]}\nrack=rack1\n"
        (conf / "cassandra-rackdc.properties").write_text(rack, encoding="utf-8")

    properties = {
        "cassandra.config": f"file://{conf}/cassandra.yaml",
        "cassandra.storagedir": str(data),
        "cassandra.logdir": str(data),
        "cassandra-foreground": "true",
        "java.io.tmpdir": str(data),
        "jdk.attach.allowAttachSelf": "true",
        "logback.configurationFile": "logback.xml",
    }
    properties |= CASSANDRA_SYSTEM_PROPERTIES
    if not spec.schema_kept:
        properties |= CASSANDRA_WITHOUT_FLUSHES
    if len(spec.cassandra_nodes) > 1:
        properties["cassandra.ring_delay_ms"] = _RING_DELAY_OF_SEVERAL_MS
    return ProcessSpec(
        name=name,
        command=[
            str(java.executable),
            f"-Xms{spec.cassandra_heap_mib}m",
            f"-Xmx{spec.cassandra_heap_mib}m",
            *QUICK_JVM_OPTIONS,
            *([HEAP_TOUCHED] if spec.heap_touched else []),
            *cassandra_module_options(),
            *(f"-D{key}={value}" for key, value in properties.items()),
            "-cp",
            f"{conf}:{jars}/*",
            "org.apache.cassandra.service.CassandraDaemon",
        ],
        log=directory / "logs" / f"{name}.log",
        probe=cassandra_probe(
            port,
            position + 1,
            open_cassandra if material is None else lambda port: open_node(port, material),
        ),
        environment=environment,
        prepare=prepare,
    )
