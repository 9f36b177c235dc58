from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError

from parallax.adapters.kafka.cluster import commits_of
from parallax.domain.errors import ClusterUnavailableError, ConfigError
from parallax.domain.ids import ClusterName, GroupName, TargetOffset, TopicName, TopicPartition
from parallax.ports import GroupCommit

CLUSTER, GROUP = ClusterName("aggregate-a"), GroupName("riders")


def answer(partition: int, offset: int, error: int | None = None) -> Any:
    """A partition as librdkafka answers it; its own class has no error that a caller could set."""
    return SimpleNamespace(
        topic="trips",
        partition=partition,
        offset=offset,
        leader_epoch=None,
        metadata=None,
        error=None if error is None else KafkaError(error),
    )


def test_a_partition_without_a_commit_is_left_out() -> None:
    found = commits_of(CLUSTER, GROUP, [answer(0, 7), answer(1, OFFSET_INVALID)])
    assert found == {TopicPartition(TopicName("trips"), 0): GroupCommit(TargetOffset(7), -1, "")}


def test_a_topic_that_is_gone_is_left_out() -> None:
    assert commits_of(CLUSTER, GROUP, [answer(0, 7, KafkaError.UNKNOWN_TOPIC_OR_PART)]) == {}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ConfigError),
        (KafkaError.UNSTABLE_OFFSET_COMMIT, ClusterUnavailableError),
    ],
)
def test_an_error_is_not_taken_for_a_group_that_never_committed(code: int, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="aggregate-a: reading the offset of group 'riders' on trips-1"):
        commits_of(CLUSTER, GROUP, [answer(0, 7), answer(1, OFFSET_INVALID, code)])
