"""Groups that move between clusters which are written to and copied between, against a model that knows every record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any

import pytest

from offsetsvc.resume import call as call_module
from offsetsvc.resume.own import OwnRoutes, OwnRows, of_topic
from parallax.domain import own_log as own_log_module
from parallax.domain.history import History
from parallax.domain.ids import Lineage, SourceOffset, TargetOffset
from parallax.domain.own_log import OwnLog
from parallax.domain.progress import SourceHistory
from parallax.domain.runs import Run
from tests.worlds.own_world import GRAPHS, play

WORLDS = 25


class Rows(Enum):
    """What the index knows."""

    TOLD = "all told"
    LATE = "late, and logs lose their tails"


EXACT = [graph for graph in GRAPHS if graph != "two-way of three"]
"""Where the rows that lie on the two clusters of a move tell of all that was read: nothing is read twice."""


def violations(graph: str, rows: Rows, worlds: int) -> list[str]:
    """Those of the first world that has some."""
    for seed in range(worlds):
        found = list(play(seed, graph, told=rows is Rows.TOLD))
        if found:
            return [f"seed {seed}: {item}" for item in found]
    return []


@pytest.mark.parametrize("graph", EXACT)
def test_nothing_is_left_out_and_nothing_is_read_twice(graph: str) -> None:
    assert not violations(graph, Rows.TOLD, WORLDS)


@pytest.mark.parametrize("graph", GRAPHS)
def test_nothing_is_left_out_whatever_is_not_known_yet(graph: str) -> None:
    assert not violations(graph, Rows.LATE, WORLDS)


# --- mutants -------------------------------------------------------------------------------------------------------

Mutant = Callable[[pytest.MonkeyPatch], None]


def destination_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is produced at the destination is no source of it."""

    def mutant(*args: Any) -> OwnRoutes:
        return replace(of_topic(*args), produced=None)

    monkeypatch.setattr(call_module, "of_topic", mutant)


def copies_for_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that lies at the destination below the last own record that was consumed is taken for such records."""

    def mutant(rows: OwnRows, *_: Any) -> list[SourceHistory]:
        known = [item.history.newest for item in rows.known]
        end = max((row.source_end for row in known if row is not None), default=SourceOffset(0))
        run = Run(SourceOffset(0), TargetOffset(0), end, SourceOffset(0), 0)
        lineage = Lineage(rows.source.topic_id, rows.source.topic_id)
        return [SourceHistory(rows.source, History(lineage, [run]))]

    monkeypatch.setattr(OwnRows, "consumed_before", mutant)


def only_what_rows_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a group has read of a cluster's own records, and no route has copied yet, is not known."""
    monkeypatch.setattr(OwnRows, "read_to", lambda rows, *_: rows.known)


def rows_uncut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of what a cluster's log has lost count."""

    class Uncut(OwnLog):
        __slots__ = ()

        def __init__(self, lineage: Lineage, copied: Any, _end: Any = None, *more: Any) -> None:
            super().__init__(lineage, copied, None, *more)

    monkeypatch.setattr(own_log_module, "OwnLog", Uncut)


@pytest.mark.parametrize(
    ("mutant", "graph", "rows"),
    [
        (destination_left_out, "two-way", Rows.TOLD),
        (copies_for_own, "two-way", Rows.TOLD),
        (only_what_rows_tell, "two-way", Rows.TOLD),
        (rows_uncut, "two-way", Rows.LATE),
    ],
    ids=["destination left out", "copies for own", "only what rows tell", "rows uncut"],
)
def test_a_weaker_rule_is_seen(
    mutant: Mutant, graph: str, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    assert violations(graph, rows, 100)
