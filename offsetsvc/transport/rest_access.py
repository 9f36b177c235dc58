"""REST asks who calls before it looks at anything else."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar

from anyio import to_thread
from starlette.types import ASGIApp, Receive, Scope, Send

from offsetsvc.metrics import ServiceMetrics
from offsetsvc.transport.access import PAGES_FOR_ANYBODY, Access
from offsetsvc.transport.rest_problems import answer_to
from parallax.adapters.http.connection import shown_in
from parallax.errors import ParallaxError
from parallax.identity.identity import NOTHING_SHOWN, Shown

SHOWN: ContextVar[Shown] = ContextVar("shown", default=NOTHING_SHOWN)
"""What the caller of the request under way has shown of itself."""

HEADERS: ContextVar[Sequence[tuple[bytes, bytes]]] = ContextVar("headers", default=())
"""Of the request under way."""

_PAGE = "page"
"""In metrics, of all that is refused before it is looked at: its path is the caller's own word."""


class AskedFirst:
    """An application that answers only who may read something; which group that is, each call looks at itself.

    Args:
        app: the application.
        access: lets callers in.
        metrics: counts those that are not let in.
    """

    def __init__(self, app: ASGIApp, *, access: Access, metrics: ServiceMetrics) -> None:
        self._app = app
        self._access = access
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            shown = shown_in(scope)
            SHOWN.set(shown)
            HEADERS.set(scope["headers"])
            if self._access.asks and scope["path"] not in PAGES_FOR_ANYBODY:
                try:
                    # In a thread: a token may name a key that has to be fetched.
                    await to_thread.run_sync(self._let_in, scope["path"], shown)
                except ParallaxError as error:
                    await answer_to(error)(scope, receive, send)
                    return
        await self._app(scope, receive, send)

    def _let_in(self, path: str, shown: Shown) -> None:
        with self._metrics.refusals("rest", _PAGE):
            self._access.page(path, lambda: shown)


def may_read_something(access: Access) -> bool:
    """Whether the caller of the request under way may read anything."""
    return access.admits(SHOWN.get())
