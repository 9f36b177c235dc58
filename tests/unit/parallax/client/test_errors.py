"""One table says what every error is called on the wire, and the way back gives the same class."""

from __future__ import annotations

import grpc
import pytest

from parallax import errors
from parallax.client.status import CLASSES, CODE_KEY, STATUSES, code_of, status_of, to_domain
from parallax.client.targets import _AllAwayError
from parallax.errors import LimitError, ParallaxError, ServiceUnavailableError, UnknownTopicError


def _every_class() -> list[type[ParallaxError]]:
    found = [ParallaxError]
    for base in found:
        found += base.__subclasses__()
    return [item for item in dict.fromkeys(found) if item.__module__ == errors.__name__]


class _Failed(grpc.RpcError):
    """What a failed call looks like to its caller."""

    def __init__(
        self, status: grpc.StatusCode, details: str, metadata: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self._parts = (status, details, metadata)

    def code(self) -> grpc.StatusCode:
        return self._parts[0]

    def details(self) -> str:
        return self._parts[1]

    def trailing_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._parts[2]


def test_every_error_has_a_status() -> None:
    assert set(_every_class()) == set(STATUSES)


def test_every_code_is_one_class() -> None:
    assert len(CLASSES) == len(STATUSES)


@pytest.mark.parametrize("kind", _every_class(), ids=lambda kind: kind.__name__)
def test_the_way_back_gives_the_same_class(kind: type[ParallaxError]) -> None:
    sent = kind("what went wrong")
    failed = _Failed(status_of(sent).grpc, str(sent), ((CODE_KEY, sent.code),))

    received = to_domain(failed)

    assert type(received) is kind
    assert str(received) == "what went wrong"


def test_a_subclass_of_another_package_has_the_status_of_its_base() -> None:
    class _SpecialError(UnknownTopicError):
        pass

    assert status_of(_SpecialError("x")) == STATUSES[UnknownTopicError]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, ServiceUnavailableError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, LimitError),
        (grpc.StatusCode.DATA_LOSS, ParallaxError),
    ],
)
def test_a_status_without_our_code_is_the_nearest_class(
    status: grpc.StatusCode, kind: type[ParallaxError]
) -> None:
    failed = _Failed(status, "from a proxy")

    assert code_of(failed) is None
    assert type(to_domain(failed)) is kind


@pytest.mark.parametrize(
    ("details", "kind"),
    [
        ("Concurrent RPC limit exceeded!", ServiceUnavailableError),
        ("CLIENT: Received message larger than max (5 vs. 4)", LimitError),
    ],
)
def test_busy_services_may_answer_later_and_too_large_an_answer_never(
    details: str, kind: type[ParallaxError]
) -> None:
    away = _AllAwayError({"a:1": _Failed(grpc.StatusCode.RESOURCE_EXHAUSTED, details)})
    assert type(away.final("GetGroupFailoverOffsets")) is kind
