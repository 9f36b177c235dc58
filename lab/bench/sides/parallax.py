"""Parallax as its users run it: `parallax replicate`, with the project's defaults."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from lab.bench import BenchError
from lab.stack.ports import HOST, is_free
from lab.stack.probes import http_probe
from lab.stack.process import ProcessSpec
from lab.stack.services import PARALLAX, build_config, service_environment
from lab.stack.stack import LocalStack
from parallax.config.config import load

_STOP_WITHIN_S = 20.0
_STATUS_TIMEOUT_S = 2.0
_PREPARED_WITHIN_S = 600.0


def write_config(
    path: Path,
    stack: LocalStack,
    *,
    topics: tuple[str, ...],
    routes: tuple[str, ...],
    settings: Mapping[str, Any],
    bootstrap: Mapping[str, str],
    authority: Path | None = None,
    groups: tuple[str, ...] = (),
    both_roles: bool = False,
) -> None:
    """Write the configuration of one run.

    Args:
        path: of the file.
        stack: the brokers and Cassandra.
        topics: what is copied.
        routes: ``a->b``.
        settings: of the section `replicator`, over the project's defaults.
        bootstrap: another address of clusters, by cluster name.
        authority: who signs the certificates of all clusters; None: plain text.
        groups: those that are cared for, as regular expressions; none: all.
        both_roles: region a's regional cluster becomes that of a region ``one``, its aggregate cluster that of a region
            ``two``, and producers may write to either. Other names, for the run logs on these clusters go by them.
    """
    config = build_config(stack.layout)
    # Only where things are; all else is what a user gets by default.
    config["replicator"] = {"status_address": config["replicator"]["status_address"], **settings}
    config["topics"] = {"include": [topic.replace(".", r"\.") for topic in topics]}
    config["routes"] = list(routes)
    if groups:
        config["groups"] = {"include": list(groups)}
    for cluster, address in bootstrap.items():
        kind, _, region = cluster.partition("-")
        config["regions"][region][kind]["bootstrap_servers"] = address
    if authority is not None:
        for region in config["regions"].values():
            for kind in ("regional", "aggregate"):
                region[kind]["security"] = {"protocol": "SSL", "ssl_ca_location": str(authority)}
    if both_roles:
        of = config["regions"]["a"]
        config["regions"] = {
            region: {"cluster": of[kind]} for region, kind in (("one", "regional"), ("two", "aggregate"))
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    load(path)


def replicate_spec(
    name: str,
    stack: LocalStack,
    config: Path,
    regions: tuple[str, ...],
    *,
    cache: Path,
    with_sync: bool = False,
) -> ProcessSpec:
    """The process spec of one `parallax replicate`.

    Args:
        name: of the process and its log.
        stack: the brokers and Cassandra.
        config: the configuration file.
        regions: target regions.
        cache: where it looks for Spark's classes.
        with_sync: publish groups' offsets too.
    """
    chosen = [argument for region in regions for argument in ("--region", region)]
    return ProcessSpec(
        name=name,
        command=[
            *(*PARALLAX, "replicate", "--config", str(config), *chosen, "--json"),
            *(["--with-sync"] if with_sync else []),
        ],
        log=config.with_name(f"{name}.log"),
        probe=lambda: None,
        environment=_environment(stack, cache),
        stop_within_s=_STOP_WITHIN_S,
    )


def prepare_spark(stack: LocalStack, cache: Path) -> None:
    """`parallax spark prepare` into a cache, if it has not been done.

    Raises:
        BenchError: it failed; the message has its last words.
    """
    run_command([*PARALLAX, "spark", "prepare"], _environment(stack, cache), _PREPARED_WITHIN_S)


def run_command(command: Sequence[str], environment: Mapping[str, str], within_s: float) -> None:
    """Let a command of Parallax's end by itself.

    Raises:
        BenchError: it failed; the message has its last words.
    """
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
        timeout=within_s,
    )
    if done.returncode:
        raise BenchError(f"{' '.join(command)} failed ({done.returncode}): {done.stderr[-2_000:]}")


def _environment(stack: LocalStack, cache: Path) -> dict[str, str]:
    return service_environment(stack.layout, stack.java) | {"PARALLAX_CACHE": str(cache)}


def service_spec(
    stack: LocalStack, config: Path, region: str, *, prefix: tuple[str, ...] = ()
) -> ProcessSpec:
    """The process spec of a region's offset service; ``prefix`` is a command that becomes it."""
    layout, name = stack.layout, f"offsetsvc-{region}"
    return ProcessSpec(
        name=name,
        command=[*prefix, *PARALLAX, "serve", "--config", str(config), "--region", region],
        log=config.with_name(f"{name}.log"),
        probe=http_probe(layout.ports[f"{name}/rest"], "/readyz"),
        environment=service_environment(layout, stack.java, region),
    )


def console_spec(stack: LocalStack, config: Path, region: str) -> tuple[ProcessSpec, str]:
    """The process spec of a region's console, and its URL."""
    layout, name = stack.layout, f"console-{region}"
    port = next(port for port in range(layout.ports[f"offsetsvc-{region}/rest"] + 1, 65_536) if is_free(port))
    listen = f"{HOST}:{port}"
    spec = ProcessSpec(
        name=name,
        command=[*PARALLAX, "console", "--config", str(config), "--region", region, "--listen", listen],
        log=config.with_name(f"{name}.log"),
        probe=http_probe(port, "/healthz"),
        environment=service_environment(layout, stack.java, region),
    )
    return spec, f"http://{listen}"


def failover_command(
    config: Path, origin: str, target: str, *, disaster: bool, execute: bool = True
) -> list[str]:
    """The command that moves every group of a region, or plans it; its results go to standard output as JSON."""
    steps = ["--execute" if execute else "--dry-run", *(["--disaster"] if disaster else [])]
    arguments = ["--region", origin, "--to", target, *steps]
    return [*PARALLAX, "failover", *arguments, "--config", str(config), "--json"]


def lease_epochs(port: int) -> dict[str, int]:
    """The epoch of each lease that has reported; empty while nobody answers."""
    connection = http.client.HTTPConnection(HOST, port, timeout=_STATUS_TIMEOUT_S)
    try:
        connection.request("GET", "/status")
        status = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, json.JSONDecodeError):
        return {}
    finally:
        connection.close()
    return {f"{lease['route']}/{lease['shard']}": int(lease["epoch"]) for lease in status["leases"]}
