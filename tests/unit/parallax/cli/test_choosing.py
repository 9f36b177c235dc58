"""Entries of lists are chosen and sorted by their fields."""

from __future__ import annotations

import pytest

from parallax.cli.choosing import choice_of
from parallax.errors import InvalidNameError

ROWS = [
    {
        "name": "b",
        "lag": 9,
        "sync": {"outcome": "OK", "reasons": [{"reason": "late", "count": 2}]},
        "at": ["x", "y"],
    },
    {"name": "a", "lag": 10, "sync": {"outcome": "STALE", "reasons": []}, "at": []},
    {"name": "c", "lag": None, "sync": None, "at": ["y"]},
    {"name": "", "lag": 0, "sync": {"outcome": "OK", "reasons": []}, "at": [], "ended": True},
]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (["name=a"], [1]),
        (["name!=a"], [0, 2, 3]),
        (["name="], [3]),
        (["name!="], [0, 1, 2]),
        (["name~^[ab]$"], [0, 1]),
        (["lag>9"], [1]),
        (["lag<9.5"], [0, 3]),
        (["lag=0"], [3]),
        (["lag="], [2]),
        (["sync.outcome=OK"], [0, 3]),
        (["sync.outcome!=OK"], [1, 2]),
        (["sync.reasons.reason=late"], [0]),
        (["sync.reasons.count>1"], [0]),
        (["at=y"], [0, 2]),
        (["at="], [1, 3]),
        (["ended=true"], [3]),
        (["sync.outcome=OK", "lag>0"], [0]),
        (["name=a=b"], []),
        (["sync=x"], []),
    ],
)
def test_filters(filters: list[str], found: list[int]) -> None:
    assert choice_of(filters, "").of(ROWS) == [ROWS[number] for number in found]


@pytest.mark.parametrize(
    ("sort", "found"),
    [
        ("name", [1, 0, 2, 3]),
        ("-name", [2, 0, 1, 3]),
        ("lag", [3, 0, 1, 2]),
        ("-lag", [1, 0, 3, 2]),
        ("sync.outcome", [0, 3, 1, 2]),
        ("-sync.outcome", [1, 0, 3, 2]),
        ("", [0, 1, 2, 3]),
    ],
)
def test_unknown_comes_last_and_equals_keep_their_order(sort: str, found: list[int]) -> None:
    assert choice_of(None, sort).of(ROWS) == [ROWS[number] for number in found]


@pytest.mark.parametrize("text", ["", "name", "=a", "lag>many", "name~(", "na me=a"])
def test_what_can_not_be_read_is_told(text: str) -> None:
    with pytest.raises(InvalidNameError, match="--filter"):
        choice_of([text], "")


@pytest.mark.parametrize(("filters", "sort"), [(["nam=a"], ""), ([], "-sync.outcom"), (["name.first=a"], "")])
def test_a_field_that_no_entry_has_is_told_with_those_that_there_are(filters: list[str], sort: str) -> None:
    with pytest.raises(
        InvalidNameError, match=r"there are: at, ended, lag, name, sync, sync\.outcome, sync\.reasons"
    ):
        choice_of(filters, sort).of(ROWS)


def test_of_nothing_there_is_nothing() -> None:
    assert choice_of(["name=a"], "lag").of([]) == []


def test_a_field_below_what_is_unknown_everywhere_may_be_there() -> None:
    assert choice_of(["sync.outcome=OK"], "sync.outcome").of([{"name": "c", "sync": None}]) == []
