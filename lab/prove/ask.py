"""Asking the offset services about every offset of a partition, many at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Event

from lab.oracle.answers import TrueMapping, Violation
from parallax.client.client import OffsetClient, at_region
from parallax.v1 import offsets_pb2 as pb

_TIMEOUT_MS = 60_000
_SLICE_OFFSETS = 50
_EXAMPLES = 10


@dataclass(slots=True)
class Answers:
    """What came of asking.

    Attributes:
        asked: offsets.
        violations: wrong answers; ``examples`` are some of them.
        skip_ranges: of all answers together; ``most_skip_ranges`` of one.
        incomplete: answers that say that records are still on their way.
        outcomes: how often each outcome was the gravest.
    """

    asked: int = 0
    violations: int = 0
    skip_ranges: int = 0
    most_skip_ranges: int = 0
    incomplete: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    examples: list[Violation] = field(default_factory=list)

    def add(self, answer: pb.FailoverOffset, ranges: int, violation: Violation | None) -> None:
        """Count one answer."""
        self.asked += 1
        self.skip_ranges += ranges
        self.most_skip_ranges = max(self.most_skip_ranges, ranges)
        self.incomplete += answer.HasField("complete_to")
        self.outcomes[pb.Outcome.Name(answer.outcome)] += 1
        if violation is not None:
            self.violations += 1
            if len(self.examples) < _EXAMPLES:
                self.examples.append(violation)


class OffsetSweep:
    """Asks for one group, from region a to region b.

    Args:
        targets: the offset services.
        group, topic: of the question.
        threads: ask at the same time, each slice of offsets at one of the services.
    """

    def __init__(self, targets: list[str], group: str, topic: str, threads: int) -> None:
        # Each client prefers another service.
        self._clients = [
            OffsetClient([*targets[first:], *targets[:first]], timeout_ms=_TIMEOUT_MS)
            for first in range(len(targets))
        ]
        self._group, self._topic, self._threads = group, topic, threads

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.close()

    def ask(self, partition: int, next_offset: int, service: int = 0) -> pb.FailoverOffset:
        """The answer for one offset.

        Raises:
            ParallaxError: there is none.
        """
        return self._clients[service].get_failover_offset(
            self._group,
            self._topic,
            partition,
            origin=at_region("a"),
            to=at_region("b"),
            next_offset=next_offset,
        )

    def ask_all(
        self, mappings: Mapping[int, TrueMapping], ends: Mapping[int, int], advance: Callable[[int], None]
    ) -> Answers:
        """Ask for every next offset from 0 to the end of every partition, and check each answer.

        Args:
            mappings: the truth, by partition.
            ends: the origin's ends, by partition.
            advance: told how many more offsets are done.

        Raises:
            ParallaxError: a question got no answer.
        """
        slices = [
            (partition, range(start, min(start + _SLICE_OFFSETS, end + 1)))
            for partition, end in ends.items()
            for start in range(0, end + 1, _SLICE_OFFSETS)
        ]
        found = Answers()
        ending = Event()

        def ask_slice(number: int) -> list[tuple[pb.FailoverOffset, int, Violation | None]]:
            partition, offsets = slices[number]
            return [
                self._checked(partition, offset, number, mappings[partition])
                for offset in offsets
                if not ending.is_set()
            ]

        with ExitStack() as clean_up:
            pool = clean_up.enter_context(ThreadPoolExecutor(self._threads, thread_name_prefix="asks"))
            clean_up.callback(pool.shutdown, wait=False, cancel_futures=True)
            clean_up.callback(ending.set)
            for results in pool.map(ask_slice, range(len(slices))):
                for result in results:
                    found.add(*result)
                advance(len(results))
        return found

    def _checked(
        self, partition: int, next_offset: int, number: int, mapping: TrueMapping
    ) -> tuple[pb.FailoverOffset, int, Violation | None]:
        service = number % len(self._clients)
        answer = self.ask(partition, next_offset, service)
        ranges = [(item.start, item.end) for item in answer.skip_ranges]
        if answer.HasField("skip_ranges_continue_at"):
            ranges.extend(self._further_ranges(answer, service))
        return answer, len(ranges), mapping.check(next_offset, answer.resume_offset, ranges)

    def _further_ranges(self, answer: pb.FailoverOffset, service: int) -> Iterable[tuple[int, int]]:
        """The ranges that did not fit into the answer."""
        with self._clients[service].watch_skips(
            answer.topic,
            answer.partition,
            at=at_region("b"),
            target_topic_id=answer.to.topic_id,
            progress=answer.progress,
            start=answer.skip_ranges_continue_at,
            origin=at_region("a"),
        ) as updates:
            return [(item.start, item.end) for update in updates for item in update.skip_ranges]
