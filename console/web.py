"""What every answer of the console has: headers, a host that is ours, errors as pages, templates."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from starlette.datastructures import MutableHeaders
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from console.listing import DASH, age, link, moment
from parallax.picture.style import STYLE
from parallax.picture.svg import visible

HERE = Path(__file__).parent
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""On every answer, errors included."""
_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Guard:
    """Lets through what asks for this host by a name of ours, and puts the headers on every answer.

    Without a login it is the address alone that keeps others out, and a page of theirs in a browser on this machine could
    give its own name this address: so a name that is not ours gets nothing.

    Args:
        app: what answers.
        names: hosts, without a port.
    """

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = names

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
        await self._app(scope, receive, sends)


class Pages:
    """Pages from templates; every text in them is escaped, and what a screen does not show is shown by its number."""

    def page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """A whole page."""
        return HTMLResponse(_templates().get_template(template).render(**values), status)

    def live(self, template: str, *, seen: str | None, address: str, **values: Any) -> Response:
        """A page whose live part asks for itself again, or that part alone.

        Args:
            template: extends ``live.html``; its block ``live`` is the part.
            seen: the digest of what the asker shows; None: it wants the page. The same again is no answer (204).
            address: of the page, without ``seen``.
            values: for the template.
        """
        found = _templates().get_template(template)
        context = found.new_context({**values, "address": address})
        part = "".join(found.blocks["live"](context))
        digest = hashlib.sha256(part.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        if seen == digest:
            return Response(status_code=204)
        again = f"{address}{'&' if '?' in address else '?'}seen={digest}"
        template = "page.html" if seen is None else "part.html"
        return self.page(template, part=Markup(part), again=again, **values)  # noqa: S704 - our own


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
    made.globals.update(age=age, moment=moment, link=link, static=static_link, DASH=DASH)
    return made


def _finalized(value: Any) -> Any:
    return visible(value) if type(value) is str else value


@cache
def static_file(name: str) -> tuple[bytes, str, str] | None:
    """A file that pages load, its type and its digest; None: there is none of that name."""
    if name == "picture.css":
        content = STYLE.encode()
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
