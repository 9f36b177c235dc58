"""Mutants by name, and seeds at which they have died: these are tried first, so that a mutant costs one world and not the search for it.

A mutant that no longer dies there is searched for as one without an entry is; what a test records of it
(`--junit-xml`, property ``seed``) is the new entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

Mutant = Callable[[pytest.MonkeyPatch], None]

DIED_AT = {
    "a_reset_undone_by_the_cluster_that_was_left": 13,
    "ambiguous_commit_believed": 2991,
    "another_run_log_accepted": 84,
    "changes_of_the_layout_committed": 1489,
    "changes_of_the_layout_left_hanging": 26,
    "changes_of_the_layout_taken_back": 26,
    "joined_transactions_committed_together": 153,
    "marker_that_ended_two_believed": 469,
    "missing_source_ignored": 24,
    "no_layout_but_the_last_indexed": 31,
    "older_lineages_ignored": 1219,
    "previous_source_end_not_checked": 52,
    "progress_kept_through_a_rewind": 828,
    "rewind_unnoticed_by_the_client": 75,
    "settled_record_outside_of_the_transaction": 174,
    "source_leader_epochs_ignored": 157,
    "topic_made_anew_taken_for_the_one_before": 150,
    "trimmed_not_said": 136,
    "undone_transactions_not_looked_for": 21,
    "unfenced_watermark": 3991,
    "written_over_another_connection": 23,
}


def deadly_first(mutant: str, seeds: Iterable[int]) -> Iterator[int]:
    """The seed at which the mutant died when this was written, then all seeds."""
    if mutant in DIED_AT:
        yield DIED_AT[mutant]
    yield from seeds


def death(
    mutant: str,
    seeds: Iterable[int],
    problem_at: Callable[[int], str],
    record_property: Callable[..., None],
) -> str:
    """The problem at the first seed that has one, which is recorded with it; empty: the mutant survives them all."""
    lives = ((seed, problem_at(seed)) for seed in deadly_first(mutant, seeds))
    seed, problem = next((life for life in lives if life[1]), (None, ""))
    record_property("seed", seed)
    record_property("problem", problem)
    return problem


class Mutants(dict[str, Mutant]):
    """What breaks a rule, by name."""

    def add(self, patch: Mutant) -> Mutant:
        """Keep it under its own name; a decorator."""
        self[patch.__name__] = patch
        return patch
