"""What this client may do with topics, as brokers tell it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataResponse

from parallax.adapters.kafka.logs import read_usable
from parallax.domain.ids import TopicName

ALLOWED, NOT_ALLOWED = 0, 29
TRIPS = TopicName("trips")


class Broker:
    """Stands for `Link`: answers as the library would decode it."""

    def __init__(self, code: int, operations: set[int] | None) -> None:
        kind = MetadataResponse.MetadataResponseTopic
        self._topic = kind(name=TRIPS, error_code=code, authorized_operations=operations)

    def metadata(self, topics: object, _doing: str, *, rights: bool) -> Any:
        assert (topics, rights) == ({TRIPS}, True)
        return SimpleNamespace(topics=[self._topic])


@pytest.mark.parametrize(
    ("code", "operations", "usable"),
    [
        (ALLOWED, {3, 4, 8}, {TRIPS}),
        (ALLOWED, {3, 8}, set()),
        (ALLOWED, {4, 8}, set()),
        (ALLOWED, {31}, set()),
        (ALLOWED, None, set()),
        (NOT_ALLOWED, None, set()),
    ],
    ids=["both", "read", "write", "not told", "nothing", "hidden"],
)
def test_a_topic_is_usable_with_both_rights(
    code: int, operations: set[int] | None, usable: set[TopicName]
) -> None:
    assert read_usable(Broker(code, operations), {TRIPS}) == usable  # type: ignore[arg-type] # only what is called
