"""A `FailoverConsumer` for asyncio, as confluent-kafka's ``AIOConsumer`` is one for ``Consumer``."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

from confluent_kafka import Message, TopicPartition

from parallax.consumer.consumer import FailoverConsumer
from parallax.consumer.errors import ConsumerClosedError
from parallax.consumer.ports import Rebalance
from parallax.domain.primary import Assignment
from parallax.runtime.deadline import Deadline

__all__ = ["AIOFailoverConsumer"]

_SLICE_S = 0.25
"""The longest that the thread waits for records in one go: other calls get their turn in between."""

Result = TypeVar("Result")


def _check_consumer(consumer: object) -> None:
    if not isinstance(consumer, FailoverConsumer):
        raise TypeError(
            f"expected a FailoverConsumer, not {type(consumer).__name__}: AIOFailoverConsumer(FailoverConsumer(...))"
        )


class AIOFailoverConsumer:
    """Awaits a `FailoverConsumer`'s calls, made one after another in a thread of its own.

    A call of ``poll`` or ``consume`` that is cancelled delivers nothing: what its thread had fetched by then comes with
    the next one, and is not committed before.

    Args:
        consumer: used by nobody else from now on. Its callbacks (rebalances, ``on_event``, ``on_commit``) are plain
            functions, called in the thread; they get and may call the consumer itself, and hand over to the event
            loop by ``loop.call_soon_threadsafe``.

    Raises:
        TypeError: it is no `FailoverConsumer`, as where its settings are given, which ``AIOConsumer`` takes.
    """

    def __init__(self, consumer: FailoverConsumer) -> None:
        _check_consumer(consumer)
        self._consumer = consumer
        self._thread = ThreadPoolExecutor(1, "parallax-aio-consumer")
        self._unseen = _Unseen(consumer)
        self._turn = asyncio.Lock()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def region(self) -> str:
        """As `FailoverConsumer.region`."""
        return self._consumer.region

    @property
    def moving(self) -> bool:
        """As `FailoverConsumer.moving`."""
        return self._consumer.moving

    @property
    def primary(self) -> Assignment | None:
        """As `FailoverConsumer.primary`."""
        return self._consumer.primary

    @property
    def skipped_records(self) -> int:
        """As `FailoverConsumer.skipped_records`."""
        return self._consumer.skipped_records

    def move_to(self, region: str) -> None:
        """As `FailoverConsumer.move_to`: it only leaves a note for the next poll, and need not be awaited."""
        self._consumer.move_to(region)

    async def subscribe(
        self,
        topics: Sequence[str],
        on_assign: Rebalance | None = None,
        on_revoke: Rebalance | None = None,
        on_lost: Rebalance | None = None,
    ) -> None:
        """As `FailoverConsumer.subscribe`; the callbacks get the `FailoverConsumer`."""
        await self._call(self._consumer.subscribe, topics, on_assign, on_revoke, on_lost)

    async def unsubscribe(self) -> None:
        """As `FailoverConsumer.unsubscribe`."""
        await self._call(self._consumer.unsubscribe)

    async def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """As `FailoverConsumer.assign`."""
        await self._call(self._consumer.assign, partitions)

    async def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """As `FailoverConsumer.incremental_assign`."""
        await self._call(self._consumer.incremental_assign, partitions)

    async def unassign(self) -> None:
        """As `FailoverConsumer.unassign`."""
        await self._call(self._consumer.unassign)

    async def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """As `FailoverConsumer.incremental_unassign`."""
        await self._call(self._consumer.incremental_unassign, partitions)

    async def assignment(self) -> list[TopicPartition]:
        """As `FailoverConsumer.assignment`."""
        return await self._call(self._consumer.assignment)

    async def poll(self, timeout: float = -1) -> Message | None:
        """As `FailoverConsumer.poll`; a thread is woken for each message, so `consume` is the faster one.

        Raises:
            ParallaxError: as `FailoverConsumer.poll`.
        """
        messages = await self.consume(1, timeout)
        return messages[0] if messages else None

    async def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """As `FailoverConsumer.consume`.

        Raises:
            ParallaxError: as `FailoverConsumer.consume`.
        """
        deadline = Deadline.of_timeout(timeout if num_messages else 0)
        while True:
            messages = await self._fetch(num_messages, min(_SLICE_S, deadline.remaining_s))
            if messages or deadline.passed:
                return messages

    async def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,  # noqa: FBT001, FBT002 - confluent-kafka's own signature
    ) -> list[TopicPartition] | None:
        """As `FailoverConsumer.commit`.

        Raises:
            StaleMessageError, KafkaException: as there.
        """
        return await self._call(self._consumer.commit, message, offsets, asynchronous)

    async def store_offsets(
        self, message: Message | None = None, offsets: Sequence[TopicPartition] | None = None
    ) -> None:
        """As `FailoverConsumer.store_offsets`.

        Raises:
            StaleMessageError: as there.
        """
        await self._call(self._consumer.store_offsets, message, offsets)

    async def committed(
        self, partitions: Sequence[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """As `FailoverConsumer.committed`."""
        return await self._call(self._consumer.committed, partitions, timeout)

    async def consumer_group_metadata(self) -> Any:
        """As `FailoverConsumer.consumer_group_metadata`.

        Raises:
            ConsumerConfigError, GroupMovingError: as there.
        """
        return await self._call(self._consumer.consumer_group_metadata)

    async def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """As `FailoverConsumer.position`."""
        return await self._call(self._consumer.position, partitions)

    async def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """As `FailoverConsumer.pause`."""
        await self._call(self._consumer.pause, partitions)

    async def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """As `FailoverConsumer.resume`."""
        await self._call(self._consumer.resume, partitions)

    async def seek(self, partition: TopicPartition) -> None:
        """As `FailoverConsumer.seek`."""
        await self._call(self._consumer.seek, partition)

    async def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float = -1,
        cached: bool = False,  # noqa: FBT001, FBT002 - confluent-kafka's own signature
    ) -> tuple[int, int]:
        """As `FailoverConsumer.get_watermark_offsets`."""
        return await self._call(self._consumer.get_watermark_offsets, partition, timeout, cached)

    async def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """As `FailoverConsumer.offsets_for_times`."""
        return await self._call(self._consumer.offsets_for_times, partitions, timeout)

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """As `FailoverConsumer.list_topics`."""
        return await self._call(self._consumer.list_topics, topic, timeout)

    async def cluster_id(self, timeout: float = -1) -> str:
        """As `FailoverConsumer.cluster_id`."""
        return await self._call(self._consumer.cluster_id, timeout)

    async def memberid(self) -> str | None:
        """As `FailoverConsumer.memberid`."""
        return await self._call(self._consumer.memberid)

    async def set_sasl_credentials(self, username: str, password: str) -> None:
        """As `FailoverConsumer.set_sasl_credentials`."""
        await self._call(self._consumer.set_sasl_credentials, username, password)

    async def close(self) -> None:
        """As `FailoverConsumer.close`; a call under way ends first, within a quarter of a second for polls."""
        async with self._turn:
            if self._closed:
                return
            self._closed = True
            try:
                await asyncio.shield(
                    asyncio.wrap_future(self._thread.submit(self._unseen.before, self._consumer.close))
                )
            finally:
                self._thread.shutdown(wait=False)

    async def _call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        self._check_open()
        return await asyncio.wrap_future(self._thread.submit(self._unseen.before, function, *arguments))

    async def _fetch(self, num_messages: int, timeout_s: float) -> list[Message]:
        async with self._turn:
            self._check_open()
            handing = _Handing()
            fetched = self._thread.submit(self._unseen.fetch, handing, num_messages, timeout_s)
            try:
                return await asyncio.shield(asyncio.wrap_future(fetched))
            except asyncio.CancelledError:
                # In the thread before the next fetch, and before close: both wait for their turn.
                self._thread.submit(self._unseen.keep, handing.give_up())
                fetched.add_done_callback(self._unseen.keep_error)
                raise

    def _check_open(self) -> None:
        if self._closed:
            raise ConsumerClosedError("the consumer was closed; make a new one")


class _Handing:
    """Messages on their way from the thread to a task, which may be cancelled at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given_up = threading.Event()
        self._messages: list[Message] = []

    @property
    def given_up(self) -> bool:
        """Whether the task was cancelled."""
        return self._given_up.is_set()

    def give(self, messages: list[Message]) -> bool:
        """In the thread: whether the task takes them, or will tell by `give_up` that it did not."""
        with self._lock:
            if not self.given_up:
                self._messages = messages
            return not self.given_up

    def give_up(self) -> list[Message]:
        """In the task: messages that it will not see."""
        with self._lock:
            self._given_up.set()
            return self._messages


class _Unseen:
    """What cancelled tasks did not take; all of it in the consumer's thread.

    Nothing is polled, and so nothing committed by itself, before they have been taken. Whatever else is asked of the
    consumer has them fetched again first: their positions would count as delivered.
    """

    def __init__(self, consumer: FailoverConsumer) -> None:
        self._consumer = consumer
        self._messages: list[Message] = []
        self._error: BaseException | None = None

    def fetch(self, handing: _Handing, num_messages: int, timeout_s: float) -> list[Message]:
        """What comes next."""
        if handing.given_up:
            return []
        error, self._error = self._error, None
        if error is not None:
            raise error
        if self._messages:
            found, self._messages = self._messages[:num_messages], self._messages[num_messages:]
        else:
            found = self._consumer.consume(num_messages, timeout_s)
        if handing.give(found):
            return found
        self.keep(found)
        return []

    def keep(self, messages: list[Message]) -> None:
        """They are what comes next."""
        self._messages = messages + self._messages

    def keep_error(self, fetched: Future[list[Message]]) -> None:
        """What a cancelled task was to be told is told to the next one."""
        if not fetched.cancelled() and (error := fetched.exception()) is not None:
            self._error = error

    def before(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call the function with nothing left unseen."""
        first: dict[tuple[str, int], int] = {}
        for message in self._messages:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if message.error() is None and topic is not None and partition is not None and offset is not None:
                first.setdefault((topic, partition), offset)
        self._messages = [message for message in self._messages if message.error() is not None]
        for (topic, partition), offset in first.items():
            self._consumer.seek(TopicPartition(topic, partition, offset))
        return function(*arguments)
