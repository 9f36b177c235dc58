"""What the live view shows and the scenario waits for: rates, lags, and what the offset service would answer."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Self

from lab.stack.access import offset_client
from lab.workload.playing import Stack
from lab.workload.topics import EndOffsets, total
from parallax.client.client import at_region
from parallax.errors import ParallaxError
from parallax.v1 import offsets_pb2 as pb

_EVERY_S = 0.5
_ASK_EVERY_S = 2.0
_RATE_OVER = 8
_ANSWER_MS = 5_000


@dataclass(slots=True)
class ClusterGauge:
    """One cluster: the ends of the topic there, by partition, and how fast they grow."""

    name: str
    ends: Mapping[int, int] = field(default_factory=dict)
    answers: bool = False
    _seen: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_RATE_OVER))

    def update(self, ends: Mapping[int, int] | None) -> None:
        """Take a new measurement; None: the cluster does not answer."""
        self.answers = ends is not None
        if ends is not None:
            self.ends = ends
            self._seen.append((time.monotonic(), total(ends)))
        else:
            self._seen.clear()

    @property
    def per_s(self) -> float:
        """Offsets a second of late; markers of transactions count too."""
        return rate(self._seen)


@dataclass(slots=True)
class GroupGauge:
    """What the offset service would answer for a group right now.

    Attributes:
        to: the region that the answer is for.
        answer: the last one; None before the first.
        problem: why there is none right now.
    """

    group: str
    to: str
    answer: pb.GetGroupFailoverOffsetsResponse | None = None
    problem: str = ""

    @property
    def pending_records(self) -> int:
        """Consumed here, not yet there."""
        return sum(item.pending_records for item in self.answer.offsets) if self.answer is not None else 0

    @property
    def resume_offsets(self) -> dict[int, int]:
        """Where the group would go on, by partition."""
        return (
            {item.partition: item.resume_offset for item in self.answer.offsets}
            if self.answer is not None
            else {}
        )

    @property
    def skip_ranges(self) -> int:
        """How many ranges would be skipped there."""
        return sum(len(item.skip_ranges) for item in self.answer.offsets) if self.answer is not None else 0

    @property
    def outcome(self) -> str:
        """The gravest outcome, or what is wrong."""
        if self.problem or self.answer is None:
            return self.problem or "asking"
        return pb.Outcome.Name(self.answer.outcome)


def rate(seen: deque[tuple[float, int]]) -> float:
    """Growth a second over some measurements, oldest first."""
    if len(seen) < 2:  # noqa: PLR2004 - a difference needs two
        return 0.0
    (start_s, start), (end_s, end) = seen[0], seen[-1]
    return max(0.0, (end - start) / (end_s - start_s)) if end_s > start_s else 0.0


class Gauges:
    """Measures clusters twice and asks every two seconds, in threads of its own, until closed.

    Args:
        stack: where the clusters and services are.
        topic, partitions: what is measured.
        groups: whose answers to show.
    """

    def __init__(self, stack: Stack, topic: str, partitions: int, groups: tuple[str, ...]) -> None:
        regions = stack.layout.spec.regions
        names = [cluster.name for cluster in stack.layout.spec.clusters]
        self.clusters = {name: ClusterGauge(name) for name in names}
        self.groups = {group: GroupGauge(group, to=regions[1]) for group in groups}
        self._topic, self._regions = topic, regions
        self._ends = {name: EndOffsets(stack.bootstrap(name), topic, partitions) for name in names}
        self._client = offset_client([stack.layout.grpc_address(region) for region in regions])
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(max_workers=len(names) + len(groups), thread_name_prefix="gauge")

    def __enter__(self) -> Self:
        for cluster in self.clusters.values():
            self._pool.submit(self._forever, _EVERY_S, partial(self._look_at, cluster))
        for group in self.groups.values():
            self._pool.submit(self._forever, _ASK_EVERY_S, partial(self._ask_for, group))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._pool.shutdown()
        self._client.close()

    def face(self, to: str) -> None:
        """From now on ask where the groups would go on in that region."""
        for gauge in self.groups.values():
            gauge.to, gauge.answer = to, None

    def ask(self, group: str, *, origin: str, to: str) -> pb.GetGroupFailoverOffsetsResponse:
        """Ask right now.

        Raises:
            ParallaxError: the service has no answer.
        """
        return self._client.get_group_failover_offsets(
            group, to=at_region(to), origin=at_region(origin), topics=[self._topic]
        )

    def _forever(self, every_s: float, look: Callable[[], None]) -> None:
        while not self._closing.is_set():
            look()
            self._closing.wait(every_s)

    def _look_at(self, gauge: ClusterGauge) -> None:
        gauge.update(self._ends[gauge.name].ask())

    def _ask_for(self, gauge: GroupGauge) -> None:
        to = gauge.to
        origin = next(region for region in self._regions if region != to)
        try:
            answer = self._client.get_group_failover_offsets(
                gauge.group,
                to=at_region(to),
                origin=at_region(origin),
                topics=[self._topic],
                timeout_ms=_ANSWER_MS,
            )
        except ParallaxError as error:
            gauge.problem = error.code
        else:
            if gauge.to == to:
                gauge.answer, gauge.problem = answer, ""
