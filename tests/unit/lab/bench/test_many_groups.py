"""Which offsets the bench takes for those of a move."""

from __future__ import annotations

import pytest

from lab.bench.rows.many_groups import moved_there
from parallax.domain.ids import TargetOffset, TopicId
from parallax.domain.metadata import CommittedMetadata, encode


@pytest.mark.parametrize("fencing_number", [0, 1, 7])
def test_only_a_move_writes_its_fencing_number(fencing_number: int) -> None:
    text = encode(CommittedMetadata(fencing_number, TopicId("there"), TargetOffset(3), {}))
    assert moved_there(text) is (fencing_number > 0)


@pytest.mark.parametrize("text", ["", "a note of the application", "plx1.damaged"])
def test_what_others_have_committed_is_no_move(text: str) -> None:
    assert not moved_there(text)
