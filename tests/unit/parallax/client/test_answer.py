"""What an answer of the offset service says once it is a plain value."""

from __future__ import annotations

from typing import Any

import pytest

from parallax.client.answer import answer_from_pb, answers_from_pb
from parallax.domain.metadata import decode
from parallax.domain.outcome import Outcome
from parallax.domain.progress import Progress
from parallax.errors import InvalidNameError
from parallax.v1 import offsets_pb2 as pb

_MANY_SOURCES = 400


def message(**fields: Any) -> pb.FailoverOffset:
    """An answer for trips-0 with a position of 7 at the origin."""
    fields = {"outcome": pb.OK, "topic": "trips", "resume_offset": 5, **fields}
    fields.setdefault("from", pb.ClusterPosition(next_offset=7, indexed_to=7, basis="committed"))
    fields.setdefault("to", pb.ClusterPosition(cluster="aggregate-b", topic_id="t", high_watermark=20))
    return pb.FailoverOffset(**fields)


def test_what_is_absent_is_not_zero() -> None:
    answer = answer_from_pb(message(**{"from": pb.ClusterPosition()}, to=pb.ClusterPosition()))
    assert (answer.origin_next_offset, answer.origin_indexed_to, answer.origin_answers) == (None, None, False)
    assert (answer.low_watermark, answer.high_watermark, answer.complete_to) == (None, None, None)
    assert (answer.redelivery_records, answer.freshness_ms, answer.observed_at_ms) == (None, None, None)


@pytest.mark.parametrize(
    ("fields", "complete_to"),
    [
        ({}, None),
        ({"complete_to": 12}, 12),
        ({"skip_ranges_continue_at": 9}, 9),
        ({"complete_to": 12, "skip_ranges_continue_at": 9}, 9),
    ],
)
def test_skip_ranges_are_complete_below_whatever_ends_them_first(
    fields: dict[str, int], complete_to: int | None
) -> None:
    answer = answer_from_pb(message(**fields))
    assert answer.complete_to == complete_to
    assert answer.skips_cut == ("skip_ranges_continue_at" in fields)


@pytest.mark.parametrize(
    ("fields", "settled", "final"),
    [
        ({}, True, True),
        ({"pending_records": 3}, False, False),
        ({"from": pb.ClusterPosition(next_offset=7, indexed_to=6)}, False, False),
        ({"from": pb.ClusterPosition(next_offset=7)}, False, False),
        ({"from": pb.ClusterPosition()}, True, True),
        ({"complete_to": 12}, True, False),
        ({"outcome": pb.STALE, "notes": [pb.STALE]}, True, True),
        ({"outcome": pb.LINEAGE_CHANGED, "notes": [pb.LINEAGE_CHANGED]}, True, False),
        ({"outcome": pb.BY_TIMESTAMP, "notes": [pb.BY_TIMESTAMP], "pending_records": 3}, True, False),
    ],
)
def test_whether_a_better_answer_may_come(fields: dict[str, Any], *, settled: bool, final: bool) -> None:
    answer = answer_from_pb(message(**fields))
    assert (answer.settled, answer.final) == (settled, final)


def test_the_outcome_is_a_note_too() -> None:
    assert answer_from_pb(message(outcome=pb.TRIMMED)).notes == {Outcome.TRIMMED}


def test_commit_and_progress_say_the_same() -> None:
    source = pb.SourceProgress(region="a", source_topic_id="s", source_next_offset=4)
    skips = [pb.OffsetRange(start=8, end=10)]
    answer = answer_from_pb(message(progress=[source], skip_ranges=skips, complete_to=15))
    commit = answer.commit(fencing_number=3)
    assert (commit.next_offset, decode(commit.metadata)) == (5, answer.metadata(3))
    assert answer.progress == Progress(
        answer.target, answer.target_topic_id, commit.next_offset, answer.vector
    )


def test_an_offset_is_committed_without_metadata_that_is_too_long() -> None:
    sources = [
        pb.SourceProgress(region=f"region-{number}", source_topic_id=f"{number:022}", source_next_offset=1)
        for number in range(_MANY_SOURCES)
    ]
    commit = answer_from_pb(message(progress=sources)).commit()
    assert (commit.next_offset, commit.metadata) == (5, "")


def test_a_group_is_told_by_partition() -> None:
    response = pb.GetGroupFailoverOffsetsResponse(offsets=[message(partition=1), message(partition=0)])
    assert [str(item) for item in answers_from_pb(response)] == ["trips-1", "trips-0"]


def test_an_outcome_that_only_a_newer_service_knows_is_said_so() -> None:
    with pytest.raises(InvalidNameError, match="outcome 99 is unknown; the server may be newer"):
        answer_from_pb(message(outcome=99))


def test_what_lies_beyond_the_answer_is_counted() -> None:
    answer = answer_from_pb(message(skip_ranges=[pb.OffsetRange(start=8, end=10)]))
    assert (answer.skip_records, answer.lag_offsets) == (2, 15)
    assert answer_from_pb(message(resume_offset=21)).lag_offsets == 0
    assert answer_from_pb(message(to=pb.ClusterPosition())).lag_offsets is None
