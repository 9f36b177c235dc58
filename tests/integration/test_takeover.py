"""A running MirrorMaker 2 is stopped, or killed, and its work is gone on with: on real brokers."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs
from typer.testing import CliRunner, Result

from lab.bench.sides.mirrormaker import Flow, mirrormaker_spec, settings_of
from lab.stack.java import find_java
from lab.stack.process import Launcher, ManagedProcess
from parallax.cli import audited
from parallax.config.config import Config
from parallax.config.mirror_maker import import_mirror_maker
from parallax.domain.audit import AuditStage
from parallax.domain.ids import RegionName, Route
from parallax.errors import RefusedError
from parallax.ports.audit import Auditor
from parallax.runtime.deadline import wall_clock_ms
from replicator.import_command import app
from replicator.kafka.layout import read_layout
from tests.memory.audit import MemoryAuditLog
from tests.memory.index import MemoryMappingIndex
from tests.support import Stack, poll_until, unique_name
from tests.worlds.shard_harness import Harness, Record, ends, numbered, seen, until

PATIENCE_S = 120.0
POLICY = "org.apache.kafka.connect.mirror.{}ReplicationPolicy"


class Changeover:
    """Two clusters, the file of a MirrorMaker 2 between them, and the configuration that becomes of it."""

    def __init__(
        self, stack: Stack, topic: str, directory: Path, policy: str, flush_interval_ms: int
    ) -> None:
        self.harness = Harness(stack, topic)
        name = unique_name("r").replace("-", "")
        self.route = self.harness.route = Route(RegionName(f"{name}s"), RegionName(f"{name}t"))
        source, target = self.route.source, self.route.target
        self.copy = topic if policy == "Identity" else f"{source}.{topic}"
        flow = Flow(source, target, self.harness.source, self.harness.target, [topic], tasks=1)
        self.settings = settings_of([flow], "latency") | {
            "replication.policy.class": POLICY.format(policy),
            f"{target}.offset.flush.interval.ms": str(flush_interval_ms),
            "refresh.topics.interval.seconds": "2",
        }
        self.produced: list[str] = []
        self.directory = directory
        self.file = directory / "mm2.properties"
        self.file.write_text("".join(f"{key} = {value}\n" for key, value in self.settings.items()))
        accepted = [key.key for key in import_mirror_maker(self.file.read_text()).keys if key.blocks]
        values = import_mirror_maker(self.file.read_text(), accepted).values
        values["replicator"] = {"discovery_interval_ms": 1_000, "watermark_interval_ms": 300}
        self.config = Config.model_validate(values)
        self.yaml = directory / "parallax.yaml"
        self.yaml.write_text(yaml.safe_dump(values), encoding="utf-8")

    @contextmanager
    def mirror_maker(self) -> Iterator[ManagedProcess]:
        java, launcher = find_java(), Launcher()
        spec = mirrormaker_spec(
            "mirrormaker2",
            self.settings,
            java=java,
            directory=self.directory / "mm2",
            environment=os.environ | {"JAVA_HOME": str(java.home)},
        )
        process = ManagedProcess(spec, launcher)
        try:
            process.start()
            yield process
        finally:
            process.kill()
            launcher.close()

    def take_over(self, *options: str) -> Result:
        words = ["mm2", str(self.file), "--positions", "--config", str(self.yaml), "-o", "json", *options]
        with capture_logs():  # in a process of its own a command logs to standard error
            return CliRunner().invoke(app, words)

    def positions(self) -> dict[int, dict[str, Any]]:
        """The plan, by partition; nothing while nothing is recorded."""
        result = self.take_over()
        if isinstance(result.exception, RefusedError):
            return {}
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return {row["partition"]: row for row in json.loads(result.stdout)}

    def recorded(self) -> int:
        return sum(row["source_next"] or 0 for row in self.positions().values())

    def copied(self) -> int:
        return sum(ends(self.harness.target, self.copy))

    def produce(self, count: int) -> None:
        values = [f"v{len(self.produced) + number}" for number in range(count)]
        for partition in range(2):
            self.harness.produce(values[partition::2], partition)
        self.produced += values

    def copies(self) -> list[tuple[int, int, Record]]:
        return numbered(self.harness.target, self.copy)

    def mapped(self, plan: Mapping[int, Mapping[str, Any]]) -> int:
        """How many records the run log tells the place of; each has to lie there, and nothing is said of what was taken over."""
        there, here = (
            {(partition, offset): record for partition, offset, record in numbered(bootstrap, topic)}
            for bootstrap, topic in (
                (self.harness.source, self.harness.topic),
                (self.harness.target, self.copy),
            )
        )
        count = 0
        for (item, _), (rows, lost) in self.harness.rows(config=self.config).items():
            assert lost == []
            assert rows[0].source_start == rows[0].previous_source_end == plan[item.partition]["source_next"]
            for row in rows:
                for number in range(row.count):
                    source = there[item.partition, row.source_start + number]
                    assert seen(here[item.partition, row.target_start + number]) == seen(source)
                count += row.count
        return count


@pytest.mark.heavy
@pytest.mark.parametrize(("policy", "end"), [("Identity", "stopped"), ("Default", "killed")])
def test_nothing_is_copied_again_but_what_it_had_not_recorded_and_nothing_is_lost(
    infrastructure: Stack,
    topic_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
    end: str,
) -> None:
    kept = MemoryAuditLog()
    monkeypatch.setattr(audited, "open_auditor", lambda _config: nullcontext(Auditor(kept, wall_clock_ms)))
    flush_interval_ms = 4_000 if end == "stopped" else 20_000  # long enough to be killed within
    change = Changeover(infrastructure, topic_name, tmp_path, policy, flush_interval_ms)
    change.harness.create(2)
    change.produce(1_000)
    with change.mirror_maker() as process:
        poll_until(lambda: change.recorded() == 1_000, PATIENCE_S, "its positions")
        refused = change.take_over("--execute").exception
        assert isinstance(refused, RefusedError)
        assert "stop MirrorMaker 2" in str(refused)
        change.produce(400)
        poll_until(lambda: change.copied() == 1_400, PATIENCE_S, "its copies")
        if end == "stopped":
            process.stop()
    change.produce(200)
    poll_until(lambda: change.take_over().exit_code == 0, PATIENCE_S, "that it is known to be gone")
    plan, recorded = change.positions(), change.recorded()
    assert [row["takeover"] for row in plan.values()] == ["goes on"] * 2
    assert sum(row["source_offsets_left"] for row in plan.values()) == 1_600 - recorded
    assert sum(row["target_next"] for row in plan.values()) == 1_400
    assert read_layout(change.config, change.route) is None

    done = change.take_over("--execute")
    assert done.exit_code == 0, (done.exception, done.output)
    assert {row["partition"]: row for row in json.loads(done.stdout)} == plan
    assert kept.entries()[-1].stage is AuditStage.DONE
    again = change.take_over("--execute").exception
    assert isinstance(again, RefusedError)
    assert "copied by Parallax already" in str(again)

    index = MemoryMappingIndex()
    owner = change.harness.own(change.config, index)
    change.produce(100)
    unrecorded = 1_400 - recorded
    until(lambda: len(change.copies()) == 1_700 + unrecorded, "the rest")
    owner.finish()
    counts = Counter((record[1] or b"").decode() for _, _, record in change.copies())
    assert set(counts) == set(change.produced), "lost"
    assert sum(count - 1 for count in counts.values()) == unrecorded
    assert unrecorded == (0 if end == "stopped" else 400)
    assert change.mapped(plan) == 1_700 - recorded
