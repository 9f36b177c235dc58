"""What goes on inside of a `FailoverConsumer`: one site at a time, and the way from one to the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from confluent_kafka import Message, TopicPartition

from offsetsvc.consumer.choose import StartChooser
from offsetsvc.consumer.commits import Provenance
from offsetsvc.consumer.delivery import Delivery, key_of
from offsetsvc.consumer.errors import ConsumerClosedError, OffsetServiceAwayError
from offsetsvc.consumer.events import EventKind, EventQueue, FailoverEvent
from offsetsvc.consumer.leaving import Leaving
from offsetsvc.consumer.move import Asker, MoveAnswer, MoveRequest, MoveTask, is_away
from offsetsvc.consumer.ports import ConsumerFactory, InnerConsumer, OffsetService
from offsetsvc.consumer.positions import moving_positions, reported_positions
from offsetsvc.consumer.report import Report, Reporter
from offsetsvc.consumer.settings import Policies, Settings
from offsetsvc.consumer.site import Site, Subscription, Tools
from parallax.domain.errors import ParallaxError
from parallax.runtime.deadline import Deadline

SLICE_S = 0.05
"""The longest that the polling thread waits in one go: a move asked for meanwhile begins after it."""

_FOREVER_MS = 1e12

_TEND_EVERY_S = 0.005
"""Between two looks at commits, moves under way and skip ranges learned: not at each of 100,000 records a second."""

Step = Callable[[Delivery, float], list[Message]]
"""Fetches from a delivery, waiting for so many seconds at most."""


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
    ) -> None:
        self._settings = settings
        self._policies = policies
        self._service = service
        self._factory = factory
        self._events = EventQueue(on_event)
        self._closed = threading.Event()
        self._asker = Asker(
            service, timeout_ms=policies.service_timeout_ms, index_wait_ms=policies.index_wait_ms
        )
        self._reporter = Reporter(
            service, settings.group, self._report, interval_s=policies.report_interval_ms / 1_000
        )
        chooser = StartChooser(settings.group, policies, self._asker, self._events, self._closed)
        self._tools = Tools(owner, settings, service, chooser, self._reporter, self._events)
        self._leaving = Leaving(explicit=settings.own_instance)
        self._subscription: Subscription | None = None
        self._wanted: tuple[str, float] | None = None
        self._task: MoveTask | None = None
        self._service_away = False
        self._tend_at_s = 0.0
        self._moved_from = moved_from
        self.provenance = Provenance()
        self.site = Site(self._tools, self._inner(region, 0), region, generation=0)

    # --- what the application calls -----------------------------------------------------------------------

    @property
    def moving(self) -> bool:
        """Whether a move was asked for and no partition is assigned at its destination yet."""
        return self._wanted is not None or self._task is not None or not self.site.arrived

    def move_to(self, region: str) -> None:
        """Ask for a move; the polling thread makes it."""
        self.check_open()
        self._settings.for_region(region)
        self._wanted = (region, time.monotonic())

    def subscribe(self, subscription: Subscription) -> None:
        """Join the group for these topics."""
        self.check_open()
        self._subscription = subscription
        if self._moved_from is None:
            self.site.join(subscription)
            return
        origin, self._moved_from = self._moved_from, None
        topics = subscription.plain_topics
        self._ask(
            MoveRequest(self._settings.group, origin, self.site.region, time.monotonic(), topics=topics)
        )

    def unsubscribe(self) -> None:
        """Leave the group."""
        self.check_open()
        self._subscription = None
        self.site.inner.unsubscribe()

    def fetch(self, step: Step, timeout_s: float) -> list[Message]:
        """Messages of the first step that gives some, within ``timeout_s`` (negative: without end)."""
        self.check_open()
        self._reporter.start()
        deadline = Deadline.after_ms(_FOREVER_MS if timeout_s < 0 else timeout_s * 1_000)
        while True:
            if self._wanted is not None or self._events.waiting or time.monotonic() >= self._tend_at_s:
                self._tend()
                self._tend_at_s = time.monotonic() + _TEND_EVERY_S
            slice_s = min(SLICE_S, deadline.remaining_s)
            if self._task is not None:
                if self._task.wait(slice_s):
                    self._tend_at_s = 0.0
            else:
                messages = step(self.site.delivery, slice_s)
                if messages:
                    self.site.noted(messages)
                    self.provenance.note(messages, self.site.generation)
                    return messages
            if deadline.passed:
                self._events.deliver()
                return []

    def seek(self, partition: TopicPartition) -> None:
        """Go to another offset of an assigned partition."""
        self.check_open()
        site, key = self.site, key_of(partition)
        start = self._tools.chooser.explicit(site.delivery, [partition])[key]
        if not site.delivery.seek(key, start.offset):
            site.rewound(key, start.offset)

    def close(self) -> None:
        """Commit, leave the group and end; bounded by ``close_timeout_ms``."""
        if self._closed.is_set():
            return
        self.site.tell_leaving(lost=False)
        self._closed.set()
        if self._task is not None:
            self._task.cancel()
        self._reporter.close()
        self.site.leave(commit=True)
        self._leaving.leave(
            self.site.inner, self.site.region, self._subscription.topics if self._subscription else ()
        )
        self._leaving.wait(self._policies.close_timeout_ms)
        self._service.close()
        self._events.deliver()

    def check_open(self) -> None:
        """Refuse to go on once closed.

        Raises:
            ConsumerClosedError: it is.
        """
        if self._closed.is_set():
            raise ConsumerClosedError("the consumer was closed; make a new one")

    # --- one step of the polling thread -------------------------------------------------------------------

    def _tend(self) -> None:
        try:
            self._begin_move()
            self._finish_move()
            self.site.learn()
            self._mind_service()
            if self._task is None:
                self.site.committer.tick()
            self.site.tell_skipped()
        finally:
            self._events.deliver()

    def _begin_move(self) -> None:
        if self._wanted is None:
            return
        region, requested_at_s = self._wanted
        self._wanted = None
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if region == self.site.region:
            return
        positions = moving_positions(
            self.site.delivery, move_from=self._policies.move_from, auto_commit=self._settings.auto_commit
        )
        topics = self._subscription.plain_topics if self._subscription is not None else ()
        self._ask(
            MoveRequest(self._settings.group, self.site.region, region, requested_at_s, positions, topics)
        )

    def _ask(self, request: MoveRequest) -> None:
        self._put(EventKind.MOVE_STARTED, request)
        self._task = MoveTask(
            request,
            self._asker,
            keep_asking=self._policies.on_service_away == "wait",
            before=self._reporter.report,
        )
        self._task.start()

    def _finish_move(self) -> None:
        task = self._task
        if task is None:
            return
        if task.service_away:
            self._tell_service(away=True)
        if not task.wait(0):
            return
        self._task = None
        try:
            answer = task.result()
        except ParallaxError as error:
            if is_away(error) and self._policies.on_service_away == "metadata":
                self._tell_service(away=True)
                answer = MoveAnswer({}, origin_reachable=False)
            else:
                self._put(EventKind.MOVE_FAILED, task.request, str(error))
                if is_away(error):
                    raise OffsetServiceAwayError(
                        f"the move to region {task.request.destination!r} is off: {error}"
                    ) from error
                raise
        else:
            self._tell_service(away=False)
        if not answer.index_complete:
            self._put(
                EventKind.INDEX_INCOMPLETE,
                task.request,
                "the mapping index does not tell of all records up to the last one delivered: a few may be read twice",
            )
        self._switch(task.request, answer)

    def _switch(self, request: MoveRequest, answer: MoveAnswer) -> None:
        """Leave the old cluster, which may be dead, and go on at the new one."""
        old = self.site
        assigned = [TopicPartition(*key) for key in old.delivery.partitions]
        old.tell_leaving(lost=True)
        old.leave(commit=answer.origin_reachable)
        self._leaving.leave(old.inner, old.region, self._subscription.topics if self._subscription else ())
        generation = old.generation + 1
        self.site = Site(
            self._tools,
            self._inner(request.destination, generation),
            request.destination,
            generation=generation,
            move=(request, answer),
        )
        if self._subscription is not None:
            self.site.join(self._subscription)
        else:
            self.site.assign(assigned)

    def _mind_service(self) -> None:
        """Apply the policy when something is pending and no service tells more."""
        if self._task is not None:
            return
        if not self.site.delivery.waiting():
            return
        away = self._reporter.away_ms > self._policies.service_timeout_ms
        if away or self._reporter.away_ms == 0:
            self._tell_service(away=away)
        if away and self._policies.on_service_away == "metadata":
            self.site.abandon()
        elif away and self._policies.on_service_away == "stop":
            raise OffsetServiceAwayError(
                "records consumed in another region are still to arrive, and no offset service tells which"
            )

    # --- parts --------------------------------------------------------------------------------------------

    def _inner(self, region: str, generation: int) -> InnerConsumer:
        config = self._settings.for_region(region)
        callback = self._settings.on_commit
        if callback is not None:

            def on_commit(error: object, partitions: Sequence[TopicPartition]) -> None:
                if generation == self.site.generation:
                    callback(error, partitions)

            config["on_commit"] = on_commit
        return self._factory(config)

    def _report(self) -> Report:
        delivery = self.site.delivery
        return Report(delivery.region, reported_positions(delivery, auto_commit=self._settings.auto_commit))

    def _tell_service(self, *, away: bool) -> None:
        if away != self._service_away:
            self._service_away = away
            kind = EventKind.SERVICE_AWAY if away else EventKind.SERVICE_BACK
            self._events.put(FailoverEvent(kind, self.site.region))

    def _put(self, kind: EventKind, request: MoveRequest, message: str = "") -> None:
        self._events.put(FailoverEvent(kind, request.destination, request.origin, message=message))
