"""Asks where a group goes on in another region, in the background, so that ``poll`` keeps its time-out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from parallax.client.answer import ResumeAnswer, answer_from_pb
from parallax.consumer.delivery import Delivery, PartitionState
from parallax.consumer.errors import OffsetServiceAwayError
from parallax.consumer.events import EventKind, EventQueue, FailoverEvent
from parallax.consumer.ports import Key, OffsetService
from parallax.consumer.reporting import Report, Reporter
from parallax.consumer.service_state import ServiceState
from parallax.consumer.settings import MoveFrom, Policies
from parallax.consumer.start import Start, never_committed, start_of
from parallax.errors import DeadlineError, ParallaxError, UnavailableError, UnknownTopicError
from parallax.v1 import offsets_pb2 as pb

ASK_AGAIN_S = 0.05
"""Between two questions while the newest records are on their way into the index."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a partition has come at the origin.

    Attributes:
        next_offset: what the move starts from.
        leader_epoch: the aggregate partition's leader epoch that goes with it; -1 if unknown.
        delivered_ago_s: seconds since its last record was delivered; None if none was.
        committed: what the application had committed, where that is not ``next_offset``; the commit that is made
            for it at the destination must not run ahead of it. None: the same as ``next_offset``.
        commit: whether the group commits this partition at all.
    """

    next_offset: int
    leader_epoch: int = -1
    delivered_ago_s: float | None = None
    committed: int | None = None
    commit: bool = True


@dataclass(frozen=True, slots=True)
class Wanted:
    """A move to make.

    Attributes:
        requested_at_s: when, on the monotonic clock.
        fence: the decision that stopped the group, if one did: see `parallax.consumer.following.Wish`.
        by_hand: the application asked for it, not a decision about the group's primary.
    """

    region: str
    requested_at_s: float
    fence: int | None = None
    by_hand: bool = False


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """A move that was asked for.

    Attributes:
        requested_at_s: when, on the monotonic clock.
        topics: what the group subscribes to; empty: whatever it ever committed on.
        fence: as in `Wanted`.
    """

    group: str
    origin: str
    destination: str
    requested_at_s: float
    positions: Mapping[Key, Position] = field(default_factory=dict)
    topics: Sequence[str] = ()
    fence: int | None = None


@dataclass(frozen=True, slots=True)
class MoveAnswer:
    """Where to go on.

    Attributes:
        starts: by partition; without those that the group never committed on.
        commits: what to commit at the destination where that is not the start itself; None: nothing.
        index_complete: every record delivered at the origin was indexed.
        origin_reachable: the service could ask the origin.
    """

    starts: Mapping[Key, Start]
    commits: Mapping[Key, Start | None] = field(default_factory=dict)
    index_complete: bool = True
    origin_reachable: bool = True


def is_away(error: ParallaxError) -> bool:
    """Whether the error means that no service can answer now, and one may later."""
    return isinstance(error, UnavailableError | DeadlineError)


class Asker:
    """Asks an offset service about a group.

    Args:
        service: the client.
        timeout_ms: how long a question and its retries may take.
        index_wait_ms: how long, from the last record delivered, to wait for that record to be indexed.
    """

    def __init__(
        self,
        service: OffsetService,
        *,
        timeout_ms: float,
        index_wait_ms: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._timeout_ms = timeout_ms
        self._index_wait_ms = index_wait_ms
        self._clock = clock

    def ask_move(self, request: MoveRequest, cancelled: threading.Event) -> MoveAnswer:
        """Where every partition of a move goes on, once the newest records are indexed or will not be.

        Raises:
            ParallaxError: the service's own, or `UnavailableError` and `DeadlineError` when none answered.
        """
        asked_at_s = self._clock()
        positions = {key: (item.next_offset, item.leader_epoch) for key, item in request.positions.items()}
        while True:
            answers = self._ask(request, positions)
            waiting = [
                limit_ms
                for key, item in request.positions.items()
                if (limit_ms := self._index_wait(item, answers.get(key), asked_at_s)) > 0
            ]
            if not waiting or cancelled.wait(min(ASK_AGAIN_S, max(waiting) / 1_000)):
                break
        return MoveAnswer(
            starts={
                key: start_of(answer)
                for key, answer in answers.items()
                if key in positions or (request.fence is None and not never_committed(answer))
            },
            commits=self._commits(request, answers),
            index_complete=all(
                _is_indexed(item, answers.get(key)) or item.delivered_ago_s is None
                for key, item in request.positions.items()
            ),
            origin_reachable=any(answer.origin_answers for answer in answers.values()),
        )

    def ask_partitions(
        self, group: str, origin: str, destination: str, keys: Iterable[Key]
    ) -> dict[Key, Start]:
        """Where partitions go on that somebody else of the group consumed, by what is known of the group.

        Raises:
            ParallaxError: as `ask_move`.
        """
        wanted = set(keys)
        request = MoveRequest(
            group, origin, destination, self._clock(), topics=sorted({key[0] for key in wanted})
        )
        return {
            key: start_of(answer)
            for key, answer in self._ask(request, {}).items()
            if key in wanted and not never_committed(answer)
        }

    def _commits(self, request: MoveRequest, answers: Mapping[Key, ResumeAnswer]) -> dict[Key, Start | None]:
        """What to commit for partitions where the application's own commit is behind what it was given."""
        behind = {
            key: (item.committed, item.leader_epoch)
            for key, item in request.positions.items()
            if item.commit and item.committed is not None and key in answers
        }
        commits: dict[Key, Start | None] = {
            key: None for key, item in request.positions.items() if not item.commit
        }
        if behind:
            found = self._ask(request, behind)
            commits.update((key, start_of(found[key]) if key in found else None) for key in behind)
        return commits

    def _ask(self, request: MoveRequest, positions: Mapping[Key, tuple[int, int]]) -> dict[Key, ResumeAnswer]:
        try:
            return self._ask_about(request, positions, request.topics)
        except UnknownTopicError:
            # One may subscribe to a topic that is not there yet; of the others the group has commits.
            return self._ask_about(request, positions, ())

    def _ask_about(
        self, request: MoveRequest, positions: Mapping[Key, tuple[int, int]], topics: Sequence[str]
    ) -> dict[Key, ResumeAnswer]:
        response = self._service.get_group_failover_offsets(
            request.group,
            to=pb.Place(region=request.destination),
            origin=pb.Place(region=request.origin),
            positions=[
                pb.PartitionPosition(
                    topic=topic,
                    partition=partition,
                    next_offset=next_offset,
                    leader_epoch=leader_epoch if leader_epoch >= 0 else None,
                )
                for (topic, partition), (next_offset, leader_epoch) in positions.items()
            ],
            topics=topics,
            timeout_ms=self._timeout_ms,
        )
        return {answer.topic_partition: answer for answer in map(answer_from_pb, response.offsets)}

    def _index_wait(self, position: Position, answer: ResumeAnswer | None, asked_at_s: float) -> float:
        """Milliseconds for which it is worth asking again about a partition."""
        if position.delivered_ago_s is None or answer is None or _is_indexed(position, answer):
            return 0.0
        return self._index_wait_ms - (position.delivered_ago_s + self._clock() - asked_at_s) * 1_000


def _is_indexed(position: Position, answer: ResumeAnswer | None) -> bool:
    if answer is None:
        return True
    indexed_to = answer.origin_indexed_to
    return indexed_to is not None and indexed_to >= position.next_offset


class MoveTask:
    """One move that is being asked for in a thread of its own.

    Args:
        request: what is asked.
        asker: who asks.
        keep_asking: ask again while no service answers, until `cancel`.
        before: done first, in the same thread.
    """

    def __init__(
        self,
        request: MoveRequest,
        asker: Asker,
        *,
        keep_asking: bool,
        before: Callable[[], None],
    ) -> None:
        self.request = request
        self.service_away = False
        self._asker = asker
        self._keep_asking = keep_asking
        self._before = before
        self._cancelled = threading.Event()
        self._done = threading.Event()
        self._answer: MoveAnswer | None = None
        self._error: Exception | None = None

    def start(self) -> None:
        """Begin to ask."""
        threading.Thread(target=self._run, name="parallax-move", daemon=True).start()

    def cancel(self) -> None:
        """Ask no more; the answer is of no interest."""
        self._cancelled.set()

    def wait(self, timeout_s: float) -> bool:
        """Whether the question is settled, after at most ``timeout_s``."""
        return self._done.wait(timeout_s)

    def result(self) -> MoveAnswer:
        """The answer.

        Raises:
            ParallaxError: there is none.
        """
        if self._error is not None:
            raise self._error
        if self._answer is None:
            raise DeadlineError("the move was cancelled")
        return self._answer

    def _run(self) -> None:
        try:
            self._before()
            self._answer = self._ask()
        except Exception as error:  # noqa: BLE001 - handed to the polling thread, which raises it
            self._error = error
        finally:
            self._done.set()

    def _ask(self) -> MoveAnswer | None:
        while not self._cancelled.is_set():
            try:
                return self._asker.ask_move(self.request, self._cancelled)
            except ParallaxError as error:
                if not self._keep_asking or not is_away(error):
                    raise
                self.service_away = True
                self._cancelled.wait(ASK_AGAIN_S)
        return None


class Asking:
    """At most one move that is being asked for.

    Args:
        asker: asks the service.
        policies: what to do while no service answers.
        reporter: reports once more before the question is asked.
        events: where the move's course is told.
        service_state: told of services that do not answer.
    """

    def __init__(
        self,
        asker: Asker,
        policies: Policies,
        reporter: Reporter,
        events: EventQueue,
        service_state: ServiceState,
    ) -> None:
        self._asker = asker
        self._policies = policies
        self._reporter = reporter
        self._events = events
        self._service_state = service_state
        self._task: MoveTask | None = None

    @property
    def request(self) -> MoveRequest | None:
        """The move that is being asked for."""
        return None if self._task is None else self._task.request

    def begin(self, request: MoveRequest) -> None:
        """Ask; another question under way is of no interest any more."""
        self.cancel()
        self._put(EventKind.MOVE_STARTED, request)
        self._task = MoveTask(
            request,
            self._asker,
            keep_asking=self._policies.on_service_away == "wait",
            before=self._reporter.report,
        )
        self._task.start()

    def cancel(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def wait(self, timeout_s: float) -> bool:
        """Whether the question is settled, after at most ``timeout_s``."""
        return self._task is None or self._task.wait(timeout_s)

    def take(self, region: str) -> tuple[MoveRequest, MoveAnswer] | None:
        """The answer, once it is there.

        Args:
            region: where the consumer is.

        Raises:
            OffsetServiceAwayError: no service answered, and the policy is to stop.
            ParallaxError: the service's refusal.
        """
        task = self._task
        if task is None:
            return None
        if task.service_away:
            self._service_state.tell(region, away=True)
        if not task.wait(0):
            return None
        self._task = None
        try:
            answer = task.result()
        except ParallaxError as error:
            if not is_away(error) or self._policies.on_service_away != "metadata":
                self._fail(task.request, error)
            self._service_state.tell(region, away=True)
            answer = MoveAnswer({}, origin_reachable=False)
        else:
            self._service_state.tell(region, away=False)
        if not answer.index_complete:
            self._put(
                EventKind.INDEX_INCOMPLETE,
                task.request,
                "the mapping index does not tell of all records up to the last one delivered: a few may be read twice",
            )
        return task.request, answer

    def _fail(self, request: MoveRequest, error: ParallaxError) -> None:
        self._put(EventKind.MOVE_FAILED, request, str(error))
        if is_away(error):
            raise OffsetServiceAwayError(
                f"the move to region {request.destination!r} is off: {error}"
            ) from error
        raise error

    def _put(self, kind: EventKind, request: MoveRequest, message: str = "") -> None:
        self._events.put(FailoverEvent(kind, request.destination, request.origin, message=message))


def moving_positions(delivery: Delivery, *, move_from: MoveFrom, auto_commit: bool) -> dict[Key, Position]:
    """How far each partition has come, for a move; partitions that were never assigned keep their own move."""
    now = time.monotonic()
    with delivery.lock:
        positions = {key: Position(start.offset, commit=False) for key, start in delivery.answers.items()}
        for key, state in delivery.partitions.items():
            ago_s = None if state.delivered_at_s is None else now - state.delivered_at_s
            done = state.stored if auto_commit else state.committed
            if move_from == "committed":
                base = state.gate.floor if done is None else done
                positions[key] = Position(base, state.leader_epoch, ago_s, commit=done is not None)
            else:
                positions[key] = Position(
                    state.gate.position,
                    state.leader_epoch,
                    ago_s,
                    committed=None if done == state.gate.position else done,
                    commit=done is not None,
                )
        return positions


def report_of(delivery: Delivery, *, auto_commit: bool) -> Report:
    """What the application is done with: what another process could go on from if this one and its cluster die."""
    with delivery.lock:
        positions = {
            key: _message(key, state, done)
            for key, state in delivery.partitions.items()
            if (done := state.stored if auto_commit else state.committed) is not None
        }
    return Report(delivery.region, positions)


def _message(key: Key, state: PartitionState, next_offset: int) -> pb.PartitionPosition:
    return pb.PartitionPosition(
        topic=key[0],
        partition=key[1],
        next_offset=next_offset,
        leader_epoch=state.leader_epoch if state.leader_epoch >= 0 else None,
    )
