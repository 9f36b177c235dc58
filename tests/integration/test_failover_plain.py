"""Plain consumers on the other side: from offsets that the sync job published, and from those of a move.

They know nothing of Parallax: librdkafka's consumer, with and without a group's membership, and Kafka's own in Java.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition

from parallax.domain.commits import GroupCommit
from parallax.domain.ids import UNKNOWN_EPOCH, GroupName, TargetOffset, TopicName
from parallax.domain.ids import TopicPartition as Place
from tests.support import poll_until
from tests.worlds.kafka_tools import CONSOLE_CONSUMER, kafka_tool
from tests.worlds.live import PARTITIONS, Live
from tests.worlds.live_clients import Traffic
from tests.worlds.live_judgement import Record, parsed, record_of

PER_S = {"a": 150, "b": 100}
RECORDS = 600
JAVA_WITHIN_S = 90.0

Read = Callable[[Live, str, str, int], list[Record]]
"""Reads so many records of the world's topic as a group in a region, commits, and leaves."""


def everything(acknowledged: Counter[str]) -> set[Record]:
    return {(stream, n) for stream, end in acknowledged.items() for n in range(end)}


def test_plain_consumers_go_on_where_the_sync_job_says(live: Live) -> None:
    with Traffic(live, PER_S, partitions=(0, 1)) as traffic:
        traffic.flow(RECORDS)
        acknowledged = traffic.stop()
    half = acknowledged.total() // 2
    groups: dict[str, Read] = {
        live.group("members"): read_as_member,
        live.group("assigned"): read_assigned,
        live.group("java"): read_with_java,
    }
    before = {group: read(live, group, "a", half) for group, read in groups.items()}
    # Nobody has ever committed on this partition.
    with Traffic(live, PER_S, partitions=(2,)) as traffic:
        traffic.flow(RECORDS // 4)
        acknowledged += traffic.stop()

    for group, read in groups.items():
        poll_until(lambda group=group: live.pending(group, "a", "b") == 0, 60, "everything at b")
        plan = live.parallax("failover", group, "--to", "b", "--from", "a")
        resume = {(item["topic"], item["partition"]): item["resume_offset"] for item in plan["partitions"]}
        assert len(resume) == PARTITIONS
        poll_until(
            lambda group=group, resume=resume: live.committed(group, "b") == resume, 30, "published offsets"
        )
        foretold = plan["redelivery_records"]
        after = read(live, group, "b", acknowledged.total() - half + foretold)
        counts = Counter([*before[group], *after])
        assert set(counts) == everything(acknowledged)
        assert (group, counts.total() - len(counts)) == (group, foretold)


def test_a_moved_group_reads_again_what_the_plan_foretold_and_what_it_is_rewound_to(live: Live) -> None:
    group = live.group("plain")
    with Traffic(live, PER_S) as traffic:
        traffic.flow(RECORDS)
        acknowledged = traffic.stop()
    before = read_as_member(live, group, "a", acknowledged.total() // 2)

    moved = live.parallax("failover", group, "--to", "b", "--from", "a", "--execute")

    foretold = moved["plan"]["redelivery_records"]
    after = read_as_member(live, group, "b", acknowledged.total() - len(before) + foretold)
    counts = Counter([*before, *after])
    assert set(counts) == everything(acknowledged)
    assert counts.total() - len(counts) == foretold

    # An operator sets the group back to the beginning: so does the sync job on the other side.
    beginning = GroupCommit(TargetOffset(0), UNKNOWN_EPOCH, "")
    places = [Place(TopicName(live.topic), number) for number in range(PARTITIONS)]
    live.cluster("b").commit_for(GroupName(group), dict.fromkeys(places, beginning))
    rewound = {(live.topic, number): 0 for number in range(PARTITIONS)}
    poll_until(lambda: live.committed(group, "a") == rewound, 30, "the rewind on the other side")
    assert live.parallax("failover", group, "--to", "a", "--execute")["ending"] == "moved"
    once_more = read_as_member(live, group, "a", acknowledged.total())
    assert Counter(once_more) == Counter(everything(acknowledged))


# --- who reads ------------------------------------------------------------------------------------------------


def plain(live: Live, group: str, region: str) -> Consumer:
    """At the primary it begins where there is no commit; anywhere else a missing one is an error."""
    return Consumer(
        {
            "bootstrap.servers": live.bootstrap(region),
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest" if region == "a" else "error",
            "topic.metadata.refresh.interval.ms": 1_000,
        }
    )


def read_as_member(live: Live, group: str, region: str, count: int) -> list[Record]:
    consumer = plain(live, group, region)
    consumer.subscribe([live.topic])
    return read_and_leave(consumer, count)


def read_assigned(live: Live, group: str, region: str, count: int) -> list[Record]:
    consumer = plain(live, group, region)
    consumer.assign([TopicPartition(live.topic, number) for number in range(PARTITIONS)])
    return read_and_leave(consumer, count)


def read_and_leave(consumer: Consumer, count: int) -> list[Record]:
    found: list[Record] = []

    def enough() -> bool:
        for message in consumer.consume(count - len(found), 0.2):
            assert message.error() is None, message.error()
            found.append(record_of(message))
        return len(found) >= count

    poll_until(enough, 60, f"{count} records")
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def read_with_java(live: Live, group: str, region: str, count: int) -> list[Record]:
    """Kafka's console consumer; it commits when it has read enough."""
    begin = ["--from-beginning"] if region == "a" else []
    done = subprocess.run(
        kafka_tool(
            CONSOLE_CONSUMER,
            *("--bootstrap-server", live.bootstrap(region), "--topic", live.topic, "--group", group),
            *("--isolation-level", "read_committed", "--max-messages", str(count), *begin),
            *("--timeout-ms", str(int(JAVA_WITHIN_S / 2 * 1_000))),
        ),
        capture_output=True,
        text=True,
        check=False,
        timeout=JAVA_WITHIN_S,
    )
    assert done.returncode == 0, done.stderr
    return [parsed(line) for line in done.stdout.splitlines()]
