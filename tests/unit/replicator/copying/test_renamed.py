"""A source by the names of its copies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import pytest

from parallax.domain.ids import RegionName, SourceOffset, TopicId, TopicName, TopicPartition
from parallax.domain.topic_choice import Patterns, RouteTopics, TopicChoice, TopicNaming
from replicator.copying.ports import EndReached, ReadFrom, RecordBlock, SourceEvent, TopicChanged, Trouble
from replicator.copying.renamed import RenamedSource

NAMES = RouteTopics(
    TopicChoice(RegionName("b"), Patterns(exclude=("left",))),
    TopicNaming("${source}.${topic}-copy"),
    RegionName("a"),
)
OWN, COPY = (TopicPartition(TopicName(name), 3) for name in ("trips", "a.trips-copy"))
PLACE = ReadFrom(SourceOffset(4), 0, TopicId("there"))


class Source:
    """Notes what is asked of it."""

    def __init__(self) -> None:
        self.taken: dict[TopicPartition, ReadFrom] = {}
        self.dropped: list[TopicPartition] = []

    def take(self, positions: Mapping[TopicPartition, ReadFrom]) -> None:
        self.taken |= positions

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        self.dropped += partitions

    def poll(self, _max_records: int, _timeout_ms: float) -> Sequence[SourceEvent]:
        return [
            RecordBlock(OWN, 1, [4], ["x"], 1),
            EndReached(OWN, SourceOffset(5)),
            TopicChanged(OWN.topic),
            Trouble("no answer"),
        ]

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 9)

    def close(self) -> None: ...


def test_the_source_is_asked_by_its_own_names_and_tells_by_those_of_the_copies() -> None:
    source = Source()
    renamed = RenamedSource(source, NAMES)
    renamed.take({COPY: PLACE})
    assert source.taken == {OWN: PLACE}
    assert renamed.poll(10, 0) == [
        RecordBlock(COPY, 1, [4], ["x"], 1),
        EndReached(COPY, SourceOffset(5)),
        TopicChanged(COPY.topic),
        Trouble("no answer"),
    ]
    assert renamed.end_offsets([COPY]) == {COPY: 9}
    renamed.drop([COPY, TopicPartition(TopicName("a.never-copy"), 0)])
    assert source.dropped == [OWN]


@pytest.mark.parametrize(
    ("name", "copy"),
    [("trips", "a.trips-copy"), ("left", None), ("x" * 242, "a." + "x" * 242 + "-copy"), ("x" * 243, None)],
)
def test_a_route_knows_what_its_copies_are_called(name: str, copy: str | None) -> None:
    assert NAMES.copy_of(TopicName(name)) == copy
    if copy is not None:
        assert NAMES.source_of(TopicName(copy)) == name


@pytest.mark.parametrize("name", ["trips", "a.trips", "b.trips-copy", "a.-copy", "a.left-copy"])
def test_a_name_that_no_copy_has_is_none_of_the_routes(name: str) -> None:
    assert not NAMES.make(TopicName(name))
