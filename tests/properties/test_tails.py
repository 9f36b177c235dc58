"""Turns that are read one after the other are put in order as those that are read at once."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from parallax.domain.block_rows import encode_turn
from parallax.domain.blocks import encode
from parallax.domain.ids import Route, SourceOffset, TargetOffset
from parallax.domain.runs import Run
from parallax.index import tails as tails_module
from parallax.index.tails import Tails
from tests.memory.blocks import MemoryBlockStore

ROUTE = Route.parse("a->b")
LEASES = [(1, 0), (1, 1), (2, 0)]
LINEAGE = 7


def play(seeds: range) -> int:
    """Owners tell what they commit, mostly each its own, sometimes what another one has told; how many pieces there were."""
    compared = 0
    for seed in seeds:
        chance = Random(seed)
        store = MemoryBlockStore()
        tails, upto, at = Tails(store), dict.fromkeys(LEASES, 0), 0
        leases = LEASES[: chance.randint(1, 2)]
        for lease in leases:
            store.begin_term(ROUTE, *lease)
        relaid = chance.choice([None, 10, 20])
        for number in range(30):
            if number == relaid:  # nobody tells anything by the former layout any more
                leases = LEASES[2:]
                store.begin_term(ROUTE, *leases[0])
            lease = chance.choice(leases[:1] * 5 + leases)
            at = at + chance.randint(0, 3) if chance.random() < 0.9 else max(0, at - chance.randint(0, 9))
            rows = []
            for _ in range(chance.randint(1, 2)):
                rows.append(
                    Run(SourceOffset(at), TargetOffset(at), chance.choice([0, 0, 2]), SourceOffset(at), 0)
                )
                at += rows[-1].count
            upto[lease] += 1
            store.write_turn(
                ROUTE,
                *lease,
                upto[lease],
                encode_turn(number, number, {LINEAGE: encode(rows, number)}),
            )
            if chance.random() < 0.05:
                store.save_blocks_to(ROUTE, *lease, 1, upto[lease])
            tails.refresh([ROUTE])
            at_once = Tails(store)
            at_once.refresh([ROUTE])
            layout, pieces = tails.pieces(ROUTE, LINEAGE)
            right, expected = at_once.pieces(ROUTE, LINEAGE)
            assert (layout, [_said(item) for item in pieces]) == (right, [_said(item) for item in expected])
            compared += len(pieces)
    return compared


def _said(piece: tails_module.TurnRows) -> tuple[object, ...]:
    return (*piece.start, *piece.last, piece.committed_at_ms)


def test_one_after_the_other_or_at_once() -> None:
    assert play(range(150)) > 10_000


def _always_last(self: Tails, asked: Any, number: int, piece: Any) -> None:
    known = self._in_order[asked.route].get(number)
    if known is not None:
        known[1].append(piece)


def _never(self: Tails, *_: object) -> None:
    del self


@pytest.mark.parametrize("wrong", [_always_last, _never])
def test_mutants_die(wrong: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tails, "_add_in_order", wrong)
    with pytest.raises(AssertionError):
        play(range(150))
