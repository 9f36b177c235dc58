"""Pages that run a drill: what they show, who may send their forms, and what is passed on."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from console.people import OpenEntrance
from parallax.errors import InvalidNameError, RefusedError
from parallax.v1 import moves_pb2 as pb
from parallax.v1 import overview_pb2
from tests.unit.console.test_moving import Browser, behind_proxy
from tests.unit.console.test_pages import Read, shape
from tests.worlds.console_reads import HOSTILE_NAMES, NOW_MS, FakeReads, two_regions


def plan(name: str = "parallax-drill", **values: Any) -> pb.PlannedDrill:
    made = {"topic": name, "origin": "a", "to": "b", "regions": ["a", "b"], "steps": [f"move group {name}"]}
    return pb.PlannedDrill(group=name, **{**made, **values})


def drilled(name: str = "parallax-drill", **values: Any) -> overview_pb2.DrillSummary:
    made = {
        "drill_id": "d1",
        "topic": name,
        "origin": "a",
        "to": "b",
        "started_at_ms": NOW_MS,
        "took_ms": 61_000,
        "ending": "passed",
        "proof": "once",
        "left": f"group {name} is in aggregate-a",
        "produced_records": 4_000,
        "lost_records": 0,
        "legs": [
            overview_pb2.DrillLeg(origin="a", to="b", rto_ms=1_500),
            overview_pb2.DrillLeg(origin="b", to="a"),
        ],
        "actor": name,
    }
    return overview_pb2.DrillSummary(group=name, **{**made, **values})


def status(name: str = "parallax-drill", **values: Any) -> pb.DrillStatus:
    made = {
        "drill_id": "d1",
        "ending": "running",
        "here": True,
        "doing": f"waiting for {name}",
        "events": [pb.MoveEvent(at_ms=NOW_MS, words=f"waiting for {name}")],
    }
    return pb.DrillStatus(**{**made, **values})


def asks(name: str = "parallax-drill") -> FakeReads:
    return FakeReads(
        {
            "plan_drill": plan(name),
            "run_drill": status(name),
            "stop_drill": status(name),
            "get_drill": status(name),
            "describe_regions": two_regions(),
        }
    )


def test_a_drill_is_looked_at_and_begins_nothing() -> None:
    reads = asks()
    page = Read(Browser(reads).request("GET", "/drill?origin=a&to=b"))
    assert "move group parallax-drill" in page.text
    assert ("plan_drill", {"origin": "a", "to": "b"}) in reads.asked
    assert {name for name, _ in reads.asked} == {"plan_drill", "describe_regions"}


def test_a_plan_that_can_not_be_made_says_why() -> None:
    reads = asks()
    reads.told["plan_drill"] = InvalidNameError("from and to: say which of a, b, c")
    page = Browser(reads).request("GET", "/drill?origin=a")
    assert (page.status_code, "say which of a, b, c" in page.text) == (200, True)
    assert "/drill/run" not in page.text


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, "parallax-drill"])
def test_a_drill_of_any_name_is_run_and_followed(name: str) -> None:
    reads = asks(name)
    browser = Browser(reads)
    answer = browser.send("/drill/run", browser.form("/drill", "/drill/run", origin="a", to="b"))
    assert answer.status_code == 303, answer.text
    (sent,) = [item["planned"] for call, item in reads.asked if call == "run_drill"]
    assert (sent.group, sent.origin, sent.to) == (name, "a", "b")
    place = urlsplit(answer.headers["location"])
    assert (place.path, parse_qs(place.query)) == ("/drilling", {"group": [name], "drill_id": ["d1"]})
    page = Read(browser.request("GET", answer.headers["location"]))
    assert reads.asked[-1] == ("get_drill", {"group": name, "drill_id": "d1"})
    reads.told["get_drill"] = status(name, ending="passed", doing="", drill=drilled(name))
    done = Read(browser.request("GET", answer.headers["location"]))
    plain = Browser(asks()).request("GET", "/drilling", params={"group": "parallax-drill", "drill_id": "d1"})
    assert shape(page) == shape(Read(plain))
    assert "after 1 s" in done.text
    assert "records came once" in done.text
    assert "4,000" in done.text


def test_a_drill_is_stopped_where_it_runs() -> None:
    reads = asks()
    browser = behind_proxy(reads, "ada")
    place = {"group": "parallax-drill", "drill_id": "d1"}
    fields = browser.form("/drilling", "/drill/stop", **place)
    assert browser.send("/drill/stop", fields).status_code == 303
    (sent,) = [item for name, item in reads.asked if name == "stop_drill"]
    assert sent == {**place, "actor": "ada"}
    reads.told["get_drill"] = status(here=False, drill=drilled(ending="running"))
    page = Browser(reads).request("GET", "/drilling", params=place)
    assert "/drill/stop" not in page.text
    assert "Another process carries it out" in page.text


@pytest.mark.parametrize(
    ("change", "headers"), [({"seal": ""}, {}), ({}, {"Origin": "http://evil.example"}), ({}, {"Origin": ""})]
)
@pytest.mark.parametrize("action", ["/drill/run", "/drill/stop"])
def test_no_other_page_can_send_a_form(action: str, change: dict[str, str], headers: dict[str, str]) -> None:
    reads = asks()
    browser = Browser(reads)
    fields = {**browser.form("/drill", "/drill/run", origin="a", to="b"), "drill_id": "d1", **change}
    assert browser.send(action, fields, **headers).status_code == 403
    assert {name for name, _ in reads.asked} <= {"plan_drill", "describe_regions"}


@pytest.mark.parametrize("action", ["/drill/run", "/drill/stop"])
def test_nothing_changes_by_being_looked_at(action: str) -> None:
    assert Browser(asks()).request("GET", action).status_code == 405


def test_who_only_looks_has_no_form_and_is_refused() -> None:
    reads = asks()
    fields = Browser(reads).form("/drill", "/drill/run", origin="a", to="b")
    browser = Browser(reads, OpenEntrance("viewer"))
    page = browser.request("GET", "/drill?origin=a&to=b")
    assert "takes the role operator" in page.text
    assert browser.send("/drill/run", fields).status_code == 403
    assert "run_drill" not in {name for name, _ in reads.asked}


def test_an_operator_of_other_groups_may_not_run_it() -> None:
    reads = asks()
    page = behind_proxy(reads, "bob", "payments").request("GET", "/drill?origin=a&to=b")
    assert (page.status_code, "/drill/run" in page.text) == (200, False)


def test_what_the_service_refuses_is_told() -> None:
    reads = asks()
    browser = Browser(reads)
    fields = browser.form("/drill", "/drill/run", origin="a", to="b")
    reads.told["run_drill"] = RefusedError("a drill is under way here already")
    answer = browser.send("/drill/run", fields)
    assert (answer.status_code, "under way here already" in answer.text) == (409, True)


def timeline(word: str) -> pb.DrillTimeline:
    return pb.DrillTimeline(
        slot_ms=500,
        acknowledged_records=[4, 0, 6],
        delivered=[
            pb.DeliveredRecords(region="a", records=[4, 0, 0]),
            pb.DeliveredRecords(region="b", records=[0, 0, 6]),
        ],
        events=[pb.DrillEvent(at_ms=600, words=word)],
    )


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_an_ended_drill_shows_its_timeline(name: str) -> None:
    reads = asks(name)
    legs = [overview_pb2.DrillLeg(origin="a", to="b", rto_ms=250, asked_ms=500, ended_ms=900)]
    reads.told["get_drill"] = status(
        name, ending="passed", doing="", drill=drilled(name, legs=legs), timeline=timeline(name)
    )
    asked = {"group": name, "drill_id": "d1"}
    page = Read(Browser(reads).request("GET", "/drilling", params=asked))
    assert "delivered in b" in page.text
    assert "a to b, RTO 250 ms" in page.text
    assert not [tag for tag, values in page.elements if tag == "script" and "src" not in values]
    plain = asks("plain")
    plain.told["get_drill"] = status(
        "plain", ending="passed", doing="", drill=drilled("plain", legs=legs), timeline=timeline("plain")
    )
    assert shape(page) == shape(Read(Browser(plain).request("GET", "/drilling?group=plain&drill_id=d1")))


def test_a_drill_without_a_timeline_shows_none() -> None:
    reads = asks()
    page = Read(Browser(reads).request("GET", "/drilling?group=parallax-drill&drill_id=d1"))
    assert "Timeline" not in page.text
    assert "svg" not in shape(page)
