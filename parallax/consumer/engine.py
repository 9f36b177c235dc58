"""What goes on inside of a `FailoverConsumer`: one site at a time, and the way from one to the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from parallax.consumer.commits import Provenance
from parallax.consumer.delivery import Step, key_of
from parallax.consumer.errors import (
    ConsumerClosedError,
    ConsumerConfigError,
    GroupMovingError,
    OffsetServiceAwayError,
    Raised,
)
from parallax.consumer.events import EventKind, EventQueue, FailoverEvent
from parallax.consumer.following import AgainstPrimary, FirstWord, Follower, Wish
from parallax.consumer.handles import InnerConsumers, Leaving, OwnPlace
from parallax.consumer.moves import (
    Inquiry,
    MoveAnswer,
    MoveRequest,
    OriginPosition,
    Wanted,
    moving_positions,
)
from parallax.consumer.names import NameCheck
from parallax.consumer.ports import ConsumerFactory, Key, OffsetService
from parallax.consumer.reporting import Reporter, ServiceState, report_of
from parallax.consumer.settings import Policies, Settings, Subscription
from parallax.consumer.site import ConsumerSite, Tools
from parallax.consumer.starts import StartChooser
from parallax.errors import ParallaxError
from parallax.runtime.deadline import Deadline
from parallax.v1 import primaries_pb2

SLICE_S = 0.05
"""The longest that the polling thread waits in one go: a move asked for meanwhile begins after it."""

_TEND_EVERY_S = 0.005
"""Between two looks at commits, moves under way and skip ranges learned: not at each of 100,000 records a second."""


class Engine:
    """Runs the sites of one consumer.

    ``fetch`` and all rebalancing belong to one thread. `move_to` may be called from any thread or from a signal
    handler: it leaves a note that the next step of ``fetch`` acts on.
    """

    def __init__(
        self,
        owner: object,
        settings: Settings,
        policies: Policies,
        region: str,
        *,
        service: OffsetService,
        factory: ConsumerFactory,
        on_event: Callable[[FailoverEvent], None] | None,
        moved_from: str | None,
        follow_primary: bool,
    ) -> None:
        self._settings = settings
        self._policies = policies
        self._service = service
        self._raised = Raised()
        self._inner = InnerConsumers(settings, factory, lambda: self.site, self._raised)
        self._events = EventQueue(on_event)
        self._closed = threading.Event()
        self._reporter = Reporter(
            service,
            settings.group,
            lambda: report_of(self.site.delivery, auto_commit=settings.auto_commit),
            interval_s=policies.report_interval_ms / 1_000,
        )
        self._service_state = ServiceState(policies, self._reporter, self._events)
        self._inquiry = Inquiry(service, policies, self._reporter, self._events, self._service_state)
        chooser = StartChooser(settings.group, policies, self._inquiry, self._events, self._closed)
        self._tools = Tools(
            owner, settings, policies, service, chooser, self._reporter, self._events, self._raised
        )
        self._leaving = Leaving(own_member_ids=settings.next_generation)
        self._own_place = OwnPlace(own=settings.own_instance, handles=self._inner, leaving=self._leaving)
        self._follower = Follower(service, settings.group) if follow_primary else None
        self._against = AgainstPrimary(service, settings.group, self._events, policies.service_timeout_ms)
        self._names = NameCheck(
            service,
            settings.group,
            settings.clusters,
            self._events,
            timeout_ms=policies.service_timeout_ms,
            closed=self._closed,
        )
        self._names_checked = False
        self._first_word = FirstWord(policies, self._service_state) if follow_primary else None
        self._wish: Wish | None = None
        # What was delivered before the group's move began.
        self._fenced: dict[Key, OriginPosition] | None = None
        self._subscription: Subscription | None = None
        self._wanted: Wanted | None = None
        self._tend_at_s = 0.0
        self._moved_from = moved_from
        self.provenance = Provenance()
        self.site = ConsumerSite(self._tools, self._inner.make(region, 0), region, generation=0)

    # --- what the application calls -----------------------------------------------------------------------

    @property
    def moving(self) -> bool:
        """Whether a move was asked for and no partition is assigned at its destination yet."""
        under_way = self._wanted is not None or self._inquiry.request is not None or self._fenced is not None
        return under_way or not self.site.arrived

    @property
    def between_clusters(self) -> bool:
        """Whether the group is being moved and this consumer has left its cluster."""
        return self._fenced is not None

    @property
    def primary(self) -> primaries_pb2.Primary | None:
        """Where the group is primary, as far as it is known."""
        return None if self._follower is None else self._follower.current

    def move_to(self, region: str) -> None:
        """Ask for a move; the polling thread makes it."""
        self.check_open()
        self._settings.for_region(region)
        self._wanted = Wanted(region, time.monotonic(), by_hand=True)

    def subscribe(self, subscription: Subscription) -> None:
        """Join the group for these topics."""
        joins_later = self._fenced is not None or self._first_word is not None
        if not joins_later and self._moved_from is None:
            self.site.join(subscription)  # what is refused leaves the subscription before as it is
        self._subscription = subscription
        self._names_checked = False
        if joins_later or self._moved_from is None:
            return
        origin, self._moved_from = self._moved_from, None
        self._against.look(self.site.region)
        group, here, now_s = self._settings.group, self.site.region, time.monotonic()
        self._inquiry.begin(MoveRequest(group, origin, here, now_s, topics=subscription.plain_topics))

    def unsubscribe(self) -> None:
        """Leave the group."""
        self.check_open()
        self._subscription = None
        if self._fenced is None:
            self.site.unsubscribe()

    def fetch(self, step: Step, timeout_s: float) -> list[Message]:
        """Messages of the first step that gives some, within ``timeout_s`` (negative: without end)."""
        self.check_open()
        self._reporter.start()
        if not self._names_checked:
            self._names_checked = True
            self._names.look(self.site.region, self._subscription.plain_topics if self._subscription else ())
        if self._follower is not None:
            self._follower.start()
        deadline = Deadline.of_timeout(timeout_s)
        while True:
            if self._wanted is not None or self._events.waiting or time.monotonic() >= self._tend_at_s:
                self._tend()
                self._tend_at_s = time.monotonic() + _TEND_EVERY_S
            self._raised.throw()
            slice_s = min(SLICE_S, deadline.remaining_s)
            if self._inquiry.request is not None:
                if self._inquiry.wait(slice_s):
                    self._tend_at_s = 0.0
            elif self._fenced is not None or self._first_word is not None or self._wanted is not None:
                self._closed.wait(min(slice_s, _TEND_EVERY_S))
            else:
                messages = self._own_place.sift(self.site.inner, step(self.site.delivery, slice_s))
                if messages:
                    self.site.noted(messages)
                    self.provenance.note(messages, self.site.generation)
                    return messages
                self._raised.throw()
            if deadline.passed:
                self._events.deliver()
                return []

    def seek(self, partition: TopicPartition) -> None:
        """Go to another offset of an assigned partition.

        Raises:
            KafkaException: it is not assigned (``_UNKNOWN_PARTITION``).
        """
        site, key = self.site, key_of(partition)
        if key not in site.delivery.partitions:
            code = KafkaError._UNKNOWN_PARTITION  # noqa: SLF001 - librdkafka's own code
            raise KafkaException(KafkaError(code, f"{key[0]}-{key[1]} is not assigned: it can't be sought"))
        start = self._tools.chooser.explicit(site.delivery, [partition])[key]
        if not site.delivery.seek(key, start.offset):
            site.rewound(key, start.offset)

    def group_metadata(self) -> Any:
        """What a producer needs to commit offsets of the present membership in a transaction.

        Raises:
            ConsumerConfigError: a move would not start from what the transactions have committed.
            GroupMovingError: there is no such membership, or what it commits now would not count for the move.
        """
        self.check_settled()
        if self._settings.auto_commit or self._policies.move_from != "committed":
            raise ConsumerConfigError(
                "consumer_group_metadata: transactions need enable.auto.commit=false and move_from='committed', or a "
                "move would take records for consumed whose transaction is aborted"
            )
        site = self.site
        if self._inquiry.request is not None or site.lost or not (site.arrived and site.committer.joined):
            raise GroupMovingError(
                "the consumer is moving: abort the transaction, and what it has read is delivered again"
            )
        site.transactions.offered()
        return site.inner.consumer_group_metadata()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use other credentials at the present region's cluster."""
        self.check_settled()
        self.site.inner.set_sasl_credentials(username, password)
        self._inner.remember_credentials(self.site.region, username, password)

    def close(self) -> None:
        """Commit, leave the group and end; bounded by ``close_timeout_ms``."""
        if self._closed.is_set():
            return
        if self._fenced is None:
            self._tell_leaving(lost=False)
        self._closed.set()
        self._inquiry.cancel()
        self._reporter.close()
        if self._follower is not None:
            self._follower.close()
        if self._fenced is None:
            # The application's own instance id keeps its place: it may be started again.
            self._give_up(self.site.leave(commit=True), place=self._settings.own_instance)
        self._leaving.wait(self._policies.close_timeout_ms)
        self._events.deliver()
        self._raised.throw()

    def check_open(self) -> None:
        """Refuse to go on once closed.

        Raises:
            ConsumerClosedError: it is.
        """
        if self._closed.is_set():
            raise ConsumerClosedError("the consumer was closed; make a new one")

    def check_settled(self) -> None:
        """Refuse what needs a cluster while the consumer is between two.

        Raises:
            ConsumerClosedError: it was closed.
            GroupMovingError: it has left its cluster.
        """
        self.check_open()
        if self._fenced is not None:
            raise GroupMovingError("the group is being moved; poll goes on by itself once it has arrived")

    # --- one step of the polling thread -------------------------------------------------------------------

    def _tend(self) -> None:
        try:
            self._follow()
            self._begin_move()
            self._finish_move()
            if self._fenced is not None or self._first_word is not None:
                return
            self._own_place.take_again(self.site)
            self.site.tend()
            if self._inquiry.request is None:
                self._mind_services()
                self.site.committer.tick()
                self.site.transactions.tick()
            self.site.tell_skipped()
        finally:
            self._events.deliver()

    def _mind_services(self) -> None:
        """Apply the policy when something is pending and no service tells more."""
        site = self.site
        if not site.delivery.waiting() or not self._service_state.waiting(site.region):
            return
        if self._policies.on_service_away == "metadata":
            site.abandon()
        elif self._policies.on_service_away == "stop":
            raise OffsetServiceAwayError(
                "records consumed in another region are still to arrive, and no offset service tells which"
            )

    def _follow(self) -> None:
        """Act on the newest decision about the group's primary."""
        if self._follower is None:
            return
        heard = self._follower.current is not None
        self._wish = self._follower.take(self.site.region) or self._wish
        if self._first_word is not None:
            if not self._first_word.settled(self.site.region, heard=heard):
                return
            self._first_word = None
            if self._wish is None or self._wish.region == self.site.region:
                self._wish = None
                if self._subscription is not None:
                    self.site.join(self._subscription)
        if self._wish is not None:
            self._grant(self._wish)
            self._wish = None

    def _grant(self, wish: Wish) -> None:
        """Do what a decision asks; what can't be done is an error at every step until the next decision.

        Raises:
            UnknownRegionError: no cluster was given for the region.
        """
        if wish.region is None:
            self._stop_here(commit=wish.origin_lives)
            return
        try:
            self._settings.for_region(wish.region)
        except ParallaxError:
            self._stop_here(commit=True)  # to go on here would be to consume what others consume there
            raise
        if wish.carry or wish.region == self.site.region:
            self._wanted = Wanted(wish.region, time.monotonic(), wish.fence)
            return
        self._wanted = None
        self._inquiry.cancel()
        try:
            self._go_on(wish.region)
        except ConsumerConfigError:
            self._stop_here(commit=True)  # as above
            raise

    def _stop_here(self, *, commit: bool) -> None:
        """Leave the group and deliver nothing until the next decision; what was delivered is told at once."""
        self._inquiry.cancel()
        self._wanted = None
        if self._fenced is not None:
            return
        self._leave(lost=False, commit=commit)
        self._fenced = self._positions()
        self._reporter.hurry()
        self._events.put(FailoverEvent(EventKind.FENCED, self.site.region))

    def _leave(self, *, lost: bool, commit: bool) -> None:
        self._tell_leaving(lost=lost)
        self._give_up(self.site.leave(commit=commit), place=True)

    def _tell_leaving(self, *, lost: bool) -> None:
        self._raised.kept_from(lambda: self.site.tell_leaving(lost=lost))()  # half a move is none

    def _give_up(self, commits: Sequence[TopicPartition], *, place: bool) -> None:
        topics = self._subscription.topics if self._subscription else ()
        self._leaving.leave(self.site.inner, self.site.region, topics, commits, give_up_place=place)

    def _positions(self) -> dict[Key, OriginPosition]:
        return moving_positions(
            self.site.delivery,
            move_from=self._policies.move_from,
            auto_commit=self._settings.auto_commit,
            arrived=self.site.arrived,
        )

    def _begin_move(self) -> None:
        wanted, self._wanted = self._wanted, None
        if wanted is None:
            return
        self._inquiry.cancel()
        if wanted.by_hand:
            self._against.look(wanted.region)
        if wanted.region == self.site.region:
            if self._fenced is not None:
                self._events.put(FailoverEvent(EventKind.UNFENCED, wanted.region))
                self._go_on(wanted.region)
            return
        if self._fenced is None and not self.site.transactions.settled():
            if self._wanted is None:  # else another thread has asked for another one meanwhile
                self._wanted = wanted
            return
        positions = self._positions() if self._fenced is None else self._fenced
        topics = self._subscription.plain_topics if self._subscription is not None else ()
        group, here, at_s = self._settings.group, self.site.region, wanted.requested_at_s
        self._inquiry.begin(MoveRequest(group, here, wanted.region, at_s, positions, topics, wanted.fence))

    def _finish_move(self) -> None:
        request = self._inquiry.request
        try:
            found = self._inquiry.take(self.site.region)
            if found is not None:
                self._go_on(found[0].destination, found, commit=found[1].origin_reachable)
        except ParallaxError:
            if self._fenced is not None and request is not None:
                # There is no place to stay at: the next poll tries again.
                self._wanted = Wanted(request.destination, request.requested_at_s, request.fence)
            raise

    def _go_on(
        self, region: str, move: tuple[MoveRequest, MoveAnswer] | None = None, *, commit: bool = False
    ) -> None:
        """Leave the old cluster, which may be dead, and read at another; without a move, from what was committed there."""
        old, generation = self.site, self.site.generation + 1
        inner = self._inner.make_there(region, generation, self._events)  # else nothing is left
        if self._fenced is None:
            self._leave(lost=True, commit=commit)
        self._fenced = None
        self.site = ConsumerSite(self._tools, inner, region, generation=generation, move=move)
        if self._subscription is not None:
            self.site.join(self._subscription)
        else:
            self.site.take_over(old.chosen)
