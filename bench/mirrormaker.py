"""MirrorMaker 2 in dedicated mode: its configuration, filled in, and its process."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Literal

from devstack.artifacts import fetch_jars
from devstack.java import Java
from devstack.process import ProcessSpec
from devstack.versions import load_versions

Tuning = Literal["throughput", "latency", "exactly-once", "groups"]

_TEMPLATES = Path(__file__).with_name("mirrormaker2")
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
_LOG4J2 = """\
Configuration:
  Appenders:
    Console: {name: STDOUT, PatternLayout: {Pattern: "[%d] %p %m (%c)%n"}}
  Loggers:
    Root: {level: WARN, AppenderRef: {ref: STDOUT}}
"""
_ALIAS = re.compile(r"[A-Za-z0-9]+")


class MirrorMakerConfigError(Exception):
    """The configuration of MirrorMaker 2 can't be made."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What one MirrorMaker 2 copies.

    Attributes:
        source, target: aliases; another alias makes it start from the beginning, for its own topics carry it.
        source_bootstrap, target_bootstrap: the clusters.
        topics: names, all exact.
        groups: whose offsets are translated, as a regular expression.
        tasks: how many it may use.
        compression: of its producer.
    """

    source: str
    target: str
    source_bootstrap: str
    target_bootstrap: str
    topics: Sequence[str]
    tasks: int
    groups: str = "none"
    compression: str = "lz4"


def render(template: str, flow: Flow) -> str:
    """Fill a template in.

    Raises:
        MirrorMakerConfigError: an alias is none, or the template asks for something unknown.
    """
    for alias in (flow.source, flow.target):
        if not _ALIAS.fullmatch(alias):
            raise MirrorMakerConfigError(f"alias {alias!r} must be letters and digits")
    if flow.source == flow.target:
        raise MirrorMakerConfigError(f"source and target are both called {flow.source!r}")
    values: Mapping[str, object] = {
        "source": flow.source,
        "target": flow.target,
        "source_bootstrap": flow.source_bootstrap,
        "target_bootstrap": flow.target_bootstrap,
        "topics": ", ".join(re.escape(topic).replace("\\-", "-") for topic in flow.topics),
        "groups": flow.groups,
        "tasks": flow.tasks,
        "compression": flow.compression,
    }
    lines = []
    for number, line in enumerate(template.splitlines(), start=1):
        if line.startswith("#"):
            continue
        for _, name, _, _ in Formatter().parse(line):
            if name is not None and name not in values:
                raise MirrorMakerConfigError(f"line {number}: nothing is known of {{{name}}}: {line}")
        lines.append(line.format(**values))
    return "\n".join(lines) + "\n"


def merge(texts: Sequence[str]) -> str:
    """One configuration of several flows: every setting once, the clusters of all.

    Raises:
        MirrorMakerConfigError: two flows want different values for one setting.
    """
    settings: dict[str, str] = {}
    clusters: dict[str, None] = {}
    for text in texts:
        for name, value in parse(text).items():
            if name == "clusters":
                clusters |= dict.fromkeys(part.strip() for part in value.split(","))
            elif settings.setdefault(name, value) != value:
                raise MirrorMakerConfigError(
                    f"{name} is {settings[name]!r} for one flow and {value!r} for another"
                )
    head = f"clusters = {', '.join(clusters)}\n"
    return head + "".join(f"{name} = {value}\n" for name, value in settings.items())


def parse(text: str) -> dict[str, str]:
    """The settings of a properties file (no continued lines, `#` comments).

    Raises:
        MirrorMakerConfigError: a line is no setting.
    """
    settings = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise MirrorMakerConfigError(f"line {number} is no setting: {line}")
        settings[name.strip()] = value.strip()
    return settings


def template(tuning: Tuning) -> str:
    """The text of one of the templates under bench/mirrormaker2."""
    return (_TEMPLATES / f"{tuning}.properties").read_text(encoding="utf-8")


def mirrormaker_spec(
    name: str,
    flows: Sequence[Flow],
    tuning: Tuning,
    *,
    java: Java,
    directory: Path,
    environment: Mapping[str, str],
) -> ProcessSpec:
    """The process spec of one MirrorMaker 2.

    Args:
        name: of the process, its log and its files.
        flows: what it copies.
        tuning: which template.
        java: runs it.
        directory: its files go here.
        environment: of the process.
    """
    jars = fetch_jars(load_versions().kafka, java, report=lambda _line: None)
    properties = directory / f"{name}.properties"
    log4j2 = directory / "log4j2.yaml"

    def prepare() -> None:
        directory.mkdir(parents=True, exist_ok=True)
        log4j2.write_text(_LOG4J2, encoding="utf-8")
        properties.write_text(merge([render(template(tuning), flow) for flow in flows]), encoding="utf-8")

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
