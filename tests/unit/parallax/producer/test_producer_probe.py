"""What a probe makes of a cluster's metadata."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ClusterMetadata, PartitionMetadata, TopicMetadata

from parallax.errors import ClusterUnavailableError
from parallax.producer import probe
from parallax.producer.ports import ClusterTopics
from parallax.producer.probe import KafkaProbe


class FakeAdmin:
    """`AdminClient` of a cluster that lists `listed` and knows `hidden` by name only."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.listed: dict[str, TopicMetadata] = {}
        self.hidden: dict[str, TopicMetadata] = {}
        self.failure: KafkaError | None = None
        self.asked: list[str | None] = []

    def list_topics(self, topic: str | None, timeout: float) -> ClusterMetadata:
        assert 0 <= timeout <= 1
        if self.failure is not None:
            raise KafkaException(self.failure)
        self.asked.append(topic)
        found = ClusterMetadata()
        if topic is None:
            found.topics = dict(self.listed)
        else:
            unknown = metadata(error=KafkaError.UNKNOWN_TOPIC_OR_PART)
            found.topics = {topic: {**self.listed, **self.hidden}.get(topic, unknown)}
        return found


def metadata(*leaders: int, error: int | None = None) -> TopicMetadata:
    found = TopicMetadata()
    found.error = None if error is None else KafkaError(error)
    for number, leader in enumerate(leaders):
        found.partitions[number] = PartitionMetadata()
        found.partitions[number].leader = leader
    return found


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> list[FakeAdmin]:
    made: list[FakeAdmin] = []

    def make(config: dict[str, Any]) -> FakeAdmin:
        made.append(FakeAdmin(config))
        return made[-1]

    monkeypatch.setattr(probe, "AdminClient", make)
    return made


def test_one_topic_is_asked_by_name(admin: list[FakeAdmin]) -> None:
    asking = KafkaProbe({"bootstrap.servers": "there", "linger.ms": 5})
    admin[0].listed = {"trips": metadata(1, 2), "others": metadata(1)}
    assert asking.ask(["trips"], 1.0)() == ClusterTopics({"trips": 2})
    assert admin[0].asked == ["trips"]
    assert "linger.ms" not in admin[0].config
    assert admin[0].config["allow.auto.create.topics"] is False, "asking by name would create the topic"


def test_several_topics_are_asked_at_once_and_what_is_left_out_by_name(admin: list[FakeAdmin]) -> None:
    asking = KafkaProbe({})
    admin[0].listed = {"trips": metadata(1, -1), "others": metadata(1)}
    admin[0].hidden = {"secret": metadata(error=KafkaError.TOPIC_AUTHORIZATION_FAILED)}
    answer = asking.ask(["trips", "others", "secret", "missing"], 1.0)()
    assert dict(answer.partition_counts) == {"trips": 2, "others": 1}
    assert answer.leaderless == {"trips"}
    assert answer.refused.keys() == {"secret"}
    assert admin[0].asked == [None, "secret", "missing"]


def test_a_cluster_without_topics_of_interest_answers_all_the_same(admin: list[FakeAdmin]) -> None:
    asking = KafkaProbe({})
    assert asking.ask([], 1.0)() == ClusterTopics({})
    assert admin[0].asked == [None]


def test_a_silent_cluster_is_unavailable(admin: list[FakeAdmin]) -> None:
    asking = KafkaProbe({})
    admin[0].failure = KafkaError(KafkaError._TRANSPORT)
    answer = asking.ask(["trips"], 1.0)
    with pytest.raises(ClusterUnavailableError, match="transport"):
        answer()
