"""Commits that carry what a restarted consumer has to skip, and the interval of automatic ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

import structlog
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message, TopicPartition

from parallax.consumer.delivery import AssignedPartition, Delivery, key_of, place_of
from parallax.consumer.errors import StaleMessageError
from parallax.consumer.gate import Start
from parallax.consumer.ports import InnerConsumer, Key
from parallax.domain import metadata as codec
from parallax.domain.ids import TargetOffset, next_offset
from parallax.domain.metadata import CommittedMetadata
from parallax.domain.skips import SkipRange
from parallax.errors import LimitError

_log = structlog.get_logger("parallax.failover_consumer")
COORDINATOR_WITHIN_S = 2.0
"""A coordinator that takes longer does not answer."""

_REVOKED_WITHIN_S = 0.5


def encode(skipping: CommittedMetadata, ranges: Sequence[SkipRange], known_to: int | None) -> str:
    """The metadata of a commit from which ``ranges`` are to be skipped.

    Empty, with a warning in the log, if the progress of very many sources does not fit: a consumer that starts
    from this commit then reads the consumed records again.
    """
    complete_to = None if known_to is None else TargetOffset(known_to)
    try:
        return codec.encode(replace(skipping, skips=ranges, complete_to=complete_to))
    except LimitError as error:
        _log.warning("metadata_too_large", error=str(error))
        return ""


def decode(text: str | None, next_offset: int) -> CommittedMetadata | None:
    """What is to be skipped from a commit on.

    Returns:
        None where the metadata is not ours, or void because the commit lies below the move's resume offset.

    Raises:
        MetadataError: it is ours, and damaged or of a version unknown to this release.
    """
    if not codec.is_ours(text):
        return None
    found = codec.decode(text)
    return None if next_offset < found.resume_offset else found


class Provenance:
    """Which delivery a message came from.

    A message can't carry a mark of ours, so its identity is looked up: an object that is alive keeps its
    address, and an address that is used again is overwritten when the new message is delivered. The table is as
    large as the most messages that were ever alive at one time.
    """

    def __init__(self) -> None:
        self._generations: dict[int, int] = {}

    def note(self, messages: Iterable[Message], generation: int) -> None:
        """Remember messages that are being delivered."""
        for message in messages:
            self._generations[id(message)] = generation

    def check(self, message: Message, generation: int) -> None:
        """Refuse a message of another delivery.

        Raises:
            StaleMessageError: it was delivered before the last move, or not by this consumer.
        """
        found = self._generations.get(id(message))
        if found != generation:
            what = (
                "was not delivered by this consumer"
                if found is None
                else "was delivered before the last move"
            )
            raise StaleMessageError(
                f"the message at {message.topic()}-{message.partition()} offset {message.offset()} {what}: its "
                "offset means nothing in the cluster that is consumed now. The move has taken its position "
                "along; drop the commit"
            )


def of_message(message: Message) -> TopicPartition:
    """The commit that says that the message is done."""
    (topic, partition), offset = place_of(message)
    return TopicPartition(topic, partition, next_offset(offset))


def of_start(key: Key, start: Start) -> TopicPartition:
    """The commit that a move makes for a partition at its destination."""
    metadata = ""
    skipping = start.skipping
    if skipping is not None and (skipping.skips or skipping.complete_to is not None):
        metadata = encode(skipping, skipping.skips, skipping.complete_to)
    return TopicPartition(*key, start.offset, metadata=metadata)


def carrying(state: AssignedPartition, offset: int, metadata: str | None = None) -> str:
    """The metadata of a commit at ``offset``: what is to be skipped above it, or the application's own."""
    skipping = state.skipping
    if skipping is None or offset < skipping.resume_offset:
        return metadata or ""
    ranges = state.gate.ranges_from(offset)
    known_to = state.gate.known_to
    if not ranges and known_to is None:
        return metadata or ""
    return encode(skipping, ranges, known_to)


def missing_commits(
    inner: InnerConsumer, commits: Sequence[TopicPartition], timeout_s: float = COORDINATOR_WITHIN_S
) -> list[TopicPartition]:
    """Those of a group's commits above what stands; where more stands another member has gone on.

    Raises:
        KafkaException: the coordinator did not tell.
    """
    asked = [TopicPartition(item.topic, item.partition) for item in commits]
    found = {key_of(item): item.offset for item in inner.committed(asked, timeout_s)}
    return [item for item in commits if found.get(key_of(item), OFFSET_INVALID) < item.offset]


def named(commits: Iterable[TopicPartition]) -> list[str]:
    """Commits for a log."""
    return [f"{item.topic}-{item.partition}@{item.offset}" for item in commits]


class Committer:
    """Commits of one `Delivery`.

    Args:
        delivery: where to.
        interval_s: seconds between automatic commits; None: the application commits by itself.
        moved: the consumer has moved, so that offsets from before may still be around.

    Attributes:
        joined: commits are sent. A handle that is about to take a member's place commits nothing before it has it: the
            coordinator would take it for another consumer.
    """

    def __init__(
        self,
        delivery: Delivery,
        *,
        interval_s: float | None,
        moved: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._delivery = delivery
        self._interval_s = interval_s
        self._moved = moved
        self._clock = clock
        self._due_at_s = clock() + (interval_s or 0)
        self.joined = True

    def stored(self, keys: Collection[Key] | None = None) -> list[TopicPartition]:
        """What is done and not committed yet of these partitions, or of all, as commits."""
        return self._commits(keys, sent=False)

    def explicit(self, offsets: Iterable[TopicPartition], *, seen: bool = False) -> list[TopicPartition]:
        """The application's own offsets as commits.

        Args:
            offsets: the offsets.
            seen: they are of messages that were delivered here.

        Raises:
            StaleMessageError: an offset can't belong to the cluster that is consumed now.
        """
        with self._delivery.lock:
            commits = []
            for item in offsets:
                state = self._delivery.partitions.get(key_of(item))
                if state is None:
                    self._check_unassigned(item, seen=seen)
                    commits.append(item)
                    continue
                self._check(item, state)
                metadata = carrying(state, item.offset, item.metadata)
                commits.append(TopicPartition(item.topic, item.partition, item.offset, metadata=metadata))
            return commits

    def belongs(self, item: TopicPartition, state: AssignedPartition) -> bool:
        """Whether an offset can be one of the cluster that is consumed now: after a move, those delivered there."""
        return not self._moved or state.gate.floor <= item.offset <= state.gate.position

    def store(self, offsets: Iterable[TopicPartition], *, seen: bool = False) -> None:
        """Remember what the application is done with, for the next commit.

        Args:
            offsets: the offsets.
            seen: they are of messages that were delivered here.

        Raises:
            StaleMessageError: an offset can't belong to the cluster that is consumed now.
            KafkaException: the partition is not assigned (``_UNKNOWN_PARTITION``), or delivered records are stored by
                themselves (``_INVALID_ARG``).
        """
        if self._delivery.auto_store:
            raise KafkaException(
                KafkaError(
                    KafkaError._INVALID_ARG,  # noqa: SLF001 - librdkafka's own code
                    "store_offsets needs enable.auto.offset.store=false",
                )
            )
        with self._delivery.lock:
            for item in offsets:
                state = self._delivery.partitions.get(key_of(item))
                if state is not None:
                    self._check(item, state)
                    if item.offset >= 0:
                        state.stored = item.offset
                    continue
                self._check_unassigned(item, seen=seen)
                if not seen:
                    code = KafkaError._UNKNOWN_PARTITION  # noqa: SLF001 - as above
                    raise KafkaException(KafkaError(code, f"{item.topic}-{item.partition} is not assigned"))

    def send(self, commits: Sequence[TopicPartition], *, asynchronous: bool) -> list[TopicPartition] | None:
        """Commit, and remember that it was done.

        Raises:
            KafkaException: the cluster refused, or the group is being joined (``REBALANCE_IN_PROGRESS``).
        """
        if not self.joined:
            raise KafkaException(
                KafkaError(
                    KafkaError.REBALANCE_IN_PROGRESS,
                    "nothing was committed: the group is being joined again, and records since the last commit "
                    "will be delivered again",
                )
            )
        answer = self._delivery.inner.commit(offsets=list(commits), asynchronous=asynchronous)
        failed = {key_of(item) for item in answer or () if item.error is not None}
        with self._delivery.lock:
            for item in commits:
                state = self._delivery.partitions.get(key_of(item))
                if state is not None and key_of(item) not in failed and item.offset >= 0:
                    state.committed, state.refused = item.offset, False
        return answer

    def tick(self) -> None:
        """Commit automatically when it is time; a failure is logged and tried again."""
        if self._interval_s is None or self._clock() < self._due_at_s:
            return
        self._due_at_s = self._clock() + self._interval_s
        self.flush()

    def flush(self, keys: Collection[Key] | None = None) -> None:
        """Commit automatically now, for all partitions or for these."""
        if self._interval_s is not None:
            self.send_quietly(self.stored(keys))

    def refused(self, commits: Iterable[TopicPartition]) -> None:
        """The cluster has not taken commits that were sent without waiting: the next one of what is stored repeats them."""
        with self._delivery.lock:
            for item in commits:
                state = self._delivery.partitions.get(key_of(item))
                if state is None or state.committed != item.offset:
                    continue
                if self._interval_s is None:
                    state.refused = True  # a move still starts from what the application called done
                else:
                    state.committed = None

    def standing(self, keys: Collection[Key] | None = None) -> list[TopicPartition]:
        """What must stand when these partitions, or all, are given up: by the automatic commits sent so far."""
        return self._commits(keys, sent=True) if self._interval_s is not None and self.joined else []

    def see_standing(self, keys: Collection[Key]) -> None:
        """Send once more what does not stand of partitions that are being revoked: refused, it is nobody's any more.

        librdkafka may have joined again before the application has answered that its partitions are revoked (a
        subscribed topic was created), and a coordinator refuses commits while it waits for the group's leader.
        """
        commits = self.standing(keys)
        if not commits:
            return
        try:
            again = missing_commits(self._delivery.inner, commits, _REVOKED_WITHIN_S)
        except (KafkaException, RuntimeError) as error:  # the latter of a handle that is closed
            _log.warning("commits_not_read", region=self._delivery.region, error=str(error))
            return
        if again:
            _log.warning("commit_repeated", region=self._delivery.region, partitions=named(again))
            self.send_quietly(again)

    def send_quietly(self, commits: Sequence[TopicPartition]) -> None:
        """Commit without waiting; a failure is logged, and the next commit makes up for it."""
        if not commits:
            return
        try:
            self.send(commits, asynchronous=True)
        except (KafkaException, RuntimeError) as error:  # the latter of a handle that is closed
            _log.warning("commit_failed", region=self._delivery.region, error=str(error))

    def _commits(self, keys: Collection[Key] | None, *, sent: bool) -> list[TopicPartition]:
        with self._delivery.lock:
            return [
                TopicPartition(*key, state.stored, metadata=carrying(state, state.stored))
                for key, state in self._delivery.partitions.items()
                if (state.stored == state.committed and not state.refused) == sent
                and (keys is None or key in keys)
            ]

    def _check_unassigned(self, item: TopicPartition, *, seen: bool) -> None:
        if seen or not self._moved:
            return
        raise StaleMessageError(
            f"{item.topic}-{item.partition} offset {item.offset}: the partition is not assigned here in region "
            f"{self._delivery.region!r}, and since the last move the offset may be one of the cluster before it. The "
            "move has taken its position along; drop the commit"
        )

    def _check(self, item: TopicPartition, state: AssignedPartition) -> None:
        if self.belongs(item, state):
            return
        raise StaleMessageError(
            f"{item.topic}-{item.partition} offset {item.offset}: since the last move offsets from "
            f"{state.gate.floor} to {state.gate.position} have been delivered in region "
            f"{self._delivery.region!r}; an offset from before the move means nothing here"
        )
