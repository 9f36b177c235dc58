"""Tasks of an epoch exchange leases, and still each lease is held by one."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallax.domain.ids import RegionName, Route
from replicator import aggregate
from replicator.aggregate import AggregateHolder
from replicator.claims import Claims
from replicator.lease import Lease
from replicator.lease_source import LeaseKey
from replicator.progress import ProgressBoard
from replicator.reporter import StatusTarget
from replicator.status_server import StatusServer

A_TO_B = Route(RegionName("a"), RegionName("b"))
B_TO_B = Route(RegionName("b"), RegionName("b"))
A_TO_A = Route(RegionName("a"), RegionName("a"))
KEYS = [LeaseKey(route, shard) for route in (A_TO_B, B_TO_B) for shard in (0, 1)]
ELSEWHERE = [LeaseKey(A_TO_A, shard) for shard in (0, 1)]
EVERY = [*KEYS, *ELSEWHERE]


ATTEMPTS = map(str, itertools.count())


def grant(claims: Claims, given: Lease, copied: Collection[LeaseKey], attempt: str = "") -> LeaseKey:
    return claims.grant(given, copied, attempt or next(ATTEMPTS))


def lease(key: LeaseKey, epoch: int = 1) -> Lease:
    return Lease(key.route, key.shard, 2, layout=7, epoch=epoch, deadline_unix_ms=epoch * 1_000)


@given(
    st.permutations(KEYS),
    st.lists(st.sets(st.sampled_from(EVERY), max_size=2), min_size=4, max_size=4),
    st.lists(st.integers(0, 3), max_size=3),
)
def test_whatever_they_copy_every_lease_is_held_by_one_task(
    order: list[LeaseKey], copied: list[set[LeaseKey]], again: list[int]
) -> None:
    claims = Claims(EVERY)
    granted = {key: grant(claims, lease(key), copied[number]) for number, key in enumerate(order)}
    assert sorted(granted.values()) == KEYS
    for number in again:
        granted[order[number]] = grant(claims, lease(order[number]), [])
        assert sorted(granted.values()) == KEYS


@given(st.permutations(KEYS), st.permutations(KEYS))
def test_processes_that_copy_all_shards_keep_them(order: list[LeaseKey], places: list[LeaseKey]) -> None:
    claims = Claims(EVERY)
    assert [grant(claims, lease(key), [copied]) for key, copied in zip(order, places, strict=True)] == places


def test_a_task_of_a_new_process_holds_what_it_was_given() -> None:
    claims = Claims(EVERY)
    assert [grant(claims, lease(key), []) for key in reversed(KEYS)] == KEYS[::-1]
    assert grant(claims, lease(ELSEWHERE[1]), []) == ELSEWHERE[1]


def test_one_that_comes_again_holds_what_it_was_given_if_nobody_else_does() -> None:
    claims = Claims(EVERY)
    first, second = KEYS[:2]
    assert grant(claims, lease(first), [second]) == second
    assert grant(claims, lease(first), [second]) == first
    assert grant(claims, lease(second), []) == second
    assert grant(claims, lease(first), [second]) == first


def test_who_did_not_hear_the_answer_gets_it_again() -> None:
    claims = Claims(EVERY)
    first, second = KEYS[:2]
    assert [grant(claims, lease(first), [second], "x") for _ in range(3)] == [second] * 3
    assert grant(claims, lease(second), []) == first
    assert grant(claims, lease(first), [second], "x") == second
    assert grant(claims, lease(first), [second], "y") == second  # started again, but nothing else is free


def test_each_epoch_is_given_out_anew_and_the_one_before_is_over() -> None:
    claims = Claims(EVERY)
    first, second = KEYS[:2]
    assert grant(claims, lease(first), [second]) == second
    assert grant(claims, lease(first, epoch=2), []) == first
    assert grant(claims, lease(second, epoch=1), [first]) == second
    assert grant(claims, lease(second, epoch=2), [first]) == second


def test_a_lease_that_is_not_known_is_left_as_it_is() -> None:
    assert grant(Claims([]), lease(KEYS[0]), KEYS) == KEYS[0]


class Going:
    """Stands for a holding."""

    def __init__(self, *, lasts: bool) -> None:
        self.lasts = lasts


def claimed(
    server: StatusServer | None, key: LeaseKey, copied: dict[LeaseKey, bool], monkeypatch: pytest.MonkeyPatch
) -> Lease:
    """What a task of a process holds that copies these; whether what it copies lasts."""
    host, port = ("127.0.0.1", 9) if server is None else server.address
    holder = AggregateHolder(None, StatusTarget(host, port, "token"), "b", {A_TO_B: 7, B_TO_B: 8})  # type: ignore[arg-type] # not looked at
    monkeypatch.setattr(
        aggregate, "_holdings", {key: (holder, Going(lasts=lasts)) for key, lasts in copied.items()}
    )
    return holder._claimed(lease(key))


def test_a_task_asks_the_driver_which_lease_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    server = StatusServer("127.0.0.1:0", ProgressBoard(KEYS), token="token", claims=Claims(KEYS))  # noqa: S106 - a test's own
    server.start()
    try:
        first, _, third, fourth = KEYS
        kept = claimed(server, first, {third: True, fourth: False}, monkeypatch)
        assert kept == replace(lease(first), route=third.route, shard=third.shard, layout=8)
        assert claimed(server, third, {fourth: False}, monkeypatch) == lease(first)
    finally:
        server.close()


def test_without_the_driver_a_task_holds_what_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert claimed(None, KEYS[0], {KEYS[1]: True}, monkeypatch) == lease(KEYS[0])
