"""Skip ranges on the wire."""

from __future__ import annotations

import pytest

from parallax.client.messages import packed, ranges_from_pb, skips_from_pb
from parallax.domain.lineage_history import Stretch
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
