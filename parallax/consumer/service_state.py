"""Whether an offset service answers, told once at each change, and what the policy says while none does."""

from __future__ import annotations

from parallax.consumer.errors import OffsetServiceAwayError
from parallax.consumer.events import EventKind, EventQueue, FailoverEvent
from parallax.consumer.reporting import Reporter
from parallax.consumer.settings import Policies
from parallax.consumer.site import Site


class ServiceState:
    """What the application was told of the services."""

    def __init__(self, policies: Policies, reporter: Reporter, events: EventQueue) -> None:
        self._policies = policies
        self._reporter = reporter
        self._events = events
        self._away = False

    def tell(self, region: str, *, away: bool) -> None:
        """Tell the application if that has changed."""
        if away != self._away:
            self._away = away
            kind = EventKind.SERVICE_AWAY if away else EventKind.SERVICE_BACK
            self._events.put(FailoverEvent(kind, region))

    def mind(self, site: Site) -> None:
        """Apply the policy when something is pending and no service tells more.

        Raises:
            OffsetServiceAwayError: the policy is to stop.
        """
        if not site.delivery.waiting():
            return
        away = self._reporter.away_ms > self._policies.service_timeout_ms
        if away or self._reporter.away_ms == 0:
            self.tell(site.region, away=away)
        if away and self._policies.on_service_away == "metadata":
            site.abandon()
        elif away and self._policies.on_service_away == "stop":
            raise OffsetServiceAwayError(
                "records consumed in another region are still to arrive, and no offset service tells which"
            )
