"""Whether a change of a layout that hangs was told to be committed, by what its run log holds."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from parallax.domain.ids import TargetOffset, TopicId, TopicName, TopicPartition
from replicator.kafka.layout_record import LayoutRecord
from replicator.kafka.transactions.hanging_changes import LAYOUTS, was_settled

RUN_LOG = TopicName("parallax.runs.a")
SHARDS = [TopicPartition(RUN_LOG, shard) for shard in range(2)]


@pytest.mark.parametrize(
    ("settled", "hanging", "layouts", "committed"),
    [
        (True, (), ({3, 4}, {3}), True),  # it has ended in one of them, and so it was decided
        (True, (), ({3}, {3, 4, 5}), True),  # what came after it
        (True, (), ({3}, {3}), False),
        (True, (), ((), ()), False),
        (True, (0,), ((), {3, 4}), True),
        (True, (0,), ({4}, {3}), False),  # what hangs says nothing
        (True, (0, 1), ((), ()), True),  # whole, and nobody has seen it aborted
        (False, (), ({4}, {4}), False),
    ],
)
def test_it_is_committed_if_a_snapshot_of_it_was_or_all_of_it_hangs(
    settled: bool,  # noqa: FBT001 - parametrised
    hanging: Collection[int],
    layouts: tuple[Collection[int], Collection[int]],
    committed: bool,  # noqa: FBT001 - parametrised
) -> None:
    record = LayoutRecord(4, 2, settled=settled, run_log=RUN_LOG, run_log_id=TopicId("r"), previous_shards=1)
    hanging_at = dict.fromkeys([LAYOUTS, *(SHARDS[shard] for shard in hanging)], TargetOffset(7))
    assert was_settled(record, SHARDS, hanging_at, lambda item: layouts[item.partition]) is committed


def test_of_a_run_log_that_is_gone_the_layout_is_to_be_known() -> None:
    record = LayoutRecord(4, 2, settled=True, run_log=RUN_LOG, run_log_id=TopicId("r"))
    assert was_settled(record, [], {LAYOUTS: TargetOffset(7)}, lambda _: ())
