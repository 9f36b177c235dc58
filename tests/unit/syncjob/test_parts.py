"""Groups are asked for together as long as what comes back stays small."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from parallax.domain.ids import GroupName
from syncjob.clusters import _PARTITIONS_AT_ONCE, in_parts


def test_ten_thousand_groups_of_ten_partitions_are_few_questions() -> None:
    groups = [GroupName(f"group-{number:05}") for number in range(10_000)]
    assert len(in_parts(groups, dict.fromkeys(groups, 10))) < 60
    assert len(in_parts(groups, {})) <= 1_200  # nothing is known of them


@given(st.lists(st.one_of(st.none(), st.integers(0, 5_000)), max_size=40))
def test_every_group_is_asked_for_once_and_no_answer_is_large(sizes: list[int | None]) -> None:
    groups = [GroupName(f"group-{number:03}") for number in range(len(sizes))]
    known = {group: size for group, size in zip(groups, sizes, strict=True) if size is not None}
    parts = in_parts(groups, known)
    assert [group for part in parts for group in part] == groups
    for part in parts:
        assert len(part) == 1 or sum(known.get(group, 0) for group in part) <= _PARTITIONS_AT_ONCE
