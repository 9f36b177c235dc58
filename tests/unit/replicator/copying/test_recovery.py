"""What a run log may hold, and what is refused."""

from __future__ import annotations

import pytest

from parallax.domain.ids import (
    ClusterName,
    Lineage,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.runs import Run
from parallax.errors import ClusterUnavailableError, FencedError
from parallax.v1.runlog_pb2 import Entry
from replicator.copying import recovery
from replicator.copying.recovery import LoggedRecord, RunLogError, RunLogProblem, Shard, States, states_of
from replicator.copying.state import PartitionChange, PartitionState, encode
from replicator.kafka.run_log import changes_of_lineages, load_states

ITEM = TopicPartition(TopicName("trips"), 0)
OTHER = TopicPartition(TopicName("trips"), 1)
SHARD = Shard(
    ClusterName("aggregate-b"), TopicPartition(TopicName("parallax.runs.a"), 0), TopicId("log"), layout=2
)


def state(source_next: int, item: TopicPartition = ITEM, sequence: int = 0) -> PartitionState:
    end = SourceOffset(source_next)
    lineage = Lineage(TopicId("s"), TopicId("t"), sequence)
    zero = SourceOffset(0)
    return PartitionState(item, lineage, sequence, zero, TargetOffset(0), end, end, TargetOffset(source_next))


def entry(*changes: PartitionState | PartitionChange, snapshot: bool = False, layout: int = 2) -> Entry:
    made = [item if isinstance(item, PartitionChange) else PartitionChange(item) for item in changes]
    return encode(
        run_log_id=TopicId("log"),
        layout=layout,
        shard=0,
        path="batch",
        changes=made,
        everything={} if snapshot else None,
        committed_at_ms=1,
    )


def logged(*entries: Entry | None) -> list[LoggedRecord]:
    return [(2 * number, item) for number, item in enumerate(entries)]


FIRST = entry(snapshot=True)


def nothing(_states: States) -> dict[TopicPartition, int]:
    return {}


class Log:
    """A run log in memory, whose first offsets retention may have taken."""

    def __init__(self, *entries: Entry | None, start: int = 0, epoch: int = -1) -> None:
        self._records, self._start, self.epoch = logged(*entries), start, epoch

    def entry(self, number: int) -> Entry:
        found = self._records[number][1]
        assert found is not None
        return found

    def topic_id(self) -> TopicId:
        return TopicId("log")

    def leader_epoch(self) -> int:
        return self.epoch

    def partitions(self) -> int:
        return 1

    def start(self) -> int:
        return self._start

    def end(self) -> int:
        return 2 * len(self._records)

    stable_end = end

    def read(self, start: int, end: int) -> list[LoggedRecord]:
        return [item for item in self._records if max(start, self._start) <= item[0] < end]

    def close(self) -> None: ...


def test_the_state_is_that_of_the_last_snapshot_and_what_follows() -> None:
    records = [entry(layout=1, snapshot=True), None, FIRST, entry(state(5)), entry(state(9), snapshot=True)]
    assert states_of(logged(*records, entry(state(12))), SHARD) == {ITEM: state(12)}


def test_rows_of_every_layout_are_found_in_whichever_shard_it_had_the_partition() -> None:
    def copied(start: int, layout: int) -> Entry:
        row = Run(SourceOffset(start), TargetOffset(start), 5, SourceOffset(start))
        return entry(PartitionChange(state(start + 5), (row,)), layout=layout)

    logs = [Log(copied(10, 3), copied(15, 3)), Log(copied(5, 2)), Log(copied(0, 1), None)]
    found = changes_of_lineages(logs, ITEM, state(0).lineage)
    assert [row.source_start for change in found for row in change.rows] == [0, 5, 10, 15]


def test_rows_are_not_missed_where_a_run_log_is_told_to_end_too_low() -> None:
    log = Log(entry(state(5)))
    assert len(list(changes_of_lineages([log, Log()], ITEM, state(0).lineage, known_end=log.end()))) == 1
    with pytest.raises(ClusterUnavailableError, match="told to end at 2, and entries up to 3 are known"):
        list(changes_of_lineages([log], ITEM, state(0).lineage, known_end=log.end() + 1))


@pytest.mark.parametrize(("own", "told"), [(True, [0, 5]), (False, [0])])
def test_what_the_shard_has_just_committed_is_among_them_though_its_marker_is_not_written_yet(
    own: bool,  # noqa: FBT001 - parametrised
    told: list[int],
) -> None:
    def copied(start: int) -> Entry:
        row = Run(SourceOffset(start), TargetOffset(start), 5, SourceOffset(start))
        return entry(PartitionChange(state(start + 5), (row,)))

    class Unmarked(Log):
        def stable_end(self) -> int:  # type: ignore[override]
            return self.end() - 2

    log = Unmarked(copied(0), copied(5))
    found = changes_of_lineages([log] if own else [Log(), log], ITEM, state(0).lineage)
    assert [row.source_start for change in found for row in change.rows] == told


def test_what_lies_before_the_layouts_first_snapshot_is_nobodys_business() -> None:
    assert states_of(logged(None, entry(state(7), layout=1, snapshot=True)), SHARD) is None
    assert states_of(logged(None, entry(state(7), layout=1), FIRST), SHARD) == {}


def stranger(**changed: object) -> Entry:
    made = entry(state(6))
    for name, value in changed.items():
        setattr(made, name, value)
    return made


FORGED = Entry(layout=2, snapshot=True)
REFUSED = {
    "no entry at all": None,
    "an empty value": Entry(),
    "a forged snapshot": FORGED,
    "another shard's": stranger(shard=1),
    "an older layout's": stranger(layout=1),
    "a newer layout's, of another run log": stranger(layout=3, run_log_id="elsewhere"),
    "carried here from another run log": stranger(run_log_id="elsewhere"),
    "a position that goes back": entry(state(4)),
    "a lineage that goes back": entry(state(99), state(5)),
    "a snapshot that forgets": entry(state(7, OTHER), snapshot=True),
    "a snapshot that goes back": entry(state(4), snapshot=True),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_record_of_somebody_else_is_refused_and_resets_nothing(name: str) -> None:
    records = logged(FIRST, entry(state(5)), REFUSED[name])
    with pytest.raises(RunLogError, match="parallax runlog rebuild") as raised:
        states_of(records, SHARD)
    assert raised.value.problem is RunLogProblem.RUN_LOG_FOREIGN
    assert "aggregate-b: run log parallax.runs.a-0 at offset 4" in str(raised.value)
    with pytest.raises(RunLogError):  # nor does what its owner wrote afterwards make up for it
        states_of([*records, *logged(*[FIRST] * 3, entry(state(9)))[-1:]], SHARD)


def test_the_entry_of_a_newer_layout_means_that_this_one_is_over() -> None:
    with pytest.raises(FencedError, match="layout 3 has taken over from 2"):
        states_of(logged(FIRST, entry(state(5)), entry(state(5), layout=3, snapshot=True)), SHARD)


@pytest.mark.parametrize("snapshot", [True, False])
@pytest.mark.parametrize("begins", [True, False])
def test_what_a_newer_release_wrote_is_refused_and_not_to_be_mended(*, snapshot: bool, begins: bool) -> None:
    """Whether or not a snapshot of this release lies before it."""
    newer = entry(state(5), snapshot=snapshot)
    newer.format = 2
    with pytest.raises(RunLogError, match=r"^RUN_LOG_NEWER: .*format 2") as raised:
        states_of(logged(*[FIRST] * begins, newer, entry(state(6))), SHARD)
    assert "until a release that reads it runs again" in str(raised.value)
    assert "rebuild" not in str(raised.value)


def test_a_newer_layout_of_a_newer_release_still_means_that_this_one_is_over() -> None:
    newer = entry(state(5), layout=3, snapshot=True)
    newer.format = 2
    with pytest.raises(FencedError):
        states_of(logged(FIRST, newer), SHARD)


def test_an_entry_without_a_number_is_of_the_first_format() -> None:
    older = entry(state(5))
    older.ClearField("format")
    assert states_of(logged(FIRST, older), SHARD) == {ITEM: state(5)}


def test_a_lineage_that_ends_and_the_next_one_are_no_step_back() -> None:
    ended = PartitionChange(state(5), closed=True)
    after = entry(ended, PartitionChange(state(2, sequence=1)))
    assert states_of(logged(FIRST, entry(state(5)), after), SHARD) == {ITEM: state(2, sequence=1)}
    dropped = entry(PartitionChange(state(5), closed=True), snapshot=True)
    assert states_of(logged(FIRST, entry(state(5)), dropped), SHARD) == {}


@pytest.mark.parametrize(
    ("log", "problem"),
    [
        (Log(), RunLogProblem.RUN_LOG_HEADLESS),
        (Log(FIRST, entry(state(5)), start=2), RunLogProblem.RUN_LOG_HEADLESS),
        (Log(FIRST, entry(state(5)), start=4), RunLogProblem.RUN_LOG_HEADLESS),
        (Log(entry(state(5), snapshot=True, layout=1)), RunLogProblem.RUN_LOG_HEADLESS),
    ],
    ids=["empty", "without its snapshot", "emptied", "of the layout before"],
)
def test_a_log_without_the_snapshot_that_each_layout_begins_with_is_refused(
    log: Log, problem: RunLogProblem
) -> None:
    with pytest.raises(RunLogError, match=f"^{problem.value}: ") as raised:
        load_states(log, SHARD, unexplained=nothing)
    assert raised.value.problem is problem


def test_a_log_that_ends_below_what_is_known_of_it_is_refused() -> None:
    log = Log(FIRST, entry(state(5)))
    assert load_states(log, SHARD, unexplained=nothing, known_end=4) == ({ITEM: state(5)}, 4)
    with pytest.raises(
        RunLogError, match=r"^RUN_LOG_TRUNCATED: .* it ends at 4, and entries up to 5 are known"
    ):
        load_states(log, SHARD, unexplained=nothing, known_end=5)


@pytest.mark.parametrize("newest", [None, 2, 3])
@pytest.mark.parametrize("leader", [-1, 2, 3])
def test_the_target_is_looked_at_only_if_the_newest_entry_is_not_the_present_leaders(
    newest: int | None, leader: int
) -> None:
    log = Log(FIRST, entry(state(5)), epoch=leader)
    if newest is not None:
        log.entry(1).run_log_leader_epoch = newest
    asked: list[States] = []
    load_states(log, SHARD, unexplained=lambda states: asked.append(states) or {})  # type: ignore[func-returns-value]
    assert asked == ([] if newest == leader else [{ITEM: state(5)}])


def test_a_log_whose_entries_leave_records_unexplained_is_refused() -> None:
    log = Log(FIRST, entry(state(5)), epoch=3)
    log.entry(1).run_log_leader_epoch = 2
    with pytest.raises(RunLogError, match=r"^RUN_LOG_TRUNCATED: .* epoch 2, .* epoch 3, .* 4 record\(s\)"):
        load_states(log, SHARD, unexplained=lambda _states: {ITEM: 4})


def pieces(*parts: Entry) -> list[Entry]:
    for number, part in enumerate(parts):
        part.piece, part.pieces = number, len(parts)
    return list(parts)


def test_a_snapshot_in_several_records_counts_as_one_once_all_of_it_is_there() -> None:
    first, second = pieces(entry(state(5), snapshot=True), entry(state(7, OTHER), snapshot=True))
    assert states_of(logged(first, second), SHARD) == {ITEM: state(5), OTHER: state(7, OTHER)}
    assert states_of(logged(second), SHARD) is None, "its beginning is gone"
    assert states_of(logged(first), SHARD) is None, "its end is gone"
    following = pieces(entry(state(6), snapshot=True), entry(state(8, OTHER), snapshot=True))
    assert states_of(logged(first, second, *following), SHARD) == {ITEM: state(6), OTHER: state(8, OTHER)}
    back = pieces(entry(state(6), snapshot=True), entry(state(6, OTHER), snapshot=True))
    with pytest.raises(RunLogError, match="takes trips-1 back to source offset 6"):
        states_of(logged(first, second, *back), SHARD)
    less = pieces(entry(state(6), snapshot=True), entry(snapshot=True))
    with pytest.raises(RunLogError, match=r"forgets 1 partition\(s\) .*trips-1"):
        states_of(logged(first, second, *less), SHARD)


def test_an_opened_entry_counts_from_its_second_piece_on() -> None:
    snapshot, (opening, closing) = entry(state(5), snapshot=True), pieces(entry(), entry(state(7)))
    assert states_of(logged(snapshot, opening), SHARD) == {ITEM: state(5)}
    assert states_of(logged(snapshot, opening, closing), SHARD) == {ITEM: state(7)}
    following = entry(state(8), snapshot=True)
    assert states_of(logged(closing, following), SHARD) == {ITEM: state(8)}, "read from between the two on"
    _, back = pieces(entry(), entry(state(6)))
    with pytest.raises(RunLogError, match="takes trips-0 back to source offset 6"):
        states_of(logged(snapshot, opening, closing, opening, back), SHARD)


@pytest.mark.parametrize(
    "name", ["a forged snapshot", "carried here from another run log", "a position that goes back"]
)
def test_each_check_is_needed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Without it the record passes, and with it the copying of everything a second time."""
    monkeypatch.setattr(Shard, "owns", lambda _shard, found: found is not None)
    monkeypatch.setattr(recovery, "_gone_back", lambda _states, _entry: "")
    forgetful = REFUSED[name]
    assert forgetful is not None
    if forgetful.snapshot:
        with pytest.raises(RunLogError, match="forgets"):
            states_of(logged(FIRST, entry(state(5)), forgetful), SHARD)
    else:
        found = states_of(logged(FIRST, entry(state(5)), forgetful), SHARD)
        assert found is not None
        assert found != {ITEM: state(5)}
