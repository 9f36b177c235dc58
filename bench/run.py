"""Plays rows one after another, each on brokers of its own, and adds up what they gave."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.catchup_row import CatchUpPlay
from bench.other_rows import play_answers, play_freshness, play_move, play_steady
from bench.report import is_void, machine, rows_of
from bench.results import Round, RoundStore
from bench.rows import (
    FAR_ROUND_TRIP_MS,
    JSON_128K,
    AnswersRow,
    CatchUpRow,
    FreshnessRow,
    MoveRow,
    Row,
    Settings,
    SteadyRow,
)
from bench.stage import Stage
from bench.view import View
from devstack.versions import load_versions

_GIT_TIMEOUT_S = 10.0
_CHECK = CatchUpRow("machine", (JSON_128K,), sides=("mirrormaker2",))
"""Tells whether the machine is busy, for rows that don't measure the first data set anyway."""


def rounds_of(row: Row, settings: Settings) -> int:
    """How many rounds of how many sides a row has."""
    if isinstance(row, AnswersRow):
        return settings.rounds
    return 2 if isinstance(row, MoveRow | FreshnessRow) else settings.rounds * len(row.sides)


@dataclass(frozen=True, slots=True)
class _Play:
    row: Row
    settings: Settings
    store: RoundStore


class Bench:
    """One run of the bench.

    Args:
        directory: `build/bench`.
        resume: go on with the rounds of an earlier run of the same commit and settings.
        view: shows what happens.
    """

    def __init__(self, directory: Path, view: View, *, resume: bool) -> None:
        self._directory, self._view, self._resume = directory, view, resume
        self._commit = commit()

    def play(self, rows: Sequence[tuple[Row, Settings]]) -> dict[str, Any]:
        """Play rows; returns the report of these rows.

        Raises:
            BenchError, DevstackError, ProduceRefusedError: something did not work. Rounds played are kept.
        """
        plays = [_Play(row, settings, self._store(row, settings)) for row, settings in rows]
        timed = [play for play in plays if not isinstance(play.row, MoveRow)]
        for play in plays:
            if isinstance(play.row, MoveRow):
                self._move(play.row, play)
        checks: list[Round] = []
        for regions, far_ms in dict.fromkeys(place_of(play.row) for play in timed):
            with Stage(self._directory / "stage", regions, self._view.tell, far_ms) as stage:
                for play in timed:
                    if place_of(play.row) == (regions, far_ms):
                        self._timed(stage, play)
                if not checks and not any(measures_first_data(play.row) for play in timed):
                    checks = self._check(stage, timed[0].settings)
        rounds = [item for play in plays for item in play.store.rounds]
        return self._report(rows[0][1], rounds, checks)

    def _move(self, row: MoveRow, play: _Play) -> None:
        if len(play.store.rounds) < 2:  # noqa: PLR2004 - one of each side
            with Stage(self._directory / "stage", regions_of(row), self._view.tell) as stage:
                play_move(stage, row, play.settings, play.store, self._view.tell)
        for _ in range(rounds_of(row, play.settings)):
            self._view.done()

    def _timed(self, stage: Stage, play: _Play) -> None:
        if isinstance(play.row, CatchUpRow):
            CatchUpPlay(stage, play.row, play.settings, play.store, self._view.tell).run(self._view.done)
        elif isinstance(play.row, SteadyRow):
            play_steady(stage, play.row, play.settings, play.store, self._view.tell, self._view.done)
        elif isinstance(play.row, AnswersRow):
            play_answers(stage, play.row, play.settings, play.store, self._view.tell, self._view.done)
        elif isinstance(play.row, FreshnessRow):
            play_freshness(stage, play.row, play.settings, play.store, self._view.tell, self._view.done)

    def _check(self, stage: Stage, settings: Settings) -> list[Round]:
        once = replace(settings, rounds=1)
        store = RoundStore(self._directory / "rounds", _CHECK.name, {}, resume=False)
        CatchUpPlay(stage, _CHECK, once, store, self._view.tell).run()
        return store.rounds

    def _store(self, row: Row, settings: Settings) -> RoundStore:
        definition = {"row": asdict(row), "settings": asdict(settings), "commit": self._commit}
        return RoundStore(self._directory / "rounds", row.name, definition, resume=self._resume)

    def _report(self, settings: Settings, rounds: Sequence[Round], checks: Sequence[Round]) -> dict[str, Any]:
        rates = first_data_rates([*rounds, *checks])
        void = bool(rates) and is_void(rates)
        return {
            "rows": rows_of(rounds, void=void),
            "machine": machine(),
            "void": void,
            "smoke": settings.smoke,
            "copy_path": settings.copy_path or "default",
            "commit": self._commit,
            "kafka": load_versions().kafka.version,
        }


def regions_of(row: Row) -> tuple[str, ...]:
    """The regions whose brokers a row needs."""
    if isinstance(row, MoveRow | FreshnessRow | AnswersRow):
        return ("a", "b")
    if isinstance(row, CatchUpRow):
        return tuple(sorted({region for route in row.routes for region in route}))
    return ("a",)


def place_of(
    row: Row,
) -> tuple[tuple[str, ...], float]:
    """The regions whose brokers a row needs, and how far away its sources are: rows of one place share brokers."""
    far = isinstance(row, CatchUpRow | SteadyRow) and row.far
    return regions_of(row), FAR_ROUND_TRIP_MS if far else 0.0


def measures_first_data(row: Row) -> bool:
    """Whether a row tells by itself whether the machine was busy."""
    return (
        isinstance(row, CatchUpRow) and JSON_128K in row.data and row.routes == (("a", "a"),) and not row.far
    )


def first_data_rates(rounds: Sequence[Round]) -> list[float]:
    """MirrorMaker 2's rates on the first data set, near and over one route."""
    return [
        item.details["data_sets"][JSON_128K]["records_per_s"]
        for item in rounds
        if item.side == "mirrormaker2" and JSON_128K in item.details.get("data_sets", {})
    ]


def commit() -> str:
    """The commit that is measured, with ``-dirty`` where files differ from it."""
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],  # noqa: S607 - whichever git there is
            capture_output=True,
            text=True,
            check=False,
            timeout=_GIT_TIMEOUT_S,
            cwd=Path(__file__).parent,
        )
    except OSError:
        return "unknown"
    return answer.stdout.strip() or "unknown"
