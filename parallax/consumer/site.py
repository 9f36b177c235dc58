"""The consumer at one aggregate cluster, from the move that led there to the next one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, Message, TopicPartition

from parallax.consumer.commits import Committer, of_start
from parallax.consumer.delivery import Delivery, key_of
from parallax.consumer.errors import Raised
from parallax.consumer.events import EventKind, EventQueue, FailoverEvent
from parallax.consumer.gate import Start
from parallax.consumer.moves import MoveAnswer, MoveRequest
from parallax.consumer.ports import InnerConsumer, Key, OffsetService, Rebalance
from parallax.consumer.reporting import Reporter
from parallax.consumer.settings import Policies, Settings, Subscription
from parallax.consumer.skip_watcher import SkipWatcher
from parallax.consumer.starts import LateStarts, StartChooser
from parallax.consumer.transactions import Transactions

_SKIPPED_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Tools:
    """What every site of a consumer shares.

    Attributes:
        owner: the application's consumer, handed to its callbacks.
    """

    owner: object
    settings: Settings
    policies: Policies
    service: OffsetService
    chooser: StartChooser
    reporter: Reporter
    events: EventQueue
    raised: Raised


class ConsumerSite:
    """Membership, assignment and commits at one cluster.

    Args:
        tools: what all sites share.
        inner: the consumer at the cluster.
        region: where that is.
        generation: the number of moves before.
        move: the move that leads here and its answer; None for the first site.

    Attributes:
        arrived: partitions have been assigned since the move.
        left: a move leads away from here.
        lost: a move leads away from here, and what is committed from now on does not count for it.
    """

    def __init__(
        self,
        tools: Tools,
        inner: InnerConsumer,
        region: str,
        *,
        generation: int,
        move: tuple[MoveRequest, MoveAnswer] | None = None,
    ) -> None:
        self._tools = tools
        self._subscription: Subscription | None = None
        self._override: list[TopicPartition] | None = None
        self._late = LateStarts()
        self._member = False
        self._by_hand = False
        self._move = move
        self.arrived = move is None
        self._resumed = move is None
        self.left = False
        self.lost = False
        self._told_skipped, self._told_skipped_at_s = 0, time.monotonic()
        origin = None if move is None else move[0].origin
        settings = tools.settings
        self.generation = generation
        self.delivery = Delivery(
            inner,
            region,
            from_region=origin,
            answers=None if move is None else move[1].starts,
            fence=None if move is None else move[0].fence,
            auto_store=settings.auto_store,
        )
        self.committer = Committer(
            self.delivery,
            interval_s=settings.auto_commit_interval_ms / 1_000 if settings.auto_commit else None,
            moved=generation > 0,
        )
        self.transactions = Transactions(
            self.delivery, self.committer, interval_s=tools.policies.report_interval_ms / 1_000
        )
        self._watcher = SkipWatcher(tools.service, region, from_region=origin)

    @property
    def region(self) -> str:
        """Where the site is."""
        return self.delivery.region

    @property
    def inner(self) -> InnerConsumer:
        """The consumer at the cluster."""
        return self.delivery.inner

    @property
    def chosen(self) -> list[TopicPartition]:
        """The partitions that the application has assigned itself; what a subscription brought is no choice of its own."""
        if not self._by_hand:
            return []
        return [TopicPartition(*key) for key in {**self.delivery.partitions, **self._late.waiting}]

    # --- membership ---------------------------------------------------------------------------------------

    def join(self, subscription: Subscription) -> None:
        """Join the group."""
        kept = self._tools.raised.kept_from
        self.inner.subscribe(
            list(subscription.topics),
            on_assign=kept(lambda _inner, partitions: self._on_assign(partitions)),
            on_revoke=kept(lambda _inner, partitions: self._on_revoke(partitions, lost=False)),
            on_lost=kept(lambda _inner, partitions: self._on_revoke(partitions, lost=True)),
        )
        if self._by_hand:
            self._late.forget()
        self._subscription, self._member, self._by_hand = subscription, True, False

    def unsubscribe(self) -> None:
        """Leave the group; the application's callback is still to hear of it."""
        self._member = False
        self.inner.unsubscribe()

    def go_on_with(self, inner: InnerConsumer) -> None:
        """Go on with another handle: as a member that has lost its partitions, or with those that were chosen."""
        if not self._member or self._subscription is None:
            self.delivery.use(inner)
            return
        self.delivery.inner = inner
        # The group does not know the new handle yet, and the old one can't commit any more.
        self.committer.joined = False
        self.left = True
        try:
            if self.delivery.partitions:
                self._call_revoked([TopicPartition(*key) for key in self.delivery.partitions], lost=True)
        finally:
            self.left = False
            self._forget(list(self.delivery.partitions))
            self._late.forget()
            self.join(self._subscription)

    def assign(self, partitions: Sequence[TopicPartition], *, incremental: bool = False) -> None:
        """Read partitions that the application chose, from their offsets or from where they begin."""
        if self._override is not None:  # the application's on_assign calls this
            self._override = list(partitions)
            return
        starts = self._tools.chooser.explicit(self.delivery, partitions)
        self._begin(starts, incremental=incremental)
        self._by_hand = not self._member

    def take_over(self, chosen: Sequence[TopicPartition]) -> None:
        """Read what the application chose before the move; what can't begin yet is tried again.

        Raises:
            ParallaxError: it has no start yet.
        """
        self._by_hand = True
        self._late.assigned(chosen, incremental=False)
        self._start(chosen)

    def unassign(self, partitions: Sequence[TopicPartition] | None = None) -> None:
        """Read these partitions no more; None: none at all."""
        if partitions is None:
            self.inner.unassign()
            self._forget(list(self.delivery.partitions))
            self._late.forget()
        else:
            self.inner.incremental_unassign(list(partitions))
            self._forget([key_of(item) for item in partitions])

    def leave(self, *, commit: bool) -> list[TopicPartition]:
        """Watch nothing more, and ``commit`` what is to be committed; the inner consumer is the caller's to close.

        A commit to a dead cluster would keep librdkafka's handle alive until the cluster is back.

        Returns:
            The commits that must stand before the group hears that this member leaves.
        """
        self.left = True
        self._watcher.close()
        if not commit:
            return []
        self.committer.flush()
        self.transactions.look()
        return self.committer.standing()

    def tell_leaving(self, *, lost: bool) -> None:
        """Tell the application that its partitions here are gone: ``lost`` by a move, or given up by closing."""
        self.left, self.lost = True, lost
        partitions = [TopicPartition(*key) for key in self.delivery.partitions]
        if partitions:
            self._call_revoked(partitions, lost=lost)

    def _on_assign(self, partitions: Sequence[TopicPartition]) -> None:
        if self.left:
            return
        self._late.assigned(partitions, incremental=self._tools.settings.cooperative)
        self._start(partitions)

    def _start(self, partitions: Sequence[TopicPartition]) -> None:
        # Beside what the application has assigned itself meanwhile.
        incremental = bool(self.delivery.partitions) if self._by_hand else self._tools.settings.cooperative
        try:
            starts = self._tools.chooser.choose(self.delivery, partitions)
            callback = self._subscription.on_assign if self._subscription is not None else None
            if callback is not None:
                starts = self._as_application_wants(callback, starts)
            self._begin(starts, incremental=incremental)
        except Exception:
            # Without an assignment of ours librdkafka begins by itself: at commits, and without their skip ranges.
            self.delivery.assign({}, incremental=incremental)
            raise
        finally:
            self._late.tried(self.delivery.steps)

    def _as_application_wants(self, callback: Rebalance, starts: Mapping[Key, Start]) -> dict[Key, Start]:
        """Let the application's callback change offsets by calling ``assign``, as confluent-kafka does."""
        self._override = []
        try:
            callback(self._tools.owner, [TopicPartition(*key, start.offset) for key, start in starts.items()])
            kept = (OFFSET_INVALID, OFFSET_STORED)
            changed = [
                item
                for item in self._override
                if key_of(item) in starts and item.offset not in (starts[key_of(item)].offset, *kept)
            ]
        finally:
            self._override = None
        return {**starts, **self._tools.chooser.explicit(self.delivery, changed)}

    def _on_revoke(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        if self.left:
            return
        keys = [key_of(item) for item in partitions]
        if not lost:
            self.committer.flush(keys)
        try:
            self._call_revoked(list(partitions), lost=lost)
        finally:
            if not lost:
                self.committer.see_standing(keys)
                self.transactions.look()
            if self._tools.settings.cooperative:
                self.inner.incremental_unassign(list(partitions))
            else:
                self.inner.unassign()
            self._forget(keys)

    def _call_revoked(self, partitions: list[TopicPartition], *, lost: bool) -> None:
        if self._subscription is None:
            return
        callback = self._subscription.on_revoke
        if lost and self._subscription.on_lost is not None:
            callback = self._subscription.on_lost
        if callback is not None:
            callback(self._tools.owner, partitions)

    # --- assignment ---------------------------------------------------------------------------------------

    def _begin(self, starts: Mapping[Key, Start], *, incremental: bool) -> None:
        moved = {key: start for key, start in starts.items() if key in self.delivery.answers}
        if not incremental:
            for key in list(self.delivery.partitions):
                self._watcher.stop(key)
        self.delivery.assign(starts, incremental=incremental)
        self._late.forget(None if not incremental else starts.keys())
        self.committer.joined = True
        skipping = [(key, start.skipping) for key, start in starts.items() if start.skipping is not None]
        self._tools.reporter.moved(self.region, skipping)
        for key, item in skipping:
            if item.complete_to is not None:
                self._watcher.open(key, item, item.complete_to)
        self._arrive(starts)
        pending = [key for key, item in skipping if item.complete_to is not None]
        if pending:
            self._put(EventKind.PENDING_STARTED, {key: starts[key] for key in pending})
        self._commit_moved(moved)

    def _arrive(self, starts: Mapping[Key, Start]) -> None:
        if self._move is None or self.arrived:
            return
        self.arrived = True
        self._put(EventKind.MOVED, starts, failover_ms=self._since_request_ms())

    def _commit_moved(self, moved: Mapping[Key, Start]) -> None:
        """Commit where the move leads to: what the group committed here before is of no use any more."""
        if self._move is None:
            return
        behind = self._move[1].commits
        commits = [
            (key, chosen) for key, start in moved.items() if (chosen := behind.get(key, start)) is not None
        ]
        self.committer.send_quietly([of_start(key, start) for key, start in commits])

    def _forget(self, keys: Iterable[Key]) -> None:
        gone = list(keys)
        for key in gone:
            self._watcher.stop(key)
        self._late.forget(gone)
        self.delivery.unassign(gone)

    # --- one step of the polling thread -------------------------------------------------------------------

    def tend(self) -> None:
        """Take skip ranges that have become known, and begin with partitions that had no start when assigned.

        Raises:
            ParallaxError: they still have none.
        """
        self._learn()
        late = self._late.due(self.delivery.steps)
        if late:
            self._start(late)

    def _learn(self) -> None:
        for item in self._watcher.take():
            self.delivery.learn(item.key, item.skip_ranges, item.known_to)
            state = self.delivery.partitions.get(item.key)
            if item.known_to is None and state is not None:
                kind = EventKind.PENDING_CLEARED if item.void is None else EventKind.SKIPPING_ABANDONED
                self._put(
                    kind, {item.key: Start(state.gate.position, state.skipping)}, message=item.void or ""
                )

    def abandon(self) -> None:
        """Wait for no more skip ranges: the policy for a service that stays away."""
        keys = self.delivery.abandon()
        for key in keys:
            self._watcher.stop(key)
        states = self.delivery.partitions
        self._put(EventKind.SKIPPING_ABANDONED, {key: Start(states[key].gate.position) for key in keys})

    def noted(self, messages: Iterable[Message]) -> None:
        """Take note of what goes to the application."""
        if self._resumed or all(message.error() is not None for message in messages):
            return
        self._resumed = True
        self._put(EventKind.RESUMED, {}, failover_ms=self._since_request_ms())

    def rewound(self, key: Key, offset: int) -> None:
        """Take note of a seek below the resume offset."""
        self._watcher.stop(key)
        self._put(EventKind.REWOUND, {key: Start(offset)})

    def tell_skipped(self) -> None:
        """Tell now and then how many records were skipped."""
        count = self.delivery.skipped_records
        now = time.monotonic()
        if count > self._told_skipped and now - self._told_skipped_at_s >= _SKIPPED_EVERY_S:
            self._put(EventKind.SKIPPED, {}, skipped_records=count - self._told_skipped)
            self._told_skipped, self._told_skipped_at_s = count, now

    def _since_request_ms(self) -> float | None:
        return None if self._move is None else (time.monotonic() - self._move[0].requested_at_s) * 1_000

    def _put(
        self,
        kind: EventKind,
        starts: Mapping[Key, Start],
        *,
        failover_ms: float | None = None,
        skipped_records: int | None = None,
        message: str = "",
    ) -> None:
        self._tools.events.put(
            FailoverEvent(
                kind,
                self.region,
                self.delivery.from_region,
                tuple(start.described(key) for key, start in starts.items()),
                failover_ms,
                skipped_records,
                message,
            )
        )
