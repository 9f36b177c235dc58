from __future__ import annotations

from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from parallax.config.config import Config
from parallax.domain.ids import Lineage, Route, TopicId, TopicName, TopicPartition
from parallax.domain.runs import Run
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.state import PartitionChange, PartitionState, encode
from replicator.kafka.foreign_records import ForeignRecordWatch, Gap, Gaps, unexplained
from replicator.lease import Lease
from tests.support import poll_until

ITEM = TopicPartition(TopicName("t"), 0)
LEASE = Lease(Route.parse("a->a"), 0, 1, layout=1, epoch=1, deadline_unix_ms=0)
STRETCH = Gap(ITEM, 10, 20)


def entry(*rows: Run) -> Entry:
    state = PartitionState(ITEM, Lineage(TopicId("s"), TopicId("d")), 0, 0, 0, 99, 99, 99)
    change = PartitionChange(state, rows)
    return encode(
        run_log_id=TopicId("log"),
        layout=1,
        shard=0,
        path="record",
        changes=[change],
        everything=None,
        committed_at_ms=1,
    )


def test_a_single_marker_between_two_runs_is_no_gap_and_a_longer_stretch_is() -> None:
    gaps = Gaps()
    gaps.note(entry(Run(0, 0, 5, 0)))
    gaps.note(entry(Run(5, 6, 4, 5), Run(9, 9, 0, 9)))
    assert gaps.take() == []
    gaps.note(entry(Run(9, 20, 1, 9)))
    assert gaps.take() == [Gap(ITEM, 10, 20)]
    assert gaps.take() == []


def test_what_runs_of_any_route_hold_is_explained() -> None:
    logs = [(0, [(0, 10), (20, 25)]), (5, [(10, 14)])]
    assert unexplained([10, 13, 14, 19], logs, STRETCH) == [(14, 15), (19, 20)]


def test_a_defect_is_told_of_and_the_next_look_comes_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Sequence[Gap]] = []

    def broken(_self: object, gaps: Sequence[Gap]) -> None:
        looks.append(gaps)
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(ForeignRecordWatch, "_look", broken)
    section = {"regional": {"bootstrap_servers": "x:1"}, "aggregate": {"bootstrap_servers": "x:1"}}
    config = Config.model_validate({"regions": {"a": section}, "cassandra": {"contact_points": ["x:1"]}})
    with capture_logs() as logs:
        looker = ForeignRecordWatch(config, LEASE, interval_ms=1)
        poll_until(lambda: len(looks) >= 2, 10, "a second look")
        looker.close()
    assert {(line["event"], line["log_level"], line["exc_info"]) for line in logs} == {
        ("foreign_records_failed", "error", True)
    }


def test_nothing_is_said_where_a_run_log_does_not_reach_back_far_enough() -> None:
    assert unexplained([14], [(0, []), (11, [(11, 13)])], STRETCH) == []
