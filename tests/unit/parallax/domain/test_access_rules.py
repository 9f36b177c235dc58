"""Which rules of access a target takes: what draws seldom meet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parallax.domain.access_rules import (
    AccessKind,
    AccessOperation,
    AccessPolicy,
    AccessRule,
    AccessState,
    NameMatch,
    SourceAccess,
    wanted_rules,
)
from parallax.domain.ids import RegionName, TopicName

READS = AccessRule(
    AccessKind.TOPIC, NameMatch.LITERAL, "trips", "User:reader", "*", AccessOperation.READ, allow=True
)
TRIPS = {TopicName("trips"): TopicName("trips")}


@pytest.mark.parametrize("principal", ["User:*", "User:parallax"])
def test_the_replicator_does_not_lock_itself_out(principal: str) -> None:
    forbids = replace(READS, principal=principal, operation=AccessOperation.WRITE, allow=False)
    policy = AccessPolicy(own=frozenset({"User:parallax"}))
    wanted = wanted_rules({RegionName("a"): SourceAccess({READS, forbids}, TRIPS)}, policy)
    assert wanted.rules == {READS}
    assert [(item.rule, item.state) for item in wanted.findings] == [(forbids, AccessState.ACL_WITHHELD)]


def test_what_everybody_is_forbidden_is_not_allowed_either() -> None:
    forbids = replace(READS, principal="User:*", allow=False)
    wanted = wanted_rules({RegionName("a"): SourceAccess({READS, forbids}, TRIPS)}, AccessPolicy())
    assert not wanted.rules


def test_rules_about_groups_that_begin_so_are_left_out_where_none_is_copied() -> None:
    prefixed = replace(READS, kind=AccessKind.GROUP, match=NameMatch.PREFIXED, name="bill")
    sources = {RegionName("a"): SourceAccess({prefixed}, TRIPS)}
    assert wanted_rules(sources, AccessPolicy(groups=True)).rules == {prefixed}
    assert not wanted_rules(sources, AccessPolicy(groups=True, prefixed=False)).rules
