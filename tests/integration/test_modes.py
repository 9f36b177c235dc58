"""The shapes of docs/topologies.md between real clusters, with replicators that are killed in mid-transaction.

`make modes` plays all of them so; `make test` kills in two-way, in the chain and where two sources are merged, and lets the others copy in peace.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from offsetsvc.service import UseCases
from parallax.cli.init import RouteMode
from parallax.config.config import Config
from parallax.domain.ids import (
    RegionName,
    Route,
    SourceOffset,
    TargetOffset,
    TopicName,
    TopicPartition,
    aggregate_cluster,
    regional_cluster,
)
from parallax.domain.place import Via
from replicator.graph_check import check_graph
from tests.memory.index import MemoryMappingIndex
from tests.support import Stack, unique_name
from tests.worlds.live_routes import (
    OFTEN_OPEN,
    PARTITIONS,
    Writing,
    copy_now,
    in_both_roles,
    kill_in_mid_transaction,
    read_at,
    service_over,
)
from tests.worlds.shard_harness import content, create, ends, numbered, until

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
BROKERS = {
    "kafka-regional.a": "regional-a",
    "kafka-regional.b": "regional-b",
    "kafka-aggregate.a": "aggregate-a",
    "kafka-aggregate.b": "aggregate-b",
    "kafka-aggregate.c": "aggregate-a",
    "kafka.a": "regional-a",
    "kafka.b": "aggregate-a",
    "kafka.c": "aggregate-b",
}
"""Which broker of the stack stands for which address of the examples."""

EVERYTHING = os.environ.get("PARALLAX_TEST_MODES") == "all"
KILLS = 2 if EVERYTHING else 1
PASSES = 4
"""As many are enough for a record to go over each route, and one more to see that nothing is left."""
LEAST = 100
"""Records that are written, at least."""
WRITE_EVERY_S = 0.02
"""Often enough for each transaction to have some, and seldom enough to look up every offset of a busy minute."""


@dataclass(frozen=True)
class Shape:
    """A configuration, and what has to come of it.

    Attributes:
        config: over regions that no other test has.
        regions: these, by their names in the example.
        at: by such a name, whose records lie at the end where its groups read.
    """

    config: Config
    regions: Mapping[str, str]
    at: Mapping[str, str]

    @property
    def producing(self) -> dict[str, str]:
        """The address of each cluster that producers write to, by its region's name."""
        clusters = {name: regional_cluster(RegionName(region)) for name, region in self.regions.items()}
        return {
            name: self.config.cluster(cluster).bootstrap_servers
            for name, cluster in clusters.items()
            if cluster in self.config.producing_clusters()
        }

    @property
    def expected(self) -> dict[str, str]:
        """By address, whose records lie there at the end; where nothing is copied to, those that were produced."""
        reading = {read_at(self.config, self.regions[name]): whose for name, whose in self.at.items()}
        return {address: name for name, address in self.producing.items()} | reading

    def copy(self, index: MemoryMappingIndex | None = None) -> None:
        """Copy until nothing is left."""
        for _ in range(PASSES):
            copied = [copy_now(self.config, route, index) for route in self.config.all_routes()]
            if not any(copied):
                return
        pytest.fail(f"something is copied without end: {copied}")


def example(
    mode: RouteMode, infrastructure: Stack, topic: str, at: Mapping[str, str], **replicator: object
) -> Shape:
    """A file of docs/examples."""
    values = yaml.safe_load((EXAMPLES / f"{mode.value}.yaml").read_text(encoding="utf-8"))
    regions = {name: unique_name(name) for name in values["regions"]}
    for of in values["regions"].values():
        for kind in of.keys() & {"regional", "aggregate", "cluster"}:
            host = of[kind]["bootstrap_servers"].removesuffix(".example:9092")
            of[kind] = {"bootstrap_servers": infrastructure.bootstrap(BROKERS[host])}
    values["regions"] = {regions[name]: of for name, of in values["regions"].items()}

    def renamed(route: str) -> str:
        source, target = route.split("->")
        return f"{regions[source]}->{regions[target]}"

    if "routes" in values:
        values["routes"] = [
            renamed(item) if isinstance(item, str) else item | {"route": renamed(item["route"])}
            for item in values["routes"]
        ]
    values["topics"] = {"include": [topic]}
    values["replicator"] = {"discovery_interval_ms": 1_000, **OFTEN_OPEN, **replicator}
    return Shape(Config.model_validate(values), regions, at)


def triangle(infrastructure: Stack, topic: str) -> Shape:
    """Three clusters, each with a route to both others."""
    regions = {name: unique_name(name) for name in "xyz"}
    kafkas = dict(zip(regions.values(), ("regional-a", "aggregate-a", "aggregate-b"), strict=True))
    routes = [f"{of}->{to}" for of in kafkas for to in kafkas if of != to]
    config = in_both_roles(infrastructure, kafkas, routes, topic, **OFTEN_OPEN)
    return Shape(config, regions, dict.fromkeys("xyz", "xyz"))


WHERE: dict[RouteMode, dict[str, str]] = {
    RouteMode.AGGREGATION: {"a": "ab", "b": "ab"},
    RouteMode.ACTIVE_STANDBY: {"a": "a", "b": "a"},
    RouteMode.TWO_WAY: {"a": "ab", "b": "ab"},
    RouteMode.FAN_OUT: {"b": "a", "c": "a"},
    RouteMode.FORWARDING: {"a": "a", "b": "ab", "c": "abc"},
}
"""By mode and region, whose records lie at the end where the region's groups read."""


RECORD_PATH = "two-way-record"
"""Two-way, record by record."""
TRIANGLE = "triangle"
KILLED = (RouteMode.TWO_WAY.value, RECORD_PATH)
"""In any case, as each has a transaction open at both of its clusters."""
SHAPES = [mode.value for mode in RouteMode if mode is not RouteMode.FORWARDING]
SHAPES += [RECORD_PATH, TRIANGLE] if EVERYTHING else [RECORD_PATH]


def shape_of(name: str, infrastructure: Stack, topic: str) -> Shape:
    if name == TRIANGLE:
        return triangle(infrastructure, topic)
    kind, path = (RouteMode.TWO_WAY, "record") if name == RECORD_PATH else (RouteMode(name), "batch")
    return example(kind, infrastructure, topic, WHERE[kind], copy_path=path)


def write(shape: Shape, topic: str, *, kills: int) -> Writing:
    """Write to all sources while all replicators are killed, again and again; what was written."""
    assert not [found for found in check_graph(shape.config, shape.config.all_routes(), {}) if found.blocks]
    for address in shape.producing.values():
        create(AdminClient({"bootstrap.servers": address}), topic, PARTITIONS, {})
    with Writing(shape.producing, topic, every_s=WRITE_EVERY_S) as writing:
        for _ in range(kills):
            kill_in_mid_transaction(shape.config, topic)
        until(lambda: len(writing.values) >= LEAST, "records")
    return writing


def check_content(shape: Shape, topic: str, writing: Writing) -> None:
    """Each record lies where it should, once and in the order of its origin, and no other does."""
    for address, whose in shape.expected.items():
        there = content(address, topic)
        for partition in range(PARTITIONS):
            values = [(record[1] or b"").decode() for record in there[partition]]
            by_origin = {origin: [value for value in values if value[0] == origin] for origin in whose}
            assert by_origin == {origin: writing.written[origin, partition] for origin in whose}
            assert len(values) == sum(map(len, by_origin.values()))


@pytest.mark.parametrize("name", SHAPES)
def test_each_record_comes_where_it_should_once_in_order_and_nothing_comes_back(
    infrastructure: Stack, topic_name: str, name: str
) -> None:
    """Every example but the chain, the other copy path, and routes between all of three."""
    shape = shape_of(name, infrastructure, topic_name)
    writing = write(shape, topic_name, kills=KILLS if EVERYTHING or name in KILLED else 0)
    shape.copy()
    check_content(shape, topic_name, writing)


def mapped(mode: RouteMode, infrastructure: Stack, topic: str) -> tuple[Shape, Writing, MemoryMappingIndex]:
    """Copied while replicators die, with the content that it should have: what was written, and the rows of it."""
    shape = shape_of(mode.value, infrastructure, topic)
    writing = write(shape, topic, kills=KILLS)
    index = MemoryMappingIndex()
    shape.copy(index)
    check_content(shape, topic, writing)
    return shape, writing, index


def test_every_offset_of_a_chain_is_answered_as_the_logs_have_it(
    infrastructure: Stack, topic_name: str
) -> None:
    """a -> b -> c, where b and c are written to as well, and replicators die: the rows are held against the content."""
    shape, writing, index = mapped(RouteMode.FORWARDING, infrastructure, topic_name)
    exact = 0
    with service_over(shape.config, index) as service:
        for partition in range(PARTITIONS):
            exact += ChainCheck(shape, service, topic_name, partition).check()
    records = sum(len(writing.written["a", partition]) for partition in range(PARTITIONS))
    assert exact >= records, "each offset of a record has its place"


def test_two_routes_into_each_partition_map_every_record_where_both_are_killed(
    infrastructure: Stack, topic_name: str
) -> None:
    """Two sources are merged in two aggregate clusters at once: each record there is traced to its own source record."""
    shape, _, index = mapped(RouteMode.AGGREGATION, infrastructure, topic_name)
    produced = {
        record[1]: (name, partition, offset)
        for name, address in shape.producing.items()
        for partition, offset, record in numbered(address, topic_name)
    }
    traced = 0
    with service_over(shape.config, index) as service:
        for name in shape.at:
            region = RegionName(shape.regions[name])
            for partition, offset, record in numbered(read_at(shape.config, region), topic_name):
                item = TopicPartition(TopicName(topic_name), partition)
                (hop,) = service.chains.origin(aggregate_cluster(region), item, offset).hops
                source, its_partition, source_offset = produced[record[1]]
                assert (hop.route, hop.source_record_offset) == (
                    f"{shape.regions[source]}->{region}",
                    source_offset,
                )
                assert its_partition == partition
                traced += 1
    assert traced == len(shape.at) * len(produced)


class ChainCheck:
    """Every offset of one partition of a, there and back, against what lies in the logs."""

    def __init__(self, shape: Shape, service: UseCases, topic: str, partition: int) -> None:
        self._path = [Route.parse(str(route)) for route in shape.config.all_routes()]
        self._chains = service.chains
        self._item = TopicPartition(TopicName(topic), partition)
        self._at_c = aggregate_cluster(RegionName(shape.regions["c"]))
        at_a, at_c = (read_at(shape.config, shape.regions[name]) for name in "ac")
        self._end_of_a, self._end_of_c = (ends(address, topic)[partition] for address in (at_a, at_c))
        offsets = {value: offset for offset, value in self._values(at_a)}
        self._at_a = set(offsets.values())
        self._of_a = {offset: offsets[value] for offset, value in self._values(at_c) if value in offsets}
        """Of the records at c that were produced at a: from their offset there to that at a."""

    def _values(self, address: str) -> Iterator[tuple[int, bytes | None]]:
        for partition, offset, record in numbered(address, self._item.topic):
            if partition == self._item.partition:
                yield offset, record[1]

    def check(self) -> int:
        """How many offsets of records of a were answered exactly."""
        exact = 0
        for at_a in range(self._end_of_a + 1):
            found = self._chains.translate(self._path, self._item, source_next=SourceOffset(at_a))
            place = found.target_next_offset
            passed = [of for lies, of in self._of_a.items() if lies < place and of >= at_a]
            assert not passed, f"{at_a} is {place}, and {passed} lie below"
            if at_a in self._at_a and Via(found.via) is Via.EXACT:
                exact += self._of_a.get(place) == at_a
        for at_c in range(self._end_of_c + 1):
            found = self._chains.translate(self._path, self._item, target_next=TargetOffset(at_c))
            below = [of for lies, of in self._of_a.items() if lies >= at_c and of < found.source_next_offset]
            assert not below, f"{at_c} has come to {found.source_next_offset}, and {below} lie above"
        for lies, of in self._of_a.items():
            hops = self._chains.origin(self._at_c, self._item, lies).hops
            assert [hop.route for hop in hops] == [str(route) for route in reversed(self._path)]
            assert hops[-1].source_record_offset == of
        return exact
