"""Drills in the background: run one at a time, watched, stopped, seen by other processes."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from parallax.errors import ClusterUnavailableError, NotFoundError, RefusedError
from parallax.failover.drill.desk import DrillDesk, DrillProgress
from parallax.failover.drill.history import DRILLS, DrillEnding, DrillRecord, keep, kept
from parallax.failover.drill.run import DrillRun
from parallax.failover.waiting import Tell
from tests.support import poll_until
from tests.worlds.drill_bench import PLAN, FakeCanary
from tests.worlds.failover_bench import OPERATOR, Bench
from tests.worlds.offset_world import GROUP, TOPIC


class HeldCanary(FakeCanary):
    """Begins when it is let."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.let = threading.Event()

    def open(self, drill_id: str) -> None:
        assert self.let.wait(30)
        super().open(drill_id)


def drill(bench: Bench, canary: FakeCanary) -> Callable[[str, Tell], DrillRecord]:
    return lambda drill_id, tell: DrillRun(
        bench.outside, canary, PLAN, prove=lambda: "once", tell=tell, drill_id=drill_id
    ).run()


def ended(desk: DrillDesk, bench: Bench, drill_id: str) -> DrillProgress:
    def look() -> DrillProgress | None:
        found = desk.progress(bench.outside.journal, drill_id)
        return None if found.ending is DrillEnding.RUNNING else found

    return poll_until(look, 30, "the drill ends")


def test_a_drill_is_run_and_told_of(bench: Bench) -> None:
    desk = DrillDesk()
    begun = desk.begin(bench.outside, GROUP, drill(bench, FakeCanary(bench)))
    assert (begun.ending, begun.group, begun.here) == (DrillEnding.RUNNING, GROUP, True)
    found = ended(desk, bench, begun.drill_id)
    assert (found.ending, found.problem, found.doing) == (DrillEnding.PASSED, "", "")
    assert "cleaning up" in [words for _, words in found.events]
    assert found.record is not None
    assert (found.record.drill_id, found.record.actor) == (begun.drill_id, OPERATOR.name)
    elsewhere = DrillDesk().progress(bench.outside.journal, begun.drill_id)
    assert (elsewhere.ending, elsewhere.record, elsewhere.here) == (DrillEnding.PASSED, found.record, False)


def test_one_runs_at_a_time_and_can_be_stopped_where_it_runs(bench: Bench) -> None:
    desk, canary = DrillDesk(), HeldCanary(bench)
    begun = desk.begin(bench.outside, GROUP, drill(bench, canary))
    with pytest.raises(RefusedError, match="under way here already"):
        desk.begin(bench.outside, GROUP, drill(bench, canary))
    poll_until(lambda: desk.progress(bench.outside.journal, begun.drill_id).events, 30, "it has begun")
    poll_until(
        lambda: any(
            note.operation_id == begun.drill_id for note in bench.outside.journal.notes.operations(DRILLS)
        ),
        30,
        "it is kept",
    )
    with pytest.raises(RefusedError, match="another process"):
        DrillDesk().stop(bench.outside, begun.drill_id)
    assert desk.stop(bench.outside, begun.drill_id).ending is DrillEnding.RUNNING
    canary.let.set()
    found = ended(desk, bench, begun.drill_id)
    assert (found.ending, canary.closed) == (DrillEnding.INTERRUPTED, 1)
    assert desk.stop(bench.outside, begun.drill_id).ending is DrillEnding.INTERRUPTED
    assert "StopDrill" in {entry.call for entry in bench.world.audit.entries()}


def test_what_ends_it_is_told(bench: Bench) -> None:
    canary = FakeCanary(bench)
    canary.failure = ClusterUnavailableError("regional-a does not answer")
    desk = DrillDesk()
    found = ended(desk, bench, desk.begin(bench.outside, GROUP, drill(bench, canary)).drill_id)
    assert (found.ending, "regional-a does not answer" in found.problem) == (DrillEnding.FAILED, True)

    def breaks(_drill_id: str, _tell: Tell) -> DrillRecord:
        raise ZeroDivisionError

    found = ended(desk, bench, desk.begin(bench.outside, GROUP, breaks).drill_id)
    assert (found.ending, found.problem) == (DrillEnding.FAILED, "an error of the service, which its log has")


def test_a_drill_of_another_process_is_told_as_it_is_kept(bench: Bench) -> None:
    desk, journal, now_ms = DrillDesk(), bench.outside.journal, bench.world.now_ms
    keep(
        journal.notes,
        DrillRecord("other", GROUP, TOPIC, "a", "b", now_ms - 60_000, (now_ms - 14_999) * 1_000),
    )
    assert desk.progress(journal, "other").ending is DrillEnding.RUNNING
    with pytest.raises(NotFoundError, match="no drill"):
        desk.progress(journal, "never")


def test_a_drill_of_which_nobody_tells_is_interrupted(bench: Bench) -> None:
    desk, journal, now_ms = DrillDesk(), bench.outside.journal, bench.world.now_ms
    keep(
        journal.notes,
        DrillRecord("killed", GROUP, TOPIC, "a", "b", now_ms - 60_000, (now_ms - 15_000) * 1_000),
    )
    found = desk.progress(journal, "killed")
    assert (found.ending, found.problem) == (
        DrillEnding.INTERRUPTED,
        "interrupted: run again: no process has told of it for 15 s",
    )
    assert desk.stop(bench.outside, "killed").ending is DrillEnding.INTERRUPTED, "there is nothing to stop"


def test_a_drill_that_runs_says_so(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parallax.failover.drill.run._SIGN_EVERY_S", 0.01)
    desk, canary, journal = DrillDesk(), HeldCanary(bench), bench.outside.journal
    begun = desk.begin(bench.outside, GROUP, drill(bench, canary))

    def signs() -> int:
        return next((item.version for item in kept(journal.notes)), 0)

    first = poll_until(signs, 30, "it is kept")
    bench.world.now_ms += 40_000
    poll_until(lambda: signs() >= first + 40_000_000, 30, "it says that it goes on")
    elsewhere = DrillDesk().progress(journal, begun.drill_id)
    assert (elsewhere.ending, elsewhere.here) == (DrillEnding.RUNNING, False)
    canary.let.set()
    found = ended(desk, bench, begun.drill_id)
    assert found.ending is DrillEnding.PASSED
    assert kept(journal.notes) == [found.record], "no sign comes after its end"


def test_a_desk_that_is_closed_begins_nothing(bench: Bench) -> None:
    desk, canary = DrillDesk(), HeldCanary(bench)
    begun = desk.begin(bench.outside, GROUP, drill(bench, canary))
    canary.let.set()
    desk.close()
    assert ended(desk, bench, begun.drill_id).ending in {DrillEnding.INTERRUPTED, DrillEnding.PASSED}
    with pytest.raises(RefusedError, match="ask another one"):
        desk.begin(bench.outside, GROUP, drill(bench, canary))
