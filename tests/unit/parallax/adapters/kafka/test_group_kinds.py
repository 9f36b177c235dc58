"""Groups of every kind as brokers list and describe them, groups that may not be seen, and open transactions."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from parallax.adapters.kafka import cluster as module
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.adapters.kafka.groups import describe_groups, list_groups, read_unsettled
from parallax.adapters.kafka.links import Link
from parallax.adapters.kafka.logs import read_log_ranges
from parallax.adapters.kafka.next_generation_groups import ConsumerGroupDescribe, DescribedGroup, Member
from parallax.adapters.kafka.transport import packed_unsigned_varint
from parallax.config.config import Cluster
from parallax.domain.ids import OWN_INSTANCE_PREFIX, ClusterName, GroupName, TopicName, TopicPartition
from parallax.errors import ConfigError
from parallax.ports.clusters import GroupState

CLUSTER, GROUP = ClusterName("aggregate-a"), GroupName("billing")
OK, TOPIC_NOT_ALLOWED, NOT_ALLOWED, NO_SUCH_GROUP, UNSTABLE = 0, 29, 30, 69, 88
ADDRESS = Cluster(bootstrap_servers="127.0.0.1:1")


def classic(name: str, state: str, members: int = 0, error_code: int = OK) -> Any:
    member = SimpleNamespace(member_assignment=b"", group_instance_id=None)
    return SimpleNamespace(
        error_code=error_code,
        group_id=name,
        group_state=state,
        protocol_type="consumer",
        members=[member] * members,
    )


class Brokers(Link):
    """One broker that lists groups (name, kind, state); what it says of each else is a test's to set."""

    def __init__(self, *listed: tuple[str, str, str]) -> None:
        super().__init__(CLUSTER, ADDRESS, "test")
        self.listed = listed
        self.classic: dict[str, Any] = {}
        self.consumer: dict[str, DescribedGroup] = {}
        self.coordinators: dict[str, int] = {}
        self.described: list[str] = []
        self.fetched: list[Any] = []

    def metadata(self, topics: Collection[TopicName] | None, doing: str) -> Any:
        assert doing
        parts = [
            SimpleNamespace(partition_index=0, leader_id=1),
            SimpleNamespace(partition_index=1, leader_id=-1),
        ]
        named = [SimpleNamespace(error_code=OK, name=name, partitions=parts) for name in topics or ()]
        return SimpleNamespace(brokers=[SimpleNamespace(node_id=1, host="h", port=1)], topics=named)

    def ask(self, node: Any, request: Any, doing: str) -> Any:  # noqa: ARG002 - as of `Link`
        assert doing
        answers: dict[str, Callable[[Any], Any]] = {
            "ListGroupsRequest": self._list,
            "FindCoordinatorRequest": self._find_coordinators,
            "DescribeGroupsRequest": self._describe_classic,
            "ConsumerGroupDescribe": self._describe_consumer,
            "OffsetFetchRequest": self._fetch_offsets,
            "ListOffsetsRequest": self._list_offsets,
        }
        return answers[request.name](request)

    def _list(self, _request: Any) -> Any:
        groups = [
            SimpleNamespace(group_id=name, group_type=kind, group_state=state)
            for name, kind, state in self.listed
        ]
        return SimpleNamespace(error_code=OK, groups=groups)

    def _find_coordinators(self, request: Any) -> Any:
        found = [
            SimpleNamespace(error_code=self.coordinators.get(key, OK), key=key, host="h", port=1, node_id=1)
            for key in request.coordinator_keys
        ]
        return SimpleNamespace(coordinators=found)

    def _describe_classic(self, request: Any) -> Any:
        self.described += request.groups
        return SimpleNamespace(
            groups=[self.classic.get(name, classic(name, "Dead")) for name in request.groups]
        )

    def _describe_consumer(self, request: ConsumerGroupDescribe) -> Any:
        names = [name for name in self.consumer if name.encode() in bytes(request.parts()[0])]
        self.described += names
        return [self.consumer[name] for name in names]

    def _fetch_offsets(self, request: Any) -> Any:
        self.fetched.append(request)
        codes = enumerate((OK, UNSTABLE if request.require_stable else OK))
        parts = [SimpleNamespace(partition_index=index, error_code=code) for index, code in codes]
        return SimpleNamespace(error_code=OK, topics=[SimpleNamespace(name="trips", partitions=parts)])

    def _list_offsets(self, request: Any) -> Any:
        (topic,) = request.topics
        parts = [
            SimpleNamespace(partition_index=part.partition_index, error_code=OK, offset=7)
            for part in topic.partitions
        ]
        return SimpleNamespace(topics=[SimpleNamespace(name=topic.name, partitions=parts)])

    def states(self) -> dict[str, GroupState]:
        return {str(state.group): state for state in describe_groups(self, list_groups(self))}


@pytest.fixture
def opened() -> Iterator[list[Brokers]]:
    found: list[Brokers] = []
    yield found
    for brokers in found:
        brokers.close()


@pytest.fixture
def brokers(opened: list[Brokers]) -> Brokers:
    found = Brokers(
        ("billing", "Classic", "Stable"),
        ("riders", "Consumer", "Stable"),
        ("streams", "Streams", "NotReady"),
        ("idle", "Streams", "Empty"),
        ("old", "", "Empty"),
    )
    opened.append(found)
    found.classic = {"billing": classic("billing", "Stable", 2), "old": classic("old", "Empty")}
    members = (Member(f"{OWN_INSTANCE_PREFIX}1", frozenset({"trips"})), Member("", frozenset({"rides"})))
    found.consumer = {"riders": DescribedGroup(OK, "riders", "Stable", members)}
    return found


def test_members_are_known_of_every_kind_of_group(brokers: Brokers) -> None:
    states = brokers.states()
    assert {name: (state.state, state.members) for name, state in states.items()} == {
        "billing": ("Stable", 2),
        "riders": ("Stable", 2),
        "streams": ("NotReady", 1),
        "idle": ("Empty", 0),
        "old": ("Empty", 0),
    }
    assert states["riders"].assigned == {"trips", "rides"}
    assert states["riders"].own_instances == {f"{OWN_INSTANCE_PREFIX}1"}
    assert not any(state.refused for state in states.values())


@pytest.mark.parametrize("kind", ["Classic", "Consumer", ""])
def test_a_group_that_is_of_another_kind_by_now_is_not_taken_for_one_without_members(
    opened: list[Brokers], kind: str
) -> None:
    brokers = Brokers(("billing", kind, "Assigning"))
    opened.append(brokers)
    brokers.consumer = {"billing": DescribedGroup(NO_SUCH_GROUP, "billing", "", ())}
    assert brokers.states()["billing"] == GroupState(GROUP, "Assigning", 1)


@pytest.mark.parametrize("code", [NOT_ALLOWED, TOPIC_NOT_ALLOWED])
@pytest.mark.parametrize("name", ["billing", "riders"])
def test_a_group_that_may_not_be_described_is_unknown_alone(brokers: Brokers, name: str, code: int) -> None:
    brokers.classic["billing"].error_code = code if name == "billing" else OK
    if name == "riders":
        brokers.consumer[name] = DescribedGroup(code, name, "", ())
    states = brokers.states()
    assert f"({code})" in states[name].refused
    assert states[name].members == 1
    assert [other for other, state in states.items() if state.refused] == [name]


def test_a_group_whose_coordinator_is_not_told_is_unknown_alone(brokers: Brokers) -> None:
    brokers.coordinators["billing"] = NOT_ALLOWED
    states = brokers.states()
    assert "aggregate-a: finding the coordinator of group 'billing'" in states["billing"].refused
    assert (states["billing"].members, states["riders"].members) == (1, 2)
    with pytest.raises(ConfigError, match="finding the coordinator"):
        brokers.coordinator(GROUP)


def test_only_chosen_groups_are_described_and_a_refusal_is_logged_once(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.coordinators["billing"] = NOT_ALLOWED
    told: list[str] = []
    monkeypatch.setattr(
        module, "_log", SimpleNamespace(warning=lambda _event, **words: told.append(words["group"]))
    )
    monkeypatch.setattr(module, "Links", lambda *_, **__: SimpleNamespace(do=lambda ask: ask(brokers)))
    reader = KafkaCluster(CLUSTER, ADDRESS, timeout_ms=1_000)
    assert [state.group for state in reader.groups(lambda name: name == "riders")] == ["riders"]
    assert brokers.described == ["riders"]
    for _ in range(2):
        assert len(reader.groups()) == 5
    assert told == ["billing"]


def test_commits_of_an_open_transaction_are_told(brokers: Brokers) -> None:
    assert read_unsettled(brokers, GROUP) == {TopicPartition(TopicName("trips"), 1)}
    (request,) = brokers.fetched
    assert request.topics is None


TRIPS = [TopicPartition(TopicName("trips"), number) for number in range(3)]


def test_a_partition_without_a_leader_is_no_matter_of_the_others(brokers: Brokers) -> None:
    assert brokers.by_leader(TRIPS[:1], "reading").popitem()[1] == TRIPS[:1]
    assert brokers.leaderless(TRIPS, "reading") == [TRIPS[1]]
    assert list(read_log_ranges(brokers, TRIPS, patient=False)) == TRIPS[:1]


def test_a_leader_gets_a_moment_to_be_elected(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    elected: list[bool] = []
    reader = KafkaCluster(CLUSTER, ADDRESS, timeout_ms=600)
    reader._links._idle.append(brokers)
    assert list(reader.log_ranges(TRIPS)) == TRIPS[:1]
    ask_metadata = Brokers.metadata

    def metadata(brokers: Brokers, topics: Any, doing: str) -> Any:
        answer = ask_metadata(brokers, topics, doing)
        for part in answer.topics[0].partitions if elected else ():
            part.leader_id = 1
        elected.append(True)
        return answer

    monkeypatch.setattr(Brokers, "metadata", metadata)
    brokers.pause(0)
    assert list(reader.log_ranges(TRIPS)) == TRIPS[:2]


def text(value: str | None) -> bytes:
    return b"\0" if value is None else packed_unsigned_varint(len(value.encode()) + 1) + value.encode()


def assigned(*topics: tuple[str, int]) -> bytes:
    entries = [
        bytes(16) + text(name) + bytes([count + 1]) + bytes(4 * count) + b"\0" for name, count in topics
    ]
    return bytes([len(entries) + 1]) + b"".join(entries) + b"\0"


@pytest.mark.parametrize("version", [0, 1])
def test_the_description_of_a_group_is_read_field_by_field(version: int) -> None:
    def member(instance: str | None, has: bytes, gets: bytes) -> bytes:
        words = (
            text("id") + text(instance) + text(None) + struct.pack(">i", 3) + text("client") + text("host")
        )
        kind = b"\1" if version else b""
        return words + b"\2" + text("trips") + text(None) + has + gets + kind + b"\0"

    members = member(
        "one", assigned(("trips", 2), ("idle", 0)), assigned(("trips", 1), ("rides", 1))
    ) + member(None, assigned(), assigned())
    epochs, operations = struct.pack(">ii", 4, 4), struct.pack(">i", -(2**31))
    group = (
        text(None)
        + text("ri\u00e4ders")
        + text("Stable")
        + epochs
        + text("uniform")
        + b"\3"
        + members
        + operations
    )
    refused = text("no") + text("secret") + text("") + epochs + text("") + b"\1" + operations
    groups = struct.pack(">h", OK) + group + b"\0" + struct.pack(">h", NOT_ALLOWED) + refused + b"\0"
    request = ConsumerGroupDescribe(["ri\u00e4ders", "secret"])
    request.API_VERSION = version
    assert request.read(memoryview(bytes(4) + b"\3" + groups + b"\0")) == [
        DescribedGroup(
            OK,
            "ri\u00e4ders",
            "Stable",
            (Member("one", frozenset({"trips", "rides"})), Member("", frozenset())),
        ),
        DescribedGroup(NOT_ALLOWED, "secret", "", ()),
    ]
    assert b"".join(request.parts()) == b"\3" + text("ri\u00e4ders") + text("secret") + b"\0\0"
    with pytest.raises((ValueError, IndexError, struct.error)):
        request.read(memoryview(bytes(4) + b"\3" + groups[:-20]))
