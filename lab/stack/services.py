"""The services of a local stack: their configuration file, their schema, their processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import yaml

from lab.stack.errors import StackError
from lab.stack.java import Java
from lab.stack.layout import SPARK, StackLayout
from lab.stack.ports import HOST
from lab.stack.probes import http_probe
from lab.stack.process import ProcessSpec
from lab.stack.secure.authority import write_secret
from lab.stack.secure.material import SCHEMA
from lab.stack.secure.services import identity, secure_config, tls_of, viewer
from lab.stack.settings import HEAP_TOUCHED
from lab.stack.steering import Steering
from parallax.config.config import load

_SCHEMA_TIMEOUT_S = 300
_SPARK_STOP_WITHIN_S = 20.0
# The `parallax` command, without relying on where pip put its script.
PARALLAX = (sys.executable, "-m", "parallax")


def build_config(layout: StackLayout) -> dict[str, Any]:
    """The configuration (see `parallax.config.config`) that fits a stack."""
    spec = layout.spec
    datacenters = sorted(set(spec.cassandra_nodes.values()))
    config: dict[str, Any] = {
        "regions": {
            region: {
                cluster.section: {"bootstrap_servers": layout.bootstrap(cluster.name)}
                for cluster in spec.clusters
                if cluster.region == region
            }
            | {
                "offsetsvc": {
                    "grpc": layout.grpc_address(region),
                    "rest": layout.rest_address(region),
                },
            }
            for region in spec.regions
        },
        **({} if spec.routes is None else {"routes": list(spec.routes)}),
        "cassandra": {
            "contact_points": [f"{HOST}:{layout.ports[node]}" for node in spec.cassandra_nodes],
            "local_datacenter": next(iter(spec.cassandra_nodes.values())),
            "replication": dict.fromkeys(datacenters, 1),
        },
        "console": {"role": "admin"},  # it is a stack to play with
        "replicator": {
            "status_address": f"{HOST}:{layout.ports[f'{SPARK}/status']}",
            "checkpoint_directory": str(layout.directory / "data" / "spark-checkpoint"),
            # New topics appear all the time on a developer's machine.
            "discovery_interval_ms": 1_000,
            # Each transaction costs all parts some work, and two regions share a few cores here.
            "commit_min_interval_ms": 100,
            "commit_max_interval_ms": 200,
        },
    }
    return merged(merged(config, secure_config(layout)), spec.config)


def write_config(layout: StackLayout) -> None:
    """Write `parallax.yaml` and make sure that it loads.

    Raises:
        ConfigError: The spec's own settings are wrong.
    """
    text = "# Written by the local stack at each start.\n" + yaml.safe_dump(
        build_config(layout), sort_keys=False
    )
    write_secret(layout.config_path, text.encode())
    load(layout.config_path)


def service_environment(layout: StackLayout, java: Java, region: str | None = None) -> dict[str, str]:
    """Environment of services and of `parallax` commands against this stack."""
    environment = dict(os.environ) | {
        "JAVA_HOME": str(java.home),
        "PATH": f"{java.home / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONUNBUFFERED": "1",
    }
    if region is not None and layout.spec.cassandra_per_region:
        environment["PARALLAX__CASSANDRA__LOCAL_DATACENTER"] = region
    if layout.spec.heap_touched:
        environment["JDK_JAVA_OPTIONS"] = HEAP_TOUCHED  # Spark's JVM is started by others
    return environment


def _environment_of(layout: StackLayout, java: Java, name: str, region: str | None = None) -> dict[str, str]:
    """Environment of one service: where the stack is steerable, it sees everything at the other end of a link."""
    environment = service_environment(layout, java, region) | identity(layout, name)
    if not layout.spec.steerable:
        return environment
    for cluster in layout.spec.clusters:
        key = f"PARALLAX__REGIONS__{cluster.region}__{cluster.section}__BOOTSTRAP_SERVERS".upper()
        environment[key] = layout.far_bootstrap(cluster.name)
    points = [f"{HOST}:{layout.ports[f'{node}/far']}" for node in layout.spec.cassandra_nodes]
    environment["PARALLAX__CASSANDRA__CONTACT_POINTS"] = json.dumps(points)
    return environment | Steering(layout.steering_path(name)).environment()


def apply_schema(layout: StackLayout, java: Java) -> None:
    """Create or upgrade the keyspace: `parallax schema apply`.

    Raises:
        StackError: It failed; the message ends with its output.
    """
    command = [*PARALLAX, "schema", "apply", "--config", str(layout.config_path)]
    answer = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SCHEMA_TIMEOUT_S,
        env=service_environment(layout, java) | identity(layout, SCHEMA),
    )
    if answer.returncode != 0:
        raise StackError(
            f"`parallax schema apply` failed (exit code {answer.returncode}):\n{answer.stdout}{answer.stderr}"
        )


def service_specs(layout: StackLayout, java: Java) -> list[ProcessSpec]:
    """Process specs of the services: an offset service per region, one Spark application for the rest."""
    if not layout.spec.services:
        return []
    config = ["--config", str(layout.config_path)]
    specs = [
        ProcessSpec(
            name=f"offsetsvc-{region}",
            command=[*PARALLAX, "serve", *config, "--region", region],
            log=layout.log_path(f"offsetsvc-{region}"),
            probe=http_probe(layout.ports[f"offsetsvc-{region}/rest"], "/readyz", tls_of(layout)),
            environment=_environment_of(layout, java, f"offsetsvc-{region}", region),
        )
        for region in layout.spec.regions
    ]
    regions = [argument for region in layout.spec.receiving for argument in ("--region", region)]
    specs.append(
        ProcessSpec(
            name=SPARK,
            command=[*PARALLAX, "replicate", *config, *regions, "--with-sync"],
            log=layout.log_path(SPARK),
            probe=http_probe(layout.ports[f"{SPARK}/status"], "/readyz", tls_of(layout)),
            environment=_environment_of(layout, java, SPARK),
            stop_within_s=_SPARK_STOP_WITHIN_S,
        )
    )
    return [
        *specs,
        *(_console_spec(layout, java, region) for region in layout.spec.regions if layout.has_consoles),
    ]


def _console_spec(layout: StackLayout, java: Java, region: str) -> ProcessSpec:
    port = layout.ports[f"console-{region}/http"]
    command = [
        "console",
        "--config",
        str(layout.config_path),
        "--region",
        region,
        "--listen",
        f"{HOST}:{port}",
    ]
    return ProcessSpec(
        name=f"console-{region}",
        command=[*PARALLAX, *command],
        log=layout.log_path(f"console-{region}"),
        probe=http_probe(port, "/healthz", None),
        environment=service_environment(layout, java, region) | viewer(layout),
    )


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings, of which the second one outweighs the first."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = (
            merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
        )
    return result
