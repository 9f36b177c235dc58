"""The URLs by which people sign in and out, and what whoever is not signed in is answered with."""

# Without `annotations` of the future: FastAPI reads those of functions that are made within others.
from collections.abc import Callable, Mapping
from typing import Annotated

import structlog
from fastapi import Depends, FastAPI, Query, Request
from fastapi.responses import RedirectResponse
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from console.forms import SEE_OTHER, SealedForm, person_of
from console.listing import link
from console.people import NoRoleError, NotSignedInError, split_address
from console.signing_in import (
    ON_THE_WAY_S,
    SIGN_IN,
    SIGN_OUT,
    SIGNED_IN,
    SIGNED_OUT,
    SignInDoor,
    cookie_in,
    page_of_ours,
)
from console.web import PageFaces, address_of
from parallax.errors import ParallaxError

_log = structlog.get_logger(__name__)

_LONGEST = 8_000
Text = Annotated[str, Query(max_length=_LONGEST)]
Word = Annotated[str, Query(max_length=200)]


def add_sign_in(app: FastAPI, faces: PageFaces, door: SignInDoor, forms: SealedForm) -> None:
    """Add the pages.

    Args:
        app: to which.
        faces: makes pages.
        door: knows the issuer and who is signed in.
        forms: reads forms of ours.
    """
    cookies = door.cookies
    Sealed = Annotated[Mapping[str, str], Depends(forms.sealed)]  # noqa: N806 - a type

    @app.get(SIGN_IN, response_model=None)
    def sign_in(request: Request, to: Text = "/", anew: Word = "") -> Response:
        address, way = door.set_out(to, cookie_in(request.scope, cookies.way), anew=anew == "true")
        answer = RedirectResponse(address, SEE_OTHER)
        cookies.set(answer, cookies.way, way, ON_THE_WAY_S)
        return answer

    @app.get(SIGNED_IN, response_model=None)
    def signed_in(
        request: Request,
        state: Text = "",
        code: Text = "",
        error: Word = "",
        iss: Annotated[str, Query(max_length=1_000)] = "",
    ) -> Response:
        way = cookie_in(request.scope, cookies.way)
        try:
            session, to, person = door.come_back(state=state, way=way, code=code, error=error, issuer=iss)
        except NoRoleError as refused:
            _log.warning("sign_in_refused", reason=str(refused))
            raise
        door.leave(request.scope)
        _log.info("signed_in", person=person.name, role=person.role.word)
        answer = RedirectResponse(to, SEE_OTHER)
        cookies.set(answer, cookies.session, session, door.max_age_s)
        return answer

    @app.post(SIGN_OUT, response_model=None)
    def sign_out(request: Request, form: Sealed) -> Response:
        del form
        door.leave(request.scope)
        _log.info("signed_out", person=person_of(request).name)
        answer = RedirectResponse(SIGNED_OUT, SEE_OTHER)
        cookies.set(answer, cookies.session, "", 0)
        return answer

    @app.get(SIGNED_OUT, response_model=None)
    def signed_out(request: Request) -> Response:
        return faces.whole(
            request, "signed_out.html", "You have signed out", everywhere=door.sign_out_address()
        )


def refusal_of(faces: PageFaces) -> Callable[[Scope, ParallaxError], Response]:
    """What whoever is not signed in is answered with.

    A browser that opens a page is sent to sign in, and comes back to it. What a page or a program asks is refused in a word.
    """

    def refusal(scope: Scope, error: ParallaxError) -> Response:
        request = Request(scope)
        opened = "text/html" in request.headers.get("accept", "") and "hx-request" not in request.headers
        if not opened:
            return Response(f"{error}\n", 401, media_type="text/plain")
        if request.method == "GET":
            return RedirectResponse(link(SIGN_IN, to=address_of(request)), SEE_OTHER)
        return faces.failed(request, error)

    return refusal


def sign_in_again(app: FastAPI) -> Callable[[Request, ParallaxError], tuple[str, str]]:
    """The link of an error's page, and its words.

    Args:
        app: whose pages are come back to.
    """

    def again(request: Request, error: ParallaxError) -> tuple[str, str]:
        if not isinstance(error, NotSignedInError):
            return link(SIGN_IN, anew="true"), "Sign in as somebody else"
        if request.method == "GET":
            return link(SIGN_IN, to=page_of_ours(address_of(request))), "Sign in"
        came_from = split_address(request.headers.get("referer", ""))
        ours = came_from.netloc == request.headers.get("host", "") and _can_be_opened(app, came_from.path)
        page = f"{came_from.path}?{came_from.query}" if came_from.query else came_from.path
        return link(SIGN_IN, to=page if ours else "/"), "Sign in"

    return again


def _can_be_opened(app: FastAPI, path: str) -> bool:
    """Whether there is such a page: what a form was answered with has its address, and can't be had without the form."""
    asked = {"type": "http", "method": "GET", "path": path, "root_path": "", "headers": []}
    return any(route.matches(asked)[0] is Match.FULL for route in app.routes)
