"""What an application's own transactions have committed: `send_offsets_to_transaction` tells nobody here.

The application's producer sends the offsets, and the cluster has them once its transaction is committed. So they are
read from there: now and then, for reports, and whenever this member is about to go, for what a move starts from.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from confluent_kafka import KafkaException, TopicPartition

from parallax.consumer.commits import COORDINATOR_WITHIN_S, Committer, carrying, named
from parallax.consumer.delivery import Delivery, key_of
from parallax.domain import metadata as codec

_log = structlog.get_logger("parallax.failover_consumer")

_MARKED_AFTER_S = 0.05
"""The coordinator writes a transaction's markers once the producer has its answer; until then it tells no offsets."""

_LOOK_WITHIN_S = 0.2


class Transactions:
    """Reads what transactions have committed at one cluster, once the application has asked for what they need.

    Args:
        delivery: whose partitions.
        committer: commits what a transaction's offsets lack.
        interval_s: seconds between two looks at most.
    """

    def __init__(
        self,
        delivery: Delivery,
        committer: Committer,
        *,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._delivery = delivery
        self._committer = committer
        self._interval_s = interval_s
        self._clock = clock
        self._offered_at_s: float | None = None
        self._unread = False
        self._due_at_s = 0.0
        self._away = False
        self._awaited_since_s: float | None = None

    def offered(self) -> None:
        """The application has what a transaction needs to commit offsets here."""
        self._offered_at_s, self._unread = self._clock(), True

    def tick(self) -> None:
        """Look when it is time."""
        if self._offered_at_s is None:
            return
        now_s = self._clock()
        over = self._unread and now_s - self._offered_at_s >= _MARKED_AFTER_S
        if now_s >= self._due_at_s or (over and not self._away):
            self._due_at_s = now_s + self._interval_s
            self.look(_LOOK_WITHIN_S)

    def settled(self) -> bool:
        """Look, before a move: False while a transaction with offsets is open, or the cluster does not answer yet.

        Not for long: a cluster that is dead never answers, and then what was read last counts.
        """
        now_s = self._clock()
        since_s = now_s if self._awaited_since_s is None else self._awaited_since_s
        done = self.look(_LOOK_WITHIN_S) or now_s - since_s >= COORDINATOR_WITHIN_S
        self._awaited_since_s = None if done else since_s
        return done

    def look(self, timeout_s: float = COORDINATOR_WITHIN_S) -> bool:
        """Read what is committed of the partitions that are read here; offsets without metadata get it.

        Returns:
            Whether the cluster has told, or there was nothing to ask.
        """
        with self._delivery.lock:
            states = dict(self._delivery.partitions)
        if self._offered_at_s is None or not states:
            return True
        fresh, self._unread = self._unread, False
        try:
            answer = self._delivery.inner.committed([TopicPartition(*key) for key in states], timeout_s)
        except (KafkaException, RuntimeError) as error:  # the latter of a handle that is closed
            self._unread = True
            if not self._away:
                _log.warning("commits_not_read", region=self._delivery.region, error=str(error))
            self._away = True
            return False
        self._away = False
        bare, foreign = [], []
        with self._delivery.lock:
            for item in answer:
                state = states[key_of(item)]
                if item.error is not None or item.offset < 0:
                    continue
                if not self._committer.belongs(item, state):
                    foreign.append(item)
                    continue
                state.committed = item.offset
                metadata = carrying(state, item.offset)
                if metadata and not codec.is_ours(item.metadata):
                    bare.append(TopicPartition(item.topic, item.partition, item.offset, metadata=metadata))
        if foreign and fresh:  # `commit` would have refused them
            _log.warning("foreign_commits", region=self._delivery.region, partitions=named(foreign))
        if bare:
            _log.info("metadata_added", region=self._delivery.region, partitions=named(bare))
            self._committer.send_quietly(bare)
        return True
