"""`make worlds`: plays long random worlds of the resume rule by their seeds, on every core.

All ways to an answer are taken (`tests.worlds.rule_paths`): one that says something else than the rule over rows violates the
world. Each seed that violates the rule is printed at once, with what kind of world it was and the command that plays it again.
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from tests.worlds.model import ViolationError, kind_of, run_long_world
from tests.worlds.rule_paths import asking_all_paths
from tests.worlds.sim.run import seeds_of

_PROGRESS_EVERY_S = 5.0
_SEEDS_AT_ONCE = 20
_SHARE_IN_BLOCKS = 0.1


@dataclass(frozen=True, slots=True)
class _Outcome:
    seed: int
    problem: str
    unknowable: bool
    moves: int
    compared: Mapping[str, int]


def _play(seed: int) -> _Outcome:
    with asking_all_paths(seed, _SHARE_IN_BLOCKS) as paths:
        try:
            world = run_long_world(seed)
        except ViolationError as violation:
            return _Outcome(seed, str(violation), unknowable=False, moves=0, compared=paths.seen)
    return _Outcome(seed, "", bool(world.unknowable), world.group.moves, paths.seen)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play what the command line says; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="3000", help="n, or FROM:TO")
    parser.add_argument("--seed", type=int, help="play this one and print where it went wrong")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args(arguments)
    _quiet()
    if chosen.seed is not None:
        return _replay(chosen.seed)
    return _play_all(seeds_of(chosen.seeds), chosen.processes)


def _quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def _begin_process() -> None:
    _quiet()
    gc.freeze()  # each collection goes through all that was imported else: a tenth of the time


def _replay(seed: int) -> int:
    try:
        with asking_all_paths(seed, _SHARE_IN_BLOCKS):
            world = run_long_world(seed)
    except ViolationError:
        traceback.print_exc()
        return 1
    _say(f"seed {seed}, {kind_of(seed)}: all holds, {world.group.moves} moves")
    return 0


def _play_all(seeds: range, processes: int) -> int:
    began_s = told_s = time.monotonic()
    violated: Counter[str] = Counter()
    compared: Counter[str] = Counter()
    moves = unknowable = 0
    with multiprocessing.get_context("spawn").Pool(processes, initializer=_begin_process) as pool:
        for done, outcome in enumerate(pool.imap_unordered(_play, seeds, _SEEDS_AT_ONCE), start=1):
            moves += outcome.moves
            compared.update(outcome.compared)
            unknowable += outcome.unknowable
            if outcome.problem:
                violated[kind_of(outcome.seed)] += 1
                _say(
                    f"violated, {kind_of(outcome.seed)}: {outcome.problem}\n  make worlds SEED={outcome.seed}"
                )
            now_s = time.monotonic()
            if now_s - told_s >= _PROGRESS_EVERY_S:
                told_s = now_s
                _say(f"{done:,} of {len(seeds):,} worlds, {violated.total()} violated")
    rate = len(seeds) / (time.monotonic() - began_s)
    _say(
        f"{len(seeds):,} worlds, {violated.total()} violated {dict(violated) or ''}, {moves:,} moves, {unknowable} with "
        f"records that nobody can know of, {rate:.1f} worlds a second"
    )
    _say(
        "held against the rule: " + ", ".join(f"{count:,} {name}" for name, count in sorted(compared.items()))
    )
    return 1 if violated else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
