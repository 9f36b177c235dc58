from __future__ import annotations

import pytest

from lab.oracle.alternatives import Alternative, Moment, nearest_checkpoints, weigh_alternatives
from lab.oracle.logs import Placed, TopicLog
from lab.workload.events import RecordId
from tests.worlds.topic_logs import topic_log

# Offset 2 of each aggregate topic holds a control record; b lags behind with region a.
ORDER_A = ("a1", "b1", None, "a2", "b2", "a3", "b3", "a4")
ORDER_B = ("b1", "b2", None, "a1", "b3", "a2", "a3", "a4")
MINUTE_MS = 60_000


def log(cluster: str, names: tuple[str | None, ...]) -> TopicLog:
    """Record n of a region happened in minute n."""
    return topic_log(
        cluster,
        [
            (0, Placed(offset, RecordId(name[0], int(name[1:])), int(name[1:]) * MINUTE_MS))
            for offset, name in enumerate(names)
            if name is not None
        ],
    )


@pytest.fixture
def moment() -> Moment:
    """The group had consumed a up to offset 6 (a1 b1 a2 b2 a3) when b ended at 6 (a3 had not come there yet)."""
    consumed = {RecordId(name[0], int(name[1:])) for name in ORDER_A[:6] if name is not None}
    return Moment(
        origin=log("aggregate-a", ORDER_A),
        destination=log("aggregate-b", ORDER_B),
        sources={
            "a": log("regional-a", ("a1", "a2", "a3", "a4")),
            "b": log("regional-b", ("b1", "b2", "b3")),
        },
        consumed=consumed,
        next_offsets={0: 6},
        ends={0: 6},
        at_ms=5 * MINUTE_MS,
    )


def test_each_rule_pays_its_price(moment: Moment) -> None:
    assert weigh_alternatives(moment, minutes_back=3) == {
        # Reads everything; what it had consumed again.
        "earliest": Alternative(lost_records=0, redelivered_records=5),
        # Starts at 6: passes over b3, and reads a3 again when it arrives.
        "latest": Alternative(lost_records=1, redelivered_records=1),
        # The first record of minute 2 or later is b2 at 1.
        "timestamp_3_minutes_back": Alternative(lost_records=0, redelivered_records=4),
        # Too few records for a checkpoint at every 1,000th.
        "nearest_checkpoint": Alternative(lost_records=0, redelivered_records=5),
    }


def test_a_time_after_every_record_means_the_end(moment: Moment) -> None:
    found = weigh_alternatives(moment, minutes_back=0)
    assert found["timestamp_0_minutes_back"] == found["latest"]


def test_the_nearest_checkpoint_rule_takes_the_minimum_of_the_sources(moment: Moment) -> None:
    # Checkpoints at every record: a3 is not in b yet, a2 is (at 5); the group stands at b3, at 4 over there.
    assert nearest_checkpoints(moment, every_records=1) == {0: 4}
    # At every second record: a2 (5), b2 (1).
    assert nearest_checkpoints(moment, every_records=2) == {0: 1}
    # At every third: a3 has not arrived, b3 was not consumed: no checkpoint, log start.
    assert nearest_checkpoints(moment, every_records=3) == {0: 0}
