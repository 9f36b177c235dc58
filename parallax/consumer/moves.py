"""Moves: how far partitions have come, and where an offset service lets them go on.

It is asked in the background, so that ``poll`` keeps its time-out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from parallax.client.answer import ResumeAnswer, answer_from_pb
from parallax.consumer.delivery import Delivery
from parallax.consumer.errors import OffsetServiceAwayError, is_away
from parallax.consumer.events import EventKind, EventQueue, FailoverEvent
from parallax.consumer.gate import Start
from parallax.consumer.ports import Key, OffsetService
from parallax.consumer.reporting import Reporter, ServiceState, position_message
from parallax.consumer.settings import MoveFrom, Policies
from parallax.domain.outcome import Outcome
from parallax.errors import ParallaxError, UnknownTopicError
from parallax.v1 import offsets_pb2 as pb

ASK_AGAIN_S = 0.05
"""Between two questions while the newest records are on their way into the index."""


@dataclass(frozen=True, slots=True)
class OriginPosition:
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
    positions: Mapping[Key, OriginPosition] = field(default_factory=dict)
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


def moving_positions(
    delivery: Delivery, *, move_from: MoveFrom, auto_commit: bool, arrived: bool
) -> dict[Key, OriginPosition]:
    """How far each partition has come, for a move.

    Before any was assigned all keep their own move. Once this consumer has ``arrived``, the rest are other members'.
    """
    now = time.monotonic()
    with delivery.lock:
        positions = {
            key: OriginPosition(start.offset, commit=False)
            for key, start in delivery.answers.items()
            if not arrived
        }
        for key, state in delivery.partitions.items():
            ago_s = None if state.delivered_at_s is None else now - state.delivered_at_s
            done = state.stored if auto_commit else state.committed
            if move_from == "committed":
                base = state.gate.floor if done is None else done
                positions[key] = OriginPosition(base, state.leader_epoch, ago_s, commit=done is not None)
            else:
                positions[key] = OriginPosition(
                    state.gate.position,
                    state.leader_epoch,
                    ago_s,
                    committed=None if done == state.gate.position else done,
                    commit=done is not None,
                )
        return positions


@dataclass(slots=True)
class _Question:
    """A move that is being asked for.

    Attributes:
        answer: until it is there, what is to be done without one.
    """

    request: MoveRequest
    answer: MoveAnswer = field(default_factory=lambda: MoveAnswer({}, origin_reachable=False))
    error: Exception | None = None
    service_away: bool = False
    cancelled: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)


class Inquiry:
    """Asks an offset service where a group goes on; about one move at a time, in a thread of its own.

    Args:
        service: the client.
        policies: how long to ask, and what to do while no service answers.
        reporter: reports once more before a move is asked for.
        events: where the move's course is told.
        service_state: told of services that do not answer.
    """

    def __init__(
        self,
        service: OffsetService,
        policies: Policies,
        reporter: Reporter,
        events: EventQueue,
        service_state: ServiceState,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._policies = policies
        self._reporter = reporter
        self._events = events
        self._service_state = service_state
        self._clock = clock
        self._question: _Question | None = None

    # --- a move, for the polling thread ------------------------------------------------------------------

    @property
    def request(self) -> MoveRequest | None:
        """The move that is being asked for."""
        question = self._question  # the polling thread may take it meanwhile
        return None if question is None else question.request

    def begin(self, request: MoveRequest) -> None:
        """Ask; another question under way is of no interest any more."""
        self.cancel()
        self._put(EventKind.MOVE_STARTED, request)
        self._question = _Question(request)
        threading.Thread(target=self._run, args=(self._question,), name="parallax-move", daemon=True).start()

    def cancel(self) -> None:
        """Ask no more."""
        if self._question is not None:
            self._question.cancelled.set()
            self._question = None

    def wait(self, timeout_s: float) -> bool:
        """Whether the question is settled, after at most ``timeout_s``."""
        question = self._question
        return question is None or question.done.wait(timeout_s)

    def take(self, region: str) -> tuple[MoveRequest, MoveAnswer] | None:
        """The answer, once it is there.

        Args:
            region: where the consumer is.

        Raises:
            OffsetServiceAwayError: no service answered, and the policy is to stop.
            ParallaxError: the service's refusal.
        """
        question = self._question
        if question is None:
            return None
        if question.service_away:
            self._service_state.tell(region, away=True)
        if not question.done.is_set():
            return None
        self._question = None
        if question.error is not None:
            self._check_policy(question.request, question.error)
        self._service_state.tell(region, away=question.error is not None)
        if not question.answer.index_complete:
            self._put(
                EventKind.INDEX_INCOMPLETE,
                question.request,
                "the mapping index does not tell of all records up to the last one delivered: a few may be read twice",
            )
        return question.request, question.answer

    def _check_policy(self, request: MoveRequest, error: Exception) -> None:
        """Raise what keeps the move from being made, if the policy is not to make it without an answer."""
        away = is_away(error)
        if away and self._policies.on_service_away == "metadata":
            return
        if isinstance(error, ParallaxError):
            self._put(EventKind.MOVE_FAILED, request, str(error))
        if away:
            raise OffsetServiceAwayError(
                f"the move to region {request.destination!r} is off: {error}"
            ) from error
        raise error

    def _put(self, kind: EventKind, request: MoveRequest, message: str = "") -> None:
        self._events.put(FailoverEvent(kind, request.destination, request.origin, message=message))

    # --- questions ---------------------------------------------------------------------------------------

    def ask_partitions(
        self, group: str, origin: str, destination: str, keys: Iterable[Key]
    ) -> dict[Key, Start]:
        """Where partitions go on that somebody else of the group consumed, by what is known of the group.

        Raises:
            ParallaxError: the service's own, or `UnavailableError` and `DeadlineError` when none answered.
        """
        wanted = set(keys)
        request = MoveRequest(
            group, origin, destination, self._clock(), topics=sorted({key[0] for key in wanted})
        )
        return {
            key: start_of(answer)
            for key, answer in self._ask(request, []).items()
            if key in wanted and not never_committed(answer)
        }

    def _run(self, question: _Question) -> None:
        try:
            self._reporter.report()
            self._ask_patiently(question)
        except Exception as error:  # noqa: BLE001 - handed to the polling thread, which raises it
            question.error = error
        finally:
            question.done.set()

    def _ask_patiently(self, question: _Question) -> None:
        while not question.cancelled.is_set():
            try:
                question.answer = self._ask_move(question.request, question.cancelled)
            except ParallaxError as error:
                if self._policies.on_service_away != "wait" or not is_away(error):
                    raise
                question.service_away = True
                question.cancelled.wait(ASK_AGAIN_S)
            else:
                return

    def _ask_move(self, request: MoveRequest, cancelled: threading.Event) -> MoveAnswer:
        """Where every partition of a move goes on, once the newest records are indexed or will not be."""
        asked_at_s = self._clock()
        positions = [
            position_message(key, item.next_offset, item.leader_epoch)
            for key, item in request.positions.items()
        ]
        while True:
            answers = self._ask(request, positions)
            delivered_ago_s = [
                item.delivered_ago_s
                for key, item in request.positions.items()
                if item.delivered_ago_s is not None and not _is_indexed(item, answers.get(key))
            ]
            # From the last record that is missing.
            since_s = min(delivered_ago_s, default=0.0) + self._clock() - asked_at_s
            left_s = self._policies.index_wait_ms / 1_000 - since_s
            if not delivered_ago_s or left_s <= 0 or cancelled.wait(min(ASK_AGAIN_S, left_s)):
                break
        return MoveAnswer(
            starts={
                key: start_of(answer)
                for key, answer in answers.items()
                if key in request.positions or (request.fence is None and not never_committed(answer))
            },
            commits=self._commits(request, answers),
            index_complete=not delivered_ago_s,
            origin_reachable=any(answer.origin_answers for answer in answers.values()),
        )

    def _commits(self, request: MoveRequest, answers: Mapping[Key, ResumeAnswer]) -> dict[Key, Start | None]:
        """What to commit for partitions where the application's own commit is behind what it was given."""
        commits: dict[Key, Start | None] = {
            key: None for key, item in request.positions.items() if not item.commit
        }
        behind = [
            position_message(key, item.committed, item.leader_epoch)
            for key, item in request.positions.items()
            if item.commit and item.committed is not None and key in answers
        ]
        if behind:
            found = self._ask(request, behind)
            for item in behind:
                key = item.topic, item.partition
                commits[key] = start_of(found[key]) if key in found else None
        return commits

    def _ask(
        self, request: MoveRequest, positions: Sequence[pb.PartitionPosition]
    ) -> dict[Key, ResumeAnswer]:
        try:
            return self._ask_about(request, positions, request.topics)
        except UnknownTopicError:
            # One may subscribe to a topic that is not there yet; of the others the group has commits.
            return self._ask_about_known(request, positions)

    def _ask_about_known(
        self, request: MoveRequest, positions: Sequence[pb.PartitionPosition]
    ) -> dict[Key, ResumeAnswer]:
        """Whatever the group has a position on, but for topics that a cluster alone had which is gone: nothing of them lies elsewhere."""
        try:
            return self._ask_about(request, positions, ())
        except UnknownTopicError:
            unknown = {
                topic
                for topic in {item.topic for item in positions}
                if not self._is_known(request, [item for item in positions if item.topic == topic], topic)
            }
            if not unknown:
                raise
            known = [item for item in positions if item.topic not in unknown]
            return self._ask_about(request, known, ())

    def _is_known(self, request: MoveRequest, positions: Sequence[pb.PartitionPosition], topic: str) -> bool:
        try:
            self._ask_about(request, positions, (topic,))
        except UnknownTopicError:
            return False
        return True

    def _ask_about(
        self, request: MoveRequest, positions: Sequence[pb.PartitionPosition], topics: Sequence[str]
    ) -> dict[Key, ResumeAnswer]:
        response = self._service.get_group_failover_offsets(
            request.group,
            to=pb.Place(region=request.destination),
            origin=pb.Place(region=request.origin),
            positions=positions,
            topics=topics,
            timeout_ms=self._policies.service_timeout_ms,
        )
        return {answer.topic_partition: answer for answer in map(answer_from_pb, response.offsets)}


def _is_indexed(position: OriginPosition, answer: ResumeAnswer | None) -> bool:
    if answer is None:
        return True
    indexed_to = answer.origin_indexed_to
    return indexed_to is not None and indexed_to >= position.next_offset


def start_of(answer: ResumeAnswer) -> Start:
    """Where the offset service lets a partition resume."""
    return Start(
        offset=answer.resume_offset,
        skipping=answer.metadata(),
        outcome=answer.outcome,
        pending_records=answer.pending_records,
        from_log_start=Outcome.EARLIEST_FALLBACK in answer.notes,
    )


def never_committed(answer: ResumeAnswer) -> bool:
    """Whether the service knows of no position of the group at the origin either."""
    return Outcome.NO_COMMIT in answer.notes
