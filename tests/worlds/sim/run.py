"""`make simulate`: plays simulated worlds by their seeds on every core, or one of them with a trace.

Each seed that fails is printed at once with the command that plays it again.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from tests.worlds.sim.actions import SWITCHED_OFF
from tests.worlds.sim.doors import Faults
from tests.worlds.sim.world import World

_PROGRESS_EVERY_S = 2.0
_SEEDS_AT_ONCE = 8
_MOST_FAILURES_TOLD = 50


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a seed; ``problem`` is empty if all held."""

    seed: int
    problem: str = ""


def world_of(
    seed: int, faults: Faults | None = None, tell: Callable[[str], None] = lambda _text: None
) -> World:
    """The world of a seed: one route, two that write to the same target, or four and a group that moves."""
    kind = seed % 8
    if kind in {3, 7}:
        both = ("a", "b")
        return World(
            seed, faults, sources=both, targets=both, group="skips" if kind == 3 else "plain", tell=tell
        )
    return World(seed, faults, sources=("a", "b") if kind in {1, 5} else ("a",), tell=tell)


def play(seed: int, faults: Faults | None = None) -> Outcome:
    """Play a seed's world and judge it."""
    return Outcome(seed, problem_of(world_of(seed, faults)))


def problem_of(world: World) -> str:
    """Live a world's life and judge it; what is wrong, or nothing. The world is closed afterwards."""
    try:
        world.live()
        world.check()
    except Exception as error:  # noqa: BLE001 - whatever it is, the seed has failed
        return f"{type(error).__name__}: {error}"[:300]
    finally:
        world.close()
    return ""


def seeds_of(text: str) -> range:
    """``n`` means the first n seeds, ``FROM:TO`` those from FROM on and below TO."""
    first, _, last = text.rpartition(":")
    return range(int(first or 0), int(last))


def main(arguments: Sequence[str] | None = None) -> int:
    """Play what the command line says; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="2000", help="n, or FROM:TO")
    parser.add_argument("--seed", type=int, help="play this one and print all that happens")
    chosen = parser.parse_args(arguments)
    _quiet()
    return _replay(chosen.seed) if chosen.seed is not None else _play_all(seeds_of(chosen.seeds))


def _quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def _replay(seed: int) -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    world = world_of(seed, tell=_say)
    _say(f"seed {seed}: {', '.join(map(str, (life.route for life in world.lives)))}")
    _say(f"takes part: {', '.join(action.name for action in world.actions)}")
    try:
        world.live()
        world.check()
    except Exception:  # noqa: BLE001 - told as it is
        traceback.print_exc()
        return 1
    _say(f"seed {seed}: all holds")
    return 0


def _play_all(seeds: range) -> int:
    began_s = told_s = time.monotonic()
    failed: list[Outcome] = []
    for name, reason in SWITCHED_OFF.items():
        _say(f"left out: {name}: {reason}")
    cores = os.cpu_count() or 1
    with multiprocessing.get_context("spawn").Pool(cores, initializer=_quiet) as pool:
        for done, outcome in enumerate(pool.imap_unordered(play, seeds, _SEEDS_AT_ONCE), start=1):
            if outcome.problem:
                failed.append(outcome)
                if len(failed) <= _MOST_FAILURES_TOLD:
                    _say(
                        f"seed {outcome.seed} failed: {outcome.problem}\n  make simulate SEED={outcome.seed}"
                    )
            now_s = time.monotonic()
            if now_s - told_s >= _PROGRESS_EVERY_S or done == len(seeds):
                told_s = now_s
                _say(f"{done:,} of {len(seeds):,} seeds, {len(failed)} failed, {now_s - began_s:.0f} s")
    return 1 if failed else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
