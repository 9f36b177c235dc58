"""REST: drills that the service carries out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from offsetsvc.transport.rest_shell import Shell, described
from parallax.v1 import moves_pb2 as pb

DrillId = Annotated[str, Path(description="`drill_id` of a drill.", max_length=64)]
Region = Annotated[str, Query(description="A region; empty: the only one that is left.")]
Text = Annotated[str, Field(min_length=0)]


class RunBody(BaseModel):
    """Which drill; the proto's RunDrillRequest says what each field means."""

    model_config = ConfigDict(extra="forbid")

    origin: Text = ""
    to: Text = ""
    actor: Text = ""


class StopBody(BaseModel):
    """Who stops a drill."""

    model_config = ConfigDict(extra="forbid")

    actor: Text = ""


_NOBODY = StopBody()


def drill_routes(shell: Shell, group: str) -> APIRouter:
    """The routes.

    Args:
        shell: what routes share.
        group: that of drills (`drill.group`).
    """
    router = APIRouter(prefix="/v1", tags=["drills"])

    @router.get("/drills/plan", **described(pb.PlannedDrill, 400, 404))
    def plan(origin: Region = "", to: Region = "") -> Response:
        """What a drill would do. Nothing is changed."""
        return shell.answer(shell.handlers.PlanDrill, pb.PlanDrillRequest(origin=origin, to=to))

    @router.post("/drills", **described(pb.DrillStatus, 400, 404, 409, 429, 503, 504))
    def run(body: RunBody) -> Response:
        """Begin with a drill: the service carries it out, one at a time."""
        request = pb.RunDrillRequest(group=group, **body.model_dump())
        return shell.answer(shell.handlers.RunDrill, request)

    @router.get("/drills/{drill_id}", **described(pb.DrillStatus, 400, 404, 503, 504))
    def status(drill_id: DrillId) -> Response:
        """How far a drill is."""
        return shell.answer(shell.handlers.GetDrill, pb.GetDrillRequest(group=group, drill_id=drill_id))

    @router.post("/drills/{drill_id}/stop", **described(pb.DrillStatus, 400, 404, 409, 503, 504))
    def stop(drill_id: DrillId, body: StopBody = _NOBODY) -> Response:
        """Let a drill end before its next step; its group is taken home."""
        request = pb.StopDrillRequest(group=group, drill_id=drill_id, actor=body.actor)
        return shell.answer(shell.handlers.StopDrill, request)

    return router
