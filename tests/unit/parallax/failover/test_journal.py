"""What is kept of moves."""

from __future__ import annotations

from dataclasses import replace

from parallax.domain.commits import GroupCommit
from parallax.domain.ids import (
    ClusterName,
    TargetOffset,
    TopicId,
    TopicPartition,
)
from parallax.domain.metadata import CommittedMetadata, decode, encode
from parallax.domain.skips import SkipRange
from parallax.failover.journal import mark_of, note_of, record_of, without_skips
from tests.worlds.failover_bench import Bench, a_move
from tests.worlds.offset_world import GROUP, TOPIC

ON_A, ON_B = ClusterName("aggregate-a"), ClusterName("aggregate-b")


def test_the_journal_is_small_although_metadata_is_long(bench: Bench) -> None:
    partitions = 10
    skips = tuple(SkipRange(TargetOffset(at), TargetOffset(at + 1)) for at in range(6, 3_000, 2))
    published = CommittedMetadata(
        0, TopicId("aggregate-b-1"), TargetOffset(5), {}, skips, TargetOffset(3_000)
    )
    commit = GroupCommit(TargetOffset(5), -1, encode(published))
    assert len(commit.metadata) > 2_000
    places = [TopicPartition(TOPIC, number) for number in range(partitions)]
    bench.writer("b").commits[GROUP] = dict.fromkeys(places, commit)
    move = a_move("a", "b")
    snapshot = bench.outside.snapshot(move, None)
    marks = {place: mark_of(commit) for place in places}
    record = replace(bench.outside.journal.begin(move, snapshot, None), written=marks)

    note = note_of(record)

    assert len(note.body) < 300 * partitions
    assert record_of(note) == record
    kept = decode(snapshot.commits[ON_B][places[0]].metadata)
    assert (kept.resume_offset, kept.skips, kept.complete_to) == (5, (), 5)
    assert mark_of(commit) != mark_of(replace(commit, metadata=""))


def test_somebody_elses_metadata_is_kept_as_it_is() -> None:
    for text in ("", "mine", "plx?"):
        commit = GroupCommit(TargetOffset(5), -1, text)
        assert without_skips(commit) == commit


def test_a_record_survives_the_journal(bench: Bench) -> None:
    bench.move("a", "b", drain_ms=1_000)
    bench.move("b", "a", drain_ms=1_000)
    for record in bench.outside.journal.records(GROUP):
        assert record.snapshot.commits
        assert record_of(note_of(record)) == record
    assert bench.outside.journal.records(GROUP)[0].snapshot.progress
