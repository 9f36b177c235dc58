"""What the routes of REST share: how they answer, and what they say of themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import Path, Response
from fastapi.responses import JSONResponse
from google.protobuf.message import Message

from offsetsvc.metrics import ServiceMetrics
from offsetsvc.parallel import Turns
from offsetsvc.service import UseCases
from offsetsvc.transport.access import Access
from offsetsvc.transport.handlers import Call, Handlers
from offsetsvc.transport.rest_access import HEADERS, SHOWN
from offsetsvc.transport.rest_problems import problems
from parallax.client.json import schema_of, to_json
from parallax.domain.ids import names_a_cluster
from parallax.runtime.deadline import Deadline
from parallax.runtime.tracing import received
from parallax.v1 import offsets_pb2 as pb

_MOST_CALLS = 32
"""Of the 40 threads in which Starlette answers; the others are for health and metrics."""

INT64 = {"ge": -(2**63), "le": 2**63 - 1}
INT32 = {"ge": -(2**31), "le": 2**31 - 1}

Request = TypeVar("Request", bound=Message)
Answer = TypeVar("Answer", bound=Message)

Group = Annotated[str, Path(description="A consumer group.")]
RouteText = Annotated[str, Path(description="A route, written `a->b` (the `>` may be encoded as %3E).")]


class Shell:
    """What the routes share."""

    def __init__(self, service: UseCases, metrics: ServiceMetrics, access: Access) -> None:
        self._access = access
        self.handlers = Handlers(service, metrics)
        self._config = service.config
        self._metrics = metrics
        self._turns = Turns(min(service.config.service.max_concurrent_calls, _MOST_CALLS), waiting=0)

    def answer(self, handler: Callable[[Request, Call], Message], request: Request) -> Response:
        """A handler's answer as JSON."""
        return JSONResponse(to_json(self.message(handler, request)))

    def message(self, handler: Callable[[Request, Call], Answer], request: Request) -> Answer:
        """A handler's answer to a request that its caller may make, counted."""
        name = handler.__name__
        with self._metrics.refusals("rest", name):
            caller = self._access.caller("rest", name, request, SHOWN.get)
        deadline = Deadline.after_ms(self._config.service.deadline_ms)
        headers = [(key.decode("latin-1"), value.decode("latin-1")) for key, value in HEADERS.get()]
        with (
            self._turns.one(deadline),
            self._metrics.request("rest", name),
            received(headers, f"parallax.{name}", rpc__system="rest", rpc__method=name),
        ):
            return handler(request, Call(deadline, caller))

    def place(self, text: str) -> pb.Place:
        """A region or a cluster: what is configured under the name."""
        is_cluster = text not in self._config.regions and names_a_cluster(text)
        return pb.Place(cluster=text) if is_cluster else pb.Place(region=text)

    def move(self, origin: str | None, to: str) -> dict[str, Any]:
        """The places of a move."""
        return {"from": None if origin is None else self.place(origin), "to": self.place(to)}


def described(answer: type[Message], *errors: int) -> dict[str, Any]:
    """What a route says of its answer, and of the statuses of its errors besides 500."""
    content = {"application/json": {"schema": schema_of(answer.DESCRIPTOR)}}
    return {
        "response_class": JSONResponse,
        "responses": {
            200: {"description": "The answer.", "content": content},
            **problems(*errors, 401, 403, 500),
        },
    }
