"""The question that a move waits for: asked in the background, told as events, and what its failure means."""

from __future__ import annotations

from parallax.consumer.errors import OffsetServiceAwayError
from parallax.consumer.events import EventKind, EventQueue, FailoverEvent
from parallax.consumer.moves import Asker, MoveAnswer, MoveRequest, MoveTask, is_away
from parallax.consumer.reporting import Reporter
from parallax.consumer.service_state import ServiceState
from parallax.consumer.settings import Policies
from parallax.errors import ParallaxError


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
