"""Handles of librdkafka's: made for each cluster, left without waiting, and made anew where one has lost its place."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from parallax.consumer.client_log import ClientLog
from parallax.consumer.commits import COORDINATOR_WITHIN_S, missing_commits, named
from parallax.consumer.delivery import key_of
from parallax.consumer.errors import ConsumerConfigError, Raised
from parallax.consumer.events import EventKind, EventQueue, FailoverEvent
from parallax.consumer.ports import ConsumerFactory, InnerConsumer
from parallax.consumer.settings import Settings
from parallax.consumer.site import ConsumerSite
from parallax.runtime.deadline import Deadline

_log = structlog.get_logger("parallax.failover_consumer")

REST_S, AT_ONCE = 30.0, 3
"""So many new handles in so long. A fatal error beyond is the application's to see, too: the next one has to wait."""

_FENCED = "fenced"
"""In the text of the fatal error; its code is the same for all of them."""

ASK_EVERY_S = 0.5
"""Between two attempts to find the coordinator of a cluster that does not answer."""
_LEFT_WITHIN_MS = 5_000
_COMMITTED_WITHIN_MS = 5_000
_POLL_S = 0.05
_COMMIT_EVERY_S = 0.1
_NO_ANSWER = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - librdkafka's own code
        KafkaError._TIMED_OUT,  # noqa: SLF001 - as above
        KafkaError._TRANSPORT,  # noqa: SLF001 - as above
        KafkaError._WAIT_COORD,  # noqa: SLF001 - as above
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
    }
)

_PASSES_BY = _NO_ANSWER | {KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS}
"""Why a commit is refused that will be taken a moment later; after any other refusal what another member commits counts."""

_CALLED_BY_POLL = ("on_commit", "error_cb", "stats_cb", "throttle_cb")


class InnerConsumers:
    """The inner consumers of one application's consumer.

    Args:
        settings: what librdkafka is told.
        factory: makes a consumer from that.
        present: the present site.
        raised: keeps what the application's callbacks raise.
    """

    def __init__(
        self,
        settings: Settings,
        factory: ConsumerFactory,
        present: Callable[[], ConsumerSite],
        raised: Raised,
    ) -> None:
        self._settings = settings
        self._factory = factory
        self._present = present
        self._raised = raised
        self._credentials: dict[str, dict[str, str]] = {}

    def remember_credentials(self, region: str, username: str, password: str) -> None:
        """What the application has set at a region's cluster holds for later consumers of it."""
        self._credentials[region] = {"sasl.username": username, "sasl.password": password}

    def make(self, region: str, generation: int) -> InnerConsumer:
        """A consumer of a region's aggregate cluster."""
        callback = self._settings.on_commit

        def on_commit(error: object, partitions: Sequence[TopicPartition]) -> None:
            site = self._present()
            if generation != site.generation:
                return
            site.committer.refused(item for item in partitions if error is not None or item.error is not None)
            if callback is not None:
                callback(error, partitions)

        config = {
            "logger": ClientLog(region),
            **self._settings.for_region(region),
            **self._credentials.get(region, {}),
            "on_commit": on_commit,
        }
        called = {name: config[name] for name in _CALLED_BY_POLL if callable(config.get(name))}
        return self._factory(config | {name: self._raised.kept_from(call) for name, call in called.items()})

    def make_there(self, region: str, generation: int, events: EventQueue) -> InnerConsumer:
        """A consumer where a move leads.

        Raises:
            ConsumerConfigError: librdkafka refuses its settings; the move has failed, and that is told.
        """
        try:
            return self.make(region, generation)
        except Exception as failure:
            error = ConsumerConfigError(f"no consumer can be made for region {region!r}: {failure}")
            origin = self._present().region
            events.put(FailoverEvent(EventKind.MOVE_FAILED, region, origin, message=str(error)))
            raise error from failure


class Leaving:
    """Closes inner consumers in threads of their own: the cluster that is left may be dead.

    A cluster that died with a member of the group comes back with that member, and whoever joins then waits until
    its session has timed out (45 s by default). So the inner consumer of a cluster that does not answer is kept,
    and its membership with it, until it can say that it leaves. librdkafka gives the membership up when a session's
    time has passed; who is back before the cluster has noticed takes its old place by its instance id (KIP-345).

    A member with an instance id does not leave by closing: a process that is started again shall find its place.
    Who moves to another cluster does leave, or the group would be thought to consume here until its session ends.

    Args:
        own_member_ids: members make up their ids themselves, and keep them (KIP-848).
    """

    def __init__(self, *, own_member_ids: bool = False) -> None:
        self._own_member_ids = own_member_ids
        self._threads: list[threading.Thread] = []
        self._closing = threading.Event()

    def leave(
        self,
        inner: InnerConsumer,
        region: str,
        topics: Sequence[str],
        commits: Sequence[TopicPartition],
        *,
        give_up_place: bool,
    ) -> None:
        """Leave the group in the background, once the cluster answers.

        Args:
            inner: the consumer; nobody else uses it any more.
            region: whose cluster it consumed, for logs.
            topics: topics of the group.
            commits: sent by this consumer before; one that does not stand is sent again. Whoever waits until the
                group has left goes by what is committed then, and would read again what is missing there.
            give_up_place: the place of its instance id too.
        """

        def close() -> None:
            try:
                try:
                    self._await_coordinator(inner, region, topics)
                    self._see_commits_stand(inner, region, commits)
                    if give_up_place and topics:
                        self._leave_group(inner)
                finally:
                    inner.close()
            except (KafkaException, RuntimeError) as error:
                _log.warning("leaving_failed", region=region, error=str(error))

        # A daemon: the handle of a dead cluster must not keep the application from ending.
        thread = threading.Thread(target=close, name=f"parallax-leave-{region}", daemon=True)
        thread.start()
        self._threads = [item for item in self._threads if item.is_alive()] + [thread]

    def wait(self, timeout_ms: float) -> bool:
        """Close all of them now, whether their clusters answer or not.

        Returns:
            Whether all were closed within ``timeout_ms``.
        """
        self._closing.set()
        deadline = Deadline.after_ms(timeout_ms)
        for thread in self._threads:
            thread.join(deadline.remaining_s)
        late = [thread.name for thread in self._threads if thread.is_alive()]
        if late:
            _log.warning("leaving_takes_long", threads=late, waited_ms=timeout_ms)
        return not late

    def _await_coordinator(self, inner: InnerConsumer, region: str, topics: Sequence[str]) -> None:
        if not topics:
            return
        place = TopicPartition(topics[0], 0)
        told = False
        while not self._closing.is_set() and not _answers(inner, place):
            if not told:
                _log.info("leaving_waits", region=region, reason="the cluster does not answer")
                told = True
            inner.poll(0)  # a member that does not poll is put out of the group
            self._closing.wait(ASK_EVERY_S)

    def _see_commits_stand(
        self, inner: InnerConsumer, region: str, commits: Sequence[TopicPartition]
    ) -> None:
        deadline = Deadline.after_ms(_COMMITTED_WITHIN_MS)
        problem, sent = "", commits
        while commits and not deadline.passed:
            try:
                commits = missing_commits(inner, commits)
                if not commits:
                    return
                _log.warning("last_commit_repeated", region=region, partitions=named(commits), why=problem)
                sent = commits
                answer = inner.commit(offsets=commits, asynchronous=False) or ()
                errors = {key_of(item): item.error for item in answer if item.error is not None}
                commits = [item for item in commits if _passes_by(errors.get(key_of(item)))]
                problem = "; ".join(sorted({str(error) for error in errors.values()}))
            except KafkaException as error:
                problem = str(error)
                if not _passes_by(error.args[0]):
                    break
            inner.poll(0)  # joining anew goes on by this, and commits are refused until that is done
            if self._closing.wait(_COMMIT_EVERY_S):
                break
        if problem:
            _log.warning("last_commit_refused", region=region, partitions=named(sent), why=problem)

    def _leave_group(self, inner: InnerConsumer) -> None:
        """Say that this member leaves; a cluster that does not answer is not waited for.

        librdkafka puts it off while it joins, and a member with an instance id that is closed meanwhile keeps its
        place until its session ends. It forgets the member id that a coordinator has given as it says that it leaves.
        """
        inner.unsubscribe()
        deadline = Deadline.after_ms(_LEFT_WITHIN_MS)
        inner.poll(_POLL_S)
        while not deadline.passed and (inner.assignment() or (inner.memberid() and not self._own_member_ids)):
            inner.poll(_POLL_S)


class OwnPlace:
    """Keeps back the fatal errors that a new handle heals.

    librdkafka gives a static member up for good when the coordinator once says that another consumer has its
    ``group.instance.id``. Of an id that was made up here there is no other consumer: it was its own answer to an
    outage. It forgets its member id when the session has timed out, commits that waited for the coordinator are sent
    without one, and the coordinator takes them for those of a stranger (librdkafka's issue 3437). Nothing is fetched
    from then on, however well the cluster is; so the place is taken again with a new handle. A join of the old handle
    that is still on its way may come after the new one's and fence that in turn, so more than one is needed at times;
    what does not end after ``AT_ONCE`` of them within ``REST_S`` is told, and healed later.

    Args:
        own: the instance id was made up here; with the application's own, somebody else may well have it.
        handles: makes the new handle.
        leaving: closes the old one.
    """

    def __init__(
        self,
        *,
        own: bool,
        handles: InnerConsumers,
        leaving: Leaving,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._own = own
        self._handles = handles
        self._leaving = leaving
        self._clock = clock
        self._given_up: InnerConsumer | None = None
        self._healed_at_s: deque[float] = deque(maxlen=AT_ONCE)

    def sift(self, inner: InnerConsumer, messages: list[Message]) -> list[Message]:
        """The messages without a fatal error that is healed at once."""
        if all(message.error() is None for message in messages):  # as nearly always
            return messages
        kept = []
        for message in messages:
            if self._is_to_be_healed(message.error()):
                self._given_up = inner
                _log.warning("place_given_up", error=str(message.error()))
                if self._rested():
                    continue
            kept.append(message)
        return kept

    def take_again(self, site: ConsumerSite) -> None:
        """Join again if the site's handle was given up."""
        given_up = self._given_up
        if given_up is None or (given_up is site.inner and not self._rested()):
            return
        self._given_up = None
        if given_up is not site.inner:  # a move has left it behind
            return
        self._healed_at_s.append(self._clock())
        try:
            site.go_on_with(self._handles.make(site.region, site.generation))
        finally:
            # It is out of the group already; its place is what the new one takes.
            self._leaving.leave(given_up, site.region, (), (), give_up_place=False)

    def _rested(self) -> bool:
        healed = self._healed_at_s
        return len(healed) < AT_ONCE or self._clock() - healed[0] >= REST_S

    def _is_to_be_healed(self, error: KafkaError | None) -> bool:
        fatal = error is not None and error.code() == KafkaError._FATAL  # noqa: SLF001 - librdkafka's own code
        return self._own and fatal and _FENCED in str(error)


def _passes_by(error: KafkaError | None) -> bool:
    return error is not None and error.code() in _PASSES_BY


def _answers(inner: InnerConsumer, place: TopicPartition) -> bool:
    """Whether the group's coordinator answers, be it with an error."""
    try:
        inner.committed([place], COORDINATOR_WITHIN_S)
    except KafkaException as error:
        return error.args[0].code() not in _NO_ANSWER
    return True
