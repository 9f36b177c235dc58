"""The URLs of pages that run a drill. What begins or stops one is a sealed form."""

# Without `annotations` of the future: FastAPI reads those of functions that are made within others.
from collections.abc import Callable, Mapping
from typing import Annotated

import structlog
from fastapi import Depends, FastAPI, Query, Request
from fastapi.responses import RedirectResponse
from starlette.responses import Response

from console import drilling
from console.drilling import Drills
from console.forms import SEE_OTHER, SealedForm, person_of
from console.listing import link
from console.people import Person, Role
from console.web import PageFaces
from parallax.v1 import moves_pb2 as pb

_log = structlog.get_logger(__name__)

_LONGEST, _LONGEST_ID = 1_000, 64

Name = Annotated[str, Query(max_length=_LONGEST)]
DrillId = Annotated[str, Query(max_length=_LONGEST_ID)]
Seen = Annotated[str | None, Query(max_length=64)]


def add_drills(
    app: FastAPI,
    faces: PageFaces,
    drills: Drills,
    acting: Callable[[Person], Drills],
    regions: Callable[[], list[str]],
    forms: SealedForm,
) -> None:
    """Add the pages.

    Args:
        app: to which.
        faces: makes pages.
        drills: asks what would be done, and how far it is.
        acting: asks for something to be done, in the name of who looks.
        regions: those with an aggregate cluster.
        forms: reads forms of ours.
    """
    Sealed = Annotated[Mapping[str, str], Depends(forms.sealed)]  # noqa: N806 - a type

    @app.get("/drill", response_model=None)
    def drill(request: Request, origin: Name = "", to: Name = "") -> Response:
        person, names = person_of(request), regions()
        two = 2
        chosen = origin or to or len(names) == two
        found = drilling.review(drills, origin, to) if chosen else None
        group = found.plan.group if found is not None and found.plan is not None else ""
        return faces.whole(
            request,
            "drill.html",
            "Practise a failover",
            regions=names,
            review=found,
            origin=found.plan.origin if found is not None and found.plan is not None else origin,
            to=found.plan.to if found is not None and found.plan is not None else to,
            seal=forms.seal_of(request),
            needed=Role.OPERATOR.word,
            allowed=bool(group) and person.may(Role.OPERATOR, group),
        )

    @app.post("/drill/run", response_model=None)
    def run(request: Request, form: Sealed) -> Response:
        person = person_of(request)
        planned = pb.PlannedDrill(
            group=form.get("group", "")[:_LONGEST],
            origin=form.get("origin", "")[:_LONGEST],
            to=form.get("to", "")[:_LONGEST],
        )
        person.require(Role.OPERATOR, planned.group)
        _log.info("drill_sent", person=person.name, origin=planned.origin, to=planned.to)
        begun = acting(person).run_drill(planned, actor=person.name)
        return RedirectResponse(link("/drilling", group=planned.group, drill_id=begun.drill_id), SEE_OTHER)

    @app.post("/drill/stop", response_model=None)
    def stop(request: Request, form: Sealed) -> Response:
        person = person_of(request)
        group, drill_id = form.get("group", "")[:_LONGEST], form.get("drill_id", "")[:_LONGEST_ID]
        person.require(Role.OPERATOR, group)
        _log.info("drill_stop_sent", person=person.name, drill_id=drill_id)
        acting(person).stop_drill(group, drill_id, actor=person.name)
        return RedirectResponse(link("/drilling", group=group, drill_id=drill_id), SEE_OTHER)

    @app.get("/drilling", response_model=None)
    def progress(request: Request, group: Name, drill_id: DrillId, seen: Seen = None) -> Response:
        view = drilling.progress(drills, group, drill_id)
        return faces.live(
            request,
            "drilling.html",
            "Drill",
            seen,
            view=view,
            seal=forms.seal_of(request),
            allowed=person_of(request).may(Role.OPERATOR, group),
            every="1s" if view.running else "30s",
        )
