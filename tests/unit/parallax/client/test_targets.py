"""Which calls go on to the next service, and which may have begun where nobody answered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import cast

import grpc
import pytest

from parallax.client.targets import MOVE_SERVICE, Targets
from parallax.errors import DeadlineError, ServiceUnavailableError
from parallax.runtime.retry import RetryPolicy
from parallax.v1 import moves_pb2


@contextmanager
def service(asked: list[str], go_on: threading.Event | None = None) -> Iterator[str]:
    """One that answers every call of a move, but for the first one until it may go on."""
    with serving(asked, go_on, refused=0) as target:
        yield target


@contextmanager
def serving(asked: list[str], go_on: threading.Event | None, *, refused: int) -> Iterator[str]:
    """One that refuses so many calls before."""

    def answer(_request: object, context: grpc.ServicerContext) -> moves_pb2.MoveStatus:
        asked.append("asked")
        if len(asked) <= refused:
            context.abort(grpc.StatusCode.UNAVAILABLE, "it goes")
        if go_on is not None:
            go_on.wait(20)
        return moves_pb2.MoveStatus(state="running")

    methods = {
        name: grpc.unary_unary_rpc_method_handler(
            answer, moves_pb2.GetMoveRequest.FromString, moves_pb2.MoveStatus.SerializeToString
        )
        for name in ("ExecuteMove", "RollBackMove", "GetMove")
    }
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(MOVE_SERVICE, methods),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(None).wait(20)


@pytest.mark.parametrize(
    ("method", "next_asked"), [("ExecuteMove", False), ("RollBackMove", False), ("GetMove", True)]
)
def test_a_move_that_may_have_begun_is_begun_nowhere_else(method: str, next_asked: bool) -> None:  # noqa: FBT001 - given
    first: list[str] = []
    second: list[str] = []
    go_on = threading.Event()
    with service(first, go_on) as slow, service(second) as other:
        targets = Targets([slow, other], RetryPolicy(), None)
        try:
            request = moves_pb2.GetMoveRequest(group="g", move_id="m")
            if next_asked:
                assert targets.call(method, request, moves_pb2.MoveStatus, 3_000).state == "running"
            else:
                with pytest.raises(DeadlineError):
                    targets.call(method, request, moves_pb2.MoveStatus, 3_000)
            assert (len(first), bool(second)) == (1, next_asked)
        finally:
            go_on.set()
            targets.close()


def test_an_attempt_that_begins_too_late_does_not_hide_why_services_did_not_answer() -> None:
    asked: list[str] = []
    go_on = threading.Event()
    wait_ms = RetryPolicy(400, 400, random=cast("Random", SimpleNamespace(uniform=max)))
    with serving(asked, go_on, refused=1) as target:
        targets = Targets([target], wait_ms, None)
        try:
            with pytest.raises(ServiceUnavailableError, match="it goes"):
                targets.call("GetMove", moves_pb2.GetMoveRequest(), moves_pb2.MoveStatus, 500)
            assert len(asked) == 2
        finally:
            go_on.set()
            targets.close()
