"""Records of MirrorMaker 2, byte by byte as its own classes write them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from parallax.domain.ids import GroupName, TargetOffset, TopicName, TopicPartition
from parallax.domain.mirror_maker import Checkpoint, Heartbeat, checkpoints_topic, copied_heartbeats
from tests.worlds.mirror_client import POLICIES, MirrorClient, mirror_client


@pytest.fixture(scope="module")
def client() -> Iterator[MirrorClient]:
    with mirror_client() as found:
        yield found


def test_its_own_classes_read_them(client: MirrorClient) -> None:
    made = Checkpoint(
        GroupName("bé"), TopicPartition(TopicName("trips"), 3), TargetOffset(2**40), TargetOffset(7)
    )
    assert client.checkpoint(made.key(), made.value()) == ("bé", "trips", 3, 2**40, 7, "")
    beat = Heartbeat("a", "b", 1_700_000_000_000)
    assert client.heartbeat(beat.key(), beat.value()) == ("a", "b", 1_700_000_000_000)


@pytest.mark.parametrize("policy", POLICIES)
def test_its_policies_know_the_topics_by_their_names(client: MirrorClient, policy: str) -> None:
    assert client.checkpoints_topic(policy, "a") == checkpoints_topic("a")
    copies = copied_heartbeats([TopicName("heartbeats"), TopicName("x.heartbeats")], "a", "b")
    assert {client.heartbeats_source(policy, copy) for copy in copies.values()} == {"a"}


def test_a_checkpoint_is_what_its_client_reads() -> None:
    place = TopicPartition(TopicName("trips"), 3)
    checkpoint = Checkpoint(GroupName("bé"), place, TargetOffset(258), TargetOffset(7))
    assert checkpoint.key() == b"\0\3b\xc3\xa9\0\5trips\0\0\0\3"
    assert checkpoint.value() == b"\0\0" + b"\0\0\0\0\0\0\1\2" + b"\0\0\0\0\0\0\0\7" + b"\0\0"
    assert checkpoints_topic("a") == "a.checkpoints.internal"


def test_a_beat_is_what_its_client_reads() -> None:
    beat = Heartbeat("a", "b", 0x0102_0304_0506)
    assert beat.key() == b"\0\1a\0\1b"
    assert beat.value() == b"\0\0\0\0\1\2\3\4\5\6"


def test_a_text_that_no_record_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match="32767 at most"):
        Heartbeat("a" * 32_768, "b", 0).key()


def test_copies_of_beats_tell_their_way_and_never_come_back() -> None:
    topics = [
        TopicName(name)
        for name in ("heartbeats", "x.heartbeats", "b.heartbeats", "x.b.heartbeats", "a.heartbeats", "trips")
    ]
    assert copied_heartbeats(topics, "a", "b") == {
        "heartbeats": "a.heartbeats",
        "x.heartbeats": "a.x.heartbeats",
    }
