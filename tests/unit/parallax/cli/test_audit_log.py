"""`parallax audit-log` shows a line for each act, and for scripts every entry."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from offsetsvc.audit import AuditReader
from parallax.cli import audit_log as command
from parallax.cli.audit_log import moment_of
from parallax.cli.main import app
from parallax.domain.ids import GroupName
from parallax.domain.rights import Principal, ProvenBy
from parallax.errors import InvalidNameError, RefusedError
from parallax.ports.audit import Auditor
from parallax.runtime.deadline import Deadline
from parallax.v1 import audit_pb2
from tests.memory.cql import MemoryKeyspace, WrittenStores
from tests.worlds.newer_release import newer
from tests.worlds.offset_world import World

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
ALICE, BOB = Principal("alice", ProvenBy.CERTIFICATE), Principal("bob@host", ProvenBy.ACCOUNT)
Run = Callable[..., Any]


@pytest.fixture
def keyspace() -> MemoryKeyspace:
    return MemoryKeyspace()


class Asked:
    """An offset service that gives two entries at a time, over no network."""

    def __init__(self, reader: AuditReader) -> None:
        self._reader = reader

    def list_audit(self, **asked: Any) -> audit_pb2.ListAuditResponse:
        request = audit_pb2.ListAuditRequest(**asked | {"limit": min(asked["limit"], 2)})
        return self._reader.page(request, lambda _group: True, Deadline.after_ms(60_000))


def closed(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("the other way is not asked")


@pytest.fixture(params=["service", "store"])
def run(
    request: pytest.FixtureRequest, keyspace: MemoryKeyspace, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    """Alice decides, two hours ago; Bob's move fails, an hour ago."""
    stores = WrittenStores(keyspace)
    now_ms = NOW_MS - 2 * HOUR_MS
    auditor = Auditor(stores.audit, lambda: now_ms, process="offsetsvc@host:1", region="a")

    @contextmanager
    def opened(*_: Any, **__: Any) -> Iterator[Any]:
        yield SimpleNamespace(audit=stores.audit, clock=SimpleNamespace(now_ms=lambda: NOW_MS))

    @contextmanager
    def connected(*_: Any) -> Iterator[Any]:
        yield Asked(AuditReader(stores.audit, lambda: NOW_MS))

    # From a service, and from the store itself: the same.
    way = ["--store"] if request.param == "store" else []
    monkeypatch.setattr(command, "CassandraStores", closed if not way else opened)
    monkeypatch.setattr(command, "connect", closed if way else connected)
    monkeypatch.setattr(command, "wall_clock_ms", lambda: NOW_MS)
    monkeypatch.setattr(command, "load", lambda _path: World().config)
    # A logger would keep the runner's standard error, which ends with each command.
    monkeypatch.setattr(command, "log_beside_result", lambda **_options: None)

    def invoke(*arguments: str) -> Any:
        result = CliRunner().invoke(app, ["audit-log", "--config", "unread", *way, *arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.stdout

    with capture_logs():
        with auditor.act(
            ALICE,
            "SetPrimary",
            GroupName("billing"),
            before={"primary": "a"},
            after={"primary": "b"},
            reason="[slow]",
        ):
            pass
        now_ms += HOUR_MS
        with (
            pytest.raises(RefusedError),
            auditor.act(BOB, "failover", GroupName("fraud"), before={}, after={"cluster": "aggregate-b"}),
        ):
            raise RefusedError("it has members")
        yield invoke


def test_a_line_for_each_act(run: Run) -> None:
    shown = run()
    assert shown.count("SetPrimary") == shown.count("failover") == 1
    for part in ("alice", "primary=a", "primary=b", "done", "[slow]", "failed", "REFUSED"):
        assert part in shown
    assert shown.index("failover") < shown.index("SetPrimary"), "the newest first"


def test_every_entry_for_scripts(run: Run) -> None:
    entries = json.loads(run("--json"))
    assert [(item["principal"], item["stage"]) for item in entries] == [
        ("bob@host", "failed"),
        ("bob@host", "intended"),
        ("alice", "done"),
        ("alice", "intended"),
    ]
    assert entries[3] == {
        "entry_id": entries[3]["entry_id"],
        "group": "billing",
        "act_id": entries[2]["act_id"],
        "at_ms": NOW_MS - 2 * HOUR_MS,
        "stage": "intended",
        "principal": "alice",
        "proven_by": "certificate",
        "call": "SetPrimary",
        "before": {"primary": "a"},
        "after": {"primary": "b"},
        "reason": "[slow]",
        "region": "a",
        "process": "offsetsvc@host:1",
        "problem": "",
    }


@pytest.mark.parametrize(
    ("arguments", "principals"),
    [
        (("--group", "billing"), ["alice", "alice"]),
        (("--principal", "bob@host"), ["bob@host", "bob@host"]),
        (("--call", "SetPrimary"), ["alice", "alice"]),
        (("--since", "90m"), ["bob@host", "bob@host"]),
        (("--until", "90m"), ["alice", "alice"]),
        (("--limit", "3"), ["bob@host", "bob@host", "alice"]),
        (("--since", "30m"), []),
    ],
)
def test_what_is_asked_for(run: Run, arguments: tuple[str, ...], principals: list[str]) -> None:
    assert [item["principal"] for item in json.loads(run("--json", *arguments))] == principals


def test_pages(run: Run) -> None:
    first = json.loads(run("--json", "--limit", "3"))
    (last,) = json.loads(run("--json", "--limit", "3", "--before", first[-1]["entry_id"]))
    assert (last["principal"], last["stage"]) == ("alice", "intended")
    assert f"--before {first[-1]['entry_id']}" in run("--limit", "3")


def test_nothing_of_that_time(run: Run) -> None:
    assert "nothing was kept" in run("--since", "30m")


def test_an_entry_of_a_newer_release_is_shown_as_such_and_hides_no_other(
    run: Run, keyspace: MemoryKeyspace
) -> None:
    bodies = keyspace.bodies("audit")
    key = next(key for key, body in bodies.items() if "alice" in body and "intended" in body)
    keyspace.rewrite("audit", key, newer(bodies[key], format=2))
    entries = json.loads(run("--json"))
    assert len(entries) == 4
    assert "format 2" in entries[3]["problem"]
    assert entries[3]["group"] == "billing"
    assert "format 2" in " ".join(run().split())
    of_bob = json.loads(run("--json", "--principal", "bob@host"))
    assert [item.get("principal") for item in of_bob] == ["bob@host", "bob@host", None], "it may be Bob's"


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("30m", NOW_MS - 1_800_000),
        ("2d", NOW_MS - 48 * HOUR_MS),
        ("2023-11-14T22:13:20Z", NOW_MS),
        ("2023-11-14T23:13:20+01:00", NOW_MS),
    ],
)
def test_moments(text: str, at_ms: int) -> None:
    assert moment_of(text, NOW_MS, "--since") == at_ms


@pytest.mark.parametrize(
    "text", ["yesterday", "7", "", "2023-11-14T22:13:20", pytest.param("9" * 4_301 + "h", id="digits")]
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(InvalidNameError, match="--since"):
        moment_of(text, NOW_MS, "--since")
