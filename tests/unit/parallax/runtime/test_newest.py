"""What was used last is remembered, up to a weight."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallax.runtime.newest import Newest


def test_what_was_used_last_stays() -> None:
    newest: Newest[str, int] = Newest(2)
    newest.put("a", 1)
    newest.put("b", 2)
    assert newest.get("a") == 1
    newest.put("c", 3)
    assert [newest.get(key) for key in "abc"] == [1, None, 3]


def test_what_belongs_together_stays_however_much_it_is() -> None:
    newest: Newest[str, int] = Newest(10, lambda value: value)
    newest.put("before", 4)
    newest.put_all({"a": 9, "b": 9})
    assert [newest.get(key) for key in ("before", "a", "b")] == [None, 9, 9]
    newest.put("c", 1)
    assert [newest.get(key) for key in "abc"] == [None, 9, 1]


def test_only_what_is_known_is_replaced() -> None:
    newest: Newest[str, list[int]] = Newest(10, len)
    first, second = [1], [2, 2]
    newest.put("a", first)
    newest.replace("a", first, second)
    newest.replace("a", first, [3])
    newest.replace("b", first, [4])
    assert (newest.get("a"), newest.get("b")) == (second, None)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 7), st.booleans()), max_size=60),
    st.integers(5, 20),
)
def test_it_weighs_what_is_in_it(steps: list[tuple[int, int, bool]], most: int) -> None:
    newest: Newest[int, list[int]] = Newest(most, len)
    order: dict[int, list[int]] = {}
    for key, weight, look in steps:
        if look:
            found = newest.get(key)
            assert found == order.get(key)
            if found is not None:
                order[key] = order.pop(key)
            continue
        order.pop(key, None)
        order[key] = value = [key] * weight
        newest.put(key, value)
        while sum(map(len, order.values())) > most and len(order) > 1:
            del order[next(iter(order))]
    assert [newest.get(key) for key in range(6)] == [order.get(key) for key in range(6)]


def test_a_weight_that_is_never_taken_off_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def put(self: Newest[int, list[int]], key: int, value: list[int]) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        self._weight += len(value)

    monkeypatch.setattr(Newest, "_put", put)
    with pytest.raises(AssertionError):
        test_it_weighs_what_is_in_it()
