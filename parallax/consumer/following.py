"""Follows where a group is primary, in a thread of its own."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import structlog

from parallax.consumer.errors import OffsetServiceAwayError
from parallax.consumer.events import EventKind, EventQueue, FailoverEvent
from parallax.consumer.ports import OffsetService, PrimaryChanges
from parallax.consumer.reporting import ServiceState
from parallax.consumer.settings import Policies
from parallax.domain.ids import ClusterName, RegionName, aggregate_cluster, region_of
from parallax.errors import ParallaxError
from parallax.v1 import primaries_pb2 as pb

_log = structlog.get_logger("parallax.failover_consumer")
_WATCH_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What a decision asks of a consumer.

    Attributes:
        region: whose aggregate cluster to consume; None: leave the group and wait.
        origin_lives: with None, whether the cluster that is left can still be committed to.
        carry: what this consumer has delivered counts at the destination. Not so if it has missed decisions, or
            heard its first: others may have consumed since, and only what is committed there tells how far.
        fence: the decision that stopped the group for this move. Offsets with that number were put at the
            destination since then; any other commit there is somebody's progress. None: it was not stopped.
    """

    region: str | None
    origin_lives: bool = True
    carry: bool = False
    fence: int | None = None


class Follower:
    """Keeps what was decided for the polling thread.

    Args:
        service: tells of changes.
        group: the consumer group.
    """

    def __init__(self, service: OffsetService, group: str) -> None:
        self._service = service
        self._group = group
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._watch: PrimaryChanges | None = None
        self._acted: pb.Primary | None = None
        self._news: list[pb.Primary] = []
        self._thread: threading.Thread | None = None
        self.current: pb.Primary | None = None

    def start(self) -> None:
        """Begin, if that has not been done."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="parallax-follow", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Watch no more."""
        self._closed.set()
        with self._lock:
            if self._watch is not None:
                self._watch.close()

    def take(self, region: str) -> Wish | None:
        """What the consumer shall do, if a decision has come since the last call; of several the last one counts.

        Args:
            region: where the consumer is.
        """
        with self._lock:
            news, self._news = self._news, []
        if not news:
            return None
        heard = [item.decision for item in ([] if self._acted is None else [self._acted]) + news[:-1]]
        self._acted = news[-1]
        return _wish(news[-1].decision, heard, aggregate_cluster(RegionName(region)))

    def _run(self) -> None:
        while not self._closed.is_set():
            with self._lock:
                if self._closed.is_set():
                    return
                self._watch = watch = self._service.watch_primary(self._group)
            try:
                for found in watch:
                    self._note(found)
            except (
                ParallaxError
            ) as error:  # connecting again does not heal it; a service of another release may
                if not self._closed.is_set():
                    _log.warning("following_failed", group=self._group, code=error.code, error=str(error))
            except Exception as error:  # noqa: BLE001 - a consumer that hears of no decision any more would stay for good
                _log.error("following_failed", group=self._group, exc_info=error)
            finally:
                watch.close()
            self._closed.wait(_WATCH_AGAIN_S)

    def _note(self, found: pb.Primary) -> None:
        with self._lock:
            before = self.current
            if before is not None and found == before:
                return  # a watch that is taken up again begins with what holds
            if before is None or found.decision.fencing_number >= before.decision.fencing_number:
                self.current = found
                self._news.append(found)


def _wish(newest: pb.PrimaryDecision, heard: list[pb.PrimaryDecision], here: ClusterName) -> Wish | None:
    """What the newest decision asks, given those heard before, the oldest first."""
    if newest.mode != pb.ACTIVE_PASSIVE:
        return None
    if newest.stage == pb.MOVING:
        return Wish(None, origin_lives=not newest.disaster)
    if newest.stage != pb.SETTLED:  # of a newer release: whatever it asks, this one can't do it
        return None
    region = region_of(ClusterName(newest.cluster))
    replaced = [item for item in heard if item.fencing_number in newest.supersedes]
    fences = [item for item in replaced if item.stage == pb.MOVING]
    if fences:
        return Wish(region, carry=fences[-1].moving_from == here, fence=fences[-1].fencing_number)
    known_nothing_before = bool(heard) and not heard[-1].fencing_number and not newest.supersedes
    return Wish(region, carry=bool(replaced) or known_nothing_before)


class AgainstPrimary:
    """Looks up the group's primary in the background: a move that is urgent does not wait for it.

    Args:
        service: tells where the group is primary.
        group: the consumer group.
        events: hear of a contradiction.
        timeout_ms: budget of a look.
    """

    def __init__(self, service: OffsetService, group: str, events: EventQueue, timeout_ms: float) -> None:
        self._service = service
        self._group = group
        self._events = events
        self._timeout_ms = timeout_ms

    def look(self, region: str) -> None:
        """Tell if somebody has recorded another region than this one, to which the application moves."""
        threading.Thread(target=self._look, args=(region,), name="parallax-primary", daemon=True).start()

    def _look(self, region: str) -> None:
        try:
            found = self._service.get_primary(self._group, timeout_ms=self._timeout_ms)
        except ParallaxError as error:
            _log.warning("primary_unknown", group=self._group, code=error.code, error=str(error))
            return
        words = contradiction(found, region)
        if words:
            self._events.put(FailoverEvent(EventKind.AGAINST_PRIMARY, region, message=words))


def contradiction(found: pb.Primary, region: str) -> str:
    """Why a consumer of the group should not go to a region; empty: nothing that is recorded speaks against it."""
    decision = found.decision
    if not found.HasField("decision") or decision.mode != pb.ACTIVE_PASSIVE:
        return ""
    number = f"fencing number {decision.fencing_number}"
    if decision.stage == pb.MOVING:
        return (
            f"group {found.group} is being moved from {decision.moving_from} to {decision.cluster} ({number}): "
            "what is committed elsewhere meanwhile does not count"
        )
    if region_of(ClusterName(decision.cluster)) == region:
        return ""
    return (
        f"group {found.group} is recorded as consuming {decision.cluster} ({number}): what it commits in region "
        f"{region} is not synced; `parallax failover {found.group} --to {region}` moves the group, "
        f"`parallax primary {found.group} --set {region}` records it here"
    )


class FirstWord:
    """Waits for the first answer: until it is there, joining would be a guess, and might read what others read.

    Args:
        policies: how long to wait, and what to do then.
        service_state: told if no service answers.
    """

    def __init__(self, policies: Policies, service_state: ServiceState) -> None:
        self._policies = policies
        self._service_state = service_state
        self._since_s: float | None = None

    def settled(self, region: str, *, heard: bool) -> bool:
        """Whether to begin: an answer has come, or the policy is to begin without it.

        Args:
            region: the region that the application named.
            heard: whether an answer has come.

        Raises:
            OffsetServiceAwayError: no service answers, and the policy is to stop.
        """
        if heard:
            self._service_state.tell(region, away=False)
            return True
        now_s = time.monotonic()
        if self._since_s is None:
            self._since_s = now_s
        if (now_s - self._since_s) * 1_000 < self._policies.service_timeout_ms:
            return False
        self._service_state.tell(region, away=True)
        if self._policies.on_service_away == "stop":
            raise OffsetServiceAwayError("no offset service tells where the group is primary")
        return self._policies.on_service_away == "metadata"
