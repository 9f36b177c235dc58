"""A topic apart over clusters that answer at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.oracle.logs import OracleReadError, Placed, TopicLog
from lab.storm import apart as module
from lab.storm.apart import TopicApart
from lab.workload.events import RecordId, record_id
from lab.workload.worker import WorkerError
from tests.worlds.topic_logs import topic_log


class Clusters:
    """Regional topics by cluster; whatever is written there lies in every aggregate cluster at once, unless told otherwise."""

    def __init__(self) -> None:
        self.regional: dict[str, list[RecordId]] = {}
        self.copied: list[RecordId] = []
        self.copies = 1
        self.done: list[str] = []

    def create(self, servers: str, _topic: str, _partitions: int) -> None:
        self.done.append(f"create at {servers}")
        self.regional.setdefault(servers, [])

    def delete(self, servers: str, _topic: str) -> None:
        self.done.append(f"delete at {servers}")
        del self.regional[servers]

    def read(self, cluster: str, _servers: str, topic: str) -> TopicLog:
        if not self.copied:
            raise OracleReadError(f"{cluster}: no {topic}")
        return topic_log(
            cluster, [(0, Placed(offset, record, 0)) for offset, record in enumerate(self.copied)]
        )


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> Clusters:
    made = Clusters()

    class FakeProducer:
        def __init__(self, settings: dict[str, Any]) -> None:
            self._servers = settings["bootstrap.servers"]

        def produce(self, _topic: str, value: bytes, _key: bytes, *, on_delivery: Any) -> None:
            made.regional[self._servers].append(record_id(value))
            made.copied.extend([record_id(value)] * made.copies)
            on_delivery(None, None)

        def flush(self, _timeout_s: float) -> int:
            return 0

    class Admin:
        def __init__(self, settings: dict[str, Any]) -> None:
            del settings
            self.topics = made.regional

        def list_topics(self, timeout: float) -> Admin:
            assert timeout > 0
            return self

    monkeypatch.setattr(module, "Producer", FakeProducer)
    monkeypatch.setattr(module, "AdminClient", Admin)
    monkeypatch.setattr(module, "create_topic", made.create)
    monkeypatch.setattr(module, "delete_topic", made.delete)
    monkeypatch.setattr(module, "read_topic", made.read)
    monkeypatch.setattr(module, "_COPIED_S", 0.0)
    monkeypatch.setattr(module, "_ASK_EVERY_S", 0.0)
    return made


def topic() -> TopicApart:
    return TopicApart(lambda cluster: cluster, "ab", "brief", 4)


def test_records_of_both_lie_once_in_each_aggregate_cluster(clusters: Clusters) -> None:
    seen = topic().recreate("a")
    assert clusters.done == ["create at regional-a", "delete at regional-a", "create at regional-a"]
    assert sorted(clusters.copied) == [RecordId("a", seq) for seq in range(600)]
    assert seen.startswith("600 records of brief lie once in each aggregate cluster")


def test_no_number_is_used_twice_when_it_happens_again(clusters: Clusters) -> None:
    made = topic()
    made.recreate("a")
    made.recreate("b")
    assert made.recreate("a").startswith("1,800 records")
    assert len(set(clusters.copied)) == 1_800


def test_a_record_that_lies_twice_is_told_at_once(clusters: Clusters) -> None:
    clusters.copies = 2
    with pytest.raises(WorkerError, match="aggregate-a: 300 records of brief lie there twice"):
        topic().recreate("a")


def test_a_record_that_does_not_come_is_told(clusters: Clusters) -> None:
    clusters.copies = 0
    with pytest.raises(WorkerError, match="no brief"):
        topic().recreate("a")
    clusters.copied.append(RecordId("a", 0))
    with pytest.raises(WorkerError, match="aggregate-a: 299 records of brief are missing"):
        topic().recreate("a")


def logs(storage: Path, partitions: int) -> list[Path]:
    """Logs of two files each."""
    for number in range(partitions):
        folder = storage / f"brief-{number}"
        folder.mkdir()
        for name, size in (("00000000000000000000.log", 70), ("00000000000000000400.log", 1_000)):
            (folder / name).write_bytes(bytes(size))
    return [storage / f"brief-{number}" / "00000000000000000400.log" for number in range(partitions)]


def test_a_cut_takes_the_end_of_each_log_and_nothing_else(tmp_path: Path) -> None:
    files = logs(tmp_path, 4)
    assert topic().cut(tmp_path) == "2,000 bytes of brief are gone"
    assert [file.stat().st_size for file in files] == [500] * 4
    assert sorted(file.stat().st_size for file in tmp_path.rglob("*.log")) == [70] * 4 + [500] * 4


def test_a_cut_that_finds_nothing_to_take_is_told(tmp_path: Path) -> None:
    logs(tmp_path, 3)
    with pytest.raises(WorkerError, match="there is no log of brief-3"):
        topic().cut(tmp_path)
    for file in tmp_path.rglob("*.log"):
        file.write_bytes(b"")
    (tmp_path / "brief-3").mkdir()
    (tmp_path / "brief-3" / "00000000000000000000.log").write_bytes(b"")
    with pytest.raises(WorkerError, match="nothing was taken"):
        topic().cut(tmp_path)


def test_what_was_cut_off_has_to_come_back_once(clusters: Clusters) -> None:
    made = topic()
    made.fill("b")
    assert clusters.copied == [RecordId("b", seq) for seq in range(600)]
    del clusters.copied[400:]
    with pytest.raises(WorkerError, match="aggregate-a: 200 records of brief are missing"):
        made.go_on("b")
    clusters.copied += [RecordId("b", seq) for seq in range(400, 600)]
    assert made.go_on("b").startswith("900 records of brief lie once in each aggregate cluster")
    clusters.copied.append(RecordId("b", 599))
    with pytest.raises(WorkerError, match="1 records of brief lie there twice"):
        made.go_on("b")
