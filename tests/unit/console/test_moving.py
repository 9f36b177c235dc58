"""Pages that move a group: what they show, who may send their forms, and what is passed on."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from structlog.testing import capture_logs

from console.app import create_app
from console.people import Entrance, OpenEntrance, ProxyEntrance
from console.web import LOOPBACK_NAMES
from parallax.config.console import ConsoleAuth
from parallax.domain.ids import ClusterName, GroupName, RegionName
from parallax.errors import ForbiddenError, PlanChangedError, RefusedError
from parallax.failover.facts import Move, MoveKind
from parallax.failover.orders import MoveOrder, order_of
from parallax.v1 import moves_pb2 as pb
from parallax.v1 import offsets_pb2
from tests.unit.console.test_pages import BASE, Read, shape
from tests.worlds.console_reads import HOSTILE_NAMES, NOW_MS, FakeReads, group_reads

HEADERS = {"Origin": BASE}


def order(group: str = "billing", kind: MoveKind = MoveKind.PLANNED, *, gaps: bool = False) -> MoveOrder:
    clusters = ClusterName("aggregate-a"), ClusterName("aggregate-b")
    return MoveOrder(Move(GroupName(group), *clusters, RegionName("b"), kind), gaps, NOW_MS)


def plan(group: str = "billing", **values: Any) -> pb.PlannedMove:
    made = {
        "move_id": order(group).move_id,
        "digest": "d1",
        "origin": "aggregate-a",
        "target": "aggregate-b",
        "region": "b",
        "kind": "planned",
        "fencing_number": 7,
        "partitions": [
            pb.PlannedPartition(
                topic=group, partition=0, next_offset=9, resume_offset=8, outcome=offsets_pb2.OK
            ),
            pb.PlannedPartition(
                topic=group, partition=1, resume_offset=0, outcome=offsets_pb2.EARLIEST_FALLBACK
            ),
        ],
        "waits_for": ["until the group's 2 member(s) have left aggregate-a"],
    }
    return pb.PlannedMove(group=group, **{**made, **values})


def status(group: str = "billing", **values: Any) -> pb.MoveStatus:
    made = {"move_id": order(group).move_id, "state": "running", "step": "fenced", "doing": "switching"}
    return pb.MoveStatus(group=group, **{**made, **values})


def asks(group: str = "billing") -> FakeReads:
    reads = group_reads(group)
    reads.told |= {
        "plan_move": plan(group),
        "execute_move": status(group),
        "cancel_move": status(group),
        "roll_back_move": status(group, state="running"),
        "get_move": status(group),
        "verify_group": pb.GroupVerification(
            group=group,
            verdict="once",
            partitions=[pb.PartitionVerification(topic=group, verdict="once", once_records=30)],
        ),
    }
    return reads


class Browser:
    """Asks the application without a network, as one person from one address."""

    def __init__(
        self, reads: FakeReads, door: Entrance | None = None, *, peer: str = "127.0.0.1", **headers: str
    ) -> None:
        self._app = create_app(
            reads,
            region="a",
            hosts=LOOPBACK_NAMES | {"parallax.example"},
            door=door or OpenEntrance("admin"),
            proxied={"parallax.example"},
            now_ms=lambda: NOW_MS,
        )
        self._peer, self._headers = peer, headers

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False, client=(self._peer, 1))
            async with httpx.AsyncClient(
                transport=transport,
                base_url=BASE,
                verify=False,  # noqa: S501 - nothing is sent
                headers=self._headers,
            ) as client:
                return await client.request(method, path, **options)

        return asyncio.run(asked())

    def form(self, path: str, action: str, **parameters: str) -> dict[str, str]:
        """The fields of a page's form, as they stand there."""
        page = Read(self.request("GET", path, params=parameters))
        at = next(
            number
            for number, (tag, attributes) in enumerate(page.elements)
            if tag == "form" and attributes.get("action") == action
        )
        fields: dict[str, str] = {}
        for tag, attributes in page.elements[at + 1 :]:
            if tag == "form":
                break
            if tag == "input":
                fields[attributes["name"]] = attributes.get("value", "")
        return fields

    def send(self, action: str, fields: dict[str, str], **headers: str) -> httpx.Response:
        return self.request("POST", action, data=fields, headers={**HEADERS, **headers})


def test_a_plan_is_looked_at_and_changes_nothing() -> None:
    reads = asks()
    page = Read(Browser(reads).request("GET", "/move?group=billing&to=b"))
    assert reads.asked[-2:] == [
        ("plan_move", {"group": "billing", "to_region": "b", "disaster": False, "accept_gaps": False}),
        ("describe_regions", {}),
    ]
    assert "aggregate-a to aggregate-b, primary in region b" in page.text
    assert "until the group's 2 member(s) have left aggregate-a" in page.text
    assert page.text.index("EARLIEST_FALLBACK") < page.text.index("OK")
    assert {name for name, _ in reads.asked} == {"plan_move", "describe_regions"}


def test_back_is_a_way_too() -> None:
    reads = asks()
    Browser(reads).request("GET", "/move", params={"group": "billing", "to": "(back)"})
    assert (
        "plan_move",
        {"group": "billing", "back": True, "disaster": False, "accept_gaps": False},
    ) in reads.asked


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"obstacles": ["stop them first"]}, "stop them first"),
        ({"gaps": ["trips-0: records 1 to 9 are gone"]}, "an admin may accept that"),
        ({"arrived": True}, "The group is there already"),
    ],
)
def test_what_can_not_be_carried_out_has_no_form(values: dict[str, Any], words: str) -> None:
    reads = asks()
    reads.told["plan_move"] = plan(**values)
    page = Read(Browser(reads).request("GET", "/move?group=billing&to=b"))
    assert words in page.text
    assert "/move/execute" not in [item.get("action") for item in page.all("form")]


def test_a_plan_that_can_not_be_made_says_why() -> None:
    reads = asks()
    reads.told["plan_move"] = RefusedError("it is DUAL_ACTIVE")
    page = Browser(reads).request("GET", "/move?group=billing&to=b")
    assert (page.status_code, "[REFUSED] it is DUAL_ACTIVE" in page.text) == (200, True)


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, "billing"])
def test_a_move_of_any_name_is_sent_and_followed(name: str) -> None:
    reads = asks(name)
    browser = Browser(reads)
    fields = browser.form("/move", "/move/execute", group=name, to="b")
    answer = browser.send("/move/execute", {**fields, "typed": name})
    assert answer.status_code == 303, answer.text
    (sent,) = [item["planned"] for call, item in reads.asked if call == "execute_move"]
    assert (sent.group, sent.move_id, sent.digest, sent.kind) == (name, order(name).move_id, "d1", "planned")
    place = urlsplit(answer.headers["location"])
    assert (place.path, parse_qs(place.query)["group"]) == ("/moving", [name])
    page = Read(browser.request("GET", answer.headers["location"]))
    assert reads.asked[-1] == ("get_move", {"group": name, "move_id": order(name).move_id})
    plain = Read(
        Browser(asks()).request("GET", "/moving", params={"group": "billing", "move_id": order().move_id})
    )
    assert shape(page) == shape(plain)


def test_another_name_moves_nothing() -> None:
    reads = asks()
    browser = Browser(reads)
    fields = browser.form("/move", "/move/execute", group="billing", to="b")
    answer = browser.send("/move/execute", {**fields, "typed": "biling"})
    assert (answer.status_code, "That is not the group" in answer.text) == (400, True)
    assert "execute_move" not in {name for name, _ in reads.asked}


def test_a_plan_that_has_changed_is_shown_anew() -> None:
    reads = asks()
    browser = Browser(reads)
    fields = browser.form("/move", "/move/execute", group="billing", to="b")
    reads.told |= {
        "execute_move": PlanChangedError("changed"),
        "plan_move": plan(digest="d2", fencing_number=8),
    }
    answer = browser.send("/move/execute", {**fields, "typed": "billing"})
    assert answer.status_code == 409
    page = Read(answer)
    assert "The plan has changed since you looked at it, and nothing was done" in page.text
    assert {"type": "hidden", "name": "digest", "value": "d2"} in page.all("input")


@pytest.mark.parametrize(
    ("change", "headers"),
    [
        ({"seal": ""}, {}),
        ({"seal": "0" * 64}, {}),
        ({}, {"Origin": "http://evil.example"}),
        ({}, {"Origin": "http://127.0.0.1:9999"}),
        ({}, {"Origin": "null"}),
        ({}, {"Origin": ""}),
        ({}, {"Origin": "http://["}),
    ],
)
@pytest.mark.parametrize("action", ["/move/execute", "/move/cancel", "/move/rollback"])
def test_no_other_page_can_send_a_form(action: str, change: dict[str, str], headers: dict[str, str]) -> None:
    reads = asks()
    browser = Browser(reads)
    fields = {**browser.form("/move", "/move/execute", group="billing", to="b"), "typed": "billing", **change}
    assert browser.send(action, fields, **headers).status_code == 403
    assert {name for name, _ in reads.asked} <= {"plan_move", "describe_regions"}


def test_a_mark_of_another_process_is_none() -> None:
    fields = Browser(asks()).form("/move", "/move/execute", group="billing", to="b")
    assert Browser(asks()).send("/move/execute", {**fields, "typed": "billing"}).status_code == 403


@pytest.mark.parametrize("action", ["/move/execute", "/move/cancel", "/move/rollback"])
def test_nothing_changes_by_being_looked_at(action: str) -> None:
    assert Browser(asks()).request("GET", action).status_code == 405


def test_a_move_is_stopped_and_put_back() -> None:
    reads = asks()
    browser = Browser(reads)
    place = {"group": "billing", "move_id": order().move_id}
    assert browser.send("/move/cancel", browser.form("/moving", "/move/cancel", **place)).status_code == 303
    reads.told["get_move"] = status(state="interrupted", problem="interrupted: run again: it was stopped")
    page = Read(browser.request("GET", "/moving", params=place))
    assert "interrupted: run again" in page.text
    assert "Plan it again" in page.text
    assert (
        browser.send("/move/rollback", browser.form("/moving", "/move/rollback", **place)).status_code == 303
    )
    called = [name for name, _ in reads.asked if name.endswith("_move") and name != "get_move"]
    assert called == ["cancel_move", "roll_back_move"]


@pytest.mark.parametrize(("act", "call"), [("cancel", "cancel_move"), ("rollback", "roll_back_move")])
def test_whoever_stops_a_move_or_puts_it_back_is_named_to_the_service(act: str, call: str) -> None:
    reads = asks()
    browser = behind_proxy(reads, "ada")
    if act == "rollback":
        reads.told["get_move"] = status(state="moved", step="done")
    place = {"group": "billing", "move_id": order().move_id}
    fields = browser.form("/moving", f"/move/{act}", **place)
    assert browser.send(f"/move/{act}", fields).status_code == 303
    assert [item["actor"] for name, item in reads.asked if name == call] == ["ada"]


def test_the_log_names_who_sent_what() -> None:
    browser = Browser(asks())
    place = {"group": "billing", "move_id": order().move_id}
    with capture_logs() as logs:
        fields = browser.form("/move", "/move/execute", group="billing", to="b")
        browser.send("/move/execute", {**fields, "typed": "biling"})
        assert logs == []
        browser.send("/move/execute", {**fields, "typed": "billing"})
        browser.send("/move/cancel", browser.form("/moving", "/move/cancel", **place))
    sent, act = logs
    assert (sent["event"], act["event"], act["act"]) == ("move_sent", "move_act_sent", "cancel")
    assert [(log["group"], log["person"]) for log in logs] == [("billing", "")] * 2


@pytest.mark.parametrize(
    ("step", "state", "steps"),
    [
        ("", "running", ["doing", "open", "open", "open"]),
        ("fenced", "running", ["done", "done", "doing", "open"]),
        ("fenced", "interrupted", ["done", "done", "open", "open"]),
        ("done", "moved", ["done", "done", "done", "done"]),
        ("abandoned", "abandoned", ["open", "open", "open", "open"]),
    ],
)
def test_steps_are_those_of_the_journal(step: str, state: str, steps: list[str]) -> None:
    reads = asks()
    reads.told["get_move"] = status(step=step, state=state)
    page = Read(
        Browser(reads).request("GET", "/moving", params={"group": "billing", "move_id": order().move_id})
    )
    assert [item["class"] for item in page.all("li") if "class" in item] == steps


@pytest.mark.parametrize("path", ["/moving?group=billing&move_id=x", "/moving?group=billing"])
def test_an_id_that_is_none_is_told(path: str) -> None:
    reads = asks()
    assert Browser(reads).request("GET", path).status_code in {400, 404}


def test_what_was_consumed_is_told() -> None:
    page = Read(Browser(asks()).request("GET", "/verify?group=billing&moves=2"))
    assert "Over its last 2 moves records came: once" in page.text


# --- who may -------------------------------------------------------------------------------------------------------

AUTH = ConsoleAuth.model_validate(
    {
        "mode": "proxy",
        "proxy": {"trusted": ["10.2.0.0/16", "fd00::/8"]},
        "roles": [
            {"role": "viewer", "members_of": ["staff"]},
            {"role": "operator", "members_of": ["payments"], "groups": ["bill.*"]},
            {"role": "admin", "users": ["ada"]},
        ],
    }
)
PLANNED, DISASTER, GAPS = order(), order(kind=MoveKind.DISASTER), order(gaps=True)


def behind_proxy(reads: FakeReads, user: str, member_of: str = "", peer: str = "10.2.3.4") -> Browser:
    assert AUTH.proxy is not None
    headers = {"X-Forwarded-User": user, "X-Forwarded-Groups": member_of}
    return Browser(reads, ProxyEntrance(AUTH.proxy, AUTH.roles), peer=peer, **headers)


@pytest.mark.parametrize(
    ("user", "member_of", "planned", "others"),
    [
        ("bob", "staff", False, False),
        ("eve", "other, payments", True, False),
        ("ada", "", True, True),
    ],
)
def test_roles_tell_who_may_move(user: str, member_of: str, planned: bool, others: bool) -> None:  # noqa: FBT001
    for asked, may in ((PLANNED, planned), (DISASTER, others), (GAPS, others)):
        reads = asks()
        browser = behind_proxy(reads, user, member_of)
        seal = _seal(browser)
        fields = {
            "seal": seal,
            "group": "billing",
            "move_id": asked.move_id,
            "digest": "d1",
            "typed": "billing",
        }
        answer = browser.send("/move/execute", fields, Origin="https://parallax.example")
        assert answer.status_code == (303 if may else 403), (asked, answer.text)
        assert ("execute_move" in {name for name, _ in reads.asked}) is may
        if may:
            assert [item["actor"] for name, item in reads.asked if name == "execute_move"] == [user]


def test_a_role_holds_for_its_groups() -> None:
    reads = asks("maps")
    browser = behind_proxy(reads, "eve", "payments")
    for action in ("/move/execute", "/move/cancel", "/move/rollback"):
        fields = {"seal": "", "group": "maps", "move_id": order("maps").move_id, "typed": "maps"}
        fields["seal"] = _seal(browser)
        assert browser.send(action, fields).status_code == 403
    assert not {"execute_move", "cancel_move", "roll_back_move"} & {name for name, _ in reads.asked}


def test_a_viewer_sees_the_plan_and_no_form() -> None:
    page = Read(behind_proxy(asks(), "bob", "staff").request("GET", "/move?group=billing&to=b"))
    assert "To carry this one out takes the role operator" in page.text
    assert "bob viewer" in page.text
    assert (
        "Move this group"
        not in Read(behind_proxy(asks(), "bob", "staff").request("GET", "/group?name=billing")).text
    )


@pytest.mark.parametrize(
    ("peer", "user", "code"),
    [
        ("10.3.0.1", "ada", 401),
        ("127.0.0.1", "ada", 401),
        ("testclient", "ada", 401),
        ("10.2.0.1", "", 401),
        ("10.2.0.1", "nobody", 403),
        ("10.2.0.1", "x" * 300, 401),
        ("::ffff:10.2.0.1", "ada", 200),
        ("fd00::1", "ada", 200),
    ],
)
def test_headers_are_believed_from_the_proxy_alone(peer: str, user: str, code: int) -> None:
    browser = behind_proxy(asks(), user, peer=peer)
    for path in ("/", "/groups.json", "/static/console.css"):
        assert browser.request("GET", path).status_code == code
    assert browser.request("GET", "/healthz").status_code == 200


def test_two_names_are_none() -> None:
    browser = behind_proxy(asks(), "ada")
    headers = [("X-Forwarded-User", "ada"), ("X-Forwarded-User", "bob")]
    assert AUTH.proxy is not None
    with pytest.raises(Exception, match="does not say who looks, once"):
        ProxyEntrance(AUTH.proxy, AUTH.roles).person(
            {
                "client": ("10.2.0.1", 1),
                "headers": [(key.lower().encode(), value.encode()) for key, value in headers],
            }
        )
    assert browser.request("GET", "/").status_code == 200


def test_what_the_service_forbids_is_told() -> None:
    reads = asks()
    reads.told["execute_move"] = ForbiddenError("principal 'console' lacks the right to decide")
    browser = Browser(reads)
    fields = browser.form("/move", "/move/execute", group="billing", to="b")
    answer = browser.send("/move/execute", {**fields, "typed": "billing"})
    assert (answer.status_code, "lacks the right to decide" in answer.text) == (403, True)


def _seal(browser: Browser) -> str:
    """The mark that the person's pages carry, whatever is on them."""
    page = Read(browser.request("GET", "/moving", params={"group": "billing", "move_id": PLANNED.move_id}))
    found = [item["value"] for item in page.all("input") if item.get("name") == "seal"]
    return found[0] if found else ""


def test_a_move_is_followed_from_the_list_whoever_has_begun_it() -> None:
    reads = asks()
    page = Read(Browser(reads).request("GET", "/moves"))
    [place] = [item["href"] for item in page.all("a") if item["href"].startswith("/moving")]
    Browser(reads).request("GET", place)
    name, arguments = reads.asked[-1]
    assert (name, arguments["group"]) == ("get_move", "billing")
    found = order_of(arguments["move_id"])
    assert (found.move, found.asked_at_ms) == (order().move, NOW_MS - 50_000)


@pytest.mark.parametrize("change", [{"kind": ""}, {"updated_at_ms": NOW_MS - 60_000}])
def test_a_move_that_can_not_be_found_again_has_no_page(change: dict[str, Any]) -> None:
    reads = asks()
    for name, value in change.items():
        setattr(reads.told["list_moves"].moves[0], name, value)
    page = Read(Browser(reads).request("GET", "/moves"))
    assert not any(item["href"].startswith("/moving") for item in page.all("a"))
