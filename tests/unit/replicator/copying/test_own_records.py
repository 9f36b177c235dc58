"""What is held back of a source until its run logs have told of it; random worlds are in tests/properties/test_own_records.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parallax.domain.ids import ClusterName, SourceOffset, TopicId, TopicName, TopicPartition
from replicator.copying.origins import RecordFate
from replicator.copying.own_records import OwnRecords
from replicator.copying.ports import EndReached, PassedOver, ReadFrom, RecordBlock, SourceEvent
from tests.worlds.clocks import StandingClock

P0, P1 = (TopicPartition(TopicName("trips"), number) for number in range(2))
ID = TopicId("here")


class Source:
    """Hands out what a test has put there."""

    def __init__(self) -> None:
        self.events: list[SourceEvent] = []
        self.asked: list[int] = []

    def take(self, positions: Mapping[TopicPartition, ReadFrom]) -> None: ...

    def drop(self, partitions: object) -> None: ...

    def poll(self, max_records: int, _timeout_ms: float) -> Sequence[SourceEvent]:
        self.asked.append(max_records)
        events, self.events = self.events, []
        return events

    def close(self) -> None: ...


class Logs:
    """Even offsets are copies; a test says how much is known."""

    def __init__(self) -> None:
        self.needed: dict[TopicPartition, tuple[TopicId, int]] = {}
        self.tickets = self.known = 0

    def need(self, positions: Mapping[TopicPartition, tuple[TopicId, int]]) -> None:
        self.needed |= positions

    def request(self) -> int:
        self.tickets += 1
        return self.tickets

    def settled(self) -> int:
        return self.known

    def judge(
        self, _item: TopicPartition, _topic_id: TopicId, _epoch: int, offsets: Sequence[int]
    ) -> list[tuple[int, int, RecordFate]]:
        verdicts = [RecordFate.COPY if offset % 2 else RecordFate.LEAVE for offset in offsets]
        return [(number, number + 1, verdict) for number, verdict in enumerate(verdicts)]

    def forget_below(self, _item: TopicPartition, _topic_id: TopicId, _offset: int) -> None: ...

    def close(self) -> None: ...


def reader() -> tuple[OwnRecords, Source, Logs]:
    source, logs = Source(), Logs()
    made = OwnRecords(source, logs, ClusterName("aggregate-a"), StandingClock())  # type: ignore[arg-type] # what is asked is there
    made.take({item: ReadFrom(SourceOffset(4), 0, ID) for item in (P0, P1)})
    return made, source, logs


def block(item: TopicPartition, offsets: Sequence[int], size_bytes: int = 10) -> RecordBlock:
    return RecordBlock(item, 7, offsets, [str(offset) for offset in offsets], size_bytes)


def test_what_has_arrived_is_held_until_all_is_known_that_was_appended_by_then() -> None:
    made, source, logs = reader()
    assert logs.needed == {P0: (ID, 4), P1: (ID, 4)}
    source.events = [block(P0, [4, 5]), EndReached(P0, SourceOffset(6))]
    assert made.poll(100, 0) == []
    source.events = [block(P0, [6])]
    assert made.poll(100, 0) == []
    logs.known = 1
    assert made.poll(100, 0) == [
        PassedOver(P0, SourceOffset(5), 7),
        RecordBlock(P0, 7, [5], ["5"], 10),
        EndReached(P0, SourceOffset(6)),
    ]
    logs.known = 2
    assert made.poll(100, 0) == [PassedOver(P0, SourceOffset(7), 7)]


def test_what_needs_no_look_up_waits_for_nothing_but_what_came_before() -> None:
    made, source, logs = reader()
    end = EndReached(P1, SourceOffset(9))
    source.events = [end]
    assert made.poll(100, 0) == [end]
    source.events = [block(P0, [5])]
    assert made.poll(100, 0) == []
    source.events = [end]
    assert made.poll(100, 0) == []
    logs.known = 1
    assert made.poll(100, 0) == [block(P0, [5]), end]


def test_what_is_dropped_or_taken_anew_is_handed_out_no_more() -> None:
    made, source, logs = reader()
    source.events = [block(P0, [5]), block(P1, [5])]
    assert made.poll(100, 0) == []
    made.drop([P0])
    made.take({P1: ReadFrom(SourceOffset(7), 0, ID)})
    assert logs.needed[P1] == (ID, 7)
    logs.known = 1
    assert made.poll(100, 0) == []


def test_no_more_is_asked_for_while_much_is_held() -> None:
    made, source, logs = reader()
    source.events = [block(P0, [5], size_bytes=40 * 1024 * 1024)]
    made.poll(100, 5)
    made.poll(100, 5)
    assert source.asked[-1] == 0
    logs.known = 1
    assert made.poll(100, 5)
    made.poll(100, 0)
    assert source.asked[-1] == 100
