"""Several processes that answer at one address: what rests on the memory of one is passed on to the first of them.

Moves and drills under way, and lags as they went, are in one process' memory. Which process takes a connection is the system's choice, so that
the others pass such calls on, over a socket in a folder that only their account can open, with whom they have let in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from offsetsvc.transport.handlers import Call, Handlers
from parallax.client.status import to_domain
from parallax.client.targets import MAX_MESSAGE_BYTES, MAX_REQUEST_BYTES
from parallax.domain.rights import Principal, ProvenBy
from parallax.runtime.tracing import sent
from parallax.v1 import moves_pb2, offsets_pb2, overview_pb2

_WHOSE = "parallax-principal-bin"
_OPTIONS = (
    ("grpc.max_send_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)

PASSED_ON: Sequence[MethodDescriptor] = (
    *moves_pb2.DESCRIPTOR.services_by_name["MoveService"].methods,
    *overview_pb2.DESCRIPTOR.services_by_name["OverviewService"].methods,
    offsets_pb2.DESCRIPTOR.services_by_name["OffsetService"].methods_by_name["GetGroupPositions"],
)
"""Calls that the first process alone answers."""


@dataclass(frozen=True, slots=True)
class Among:
    """One of several processes that answer at one address.

    Attributes:
        socket: where the first one takes what the others pass on.
        is_first: whether it is that.
    """

    socket: Path
    is_first: bool

    @property
    def address(self) -> str:
        """The socket, as gRPC names it."""
        return f"unix:{self.socket}"


def is_passed_on(context: grpc.ServicerContext) -> bool:
    """Whether a call was taken by another process of this host: only such ones come over a socket that has no port."""
    return str(context.peer()).startswith("unix:")


def whose(context: grpc.ServicerContext) -> Principal:
    """Whom the process that passes a call on has let in."""
    told = next(value for key, value in context.invocation_metadata() or () if key == _WHOSE)
    values = json.loads(told)
    return Principal(**{**values, "proven_by": ProvenBy(values["proven_by"])})


class PassingOn:
    """The handlers of a process that is not the first: some of their calls are passed on.

    Args:
        own: answer the others.
        among: where the first process is.
    """

    def __init__(self, own: Handlers, among: Among) -> None:
        self._own = own
        self._channel = grpc.insecure_channel(among.address, options=_OPTIONS)
        self._passed_on = {method.name: self._passing_on(method) for method in PASSED_ON}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The handler of a call."""
        found: Callable[..., Any] = self._passed_on.get(name) or getattr(self._own, name)
        return found

    def close(self) -> None:
        """Pass nothing on any more."""
        self._channel.close()

    def _passing_on(self, method: MethodDescriptor) -> Callable[[Message, Call], Message]:
        ask = self._channel.unary_unary(
            f"/{method.containing_service.full_name}/{method.name}",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )

        def handler(request: Message, call: Call) -> Message:
            try:
                answer: Message = ask(
                    request, timeout=call.deadline.remaining_s, metadata=_metadata(call.caller.principal)
                )
            except grpc.RpcError as error:
                raise to_domain(error) from error
            return answer

        handler.__name__ = method.name
        return handler


def _metadata(principal: Principal) -> tuple[tuple[str, str | bytes], ...]:
    told = json.dumps({**asdict(principal), "proven_by": principal.proven_by.value})
    return ((_WHOSE, told.encode()), *sent())
