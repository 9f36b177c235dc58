"""What a broker's answer says has become of each rule of access."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.admin import CreateAclsResponse, DeleteAclsResponse

from parallax.adapters.kafka.access_rules import _add, _remove
from parallax.adapters.kafka.links import Link
from parallax.domain.access_rules import AccessKind, AccessOperation, AccessRule, NameMatch
from parallax.domain.ids import ClusterName
from parallax.errors import ClusterUnavailableError, ConfigError

TIMED_OUT, NOT_ALLOWED, NOT_CONTROLLER, INVALID_REQUEST, UNKNOWN = 7, 31, 41, 42, -1
RULES = [
    AccessRule(
        AccessKind.TOPIC, NameMatch.LITERAL, topic, "User:reader", "*", AccessOperation.READ, allow=True
    )
    for topic in ("rides", "trips")
]


class Broker:
    """Stands for `Link`: answers as the library would decode it."""

    cluster = ClusterName("aggregate-b")
    any_node = None

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def ask(self, *_asked: object) -> Any:
        return self._answer

    def check(self, code: int, doing: str) -> None:
        Link.check(self, code, doing)  # type: ignore[arg-type] # it asks for the name alone


def deleted(*errors: tuple[int, str | None]) -> Broker:
    """Each filter is well, and has met one rule that ended so."""
    of = DeleteAclsResponse.DeleteAclsFilterResult
    results = [
        of(
            error_code=0,
            error_message=None,
            matching_acls=[of.DeleteAclsMatchingAcl(error_code=code, error_message=message)],
        )
        for code, message in errors
    ]
    return Broker(SimpleNamespace(filter_results=results))


def made(*errors: tuple[int, str | None]) -> Broker:
    of = CreateAclsResponse.AclCreationResult
    return Broker(
        SimpleNamespace(results=[of(error_code=code, error_message=message) for code, message in errors])
    )


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("no such host", "aggregate-b: no such host (InvalidRequestError)"),
        (None, "aggregate-b: making rules of access (InvalidRequestError)"),
    ],
)
def test_a_rule_that_the_cluster_does_not_take_is_told_apart(message: str | None, why: str) -> None:
    broker: Any = made((INVALID_REQUEST, message), (0, None))
    assert _add(broker, RULES) == {RULES[0]: why}


@pytest.mark.parametrize("code", [TIMED_OUT, NOT_CONTROLLER, UNKNOWN])
def test_after_an_error_that_decides_nothing_a_rule_counts_as_made(code: int) -> None:
    """It stays written down as ours: else nobody would take it away, were it made."""
    broker: Any = made((0, None), (code, "The request timed out."))
    with pytest.raises(ClusterUnavailableError):
        _add(broker, RULES)


def test_a_rule_that_was_met_and_not_deleted_is_not_gone() -> None:
    broker: Any = deleted((0, None), (INVALID_REQUEST, "it stays"))
    assert _remove(broker, RULES) == {RULES[1]: "aggregate-b: it stays (InvalidRequestError)"}


def test_rules_that_this_client_may_not_delete_are_no_matter_of_single_ones() -> None:
    broker: Any = deleted((0, None), (NOT_ALLOWED, "Request is not authorized"))
    with pytest.raises(ConfigError):
        _remove(broker, RULES)


def test_a_rule_that_is_gone_already_is_no_matter() -> None:
    nothing = DeleteAclsResponse.DeleteAclsFilterResult(error_code=0, error_message=None, matching_acls=[])
    broker: Any = Broker(SimpleNamespace(filter_results=[nothing, nothing]))
    assert _remove(broker, RULES) == {}
