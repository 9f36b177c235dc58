"""Whole regions on real brokers and Cassandra, without Spark: leases are held by threads of the test.

Services are processes of their own, the commands too. The regions' names are new each time, so that tests share
brokers and nothing else; those that share a world have topics and groups of their own (`Live.on_new_topic`).
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lab.stack.services import PARALLAX
from parallax.adapters.cassandra.schema import Schema
from parallax.adapters.cassandra.stores import CassandraStores
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.client.client import OffsetClient, at_region
from parallax.config.config import Cassandra, Config, load
from parallax.domain.ids import ClusterName, GroupName, RegionName, aggregate_cluster
from parallax.runtime.deadline import Deadline
from parallax.v1 import primaries_pb2 as pb
from replicator.kafka.layout import ensure_layout
from replicator.lease import Lease
from replicator.shard import hold_lease
from syncjob.run import run_until
from tests.support import Stack, poll_until, unique_name
from tests.worlds.replication import free_port

WITHIN_S = 120.0
LIFETIME_S = 1_200.0
ATTEMPTS = 3
PARTITIONS = 3

OPERATOR = "b"
"""The region that commands are given in and the sync job runs in: no test loses it."""

Offsets = Mapping[tuple[str, int], int]
"""Next offsets, by topic and partition."""


@dataclass
class Live:
    """Regions at work.

    Attributes:
        stacks: whose brokers each region uses; the regions are called a, b and so on here.
        names: what the regions are really called.
        base: what the names of all topics and groups begin with.
        configs: each region's own configuration; the file lies at `config_path`.
        stores: each region's own connection to the store.
        services: the offset service of each region, while it runs.
    """

    stacks: Mapping[str, Stack]
    directory: Path
    base: str
    topic: str
    names: Mapping[str, str]
    configs: Mapping[str, Config]
    stores: Mapping[str, CassandraStores]
    services: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)
    clusters: dict[str, KafkaCluster] = field(default_factory=dict)

    def on_new_topic(self, *, partitions: int = PARTITIONS) -> Live:
        """The same world, with a topic that no other test uses."""
        found = replace(self, topic=unique_name(f"{self.base}-trips"))
        found.create(found.topic, partitions)
        return found

    def create(self, topic: str, partitions: int = PARTITIONS, *, regions: str = "") -> None:
        """Create a topic on the regional clusters: of these regions, or of all that have one.

        Returns once the brokers have begun all its partitions. Of what is produced before, librdkafka may say that it was
        written, without an offset, though it was not.
        """
        for region in regions or self.sources:
            servers = {"bootstrap.servers": self.bootstrap(region, "regional")}
            admin = AdminClient(servers)
            for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
                future.result(60)
            wait_until_begun(servers, topic, partitions)

    @property
    def sources(self) -> str:
        """The regions with a regional cluster."""
        regions = self.configs[OPERATOR].regions
        return "".join(key for key, name in self.names.items() if regions[name].regional is not None)

    def group(self, name: str) -> str:
        """A group of this topic's."""
        return f"{self.topic}-{name}"

    def bootstrap(self, region: str, kind: str = "aggregate") -> str:
        return self.stacks[region].bootstrap(f"{kind}-{region}")

    def config_path(self, region: str = OPERATOR) -> Path:
        """The configuration file of a region."""
        return self.directory / f"parallax-{region}.yaml"

    def targets(self, regions: str = "") -> list[str]:
        """Addresses of the services of these regions, or of all."""
        own = self.configs[OPERATOR]
        found = [own.regions[self.names[region]].offsetsvc for region in regions or self.names]
        return [item.grpc for item in found if item is not None]

    @contextmanager
    def client(self, regions: str = "") -> Iterator[OffsetClient]:
        """A client of the services of these regions, or of all."""
        with OffsetClient(self.targets(regions), timeout_ms=20_000) as client:
            yield client

    # --- what clusters and services tell ------------------------------------------------------------------

    def cluster(self, region: str) -> KafkaCluster:
        """A region's aggregate cluster."""
        if region not in self.clusters:
            name = self.cluster_name(region)
            settings = self.configs[OPERATOR].cluster(name)
            self.clusters[region] = KafkaCluster(name, settings, timeout_ms=20_000)
        return self.clusters[region]

    def cluster_name(self, region: str) -> ClusterName:
        """The name of a region's aggregate cluster."""
        return aggregate_cluster(RegionName(self.names[region]))

    def committed(self, group: str, region: str) -> Offsets:
        """What the group has committed at a region's aggregate cluster."""
        found = self.cluster(region).committed(GroupName(group))
        return {(item.topic, item.partition): int(commit.next_offset) for item, commit in found.items()}

    def state(self, group: str, region: str) -> str:
        """The group's state at a region's aggregate cluster, in Kafka's word; empty: it is not there."""
        return next((item.state for item in self.cluster(region).groups() if item.group == group), "")

    def reported(self, group: str, region: str) -> Offsets:
        """How far the group was seen to be at a region, by its members' reports or its commits."""
        found = self.stores[OPERATOR].groups.observed(GroupName(group), self.cluster_name(region))
        return {
            (item.topic_partition.topic, item.topic_partition.partition): int(item.next_offset)
            for item in found
        }

    def pending(self, group: str, origin: str, target: str) -> int:
        """Records that the group has consumed at the origin and the target lacks."""
        with self.client() as client:
            found = client.get_group_failover_offsets(
                group, to=at_region(self.names[target]), origin=at_region(self.names[origin])
            )
        return sum(item.pending_records for item in found.offsets)

    def number(self, group: str, regions: str = "") -> int:
        """The fencing number of the group's primary, as the services of these regions know it."""
        with self.client(regions) as client:
            return client.get_primary(group).decision.fencing_number

    def wait_for_fence(self, group: str) -> None:
        """Wait until a move of the group has begun."""
        with self.client() as client:
            poll_until(lambda: client.get_primary(group).decision.stage == pb.MOVING, 60, "the fence")

    # --- parts --------------------------------------------------------------------------------------------

    def serve(self, *regions: str) -> None:
        """Start the offset services of these regions, side by side."""
        for region in regions:
            with (self.directory / f"serve-{region}.log").open("a") as log:
                self.services[region] = subprocess.Popen(
                    [
                        *PARALLAX,
                        "serve",
                        "--config",
                        str(self.config_path(region)),
                        "--region",
                        self.names[region],
                        "--json",
                    ],
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
        for region in regions:
            output = self.services[region].stdout
            assert output is not None
            assert output.readline(), (self.directory / f"serve-{region}.log").read_text()[-4_000:]

    def kill_service(self, region: str) -> None:
        """SIGKILL."""
        process = self.services.pop(region)
        with process:
            process.kill()

    def replicate(self) -> None:
        """Hold the lease of every route, each with the store of the region that it leads to."""
        keys = {name: key for key, name in self.names.items()}
        for route in self.configs[OPERATOR].all_routes():
            target = keys[route.target]
            layout = ensure_layout(self.configs[target], route, 1).layout
            lease = Lease(route, 0, 1, layout, 1, int((time.time() + LIFETIME_S) * 1_000))
            self._run(
                f"lease {route}",
                lambda lease=lease, target=target: hold_lease(
                    lease,
                    self.configs[target],
                    index=self.stores[target].index,
                    report=lambda _progress: None,
                    end_asked=self.ended.is_set,
                ),
            )

    def sync(self) -> None:
        """Run the sync job."""
        config = self.configs[OPERATOR]
        self._run("sync", lambda: run_until(config, Deadline.after_ms(LIFETIME_S * 1_000), self.ended))

    def _run(self, name: str, work: Callable[[], object]) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        self.threads.append(thread)

    def close(self) -> None:
        """End everything; the services last, for the sync job would wait for them."""
        self.ended.set()
        for thread in self.threads:
            thread.join(WITHIN_S)
        for process in self.services.values():
            process.send_signal(signal.SIGTERM)
        for process in self.services.values():
            with process:
                process.wait(WITHIN_S)

    # --- commands -----------------------------------------------------------------------------------------

    def parallax(self, *arguments: str) -> Any:
        """Run a command and read its JSON; regions are called a and b."""
        return finished(self.start(*arguments))

    def move(self, *arguments: str) -> dict[str, Any]:
        """Run a command that moves groups, again where it is interrupted (the runbook says so); how each group ended."""
        ended: dict[str, Any] = {}
        for _ in range(ATTEMPTS):
            out, err = self.start(*arguments).communicate(timeout=WITHIN_S)
            assert out.startswith("["), f"{arguments}:\n{out}\n{err}"
            results = [
                item for item in json.loads(out) if ended.get(item["group"], {}).get("ending") != "moved"
            ]
            ended |= {item["group"]: item for item in results}
            if all(item["ending"] != "interrupted" for item in results):
                break
        return ended

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command and don't wait for it."""
        named = [self.names.get(item, item) for item in arguments]
        return subprocess.Popen(
            [*PARALLAX, *named, "--config", str(self.config_path()), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def wait_until_begun(servers: Mapping[str, Any], topic: str, partitions: int) -> None:
    """Wait until the brokers have logs of all partitions of a topic that was just created."""
    with closing(Consumer({**servers, "group.id": "none", "log_level": 0})) as asking:

        def begun() -> bool:
            try:
                for partition in range(partitions):
                    asking.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
            except KafkaException:
                return False
            return True

        poll_until(begun, 60, f"the brokers have begun {topic}")


def finished(command: subprocess.Popen[str]) -> Any:
    """Wait for a command to end well, and read its JSON."""
    out, err = command.communicate(timeout=WITHIN_S)
    assert command.returncode == 0, f"{command.args}: {command.returncode}\n{out}\n{err}"
    return json.loads(out)


def new_keyspace(address: str, **settings: Any) -> dict[str, Any]:
    """A keyspace with the schema; as the configuration says it.

    Args:
        address: a Cassandra node.
        settings: further ones of the section.
    """
    values = {
        "contact_points": [address],
        "keyspace": unique_name("live").replace("-", "_"),
        "request_timeout_ms": 20_000,
        **settings,
    }
    with closing(Schema(Cassandra.model_validate(values))) as schema:
        schema.apply()
    return values


@contextmanager
def live_world(
    stacks: Mapping[str, Stack],
    stores: Mapping[str, Mapping[str, Any]],
    directory: Path,
    *,
    without_source: Collection[str] = (),
    **sections: Any,
) -> Iterator[Live]:
    """Regions over the brokers of stacks, with their services, leases and sync job.

    Args:
        stacks: by region; a region's brokers are those that its stack has for a region of that name.
        stores: by region, how it reaches the store (the configuration's section ``cassandra``).
        directory: for files.
        without_source: regions without a regional cluster.
        sections: further ones of the configuration.
    """
    base = unique_name("r")
    names = {region: f"{base}{region}" for region in stacks}
    regions: dict[str, Any] = {}
    for region, stack in stacks.items():
        kinds = ("aggregate",) if region in without_source else ("regional", "aggregate")
        clusters = {kind: {"bootstrap_servers": stack.bootstrap(f"{kind}-{region}")} for kind in kinds}
        addresses = {kind: f"127.0.0.1:{free_port()}" for kind in ("grpc", "rest")}
        regions[names[region]] = {**clusters, "offsetsvc": addresses}
    values: dict[str, Any] = {
        "regions": regions,
        "topics": {"include": [f"{base}.*"]},
        "groups": {"include": [f"{base}.*"]},
        # A transaction costs every part some work, and all parts share a few cores here.
        "replicator": {
            "pace": "throughput",
            "discovery_interval_ms": 1_000,
            "watermark_interval_ms": 300,
            "commit_min_interval_ms": 50,
        },
        "sync": {"interval_ms": 250},
        **sections,
    }
    configs = {}
    for region in stacks:
        path = directory / f"parallax-{region}.yaml"
        path.write_text(yaml.safe_dump({**values, "cassandra": dict(stores[region])}), encoding="utf-8")
        configs[region] = load(path, {})
    with ExitStack() as opened:
        connections = {
            region: opened.enter_context(CassandraStores(config.cassandra, config.index))
            for region, config in configs.items()
        }
        live = Live(stacks, directory, base, "", names, configs, connections)
        opened.callback(live.close)
        live.serve(*stacks)
        live.replicate()
        live.sync()
        yield live
