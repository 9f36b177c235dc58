"""Plays rows one after another on brokers of their own, and makes the report of what they gave."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lab.bench.budget import Budget
from lab.bench.report import LEAST_MIRRORMAKER_RECORDS_PER_S, Round, RoundStore, is_void, machine, rows_of
from lab.bench.rows import BenchSettings, Play, Row
from lab.bench.rows.catch_up import JSON_128K, CatchUpRow
from lab.bench.stage import BenchStage
from lab.stack.versions import load_versions

_GIT_TIMEOUT_S = 10.0
_BROKERS = "brokers and Cassandra"
_BROKERS_S = 45.0
_CHECK = CatchUpRow("machine", sides=("mirrormaker2",))
"""Tells whether the machine is busy, for rows that don't measure the first data set anyway."""


def play(
    rows: Sequence[Row],
    settings: BenchSettings,
    directory: Path,
    tell: Callable[[str], None],
    *,
    resume: bool,
) -> dict[str, Any]:
    """Play rows; returns their report.

    Args:
        rows: what to play.
        settings: of the whole run.
        directory: rounds, logs and brokers go below it.
        tell: gets a line now and then.
        resume: go on with the rounds of an earlier run of the same commit and settings.

    Raises:
        ParallaxError: something did not work. Rounds played are kept.
    """
    commit, begun, here = _commit(), time.monotonic(), machine()
    budget = _budget(rows, settings)
    for line in budget.lines() if budget.planned else ():
        tell(f"planned: {line}")

    def store_of(row: Row, *, keep: bool = True) -> RoundStore:
        definition = {"row": asdict(row), "settings": asdict(settings), "commit": commit}
        return RoundStore(directory / "rounds", row.name, definition, resume=resume and keep)

    stores = {row.name: store_of(row) for row in rows}
    needs_check = not settings.smoke and not any(row.tells_machine for row in rows)
    check = store_of(_CHECK, keep=False) if needs_check else None
    stage: BenchStage | None = None
    with ExitStack() as opened:
        # The most regions first: rows that need fewer go on with the same brokers.
        places = dict.fromkeys(row.place for row in rows)
        for place in sorted(
            places, key=lambda place: (place.round_trip_ms is not None, place.tls, -len(place.regions))
        ):
            kind: dict[str, Any] = {"round_trip_ms": place.round_trip_ms, "tls": place.tls}
            if stage is None or not stage.narrow(place.regions, **kind):
                opened.close()
                with budget.step(_BROKERS):
                    stage = opened.enter_context(BenchStage(directory / "stage", place.regions, tell, **kind))
            for row in rows:
                if row.place == place:
                    row.play(Play(stage, settings, stores[row.name], tell, budget))
            if check is not None and not check.rounds:
                _CHECK.play(Play(stage, replace(settings, rounds=1), check, tell, budget))
        with budget.step("stopping everything"):
            opened.close()
    for line in budget.lines():
        tell(line)
    rounds = [item for store in stores.values() for item in store.rounds]
    telling = [item for row in rows if row.tells_machine for item in stores[row.name].rounds]
    rates = first_data_rates([*telling, *(check.rounds if check else [])])
    void = bool(rates) and is_void(rates)
    return {
        "rows": rows_of(rounds, void=void),
        "machine": here,
        "void": void,
        "void_rule": {
            "mirrormaker2_records_per_s_at_least": LEAST_MIRRORMAKER_RECORDS_PER_S,
            "data_set": JSON_128K,
            "mirrormaker2_records_per_s": rates,
        },
        "smoke": settings.smoke,
        "took_s": time.monotonic() - begun,
        "steps": budget.values(),
        "commit": commit,
        "kafka": load_versions().kafka.version,
    }


def _budget(rows: Sequence[Row], settings: BenchSettings) -> Budget:
    """What the rows are given; nothing where nobody has planned all of them."""
    planned = [{} if settings.smoke else row.steps(settings) for row in rows]
    if not all(planned):
        return Budget()
    return Budget({_BROKERS: _BROKERS_S} | {name: s for steps in planned for name, s in steps.items()})


def first_data_rates(rounds: Sequence[Round]) -> list[float]:
    """MirrorMaker 2's rates on the first data set."""
    return [
        item.details["data_sets"][JSON_128K]["records_per_s"]
        for item in rounds
        if item.side == "mirrormaker2" and JSON_128K in item.details.get("data_sets", {})
    ]


def _commit() -> str:
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
