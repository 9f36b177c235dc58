"""What gRPC is told of certificates: nothing while they are the same, and of others only once no handshake hangs on those."""

from __future__ import annotations

from parallax.identity.tls import HANDSHAKE_BEGINS_S, HandedOver


class _Waits:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.waited_s: list[float] = []

    def rest(self, seconds: float) -> None:
        self.waited_s.append(seconds)
        self.now_s += seconds


def test_the_same_certificates_are_not_handed_over_again() -> None:
    first, waits = object(), _Waits()
    handed = HandedOver(first, lambda: first, lambda: waits.now_s, waits.rest)

    assert [handed.newer() for _ in range(3)] == [None, None, None]
    assert waits.waited_s == []


def test_others_are_handed_over_once_and_long_after_the_last_handshake_began() -> None:
    first, second, waits = object(), object(), _Waits()
    present = [first]
    handed = HandedOver(first, lambda: present[0], lambda: waits.now_s, waits.rest)
    handed.newer()
    waits.now_s += HANDSHAKE_BEGINS_S / 4
    present[0] = second

    assert handed.newer() is second
    assert waits.waited_s == [HANDSHAKE_BEGINS_S * 3 / 4]
    assert handed.newer() is None


def test_nobody_waits_where_the_last_handshake_is_long_over() -> None:
    first, second, waits = object(), object(), _Waits()
    present = [first]
    handed = HandedOver(first, lambda: present[0], lambda: waits.now_s, waits.rest)
    waits.now_s += HANDSHAKE_BEGINS_S
    present[0] = second

    assert handed.newer() is second
    assert waits.waited_s == [0.0]
