"""What brokers answer about groups, and brokers that don't."""

from __future__ import annotations

import socket
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.consumer import OffsetFetchRequest, OffsetFetchResponse
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from parallax.adapters.kafka.groups import (
    commit_request,
    commits_of,
    read_commits,
    read_commits_of_each,
    state_of,
)
from parallax.adapters.kafka.librdkafka import DOWN_TIMEOUT_S
from parallax.adapters.kafka.links import Broker, Link, Links, MovedError
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
UNKNOWN_TOPIC, NOT_COORDINATOR, NOT_ALLOWED, UNSTABLE = 3, 16, 29, 88
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


def test_connections_that_nobody_uses_are_closed_at_once() -> None:
    made, open_files = links(), Path("/proc/self/fd")
    before = len(list(open_files.iterdir()))
    made._idle.append(Link(CLUSTER, Cluster(bootstrap_servers="127.0.0.1:1"), "test"))
    assert len(list(open_files.iterdir())) > before
    made.close()
    assert (len(made._idle), len(list(open_files.iterdir()))) == (0, before)


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


class Coordinators(Link):
    """Two coordinators; what they say is written and read as it is on the wire."""

    def __init__(self, codes: Mapping[str, int]) -> None:
        super().__init__(CLUSTER, Cluster(bootstrap_servers="127.0.0.1:1"), "test")
        self.codes, self.asked = codes, list[list[str]]()

    def by_coordinator(
        self, groups: Collection[GroupName], refused: dict[GroupName, str] | None = None
    ) -> dict[Any, list[GroupName]]:
        assert refused is not None
        refused |= {name: "not to be seen" for name in groups if name == "hidden"}
        names = [name for name in groups if name not in refused]
        return {0: names[::2], 1: names[1::2]}

    def ask(self, node: Any, request: Any, doing: str) -> Any:  # noqa: ARG002 - as of `Link`
        asked = OffsetFetchRequest.decode(bytes(request.encode(version=8)), version=8)
        assert not asked.require_stable
        assert all(group.topics is None for group in asked.groups)
        self.asked.append([group.group_id for group in asked.groups])
        of_group = OffsetFetchResponse.OffsetFetchResponseGroup
        of_topic = of_group.OffsetFetchResponseTopics
        of_part = of_topic.OffsetFetchResponsePartitions
        groups = []
        for name in self.asked[-1]:
            part = of_part(
                partition_index=len(name),
                committed_offset=100 + len(name),
                committed_leader_epoch=-1,
                metadata="where it went",
                error_code=self.codes.get(f"{name}'s partition", 0),
            )
            topics = [of_topic(name="trips", partitions=[part])]
            groups.append(of_group(group_id=name, topics=topics, error_code=self.codes.get(name, 0)))
        answer = OffsetFetchResponse(throttle_time_ms=0, groups=groups[self.codes.get("cut", 0) :])
        return OffsetFetchResponse.decode(bytes(answer.encode(version=8)), version=8)


def ask_two_coordinators(names: str, **codes: int) -> tuple[Coordinators, dict[GroupName, Any]]:
    with closing(Coordinators({name.replace("_", "'s "): code for name, code in codes.items()})) as made:
        return made, read_commits_of_each(made, [GroupName(name) for name in names.split()])


def test_many_groups_are_read_with_one_request_to_each_coordinator() -> None:
    coordinators, found = ask_two_coordinators("a bb ccc dddd")
    assert coordinators.asked == [["a", "ccc"], ["bb", "dddd"]]
    assert found == {
        name: {
            TopicPartition(TopicName("trips"), len(name)): GroupCommit(100 + len(name), -1, "where it went")
        }
        for name in ("a", "bb", "ccc", "dddd")
    }


def test_of_many_groups_those_that_may_not_be_seen_say_why() -> None:
    _, found = ask_two_coordinators("a bb ccc hidden", bb=30, ccc_partition=NOT_ALLOWED)
    assert {name for name, it in found.items() if isinstance(it, ConfigError)} == {"bb", "ccc", "hidden"}
    assert len(found["a"]) == 1


@pytest.mark.parametrize(
    ("codes", "kind"),
    [
        ({"bb": NOT_COORDINATOR}, MovedError),
        ({"bb_partition": UNSTABLE}, ClusterUnavailableError),
        ({"cut": 1}, ClusterUnavailableError),
    ],
)
def test_of_many_groups_none_is_taken_for_one_that_never_committed(
    codes: dict[str, int], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        ask_two_coordinators("a bb", **codes)


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


class Finding(Link):
    """Finds coordinators, and counts for how many groups."""

    def __init__(self, known: Any, asked: list[str]) -> None:
        super().__init__(CLUSTER, Cluster(bootstrap_servers="127.0.0.1:1"), "test", known)
        self.asked = asked

    @property
    def any_node(self) -> int:
        return 0

    def ask(self, node: Any, request: Any, doing: str) -> Any:  # noqa: ARG002 - as of `Link`
        self.asked += request.coordinator_keys
        found = [
            SimpleNamespace(error_code=0, key=key, host="h", port=1, node_id=1)
            for key in request.coordinator_keys
        ]
        return SimpleNamespace(coordinators=found)


def test_a_coordinator_that_one_connection_has_found_all_know_until_it_moves_or_is_gone() -> None:
    group, other = GroupName("riders"), GroupName("drivers")
    asked, client = list[str](), links()
    ours, theirs = (Finding(client._coordinators, asked) for _ in range(2))
    with closing(ours), closing(theirs):
        assert ours.by_coordinator([group]) == {"coordinator-1": [group]}
        assert theirs.by_coordinator([group, other]) == {"coordinator-1": [group, other]}
        assert asked == [group, other]
        ours.pause(1)
        theirs.by_coordinator([group])
        assert asked == [group, other, group]
        failures = iter([True])

        def ask(link: Link) -> Any:
            if next(failures, False):
                raise ClusterUnavailableError("the coordinator does not answer")
            return link.by_coordinator([group])

        client._idle += [theirs, ours]
        assert client.do(ask) == {"coordinator-1": [group]}
        assert asked == [group, other, group, group]


def test_what_fails_with_a_coordinator_just_found_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A remembered one may be gone, and is looked for once; it is found again at each attempt."""
    client, attempts = links(), list[Link]()
    monkeypatch.setattr(Link, "connect", lambda _link, _deadline: None)

    def ask(link: Link) -> None:
        attempts.append(link)
        client._coordinators[GROUP] = Broker("h", 1, 1)
        raise ClusterUnavailableError("an answer that says nothing")

    with pytest.raises(ClusterUnavailableError, match="says nothing"):
        client.do(ask)
    assert len(attempts) == 1
    client._coordinators[GROUP] = Broker("h", 1, 1)
    with pytest.raises(ClusterUnavailableError, match="says nothing"):
        client.do(ask)
    assert len(attempts) == 3


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
