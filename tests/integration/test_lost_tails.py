"""A partition loses its tail on real brokers: an unclean election, and somebody else writes first.

One election strikes topics that were copied to the cluster, and ones that are copied from it. Causes that need a loss at the
source and one at the target, of which only one can be in the cluster of three, have the election at the source, and then a
disk of the target loses what an election would have taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as KafkaPartition

from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack
from offsetsvc.answers import FailoverAnswer
from parallax.domain.outcome import Outcome
from tests.memory.index import MemoryMappingIndex
from tests.support import poll_until, unique_name
from tests.worlds.lost_tails import (
    WITHIN_S,
    Brokers,
    Disk,
    TwoCopies,
    abort,
    end,
    generation,
    owned,
    passed,
    placed,
)
from tests.worlds.shard_harness import Harness, numbered, seen

_OWN_STACK_TIMEOUT_S = 600
_STRUCK, _DISK, _SOUND, _SOURCE = "aggregate-m", "aggregate-n", "regional-n", "regional-m"
_OTHERS = 900


def values(prefix: str, count: int) -> list[str]:
    return [f"{prefix} {number}" for number in range(count)]


class Case:
    """A topic, and what happens to it. Between the steps something is lost."""

    def begin(self) -> None:
        """All brokers are there."""

    def go_ahead(self) -> None:
        """What is written now only the leader has."""

    def go_on(self) -> None:
        """It is lost; the broker that had it is still away."""

    def end(self) -> None:
        """It is back, and the disk has lost its part."""


class CutTarget(Case):
    """A topic whose copy is struck; others fill the log up before it is copied on."""

    def __init__(self, stack: LocalStack, brokers: Brokers, copy_path: str) -> None:
        self._brokers, self._produced = brokers, list[str]()
        self._harness = Harness(
            stack, unique_name(f"target-{copy_path}"), copy_path, clusters=(_SOURCE, _STRUCK)
        )
        self._harness.create(1)
        brokers.create(self._harness.topic)
        self._index = MemoryMappingIndex()
        self._owner = owned(self._harness, self._index)

    def _produce(self, count: int) -> None:
        further = [f"value {len(self._produced) + number}" for number in range(count)]
        self._produced.extend(further)
        self._harness.produce(further)

    def _all_there(self, what: str) -> None:
        def once() -> bool:
            found = Counter(value for _, value in placed(self._harness) if not value.startswith("other"))
            return found == Counter(self._produced)

        poll_until(once, WITHIN_S, f"each record of {self._harness.topic} once {what}")

    def begin(self) -> None:
        self._produce(300)
        self._all_there("at first")

    def go_ahead(self) -> None:
        self._produce(300)
        self._all_there("on the leader alone")
        self._owner.finish()  # whatever it has noticed is gone with it

    def go_on(self) -> None:
        self._brokers.write(self._harness.topic, values("other", _OTHERS))
        self._owner = owned(self._harness, self._index)

    def end(self) -> None:
        self._all_there("after the loss")
        self._produce(300)
        self._all_there("as it goes on")
        self._check_newest_rows()
        assert self._owner.finish().stopped == {}

    def _check_newest_rows(self) -> None:
        """Each run of the newest generation points at the same record on both sides."""
        harness = self._harness
        there = {offset: record for _, offset, record in numbered(harness.source, harness.topic)}
        here = {offset: record for _, offset, record in numbered(harness.target, harness.topic)}
        (_, newest), (rows, _) = max(harness.rows().items(), key=lambda item: item[0][1].generation)
        assert newest.generation > 0
        pairs = [(row.source_start + at, row.target_start + at) for row in rows for at in range(row.count)]
        assert pairs
        for source, target in pairs:
            assert seen(here[target]) == seen(there[source])


class LeftByGroup(CutTarget):
    """The same, and a group had committed beyond all rows: what lies below its commit now it has not read."""

    def __init__(self, stack: LocalStack, brokers: Brokers, copy_path: str) -> None:
        super().__init__(stack, brokers, copy_path)
        self._group = unique_name("left")
        sound = Harness(stack, self._harness.topic, copy_path, clusters=(_SOURCE, _SOUND))
        self._copies = TwoCopies(self._harness, sound, self._index)
        self._consumed = set[str]()

    def begin(self) -> None:
        super().begin()
        self._brokers.read(self._harness.topic, self._group)  # while there are brokers for a topic of commits

    def go_ahead(self) -> None:
        super().go_ahead()
        self._brokers.write(self._harness.topic, values("other before", _OTHERS + 200))
        self._consumed.update(self._brokers.read(self._harness.topic, self._group))

    def end(self) -> None:
        super().end()
        sound = self._copies.ahead
        sound.copy_now(index=self._index)
        (answer,) = self._copies.moves(self._harness, sound, None, self._group)
        committed = answer.origin.next_offset
        assert committed is not None
        below = {value for offset, value in placed(self._harness) if offset < committed}
        assert below & set(self._produced) - self._consumed, (
            "nothing that it has not read took the place of what it has"
        )
        assert passed(answer, placed(sound)) <= self._consumed
        assert Outcome.LINEAGE_CHANGED in answer.notes


class CutSource(Case):
    """A topic that is struck where it is copied from: of its tail one target has a copy, and the other has none.

    The new leader begins with what no consumer sees, and the target that has none says that it has all of that. Then that
    target loses what came after.
    """

    def __init__(self, stack: LocalStack, brokers: Brokers, disk: Disk) -> None:
        self._brokers, self._disk = brokers, disk
        topic = unique_name("source")
        brokers.create(topic)
        self._copies = two_copies(stack, topic)
        self._behind, self._ahead = self._copies.behind, self._copies.ahead
        self._kept, self._tail = values("kept", 200), values("tail", 100)
        self._new, self._more = values("new", 100), values("more", 50)

    def begin(self) -> None:
        self._copies.own(self._behind, self._ahead)
        self._behind.produce(self._kept)
        self._behind.wait_for({0: self._kept})
        self._ahead.wait_for({0: self._kept})
        self._copies.finish(self._behind)

    def go_ahead(self) -> None:
        self._behind.produce(self._tail)
        self._ahead.wait_for({0: self._kept + self._tail})
        self._copies.finish(self._ahead)

    def go_on(self) -> None:
        self._brokers.abort(self._behind.topic)
        self._copies.own(self._behind)

        def said() -> bool:
            rows = [row for runs, _ in self._behind.rows().values() for row in runs]
            return max(row.source_end for row in rows) > len(self._kept)

        poll_until(said, WITHIN_S, "a watermark beyond what the new leader began with")
        self._copies.finish(self._behind)
        # Others write there as well: only who has passed that watermark can take it for what was read.
        abort(self._behind.target, self._behind.topic)
        self._check_end()
        self._copies.own(self._behind)
        self._behind.produce(self._new)
        self._behind.wait_for({0: self._kept + self._new})
        self._copies.finish(self._behind)
        self._disk.is_to_lose(self._behind.topic, place_of(self._new[0], self._behind))

    def _check_end(self) -> None:
        """At the end of the one target a group has read nothing of the tail, whatever is said there."""
        lost_at = place_of(self._tail[0], self._ahead)
        (answer,) = self._copies.moves(self._behind, self._ahead, [end(self._behind)])
        assert (answer.resume_offset, list(answer.skip_ranges)) == (lost_at, [])

    def end(self) -> None:
        self._behind.produce(self._more)
        self._copies.own(self._behind, self._ahead)
        self._behind.wait_for({0: self._kept + self._new + self._more})
        self._ahead.wait_for({0: self._kept + self._tail + self._new + self._more})
        self._copies.finish(self._behind, self._ahead)
        assert generation(self._behind) > 0
        self._copies.check_moves(self._behind, self._ahead, len(self._kept))
        self._copies.check_moves(self._ahead, self._behind, len(self._kept))


class CutBelowGeneration(Case):
    """A topic that is struck where it is copied from; one target has noticed, and loses its tail to below that place."""

    def __init__(self, stack: LocalStack, brokers: Brokers, disk: Disk) -> None:
        self._disk = disk
        topic = unique_name("below")
        brokers.create(topic)
        self._copies = two_copies(stack, topic)
        self._behind, self._ahead = self._copies.behind, self._copies.ahead
        self._kept, self._again = values("kept", 100), values("again", 100)
        self._tail, self._new = values("tail", 100), values("new", 150)

    def begin(self) -> None:
        self._copies.own(self._behind, self._ahead)
        for helping in (self._kept, self._kept + self._again):
            self._behind.produce(helping[-100:])
            self._behind.wait_for({0: helping})

    def go_ahead(self) -> None:
        self._behind.produce(self._tail)
        for harness in (self._behind, self._ahead):
            harness.wait_for({0: self._kept + self._again + self._tail})
        self._copies.finish(self._behind, self._ahead)

    def go_on(self) -> None:
        self._copies.own(self._behind)
        poll_until(lambda: generation(self._behind), WITHIN_S, "the target that notices begins a generation")
        self._copies.finish(self._behind)
        self._disk.is_to_lose(self._behind.topic, place_of(self._again[0], self._behind))

    def end(self) -> None:
        self._behind.produce(self._new)
        self._copies.own(self._behind, self._ahead)
        self._behind.wait_for({0: self._kept + self._again + self._new})
        self._ahead.wait_for({0: self._kept + self._again + self._tail + self._new})
        self._copies.finish(self._behind, self._ahead)
        self._copies.check_moves(self._behind, self._ahead, len(self._kept))
        self._copies.check_moves(self._ahead, self._behind, len(self._kept))


class TrimmedSource(Case):
    """A topic that is struck where it is copied from; what takes the tail's place is gone before one target has a copy."""

    def __init__(self, stack: LocalStack, brokers: Brokers) -> None:
        self._brokers = brokers
        topic = unique_name("trimmed")
        brokers.create(topic)
        self._copies = two_copies(stack, topic)
        self._behind, self._ahead = self._copies.behind, self._copies.ahead
        self._kept, self._tail = values("kept", 200), values("tail", 100)
        self._taken, self._rest = values("taken", 50), values("rest", 100)

    def begin(self) -> None:
        self._copies.own(self._behind, self._ahead)
        self._behind.produce(self._kept)

    def go_ahead(self) -> None:
        self._behind.produce(self._tail)
        for harness in (self._behind, self._ahead):
            harness.wait_for({0: self._kept + self._tail})
        self._copies.finish(self._behind, self._ahead)

    def go_on(self) -> None:
        self._copies.own(self._behind)
        poll_until(lambda: generation(self._behind), WITHIN_S, "the target that notices begins a generation")
        self._copies.finish(self._behind)
        self._behind.produce(self._taken)
        self._copies.own(self._ahead)
        self._ahead.wait_for({0: self._kept + self._tail + self._taken})
        place = KafkaPartition(self._behind.topic, 0, len(self._kept + self._taken))
        self._behind.source_admin.delete_records([place])[place].result()
        # A record that followed at once would stand for the watermark behind what is lost.
        self._brokers.abort(self._behind.topic)

    def end(self) -> None:
        self._behind.produce(self._rest)
        self._copies.own(self._behind)
        self._behind.wait_for({0: self._kept + self._tail + self._rest})
        self._ahead.wait_for({0: self._kept + self._tail + self._taken + self._rest})
        self._copies.finish(self._behind, self._ahead)
        self._copies.check_moves(self._ahead, self._behind, len(self._kept))
        self._check_drill()

    def _check_drill(self) -> None:
        """A group goes to the other target, comes back without having read there, reads all, and goes there again."""
        here, there = self._behind, self._ahead
        consumed, after = {value for _, value in placed(here)}, placed(there)

        def move(origin: Harness, destination: Harness, position: int) -> FailoverAnswer:
            (answer,) = self._copies.moves(origin, destination, [position], "drilled", remembered=True)
            return answer

        out = move(here, there, place_of(self._tail[-1], here) + 1)
        move(there, here, out.resume_offset)
        again = move(here, there, end(here))
        told = {
            value
            for source in again.sources
            for gap in source.answer.lost
            for value in self._taken[gap.source_start - len(self._kept) : gap.source_end - len(self._kept)]
        }
        assert (told, Outcome.NEVER_DELIVERED in again.notes) == (set(self._taken), True)
        assert passed(again, after) - consumed <= told
        assert out.resume_offset == place_of(self._taken[0], there)


def two_copies(stack: LocalStack, topic: str) -> TwoCopies:
    behind, ahead = (Harness(stack, topic, clusters=(_STRUCK, target)) for target in (_DISK, _SOUND))
    return TwoCopies(behind, ahead, MemoryMappingIndex())


def place_of(value: str, harness: Harness) -> int:
    """Where the target has it."""
    return next(offset for offset, found in placed(harness) if found == value)


@pytest.mark.stack
@pytest.mark.timeout(_OWN_STACK_TIMEOUT_S)
def test_what_an_unclean_election_takes_is_lost_to_nobody(tmp_path: Path) -> None:
    spec = StackSpec(("m", "n"), brokers={_STRUCK: 3}, services=False, store=False)
    with LocalStack(spec, tmp_path) as stack:
        brokers, disk = Brokers(stack, _STRUCK), Disk(stack, _DISK)
        cases: list[Case] = [
            CutTarget(stack, brokers, "batch"),
            LeftByGroup(stack, brokers, "record"),
            CutSource(stack, brokers, disk),
            CutBelowGeneration(stack, brokers, disk),
            TrimmedSource(stack, brokers),
        ]
        together(*(case.begin for case in cases))
        brokers.fall_behind()
        together(*(case.go_ahead for case in cases))
        brokers.lose()
        together(*(case.go_on for case in cases))
        together(brokers.come_back, disk.lose)
        together(*(case.end for case in cases))


def together(*steps: Callable[[], None]) -> None:
    """Take steps that have nothing to do with each other: most of their time they wait."""
    with ThreadPoolExecutor(len(steps)) as pool:
        taken = [pool.submit(step) for step in steps]
    failed = [error for step in taken if (error := step.exception()) is not None]
    if failed:
        raise BaseExceptionGroup(f"{len(failed)} of {len(steps)} failed", failed)
