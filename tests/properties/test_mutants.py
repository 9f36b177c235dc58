"""Every mutant dies: each rule of the domain, broken on purpose, makes the model find a violation.

A mutant replaces one production function (or one duty of the replicator, as the model plays it). A mutant that
survives means that the properties say nothing about the rule that it breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from parallax.domain import place as place_module
from parallax.domain import progress as progress_module
from parallax.domain import resume as resume_module
from parallax.domain import skips as skips_module
from parallax.domain.history import History
from parallax.domain.ids import SourceId, SourceOffset, TargetOffset
from parallax.domain.place import Place, Via
from parallax.domain.progress import Progress, SourceHistory, SourcePosition
from parallax.domain.resume import Resume
from parallax.domain.runs import LostRange, Run, within, without
from parallax.domain.skips import SkipRange
from replicator.copying import reconcile
from replicator.copying.reconcile import Beginning
from replicator.copying.state import PartitionChange, PartitionState
from tests.golden import test_lost_tail_examples as examples
from tests.golden import test_resume_examples as resume_examples
from tests.worlds.deadly import Mutant, Mutants, deadly_first
from tests.worlds.model import Copier, Group, ViolationError, World, options_of, run_world

WORLDS = 6_000

MUTANTS = Mutants()


@MUTANTS.add
def position_plus_one(monkeypatch: pytest.MonkeyPatch) -> None:
    right = place_module.position_of

    def wrong(source_next: SourceOffset, history: History) -> tuple[TargetOffset | None, Via, Run | None]:
        place, via, row = right(source_next, history)
        return (None if place is None else TargetOffset(place + 1)), via, row

    monkeypatch.setattr(place_module, "position_of", wrong)


@MUTANTS.add
def consumed_plus_one(monkeypatch: pytest.MonkeyPatch) -> None:
    right = progress_module.records_below

    def wrong(target: TargetOffset, history: History) -> tuple[SourceOffset, Run] | None:
        return right(TargetOffset(target + 1), history)

    monkeypatch.setattr(progress_module, "records_below", wrong)


@MUTANTS.add
def previous_source_end_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    right = History.last_proven_by

    def wrong(self: History, source: SourceOffset) -> Run | None:
        above = next((row for row in self.rows if row.source_start >= source), None)
        found = [row for row in (right(self, source), above) if row is not None]
        return max(found, key=lambda row: (row.target_start, row.target_end), default=None)

    monkeypatch.setattr(History, "last_proven_by", wrong)


@MUTANTS.add
def ceiling_instead_of_floor_at_the_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(target: TargetOffset, history: History) -> tuple[SourceOffset, Run] | None:
        above = [row for row in history.rows if row.target_end >= target]
        return (above[0].source_end, above[0]) if above else None

    monkeypatch.setattr(progress_module, "records_below", wrong)


@MUTANTS.add
def ceiling_instead_of_floor_at_the_destination(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(source_next: SourceOffset, history: History) -> tuple[TargetOffset | None, Via, Run | None]:
        above = [row for row in history.rows if row.source_end > source_next]
        return (above[0].target_end, Via.AFTER, above[0]) if above else (None, Via.LOG_START, None)

    monkeypatch.setattr(place_module, "position_of", wrong)


@MUTANTS.add
def maximum_instead_of_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume_module, "min", max, raising=False)


@MUTANTS.add
def missing_source_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    right = place_module.place_of

    def wrong(consumed: SourcePosition, lineages: Any, *rest: Any) -> Place:
        if not any(item.history.rows for item in lineages):
            return Place(None, Via.CONSUMED)
        return right(consumed, lineages, *rest)

    monkeypatch.setattr(resume_module, "place_of", wrong)


@MUTANTS.add
def leader_epochs_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(consumed: SourcePosition, history: History) -> SourceOffset:  # noqa: ARG001 - the point
        return consumed.source_next

    for module in (progress_module, place_module, resume_module):
        monkeypatch.setattr(module, "consumed_end", wrong)


@MUTANTS.add
def older_lineages_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    right = resume_module.resume

    def wrong(**question: Any) -> Resume:
        newest = {item.source.region: item for item in question["destination"]}
        return right(**{**question, "destination": list(newest.values())})

    monkeypatch.setattr(resume_module, "resume", wrong)


@MUTANTS.add
def topic_incarnations_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = resume_module.resume

    def named_alike(items: Any) -> list[Any]:
        return [replace(item, source=item.source._replace(topic_id="one")) for item in items]

    def wrong(**question: Any) -> Resume:
        progress = question.pop("progress", None)
        question = {**question, "origin": named_alike(question["origin"])}
        question["destination"] = named_alike(question["destination"])
        if progress is not None:
            positions = {source._replace(topic_id="one"): at for source, at in progress.positions.items()}
            progress = replace(progress, positions=positions)
        return right(**question, progress=progress)

    monkeypatch.setattr(resume_module, "resume", wrong)


@MUTANTS.add
def skipping_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(**question: Any) -> list[SkipRange]:  # noqa: ARG001 - the point
        return []

    monkeypatch.setattr(skips_module, "skip_ranges", wrong)


@MUTANTS.add
def skip_range_one_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    right = skips_module.skip_ranges

    def wrong(**question: Any) -> list[SkipRange]:
        end = question["end"]
        return [SkipRange(item.start, min(TargetOffset(item.end + 1), end)) for item in right(**question)]

    monkeypatch.setattr(skips_module, "skip_ranges", wrong)


@MUTANTS.add
def delivering_beyond_what_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    right = resume_module.resume

    def wrong(**question: Any) -> Resume:
        answer = right(**question)
        if answer.complete_to is None:
            return answer
        return replace(answer, complete_to=TargetOffset(answer.complete_to + 1_000))

    monkeypatch.setattr(resume_module, "resume", wrong)


@MUTANTS.add
def pending_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume_module, "_may_still_come", lambda *_: False)


@MUTANTS.add
def progress_dropped_at_the_second_move(monkeypatch: pytest.MonkeyPatch) -> None:
    right = resume_module.resume

    def wrong(**question: Any) -> Resume:
        origin = question["origin"]
        return right(**({**question, "progress": None} if origin else question))

    monkeypatch.setattr(resume_module, "resume", wrong)


@MUTANTS.add
def progress_kept_through_a_rewind(monkeypatch: pytest.MonkeyPatch) -> None:
    right = resume_module.resume

    def wrong(*, progress: Progress | None = None, **question: Any) -> Resume:
        if progress is not None:
            progress = replace(progress, resume_offset=TargetOffset(0))
        return right(**question, progress=progress)

    monkeypatch.setattr(resume_module, "resume", wrong)


@MUTANTS.add
def ambiguous_commit_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "settled_commit", lambda commit, *_: commit)


@MUTANTS.add
def never_delivered_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume_module, "_never_delivered", lambda *_: ())


@MUTANTS.add
def trimmed_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume_module, "_trimmed", lambda *_: None)


@MUTANTS.add
def last_stable_offset_for_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "watermark_target_end", lambda _, cluster: cluster.stable_end())


@MUTANTS.add
def unfenced_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A zombie writes a watermark for a transaction that is then aborted."""

    def fetch_position(_: World, copier: Copier) -> int:
        return copier.open_batch[-1][0].offset + 1 if copier.open_batch else copier.source_next

    monkeypatch.setattr(World, "watermark_allowed", lambda *_: True)
    monkeypatch.setattr(World, "watermark_position", fetch_position)


@MUTANTS.add
def rewind_unnoticed_by_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Group, "_notice_rewind", lambda _: None)


NEEDS: dict[str, dict[str, bool]] = {
    "ambiguous_commit_believed": {"truncation": True},
    "leader_epochs_ignored": {"truncation": True},
    "progress_kept_through_a_rewind": {"rewinds": True},
    "trimmed_not_said": {"retention": True},
}
"""What must be able to happen for the mutant to do harm: finds the violation in fewer worlds."""


def first_violation(name: str) -> tuple[int, ViolationError] | None:
    needs = NEEDS.get(name, {})
    for seed in deadly_first(name, range(WORLDS)):
        try:
            run_world(seed, replace(options_of(seed), **needs))
        except ViolationError as violation:
            return seed, violation
    return None


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_dies(
    name: str, monkeypatch: pytest.MonkeyPatch, record_property: Callable[..., None]
) -> None:
    MUTANTS[name](monkeypatch)
    died = first_violation(name)
    assert died is not None, f"mutant {name} survived {WORLDS} worlds"
    record_property("seed", died[0])
    record_property("violation", str(died[1]))


# --- what random worlds meet too rarely: a drawn example is the violation ----------------------------------------

Example = Callable[[], None]
RARE: dict[str, tuple[Mutant, Example]] = {}


def shown_by(example: Example) -> Callable[[Mutant], Mutant]:
    def keep(patch: Mutant) -> Mutant:
        RARE[f"{patch.__name__}-{example.__name__}"] = (patch, example)
        return patch

    return keep


@shown_by(examples.test_watermark_over_what_a_later_epoch_wrote)
def watermark_taken_for_consumed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = progress_module.records_below

    def wrong(target: TargetOffset, history: History) -> tuple[SourceOffset, Run] | None:
        row = history.floor_by_target(target)
        if row is not None and row.is_watermark and target > row.target_start:
            return row.source_start, row
        return right(target, history)

    monkeypatch.setattr(progress_module, "records_below", wrong)


@shown_by(examples.test_records_behind_a_lost_range_are_read_where_another_cluster_has_them)
def lost_range_taken_for_consumed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = progress_module.records_below

    def wrong(target: TargetOffset, history: History) -> tuple[SourceOffset, Run] | None:
        found = right(target, history)
        return None if found is None else (max(found[0], found[1].last_record_end), found[1])

    monkeypatch.setattr(progress_module, "records_below", wrong)
    monkeypatch.setattr(History, "read_ends", History.epoch_ends)


@shown_by(examples.test_group_that_passed_a_lost_range_of_another_epoch_is_told_so)
def lost_range_in_the_epoch_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(History, "read_ends", History.epoch_ends)


@shown_by(examples.test_place_before_a_lost_range_says_nothing_of_the_epoch_behind_it)
def epochs_behind_a_lost_range_read_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: History, source_next: SourceOffset, **_: object) -> tuple[tuple[int, SourceOffset], ...]:
        return tuple((epoch, min(end, source_next)) for epoch, end in self.read_ends)

    monkeypatch.setattr(History, "read_below", wrong)


@shown_by(examples.test_record_behind_a_lost_range_says_nothing_of_the_log_before_it)
def log_before_a_lost_range_taken_for_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(History, "holds_nothing_in", lambda *_: True)


@shown_by(examples.test_record_behind_a_lost_range_says_nothing_of_the_log_before_it)
def nothing_read_behind_a_lost_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(History, "holds_nothing_in", lambda *_: False)


@shown_by(examples.test_record_behind_a_lost_range_is_skipped_though_the_log_before_it_is_not_known)
def skip_ranges_below_the_first_unconsumed_record_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    right = progress_module.consumed_spans
    monkeypatch.setattr(
        skips_module, "consumed_spans", lambda consumed, history: right(consumed, history)[:1]
    )


@shown_by(examples.test_record_before_a_lost_range_is_not_skipped_for_an_epoch_behind_it)
def log_behind_a_lost_range_begins_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(History, "read_below", lambda self, _, **__: self.epoch_ends)


@shown_by(examples.test_lost_beginning_that_was_passed_over_was_not_read)
def lost_range_that_was_passed_over_taken_for_told(monkeypatch: pytest.MonkeyPatch) -> None:
    right = History.read_below
    monkeypatch.setattr(
        History,
        "read_below",
        lambda self, source_next, *, lost_before=(), passed_over=False: right(  # noqa: ARG005 - what is undone
            self, source_next, lost_before=lost_before
        ),
    )


@shown_by(examples.test_generation_behind_a_lost_range_was_read_from_the_range_on)
def lost_ranges_of_older_generations_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        progress_module, "_with_lost_before", lambda histories: [(item, ()) for item in histories]
    )


@shown_by(examples.test_lost_range_that_was_passed_is_told_though_a_later_leader_epoch_was_read_elsewhere)
def lost_range_passed_by_the_last_record_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    right = resume_module._passed

    def wrong(
        gap: LostRange,
        history: History,
        commit: TargetOffset,
        consumed: SourcePosition,
        moved: SourcePosition,
    ) -> list[LostRange]:
        crossed = moved.source_next < gap.source_end <= consumed.source_next
        return list(right(gap, history, commit, consumed, moved)) if crossed else []

    monkeypatch.setattr(resume_module, "_passed", wrong)


@shown_by(examples.test_lost_ranges_without_a_record_between_them_are_one)
def each_lost_range_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        History, "_whole_gaps", lambda self, _: [(gap.source_start, gap.source_end) for gap in self.lost]
    )


@shown_by(examples.test_spans_of_one_epoch_are_kept_apart)
def lowest_span_of_an_epoch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    right = progress_module._joined
    monkeypatch.setattr(progress_module, "_joined", lambda spans: right(spans)[:1])


@shown_by(examples.test_lost_range_is_told_though_the_rows_around_it_are_missing)
def lost_range_known_by_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(
        gap: LostRange, history: History, _: TargetOffset, consumed: SourcePosition, __: SourcePosition
    ) -> list[LostRange]:
        return within(gap, progress_module.known_spans(consumed, history))

    monkeypatch.setattr(resume_module, "_passed", wrong)


@shown_by(examples.test_lost_range_that_was_passed_is_told_where_its_own_watermark_is_the_newest_row)
def watermark_of_a_lost_range_taken_for_a_row_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    right = resume_module._passed

    def wrong(
        gap: LostRange,
        history: History,
        commit: TargetOffset,
        consumed: SourcePosition,
        moved: SourcePosition,
    ) -> list[LostRange]:
        if history.newest is not None and history.newest.source_start >= gap.source_end:
            told = progress_module.known_spans(moved, history)
            return without(within(gap, progress_module.known_spans(consumed, history)), told)
        return list(right(gap, history, commit, consumed, moved))

    monkeypatch.setattr(resume_module, "_passed", wrong)


def _incarnations_remembered(monkeypatch: pytest.MonkeyPatch, order: Callable[..., list[SourceId]]) -> None:
    """Incarnations of which nothing tells the order, in another one."""

    class Wrong(resume_module.Incarnations):
        def __init__(self, *orders: Sequence[SourceId]) -> None:
            super().__init__(*orders)
            self.sources = self._sorted(order(*orders))

    monkeypatch.setattr(resume_module, "Incarnations", Wrong)


@shown_by(resume_examples.test_incarnation_that_one_cluster_missed_is_remembered_as_the_older_one)
def incarnations_remembered_as_they_are_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    _incarnations_remembered(
        monkeypatch, lambda *orders: list(dict.fromkeys(source for order in orders for source in order))
    )


@shown_by(resume_examples.test_incarnation_that_the_destination_alone_has_is_remembered_as_the_older_one)
def incarnation_of_the_destination_alone_remembered_as_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    _incarnations_remembered(
        monkeypatch,
        lambda *orders: list(dict.fromkeys(source for order in reversed(orders) for source in order)),
    )


@shown_by(examples.test_of_a_lost_range_what_was_read_is_not_told)
def lost_range_told_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(gaps: list[LostRange], spans: Any) -> list[LostRange]:
        return list(gaps) if without(gaps, spans) else []

    monkeypatch.setattr(resume_module, "without", wrong)


@shown_by(examples.test_lost_range_that_is_passed_over_is_told)
def lost_range_that_holds_no_copied_record_taken_for_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume_module, "known_spans", progress_module.consumed_spans)


@shown_by(examples.test_lost_range_in_which_an_epoch_ended_is_told)
def epoch_taken_to_end_with_the_lost_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(History, "read_ends", History.epoch_ends)


@shown_by(examples.test_lineage_that_ended_with_a_lost_range_holds_nothing_back)
def lost_range_at_the_end_is_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(item: SourceHistory) -> SourceOffset | None:
        newest = item.history.newest
        return None if item.closed_at is None or newest is None else newest.last_record_end

    monkeypatch.setattr(SourceHistory, "record_end", property(wrong))


@shown_by(examples.test_lost_range_leads_up_from_the_last_record)
def lost_range_from_the_position_on(monkeypatch: pytest.MonkeyPatch) -> None:
    right = reconcile.lose

    def wrong(state: PartitionState, up_to: SourceOffset, target_end: int) -> PartitionChange:
        change = right(state, up_to, target_end)
        return replace(change, lost=(replace(change.lost[0], source_start=state.source_next),))

    monkeypatch.setattr(reconcile, "lose", wrong)


@shown_by(examples.test_epochs_that_were_read_are_kept_before_those_that_were_not)
def newest_epochs_kept_whether_read_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(at: SourcePosition) -> SourcePosition:
        return replace(at, epoch_ends=at.epoch_ends[-progress_module.MAX_EPOCH_ENDS :])

    monkeypatch.setattr(SourcePosition, "bounded", wrong)


@shown_by(examples.test_target_cut_behind_a_watermark)
def copying_goes_on_at_a_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    right = reconcile.cut_by_target

    def wrong(state: PartitionState, end: TargetOffset, history: reconcile.RunHistory) -> Beginning:
        changes = history(state.topic_partition, state.lineage)
        left = [row for change in changes for row in change.rows if row.target_end <= end]
        return replace(right(state, end, history), source_first=left[-1].source_end)

    monkeypatch.setattr(reconcile, "cut_by_target", wrong)


@shown_by(examples.test_target_cut_below_the_opening_of_a_generation)
def rows_of_the_present_generation_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    right = reconcile.cut_by_target

    def wrong(state: PartitionState, end: TargetOffset, history: reconcile.RunHistory) -> Beginning:
        changes = history(state.topic_partition, state.lineage)
        present = [change for change in changes if change.state.lineage == state.lineage]
        return replace(right(state, end, lambda *_: present), source_first=state.source_first)

    monkeypatch.setattr(reconcile, "cut_by_target", wrong)


@shown_by(examples.test_target_cut_below_where_copying_began_behind_a_lost_range)
@shown_by(examples.test_target_cut_above_where_copying_began_behind_a_lost_range)
def lineage_begun_again_where_it_began_before(monkeypatch: pytest.MonkeyPatch) -> None:
    right = reconcile.cut_by_target

    def wrong(state: PartitionState, end: TargetOffset, history: reconcile.RunHistory) -> Beginning:
        found = right(state, end, history)
        first = max(found.source_first, state.source_first)
        return replace(found, source_first=first, parted_at=first)

    monkeypatch.setattr(reconcile, "cut_by_target", wrong)


@shown_by(examples.test_source_cut_where_copying_began_behind_a_lost_range)
@shown_by(examples.test_leader_that_returns_with_a_log_of_its_own)
@shown_by(examples.test_log_that_parted_where_nothing_was_to_be_seen)
def end_told_by_the_source_taken_for_the_copys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "cut_by_source", lambda beginning, *_: beginning)


@shown_by(examples.test_tail_lost_within_an_epoch_needs_no_rows_from_before)
def every_cut_of_the_source_looked_up_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    right = reconcile.cut_by_source

    def wrong(
        beginning: Beginning, state: PartitionState, source_start: int, history: reconcile.RunHistory
    ) -> Beginning:
        return right(beginning, replace(state, source_leader_epoch=99), source_start, history)

    monkeypatch.setattr(reconcile, "cut_by_source", wrong)


@shown_by(examples.test_tail_that_another_route_hid_is_known_by_the_epoch_alone)
def leader_epoch_of_the_commit_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    right = examples.settled_commit
    monkeypatch.setattr(examples, "settled_commit", lambda commit, lost, **_: right(commit, lost))


@pytest.mark.parametrize("name", RARE)
def test_rare_mutant_dies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patch, example = RARE[name]
    example()
    patch(monkeypatch)
    with pytest.raises(AssertionError):
        example()
