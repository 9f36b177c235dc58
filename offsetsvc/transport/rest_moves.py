"""REST: moves as things of their own, and how far one is as server-sent events."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from offsetsvc.transport.rest_problems import problems
from offsetsvc.transport.rest_shell import Group, Shell, described
from parallax.client.json import to_json
from parallax.errors import LimitError, ParallaxError
from parallax.failover.desk import MoveState
from parallax.failover.facts import MoveKind
from parallax.failover.orders import order_of
from parallax.v1 import moves_pb2 as pb

MOST_STREAMS = 64
_LOOK_EVERY_S = 0.5
_LONGEST_S = 300.0
"""A stream ends after this time, and a browser opens it again."""
_GOES_ON = {MoveState.RUNNING.value}

MoveId = Annotated[str, Path(description="`move_id` of a plan.", max_length=4_096)]
Text = Annotated[str, Field(min_length=0)]


class PlanBody(BaseModel):
    """Which move; the proto's PlanMoveRequest says what each field means."""

    model_config = ConfigDict(extra="forbid")

    group: Annotated[str, Field(min_length=1)]
    to_region: Text = ""
    to_cluster: Text = ""
    back: bool = False
    origin: Text = ""
    disaster: bool = False
    accept_gaps: bool = False


class ExecuteBody(BaseModel):
    """What was agreed to."""

    model_config = ConfigDict(extra="forbid")

    digest: Annotated[str, Field(min_length=1)]
    actor: Text = ""
    reason: Text = ""


class CancelBody(BaseModel):
    """Who calls a move off."""

    model_config = ConfigDict(extra="forbid")

    actor: Text = ""


_NOBODY = CancelBody()


class RollBackBody(BaseModel):
    """How a group is put back."""

    model_config = ConfigDict(extra="forbid")

    disaster: bool = False
    actor: Text = ""


def move_routes(shell: Shell) -> APIRouter:  # noqa: C901 - a function for each route
    """The routes of `moves.proto`."""
    router = APIRouter(prefix="/v1", tags=["moves"])

    @router.post("/moves", **described(pb.PlannedMove, 400, 404, 429, 503, 504))
    def plan(body: PlanBody) -> Response:
        """Plan a move: its id, its digest, what it would do. Nothing is changed."""
        return shell.answer(shell.handlers.PlanMove, pb.PlanMoveRequest(**body.model_dump()))

    @router.get("/moves/{move_id}", **described(pb.MoveStatus, 400, 404, 503, 504))
    def status(move_id: MoveId) -> Response:
        """How far a move is."""
        return shell.answer(shell.handlers.GetMove, _asked(move_id))

    @router.post("/moves/{move_id}/execute", **described(pb.MoveStatus, 400, 404, 409, 429, 503, 504))
    def execute(move_id: MoveId, body: ExecuteBody) -> Response:
        """Carry out what was planned. If the plan has changed: 409, with the new one as `plan`, and nothing is changed."""
        move = order_of(move_id).move
        request = pb.ExecuteMoveRequest(
            group=move.group, move_id=move_id, disaster=move.kind is MoveKind.DISASTER, **body.model_dump()
        )
        return shell.answer(shell.handlers.ExecuteMove, request)

    @router.post("/moves/{move_id}/cancel", **described(pb.MoveStatus, 400, 404, 409, 503, 504))
    def cancel(move_id: MoveId, body: CancelBody = _NOBODY) -> Response:
        """Stop a move before its next step."""
        group = order_of(move_id).move.group
        request = pb.CancelMoveRequest(group=group, move_id=move_id, actor=body.actor)
        return shell.answer(shell.handlers.CancelMove, request)

    @router.post("/moves/{move_id}/rollback", **described(pb.MoveStatus, 400, 404, 409, 429, 503, 504))
    def roll_back(move_id: MoveId, body: RollBackBody) -> Response:
        """Put the group back as it was before its last move, as long as it has not committed since."""
        group = order_of(move_id).move.group
        request = pb.RollBackMoveRequest(group=group, move_id=move_id, **body.model_dump())
        return shell.answer(shell.handlers.RollBackMove, request)

    @router.get("/groups/{group}/verification", **described(pb.GroupVerification, 400, 404, 503, 504))
    def verification(
        group: Group,
        moves: Annotated[
            int, Query(ge=0, le=1_000, description="Over so many of its last moves; 0: the last one.")
        ] = 0,
    ) -> Response:
        """Which records the group consumed once, twice or never over its last moves."""
        return shell.answer(shell.handlers.VerifyGroup, pb.VerifyGroupRequest(group=group, moves=moves))

    streams = threading.BoundedSemaphore(MOST_STREAMS)
    stream = {"description": "Events called `move`, each a MoveStatus.", "content": {"text/event-stream": {}}}

    @router.get(
        "/moves/{move_id}/events",
        response_class=StreamingResponse,
        responses={200: stream, **problems(400, 401, 403, 404, 429, 500, 503, 504)},
    )
    async def events(move_id: MoveId, request: Request) -> Response:
        """How far a move is, as server-sent events: now, and whenever that has changed, as long as it runs."""
        ask = partial(shell.message, shell.handlers.GetMove, _asked(move_id))
        first = await to_thread.run_sync(ask)
        if not streams.acquire(blocking=False):
            raise LimitError(f"more than {MOST_STREAMS} streams of moves: ask for the move itself")

        async def told() -> AsyncIterator[str]:
            try:
                status, until_s = first, time.monotonic() + _LONGEST_S
                yield _event(status)
                while status.state in _GOES_ON and time.monotonic() < until_s:
                    await asyncio.sleep(_LOOK_EVERY_S)
                    if await request.is_disconnected():
                        return
                    before, status = status, await to_thread.run_sync(ask)
                    if status != before:
                        yield _event(status)
            except ParallaxError as error:
                yield f"event: problem\ndata: {json.dumps({'code': error.code, 'detail': str(error)})}\n\n"
            finally:
                streams.release()

        return StreamingResponse(
            told(), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    return router


def _asked(move_id: str) -> pb.GetMoveRequest:
    return pb.GetMoveRequest(group=order_of(move_id).move.group, move_id=move_id)


def _event(status: pb.MoveStatus) -> str:
    return f"event: move\ndata: {json.dumps(to_json(status))}\n\n"
