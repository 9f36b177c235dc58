"""Drills that the service carries out itself, with the steps of `parallax drill`."""

from __future__ import annotations

from collections.abc import Callable

from offsetsvc.overview.operations import drill_to_pb
from parallax.config.config import Config
from parallax.domain.rights import Principal
from parallax.errors import InvalidNameError, NotFoundError
from parallax.failover.drill.desk import DrillDesk, DrillProgress
from parallax.failover.drill.figures import Timeline
from parallax.failover.drill.history import DrillRecord
from parallax.failover.drill.planning import plan_of, proof, steps_of
from parallax.failover.drill.run import Canary, DrillPlan, DrillRun
from parallax.failover.journal import MoveJournal
from parallax.failover.outside import Outside
from parallax.failover.services import MoveClient
from parallax.failover.verify.verifier import Verifier
from parallax.failover.waiting import Tell
from parallax.v1 import moves_pb2 as pb

MakesCanary = Callable[[Config, DrillPlan, Outside], Canary]
"""Makes the records of a drill, and their consumer."""


class OwnDrills:
    """Plans, carries out and tells of drills. Safe to use from many threads.

    Args:
        config: regions, topic and group of drills.
        opened: gives what a drill touches, for one caller.
        journal: of all drills.
        verifier: proves them after the fact.
        canary: makes their records.
    """

    def __init__(
        self,
        config: Config,
        opened: Callable[[MoveClient, Principal], Outside],
        journal: MoveJournal,
        verifier: Verifier,
        canary: MakesCanary,
    ) -> None:
        self._config = config
        self._opened = opened
        self._journal = journal
        self._verifier = verifier
        self._canary = canary
        self._desk = DrillDesk()

    def close(self) -> None:
        """End the drill that is under way; its group goes home."""
        self._desk.close()

    def plan(self, request: pb.PlanDrillRequest) -> pb.PlannedDrill:
        """What a drill would do; raises as `plan_of` does."""
        plan = self._plan(request.origin, request.to)
        return pb.PlannedDrill(
            group=plan.group,
            topic=plan.topic,
            origin=plan.origin,
            to=plan.to,
            regions=plan.regions,
            steps=steps_of(self._config, plan),
        )

    def run(self, request: pb.RunDrillRequest, client: MoveClient, whose: Principal) -> pb.DrillStatus:
        """Begin with a drill; raises as `plan_of` and `DrillDesk.begin` do.

        Raises:
            InvalidNameError: the group is not that of drills.
        """
        self._check(request.group)
        plan = self._plan(request.origin, request.to)
        outside = self._opened(client, whose)

        def work(drill_id: str, tell: Tell) -> DrillRecord:
            canary = self._canary(self._config, plan, outside)
            return DrillRun(
                outside, canary, plan, prove=lambda: proof(self._verifier, plan), tell=tell, drill_id=drill_id
            ).run()

        return _status_to_pb(self._desk.begin(outside, plan.group, work))

    def stop(self, request: pb.StopDrillRequest, client: MoveClient, whose: Principal) -> pb.DrillStatus:
        """Let a drill end; raises as `DrillDesk.stop` does.

        Raises:
            InvalidNameError: as `run`.
        """
        self._check(request.group)
        return _status_to_pb(self._desk.stop(self._opened(client, whose), request.drill_id))

    def status(self, request: pb.GetDrillRequest) -> pb.DrillStatus:
        """How far a drill is; raises as `DrillDesk.progress` does, and if it was another group's."""
        found = self._desk.progress(self._journal, request.drill_id)
        if found.group != request.group:
            raise NotFoundError(f"group {request.group!r} had no drill {request.drill_id!r} lately")
        return _status_to_pb(found)

    def _check(self, group: str) -> None:
        own = self._config.drill.group
        if group != own:
            raise InvalidNameError(f"group: drills move {own!r} (drill.group) and no other group")

    def _plan(self, origin: str, to: str) -> DrillPlan:
        return plan_of(self._config, origin or None, to or None)


def _status_to_pb(found: DrillProgress) -> pb.DrillStatus:
    return pb.DrillStatus(
        drill_id=found.drill_id,
        ending=found.ending.value,
        here=found.here,
        doing=found.doing,
        problem=found.problem,
        events=[pb.MoveEvent(at_ms=at_ms, words=words) for at_ms, words in found.events],
        drill=None if found.record is None else drill_to_pb(found.record),
        timeline=None if found.record is None else _timeline_to_pb(found.record.timeline),
    )


def _timeline_to_pb(line: Timeline | None) -> pb.DrillTimeline | None:
    if line is None:
        return None
    return pb.DrillTimeline(
        slot_ms=line.slot_ms,
        acknowledged_records=line.acknowledged,
        delivered=[
            pb.DeliveredRecords(region=region, records=counts) for region, counts in line.delivered.items()
        ],
        events=[pb.DrillEvent(at_ms=at_ms, words=words) for at_ms, words in line.events],
    )
