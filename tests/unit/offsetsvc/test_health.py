"""What gRPC's health tells is looked at again and again, whatever a look ends with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from grpc_health.v1 import health_pb2
from structlog.testing import capture_logs

from offsetsvc.transport.grpc_server import _watch_health

Status = health_pb2.HealthCheckResponse


def test_a_look_that_meets_a_defect_is_told_of_and_the_next_one_comes() -> None:
    looks: list[Any] = [[], RuntimeError("nobody thought of this"), ["store"]]
    told: dict[str, list[Any]] = {}

    def missing() -> Any:
        found = looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    service = SimpleNamespace(missing=missing, dependencies=lambda: ["store", "aggregate-a"])
    servicer = SimpleNamespace(set=lambda name, status: told.setdefault(name, []).append(status))
    stopping = SimpleNamespace(wait=lambda _seconds: not looks)
    with capture_logs() as logs:
        _watch_health(cast("Any", service), servicer, cast("Any", stopping))
    assert told["store"] == told[""] == [Status.SERVING, Status.NOT_SERVING]
    assert told["aggregate-a"] == [Status.SERVING] * 2
    assert [(line["event"], line["log_level"]) for line in logs] == [("health_unknown", "error")]
