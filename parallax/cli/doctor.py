"""`parallax doctor`: each thing that has to be right for the others, one after the other, with what to do where it is not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import typer

from parallax.adapters.cassandra.schema import Schema
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.cli.options import ConfigOption, JsonOption
from parallax.cli.output import console
from parallax.cli.status import Health, StatusLine, show_findings
from parallax.client.client import OffsetClient
from parallax.client.credentials import credentials_of
from parallax.config.config import Config, load
from parallax.domain.ids import ClusterName, RegionName, aggregate_cluster, regional_cluster
from parallax.errors import ForbiddenError, ParallaxError, UnauthenticatedError
from parallax.runtime.deadline import wall_clock_ms
from parallax.wiring import client_credentials

_TIMEOUT_MS = 5_000
_CLOCKS_APART_MS = 2_000
_AT_ONCE = 8

Check = Callable[[], Iterable[StatusLine]]


def doctor(config: ConfigOption, as_json: JsonOption = False) -> None:
    """Check the configuration, the store and its schema, clocks, every cluster and service, and your rights; say what to do.

    Exit code 0: all is well; 1: somebody should look at something; 2: something is broken.
    """
    found = examined(config)
    show_findings(found, console(), as_json=as_json)
    raise typer.Exit(int(max((item.health for item in found), default=Health.WELL)))


def examined(path: Path) -> list[StatusLine]:
    """Everything that was found."""
    try:
        settings = load(path)
    except ParallaxError as error:
        return [
            StatusLine(Health.BROKEN, "configuration", str(error), "mend the file; docs/configuration.md")
        ]
    found = [StatusLine(Health.WELL, "configuration", f"{path} can be used")]
    with ThreadPoolExecutor(_AT_ONCE, "doctor") as pool:
        for part in pool.map(_carried_out, _checks(settings)):
            found += part
    return found


def _carried_out(check: tuple[str, str, Check]) -> list[StatusLine]:
    what, do, look = check
    try:
        return list(look())
    except ParallaxError as error:
        return [StatusLine(Health.BROKEN, what, f"[{error.code}] {error}", do)]


def _checks(config: Config) -> Iterator[tuple[str, str, Check]]:
    yield "store", "look at Cassandra, and at cassandra.* in the configuration", lambda: _store(config)
    for region in map(RegionName, config.regions):
        settings = config.region(region)
        for name, cluster in (
            (regional_cluster(region), settings.regional),
            (aggregate_cluster(region), settings.aggregate),
        ):
            if cluster is not None:
                yield (
                    name,
                    f"look at its brokers, and at regions.{region}.* in the configuration",
                    lambda name=name: _cluster(config, name),  # type: ignore[misc] # bound now
                )
        if settings.offsetsvc is not None:
            target = settings.offsetsvc.grpc
            yield (
                f"offset service of {region}",
                f"is `parallax serve --region {region}` running, and reachable at {target}?",
                lambda region=region, target=target: _service(config, region, target),  # type: ignore[misc] # bound now
            )


def _store(config: Config) -> Iterator[StatusLine]:
    with closing(Schema(config.cassandra)) as schema:
        status = schema.status()
        if status.problem:
            yield StatusLine(Health.BROKEN, "schema", status.problem, "parallax schema apply")
            return
        yield StatusLine(Health.WELL, "schema", f"version {status.version} of keyspace {status.keyspace}")
        apart_ms = schema.clock.now_ms() - wall_clock_ms()
    says = f"the store's is {abs(apart_ms):,} ms {'ahead of' if apart_ms > 0 else 'behind'} this machine's"
    if abs(apart_ms) > _CLOCKS_APART_MS:
        yield StatusLine(Health.LOOK, "clocks", says, "set both by NTP: ages and moments are told by them")
    else:
        yield StatusLine(Health.WELL, "clocks", says)


def _cluster(config: Config, name: ClusterName) -> Iterator[StatusLine]:
    cluster = KafkaCluster(name, config.cluster(name), timeout_ms=_TIMEOUT_MS)
    chosen = [topic for topic in cluster.topics() if config.chosen_anywhere(topic)]
    yield StatusLine(Health.WELL, name, f"answers; {len(chosen)} topics are chosen by the configuration")


def _service(config: Config, region: RegionName, target: str) -> Iterator[StatusLine]:
    what = f"offset service of {region}"
    credentials = credentials_of(os.environ, client_credentials(config))
    with OffsetClient([target], timeout_ms=_TIMEOUT_MS, credentials=credentials) as client:
        try:
            answer = client.describe_regions()
        except (ForbiddenError, UnauthenticatedError) as error:
            yield StatusLine(Health.BROKEN, what, f"[{error.code}] {error}", "docs/security.md#rights")
            return
        if answer.answered_in != region:
            yield StatusLine(
                Health.BROKEN,
                what,
                f"the one at {target} is that of region {answer.answered_in}",
                f"correct regions.{region}.offsetsvc, or the --region that it was started with",
            )
            return
        yield StatusLine(Health.WELL, what, f"answers at {target}, and you may read")
        try:
            client.list_audit(since_ms=wall_clock_ms(), limit=1)
        except ForbiddenError as error:
            yield StatusLine(
                Health.LOOK,
                f"your rights at {region}",
                str(error),
                "without it nothing can be moved: docs/security.md#rights",
            )
