"""Tells the application that it moves a consumer to where its group is not primary."""

from __future__ import annotations

import threading

import structlog

from parallax.consumer.events import EventKind, EventQueue, FailoverEvent
from parallax.consumer.ports import OffsetService
from parallax.domain.ids import ClusterName, region_of
from parallax.errors import ParallaxError
from parallax.v1 import primaries_pb2 as pb

_log = structlog.get_logger("parallax.failover_consumer")


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
