"""Drills: figures, history, report, and the steps over the real executor with canary records of the test's making."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from parallax.domain.ids import GroupName, RegionName
from parallax.errors import ClusterUnavailableError, ConfigError, StoreUnavailableError
from parallax.failover.background import SILENT_MS
from parallax.failover.drill import canary as canary_module
from parallax.failover.drill.canary import KafkaCanary
from parallax.failover.drill.figures import CanaryDelivery, Leg, Samples, figures, timeline
from parallax.failover.drill.history import DRILLS, DrillEnding, DrillRecord, keep, kept, seen
from parallax.failover.drill.report import html, markdown
from parallax.failover.drill.run import DrillRun
from parallax.failover.plan import Ending
from tests.memory.groups import MemoryOperationJournal
from tests.worlds.drill_bench import PLAN, FakeCanary
from tests.worlds.failover_bench import Bench
from tests.worlds.offset_world import GROUP, TOPIC


class TestFigures:
    def test_they_count_from_the_command_to_the_first_record_there(self) -> None:
        samples = Samples(
            acknowledged={("a", 0): 100, ("a", 1): 900, ("b", 0): 980, ("a", 2): 1_500},
            delivered=[
                CanaryDelivery(("a", 0), 150, "a"),
                CanaryDelivery(("a", 1), 950, "a"),
                CanaryDelivery(("b", 0), 1_600, "b"),
                CanaryDelivery(("a", 1), 1_700, "b"),
            ],
            arrived={"b": {("a", 0): 180, ("a", 1): 1_050}},
        )
        found = figures(samples, [Leg("a", "b", 1_000, 1_400)])
        assert (found.acknowledged, found.delivered, found.lost, found.redelivered) == (4, 4, 1, 1)
        (leg,) = found.legs
        assert (leg.rto_ms, leg.silence_ms) == (600, 650)
        assert (leg.rpo_records, leg.rpo_ms) == (2, 100)

    def test_a_move_after_which_nothing_came_has_no_rto(self) -> None:
        (leg,) = figures(Samples(delivered=[CanaryDelivery(("a", 0), 5, "a")]), [Leg("a", "b", 10, 20)]).legs
        assert (leg.rto_ms, leg.silence_ms, leg.rpo_records, leg.rpo_ms) == (None, None, 0, 0)

    def test_the_timeline_holds_every_record(self) -> None:
        samples = Samples(
            {("a", n): n * 37.0 for n in range(500)},
            [CanaryDelivery(("a", n), n * 37.0 + 4, "ab"[n // 250]) for n in range(500)],
        )
        line = timeline(samples, ["a", "b"])
        assert sum(line.acknowledged) == 500
        assert [sum(counts) for counts in line.delivered.values()] == [250, 250]


def drilled(bench: Bench, canary: FakeCanary, proof: str = "once") -> DrillRecord:
    return DrillRun(bench.outside, canary, PLAN, prove=lambda: proof).run()


def home(bench: Bench) -> str:
    return str(bench.assignment().consumed_cluster)


class TestSteps:
    def test_a_drill_goes_there_and_back_and_is_kept(self, bench: Bench) -> None:
        canary = FakeCanary(bench)
        record = drilled(bench, canary)
        assert (record.ending, record.problem, record.proof) == (DrillEnding.PASSED, "", "once")
        assert record.figures is not None
        assert [leg.leg.to for leg in record.figures.legs] == ["b", "a"]
        assert (record.figures.lost, record.figures.redelivered) == (0, 0)
        assert home(bench) == "aggregate-a"
        assert (canary.open_calls, canary.closed) == (1, 1)
        assert kept(bench.outside.journal.notes) == [record]
        assert len(bench.outside.journal.records(GROUP)) == 2, "its notes are not those of moves"
        acts = bench.world.audit.entries()
        assert {(acts[0].call, acts[0].stage.value), (acts[-1].call, acts[-1].stage.value)} == {
            ("drill", "intended"),
            ("drill", "done"),
        }

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"drop": lambda number: number == 4}, "2 record(s) lost, 0 delivered again"),
            ({"repeat": lambda number: number == 4}, "0 record(s) lost, 2 delivered again"),
        ],
    )
    def test_a_record_missing_or_too_many_fails_it(
        self, bench: Bench, change: dict[str, Any], says: str
    ) -> None:
        canary = FakeCanary(bench)
        for name, value in change.items():
            setattr(canary, name, value)
        record = drilled(bench, canary)
        assert (record.ending, record.problem) == (DrillEnding.FAILED, says)

    def test_a_proof_that_says_otherwise_fails_it(self, bench: Bench) -> None:
        record = drilled(bench, FakeCanary(bench), "twice")
        assert record.ending is DrillEnding.FAILED
        assert "`parallax verify billing --moves 2` says 'twice'" in record.problem

    def test_records_that_do_not_flow_end_it_before_anything_moves(self, bench: Bench) -> None:
        canary = FakeCanary(bench)
        canary.drop = lambda _number: True
        record = drilled(bench, canary)
        assert record.ending is DrillEnding.FAILED
        assert "did not reach the drill's consumer in a" in record.problem
        assert bench.client.service.primaries.get(GROUP) is None
        assert canary.closed == 1

    def test_a_cluster_that_refuses_records_ends_it_and_says_so(self, bench: Bench) -> None:
        canary = FakeCanary(bench)
        canary.failure = ConfigError("regional-a: producing to parallax-drill: not allowed")
        record = drilled(bench, canary)
        assert record.ending is DrillEnding.FAILED
        assert "not allowed" in record.problem
        assert record.left == "group billing is in aggregate-a, without members"
        assert bench.client.service.primaries.get(GROUP) is None

    def test_an_error_that_is_not_ours_leaves_no_member_and_no_moved_group(self, bench: Bench) -> None:
        canary = FakeCanary(bench)

        def break_down(_turn: int) -> None:
            found = canary.decided()
            if found is not None and found.consumed_cluster == "aggregate-b":
                canary.failure = TypeError("unheard of")

        bench.while_waiting = break_down
        record = DrillRun(bench.outside, canary, replace(PLAN, records=5), prove=lambda: "once").run()
        assert record.ending is DrillEnding.FAILED
        assert record.problem == "an error of Parallax itself (TypeError), which the log has"
        assert record.left == "group billing is in aggregate-a, without members"
        assert (home(bench), canary.closed) == ("aggregate-a", 1)
        assert kept(bench.outside.journal.notes) == [record]

    def test_a_drill_that_fails_half_way_shows_what_it_has_and_calls_nothing_lost(self, bench: Bench) -> None:
        canary = FakeCanary(bench)

        def break_down(_turn: int) -> None:
            if bench.client.service.primaries.get(GROUP) is not None:
                canary.drop = lambda _number: True

        bench.while_waiting = break_down
        record = drilled(bench, canary)
        assert record.ending is DrillEnding.FAILED
        assert "did not reach the drill's consumer in b" in record.problem
        assert record.figures is not None
        assert record.figures.delivered < record.figures.acknowledged
        assert (record.figures.lost, record.proof) == (None, "")
        assert [(leg.leg.to, leg.rto_ms) for leg in record.figures.legs] == [("b", None)]
        assert record.timeline is not None
        assert kept(bench.outside.journal.notes) == [record]

    def test_a_group_with_members_is_left_to_them(self, bench: Bench) -> None:
        canary = FakeCanary(bench)
        bench.writer("a").members[GROUP] = 1
        record = drilled(bench, canary)
        assert record.ending is DrillEnding.FAILED
        assert "group billing has members in aggregate-a: does another drill run?" in record.problem
        assert (record.left, canary.open_calls) == ("group billing was not touched", 0)
        assert bench.client.service.primaries.get(GROUP) is None

    def test_a_drill_between_two_clusters_is_not_taken_for_a_killed_one(self, bench: Bench) -> None:
        began = DrillRecord("first", GROUP, TOPIC, "a", "b", bench.world.now_ms - 1_000, 1)
        keep(bench.outside.journal.notes, began)
        members = bench.writer("a").members
        bench.while_waiting = lambda turn: members.update({GROUP: 1}) if turn == 20 else None
        assert drilled(bench, FakeCanary(bench)).left == "group billing was not touched"

        members.clear()
        keep(bench.outside.journal.notes, replace(began, version=2, started_at_ms=bench.world.now_ms))
        bench.world.now_ms += 1_000
        bench.while_waiting = lambda _turn: None
        canary = FakeCanary(bench)
        record = drilled(bench, canary)
        assert record.left == "group billing is in aggregate-a, without members", "it was killed"

    def test_a_drill_that_has_no_member_yet_is_left_the_group(self, bench: Bench) -> None:
        """Its topic is still being made: its signs alone tell of it."""
        notes, now_ms = bench.outside.journal.notes, bench.world.now_ms
        first = DrillRecord("first", GROUP, TOPIC, "a", "b", now_ms - 10, now_ms * 1_000, actor="alice")
        keep(notes, first)
        bench.while_waiting = lambda _turn: keep(notes, replace(first, version=bench.world.now_ms * 1_000))
        canary = FakeCanary(bench)
        plan = replace(PLAN, limits=replace(PLAN.limits, drain_ms=30_000))
        record = DrillRun(bench.outside, canary, plan, prove=lambda: "once").run()
        assert (record.ending, record.left) == (DrillEnding.FAILED, "group billing was not touched")
        assert "drill first of alice runs and has group billing" in record.problem
        assert canary.open_calls == 0

        ends_at_ms = bench.world.now_ms + 5_000

        def ends(_turn: int) -> None:
            ended = bench.world.now_ms >= ends_at_ms
            ending = DrillEnding.PASSED if ended else DrillEnding.RUNNING
            keep(notes, replace(first, version=bench.world.now_ms * 1_000, ending=ending))

        bench.while_waiting = ends
        assert DrillRun(bench.outside, canary, plan, prove=lambda: "once").run().ending is DrillEnding.PASSED

    def test_a_drill_that_began_later_or_has_another_group_is_not_waited_for(self, bench: Bench) -> None:
        notes, now_ms = bench.outside.journal.notes, bench.world.now_ms
        later = DrillRecord("later", GROUP, TOPIC, "a", "b", now_ms + 5_000, (now_ms + 5_000) * 1_000)
        other = replace(later, drill_id="other", group=GroupName("other"), started_at_ms=now_ms - 5_000)
        keep(notes, later)
        keep(notes, other)
        assert drilled(bench, FakeCanary(bench)).ending is DrillEnding.PASSED

    def test_members_of_a_killed_drill_are_waited_for(self, bench: Bench) -> None:
        bench.writer("a").members[GROUP] = 1
        bench.while_waiting = lambda turn: bench.writer("a").members.pop(GROUP, None) if turn == 3 else None
        assert drilled(bench, FakeCanary(bench)).ending is DrillEnding.PASSED

    def test_ctrl_c_between_the_moves_takes_the_group_home(self, bench: Bench) -> None:
        canary = FakeCanary(bench)

        def stop_there(_turn: int) -> None:
            found = bench.client.service.primaries.get(GROUP)
            if found is not None and found.consumed_cluster == "aggregate-b":
                bench.outside.time.stop.set()

        bench.while_waiting = stop_there
        plan = replace(PLAN, records=5)
        record = DrillRun(bench.outside, canary, plan, prove=lambda: "once").run()
        assert (record.ending, record.problem) == (DrillEnding.INTERRUPTED, "the command was stopped")
        assert record.left == "group billing is in aggregate-a, without members"
        assert home(bench) == "aggregate-a"

    def test_a_group_that_can_not_be_taken_home_is_told_and_goes_home_with_the_next_drill(
        self, bench: Bench
    ) -> None:
        canary = FakeCanary(bench)

        def break_down(_turn: int) -> None:
            found = bench.client.service.primaries.get(GROUP)
            if found is not None and found.consumed_cluster == "aggregate-b":
                bench.client.failing["set_primary moving"] = StoreUnavailableError("away")

        bench.while_waiting = break_down
        record = DrillRun(bench.outside, canary, replace(PLAN, records=5), prove=lambda: "once").run()
        assert record.ending is DrillEnding.FAILED
        assert "could not be taken home to aggregate-a" in record.left

        bench.client.failing.clear()
        bench.while_waiting = lambda _turn: None
        bench.world.now_ms += 10_000
        again = drilled(bench, FakeCanary(bench))
        assert again.ending is DrillEnding.PASSED, again.problem
        assert [item.ending for item in kept(bench.outside.journal.notes)] == [
            DrillEnding.PASSED,
            DrillEnding.FAILED,
        ]

    def test_a_move_that_a_killed_drill_left_half_way_is_ended_first(self, bench: Bench) -> None:
        bench.client.failing["report_positions"] = StoreUnavailableError("away")
        assert bench.move("a", "b", drain_ms=2_000).ending is Ending.INTERRUPTED
        bench.client.failing.clear()
        record = drilled(bench, FakeCanary(bench))
        assert record.ending is DrillEnding.PASSED, record.problem
        assert home(bench) == "aggregate-a"

    def test_without_a_journal_nothing_is_begun(self, bench: Bench) -> None:
        canary = FakeCanary(bench)

        class Away(MemoryOperationJournal):
            def save_operation(self, note: object) -> None:
                raise StoreUnavailableError(f"no room for {type(note).__name__}")

        bench.outside.journal.notes = Away()
        with pytest.raises(StoreUnavailableError):
            drilled(bench, canary)
        assert canary.open_calls == 0

    def test_a_result_that_can_not_be_kept_is_still_told(self, bench: Bench) -> None:
        class Failing(MemoryOperationJournal):
            def save_operation(self, note: Any) -> None:
                if note.group == DRILLS and '"ending":"running"' not in note.body:
                    raise StoreUnavailableError("away")
                super().save_operation(note)

        bench.outside.journal.notes = Failing()
        record = drilled(bench, FakeCanary(bench))
        assert record.ending is DrillEnding.PASSED
        assert record.problem.startswith("passed; not kept: ")
        assert [item.ending for item in kept(bench.outside.journal.notes)] == [DrillEnding.RUNNING]


@pytest.fixture
def records(bench: Bench) -> list[DrillRecord]:
    drilled(bench, FakeCanary(bench))
    bench.world.now_ms += 10_000
    canary = FakeCanary(bench)
    canary.drop = lambda number: number == 4
    drilled(bench, canary)
    (newest, before) = kept(bench.outside.journal.notes)
    told = replace(newest, problem="a <b> & | c")
    keep(bench.outside.journal.notes, replace(told, version=told.version + 1))
    return list(kept(bench.outside.journal.notes)) if before.ending is DrillEnding.PASSED else []


class TestReport:
    def test_markdown_has_a_row_for_each_drill(self, records: list[DrillRecord]) -> None:
        text = markdown(records)
        rows = [line for line in text.splitlines() if line.startswith("| 2023")]
        assert [" failed " in row for row in rows] == [True, False]
        assert len({line.count("|") for line in rows}) == 1
        assert "Why: a <b> & | c." in text

    def test_the_page_is_well_formed_and_loads_nothing(self, records: list[DrillRecord]) -> None:
        page = html(records)
        assert "a &lt;b&gt; &amp; | c" in page
        assert "<script" not in page
        assert re.findall(r'(?:src|href)="(?!data:)', page) == []
        drawn = page[page.index("<svg") : page.index("</svg>") + len("</svg>")]
        root = ET.fromstring(drawn)  # noqa: S314 - our own text
        texts = [item.text or "" for item in root.iter("text")]
        assert {"acknowledged", "delivered in a", "delivered in b"} <= set(texts)
        assert any(text.startswith("a to b, RTO ") for text in texts)
        line, measured = records[0].timeline, records[0].figures
        assert line is not None
        assert measured is not None
        bars = [
            count for counts in (line.acknowledged, *line.delivered.values()) for count in counts if count
        ]
        assert len(list(root.iter("rect"))) == len(measured.legs) + len(bars)

    def test_before_the_first_drill_there_is_a_report_too(self) -> None:
        assert "No drill has been run yet." in markdown([])
        assert "No drill has been run yet." in html([])

    def test_a_drill_that_ended_without_a_word_is_told(self, records: list[DrillRecord]) -> None:
        running = replace(records[0], ending=DrillEnding.RUNNING, figures=None, timeline=None)
        assert "It has not ended." in markdown([running])
        silent = seen(running, running.version // 1_000 + SILENT_MS)
        assert "interrupted: run again: no process has told of it for 15 s" in markdown([silent])
        assert seen(running, running.version // 1_000 + SILENT_MS - 1) == running
        assert seen(records[0], running.version // 1_000 + SILENT_MS) == records[0], "it has ended"
        assert "<svg" not in html([silent])


def test_a_refused_move_is_told(bench: Bench) -> None:
    bench.world.trim("b", 8)
    record = drilled(bench, FakeCanary(bench))
    assert record.ending is DrillEnding.FAILED
    assert "the move to b ended as refused" in record.problem
    assert record.left == "group billing is in aggregate-a, without members"


def test_a_topic_that_replication_does_not_create_ends_the_wait(bench: Bench) -> None:
    there = KafkaCanary(bench.world.config, PLAN, bench.outside)
    assert there._await_topic(RegionName("b")) == 1
    missing = KafkaCanary(bench.world.config, replace(PLAN, topic="missing"), bench.outside)
    with pytest.raises(ClusterUnavailableError, match="aggregate-b has no topic missing after 2 s"):
        missing._await_topic(RegionName("b"))
    assert bench.waits > 1


class FakeAdmin:
    """An `AdminClient` whose cluster lacks the drill's topic at first.

    Attributes:
        made: what becomes of creating it.
        lists: how many partitions are listed, one look after the other; 0: it is not there.
    """

    def __init__(self, made: BaseException | None, lists: list[int]) -> None:
        self.made = made
        self.lists = lists

    def list_topics(self, *, timeout: float) -> SimpleNamespace:
        assert timeout
        count = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        return SimpleNamespace(topics={TOPIC: SimpleNamespace(partitions=range(count))} if count else {})

    def create_topics(self, topics: list[Any], *, request_timeout: float) -> dict[str, Future[None]]:
        assert request_timeout
        future: Future[None] = Future()
        if self.made is None:
            future.set_result(None)
        else:
            future.set_exception(self.made)
        return {topic.topic: future for topic in topics}


class TestTopicOfADrill:
    @pytest.fixture
    def ensured(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeAdmin], int]:
        def ensure(admin: FakeAdmin) -> int:
            monkeypatch.setattr(canary_module, "AdminClient", lambda _settings: admin)
            return KafkaCanary(bench.world.config, PLAN, bench.outside)._ensure_topic(RegionName("a"))

        return ensure

    def test_it_is_made_where_it_is_missing(self, ensured: Callable[[FakeAdmin], int]) -> None:
        assert ensured(FakeAdmin(None, [0, 0, 3])) == 3
        assert ensured(FakeAdmin(AssertionError(), [2])) == 2

    def test_who_made_it_meanwhile_has_said_how_many_partitions_it_has(
        self, ensured: Callable[[FakeAdmin], int]
    ) -> None:
        there = KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS))
        assert ensured(FakeAdmin(there, [0, 0, 5])) == 5

    def test_what_hinders_it_is_told(self, ensured: Callable[[FakeAdmin], int]) -> None:
        with pytest.raises(
            ClusterUnavailableError, match=r"regional-a: creating topic .*: no answer within 10 s"
        ):
            ensured(FakeAdmin(TimeoutError(), [0]))
        refused = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        with pytest.raises(ConfigError, match="regional-a: creating topic"):
            ensured(FakeAdmin(refused, [0]))
        with pytest.raises(ClusterUnavailableError, match="it was made, and is not there after 2 s"):
            ensured(FakeAdmin(None, [0]))
