"""What every answer of the console has: headers, a host that is ours, errors as pages, templates."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import jinja2
import structlog
from fastapi.exceptions import RequestValidationError
from markupsafe import Markup, escape
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from console.listing import DASH, age, link, moment
from console.people import Entrance, NoRoleError, NotSignedInError
from console.sharing import SharedLooks
from parallax.client.status import status_of
from parallax.errors import ForbiddenError, ParallaxError, UnauthenticatedError
from parallax.picture.style import PAGE_STYLE
from parallax.picture.text import visible

_log = structlog.get_logger(__name__)

HERE = Path(__file__).parent
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without any, forms of our own pages would bear no origin either
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""On every answer, errors included."""
_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
HEALTH = "/healthz"
"""Whether the process answers: anybody's question."""
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


def in_a_word(_scope: Scope, error: ParallaxError) -> Response:
    """How whoever may not look is refused."""
    return Response(f"{error}\n", status_of(error).http, media_type="text/plain")


class Guard:
    """Lets through what asks for this host by a name of ours, and puts the headers on every answer.

    Without a login it is the address alone that keeps others out, and a page of theirs in a browser on this machine could
    give its own name this address: so a name that is not ours gets nothing.

    Args:
        app: what answers.
        names: hosts, without a port.
        door: tells who comes, to whom pages are shown.
        refusal: answers whom it does not let in.
        unasked: whether a path is for whoever asks.
    """

    def __init__(
        self,
        app: ASGIApp,
        names: Collection[str],
        door: Entrance,
        *,
        refusal: Callable[[Scope, ParallaxError], Response] = in_a_word,
        unasked: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._app = app
        self._names = names
        self._door = door
        self._refusal, self._unasked = refusal, unasked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sends(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        host = next((value.decode("latin-1") for key, value in scope["headers"] if key == b"host"), "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name.lower() not in self._names:
            refusal = Response("This console is not called so: ask for it by its own address.\n", 421)
            await refusal(scope, receive, sends)
            return
        if scope["path"] != HEALTH and not self._unasked(scope["path"]):
            try:
                scope.setdefault("state", {})["person"] = self._door.person(scope)
            except (UnauthenticatedError, ForbiddenError) as error:
                await self._refusal(scope, error)(scope, receive, sends)
                return
        await self._app(scope, receive, sends)


class DrawnPart(NamedTuple):
    """The live part of a page, and by what it is known again."""

    text: str
    digest: str


class Pages:
    """Pages from templates; every text in them is escaped, and what a screen does not show is shown by its number."""

    def page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """A whole page."""
        return HTMLResponse(_templates().get_template(template).render(**values), status)

    def part(self, template: str, *, address: str, **values: Any) -> DrawnPart:
        """The part of a page that asks for itself again.

        Args:
            template: has a block ``live``.
            address: of the page, without ``seen``.
            values: for the template.
        """
        found = _templates().get_template(template)
        part = "".join(found.blocks["live"](found.new_context({**values, "address": address})))
        digest = hashlib.sha256(part.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return DrawnPart(part, digest)

    def live(self, part: DrawnPart, *, seen: str | None, address: str, **values: Any) -> Response:
        """A page around its live part, or that part alone.

        Args:
            part: the live part.
            seen: the digest of what the asker shows; None: it wants the page. The same again is no answer (204).
            address: of the page, without ``seen``.
            values: for the template.
        """
        if seen == part.digest:
            return Response(status_code=204)
        again = f"{address}{'&' if '?' in address else '?'}seen={part.digest}"
        template = "page.html" if seen is None else "part.html"
        return self.page(template, part=Markup(part.text), again=again, **values)  # noqa: S704 - our own


@dataclass(frozen=True, slots=True)
class SignsIn:
    """What pages have where people sign in.

    Attributes:
        seal: marks the form by which who looks signs out.
        again: the address, and its words, where who is refused can sign in.
    """

    seal: Callable[[Request], str]
    again: Callable[[Request, ParallaxError], tuple[str, str]]


class PageFaces:
    """Pages with what all of them have, and errors as pages.

    Args:
        common: what all templates get.
        signs_in: None: people don't sign in here.
    """

    def __init__(self, common: Mapping[str, Any], signs_in: SignsIn | None = None) -> None:
        self._pages = Pages()
        self._common = common
        self._signs_in = signs_in
        self._shared: SharedLooks[DrawnPart] = SharedLooks()

    def whole(
        self, request: Request, template: str, title: str, *, status: int = 200, **values: Any
    ) -> Response:
        """A page that does not change by itself."""
        return self._pages.page(
            template, status=status, here=request.url.path, title=title, **self._with(request), **values
        )

    def _with(self, request: Request) -> dict[str, Any]:
        """What all templates get, and who looks."""
        person = getattr(request.state, "person", None)
        leaves = self._signs_in.seal(request) if self._signs_in is not None and person is not None else ""
        return {**self._common, "person": person, "leaves": leaves}

    def live(self, request: Request, template: str, title: str, seen: str | None, **values: Any) -> Response:
        """A page whose live part asks for itself again; it is for one viewer alone."""
        address = address_of(request)
        part = self._pages.part(template, address=address, title=title, **self._with(request), **values)
        return self._around(request, part, title, seen, address, **values)

    def shared(
        self,
        request: Request,
        template: str,
        title: str,
        seen: str | None,
        look: Callable[[], Mapping[str, Any]],
        **flags: bool,
    ) -> Response:
        """Likewise; its live part is that of all who look at the address with the same flags.

        Args:
            request: the request.
            template: as in `Pages.part`.
            title: of the page.
            seen: as in `Pages.live`.
            look: the template's values.
            flags: what else it depends on, for the template too.
        """
        address = address_of(request)
        part = self._shared.get(
            (address, tuple(flags.items())),
            lambda: self._pages.part(template, address=address, title=title, **look(), **flags),
            anew=seen is None,
        )
        return self._around(request, part, title, seen, address)

    def _around(
        self, request: Request, part: DrawnPart, title: str, seen: str | None, address: str, **values: Any
    ) -> Response:
        here = request.url.path
        common = self._with(request)
        return self._pages.live(part, seen=seen, address=address, here=here, title=title, **common, **values)

    def error(
        self,
        request: Request,
        status: int,
        code: str,
        text: str,
        remedy: str = "",
        way: tuple[str, str] = ("", ""),
    ) -> Response:
        """What went wrong, what to do, and an address for it with its words."""
        return self._pages.page(
            "error.html",
            status=status,
            here=request.url.path,
            title=_TITLES.get(status, "It did not go"),
            code=code,
            text=text,
            remedy=remedy,
            way=way,
            **self._with(request),
        )

    def failed(self, request: Request, error: Exception) -> Response:
        """The offset service's word, or that there is none."""
        if not isinstance(error, ParallaxError):
            raise error
        status = status_of(error).http
        if not isinstance(error, NotSignedInError | NoRoleError):
            person = getattr(request.state, "person", None)
            in_their_name = request.method == "POST" and person is not None and person.token is not None
            remedies = _REMEDIES | _REMEDIES_IN_THEIR_NAME if in_their_name else _REMEDIES
            return self.error(request, status, error.code, str(error), remedies.get(error.code, ""))
        again = ("", "") if self._signs_in is None else self._signs_in.again(request, error)
        return self.error(request, status, error.code, str(error), way=again)

    def mistaken(self, request: Request, error: Exception) -> Response:
        """A URL with parameters that can't be."""
        items = error.errors() if isinstance(error, RequestValidationError) else []
        told = "; ".join(f"{item['loc'][-1]}: {item['msg']}" for item in items)
        return self.error(request, 400, "INVALID_NAME", told)

    def missing(self, request: Request, error: Exception) -> Response:
        """No such URL."""
        status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.NOT_FOUND
        return self.error(request, status, HTTPStatus(status).phrase, "There is no such page.")

    def broken(self, request: Request, error: Exception) -> Response:
        """A bug of ours."""
        _log.error("console_failed", path=request.url.path, exc_info=error)
        return self.error(request, 500, "INTERNAL", "The console failed; its log says how.")


def address_of(request: Request) -> str:
    """The URL, without what only says what its asker shows."""
    query = [(key, value) for key, value in request.query_params.multi_items() if key != "seen"]
    return request.url.path + ("" if not query else f"?{urlencode(query)}")


_TITLES: dict[int, str] = {
    HTTPStatus.BAD_REQUEST: "That can't be asked",
    HTTPStatus.NOT_FOUND: "Not found",
    HTTPStatus.UNAUTHORIZED: "Not signed in",
    HTTPStatus.FORBIDDEN: "Not allowed",
    HTTPStatus.SERVICE_UNAVAILABLE: "No answer",
    HTTPStatus.GATEWAY_TIMEOUT: "No answer in time",
}
_REMEDIES = {
    "SERVICE_UNAVAILABLE": "Is `parallax serve` up? The console asks it anew with every page.",
    "STORE_UNAVAILABLE": "The offset service answers, and Cassandra does not answer it: look at Cassandra.",
    "DEADLINE": "Ask again; if it stays so, look at the offset service's metrics (docs/metrics.md).",
    "UNKNOWN_GROUP": "A group is known once it has committed, or once the sync job or a move has told of it.",
    "FORBIDDEN": "The console asks in its own name: give that the right to read (docs/security.md).",
    "UNAUTHENTICATED": "The console shows its own credentials: see `client` in docs/configuration.md.",
}
_REMEDIES_IN_THEIR_NAME = {
    "FORBIDDEN": "The offset service was shown your own token: what you may do there is said by its rules (service.auth.rules).",
    "UNAUTHENTICATED": "The offset service was shown your own token: has that its audience (service.auth.jwt.audience)?",
}
"""Where something is changed in the name of who looks."""


@cache
def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalized,
    )
    made.globals.update(raw=_raw, age=age, moment=moment, link=link, static=static_link, DASH=DASH)
    return made


def _raw(text: str) -> Markup:
    """A value that is sent back: as it is, with what a screen does not show."""
    return escape(text)


def _finalized(value: Any) -> Any:
    return visible(value) if type(value) is str else value


@cache
def static_file(name: str) -> tuple[bytes, str, str] | None:
    """A file that pages load, its type and its digest; None: there is none of that name."""
    if name == "picture.css":
        content = PAGE_STYLE.encode()
    elif name in {item.name for item in (HERE / "static").iterdir() if item.suffix in _KINDS}:
        content = (HERE / "static" / name).read_bytes()
    else:
        return None
    return content, _KINDS[Path(name).suffix], hashlib.sha256(content).hexdigest()[:16]


def static_link(name: str) -> str:
    """The URL of a file, which changes with it, so that browsers may keep it."""
    found = static_file(name)
    if found is None:
        raise FileNotFoundError(name)
    return f"/static/{name}?v={found[2]}"


def static_answer(name: str) -> Response:
    """The file."""
    found = static_file(name)
    if found is None:
        return Response("There is no such file.\n", 404)
    content, kind, _ = found
    return Response(
        content, media_type=kind, headers={"Cache-Control": "public, max-age=31536000, immutable"}
    )
