"""Asks the offset services whether they know the names that an application uses: a wrong one shows at a move otherwise."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence

import structlog

from parallax.consumer.errors import is_away
from parallax.consumer.events import EventKind, EventQueue, FailoverEvent
from parallax.consumer.ports import OffsetService
from parallax.errors import ParallaxError
from parallax.v1 import primaries_pb2 as pb

_log = structlog.get_logger("parallax.failover_consumer")
_AGAIN_S = 1.0


class NameCheck:
    """Looks in the background, until a service has answered: consuming never waits for it.

    Args:
        service: the offset services.
        group: the consumer group.
        regions: those that the application has given clusters for.
        events: hear of names that no service knows, once.
        timeout_ms: budget of a call.
        closed: set once nobody wants to know any more.
    """

    def __init__(
        self,
        service: OffsetService,
        group: str,
        regions: Collection[str],
        events: EventQueue,
        *,
        timeout_ms: float,
        closed: threading.Event,
    ) -> None:
        self._service = service
        self._group = group
        self._regions = regions
        self._events = events
        self._timeout_ms = timeout_ms
        self._closed = closed
        self._told: set[str] = set()
        self._lock = threading.Lock()
        self._wanted: tuple[str, Sequence[str]] | None = None
        self._looking = False

    def look(self, region: str, topics: Sequence[str]) -> None:
        """Check the names, and these topics: those of the last call, if services are away for longer.

        Args:
            region: where the consumer is.
            topics: what it subscribes to by name.
        """
        with self._lock:
            self._wanted = region, topics
            if not self._looking:
                threading.Thread(target=self._look, name="parallax-names", daemon=True).start()
                self._looking = True

    def _look(self) -> None:
        try:
            while (wanted := self._next()) is not None:
                self._check(*wanted)
        except BaseException:
            with self._lock:
                self._looking = False
            raise

    def _next(self) -> tuple[str, Sequence[str]] | None:
        with self._lock:
            wanted, self._wanted = self._wanted, None
            self._looking = wanted is not None and not self._closed.is_set()
            return wanted if self._looking else None

    def _check(self, region: str, topics: Sequence[str]) -> None:
        try:
            found = self._service.describe_regions(
                groups=[self._group], topics=topics, timeout_ms=self._timeout_ms
            )
        except ParallaxError as error:
            if not is_away(error):
                _log.warning("names_unchecked", group=self._group, code=error.code, error=str(error))
                return
            with self._lock:
                self._wanted = self._wanted or (region, topics)
            self._closed.wait(_AGAIN_S)
            return
        with self._lock:
            words = [text for text in _unknown(found, self._regions) if text not in self._told]
            self._told.update(words)
        if words:
            message = "; ".join(words)
            self._events.put(FailoverEvent(EventKind.UNKNOWN_NAMES, region, message=message))


def _unknown(found: pb.DescribeRegionsResponse, regions: Collection[str]) -> Iterator[str]:
    """A sentence for each name that the services do not know."""
    known = [item.region for item in found.regions if item.HasField("aggregate")]
    for region in regions:
        if region not in known:
            yield (
                f"clusters names region {region!r}, which has no aggregate cluster at the offset services (they know "
                f"{', '.join(known) or 'none'}): from there nothing can be reported, and no move leads there"
            )
    for group in found.groups_left_out:
        yield (
            f"group {group!r} is left out by `groups` in the configuration of the offset services: its offsets are "
            "published nowhere, and `parallax failover --region` does not find it"
        )
    for topic in found.topics_left_out:
        yield (
            f"topic {topic!r} is left out by `topics` in the configuration of the offset services: it is not copied, "
            "and no move knows where to go on in it"
        )
