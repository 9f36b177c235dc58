"""Skip ranges and progress on the wire."""

from __future__ import annotations

import pytest

from parallax.client.messages import packed, progress_from_pb, progress_to_pb, ranges_from_pb, skips_from_pb
from parallax.domain.ids import UNKNOWN_EPOCH, RegionName, SourceId, SourceOffset, TopicId
from parallax.domain.lineage_history import Stretch
from parallax.domain.progress import SourcePosition
from parallax.errors import InvalidOffsetError
from parallax.v1 import offsets_pb2 as pb

_LAST = (1 << 63) - 1


@pytest.mark.parametrize(
    ("stretches", "numbers"),
    [
        ([], []),
        ([(0, 1)], [0, 1]),
        ([(7, 10), (11, 12), (100, 103)], [7, 3, 1, 1, 88, 3]),
        ([(5, _LAST)], [5, _LAST - 5]),
    ],
)
def test_packed_skip_ranges_are_the_distances_between_their_bounds(
    stretches: list[Stretch], numbers: list[int]
) -> None:
    plain = [pb.OffsetRange(start=start, end=end) for start, end in stretches]
    told = pb.FailoverOffset(packed_skip_ranges=packed(stretches))

    assert packed(stretches) == numbers
    assert skips_from_pb(pb.FailoverOffset.FromString(told.SerializeToString())) == ranges_from_pb(plain)
    assert skips_from_pb(pb.FailoverOffset(skip_ranges=plain)) == ranges_from_pb(plain)


def test_packed_they_take_a_fraction_of_the_bytes() -> None:
    stretches = [(5_000_000 + 8 * number, 5_000_003 + 8 * number) for number in range(117)]
    plain = pb.FailoverOffset(skip_ranges=[pb.OffsetRange(start=start, end=end) for start, end in stretches])

    assert 5 * pb.FailoverOffset(packed_skip_ranges=packed(stretches)).ByteSize() < plain.ByteSize()


def test_progress_comes_back_as_it_was_sent() -> None:
    source = SourceId(RegionName("a"), TopicId("x"))
    for epoch in (UNKNOWN_EPOCH, 0, 7):
        progress = {source: SourcePosition(epoch, SourceOffset(5), ((epoch, SourceOffset(3)),))}
        assert progress_from_pb(progress_to_pb(progress)) == progress


@pytest.mark.parametrize(
    "progress",
    [
        pb.SourceProgress(region="a", source_leader_epoch=-2),
        pb.SourceProgress(region="a", epoch_ends=[pb.EpochEnd(leader_epoch=-7, source_next_offset=1)]),
    ],
)
def test_a_leader_epoch_that_none_can_be_is_refused(progress: pb.SourceProgress) -> None:
    """It could be kept with a move, but not be written into what is committed: nothing would be published for the group."""
    with pytest.raises(InvalidOffsetError, match="leader_epoch -"):
        progress_from_pb([progress])
