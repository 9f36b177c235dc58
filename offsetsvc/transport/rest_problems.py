"""Errors of REST as problems (RFC 9457), and what OpenAPI says of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from parallax.adapters.http.bodies import PROBLEM, problem_of
from parallax.client.json import to_json
from parallax.client.status import status_of
from parallax.errors import (
    InvalidNameError,
    NotFoundError,
    ParallaxError,
    PlanChangedError,
    UnauthenticatedError,
)

_log = structlog.get_logger(__name__)

_SCHEMA: dict[str, Any] = {
    "title": "Problem",
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "The same word in gRPC, logs and metrics."},
        "detail": {"type": "string"},
        "plan": {"type": "object", "description": "With PLAN_CHANGED: the new plan, a PlannedMove."},
    },
    "required": ["type", "title", "status", "code", "detail"],
}

_TEXTS = {
    400: "Something in the request can't be.",
    401: "Nobody proved who calls.",
    403: "Who calls lacks the right that the text names.",
    404: "Something named in the request does not exist.",
    409: "It would do harm, or somebody else has decided meanwhile.",
    429: "More than a configured bound.",
    500: "An error of the server, or stored data that contradicts itself.",
    503: "The store, or a cluster that is needed, did not answer.",
    504: "The deadline passed first.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route says of its errors, by HTTP status."""
    return {
        status: {"description": _TEXTS[status], "content": {PROBLEM: {"schema": _SCHEMA}}}
        for status in statuses
    }


class ProblemApp(FastAPI):
    """An application all of whose errors are problems."""

    def __init__(self, **described: Any) -> None:
        super().__init__(**described)
        self.add_exception_handler(ParallaxError, lambda _, error: answer_to(error))
        self.add_exception_handler(RequestValidationError, _invalid)
        self.add_exception_handler(HTTPException, _http)
        self.add_exception_handler(Exception, _unexpected)

    def openapi(self) -> dict[str, Any]:
        """The description, without FastAPI's own answer to a request that can't be: ours is 400."""
        description = super().openapi()
        for methods in description["paths"].values():
            for operation in methods.values():
                operation["responses"].pop("422", None)
        schemas = description.get("components", {}).get("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        return description


def answer_to(error: Exception) -> Response:
    """The answer to an error of ours."""
    status = status_of(error).http if isinstance(error, ParallaxError) else 500
    code = error.code if isinstance(error, ParallaxError) else ParallaxError.code
    more = {"plan": to_json(error.plan)} if isinstance(error, PlanChangedError) and error.plan else {}
    answer = _problem(status, code, str(error), more)
    if isinstance(error, UnauthenticatedError):
        # RFC 9110 wants one; for certificates there is no scheme.
        answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def _invalid(_: Request, error: Exception) -> Response:
    items = error.errors() if isinstance(error, RequestValidationError) else []
    details = "; ".join(f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in items)
    return _problem(400, InvalidNameError.code, details or str(error))


def _http(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    # 400: a body that the parser gives up, which is no error of validation.
    code = {400: InvalidNameError.code, 404: NotFoundError.code}.get(status, "HTTP")
    return _problem(status, code, str(getattr(error, "detail", error)))


def _unexpected(request: Request, error: Exception) -> Response:
    _log.error("internal_error", path=request.url.path, exc_info=error)
    return _problem(500, ParallaxError.code, "internal error; the server's log has it")


def _problem(status: int, code: str, detail: str, more: Mapping[str, Any] = MappingProxyType({})) -> Response:
    content = {**problem_of(status, code, detail), **more}
    return JSONResponse(content, status_code=status, media_type=PROBLEM)
