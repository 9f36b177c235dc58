"""Follows where a group is primary, in a thread of its own."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import structlog

from offsetsvc.consumer.ports import OffsetService, PrimaryChanges
from offsetsvc.pb import primaries_pb2 as pb
from parallax.domain.errors import ParallaxError
from parallax.domain.ids import ClusterName, region_of

_log = structlog.get_logger("parallax.failover_consumer")

_WATCH_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What a decision asks of a consumer.

    Attributes:
        region: whose aggregate cluster to consume; None: leave the group and wait.
        origin_lives: with None, whether the cluster that is left can still be committed to.
    """

    region: str | None
    origin_lives: bool = True


class Follower:
    """Keeps the newest decision for the polling thread.

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
        self._news: pb.Primary | None = None
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

    @property
    def waiting(self) -> bool:
        """Whether `take` has something."""
        return self._news is not None

    def take(self) -> Wish | None:
        """What the consumer shall do, if a decision has come since the last call; of several the last one counts."""
        with self._lock:
            found, self._news = self._news, None
        if found is None or found.decision.mode != pb.ACTIVE_PASSIVE:
            return None
        if found.decision.stage == pb.MOVING:
            return Wish(None, origin_lives=not found.decision.disaster)
        return Wish(region_of(ClusterName(found.decision.cluster)))

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
            finally:
                watch.close()
            self._closed.wait(_WATCH_AGAIN_S)

    def _note(self, found: pb.Primary) -> None:
        with self._lock:
            before = self.current
            if before is None or found.decision.fencing_number >= before.decision.fencing_number:
                self.current = self._news = found
