"""The loop of a consuming process: deliver, write down, commit, tell the parent."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Message

from lab.workload.channel import Channel
from lab.workload.delivered import DeliveredLog
from lab.workload.events import RecordId, record_id

_BURST_S = 0.1
_MOST_RECORDS = 500
_CONSUME_S = 0.1
_PAUSE_S = 0.02
"""Until the limit allows the next records."""

_COMMIT_EVERY_S = 0.5


class Pace:
    """A token bucket: at most ``per_s`` records a second, in bursts of a tenth of a second.

    Args:
        per_s: None: no limit.
        clock: seconds, never going back.
    """

    def __init__(self, per_s: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._per_s = per_s
        self._tokens = 0.0
        self._filled_at = clock()

    def limit(self, per_s: float | None) -> None:
        """Change the rate from now on."""
        self._per_s = per_s
        self._tokens, self._filled_at = 0.0, self._clock()

    def allowance(self, most: int) -> int:
        """How many records may pass now, at most ``most``."""
        if self._per_s is None:
            return most
        now = self._clock()
        self._tokens = min(
            max(1.0, self._per_s * _BURST_S), self._tokens + (now - self._filled_at) * self._per_s
        )
        self._filled_at = now
        return min(most, int(self._tokens))

    def took(self, records: int) -> None:
        """Records have passed."""
        if self._per_s is not None:
            self._tokens -= records


class ConsumeError(Exception):
    """A consumer can't go on."""


class Batches(Protocol):
    """What the loop needs of a consumer: both kinds have these methods."""

    def consume(self, num_messages: int = ..., timeout: float = ...) -> list[Message]:
        """The next records and errors."""

    def close(self) -> None:
        """Leave the group."""


class ConsumeLoop:
    """Runs one consumer until it is told to stop.

    Args:
        consumer: subscribed already.
        commit: commits what was consumed so far; gets whether to wait for the answer.
        where: moves that the group has made, and the cluster that was read last.
        log: gets each record before its offset is committed.
        channel: commands: `limit` (`per_s`) and `stop`.
        per_s: at most so many records a second; None: no limit.
        also: further fields of the status.
    """

    def __init__(
        self,
        consumer: Batches,
        *,
        commit: Callable[[bool], None],
        where: Callable[[], tuple[int, str]],
        log: DeliveredLog,
        channel: Channel,
        per_s: float | None,
        also: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self._consumer, self._commit, self._where = consumer, commit, where
        self._log, self._channel, self._also = log, channel, also
        self._pace = Pace(per_s)
        self._stage, self._cluster = where()
        self._delivered = 0
        self._next_offsets: dict[int, int] = {}
        self._commit_at = time.monotonic() + _COMMIT_EVERY_S
        self._dirty = False

    def run(self) -> None:
        """Consume until `stop`; then commit and leave the group.

        Raises:
            ConsumeError: the consumer is broken for good.
        """
        try:
            while self._obey_commands():
                self._consume_once()
                self._commit_if_due()
                if self._channel.status_is_due():
                    self._tell()
            self._commit_now(wait=True)
            self._tell()
        finally:
            self._consumer.close()
        self._channel.say("closed", delivered=self._delivered)

    def forget_positions(self) -> None:
        """Partitions or cluster have changed: the old positions mean nothing any more."""
        self._next_offsets.clear()
        self._dirty = False

    def commit_on_revoke(self) -> None:
        """Commit before another member takes over; what was delivered here must not be delivered there."""
        self._commit_now(wait=True)

    def _obey_commands(self) -> bool:
        while (command := self._channel.take()) is not None:
            if command["do"] == "stop":
                return False
            if command["do"] == "limit":
                self._pace.limit(command["per_s"])
            else:
                raise ConsumeError(f"unknown command: {command}")
        return True

    def _consume_once(self) -> None:
        allowed = self._pace.allowance(_MOST_RECORDS)
        if allowed == 0:
            time.sleep(_PAUSE_S)
            return
        messages = self._consumer.consume(allowed, _CONSUME_S)
        self._look_where()
        records = self._records(messages)
        if not records:
            return
        self._pace.took(len(records))
        self._log.write(self._stage, self._cluster, records)
        self._delivered += len(records)
        self._next_offsets.update({partition: offset + 1 for _, partition, offset in records})
        self._dirty = True

    def _look_where(self) -> None:
        stage, self._cluster = self._where()
        if stage != self._stage:
            self._stage = stage
            self.forget_positions()

    def _records(self, messages: Sequence[Message]) -> list[tuple[RecordId, int, int]]:
        records = []
        for message in messages:
            if (error := message.error()) is not None:
                if error.code() == KafkaError._FATAL:  # noqa: SLF001 - librdkafka's own code: error.fatal() is false here
                    raise ConsumeError(f"{self._cluster}: {error}")
                if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - confluent-kafka's public name for it
                    _note(f"{self._cluster}: {error}")
                continue
            partition, offset = message.partition(), message.offset()
            if partition is None or offset is None:
                raise ConsumeError("a record without partition or offset")
            records.append((record_id(message.value()), partition, offset))
        return records

    def _commit_if_due(self) -> None:
        if time.monotonic() >= self._commit_at:
            self._commit_now(wait=False)

    def _commit_now(self, *, wait: bool) -> None:
        self._commit_at = time.monotonic() + _COMMIT_EVERY_S
        if not self._dirty:
            return
        self._dirty = False
        try:
            self._commit(wait)
        except KafkaException as error:
            # The cluster is away: what it does not know of stays delivered, and may be delivered again.
            _note(f"{self._cluster}: commit failed: {error}")

    def _tell(self) -> None:
        self._channel.status(
            delivered=self._delivered,
            stage=self._stage,
            cluster=self._cluster,
            next_offsets=self._next_offsets,
            **self._also(),
        )


def _note(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()
