"""Connections of HTTP callers: how many there are, and how long one may keep us waiting.

uvicorn bounds none of this: it waits for ever for the rest of a request, and for any number of them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar

import h11
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from parallax.adapters.http.bodies import PROBLEM, problem
from parallax.errors import InvalidNameError
from parallax.identity.identity import Shown

_CERTIFICATE = "certificate"
_LAST = (b"connection", b"close")


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What a caller may cost.

    Attributes:
        connections: at a time. A further one is taken for the one that has kept us waiting longest.
        head_within_s: from the connection, or from the last answer, until a request's line and headers are there; so
            long may a caller that takes nothing of an answer stay, too.
        head_bytes: of a request's line and headers.
        body_within_s: until the body is there, once the head is.
        body_bytes: of a body.
        age_s: after this time a connection's next answer is its last one: whoever was let in by a certificate is looked at
            again, by the authorities of then.
    """

    connections: int = 1_000
    head_within_s: float = 10.0
    head_bytes: int = 16_384
    body_within_s: float = 10.0
    body_bytes: int = 65_536
    age_s: float = 1_800.0


class LimitedConnection(H11Protocol):
    """A connection that ends when its caller keeps it waiting. All of a server run on its event loop alone."""

    limits: ClassVar[HttpLimits]
    waiting: ClassVar[dict[LimitedConnection, None]]
    """Those without a request under way, in the order in which they began to wait."""

    _timer: asyncio.TimerHandle | None = None
    _unsent = 0
    _old_at_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        """Take it, for the one that waits longest if there are too many."""
        super().connection_made(transport)
        self._old_at_s = self.loop.time() + self.limits.age_s
        encrypted = transport.get_extra_info("ssl_object")
        if encrypted is not None:
            # What a request's scope has under "state".
            self.app_state = {**self.app_state, _CERTIFICATE: encrypted.getpeercert(binary_form=True)}
        if len(self.connections) > self.limits.connections:
            # A timer comes after what has arrived: of connections that came in one turn no request was read yet.
            self.loop.call_later(0, self._make_room)
        if not transport.is_closing():
            self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._wait_no_longer()

    def data_received(self, data: bytes) -> None:
        """Take in a piece of a request."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._look()

    def send_400_response(self, msg: str) -> None:
        """Say in our own form that this is no request; uvicorn does not say why."""
        del msg
        detail = (
            f"no HTTP request, or one whose line and headers are longer than {self.limits.head_bytes} bytes"
        )
        body = problem(400, InvalidNameError.code, detail)
        headers = [
            ("content-type", PROBLEM),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        try:
            for event in (h11.Response(status_code=400, headers=headers), h11.Data(body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:  # an answer is under way
            self.transport.abort()
        else:
            self.transport.close()

    def end(self) -> None:
        """End it at once, whatever was not sent yet."""
        self._wait_no_longer()
        self.transport.abort()

    def _make_room(self) -> None:
        if len(self.connections) > self.limits.connections:
            next(iter(self.waiting), self).end()

    def _look(self) -> None:
        """Wait for a request's head, unless there is a request under way."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._wait_no_longer()
            if self.loop.time() >= self._old_at_s and _LAST not in self.cycle.default_headers:
                self.cycle.default_headers = [*self.cycle.default_headers, _LAST]
        elif self._timer is None:
            self.waiting[self] = None
            self._wait()

    def _wait(self) -> None:
        self._unsent = self.transport.get_write_buffer_size()
        self._timer = self.loop.call_later(self.limits.head_within_s, self._waited_long)

    def _waited_long(self) -> None:
        if self.transport.get_write_buffer_size() < self._unsent:  # a long answer on a slow line
            self._wait()
        else:
            self.end()

    def _wait_no_longer(self) -> None:
        self.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def shown_in(scope: Scope) -> Shown:
    """What the caller of a request has shown of itself."""
    headers = tuple(value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization")
    return Shown(scope.get("state", {}).get(_CERTIFICATE), headers)


def connections_within(limits: HttpLimits) -> type[LimitedConnection]:
    """The class of one server's connections."""
    values: dict[str, Any] = {"limits": limits, "waiting": {}}
    return type("Connection", (LimitedConnection,), values)
