"""Parallax as its users run it: `parallax replicate`, with a configuration of its own for each run."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from devstack.ports import HOST
from devstack.process import ProcessSpec
from devstack.services import build_config, service_environment
from devstack.stack import LocalStack
from parallax.runtime.config import load

_STOP_WITHIN_S = 20.0
_STATUS_TIMEOUT_S = 2.0


def parallax_spec(
    name: str,
    stack: LocalStack,
    directory: Path,
    *,
    topics: tuple[str, ...],
    routes: tuple[str, ...],
    settings: Mapping[str, Any],
    regions: tuple[str, ...],
    source_bootstrap: Mapping[str, str] | None = None,
    with_sync: bool = False,
) -> ProcessSpec:
    """The process spec of one `parallax replicate`.

    Args:
        name: of the process, its log and its files; the run log's topics carry it, so that each run starts anew.
        stack: the brokers and Cassandra.
        directory: its files go here.
        topics: what it copies.
        routes: ``a->b``.
        settings: of the section `replicator`, over the project's defaults.
        regions: target regions.
        source_bootstrap: another address of source clusters, by cluster name.
        with_sync: publish groups' offsets too.
    """
    config_path = directory / f"{name}.yaml"

    def prepare() -> None:
        directory.mkdir(parents=True, exist_ok=True)
        config = build_config(stack.layout)
        # Only where things are; all else is what a user gets by default.
        where = config["replicator"]
        config["replicator"] = {
            "status_address": where["status_address"],
            "run_log_topic_prefix": f"parallax.runs.{name}",
            **settings,
        }
        config["topics"] = {"include": [topic.replace(".", r"\.") for topic in topics]}
        config["routes"] = list(routes)
        for cluster, address in (source_bootstrap or {}).items():
            kind, _, region = cluster.partition("-")
            config["regions"][region][kind]["bootstrap_servers"] = address
        config_path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
        load(config_path)

    chosen = [argument for region in regions for argument in ("--region", region)]
    return ProcessSpec(
        name=name,
        command=[
            *(sys.executable, "-m", "parallax.cli.main", "replicate"),
            *("--config", str(config_path), *chosen, "--json"),
            *(["--with-sync"] if with_sync else []),
        ],
        log=directory / f"{name}.log",
        probe=lambda: None,
        environment=service_environment(stack.layout, stack.java),
        prepare=prepare,
        stop_within_s=_STOP_WITHIN_S,
    )


def lease_epochs(port: int) -> dict[str, int] | None:
    """The epoch of each lease that has reported; None while nobody answers."""
    connection = http.client.HTTPConnection(HOST, port, timeout=_STATUS_TIMEOUT_S)
    try:
        connection.request("GET", "/status")
        status = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, json.JSONDecodeError):
        return None
    finally:
        connection.close()
    return {f"{lease['route']}/{lease['shard']}": int(lease["epoch"]) for lease in status["leases"]}
