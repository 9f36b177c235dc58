"""The audit as the offset service shows it, over both transports: to those who administer, a bounded page at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from offsetsvc import audit as module
from offsetsvc.audit import MOST_ENTRIES, AuditReader
from offsetsvc.transport import handlers
from offsetsvc.transport.access import Caller
from parallax.cli.main import app
from parallax.client.audit_messages import page_from_pb, row_from_pb
from parallax.client.credentials import ServiceCredentials
from parallax.client.json import to_json
from parallax.domain.audit import AuditEntry, AuditPage, AuditRow, AuditStage
from parallax.domain.ids import GroupName, RegionName
from parallax.domain.primary import Change
from parallax.domain.rights import ANYBODY, Policy, Principal, ProvenBy
from parallax.errors import ForbiddenError, InvalidNameError, LimitError
from parallax.ports.audit import AuditQuery
from parallax.runtime.deadline import Deadline
from parallax.runtime.process import account_name
from parallax.v1 import audit_pb2 as pb
from tests.memory.audit import MemoryAuditLog
from tests.worlds.authority import Issuer
from tests.worlds.offset_servers import Served, serving
from tests.worlds.offset_world import World

MINE, OTHER, NONE = GroupName("mine"), GroupName("other"), GroupName("")
DAY_MS = 86_400_000
RULES = {"one": ["mine"], "some": ["mine|oth.+"], "all": [".*"]}
"""Who administers which groups."""


def entry(number: int, group: GroupName, call: str = "SetPrimary", principal: str = "alice") -> AuditEntry:
    return AuditEntry(
        f"act-{number}",
        1_700_000_000_000 - number * 1_000,
        AuditStage.INTENDED,
        Principal(principal, ProvenBy.TOKEN),
        call,
        group,
        {"primary": "a"},
        {"primary": "b", "cluster": "aggregate-b"},
        "for tests",
        "a",
        "offsetsvc@host:1",
    )


ENTRIES = [
    entry(0, MINE),
    entry(1, OTHER, principal="bob"),
    entry(2, NONE, call="schema apply", principal="ci@host"),
    entry(3, MINE, call="failover"),
    entry(4, OTHER),
    entry(5, MINE),
]


@dataclass
class Asked:
    """A service with these entries, and the tokens of those who ask."""

    served: Served
    tokens: Mapping[str, str]

    def page(self, who: str, **query: Any) -> pb.ListAuditResponse:
        """Over gRPC, and the same over REST."""
        with self.served.client(credentials=ServiceCredentials(token=self.tokens[who])) as client:
            found = client.list_audit(**{"since_ms": 0} | query)
        answer = self.rest(who, **query)
        assert answer.status_code == 200
        assert answer.json() == to_json(found)
        return found

    def rest(self, who: str, **query: Any) -> httpx.Response:
        with self.served.http() as http:
            return http.get(
                "/v1/audit", params=query, headers={"Authorization": f"Bearer {self.tokens[who]}"}
            )

    def acts(self, who: str, **query: Any) -> list[str]:
        return [item.act_id for item in self.page(who, **query).entries]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    issuer = Issuer()
    keys = tmp_path_factory.mktemp("issuer") / "keys.json"
    keys.write_bytes(issuer.document())
    jwt = {"issuer": issuer.name, "audience": issuer.audience, "jwks": str(keys)}
    rules = [{"principals": [who], "groups": of, "allow": ["administer"]} for who, of in RULES.items()]
    rules.append({"principals": ["operator"], "groups": [".*"], "allow": ["decide"]})
    world = World(("a", "b"), service={"auth": {"mode": "jwt", "jwt": jwt, "rules": rules}})
    world.audit.append(ENTRIES[::-1])
    with serving(world) as served:
        yield Asked(served, {who: issuer.token(who, exp=2**31) for who in (*RULES, "operator")})


def acts_of(*numbers: int) -> list[str]:
    return [f"act-{number}" for number in numbers]


def test_entries_are_of_groups_that_the_caller_administers(asked: Asked) -> None:
    """Those about no group are for who administers every name."""
    assert asked.acts("one") == acts_of(0, 3, 5)
    assert asked.acts("some") == acts_of(0, 1, 3, 4, 5)
    assert asked.acts("all") == acts_of(0, 1, 2, 3, 4, 5)
    assert asked.acts("all", group="") == acts_of(2)


def test_entries_that_are_shown_to_everybody_who_administers_something_are_noticed(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Caller, "administers", lambda *_: True)
    with pytest.raises(AssertionError):
        test_entries_are_of_groups_that_the_caller_administers(asked)


@pytest.mark.parametrize(
    ("who", "group"), [("one", "other"), ("one", ""), ("operator", None), ("operator", "mine")]
)
def test_nobody_else_is_shown_any(asked: Asked, who: str, group: str | None) -> None:
    with (
        asked.served.client(credentials=ServiceCredentials(token=asked.tokens[who])) as client,
        pytest.raises(ForbiddenError, match="lacks the right to administer"),
    ):
        client.list_audit(since_ms=0, group=group)
    answer = asked.rest(who, **({} if group is None else {"group": group}))
    assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")


def test_a_group_that_is_left_out_of_the_question_is_noticed(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Policy, "allows", lambda policy, principal, right, _: policy.allows_somewhere(principal, right)
    )
    with pytest.raises(pytest.fail.Exception):
        test_nobody_else_is_shown_any(asked, "one", "other")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"group": "mine"}, (0, 3, 5)),
        ({"call": "SetPrimary"}, (0, 1, 4, 5)),
        ({"principal": "bob"}, (1,)),
        ({"group": "mine", "call": "failover", "principal": "alice"}, (3,)),
        ({"since_ms": ENTRIES[2].at_ms}, (0, 1, 2)),
        ({"until_ms": ENTRIES[2].at_ms}, (3, 4, 5)),
        ({"until_ms": 2**62, "since_ms": -(2**62)}, (0, 1, 2, 3, 4, 5)),
        ({"until_ms": -(2**62)}, ()),
        ({"group": "nothing"}, ()),
    ],
)
def test_what_is_asked_for(asked: Asked, query: dict[str, Any], found: tuple[int, ...]) -> None:
    assert asked.acts("all", **query) == acts_of(*found)


def test_pages_follow_each_other(asked: Asked) -> None:
    found: list[str] = []
    before, pages = "", 0
    while pages == 0 or before:
        page = asked.page("some", limit=2, before=before)
        found += [item.act_id for item in page.entries]
        before, pages = page.next_before, pages + 1
    assert (found, pages) == (acts_of(0, 1, 3, 4, 5), 3)


def test_an_entry_comes_as_it_was_kept(asked: Asked) -> None:
    (row,) = page_from_pb(asked.page("all", principal="bob")).rows
    assert row.entry == ENTRIES[1]


def test_words_of_a_newer_server_make_an_entry_that_can_not_be_read() -> None:
    row = row_from_pb(pb.AuditEntry(entry_id="7", group="mine", at_ms=3, stage="dreamt"))
    assert (row.entry_id, row.entry) == ("7", None)
    assert "dreamt" in row.problem


@pytest.mark.parametrize(
    ("query", "status", "error"),
    [
        ({"before": "yesterday"}, 400, InvalidNameError),
        ({"limit": -1}, 400, InvalidNameError),
        ({"limit": MOST_ENTRIES + 1}, 400, LimitError),
    ],
)
def test_what_can_not_be_is_refused(
    asked: Asked, query: dict[str, Any], status: int, error: type[Exception]
) -> None:
    with (
        asked.served.client(credentials=ServiceCredentials(token=asked.tokens["all"])) as client,
        pytest.raises(error),
    ):
        client.list_audit(since_ms=0, **query)
    answer = asked.rest("all", **query)
    assert (answer.status_code, answer.json()["code"]) == (status, "INVALID_NAME")


class Watched(MemoryAuditLog):
    """Notes what it is asked for."""

    asked: AuditQuery

    def page(self, query: AuditQuery) -> AuditPage:
        self.asked = query
        return super().page(query)


def test_a_page_costs_the_store_a_bounded_number_of_reads_and_half_of_the_time() -> None:
    log, now_s = Watched(), [0.0]
    reader = AuditReader(log, lambda: 4_000 * DAY_MS)
    reader.page(pb.ListAuditRequest(), lambda _: True, Deadline(10.0, lambda: now_s[0]))
    assert log.asked.since_ms == 350 * DAY_MS
    assert [log.asked.enough() for _ in range(module._MOST_READS)] == [False] * 99 + [True]
    reader.page(pb.ListAuditRequest(), lambda _: True, Deadline(10.0, lambda: now_s[0]))
    assert not log.asked.enough()
    now_s[0] = 5.1
    assert log.asked.enough()


def test_a_moment_that_no_calendar_has_is_asked_of_nobody() -> None:
    log = Watched()
    request = pb.ListAuditRequest(until_ms=-(2**63))
    assert not AuditReader(log, lambda: 0).page(request, lambda _: True, Deadline.after_ms(60_000)).entries
    assert log.asked.until_ms == 0


def test_a_page_of_large_entries_ends_early_and_says_where_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = replace(ENTRIES[0], after={str(number): "x" * 1_000 for number in range(60)})
    log = MemoryAuditLog()
    log.append([replace(large, at_ms=large.at_ms + number) for number in range(5)])
    monkeypatch.setattr(module, "_MOST_BYTES", 100_000)
    reader = AuditReader(log, lambda: large.at_ms + DAY_MS)
    rows: list[AuditRow] = []
    request, sizes = pb.ListAuditRequest(), []
    while not sizes or request.before:
        answer = reader.page(request, lambda _: True, Deadline.after_ms(60_000))
        sizes.append(len(answer.entries))
        rows += page_from_pb(answer).rows
        request.before = answer.next_before
    assert sizes == [2, 2, 1]
    assert [row.at_ms for row in rows] == [large.at_ms + number for number in (4, 3, 2, 1, 0)]


# --- whose decision it is, where nobody is asked who calls ----------------------------------------------------------


def whose(served: Served) -> Principal:
    """Of the last decision that was kept."""
    kept = [item for item in served.world.audit.entries() if item.call == "SetPrimary"]
    return kept[-1].principal


def test_a_caller_names_itself_where_nobody_is_asked() -> None:
    with serving(World(("a", "b"))) as served, served.client() as client, served.http() as http:
        client.set_primary(Change(MINE, RegionName("a")), actor="alice")
        assert whose(served) == Principal("alice", ProvenBy.OWN_WORD)
        assert http.put("/v1/groups/mine/primary", json={"region": "b", "actor": "böb"}).status_code == 200
        assert whose(served) == Principal("böb", ProvenBy.OWN_WORD)
        client.set_primary(Change(MINE, RegionName("a")))
        assert whose(served) == ANYBODY
        for actor in ("two\nlines", "x" * 513):
            with pytest.raises(InvalidNameError, match="actor"):
                client.set_primary(Change(MINE, RegionName("b")), actor=actor)


@pytest.mark.parametrize(("options", "name"), [(["--actor", "alice"], "alice"), ([], account_name())])
def test_a_command_says_whose_decision_it_is(options: list[str], name: str) -> None:
    with serving(World(("a", "b"))) as served:
        command = ["primary", MINE, "--set", "b", "--service", served.target, *options]
        assert CliRunner().invoke(app, command, env={"PARALLAX_CONFIG": None}).exit_code == 0
        assert whose(served) == Principal(name, ProvenBy.OWN_WORD)


def test_whoever_was_proven_outweighs_what_a_caller_says(asked: Asked) -> None:
    with asked.served.client(credentials=ServiceCredentials(token=asked.tokens["operator"])) as client:
        client.set_primary(Change(GroupName("named"), RegionName("a"), renew=True), actor="somebody else")
    assert whose(asked.served) == Principal("operator", ProvenBy.TOKEN)


@pytest.mark.parametrize(
    ("actor", "reason", "told"),
    [
        ("ada", "", "for ada"),
        ("ada", "region a is slow", "for ada: region a is slow"),
        ("operator", "region a is slow", "region a is slow"),
        ("", "", ""),
    ],
)
def test_whom_a_proven_caller_names_stands_among_the_reasons(
    asked: Asked, actor: str, reason: str, told: str
) -> None:
    """A console, or a command, acts for somebody: who asks later hears of both."""
    change = Change(GroupName("named"), RegionName("a"), renew=True, reason=reason)
    with asked.served.client(credentials=ServiceCredentials(token=asked.tokens["operator"])) as client:
        decided = client.set_primary(change, actor=actor)
    assert whose(asked.served) == Principal("operator", ProvenBy.TOKEN)
    assert [entry.reason for entry in asked.served.world.audit.entries()][-1] == told
    assert decided.decision.reason == reason


def test_a_proven_caller_names_no_more_than_a_name(asked: Asked) -> None:
    with asked.served.client(credentials=ServiceCredentials(token=asked.tokens["operator"])) as client:
        change = Change(GroupName("named"), RegionName("a"), renew=True)
        with pytest.raises(InvalidNameError, match="actor"):
            client.set_primary(change, actor="two\nlines")


def test_a_word_that_outweighs_a_proof_is_noticed(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "in_whose_name", lambda _, actor: Principal(actor, ProvenBy.OWN_WORD))
    with pytest.raises(AssertionError):
        test_whoever_was_proven_outweighs_what_a_caller_says(asked)
