"""Tasks of an epoch exchange leases, and still each lease is held by one."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallax.adapters.spark.reporting import StatusTarget
from parallax.adapters.spark.status_server import StatusServer
from parallax.domain.ids import RegionName, Route
from replicator.lease import Lease, LeaseKey
from replicator.leases import claims as claims_module
from replicator.leases import query as query_module
from replicator.leases.board import ProgressBoard
from replicator.leases.claims import TOGETHER_WITHIN_S, Claims, exchanged
from replicator.leases.query import AggregateHolder
from replicator.leases.status import ReplicationStatus

A_TO_B = Route(RegionName("a"), RegionName("b"))
B_TO_B = Route(RegionName("b"), RegionName("b"))
A_TO_A = Route(RegionName("a"), RegionName("a"))
KEYS = [LeaseKey(route, shard) for route in (A_TO_B, B_TO_B) for shard in (0, 1)]
ELSEWHERE = [LeaseKey(A_TO_A, shard) for shard in (0, 1)]
EVERY = [*KEYS, *ELSEWHERE]


def lease(key: LeaseKey, epoch: int = 1) -> Lease:
    return Lease(key.route, key.shard, 2, layout=7, epoch=epoch, deadline_unix_ms=epoch * 1_000)


def begun() -> Claims:
    """Claims whose first epoch is over."""
    claims = Claims(EVERY)
    for key in EVERY:
        assert claims.grant(lease(key), KEYS) == key
    return claims


def together(
    claims: Claims, copied: Mapping[LeaseKey, Collection[LeaseKey]], epoch: int = 2
) -> dict[LeaseKey, LeaseKey]:
    """What tasks are granted that ask at once."""
    with ThreadPoolExecutor(len(copied)) as threads:
        asked = {key: threads.submit(claims.grant, lease(key, epoch), keys) for key, keys in copied.items()}
        return {key: future.result(timeout=10) for key, future in asked.items()}


@given(st.dictionaries(st.sampled_from(KEYS), st.sets(st.sampled_from(EVERY), max_size=2), min_size=1))
def test_whatever_they_copy_every_lease_is_held_by_one_task(copied: dict[LeaseKey, set[LeaseKey]]) -> None:
    granted = exchanged(copied)
    assert granted.keys() == copied.keys()
    assert sorted(granted.values()) == sorted(copied)
    holders = {key: task for task, key in granted.items()}
    for task, key in granted.items():
        if key not in copied[task]:
            assert all(other in copied[holders[other]] for other in copied[task] & copied.keys())


@given(st.permutations(KEYS), st.lists(st.sampled_from(KEYS), unique=True))
def test_processes_keep_what_they_copy_and_new_ones_take_the_rest(
    places: list[LeaseKey], new: list[LeaseKey]
) -> None:
    copied = {task: [] if task in new else [place] for task, place in zip(KEYS, places, strict=True)}
    granted = exchanged(copied)
    assert all(granted[task] == keys[0] for task, keys in copied.items() if keys)


def test_tasks_exchange_their_leases() -> None:
    first, second, third, fourth = KEYS
    copied = {first: [second], second: [first], third: [], fourth: [ELSEWHERE[0], fourth]}
    began_s = time.monotonic()
    assert together(begun(), copied) == {first: second, second: first, third: third, fourth: fourth}
    assert time.monotonic() - began_s < TOGETHER_WITHIN_S


def test_in_the_first_epoch_nobody_waits() -> None:
    assert Claims(EVERY).grant(lease(KEYS[0]), []) == KEYS[0]


def test_a_lease_whose_task_does_not_ask_in_time_goes_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_module, "TOGETHER_WITHIN_S", 0.1)
    first, second, third, fourth = KEYS
    claims = begun()
    copied = {first: [fourth], second: [third], third: [second]}
    assert together(claims, copied) == {first: first, second: third, third: second}
    assert claims.grant(lease(fourth, epoch=2), [first]) == fourth


def test_what_was_told_is_told_again() -> None:
    first, second, third, fourth = KEYS
    claims = begun()
    granted = together(claims, {first: [second], second: [third], third: [], fourth: []})
    for key in KEYS:
        assert claims.grant(lease(key, epoch=2), []) == granted[key]


def test_a_task_of_an_epoch_that_is_over_holds_what_it_was_given() -> None:
    claims = begun()
    together(claims, {key: [] for key in KEYS}, epoch=3)
    assert claims.grant(lease(KEYS[0], epoch=2), [KEYS[1]]) == KEYS[0]
    assert claims.grant(lease(ELSEWHERE[0]), [ELSEWHERE[1]]) == ELSEWHERE[0]


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000, 15 * 86_400_000, -15 * 86_400_000])
def test_tasks_exchange_their_leases_after_the_drivers_clock_was_stepped(step_ms: int) -> None:
    first, second, *_ = KEYS
    claims = begun()
    with ThreadPoolExecutor(2) as threads:
        stepped = [replace(lease(key, epoch=2), deadline_unix_ms=2_000 + step_ms) for key in (first, second)]
        asked = [
            threads.submit(claims.grant, given, [copied])
            for given, copied in zip(stepped, (second, first), strict=True)
        ]
        assert [future.result(timeout=10) for future in asked] == [second, first]


def test_a_lease_that_is_not_known_is_left_as_it_is() -> None:
    claims = Claims([])
    assert [claims.grant(lease(KEYS[0], epoch), KEYS) for epoch in (1, 2)] == [KEYS[0]] * 2


class Going:
    """Stands for a holding."""

    def __init__(self, *, lasts: bool) -> None:
        self.lasts = lasts


def claimed(
    server: StatusServer | None,
    key: LeaseKey,
    copied: dict[LeaseKey, bool],
    monkeypatch: pytest.MonkeyPatch,
    epoch: int = 2,
) -> Lease:
    """What a task of a process holds that copies these; whether what it copies lasts."""
    host, port = ("127.0.0.1", 9) if server is None else server.address
    holder = AggregateHolder(None, StatusTarget(host, port, "token"), "b", {A_TO_B: 7, B_TO_B: 8})  # type: ignore[arg-type] # not looked at
    monkeypatch.setattr(
        query_module, "_holdings", {key: (holder, Going(lasts=lasts)) for key, lasts in copied.items()}
    )
    return holder._claimed(lease(key, epoch))


def test_a_task_asks_the_driver_which_lease_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = Claims(KEYS)
    status = ReplicationStatus(ProgressBoard(KEYS), claims)
    server = StatusServer("127.0.0.1:0", [status], token="token")  # noqa: S106 - a test's own
    server.start()
    try:
        first, _, third, fourth = KEYS
        assert claimed(server, third, {}, monkeypatch, epoch=1) == replace(lease(third), layout=8)
        with ThreadPoolExecutor(1) as thread:
            other = thread.submit(claims.grant, lease(third, epoch=2), [])
            kept = claimed(server, first, {third: True, fourth: False}, monkeypatch)
            assert kept == replace(lease(first, epoch=2), route=third.route, shard=third.shard, layout=8)
            assert other.result() == first
    finally:
        server.close()


def test_without_the_driver_a_task_holds_what_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert claimed(None, KEYS[0], {KEYS[1]: True}, monkeypatch) == lease(KEYS[0], epoch=2)
