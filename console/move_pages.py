"""The URLs of pages that move a group. A plan is asked for by GET, for it changes nothing; what changes something is a sealed form."""

# Without `annotations` of the future: FastAPI reads those of functions that are made within others.
from collections.abc import Callable, Mapping
from typing import Annotated

import structlog
from fastapi import Depends, FastAPI, Query, Request
from fastapi.responses import RedirectResponse
from starlette.responses import Response

from console import moving
from console.files import Look, add_files
from console.forms import SEE_OTHER, SealedForm, person_of
from console.listing import link
from console.moving import Acts, MoveView, MoveWish, Review
from console.people import Person, Role
from console.web import PageFaces
from parallax.errors import PlanChangedError
from parallax.failover.orders import order_of
from parallax.picture.text import visible
from parallax.v1 import moves_pb2 as pb

_log = structlog.get_logger(__name__)

_LONGEST = 1_000
_LONGEST_ID = 4_096
_EVERY_RUNNING = "1s"
"""So often a page of a move that runs asks again."""

Name = Annotated[str, Query(max_length=_LONGEST)]
Seen = Annotated[str | None, Query(max_length=64)]


def add_moves(
    app: FastAPI,
    faces: PageFaces,
    acts: Acts,
    acting: Callable[[Person], Acts],
    regions: Callable[[], list[str]],
    forms: SealedForm,
) -> None:
    """Add the pages.

    Args:
        app: to which.
        faces: makes pages.
        acts: asks what would be done, and how far it is.
        acting: asks for something to be done, in the name of who looks.
        regions: those with an aggregate cluster.
        forms: reads forms of ours.
    """
    pages = _MovePages(faces, acts, acting, regions, forms)

    Sealed = Annotated[Mapping[str, str], Depends(forms.sealed)]  # noqa: N806 - a type

    @app.get("/move", response_model=None)
    def move(
        request: Request,
        group: Name,
        to: Name = "",
        disaster: Annotated[str, Query(max_length=8)] = "",
        accept_gaps: Annotated[str, Query(max_length=8)] = "",
    ) -> Response:
        back = to == "(back)"
        wish = MoveWish(group, "" if back else to, back, disaster == "true", accept_gaps == "true")
        found = moving.review(acts, wish) if wish.chosen else None
        return pages.move(request, wish, found)

    @app.post("/move/execute", response_model=None)
    def execute(request: Request, form: Sealed) -> Response:
        plan = pb.PlannedMove(
            move_id=form.get("move_id", "")[:_LONGEST_ID],
            digest=form.get("digest", ""),
            kind=form.get("kind", ""),
            accept_gaps=form.get("accept_gaps", "") == "true",
        )
        return pages.execute(request, plan, typed=form.get("typed", ""))

    @app.get("/moving", response_model=None)
    def progress(
        request: Request,
        group: Name,
        move_id: Annotated[str, Query(max_length=_LONGEST_ID)],
        seen: Seen = None,
    ) -> Response:
        order_of(move_id)
        return pages.progress(request, moving.progress(acts, group, move_id), seen)

    @app.post("/move/cancel", response_model=None)
    def cancel(request: Request, form: Sealed) -> Response:
        def do(person: Person, group: str, move: str) -> None:
            acting(person).cancel_move(group, move, actor=person.name)

        return pages.act(request, form, Role.OPERATOR, do)

    @app.post("/move/rollback", response_model=None)
    def roll_back(request: Request, form: Sealed) -> Response:
        def do(person: Person, group: str, move: str) -> None:
            acting(person).roll_back_move(group, move, actor=person.name)

        return pages.act(request, form, Role.OPERATOR, do)

    @app.get("/verify", response_model=None)
    def verify(
        request: Request, group: Name, moves: Annotated[int, Query(ge=1, le=100)] = 1, seen: Seen = None
    ) -> Response:
        found = moving.verification(acts, group, moves)
        return faces.live(
            request,
            "verify.html",
            f"What {group} consumed",
            seen,
            found=found,
            group=group,
            moves=moves,
            every="30s",
        )

    def verified(group: Name, moves: Annotated[int, Query(ge=1, le=100)] = 1) -> Look:
        return lambda: moving.verified(acts, group, moves)

    add_files(app, "/verify", verified)


class _MovePages:
    def __init__(
        self,
        faces: PageFaces,
        acts: Acts,
        acting: Callable[[Person], Acts],
        regions: Callable[[], list[str]],
        forms: SealedForm,
    ) -> None:
        self._faces = faces
        self._acts = acts
        self._acting = acting
        self._regions = regions
        self._forms = forms

    def move(
        self,
        request: Request,
        wish: MoveWish,
        review: Review | None,
        *,
        status: int = 200,
        mistyped: bool = False,
    ) -> Response:
        """Where to, and what would happen."""
        person = person_of(request)
        needed = Role.ADMIN if wish.disaster or wish.accept_gaps else Role.OPERATOR
        return self._faces.whole(
            request,
            "move.html",
            f"Move {wish.group}",
            status=status,
            wish=wish,
            review=review,
            mistyped=mistyped,
            regions=self._regions(),
            seal=self._forms.seal_of(request),
            needed=needed.word,
            allowed=person.may(needed, wish.group),
            admin=person.may(Role.ADMIN, wish.group),
        )

    def execute(self, request: Request, plan: pb.PlannedMove, *, typed: str) -> Response:
        """Carry out what was looked at, if whoever sends it may, and means it."""
        person, order = person_of(request), order_of(plan.move_id)
        disaster = order.move.kind.value == "disaster"
        person.require(Role.ADMIN if disaster or order.accept_gaps else Role.OPERATOR, order.move.group)
        plan.group = order.move.group
        wish = MoveWish(plan.group, order.move.region, disaster=disaster, accept_gaps=order.accept_gaps)
        if typed not in {plan.group, visible(plan.group)}:
            return self.move(request, wish, moving.review(self._acts, wish), status=400, mistyped=True)
        _log.info("move_sent", person=person.name, group=plan.group, operation=order.operation_id)
        try:
            self._acting(person).execute_move(plan, actor=person.name)
        except PlanChangedError:
            found = moving.review(self._acts, wish)
            changed = Review(found.plan, found.problem, found.partitions, changed=True)
            return self.move(request, wish, changed, status=409)
        return _see(plan.group, plan.move_id)

    def progress(self, request: Request, view: MoveView, seen: str | None) -> Response:
        """How far it is."""
        person, status = person_of(request), view.status
        move = order_of(status.move_id).move
        return self._faces.live(
            request,
            "moving.html",
            f"Move of {status.group} to {move.target}",
            seen,
            view=view,
            seal=self._forms.seal_of(request),
            allowed=person.may(Role.OPERATOR, status.group),
            again_url=link(
                "/move",
                group=status.group,
                to="(back)" if status.state == "moved" else move.region,
                disaster="true" if move.kind.value == "disaster" and status.state != "moved" else "",
            ),
            every=_EVERY_RUNNING if status.state in {"running", "planned"} else "5s",
        )

    def act(
        self, request: Request, form: Mapping[str, str], role: Role, do: Callable[[Person, str, str], None]
    ) -> Response:
        """Do something with a move, and show how far it is."""
        move_id = form.get("move_id", "")[:_LONGEST_ID]
        order, person = order_of(move_id), person_of(request)
        group = order.move.group
        person.require(role, group)
        act = request.url.path.rpartition("/")[2]
        _log.info("move_act_sent", act=act, person=person.name, group=group, operation=order.operation_id)
        do(person, group, move_id)
        return _see(group, move_id)


def _see(group: str, move_id: str) -> Response:
    return RedirectResponse(link("/moving", group=group, move_id=move_id), SEE_OTHER)
