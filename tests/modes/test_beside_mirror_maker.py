"""The topology on which MirrorMaker 2 sends records round for ever, played by both on the same brokers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.bench.sides.mirrormaker import Flow, mirrormaker_spec, settings_of
from lab.stack.java import find_java
from lab.stack.process import Launcher, ManagedProcess
from parallax.domain.ids import Route
from tests.support import Stack, unique_name
from tests.worlds.live_routes import PARTITIONS, copy_now, in_both_roles
from tests.worlds.shard_harness import Harness, ends, until

WRITTEN = 50
"""To each side."""
ROUND = 10
"""MirrorMaker 2 has gone round often enough once it has written so many times what was written."""


@contextmanager
def mirror_maker(sides: Mapping[Route, Harness], topic: str, directory: Path) -> Iterator[ManagedProcess]:
    """One MirrorMaker 2 with a flow for each route, names kept."""
    flows = [
        Flow(route.source, route.target, side.source, side.target, [topic], tasks=1)
        for route, side in sides.items()
    ]
    settings = settings_of(flows, "latency") | {
        **{f"{flow.source}->{flow.target}.enabled": "true" for flow in flows},
        "refresh.topics.interval.seconds": "2",
    }
    java, launcher = find_java(), Launcher()
    environment = os.environ | {"JAVA_HOME": str(java.home)}
    spec = mirrormaker_spec("mirrormaker2", settings, java=java, directory=directory, environment=environment)
    process = ManagedProcess(spec, launcher)
    try:
        process.start()
        yield process
    finally:
        process.kill()
        launcher.close()


@pytest.mark.heavy
def test_where_mirror_maker_2_sends_records_round_ours_come_once(
    infrastructure: Stack, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two-way on the same names: one topology, on the same brokers, a topic for each of the two."""
    x, y = (unique_name(region).replace("-", "") for region in "xy")
    theirs = f"round-{topic_name}"
    kafkas = {x: "regional-a", y: "aggregate-a"}
    config = in_both_roles(infrastructure, kafkas, [f"{x}->{y}", f"{y}->{x}"], topic_name)
    sides = {
        route: Harness(infrastructure, topic_name, clusters=(kafkas[route.source], kafkas[route.target]))
        for route in config.all_routes()
    }
    for side in sides.values():
        for topic in (topic_name, theirs):
            side.create(PARTITIONS, topic)
    for route, side in sides.items():
        for topic in (topic_name, theirs):
            side.produce([f"{route.source} {number}" for number in range(WRITTEN)], topic=topic)
    wanted = sorted(f"{region} {number}" for region in (x, y) for number in range(WRITTEN))

    def ours() -> list[list[str]]:
        return [sorted(side.copied().get(0, [])) for side in sides.values()]

    with mirror_maker(sides, theirs, tmp_path):
        for _ in range(2):
            for route in sides:
                copy_now(config, route)
        until(
            lambda: min(sum(ends(side.target, theirs)) for side in sides.values()) > ROUND * len(wanted),
            "MirrorMaker 2 has sent records round",
        )
    assert [copy_now(config, route) for route in sides] == [0, 0]
    assert ours() == [wanted, wanted]
    counts = {route.target: len(side.copied(theirs)[0]) for route, side in sides.items()}
    with capsys.disabled():
        sys.stderr.write(
            f"\n{len(wanted)} records, two-way on the same names: Parallax {len(wanted)} at each side; "
            f"MirrorMaker 2 {' and '.join(f'{count:,}' for count in counts.values())} when it was stopped\n"
        )
    assert min(counts.values()) > ROUND * len(wanted)
