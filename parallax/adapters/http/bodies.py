"""Bodies of HTTP requests, read whole within a size and a time; refusals are problems (RFC 9457)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parallax.errors import DeadlineError, LimitError

PROBLEM = "application/problem+json"

_TOO_LATE = 408
_TOO_LARGE = 413


class BodyError(Exception):
    """A body that is not read any further.

    Attributes:
        status: of the answer.
        code: of `ParallaxError`.
    """

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code


class ClientGoneError(Exception):
    """The caller went away before its body was there."""


def problem_of(status: int, code: str, detail: str) -> dict[str, Any]:
    """A problem as JSON types."""
    return {
        "type": f"urn:parallax:problem:{code.lower().replace('_', '-')}",
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "code": code,
        "detail": detail,
    }


def problem(status: int, code: str, detail: str) -> bytes:
    """A problem as a body."""
    return json.dumps(problem_of(status, code, detail)).encode()


async def read_body(scope: Scope, receive: Receive, *, most_bytes: int, within_s: float) -> bytes:
    """The body of a request.

    Raises:
        BodyError: it is too large, which its header may say before anything is read, or it took too long.
        ClientGoneError: it ended too early.
    """
    too_large = BodyError(_TOO_LARGE, LimitError.code, f"a body of more than {most_bytes} bytes")
    for name, value in scope["headers"]:
        # Of so many digits that it can't be meant; h11 has made sure that they are digits.
        if name == b"content-length" and (len(value) > len(str(most_bytes)) or int(value) > most_bytes):
            raise too_large
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(within_s):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > most_bytes:
                    raise too_large
                more = message.get("more_body", False)
    except TimeoutError:
        raise BodyError(
            _TOO_LATE, DeadlineError.code, f"the body was not there within {within_s:g} s"
        ) from None
    return b"".join(parts)


async def refuse(send: Send, error: BodyError) -> None:
    """Answer with the problem, and end the connection: what comes of the body is not waited for."""
    body = problem(error.status, error.code, str(error))
    headers = [
        (b"content-type", PROBLEM.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class BoundedBodies:
    """An application that is asked once the whole body is there.

    Args:
        app: the application.
        most_bytes: of a body.
        within_s: how long it may take.
    """

    def __init__(self, app: ASGIApp, *, most_bytes: int, within_s: float) -> None:
        self._app = app
        self._most_bytes = most_bytes
        self._within_s = within_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = await read_body(scope, receive, most_bytes=self._most_bytes, within_s=self._within_s)
        except BodyError as error:
            await refuse(send, error)
            return
        except ClientGoneError:
            return
        left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return left.pop() if left else await receive()

        await self._app(scope, replay, send)
