from __future__ import annotations

from dataclasses import replace

import pytest

from lab.oracle.logs import Placed, TopicLog
from lab.oracle.once import GroupRewind
from lab.storm.facts import DoubtfulTransaction, Happening, StormFacts
from lab.storm.options import GROUPS, StormOptions
from lab.storm.schedule import FAULTS, Act, ActKind, draw_schedule
from lab.storm.verdict import judge, story
from lab.workload.delivered import DeliveredRecord
from lab.workload.events import RecordId
from tests.worlds.topic_logs import topic_log

RECORDS = [RecordId(region, seq) for region in "ab" for seq in range(3)]
INTERLEAVED = [record for pair in zip(RECORDS[:3], RECORDS[3:], strict=True) for record in pair]


def log(cluster: str, records: list[RecordId]) -> TopicLog:
    return topic_log(cluster, [(0, Placed(offset, record, 0)) for offset, record in enumerate(records)])


def deliveries(records: list[RecordId], at_ms: int = 1_000) -> list[DeliveredRecord]:
    places = log("aggregate-b", RECORDS).places()
    return [DeliveredRecord(0, record, "aggregate-b", 0, places[record][1], at_ms) for record in records]


def facts() -> StormFacts:
    """A storm in which all went well; the group g was set back by two records."""
    return StormFacts(
        acked_records=6,
        doubtful=(),
        sources={
            f"regional-{region}": log(f"regional-{region}", [r for r in RECORDS if r.region == region])
            for region in "ab"
        },
        targets={
            "aggregate-a": log("aggregate-a", INTERLEAVED),
            "aggregate-b": log("aggregate-b", RECORDS),
        },
        deliveries={
            "g": [*deliveries(RECORDS), *deliveries(RECORDS[1:3], at_ms=3_000)],
            "h": deliveries(RECORDS),
        },
        rewinds={"g": [GroupRewind("aggregate-b", 0, 1, 3, 2_000)], "h": []},
        skipped={"g": 0, "h": 4},
        told={"g": {"moved": 1}, "h": {}},
        died=(),
    )


def test_a_good_storm_has_no_failures_and_says_what_it_counted() -> None:
    report = judge(facts(), least_records=6)
    assert report["failures"] == []
    assert (report["produced_records"], report["skipped_records"], report["inversions"]) == (6, 4, 3)
    found = report["groups"]["g"]
    assert (found["consumed"], found["lost"], found["redelivered"], found["rewound"]) == (6, 0, 0, 2)
    assert found["rewinds"][0]["from_offset"] == 3


@pytest.mark.parametrize(
    ("change", "failure"),
    [
        ({"acked_records": 7}, "producers were told that 7 records are written, and 6 are"),
        ({"skipped": {"g": 0, "h": 0}}, "no group skipped a record: nothing was proved about skipping"),
        ({"died": ("spark",)}, "spark ended by itself"),
        ({"targets": {**facts().targets, "aggregate-a": log("aggregate-a", INTERLEAVED[1:])}}, "aggregate-a is not a faithful copy of its sources"),
        ({"rewinds": {"g": [], "h": []}}, "group g was given 2 records again that no rewind asked for"),
        ({"deliveries": {**facts().deliveries, "g": deliveries(RECORDS)}}, "group g was not given 2 records again that a rewind asked for"),
        ({"deliveries": {**facts().deliveries, "h": deliveries(RECORDS[1:])}}, "group h lost 1 records"),
    ],
)  # fmt: skip
def test_whatever_goes_wrong_is_a_failure(change: dict[str, object], failure: str) -> None:
    assert judge(replace(facts(), **change), least_records=6)["failures"] == [failure]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("acked", "doubtful", "failures"),
    [
        (4, ("b", 1, 3), []),
        (6, ("b", 3, 5), []),
        (6, ("b", 1, 3), ["producers were told that 6 records are written, and 4 are beside 2 of transactions without an answer"]),
        (5, ("b", 2, 4), ["of 2 records of one transaction of region b, 1 are written"]),
    ],
)  # fmt: skip
def test_a_transaction_without_an_answer_is_written_whole_or_not_at_all(
    acked: int, doubtful: tuple[str, int, int], failures: list[str]
) -> None:
    found = replace(facts(), acked_records=acked, doubtful=(DoubtfulTransaction(*doubtful),))
    report = judge(found, least_records=6)
    assert report["failures"] == failures
    assert report["doubtful_records"] == 2


def test_a_storm_that_is_too_small_fails() -> None:
    assert judge(facts(), least_records=7)["failures"] == ["only 6 records were produced, where 7 are wanted"]


def test_skipping_is_to_be_proved_or_not() -> None:
    nothing = replace(facts(), skipped=dict.fromkeys(facts().skipped, 0))
    assert judge(nothing, least_records=6)["failures"] == [
        "no group skipped a record: nothing was proved about skipping"
    ]
    assert judge(nothing, least_records=6, skipping=False)["failures"] == []


def test_missing_records_are_counted_in_groups_and_clusters() -> None:
    assert facts().missing() == 0
    late = replace(
        facts(),
        deliveries={"g": deliveries(RECORDS[2:]), "h": deliveries(RECORDS)},
        targets={
            "aggregate-a": log("aggregate-a", INTERLEAVED[1:]),
            "aggregate-b": log("aggregate-b", RECORDS),
        },
    )
    assert late.missing() == 3


def test_the_story_tells_schedule_and_happenings() -> None:
    schedule = draw_schedule(3, {"g": "a"}, len(FAULTS))
    act = Act(ActKind.RESTART, group="g", pause_s=1.5)
    told = story(schedule, [Happening(act, 61.04, 7.26, ["a note"], "too late")])
    assert told["seed"] == 3
    assert len(told["schedule"]) == len(schedule.acts)
    assert told["happened"] == [
        {
            "number": 1,
            "kind": "restart",
            "act": "a member of g is stopped and started",
            "began_s": 61.0,
            "took_s": 7.3,
            "notes": ["a note"],
            "problem": "too late",
        }
    ]


def test_the_producers_have_work_for_the_whole_storm() -> None:
    options = StormOptions()
    plans = {region: options.plan_of(region) for region in "ab"}
    backlog = sum(plan.phases[0].records for plan in plans.values())
    assert backlog == options.records // 2
    for plan in plans.values():
        assert sum(phase.seconds for phase in plan.phases) > options.at_most_s - 20
    assert plans["b"].transactions is not None
    assert plans["b"].transactions.abort_every > 0
    assert plans["b"].records > 3 * plans["a"].records


def test_two_regions_have_groups_and_one_has_several_members() -> None:
    assert {plan.home for plan in GROUPS.values()} == {"a", "b"}
    assert max(plan.members for plan in GROUPS.values()) > 1
