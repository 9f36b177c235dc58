"""Chooses where partitions begin that no move has brought along, and begins later with those that have no start yet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeVar

import structlog
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaException, TopicPartition

from parallax.consumer.commits import COORDINATOR_WITHIN_S, decode
from parallax.consumer.delivery import Delivery, key_of
from parallax.consumer.errors import NoStartOffsetError, OffsetServiceAwayError, is_away
from parallax.consumer.events import EventKind, EventQueue, FailoverEvent
from parallax.consumer.gate import Start
from parallax.consumer.moves import ASK_AGAIN_S, Inquiry
from parallax.consumer.ports import Key
from parallax.consumer.settings import Policies
from parallax.domain.progress import START
from parallax.errors import ClusterUnavailableError, MetadataError, ParallaxError
from parallax.runtime.deadline import Deadline

Value = TypeVar("Value")

_log = structlog.get_logger("parallax.failover_consumer")

_CLUSTER_TIMEOUT_MS = 30_000.0
"""How long an assignment waits for the cluster that has just made it."""

_ATTEMPT_S = 5.0

START_AGAIN_S = 0.5
"""Between two attempts, each of which tells the application if it failed."""


class StartChooser:
    """Where partitions begin: their commit, else the offset service's answer, else the policy.

    Args:
        group: the consumer group.
        policies: what to do where neither is there.
        inquiry: asks the offset service.
        events: where choices are told.
        closed: set when the consumer is closed, which ends every wait.
    """

    def __init__(
        self, group: str, policies: Policies, inquiry: Inquiry, events: EventQueue, closed: threading.Event
    ) -> None:
        self._group = group
        self._policies = policies
        self._inquiry = inquiry
        self._events = events
        self._closed = closed

    def choose(self, delivery: Delivery, partitions: Sequence[TopicPartition]) -> dict[Key, Start]:
        """Starts of the partitions, in their order.

        Raises:
            NoStartOffsetError: a partition has none, and the policy is not to guess.
            OffsetServiceAwayError: no service answered, and the policy is to stop.
            ClusterUnavailableError: the cluster did not tell its committed offsets.
        """
        keys = [key_of(item) for item in partitions]
        self._drop_outdated(delivery, keys)
        found = {key: delivery.answers[key] for key in keys if key in delivery.answers}
        found.update(self._committed(delivery, [key for key in keys if key not in found]))
        missing = [key for key in keys if key not in found]
        if missing and delivery.from_region is not None:
            found.update(self._asked(delivery, delivery.from_region, missing))
            missing = [key for key in keys if key not in found]
        found.update({key: self._by_policy(delivery, key) for key in missing})
        return {key: found[key] for key in keys}

    def explicit(self, delivery: Delivery, partitions: Sequence[TopicPartition]) -> dict[Key, Start]:
        """Starts of partitions that the application assigns itself.

        Raises:
            ParallaxError: as `choose`.
        """
        open_ones = [item for item in partitions if item.offset < 0]
        by_name = {OFFSET_BEGINNING: 0, OFFSET_END: 1}
        chosen = self.choose(delivery, [item for item in open_ones if item.offset not in by_name])
        for item in partitions:
            key = key_of(item)
            if item.offset >= 0:
                chosen[key] = Start(item.offset)
            elif item.offset in by_name:
                chosen[key] = Start(self._log_range(delivery, key)[by_name[item.offset]])
        return {key_of(item): chosen[key_of(item)] for item in partitions}

    def _drop_outdated(self, delivery: Delivery, keys: Sequence[Key]) -> None:
        """Drop answers for partitions that another member has consumed here since the group was stopped.

        Whoever moved the group has put offsets here that carry the fence's number. Where one does not stand any
        more, or tells of more than this consumer has delivered, the commit is the newer truth. Without a fence it is
        where it is not what it was at the first assignment.
        """
        carried = [key for key in keys if key in delivery.answers]
        if delivery.fence is None:
            self._drop_changed(delivery, [key for key in carried if key in delivery.standing])
            self._note_standing(delivery, keys)
            return
        if not carried:
            return
        for item in self._commits(delivery, carried):
            if item.error is None and item.offset >= 0:
                answer = delivery.answers[key_of(item)]
                if not _stands(item, delivery.fence, answer):
                    del delivery.answers[key_of(item)]

    def _drop_changed(self, delivery: Delivery, keys: Sequence[Key]) -> None:
        if not keys:
            return
        for item in self._told_commits(delivery, keys):
            if _commit_in(item) != delivery.standing[key_of(item)]:
                del delivery.answers[key_of(item)]

    def _note_standing(self, delivery: Delivery, keys: Sequence[Key]) -> None:
        """Note what the group has committed where others go on; its own partitions do not wait long for that.

        What can't be read now is noted at a later assignment: an answer is kept rather than lost.
        """
        unknown = [key for key in delivery.answers if key not in delivery.standing]
        others = [key for key in unknown if key not in keys]
        if not others:
            return
        try:
            found = delivery.inner.committed([TopicPartition(*key) for key in unknown], COORDINATOR_WITHIN_S)
        except KafkaException as error:
            _log.warning("commits_not_read", region=delivery.region, error=str(error))
            return
        delivery.standing.update({key_of(item): _commit_in(item) for item in found if item.error is None})

    def _told_commits(self, delivery: Delivery, keys: Sequence[Key]) -> Iterator[TopicPartition]:
        """What the group has committed there.

        Raises:
            ClusterUnavailableError: of one of them that is not to be had.
        """
        for item in self._commits(delivery, keys):
            if item.error is not None:
                raise ClusterUnavailableError(
                    f"{item.topic}-{item.partition}: the committed offset is not to be had: {item.error}"
                )
            yield item

    def _committed(self, delivery: Delivery, keys: Sequence[Key]) -> dict[Key, Start]:
        if not keys:
            return {}
        starts: dict[Key, Start] = {}
        for item in self._told_commits(delivery, keys):
            if item.offset >= 0:
                starts[key_of(item)] = self._restored(delivery, item)
        restored = [start.described(key) for key, start in starts.items() if start.skipping is not None]
        if restored:
            self._events.put(
                FailoverEvent(
                    EventKind.RESTORED,
                    delivery.region,
                    partitions=tuple(restored),
                    message="committed offsets carry skip ranges of an earlier move",
                )
            )
        return starts

    def _commits(self, delivery: Delivery, keys: Sequence[Key]) -> list[TopicPartition]:
        asked = [TopicPartition(*key) for key in keys]
        return self._patiently(delivery, lambda: delivery.inner.committed(asked, _ATTEMPT_S), "its commits")

    def _restored(self, delivery: Delivery, item: TopicPartition) -> Start:
        try:
            return Start(item.offset, decode(item.metadata, item.offset), committed=True)
        except MetadataError as error:
            start = Start(item.offset, committed=True)
            self._events.put(
                FailoverEvent(
                    EventKind.METADATA_UNREADABLE,
                    delivery.region,
                    partitions=(start.described(key_of(item)),),
                    message=str(error),
                )
            )
            return start

    def _asked(self, delivery: Delivery, origin: str, keys: Sequence[Key]) -> dict[Key, Start]:
        told = False
        while True:
            try:
                return self._inquiry.ask_partitions(self._group, origin, delivery.region, keys)
            except ParallaxError as error:
                if not is_away(error):
                    raise
                if not told:
                    told = True
                    self._events.put(
                        FailoverEvent(EventKind.SERVICE_AWAY, delivery.region, origin, message=str(error))
                    )
                names = ", ".join(f"{topic}-{partition}" for topic, partition in keys)
                if self._policies.on_service_away == "stop":
                    raise OffsetServiceAwayError(f"no offset service answers where {names} start") from error
                if self._policies.on_service_away == "metadata":
                    raise NoStartOffsetError(
                        f"{names}: no commit in region {delivery.region!r}, and no offset service answers; any "
                        "start would be a guess. Wait for a service (on_service_away='wait') or seek"
                    ) from error
                if self._closed.wait(ASK_AGAIN_S):
                    raise

    def _by_policy(self, delivery: Delivery, key: Key) -> Start:
        policy = self._policies.on_no_offset
        name = f"{key[0]}-{key[1]}"
        if policy == "error":
            raise NoStartOffsetError(
                f"{name}: group {self._group!r} has no commit in region {delivery.region!r}, and on_no_offset='error'"
            )
        low, high = self._log_range(delivery, key)
        start = Start(low if policy == "earliest" else high)
        self._events.put(
            FailoverEvent(
                EventKind.NO_OFFSET,
                delivery.region,
                partitions=(start.described(key),),
                message=f"{name} was never committed on: on_no_offset={policy!r}",
            )
        )
        return start

    def _log_range(self, delivery: Delivery, key: Key) -> tuple[int, int]:
        return self._patiently(
            delivery,
            lambda: delivery.inner.get_watermark_offsets(TopicPartition(*key), _ATTEMPT_S, cached=False),
            f"the log range of {key[0]}-{key[1]}",
        )

    def _patiently(self, delivery: Delivery, ask: Callable[[], Value], what: str) -> Value:
        deadline = Deadline.after_ms(_CLUSTER_TIMEOUT_MS)
        while True:
            try:
                return ask()
            except KafkaException as error:
                if deadline.passed or self._closed.wait(ASK_AGAIN_S):
                    raise ClusterUnavailableError(
                        f"the aggregate cluster of region {delivery.region!r} did not tell {what}: {error}"
                    ) from error
                _log.warning("asking_cluster_again", region=delivery.region, what=what, error=str(error))


class LateStarts:
    """Keeps them until they have begun, are taken away, or the application has placed them itself.

    An attempt may take long, and its error leaves the application's call at once. So the inner consumer is polled at
    least once between two: the other partitions go on, and a rebalance is heard of.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: dict[Key, TopicPartition] = {}
        self._tried_at_s = 0.0
        self._tried_at_step = -1

    @property
    def waiting(self) -> Mapping[Key, TopicPartition]:
        """Those that have not begun."""
        return self._waiting

    def assigned(self, partitions: Sequence[TopicPartition], *, incremental: bool) -> None:
        """Take partitions as they are assigned: besides others, or instead of them."""
        if not incremental:
            self._waiting.clear()
        self._waiting.update({key_of(item): item for item in partitions})

    def forget(self, keys: Collection[Key] | None = None) -> None:
        """They have begun, or need not any more; None: all of them."""
        for key in list(self._waiting) if keys is None else keys:
            self._waiting.pop(key, None)

    def tried(self, step: int) -> None:
        """An attempt has ended.

        Args:
            step: how often the inner consumer had been polled.
        """
        self._tried_at_s, self._tried_at_step = self._clock(), step

    def due(self, step: int) -> list[TopicPartition]:
        """Those to try now."""
        rested = self._clock() - self._tried_at_s >= START_AGAIN_S and step != self._tried_at_step
        return list(self._waiting.values()) if rested else []


def _commit_in(item: TopicPartition) -> tuple[int, str]:
    return item.offset, item.metadata or ""


def _stands(commit: TopicPartition, fence: int, answer: Start) -> bool:
    """Whether a commit is still what was put there after the fence, and the answer knows all that it says."""
    try:
        told = decode(commit.metadata, commit.offset)
    except MetadataError:
        return False
    if told is None or told.fencing_number != fence or told.resume_offset != commit.offset:
        return False
    if answer.from_log_start and told.resume_offset > answer.offset:
        return False  # whoever moved the group knew better, or chose record timestamps
    known = {} if answer.skipping is None else answer.skipping.positions
    return all(
        known.get(source, START).source_next >= position.source_next
        for source, position in told.positions.items()
    )
