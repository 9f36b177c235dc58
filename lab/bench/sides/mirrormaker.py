"""MirrorMaker 2 in dedicated mode: its configuration (the files in `mirrormaker2/`, filled in) and its process."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lab.stack.artifacts import fetch_jars
from lab.stack.java import Java
from lab.stack.kafka_broker import LOG4J2
from lab.stack.process import ProcessSpec
from lab.stack.versions import load_versions

Tuning = Literal["throughput", "latency", "groups"]

_FILES = Path(__file__).with_name("mirrormaker2")
_MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
# As Kafka's own connect-mirror-maker.sh starts it.
_JVM = (
    "-Xms256m",
    "-Xmx2g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)


@dataclass(frozen=True, slots=True)
class Flow:
    """What one MirrorMaker 2 copies.

    Attributes:
        source, target: aliases, letters and digits; another alias makes it start from the beginning, for its own
            topics carry it.
        source_bootstrap, target_bootstrap: the clusters.
        topics: names, all exact.
        tasks: how many it may use.
        groups: whose offsets are translated, as a regular expression.
        compression: of its producer.
        authority: who signs the certificates of both clusters; None: plain text.
    """

    source: str
    target: str
    source_bootstrap: str
    target_bootstrap: str
    topics: Sequence[str]
    tasks: int
    groups: str = "none"
    compression: str = "lz4"
    authority: Path | None = None


def settings_of(flows: Sequence[Flow], tuning: Tuning, *, exactly_once: bool = False) -> dict[str, str]:
    """The settings of one MirrorMaker 2 with several flows.

    Raises:
        ValueError: a line of a file is no setting.
        KeyError: a file asks for something that a flow does not have.
    """
    settings: dict[str, str] = {}
    for flow in flows:
        names = ["common", tuning]
        names += ["exactly-once"] if exactly_once else []
        names += ["tls"] if flow.authority is not None else []
        values: Mapping[str, object] = {
            "source": flow.source,
            "target": flow.target,
            "source_bootstrap": flow.source_bootstrap,
            "target_bootstrap": flow.target_bootstrap,
            "topics": ", ".join(re.escape(topic).replace("\\-", "-") for topic in flow.topics),
            "groups": flow.groups,
            "tasks": flow.tasks,
            "compression": flow.compression,
            "authority": flow.authority,
        }
        for name in names:
            settings |= _filled((_FILES / f"{name}.properties").read_text(encoding="utf-8"), values)
    clusters = dict.fromkeys(alias for flow in flows for alias in (flow.source, flow.target))
    return {"clusters": ", ".join(clusters), **settings}


def _filled(text: str, values: Mapping[str, object]) -> dict[str, str]:
    settings = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            name, value = line.format_map(values).split("=", 1)
            settings[name.strip()] = value.strip()
    return settings


def mirrormaker_spec(
    name: str,
    settings: Mapping[str, str],
    *,
    java: Java,
    directory: Path,
    environment: Mapping[str, str],
) -> ProcessSpec:
    """The process spec of one MirrorMaker 2.

    Args:
        name: of the process, its log and its files.
        settings: its configuration.
        java: runs it.
        directory: its files go here.
        environment: of the process.
    """
    jars = fetch_jars(load_versions().kafka, java, report=lambda _line: None)
    properties = directory / f"{name}.properties"
    log4j2 = directory / "log4j2.yaml"

    def prepare() -> None:
        directory.mkdir(parents=True, exist_ok=True)
        log4j2.write_text(LOG4J2, encoding="utf-8")
        properties.write_text(
            "".join(f"{key} = {value}\n" for key, value in settings.items()), encoding="utf-8"
        )

    return ProcessSpec(
        name=name,
        command=[
            str(java.executable),
            *_JVM,
            f"-Dlog4j2.configurationFile={log4j2}",
            *("-cp", f"{jars}/*"),
            _MAIN,
            str(properties),
        ],
        log=directory / f"{name}.log",
        probe=lambda: None,
        environment=environment,
        prepare=prepare,
        stop_within_s=10.0,
    )
