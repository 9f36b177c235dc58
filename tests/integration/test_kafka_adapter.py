"""The reader of a cluster, through the death and return of its only broker."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from lab.workload.topics import create_topic
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.config.config import Cluster
from parallax.domain.commits import GroupCommit
from parallax.domain.ids import (
    OWN_INSTANCE_PREFIX,
    ClusterName,
    GroupName,
    TargetOffset,
    TopicName,
    TopicPartition,
)
from parallax.domain.place import KeptEpoch, LogRange
from parallax.errors import ClusterUnavailableError
from parallax.ports.clusters import GroupState
from parallax.runtime.deadline import Deadline
from replicator.kafka.run_log import read_partitions
from replicator.kafka.topics import TopicAdmin, TopicPlan
from tests.support import Stack, poll_until, unique_name

NAME = "aggregate-a"
RECORDS = 10
TIMEOUT_MS = 10_000
BACK_WITHIN_S = 60.0


@pytest.fixture
def bootstrap_servers(infrastructure: Stack) -> Iterator[str]:
    yield infrastructure.bootstrap(NAME)
    infrastructure.start(NAME)


def test_a_group_tells_its_members_topics_also_without_commits(
    bootstrap_servers: str, topic_name: str
) -> None:
    topics = [topic_name, f"{topic_name}-quiet"]
    for topic in topics:
        create_topic(bootstrap_servers, topic, 2)
    group = GroupName(unique_name("group"))
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    consumer.subscribe(topics)
    reader = KafkaCluster(
        ClusterName(NAME), Cluster(bootstrap_servers=bootstrap_servers), timeout_ms=TIMEOUT_MS
    )

    def joined() -> GroupState | None:
        consumer.poll(0.1)
        return next((state for state in reader.groups() if state.group == group and state.assigned), None)

    state = poll_until(joined, BACK_WITHIN_S, "the group has joined")
    assert (state.members, state.assigned) == (1, set(topics))
    consumer.close()
    left = [state for state in reader.groups() if state.group == group]
    assert [(state.members, state.assigned) for state in left] in ([], [(0, frozenset())])


def test_clusters_tell_their_ids_whatever_address_they_are_asked_at(infrastructure: Stack) -> None:
    def asked(name: str, servers: str) -> str:
        return KafkaCluster(
            ClusterName(name), Cluster(bootstrap_servers=servers), timeout_ms=TIMEOUT_MS
        ).cluster_id()

    port = infrastructure.bootstrap("aggregate-a").rpartition(":")[2]
    ids = [asked(name, infrastructure.bootstrap(name)) for name in ("aggregate-a", "aggregate-b")]
    assert all(ids)
    assert ids[0] != ids[1]
    assert asked("regional-a", f"localhost:{port}") == ids[0]


def test_partitions_are_read_by_one_client_each_to_where_it_is_asked(
    bootstrap_servers: str, topic_name: str
) -> None:
    """And a transaction that nobody has decided is waited for."""
    create_topic(bootstrap_servers, topic_name, 4)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic_name})
    producer.init_transactions()
    for commit in (True, False):
        producer.begin_transaction()
        for partition in range(3):
            for number in range(RECORDS):
                producer.produce(topic_name, f"{partition}-{number}".encode(), partition=partition)
        producer.flush()
        if commit:
            producer.commit_transaction()
    settings = {"bootstrap.servers": bootstrap_servers}
    places = [TopicPartition(TopicName(topic_name), partition) for partition in range(4)]
    spans = {places[0]: (0, RECORDS), places[1]: (4, 7), places[2]: (RECORDS, RECORDS + 1), places[3]: (0, 0)}

    def read(spans: dict[TopicPartition, tuple[int, int]]) -> dict[int, list[bytes | None]]:
        found: dict[int, list[bytes | None]] = {}
        for place, _, _, value in read_partitions(settings, ClusterName(NAME), spans, timeout_ms=2_000):
            found.setdefault(place.partition, []).append(value)
        return found

    assert read(spans) == {
        0: [f"0-{number}".encode() for number in range(RECORDS)],
        1: [f"1-{number}".encode() for number in range(4, 7)],
    }
    with pytest.raises(ClusterUnavailableError, match=f"{places[2]} could not be read up to 15"):
        read(spans | {places[2]: (0, 15)})
    producer.abort_transaction()
    assert read({places[2]: (0, 15)}) == {2: [f"2-{number}".encode() for number in range(RECORDS)]}


def test_a_live_group_whose_partitions_brokers_assign_shows_its_members_and_topics(
    bootstrap_servers: str, topic_name: str
) -> None:
    create_topic(bootstrap_servers, topic_name, 4)
    group, own = GroupName(unique_name("group")), f"{OWN_INSTANCE_PREFIX}1"
    consumers = [
        Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                **instance,
            }
        )
        for instance in ({"group.instance.id": own}, {})
    ]
    writer = KafkaCluster(
        ClusterName(NAME), Cluster(bootstrap_servers=bootstrap_servers), timeout_ms=TIMEOUT_MS
    )
    for consumer in consumers:
        consumer.subscribe([topic_name])

    def joined() -> bool:
        for consumer in consumers:
            consumer.poll(0.1)
        return all(consumer.assignment() for consumer in consumers)

    def state() -> GroupState:
        (found,) = writer.groups(lambda name: name == group)
        return found

    poll_until(joined, BACK_WITHIN_S, "both have joined")
    there = state()
    assert (there.members, there.assigned, there.own_instances) == (2, {topic_name}, {own})
    consumers[1].close()
    poll_until(lambda: state().members == 1, BACK_WITHIN_S, "one has left")
    consumers[0].close()  # with an instance id this gives no place up, just as if it had died
    assert state().members == 1
    writer.dismiss(group, {own})
    assert (state().state, state().members, state().assigned) == ("Empty", 0, frozenset())


def test_an_open_transaction_s_commits_are_told_before_they_stand(
    bootstrap_servers: str, topic_name: str
) -> None:
    create_topic(bootstrap_servers, topic_name, 2)
    group, place = GroupName(unique_name("group")), TopicPartition(TopicName(topic_name), 1)
    writer = KafkaCluster(
        ClusterName(NAME), Cluster(bootstrap_servers=bootstrap_servers), timeout_ms=TIMEOUT_MS
    )
    writer.commit_for(group, {place: GroupCommit(TargetOffset(3), -1, "")})
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": unique_name("tx")})
    producer.init_transactions(BACK_WITHIN_S)
    producer.begin_transaction()
    offset = KafkaPartition(topic_name, place.partition, 7)
    producer.send_offsets_to_transaction([offset], consumer.consumer_group_metadata(), BACK_WITHIN_S)
    assert writer.unsettled(group) == {place}
    assert writer.committed(group)[place].next_offset == 3
    producer.commit_transaction(BACK_WITHIN_S)
    poll_until(lambda: not writer.unsettled(group), BACK_WITHIN_S, "the transaction has ended")
    assert writer.committed(group)[place].next_offset == 7
    never = GroupName(unique_name("group"))
    assert writer.committed_each([group, never]) == {group: writer.committed(group), never: {}}
    consumer.close()


def test_the_place_of_a_member_that_has_died_is_given_up_for_it(
    bootstrap_servers: str, topic_name: str
) -> None:
    create_topic(bootstrap_servers, topic_name, 2)
    group, own = GroupName(unique_name("group")), f"{OWN_INSTANCE_PREFIX}1"
    consumers = [
        Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "group.instance.id": instance,
                "session.timeout.ms": 45_000,
            }
        )
        for instance in (own, "named by the application")
    ]
    writer = KafkaCluster(
        ClusterName(NAME), Cluster(bootstrap_servers=bootstrap_servers), timeout_ms=TIMEOUT_MS
    )

    def members() -> tuple[int, frozenset[str]]:
        (state,) = [state for state in writer.groups() if state.group == group] or [GroupState(group, "", 0)]
        return state.members, state.own_instances

    for consumer in consumers:
        consumer.subscribe([topic_name])

    def joined() -> bool:
        for consumer in consumers:
            consumer.poll(0.1)
        return all(consumer.assignment() for consumer in consumers)

    poll_until(joined, BACK_WITHIN_S, "both have joined")
    for consumer in consumers:
        consumer.close()  # with an instance id this gives no place up, just as if it had died
    assert members() == (2, {own})
    writer.dismiss(group, {own})
    assert members() == (1, frozenset())
    writer.dismiss(group, {own})
    assert members() == (1, frozenset())


ASKS_ALL_THE_TIME = """
import sys, threading, time
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.errors import ClusterUnavailableError
from parallax.domain.ids import ClusterName, GroupName
from parallax.config.config import Cluster

told = {}

def ask(number):
    reader = KafkaCluster(ClusterName("aggregate-a"), Cluster(bootstrap_servers=sys.argv[1]), timeout_ms=500)
    while True:
        try:
            offsets = reader.committed(GroupName(sys.argv[2]))
            told[number] = str([commit.next_offset for commit in offsets.values()])
        except ClusterUnavailableError:
            told[number] = "away"
        time.sleep(0.05)

for number in range(8):
    threading.Thread(target=ask, args=(number,), daemon=True).start()
for _line in sys.stdin:
    print(*sorted(set(told.values())), flush=True)
"""
"""Says what it heard last, once for each line that it reads. It is a process of its own because librdkafka's admin
client would end the process of the tests."""


def test_who_asks_in_vain_about_a_group_survives_the_return_of_its_coordinator(
    infrastructure: Stack, bootstrap_servers: str, topic_name: str
) -> None:
    create_topic(bootstrap_servers, topic_name, 1)
    group = unique_name("group")
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[KafkaPartition(topic_name, 0, 4)], asynchronous=False)
    consumer.close()
    command = [sys.executable, "-c", ASKS_ALL_THE_TIME, bootstrap_servers, group]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        said, heard = child.stdin, child.stdout
        assert said is not None
        assert heard is not None

        def hears(what: str) -> bool:
            said.write("?\n")
            said.flush()
            return heard.readline().strip() == what

        poll_until(lambda: hears("[4]"), BACK_WITHIN_S, "an answer")
        infrastructure.kill(NAME)
        poll_until(lambda: hears("away"), BACK_WITHIN_S, "the cluster is away")
        infrastructure.start(NAME)
        poll_until(lambda: hears("[4]"), BACK_WITHIN_S, "an answer after the return")
        said.close()
        assert child.wait(10) == 0


def test_a_reader_that_saw_its_cluster_die_sees_it_return(
    infrastructure: Stack, bootstrap_servers: str, topic_name: str
) -> None:
    create_topic(bootstrap_servers, topic_name, 1)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(topic_name, str(number), partition=0)
    assert producer.flush(30) == 0
    group, place = GroupName(unique_name("group")), TopicPartition(TopicName(topic_name), 0)
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[KafkaPartition(topic_name, 0, 4)], asynchronous=False)
    consumer.close()
    reader = KafkaCluster(
        ClusterName(NAME), Cluster(bootstrap_servers=bootstrap_servers), timeout_ms=TIMEOUT_MS, cache_ms=0
    )

    def everything() -> tuple[LogRange, int] | None:
        try:
            return reader.log_ranges([place])[place], reader.committed(group)[place].next_offset
        except ClusterUnavailableError:
            return None

    expected = LogRange(TargetOffset(0), TargetOffset(RECORDS)), 4
    assert everything() == expected
    infrastructure.kill(NAME)
    # Both kinds of question, and the second one twice: each has failed for good in its own way.
    for question in (
        lambda: reader.log_ranges([place]),
        *[lambda: reader.committed(group)] * 2,
        reader.topics,
    ):
        asked_at_s = time.monotonic()
        with pytest.raises(ClusterUnavailableError):
            question()
        # The broker refuses connections, and librdkafka knows: none takes as long as a silent one may.
        assert time.monotonic() - asked_at_s < TIMEOUT_MS / 2_000
    infrastructure.start(NAME)
    assert poll_until(everything, BACK_WITHIN_S, f"{NAME} answers the same reader again") == expected

    # The broker leads in a later epoch; where the one before ended is told whatever was written since.
    producer.produce(topic_name, "later", partition=0)
    assert producer.flush(30) == 0
    absent = TopicPartition(place.topic, 1)
    assert reader.kept_epochs({place: 0, absent: 0}) == {place: KeptEpoch(0, TargetOffset(RECORDS))}
    assert reader.kept_epochs({place: 1_000}) == {}


def test_changes_of_topics_outlast_their_cluster_s_absence(
    infrastructure: Stack, bootstrap_servers: str, topic_name: str
) -> None:
    name, topic = ClusterName(NAME), TopicName(topic_name)
    admin = TopicAdmin(name, Cluster(bootstrap_servers=bootstrap_servers), timeout_ms=500)
    plan = TopicPlan(topic, 2, {})
    infrastructure.kill(NAME)
    with pytest.raises(ClusterUnavailableError):
        admin.create(plan, Deadline.after_ms(1_000))
    with ThreadPoolExecutor() as threads:
        created = threads.submit(admin.create, plan, Deadline.after_ms(BACK_WITHIN_S * 1_000))
        infrastructure.start(NAME)
        assert created.result().partitions == 2
    for _ in ("made", "found made"):
        assert admin.grow(topic, 3, Deadline.after_ms(TIMEOUT_MS)).partitions == 3
    assert admin.create(plan, Deadline.after_ms(TIMEOUT_MS)).partitions == 3
