"""`parallax failover` and consumers that follow it, on real brokers, Cassandra and services, under load."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from parallax import FailoverConsumer
from parallax.domain.ids import TopicName
from tests.support import poll_until
from tests.worlds.live import PARTITIONS, WITHIN_S, Live, finished
from tests.worlds.live_clients import Member, Traffic, burst, meanwhile, settings_of
from tests.worlds.live_judgement import (
    Record,
    check_once,
    judge_records,
    more,
    record_of,
    wait_for,
    wait_for_all,
    wait_for_reports,
)

PER_S = {"a": 150, "b": 100}
BACKLOG = 10_000


@pytest.fixture
def members(live: Live) -> Iterator[list[Member]]:
    """Two members of one group, whose primary is a; those that a test adds are closed too."""
    with two_members(live, live.topic) as made:
        yield made


@pytest.fixture
def expectant_members(live: Live) -> Iterator[list[Member]]:
    """They subscribe to a topic that is not there yet, too."""
    with two_members(live, live.topic, late_topic(live)) as made:
        yield made


@contextmanager
def two_members(live: Live, *topics: str) -> Iterator[list[Member]]:
    group = live.group("billing")
    live.parallax("primary", group, "--set", "a")
    made = [Member(live, group, topics=topics) for _ in range(2)]
    try:
        yield made
    finally:
        with ExitStack() as closing:
            for member in made:
                closing.callback(member.close)


def late_topic(live: Live) -> str:
    return f"{live.topic}-late"


def test_a_move_in_the_middle_of_a_rebalance_and_straight_back(live: Live, members: list[Member]) -> None:
    group = live.group("billing")
    with Traffic(live, PER_S) as traffic:
        more(members, 500)
        publishing(live, group, "b")

        members[0].pause()  # a rebalance lasts until every member has polled
        members.append(Member(live, group))
        poll_until(lambda: live.state(group, "a") == "PreparingRebalance", 30, "the rebalance")
        command = live.start("failover", group, "--to", "b", "--execute")
        live.wait_for_fence(group)
        members[0].resume()
        moved = finished(command)
        assert (moved["ending"], moved["plan"]["pending_records"]) == ("moved", 0)

        back = live.parallax("failover", group, "--to", "a", "--execute")
        assert (back["ending"], back["plan"]["pending_records"]) == ("moved", 0)
        more(members, 500)
        acknowledged = traffic.stop()
    check_once(members, acknowledged)
    home = live.names["a"]  # a member that had no partition there may come last
    poll_until(lambda: all(member.consumer.region == home for member in members), 30, "every member in a")


def publishing(live: Live, group: str, region: str) -> None:
    """Wait until the sync job publishes offsets there that go on."""
    first = poll_until(lambda: live.committed(group, region), 30, "published offsets")
    poll_until(lambda: live.committed(group, region) != first, 30, "offsets that go on")


def test_what_a_client_commits_at_the_former_primary_is_never_the_truth(
    live: Live, members: list[Member]
) -> None:
    group = live.group("billing")
    with Traffic(live, PER_S) as traffic:
        more(members, 300)
        assert live.parallax("failover", group, "--to", "b", "--execute")["ending"] == "moved"
        more(members, 300)

        def a_stale_client_runs_ahead() -> None:
            traffic.flow(300)
            commit_the_end(live, group, "a")

        meanwhile(members, a_stale_client_runs_ahead)
        assert live.parallax("failover", group, "--to", "a", "--execute")["ending"] == "moved"
        more(members, 300)
        acknowledged = traffic.stop()
    check_once(members, acknowledged)


def commit_the_end(live: Live, group: str, region: str) -> None:
    """As somebody does who has consumed everything there; until the sync job has put back what counts."""
    client = Consumer({"bootstrap.servers": live.bootstrap(region), "group.id": group})
    places = [TopicPartition(live.topic, number) for number in range(PARTITIONS)]
    ends = {(place.topic, place.partition): client.get_watermark_offsets(place, 20)[1] for place in places}
    client.commit(offsets=[TopicPartition(*place, end) for place, end in ends.items()], asynchronous=False)
    client.close()

    def put_back() -> bool:
        committed = live.committed(group, region)
        return all(committed[place] < end for place, end in ends.items())

    poll_until(put_back, 30, "the group's own offsets stand again")


def test_a_service_killed_and_a_topic_created_in_the_middle_of_a_move(
    live: Live, expectant_members: list[Member]
) -> None:
    group, members = live.group("billing"), expectant_members
    with Traffic(live, PER_S) as traffic:
        more(members, 300)
        members[0].pause()  # it keeps the group from having left
        command = live.start("failover", group, "--to", "b", "--execute")
        live.wait_for_fence(group)
        live.kill_service("b")
        live.create(late_topic(live))
        with Traffic(live, PER_S, prefix="late-", topic=late_topic(live)) as late:
            late.flow(100)
            members[0].resume()
            assert finished(command)["ending"] == "moved"
            more(members, 300)
            live.serve("b")
            acknowledged = traffic.stop() + late.stop()
    check_once(members, acknowledged)


def test_a_member_that_sleeps_through_the_move_takes_nothing_back(live: Live, members: list[Member]) -> None:
    sleeper, awake = members
    with Traffic(live, PER_S) as traffic:
        more([sleeper], 200)
        more([awake], 200)
        traffic.hold()
        wait_for_all(members, traffic.sent)
        wait_for_reports(live, live.group("billing"), "a", members)
        sleeper.pause()
        moved = live.parallax("failover", live.group("billing"), "--to", "b", "--execute", "--disaster")
        assert moved["ending"] == "moved"
        traffic.go_on()
        poll_until(lambda: awake.consumer.region == live.names["b"], 60, "the other one is there")
        more([awake], 1_000)
        sleeper.resume()
        more([sleeper], 200)
        acknowledged = traffic.stop()
    check_once(members, acknowledged)
    assert sleeper.consumer.region == live.names["b"]


def test_a_source_topic_is_deleted_and_created_again_before_the_move(
    live: Live, members: list[Member]
) -> None:
    group = live.group("billing")
    with Traffic(live, {"b": 100}) as traffic:
        with Traffic(live, {"a": 150}) as first:
            more(members, 500)
            old = first.stop()
        # What of the deleted topic has not been copied anywhere by then, nobody can have.
        wait_for(members, old)
        poll_until(lambda: live.pending(group, "a", "b") == 0, 60, "both clusters have the old topic")
        create_again(live, "a")
        with Traffic(live, {"a": 150}, prefix="new-") as second:
            second.flow(200)
            wait_for(members, second.acknowledged.copy())
            assert live.parallax("failover", group, "--to", "b", "--execute")["ending"] == "moved"
            more(members, 500)
            acknowledged = old + second.stop() + traffic.stop()
    check_once(members, acknowledged)


def create_again(live: Live, region: str) -> None:
    """Delete the region's source topic, and create another one of its name."""
    admin = AdminClient({"bootstrap.servers": live.bootstrap(region, "regional")})
    admin.delete_topics([live.topic])[live.topic].result(60)
    poll_until(lambda: live.topic not in admin.list_topics(timeout=20).topics, 60, "the topic is gone")
    live.create(live.topic, regions=region)


class Reader:
    """A consumer without a group's membership that reads only when it is told to: it falls far behind."""

    def __init__(self, live: Live) -> None:
        self.delivered: list[Record] = []
        self.consumer = FailoverConsumer(**settings_of(live, live.group("behind")))
        self.consumer.assign([TopicPartition(live.topic, number) for number in range(PARTITIONS)])

    def take(self, count: int) -> None:
        """What comes within a moment."""
        for message in self.consumer.consume(count, 0.1):
            assert message.error() is None, message.error()
            self.delivered.append(record_of(message))

    def read(self, count: int) -> None:
        wanted = len(self.delivered) + count
        until_s = time.monotonic() + WITHIN_S
        while len(self.delivered) < wanted:
            assert time.monotonic() < until_s, (
                f"{wanted - len(self.delivered)} of {count} records do not come"
            )
            self.take(min(500, wanted - len(self.delivered)))


def test_an_assigned_consumer_far_behind_goes_there_and_back(live: Live) -> None:
    backlog = burst(live, BACKLOG, prefix="old-")
    poll_until(lambda: TopicName(live.topic) in live.cluster("a").topics(), 60, "the topic in aggregate-a")
    reader = Reader(live)
    with Traffic(live, PER_S) as traffic:
        reader.read(1_000)
        for region in ("b", "a"):
            reader.consumer.move_to(live.names[region])
            reader.read(1)
            assert reader.consumer.region == live.names[region]
        acknowledged = traffic.stop() + backlog
    assert live.state(live.group("behind"), "a") in {"", "Empty"}
    reader.read(acknowledged.total() - len(reader.delivered))
    reader.take(1)  # whatever is delivered again would lie between the others, or come now
    reader.consumer.close()
    verdict = judge_records(reader.delivered, acknowledged)
    assert (verdict.lost, verdict.again) == ([], [])
