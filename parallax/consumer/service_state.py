"""Whether an offset service answers, told once at each change."""

from __future__ import annotations

from parallax.consumer.events import EventKind, EventQueue, FailoverEvent
from parallax.consumer.reporting import Reporter
from parallax.consumer.settings import Policies


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

    def waiting(self, region: str) -> bool:
        """Tell how it stands while something is pending; whether services have been away for too long."""
        away = self._reporter.away_ms > self._policies.service_timeout_ms
        if away or self._reporter.away_ms == 0:
            self.tell(region, away=away)
        return away
