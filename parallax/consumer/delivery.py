"""The partitions assigned at one cluster, and which of their records the application gets.

One `Delivery` lives from one move to the next. It is used by the polling thread; what other threads may ask of
it (positions, commits) goes through its lock.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Message, TopicPartition

from parallax.consumer.gate import Gate, GateDecision, Start
from parallax.consumer.ports import InnerConsumer, Key
from parallax.domain.metadata import CommittedMetadata
from parallax.domain.skips import SkipRange

UNKNOWN_LEADER_EPOCH = -1

_MOST_DROPS = 1_000
"""Records skipped in one step, so that moves and commits get their turn in between."""


@dataclass(slots=True)
class AssignedPartition:
    """One assigned partition.

    Attributes:
        gate: what is delivered, skipped or held.
        skipping: what the last move left; None once the application has rewound.
        stored: the next offset that the application is done with; commits without arguments take it.
        committed: the next offset last committed here, or None.
        refused: the cluster has not taken that commit of the application's own.
        held: fetched records at and above the gate's ``known_to``, in order.
        paused_by_user: the application called ``pause``.
        delivered_at_s: when a record was last delivered, on the monotonic clock.
        leader_epoch: that of the last record dealt with.
    """

    gate: Gate
    skipping: CommittedMetadata | None
    stored: int
    committed: int | None
    refused: bool = False
    held: deque[Message] = field(default_factory=deque)
    paused_by_user: bool = False
    delivered_at_s: float | None = None
    leader_epoch: int = UNKNOWN_LEADER_EPOCH


class Delivery:
    """Fetches from one cluster and lets through what is unconsumed.

    Args:
        inner: the consumer at the cluster.
        region: where that is.
        from_region: where the group came from by the move that made this delivery, or None.
        answers: starts of the partitions that were moved along, until they are assigned.
        fence: the decision that stopped the group for that move: see `parallax.consumer.following.Wish`.
        auto_store: a delivered record counts as done.

    Attributes:
        standing: what the group had committed here, offset and metadata, when others than the first assignment's
            partitions still had an answer; what has changed since is newer than the answer.
        steps: how often ``inner`` was polled.
    """

    def __init__(
        self,
        inner: InnerConsumer,
        region: str,
        *,
        from_region: str | None = None,
        answers: Mapping[Key, Start] | None = None,
        fence: int | None = None,
        auto_store: bool = True,
    ) -> None:
        self.inner = inner
        self.region = region
        self.from_region = from_region
        self.answers: dict[Key, Start] = dict(answers or {})
        self.fence = fence
        self.standing: dict[Key, tuple[int, str]] = {}
        self.partitions: dict[Key, AssignedPartition] = {}
        self.lock = threading.RLock()
        self.skipped_records = 0
        self.steps = 0
        self.auto_store = auto_store
        self._to_release: deque[Key] = deque()
        self._left_paused: set[Key] = set()

    # --- assignment ---------------------------------------------------------------------------------------

    def assign(self, starts: Mapping[Key, Start], *, incremental: bool) -> None:
        """Read from these starts; unless ``incremental`` from no other partition."""
        targets = [
            TopicPartition(topic, partition, start.offset) for (topic, partition), start in starts.items()
        ]
        if incremental:
            self.inner.incremental_assign(targets)
        else:
            self.inner.assign(targets)
        with self.lock:
            if not incremental:
                self._forget(list(self.partitions))
                self._to_release.clear()
            self._go_on(self._left_paused.intersection(starts))
            for key, start in starts.items():
                self.answers.pop(key, None)
                self.partitions[key] = AssignedPartition(
                    gate=start.gate(),
                    skipping=start.skipping,
                    stored=start.offset,
                    committed=start.offset if start.committed else None,
                )

    def use(self, inner: InnerConsumer) -> None:
        """Go on with another handle, each partition at its position."""
        with self.lock:
            self.inner = inner
            self._to_release.clear()
            self._left_paused.clear()
            for state in self.partitions.values():
                state.held.clear()  # fetched again
            if self.partitions:
                inner.assign(
                    [TopicPartition(*key, state.gate.position) for key, state in self.partitions.items()]
                )
                inner.pause(
                    [TopicPartition(*key) for key, state in self.partitions.items() if state.paused_by_user]
                )

    def unassign(self, keys: Iterable[Key]) -> None:
        """Forget partitions; the caller has told the inner consumer."""
        with self.lock:
            self._forget(keys)

    def _forget(self, keys: Iterable[Key]) -> None:
        for key in keys:
            state = self.partitions.pop(key, None)
            if state is not None and state.held and not state.paused_by_user:
                self._left_paused.add(key)

    def _go_on(self, keys: Collection[Key]) -> None:
        """Resume what was paused here: librdkafka keeps that in mind when a partition goes and comes back."""
        self._left_paused.difference_update(keys)
        if keys:
            self.inner.resume([TopicPartition(*key) for key in keys])

    # --- records ------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float) -> Message | None:
        """One step: the next message for the application, or None when this step gave none."""
        ready = self._next_released()
        if ready is not None:
            return ready
        self.steps += 1
        for _ in range(_MOST_DROPS):
            message = self.inner.poll(timeout_s)
            if message is None:
                return None
            kept = self._sift(message)
            if kept is not None:
                return kept
            timeout_s = 0.0
        return None

    def consume(self, num_messages: int, timeout_s: float) -> list[Message]:
        """One step: up to ``num_messages`` messages for the application."""
        ready: list[Message] = []
        while len(ready) < num_messages and (message := self._next_released()) is not None:
            ready.append(message)
        if ready:  # they count as delivered already: nothing may raise any more
            return ready
        self.steps += 1
        fetched = self.inner.consume(num_messages, timeout_s)
        return [kept for message in fetched if (kept := self._sift(message)) is not None]

    def _sift(self, message: Message) -> Message | None:
        if message.error() is not None:
            return message
        key, offset = place_of(message)
        with self.lock:
            state = self.partitions.get(key)
            if state is None:  # taken from us while the message was on its way
                return None
            if state.held:
                if offset > place_of(state.held[-1])[1]:
                    state.held.append(message)
                return None
            kept = self._judge(state, message, offset)
            if kept is None and not state.held and state.gate.position <= offset:
                state.held.append(message)
                self.inner.pause([TopicPartition(*key)])
            return kept

    def _judge(self, state: AssignedPartition, message: Message, offset: int) -> Message | None:
        """The message if it is to be delivered; None if it is skipped, repeated, or to be held."""
        before = state.gate.position
        verdict = state.gate.decide(offset)
        if verdict is GateDecision.HOLD or verdict is GateDecision.REPEATED:
            return None
        epoch = message.leader_epoch()
        state.leader_epoch = UNKNOWN_LEADER_EPOCH if epoch is None else epoch
        if verdict is GateDecision.SKIP:
            self.skipped_records += 1
            if state.stored == before:  # all below was done, and this one was done elsewhere
                state.stored = state.gate.position
            return None
        state.delivered_at_s = time.monotonic()
        if self.auto_store:
            state.stored = state.gate.position
        return message

    def _next_released(self) -> Message | None:
        """The next held message that may be delivered by now."""
        if not self._to_release:
            return None
        with self.lock:
            while self._to_release:
                key = self._to_release[0]
                state = self.partitions.get(key)
                if state is not None and not state.paused_by_user:
                    while state.held:
                        message = state.held[0]
                        offset = place_of(message)[1]
                        kept = self._judge(state, message, offset)
                        if kept is None and state.gate.position <= offset:
                            break
                        state.held.popleft()
                        if kept is not None:
                            return kept
                    if not state.held:
                        self._go_on([key])
                self._to_release.popleft()
            return None

    def learn(self, key: Key, skip_ranges: Sequence[SkipRange], known_to: int | None) -> None:
        """Take further skip ranges of a partition."""
        with self.lock:
            state = self.partitions.get(key)
            if state is not None:
                state.gate.learn(skip_ranges, known_to)
                self._release(key, state)

    def abandon(self) -> list[Key]:
        """Wait for no more skip ranges.

        Returns:
            The partitions that were waiting.
        """
        with self.lock:
            waiting = [key for key, state in self.partitions.items() if state.gate.is_open]
            for key in waiting:
                self.partitions[key].gate.abandon()
                self._release(key, self.partitions[key])
            return waiting

    def _release(self, key: Key, state: AssignedPartition) -> None:
        if state.held and key not in self._to_release:
            self._to_release.append(key)

    # --- what the application asks ------------------------------------------------------------------------

    def pause(self, keys: Iterable[Key]) -> None:
        """Deliver nothing of these partitions until `resume`."""
        with self.lock:
            self.inner.pause([TopicPartition(*key) for key in keys])
            for key in keys:
                if key in self.partitions:
                    self.partitions[key].paused_by_user = True

    def resume(self, keys: Iterable[Key]) -> None:
        """Deliver again."""
        with self.lock:
            free = []
            for key in keys:
                state = self.partitions.get(key)
                if state is not None:
                    state.paused_by_user = False
                    self._release(key, state)
                if state is None or not state.held:
                    free.append(key)
            self._go_on(free)

    def seek(self, key: Key, offset: int) -> bool:
        """Go on from ``offset``.

        Returns:
            False: it lies below the resume offset of the move, so nothing is skipped from now on.
        """
        with self.lock:
            self.inner.seek(TopicPartition(*key, offset))
            state = self.partitions[key]
            was_holding = bool(state.held)
            state.held.clear()
            kept = state.gate.seek(offset)
            if not kept:
                state.skipping = None
            if self.auto_store:
                state.stored = offset
            if was_holding and not state.paused_by_user:
                self._go_on([key])
            return kept

    def waiting(self) -> bool:
        """Whether some partition can't go on before more skip ranges are known."""
        return any(state.held and state.gate.is_open for state in self.partitions.values())


Step = Callable[[Delivery, float], list[Message]]
"""Fetches from a delivery, waiting for so many seconds at most."""


def place_of(message: Message) -> tuple[Key, int]:
    """Topic, partition and record offset of a fetched record."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None:
        raise ValueError("a message without topic, partition or offset was never fetched")
    return (topic, partition), offset


def key_of(partition: TopicPartition) -> Key:
    """Topic and partition."""
    return partition.topic, partition.partition
