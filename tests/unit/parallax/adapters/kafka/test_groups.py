"""What brokers answer about groups, and brokers that don't."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from parallax.adapters.kafka.groups import commit_request, commits_of, read_commits, state_of
from parallax.adapters.kafka.librdkafka import DOWN_TIMEOUT_S
from parallax.adapters.kafka.links import Link, Links, MovedError
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
from parallax.errors import ClusterUnavailableError, ConfigError

CLUSTER, GROUP = ClusterName("aggregate-a"), GroupName("riders")
UNKNOWN_TOPIC, NOT_ALLOWED, UNSTABLE = 3, 29, 88
LONG_MS = 20_000


def links(timeout_ms: float = LONG_MS, address: str = "127.0.0.1:1") -> Links:
    return Links(CLUSTER, Cluster(bootstrap_servers=address), client_id="test", timeout_ms=timeout_ms)


@pytest.fixture
def link() -> Iterator[Link]:
    with closing(Link(CLUSTER, Cluster(bootstrap_servers="127.0.0.1:1"), "test")) as made:
        yield made


def answer(partition: int, offset: int, error_code: int = 0, metadata: str | None = None) -> Any:
    part = SimpleNamespace(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=-1,
        metadata=metadata,
        error_code=error_code,
    )
    return SimpleNamespace(name="trips", partitions=[part])


def test_a_partition_without_a_commit_is_left_out(link: Link) -> None:
    found = commits_of(link, GROUP, [answer(0, 7), answer(1, -1)])
    assert found == {TopicPartition(TopicName("trips"), 0): GroupCommit(TargetOffset(7), -1, "")}


@pytest.mark.parametrize("written", ["where it went\0", "where it went"])
def test_metadata_are_read_as_confluent_kafka_and_as_others_write_them(link: Link, written: str) -> None:
    (commit,) = commits_of(link, GROUP, [answer(0, 7, metadata=written)]).values()
    assert commit.metadata == "where it went"


def test_metadata_are_written_so_that_confluent_kafka_can_read_them() -> None:
    place = TopicPartition(TopicName("trips"), 0)
    (topic,) = commit_request(GROUP, {place: GroupCommit(TargetOffset(7), 3, "where it went")}).topics
    (part,) = topic.partitions
    assert (part.committed_offset, part.committed_leader_epoch) == (7, -1)
    assert part.committed_metadata == "where it went\0"


def test_a_topic_that_is_gone_is_left_out(link: Link) -> None:
    assert commits_of(link, GROUP, [answer(0, 7, UNKNOWN_TOPIC)]) == {}


@pytest.mark.parametrize(("code", "kind"), [(NOT_ALLOWED, ConfigError), (UNSTABLE, ClusterUnavailableError)])
def test_an_error_is_not_taken_for_a_group_that_never_committed(
    link: Link, code: int, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match="aggregate-a: reading the offset of group 'riders' on trips-1"):
        commits_of(link, GROUP, [answer(0, 7), answer(1, -1, code)])


@pytest.mark.parametrize("assignment", [b"", b"\x00", b"an application's own"])
def test_a_member_s_assignment_in_other_words_is_none(assignment: bytes) -> None:
    entry = ConsumerProtocolAssignment.TopicPartition
    known = ConsumerProtocolAssignment(
        assigned_partitions=[entry(topic="trips", partitions=[1]), entry(topic="idle", partitions=[])],
        user_data=b"",
    ).encode(version=0)
    described = SimpleNamespace(
        group_id="riders",
        group_state="Stable",
        protocol_type="consumer",
        members=[
            SimpleNamespace(member_assignment=known, group_instance_id=f"{OWN_INSTANCE_PREFIX}1"),
            SimpleNamespace(member_assignment=assignment, group_instance_id="the application's"),
            SimpleNamespace(member_assignment=assignment, group_instance_id=None),
        ],
    )
    state = state_of(described)
    assert (state.members, state.assigned) == (3, {"trips"})
    assert state.own_instances == {f"{OWN_INSTANCE_PREFIX}1"}


def test_a_cluster_whose_brokers_refuse_costs_little_of_its_time_out() -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        nobody_there = f"127.0.0.1:{taken.getsockname()[1]}"
    began_s = time.monotonic()
    with pytest.raises(ClusterUnavailableError, match="aggregate-a: connecting: all brokers refuse"):
        links(address=nobody_there).do(lambda link: read_commits(link, GROUP))
    assert DOWN_TIMEOUT_S <= time.monotonic() - began_s < LONG_MS / 2_000


def test_a_silent_cluster_costs_its_time_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ClusterUnavailableError, match="aggregate-a: connecting"):
            links(300, address).do(lambda link: read_commits(link, GROUP))


def test_what_has_moved_is_asked_for_again_until_the_time_is_over() -> None:
    asked = links(300)
    asked._idle.append(Link(CLUSTER, Cluster(bootstrap_servers="127.0.0.1:1"), "test"))
    answers = iter([MovedError("no leader"), MovedError("no leader")])

    def ask(_link: Link) -> str:
        if (error := next(answers, None)) is not None:
            raise error
        return "found"

    assert asked.do(ask) == "found"

    def moves(_link: Link) -> str:
        raise MovedError("aggregate-a: no leader")

    with pytest.raises(ClusterUnavailableError, match="aggregate-a: no leader"):
        asked.do(moves)
