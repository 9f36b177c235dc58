"""The producing process: sends a plan's records to one regional cluster, in order, each acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from lab.stack.access import kafka_client
from lab.stack.secure.material import PRODUCER
from lab.workload.channel import Channel
from lab.workload.delivered import DeliveredLog
from lab.workload.events import RecordId, record_id, trip_event
from lab.workload.plan import Phase, Plan

_PAUSE_S = 0.01
"""Until the next records are due."""
_FLUSH_S = 60.0
_TRANSACTION_S = 60.0
_LONGEST_AWAY_MS = 300_000
_POLL_EVERY_RECORDS = 500


class ProduceError(Exception):
    """Records were not acknowledged."""


@dataclass(slots=True)
class _Counts:
    sent: int = 0
    acked: int = 0
    aborted: int = 0
    transactions: int = 0
    failed: list[str] = field(default_factory=list)
    doubtful: list[tuple[int, int]] = field(default_factory=list)


class TripProducer:
    """Sends one plan.

    Args:
        bootstrap_servers: the regional cluster.
        topic: exists already.
        region: goes into every record.
        channel: hears `stop`, gets the counts.
        seed: makes places and fares repeatable.
        acked: gets each acknowledged record, with its place and the time at which the producer was told.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: str,
        topic: str,
        region: str,
        plan: Plan,
        channel: Channel,
        seed: int = 1,
        acked: DeliveredLog | None = None,
    ) -> None:
        self._topic, self._region, self._plan, self._channel = topic, region, plan, channel
        self._acked = acked
        self._told: list[tuple[RecordId, int, int]] = []  # acknowledged, and not written down yet
        self._draw = Random(seed)  # noqa: S311 - places and fares, not secrets
        self._counts = _Counts()
        self._seq = plan.first_seq
        self._stopping = False
        self._give_up_at = time.monotonic() + plan.at_most_s
        settings: dict[str, Any] = {
            **kafka_client(bootstrap_servers, PRODUCER),
            "client.id": f"trips-{region}",
            "enable.idempotence": True,
            "linger.ms": 20,
            # A cluster that was away is used again a second after its return, not ten.
            "reconnect.backoff.max.ms": 1_000,
            # Small batches, as the Java producer sends them: a broker that holds a reader back by a quota can.
            "batch.size": 16_384,
            "log_level": 3,
        }
        if plan.transactions is not None:
            settings["transactional.id"] = f"trips.{topic}.{region}"
            # A cluster that is away for longer than this has aborted the transaction when it returns, and librdkafka calls
            # the answer to a commit fatal then.
            settings["transaction.timeout.ms"] = _LONGEST_AWAY_MS
        self._settings = settings
        self._producer = Producer(settings)

    def run(self) -> None:
        """Send until the plan is done, the time is up or the parent says stop.

        Raises:
            ProduceError: a record was not acknowledged.
        """
        if self._plan.transactions is not None:
            self._producer.init_transactions(_TRANSACTION_S)
        for number, phase in enumerate(self._plan.phases):
            self._channel.say("phase", number=number)
            self._run_phase(phase)
            if self._stopping:
                break
        self._flush()
        self._channel.say("done", **self._figures(), doubtful=self._counts.doubtful)

    def _run_phase(self, phase: Phase) -> None:
        started, sent = time.monotonic(), 0
        while not self._stopping:
            elapsed_s = time.monotonic() - started
            due = phase.due(elapsed_s)
            if self._plan.transactions is None:
                sent = self._send_plainly(phase, sent, due)
            else:
                sent = self._send_in_transactions(phase, sent, due)
            self._look_around()
            # What comes next begins on time, not behind a queue: a slow cluster would get it in one burst.
            all_arrived = phase.seconds > 0 or not len(self._producer)
            if sent >= phase.records and elapsed_s >= phase.seconds and all_arrived:
                return
            time.sleep(_PAUSE_S)

    def _send_plainly(self, phase: Phase, sent: int, due: int) -> int:
        while sent < due:
            self._send(phase, sent)
            sent += 1
            if sent % _POLL_EVERY_RECORDS == 0:
                self._look_around()
                if self._stopping:
                    break
        return sent

    def _send_in_transactions(self, phase: Phase, sent: int, due: int) -> int:
        transactions = self._plan.transactions
        if transactions is None:
            return sent
        while sent < due and not self._stopping:
            count = min(transactions.records, phase.records - sent)
            if due - sent < count:
                break
            if transactions.aborts_before(self._counts.transactions):
                self._transaction(phase, sent, count, commit=False)
            if self._transaction(phase, sent, count, commit=True):
                sent += count
                self._counts.transactions += 1
            self._look_around()
        return sent

    def _transaction(self, phase: Phase, sent: int, count: int, *, commit: bool) -> bool:
        """Send one transaction; whether it was committed.

        What can't be committed (the cluster was killed, and was away for longer than a transaction may take) is
        aborted: the same work is sent again then, under new numbers. The cluster may have committed it all the same: that a
        commit failed tells only that its answer did. So its numbers are told as doubtful, and count as aborted.
        """
        acked, first_seq = self._counts.acked, self._seq
        try:
            self._producer.begin_transaction()
            for number in range(sent, sent + count):
                self._send(phase, number)
            if commit:
                self._insist(self._producer.commit_transaction)
            else:
                # Aborting drops what is still queued; the records shall lie in the log, below the abort marker.
                self._producer.flush(_FLUSH_S)
                self._abort()
        except KafkaException as error:
            if commit:
                self._counts.doubtful.append((first_seq, self._seq))
            commit = False
            self._abort_after(error)
        self._producer.flush(_FLUSH_S)  # the queue is empty: what is left are delivery reports
        if not commit:
            self._counts.aborted += self._counts.acked - acked
            self._counts.failed.clear()
        return commit

    def _abort(self) -> None:
        self._insist(self._producer.abort_transaction)

    def _abort_after(self, error: KafkaException) -> None:
        """Abort what could not be ended; with a new client where that has ended this one for good.

        librdkafka is told INVALID_TXN_STATE where the cluster has aborted, or committed, by itself meanwhile: by the abort, and
        by a commit that it had given up before (seen with 2.16.1).
        """
        if not error.args[0].fatal():
            try:
                self._abort()
            except KafkaException as refused:
                error = refused
            else:
                return
        if error.args[0].code() != KafkaError.INVALID_TXN_STATE:
            raise error
        self._producer.purge()
        self._producer.flush(_FLUSH_S)
        self._producer = Producer(self._settings)
        self._insist(self._producer.init_transactions)

    def _insist(self, end: Callable[[float], None]) -> None:
        """End a transaction, however long its cluster is away."""
        while True:
            try:
                end(_TRANSACTION_S)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > self._give_up_at:
                    raise
            else:
                return

    def _send(self, phase: Phase, number: int) -> None:
        at_ms = phase.event_time_ms(number, int(time.time() * 1_000))
        key, value = trip_event(self._region, self._seq, at_ms, self._draw)
        self._seq += 1
        while True:
            try:
                self._producer.produce(
                    self._topic, value, key, timestamp=at_ms, on_delivery=self._on_delivery
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                break
        self._counts.sent += 1

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self._counts.failed.append(str(error))
            return
        self._counts.acked += 1
        if self._acked is not None:
            self._told.append((record_id(message.value()), message.partition(), message.offset()))

    def _write_acked(self) -> None:
        if self._acked is not None and self._told:
            self._acked.write(0, f"regional-{self._region}", self._told)
            self._told.clear()

    def _look_around(self) -> None:
        self._producer.poll(0)
        self._write_acked()
        if self._counts.failed:
            raise ProduceError(
                f"{len(self._counts.failed)} records were not acknowledged, first: {self._counts.failed[0]}"
            )
        if (command := self._channel.take()) is not None and command["do"] == "stop":
            self._stopping = True
        if time.monotonic() > self._give_up_at:
            self._stopping = True
        if self._channel.status_is_due():
            self._channel.status(**self._figures())

    def _flush(self) -> None:
        left = self._producer.flush(_FLUSH_S)
        self._write_acked()
        if left or self._counts.failed:
            raise ProduceError(
                f"{left} records are unacknowledged, {len(self._counts.failed)} failed: {self._counts.failed[:1]}"
            )

    def _figures(self) -> dict[str, int]:
        counts = self._counts
        return {
            "sent": counts.sent,
            "acked": counts.acked,
            "aborted": counts.aborted,
            "next_seq": self._seq,
        }


def produce(
    *,
    bootstrap_servers: str,
    topic: str,
    region: str,
    plan: Plan,
    channel: Channel,
    acked: Path | None = None,
) -> None:
    """Send a plan's records; ``acked``: a file that tells which ones were acknowledged, and when.

    Raises:
        ProduceError: records were not acknowledged.
    """
    try:
        with ExitStack() as files:
            TripProducer(
                bootstrap_servers=bootstrap_servers,
                topic=topic,
                region=region,
                plan=plan,
                channel=channel,
                acked=None if acked is None else files.enter_context(DeliveredLog(acked)),
            ).run()
    except KafkaException as error:
        raise ProduceError(f"{bootstrap_servers}: {error}") from error
