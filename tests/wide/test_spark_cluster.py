"""A two-worker Spark standalone cluster, one worker of which dies under load."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from lab.stack.ports import HOST
from lab.workload.topics import create_topic
from parallax.adapters.spark.jvm import INSTALLED
from parallax.adapters.spark.session import find_java_home, java_home_for_spark
from parallax.domain.ids import TopicName, TopicPartition
from replicator.lease import shard_of
from tests.support import Stack, poll_until
from tests.worlds.processes import command_line, family, kill_all, still_running
from tests.worlds.replication import (
    PARTITIONS,
    Application,
    Feeder,
    Reader,
    check_exactly_once,
    create_sources,
    free_port,
    parallax,
    running,
    write_config,
)

SHARDS = 2
SPARK_SECRET = "s3cret-of-the-cluster"  # noqa: S105 - of a test
LEASES = 2 * SHARDS  # from two regions
STARTED_WITHIN_S = 120.0
MOVED_WITHIN_S = 240.0
REPORTS_UNDER_WAY_MS = 3_000
NOTICEABLE_S = 1.0

LeaseName = tuple[str, int]


@contextmanager
def spark_process(name: str, directory: Path, java_home: Path, *arguments: str) -> Iterator[int]:
    """One of Spark's own daemons as a child process, by its pid; nothing of it is left afterwards."""
    environment = {
        **os.environ,
        "SPARK_HOME": str(INSTALLED),
        "JAVA_HOME": str(java_home),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": "192m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    with (directory / f"{name}.log").open("wb") as log:
        child = subprocess.Popen(
            [str(INSTALLED / "bin" / "spark-class"), *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=environment,
        )
    try:
        yield child.pid
    finally:
        if child.poll() is None:
            kill_all(family(child.pid))
        child.wait(30)


@contextmanager
def two_workers(directory: Path) -> Iterator[tuple[str, list[int]]]:
    """A master and two workers, each with slots for every lease; the master's address and the workers' pids."""
    port = free_port()
    address = f"spark://{HOST}:{port}"
    with ExitStack() as stack:
        # Workers start their executors with it too: it stays as long as they do.
        java_home = stack.enter_context(java_home_for_spark(find_java_home()))
        secure = directory / "spark.conf"
        secure.write_text(
            "spark.authenticate true\n"
            f"spark.authenticate.secret {SPARK_SECRET}\n"
            "spark.network.crypto.enabled true\n",
            encoding="utf-8",
        )
        secure_daemon = ("--properties-file", str(secure))
        master = (
            "org.apache.spark.deploy.master.Master",
            *secure_daemon,
            "--host",
            HOST,
            "--port",
            str(port),
        )
        stack.enter_context(spark_process("master", directory, java_home, *master, "--webui-port", "0"))
        poll_until(lambda: "New state: ALIVE" in log_of(directory, "master"), STARTED_WITHIN_S, "the master")
        workers = [
            stack.enter_context(
                spark_process(
                    name,
                    directory,
                    java_home,
                    *("org.apache.spark.deploy.worker.Worker", *secure_daemon),
                    *("--host", HOST, "--webui-port", "0"),
                    *("--cores", str(LEASES), "--memory", "1g", "--work-dir", str(directory / name), address),
                )
            )
            for name in ("worker-1", "worker-2")
        ]
        for name in ("worker-1", "worker-2"):
            poll_until(
                lambda name=name: "Successfully registered" in log_of(directory, name),  # type: ignore[misc]
                STARTED_WITHIN_S,
                name,
            )
        yield address, workers


def log_of(directory: Path, name: str) -> str:
    return (directory / f"{name}.log").read_text(encoding="utf-8", errors="replace")


def attempts(application: Application) -> Mapping[LeaseName, str]:
    """Who holds each lease."""
    return {
        (lease["route"], lease["shard"]): lease["attempt"] for lease in application.status().get("leases", [])
    }


def all_heard_since(application: Application, moment_s: float) -> bool:
    """Whether every lease has reported well after the moment: not what was on its way then."""
    leases = application.status().get("leases", [])
    elapsed_ms = (time.monotonic() - moment_s) * 1_000 - REPORTS_UNDER_WAY_MS
    return len(leases) == LEASES and all(lease["heard_ms_ago"] < elapsed_ms for lease in leases)


def partitions_of(application: Application, leases: set[LeaseName]) -> dict[str, set[int]]:
    """Partitions of the leases, by source region."""
    found: dict[str, set[int]] = {}
    for lease in application.status()["leases"]:
        if (lease["route"], lease["shard"]) in leases:
            region = lease["route"].partition("->")[0]
            found.setdefault(region, set()).update(item["partition"] for item in lease["partitions"])
    return found


def longest_gap_s(
    reader: Reader, partitions: Mapping[str, set[int]], since_s: float, until_s: float
) -> float:
    """The longest time without a record of any of these source partitions."""
    gaps = []
    for region, numbers in partitions.items():
        for number in numbers:
            moments = [
                item.at_s
                for item in list(reader.arrivals)
                if (item.region, item.partition) == (region, number) and since_s <= item.at_s <= until_s
            ]
            edges = [since_s, *moments, until_s]
            gaps.append(max(after - before for before, after in itertools.pairwise(edges)))
    return max(gaps)


@pytest.mark.heavy
@pytest.mark.timeout(1200)
def test_a_killed_worker_stalls_its_own_shards_alone_and_loses_nothing(
    infrastructure: Stack, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [TopicPartition(TopicName(topic_name), number) for number in range(PARTITIONS)]
    assert {shard_of(place, SHARDS) for place in places} == set(range(SHARDS))
    create_sources(infrastructure, topic_name)
    create_topic(infrastructure.bootstrap("aggregate-b"), topic_name, PARTITIONS)
    with two_workers(tmp_path) as (master, workers):
        secret = tmp_path / "spark-secret"
        secret.write_text(SPARK_SECRET, encoding="utf-8")
        config = write_config(
            infrastructure,
            tmp_path,
            topic_name,
            shards_per_route=SHARDS,
            spark_master=master,
            spark_secret_file=str(secret),
        )
        assert parallax("schema", "apply", "--config", str(config)).returncode == 0
        feeders = [
            Feeder(infrastructure.bootstrap(f"regional-{region}"), region, topic_name, per_s)
            for region, per_s in (("a", 300.0), ("b", 150.0))
        ]
        reader = Reader(infrastructure.bootstrap("aggregate-b"), topic_name)
        try:
            with running(config, tmp_path / "replicate.log", "--region", "b") as application:
                application.wait_ready()
                reader.wait_for(2_000)
                before = attempts(application)
                assert len(before) == LEASES
                victim = workers[0]
                everything = [process for worker in workers for process in family(worker)]
                everything += family(application._process.pid)
                assert len(everything) > 2 * len(workers)
                assert not any(SPARK_SECRET in command_line(process) for process in everything)
                dying = family(victim)
                assert any("parallax.adapters.spark.daemon" in command_line(process) for process in dying)
                kill_all(dying)
                killed_s = time.monotonic()
                poll_until(
                    lambda: all_heard_since(application, killed_s),
                    MOVED_WITHIN_S,
                    "every lease to work again",
                )
                after = attempts(application)
                moved = {name for name in before if after[name] != before[name]}
                stayed = set(before) - moved
                assert moved
                assert stayed
                poll_until(
                    lambda: flows_again(reader, partitions_of(application, moved), killed_s),
                    MOVED_WITHIN_S,
                    "records of the moved shards",
                )
                until_s = time.monotonic()
                for feeder in feeders:
                    feeder.stop()
                produced = {feeder.region: feeder.sent for feeder in feeders}
                reader.wait_for(sum(produced.values()))
                moved_s = longest_gap_s(reader, partitions_of(application, moved), killed_s, until_s)
                stayed_s = longest_gap_s(reader, partitions_of(application, stayed), killed_s, until_s)
                descendants = application.descendants()
                assert application.terminate() == 0, application.tail()
                assert not still_running(descendants)
        finally:
            for feeder in feeders:
                feeder.stop()
            reader.close()
    check_exactly_once(reader.arrivals, produced)
    with capsys.disabled():
        sys.stderr.write(
            f"\na worker killed: {len(moved)} of {LEASES} shards moved and stalled {moved_s:.1f} s at most; the other "
            f"{len(stayed)} went on, their longest pause {stayed_s:.1f} s; lost 0, duplicated 0\n"
        )
    # Who stayed kept its attempt (above), and was not held up. A shard that moves stalls for a tenth of a second or so,
    # which is what any shard may pause for on a busy machine.
    assert stayed_s < max(moved_s, NOTICEABLE_S)


def flows_again(reader: Reader, partitions: Mapping[str, set[int]], since_s: float) -> bool:
    """Whether every one of these source partitions had a record lately, after a pause that began at ``since_s``."""
    lately = time.monotonic() - 2.0
    newest: dict[tuple[str, int], float] = {}
    for item in list(reader.arrivals):
        newest[item.region, item.partition] = item.at_s
    wanted = [(region, number) for region, numbers in partitions.items() for number in numbers]
    return bool(wanted) and all(newest.get(name, 0.0) > max(since_s, lately) for name in wanted)
