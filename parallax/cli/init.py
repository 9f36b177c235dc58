"""`parallax init`: a configuration to begin with."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer
import yaml

from parallax.cli.output import write_new
from parallax.config.config import parse
from parallax.config.values import region_name
from parallax.errors import ConfigError

_MOVES = """\
# Groups move between the aggregate clusters (parallax failover), and `parallax sync` publishes their offsets.
"""
_NO_MOVES = """\
# Groups move along routes (parallax failover): to a region that what is produced where they read is copied to.
"""
_STORE = """\
cassandra:
  contact_points: ["cassandra.{first}.example:9042"]
  local_datacenter: {key}
  replication: {{{copies}}}
topics:
  # Patterns match the whole name; topics of Kafka's own tools are left out in any case (docs/configuration.md).
  include: [".*"]
"""


class RouteMode(Enum):
    """What the routes are for."""

    AGGREGATION = "aggregation"
    ACTIVE_STANDBY = "active-standby"
    TWO_WAY = "two-way"
    FAN_OUT = "fan-out"
    FORWARDING = "forwarding"


def init(
    mode: Annotated[RouteMode, typer.Option("--mode", help="What the routes are for.")],
    region: Annotated[
        list[str] | None,
        typer.Option(
            "--region",
            help="A region, in the order of the copies; at least two. Default: a and b, or a, b and c.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write it there; a file that is there stays. Default: print it."),
    ] = None,
) -> None:
    """Write a configuration to begin with, in which addresses are to be set."""
    text = example(mode, region or DEFAULT_REGIONS[mode])
    if out is None:
        sys.stdout.write(text)
        return
    write_new(out, text)
    sys.stderr.write(
        f"{out}: written; set its addresses, then: parallax topics where, parallax schema apply, parallax replicate --dry-run\n"
    )


def example(mode: RouteMode, regions: Sequence[str]) -> str:
    """A configuration, as text.

    Raises:
        ConfigError: too few regions, or one twice, or a name that none may have.
    """
    if len(set(regions)) != len(regions) or len(regions) < 2:  # noqa: PLR2004 - from one to another
        raise ConfigError(f"--region: name at least two regions, each once; these are {', '.join(regions)}")
    try:
        for name in regions:
            region_name(name)
    except ValueError as error:
        raise ConfigError(f"--region: {error}") from None
    text = _BODIES[mode](regions) + _STORE.format(
        first=regions[0], key=_key(regions[0]), copies=", ".join(f"{_key(name)}: 3" for name in regions)
    )
    parse(yaml.safe_load(text))
    return text


def _aggregation(regions: Sequence[str]) -> str:
    return (
        "# Aggregation: every region's records come to an aggregate cluster in every region.\n"
        + _MOVES
        + "regions:\n"
        + "".join(f"  {_key(name)}:\n{_regional(name)}{_aggregate(name)}{_service(name)}" for name in regions)
    )


def _fan_out(regions: Sequence[str]) -> str:
    first, *others = regions
    return (
        f"# Fan-out: records that are produced in {first} come to an aggregate cluster in each other region.\n"
        + _MOVES
        + f"regions:\n  {_key(first)}:\n{_regional(first)}"
        + "".join(f"  {_key(name)}:\n{_aggregate(name)}{_service(name)}" for name in others)
        + f"routes: [{', '.join(f'{first}->{name}' for name in others)}]\n"
    )


def _active_standby(regions: Sequence[str]) -> str:
    first, *others = regions
    back = [f"{source}->{target}" for source in others for target in regions if source != target]
    return (
        f"# Active/standby: one Kafka in each region; {first}'s records are copied to the others, where nobody else writes while {first} is up.\n"
        "# Groups move there and back (parallax failover). Once producers write to another region, make it a 'cluster', and add its routes\n"
        "# below: they bring its records home, and nothing is wiped (docs/topologies.md).\n"
        f"regions:\n  {_key(first)}:\n{_cluster(first)}"
        + "".join(f"  {_key(name)}:\n{_standby(name)}" for name in others)
        + "routes:\n"
        + "".join(f"- {first}->{name}\n" for name in others)
        + "".join(f"# - {route}\n" for route in back)
    )


def _two_way(regions: Sequence[str]) -> str:
    pairs = [f"{source}->{target}" for source in regions for target in regions if source != target]
    return (
        "# Two-way: one Kafka in each region, the same topics in all; every region's own records are copied to the others, and no copy\n"
        "# comes back.\n"
        + _NO_MOVES
        + "regions:\n"
        + "".join(f"  {_key(name)}:\n{_cluster(name)}" for name in regions)
        + f"routes: [{', '.join(pairs)}]\n"
    )


def _forwarding(regions: Sequence[str]) -> str:
    first, second, *_ = regions
    steps = list(pairwise(regions))
    return (
        f"# Forwarding: one Kafka in each region; records go on from one to the next, {' -> '.join(regions)}.\n"
        + _NO_MOVES
        + "regions:\n"
        + "".join(f"  {_key(name)}:\n{_cluster(name)}" for name in regions)
        + f"routes:\n- {first}->{second}\n"
        + "".join(
            f"# What came from before is passed on, too.\n- {{route: {source}->{target}, copies: all}}\n"
            for source, target in steps[1:]
        )
    )


def _key(name: str) -> str:
    """A name where nothing stands beside it: YAML takes some for numbers, or for yes and no."""
    return yaml.safe_dump([name], default_flow_style=True).strip("[]\n")


def _regional(name: str) -> str:
    return f'    regional: {{bootstrap_servers: "kafka-regional.{name}.example:9092"}}\n'


def _aggregate(name: str) -> str:
    return f'    aggregate: {{bootstrap_servers: "kafka-aggregate.{name}.example:9092", replication_factor: 3}}\n'


def _cluster(name: str) -> str:
    return f'    cluster: {{bootstrap_servers: "kafka.{name}.example:9092", replication_factor: 3}}\n{_service(name)}'


def _standby(name: str) -> str:
    return _cluster(name).replace("cluster:", "aggregate:", 1)


def _service(name: str) -> str:
    return f'    offsetsvc: {{grpc: "offsets.{name}.example:7600", rest: "offsets.{name}.example:7601"}}\n'


_BODIES: dict[RouteMode, Callable[[Sequence[str]], str]] = {
    RouteMode.AGGREGATION: _aggregation,
    RouteMode.ACTIVE_STANDBY: _active_standby,
    RouteMode.TWO_WAY: _two_way,
    RouteMode.FAN_OUT: _fan_out,
    RouteMode.FORWARDING: _forwarding,
}
DEFAULT_REGIONS: dict[RouteMode, tuple[str, ...]] = {
    RouteMode.AGGREGATION: ("a", "b"),
    RouteMode.ACTIVE_STANDBY: ("a", "b"),
    RouteMode.TWO_WAY: ("a", "b"),
    RouteMode.FAN_OUT: ("a", "b", "c"),
    RouteMode.FORWARDING: ("a", "b", "c"),
}
