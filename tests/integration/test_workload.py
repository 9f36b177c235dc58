from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from lab.oracle.copies import compare_copies
from lab.oracle.groups import judge_group
from lab.oracle.logs import read_topic
from lab.workload.delivered import read_deliveries, read_group
from lab.workload.plan import Phase, Plan, PlannedTransactions
from lab.workload.worker import Worker, wait_until
from tests.support import Stack

PARTITIONS = 3


def create_topic(bootstrap_servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS)]).values():
        future.result(timeout=30)


def produce(infrastructure: Stack, topic: str, plan: Plan, folder: Path) -> dict[str, int]:
    bootstrap = infrastructure.bootstrap("regional-a")
    arguments = ["produce", "--bootstrap-servers", bootstrap, "--topic", topic]
    arguments += ["--region", "a", "--plan", plan.to_json(), "--acked", str(folder / "acknowledged")]
    worker = Worker("producer", arguments, folder / "producer.err")
    worker.start()
    try:
        figures = worker.wait_for("done", 60)
        worker.join(10)
    finally:
        worker.kill()
    return {name: figures[name] for name in ("sent", "acked", "aborted")}


def consumer(infrastructure: Stack, topic: str, folder: Path, name: str, per_s: float = 100_000) -> Worker:
    arguments = ["consume", "--bootstrap-servers", infrastructure.bootstrap("regional-a"), "--topic", topic]
    arguments += [
        "--cluster",
        "regional-a",
        "--group",
        f"group-{topic}",
        "--log",
        str(folder / f"{name}.log"),
    ]
    return Worker(name, [*arguments, "--per-s", str(per_s)], folder / f"{name}.err").start()


def test_aborted_transactions_are_sent_and_stay_invisible(
    infrastructure: Stack, topic_name: str, tmp_path: Path
) -> None:
    create_topic(infrastructure.bootstrap("regional-a"), topic_name)
    plan = Plan((Phase(400), Phase(0, 0.2), Phase(200, 0.5)), PlannedTransactions(50, abort_every=4))
    assert produce(infrastructure, topic_name, plan, tmp_path) == {"sent": 750, "acked": 750, "aborted": 150}
    log = read_topic("regional-a", infrastructure.bootstrap("regional-a"), topic_name)
    assert log.count == 600
    # Numbers of aborted records are used up: 150 of 0..749 are missing.
    assert len(log.records()) == 600
    assert {record.seq for record in log.records()} < set(range(750))
    assert compare_copies([log], log).faultless
    # What it was told is written is where it was told; of the aborted ones, too, it was told so.
    told = {
        item.record: (item.partition, item.record_offset)
        for item in read_deliveries(tmp_path / "acknowledged")
    }
    assert len(told) == 750
    assert log.places().items() <= told.items()


def test_a_group_of_two_processes_delivers_everything_once(
    infrastructure: Stack, topic_name: str, tmp_path: Path
) -> None:
    create_topic(infrastructure.bootstrap("regional-a"), topic_name)
    folder = tmp_path / "group"
    members = [consumer(infrastructure, topic_name, folder, "one", per_s=2_000)]
    try:
        members[0].wait_for("assigned", 30)
        produce(infrastructure, topic_name, Plan((Phase(3_000, 2.0),)), tmp_path)
        # The second member joins while the first is busy: partitions change hands.
        members.append(consumer(infrastructure, topic_name, folder, "two"))
        members[1].wait_for("assigned", 30)
        members[0].send("limit", per_s=None)
        wait_until(
            lambda: sum(member.status.get("delivered", 0) for member in members) >= 3_000, 30, "not delivered"
        )
        for member in members:
            member.stop()
    finally:
        for member in members:
            member.kill()
    produced = read_topic("regional-a", infrastructure.bootstrap("regional-a"), topic_name)
    verdict = judge_group(read_group(folder), produced.records(), {"regional-a": produced}, moved_at_ms=[])
    assert (verdict.delivered_records, verdict.lost_records, verdict.foreign_records) == (3_000, 0, 0)
    assert verdict.repeated_records == 0


def test_what_a_killed_consumer_had_not_committed_is_seen_as_repeated(
    infrastructure: Stack, topic_name: str, tmp_path: Path
) -> None:
    create_topic(infrastructure.bootstrap("regional-a"), topic_name)
    produce(infrastructure, topic_name, Plan((Phase(2_000),)), tmp_path)
    folder = tmp_path / "group"
    first = consumer(infrastructure, topic_name, folder, "one", per_s=1_000)
    wait_until(lambda: first.status.get("delivered", 0) >= 800, 30, "not delivered")
    first.kill()
    second = consumer(infrastructure, topic_name, folder, "two")
    try:
        wait_until(lambda: len({item.record for item in read_group(folder)}) == 2_000, 40, "not taken over")
        second.stop()
    finally:
        second.kill()
    produced = read_topic("regional-a", infrastructure.bootstrap("regional-a"), topic_name)
    deliveries = read_group(folder)
    verdict = judge_group(deliveries, produced.records(), {"regional-a": produced}, moved_at_ms=[])
    assert (verdict.delivered_records, verdict.lost_records) == (2_000, 0)
    assert 0 < verdict.repeated_records < 1_000
