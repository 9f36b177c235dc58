from __future__ import annotations

import json
from random import Random

import pytest

from lab.workload.consuming import Pace
from lab.workload.events import MalformedEventError, RecordId, record_id, trip_event
from lab.workload.plan import Phase, Plan, PlannedTransactions, on_and_off


def test_an_event_tells_which_record_it_is() -> None:
    _, value = trip_event("b", 1234, 1_700_000_000_000, Random(7))
    assert record_id(value) == RecordId("b", 1234)
    assert json.loads(value)["at_ms"] == 1_700_000_000_000


def test_events_are_about_170_bytes_and_those_of_a_trip_share_a_key() -> None:
    events = [trip_event("a", seq, 1_700_000_000_000, Random(seq)) for seq in range(1_000)]
    sizes = [len(value) for _, value in events]
    assert 160 <= sum(sizes) / len(sizes) <= 190
    assert len({key for key, _ in events}) == 200


@pytest.mark.parametrize("value", [None, b"", b"{}", b"[1]", b"7", b'{"region":"a","seq":"x"}', b"\xff"])
def test_what_is_no_event_is_refused(value: bytes | None) -> None:
    with pytest.raises(MalformedEventError, match="not a trip event"):
        record_id(value)


def test_a_phase_spreads_its_records_evenly() -> None:
    phase = Phase(records=100, seconds=10)
    assert [phase.due(elapsed) for elapsed in (0, 1, 5, 9.99, 10, 11)] == [0, 10, 50, 99, 100, 100]


def test_a_phase_without_duration_is_due_at_once() -> None:
    assert Phase(records=5).due(0) == 5


def test_a_backlog_happened_over_its_history() -> None:
    phase = Phase(records=4, history_s=40)
    assert [phase.event_time_ms(number, 100_000) for number in range(4)] == [60_000, 70_000, 80_000, 90_000]


def test_a_phase_without_history_happens_now() -> None:
    assert Phase(records=4).event_time_ms(2, 100_000) == 100_000


@pytest.mark.parametrize("arguments", [{"records": -1}, {"records": 0}, {"records": 1, "seconds": -1}])
def test_impossible_phases_are_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="phase"):
        Phase(**arguments)


def test_a_plan_survives_the_command_line() -> None:
    plan = Plan(
        (Phase(10, 2.5), Phase(0, 3.0)), PlannedTransactions(5, abort_every=3), first_seq=7, at_most_s=30.0
    )
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.records == 10


@pytest.mark.parametrize("text", ["{}", "[]", '{"phases": [{"recrods": 1}]}', "no json"])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's own class is one of them
        Plan.from_json(text)


def test_every_so_many_transactions_one_is_aborted_first() -> None:
    transactions = PlannedTransactions(10, abort_every=3)
    assert [number for number in range(9) if transactions.aborts_before(number)] == [2, 5, 8]
    assert not any(PlannedTransactions(10).aborts_before(number) for number in range(9))


def test_idle_for_half_of_the_time() -> None:
    phases = on_and_off(50, busy_s=4, idle_s=4, stretches=2)
    assert [(phase.records, phase.seconds) for phase in phases] == [(200, 4), (0, 4), (200, 4), (0, 4)]


def test_a_pace_lets_pass_what_its_rate_allows() -> None:
    now = [0.0]
    pace = Pace(1_000, clock=lambda: now[0])
    assert pace.allowance(500) == 0
    now[0] = 0.05
    assert pace.allowance(500) == 50
    pace.took(50)
    assert pace.allowance(500) == 0
    now[0] = 10.0
    assert pace.allowance(500) == 100  # no more than a tenth of a second's worth at once


def test_a_pace_can_be_lifted() -> None:
    pace = Pace(1, clock=lambda: 0.0)
    assert pace.allowance(500) == 0
    pace.limit(None)
    assert pace.allowance(500) == 500
