"""`parallax replicate` with real Spark on real brokers."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
import yaml

from lab.workload.topics import create_topic
from tests.support import Stack, poll_until
from tests.worlds.processes import still_running
from tests.worlds.replication import (
    PARTITIONS,
    Application,
    Feeder,
    Reader,
    check_exactly_once,
    create_sources,
    parallax,
    produce,
    running,
    write_config,
)

PASSWORD = "never-to-be-seen-again"  # noqa: S105 - looked for in logs


def say(capsys: pytest.CaptureFixture[str], line: str) -> None:
    """A figure, past pytest's capture."""
    with capsys.disabled():
        sys.stderr.write(f"\n{line}\n")


class Holders:
    """Who holds each lease, epoch by epoch."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._seen: dict[tuple[str, int], tuple[int, str]] = {}
        self.over_borders: list[tuple[str, str]] = []
        """The holders of a lease before and after each border that it was seen to go over."""

    def look(self) -> int:
        """Look now; the epoch that every lease has reached."""
        leases = self._application.status().get("leases", [])
        for lease in leases:
            key = lease["route"], lease["shard"]
            epoch, holder = self._seen.get(key, (lease["epoch"], lease["attempt"]))
            if lease["epoch"] > epoch:
                self.over_borders.append((holder, lease["attempt"]))
            self._seen[key] = lease["epoch"], lease["attempt"]
        return min((lease["epoch"] for lease in leases), default=0)


def test_dry_run_names_what_does_not_fit_and_starts_nothing(
    infrastructure: Stack, topic_name: str, tmp_path: Path
) -> None:
    create_sources(infrastructure, topic_name)
    create_topic(infrastructure.bootstrap("aggregate-b"), topic_name, PARTITIONS - 1)
    config = write_config(infrastructure, tmp_path, topic_name)
    answer = parallax("replicate", "--config", str(config), "--region", "b", "--dry-run", "--json")
    assert answer.returncode == 0, answer.stderr
    report = json.loads(answer.stdout)
    mismatches = [item["where"] for item in report["findings"] if item["problem"] == "PARTITION_MISMATCH"]
    assert mismatches == [f"a->b/{topic_name}", f"b->b/{topic_name}"]
    assert report["ok"] is True  # it is going to grow


def test_dry_run_reports_a_cluster_that_does_not_answer(
    infrastructure: Stack, topic_name: str, tmp_path: Path
) -> None:
    config = write_config(infrastructure, tmp_path, topic_name)
    values = yaml.safe_load(config.read_text(encoding="utf-8"))
    values["regions"]["a"]["regional"]["bootstrap_servers"] = "127.0.0.1:9"
    config.write_text(yaml.safe_dump(values), encoding="utf-8")
    answer = parallax("replicate", "--config", str(config), "--region", "b", "--dry-run", "--json")
    assert answer.returncode == 0, answer.stderr
    found = {item["problem"]: item for item in json.loads(answer.stdout)["findings"]}
    assert found["CLUSTER_UNREACHABLE"]["where"] == "regional-a"
    assert found["CLUSTER_UNREACHABLE"]["severity"] == "warning"


def test_more_leases_than_task_slots_are_refused(
    infrastructure: Stack, topic_name: str, tmp_path: Path
) -> None:
    config = write_config(infrastructure, tmp_path, topic_name, spark_master="local[3]", shards_per_route=2)
    answer = parallax("replicate", "--config", str(config), "--region", "b")
    assert answer.returncode == 1
    assert "error [PREFLIGHT]: TOO_FEW_SLOTS: spark: 4 leases need as many task slots" in answer.stderr


def test_an_unknown_region_is_refused(infrastructure: Stack, topic_name: str, tmp_path: Path) -> None:
    config = write_config(infrastructure, tmp_path, topic_name)
    answer = parallax("replicate", "--config", str(config), "--region", "c")
    assert answer.returncode == 1
    assert "error [UNKNOWN_REGION]: unknown region 'c'; configured: a, b" in answer.stderr


@pytest.mark.timeout(600)
def test_available_now_copies_two_regions_and_stops(
    infrastructure: Stack, topic_name: str, tmp_path: Path
) -> None:
    create_sources(infrastructure, topic_name)
    produced = {"a": 3_000, "b": 2_000}
    for region, count in produced.items():
        produce(infrastructure.bootstrap(f"regional-{region}"), region, topic_name, count)
    config = write_config(infrastructure, tmp_path, topic_name)
    values = yaml.safe_load(config.read_text(encoding="utf-8"))
    values["cassandra"] |= {"username": "parallax", "password": PASSWORD}
    config.write_text(yaml.safe_dump(values), encoding="utf-8")
    assert parallax("schema", "apply", "--config", str(config)).returncode == 0
    with running(config, tmp_path / "replicate.log", "--available-now") as application:
        descendants = poll_until(application.descendants, 60, "a JVM")
        assert application.wait(500) == 0, application.tail()
        assert not still_running(descendants)
    for region in ("a", "b"):
        reader = Reader(infrastructure.bootstrap(f"aggregate-{region}"), topic_name)
        try:
            reader.wait_for(sum(produced.values()))
        finally:
            reader.close()
        check_exactly_once(reader.arrivals, produced)
    assert PASSWORD not in application.log.read_text(encoding="utf-8")


@pytest.mark.timeout(600)
def test_epoch_borders_lose_and_duplicate_nothing(
    infrastructure: Stack, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create_sources(infrastructure, topic_name)
    create_topic(infrastructure.bootstrap("aggregate-b"), topic_name, PARTITIONS)
    config = write_config(infrastructure, tmp_path, topic_name, lease_epoch_s=8)
    assert parallax("schema", "apply", "--config", str(config)).returncode == 0
    feeders = [
        Feeder(infrastructure.bootstrap(f"regional-{region}"), region, topic_name, per_s)
        for region, per_s in (("a", 300.0), ("b", 100.0))
    ]
    reader = Reader(infrastructure.bootstrap("aggregate-b"), topic_name)
    log = tmp_path / "replicate.log"
    try:
        with running(config, log, "--region", "b") as application:
            application.wait_ready()
            reader.wait_for(1_000)
            began_s = time.monotonic()
            holders = Holders(application)
            poll_until(lambda: holders.look() >= 3, 300, "the third epoch")
            border_s = reader.longest_gap_s(began_s, time.monotonic(), range(PARTITIONS))
            for feeder in feeders:
                feeder.stop()
            produced = {feeder.region: feeder.sent for feeder in feeders}
            reader.wait_for(sum(produced.values()))
            descendants = application.descendants()
            assert application.terminate() == 0, application.tail()
            assert not still_running(descendants)
    finally:
        reader.close()
    check_exactly_once(reader.arrivals, produced)
    assert "leases_did_not_end" not in log.read_text(encoding="utf-8")
    kept = [before == after for before, after in holders.over_borders]
    assert 2 * sum(kept) >= len(kept) > 0, "leases stay in their processes but where Spark ends one of these"
    say(capsys, f"epoch border: {border_s:.1f} s without a record; {sum(kept)} of {len(kept)} leases kept")
