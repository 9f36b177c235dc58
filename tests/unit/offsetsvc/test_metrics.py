"""Requests are counted and timed; watches, which last by design, are counted alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Any, cast

import grpc
import pytest

from offsetsvc.metrics import ServiceMetrics
from offsetsvc.transport.access import Access
from offsetsvc.transport.grpc_server import GrpcCalls
from offsetsvc.transport.handlers import Handlers
from parallax.config.auth import Auth, Jwt
from parallax.domain.ids import ClusterName
from parallax.errors import UnknownTopicError
from parallax.identity.identity import ASKS_NOBODY, Identity
from parallax.v1 import offsets_pb2, primaries_pb2
from tests.support import poll_until
from tests.worlds.authority import Issuer, serving_document
from tests.worlds.offset_world import TOPIC, World


class _Context:
    """As much of a call as the methods ask of it."""

    def time_remaining(self) -> float | None:
        return None

    def add_callback(self, _: Callable[[], None]) -> bool:
        return True


CONTEXT = cast("grpc.ServicerContext", _Context())


def counted(metrics: ServiceMetrics, method: str, code: str) -> float | None:
    labels = {"transport": "grpc", "method": method, "code": code}
    return metrics.registry.get_sample_value("parallax_offsetsvc_requests_total", labels)


def timed(metrics: ServiceMetrics, method: str) -> float | None:
    labels = {"transport": "grpc", "method": method}
    return metrics.registry.get_sample_value("parallax_offsetsvc_request_duration_seconds_count", labels)


def test_a_request_is_counted_and_timed() -> None:
    metrics = ServiceMetrics()
    with metrics.request("grpc", "ListRuns"):
        pass
    with pytest.raises(UnknownTopicError), metrics.request("grpc", "ListRuns"):
        raise UnknownTopicError("tripz")

    assert counted(metrics, "ListRuns", "OK") == 1
    assert counted(metrics, "ListRuns", "UNKNOWN_TOPIC") == 1
    assert timed(metrics, "ListRuns") == 2


def test_watches_are_counted_and_not_timed() -> None:
    world, metrics, stopping = World(), ServiceMetrics(), threading.Event()
    stopping.set()  # each watch ends after its first message
    with world.service() as service:
        handlers = Handlers(service, metrics)
        calls = GrpcCalls(metrics, Access(ASKS_NOBODY), service.config.service.deadline_ms, stopping, most=1)
        watch_primary, watch_skips = calls.watch(handlers.WatchPrimary), calls.watch(handlers.WatchSkips)
        followed = primaries_pb2.WatchPrimaryRequest(group="billing")
        moved = offsets_pb2.WatchSkipsRequest(topic=TOPIC, at=offsets_pb2.Place(region="b"))
        moved.target_topic_id = world.clusters[ClusterName("aggregate-b")].topics()[TOPIC].topic_id
        assert len(list(watch_primary(followed, CONTEXT))) == 1
        left = watch_primary(followed, CONTEXT)
        next(left)
        cast("Generator[Any]", left).close()
        (update,) = watch_skips(moved, CONTEXT)

    assert not update.HasField("complete_to")
    assert counted(metrics, "WatchPrimary", "OK") == 1
    assert counted(metrics, "WatchPrimary", "CANCELLED") == 1
    assert counted(metrics, "WatchSkips", "OK") == 1
    assert timed(metrics, "WatchPrimary") is None
    assert timed(metrics, "WatchSkips") is None


def test_how_old_the_keys_of_an_issuer_are_is_told() -> None:
    metrics, name = ServiceMetrics(), "parallax_offsetsvc_issuer_keys_age_ms"
    with World().service() as service, serving_document(Issuer().document) as (address, _):
        jwt = Jwt(issuer="https://issuer.test", audience="parallax", jwks=address)
        metrics.watch(service, Identity(Auth(mode="jwt", jwt=jwt)))
        age_ms = poll_until(lambda: metrics.registry.get_sample_value(name), 5, "the first keys")
    assert 0 < age_ms < 60_000
    quiet = ServiceMetrics()
    with World().service() as service:
        quiet.watch(service)
        assert quiet.registry.get_sample_value(name) is None
