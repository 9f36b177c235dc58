"""What an application makes of its queries and parts, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.core import Metric
from structlog.testing import capture_logs

from parallax.adapters.spark import application as module
from parallax.adapters.spark.application import Application
from parallax.adapters.spark.leases import LeaseQuery
from parallax.adapters.spark.status_part import Taker
from parallax.adapters.spark.status_server import StatusServer
from parallax.errors import PreflightError


def query(name: str, leases: int, *task_preload: str) -> LeaseQuery:
    def never(_: object) -> Any:
        raise AssertionError("nothing is started here")

    return LeaseQuery(name, leases, never, preload=("plans",), task_preload=task_preload)


class Part:
    """Work whose leases end once they have been looked at so often."""

    name = "work"
    takers: Mapping[str, Taker] = {}

    def __init__(self, looks: float = 0) -> None:
        self.looks = looks

    def missing(self) -> Sequence[str]:
        return ("has not begun",)

    def mirror_maker(self) -> Iterable[Metric]:
        return ()

    def troubles(self) -> Sequence[str]:
        return ()

    def active_leases(self) -> Sequence[str]:
        self.looks -= 1
        return ["the lease"] if self.looks >= 0 else []

    def state(self) -> Mapping[str, Any]:
        return {"work": self.looks}

    def collect(self) -> Iterable[Metric]:
        return ()


def application(*queries: LeaseQuery, part: Part | None = None) -> Application:
    return Application(
        name="x", queries=queries, status=[part] if part is not None else [], status_address="127.0.0.1:0"
    )


def test_a_session_has_slots_and_modules_for_every_query() -> None:
    settings = application(query("a", 2, "copies", "stores"), query("b", 1, "stores")).session_settings
    assert settings.leases == 3
    assert settings.preload == ("plans",)
    assert settings.task_preload == ("pandas", "copies", "stores")


@pytest.mark.parametrize(("looks", "left"), [(3, []), (float("inf"), ["the lease"])])
def test_a_stop_waits_for_leases_for_a_bounded_time(
    looks: float, left: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEASES_END_WITHIN_S", 0.3)
    part = Part(looks)
    server = StatusServer("127.0.0.1:0", [part], token="")
    try:
        with capture_logs() as lines:
            application(part=part)._end_leases(server)
        assert json.loads(server.get("/ending")[2]) == {"end": True}
    finally:
        server.close()
    assert lines[0]["leases"] == 1
    assert [line["leases"] for line in lines[1:]] == ([left] if left else [])


def test_the_status_shows_what_a_part_says_and_which_queries_run() -> None:
    server = StatusServer("127.0.0.1:0", [Part(looks=7)], token="")
    try:
        assert server.get("/readyz")[2] == b"work has not begun\n"
        state: Callable[[], Any] = lambda: json.loads(server.get("/status")[2])  # noqa: E731 - with its type
        assert state() == {"ready": False, "missing": {}, "work": 7, "queries": []}
        server.queries = lambda: [{"name": "a"}]
        assert state()["queries"] == [{"name": "a"}]
    finally:
        server.close()


def test_bookkeeping_begins_empty_and_two_applications_share_a_directory(tmp_path: Path) -> None:
    (tmp_path / "x" / "left").mkdir(parents=True)
    (tmp_path / "other" / "kept").mkdir(parents=True)
    with module._checkpoints(str(tmp_path), "x") as folder:
        assert folder == tmp_path / "x"
        assert not list(folder.iterdir())
    assert (tmp_path / "other" / "kept").is_dir()
    with module._checkpoints(None, "x") as temporary:
        assert temporary.is_dir()
    assert not temporary.exists()


def test_what_is_done_while_spark_starts_may_refuse_and_ends_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Starting:
        def __init__(self, _settings: object) -> None:
            seen.append("starts")

        def close(self) -> None:
            seen.append("closed")

    def refuse() -> None:
        seen.append("looks")
        raise PreflightError("it does not fit")

    monkeypatch.setattr(module, "StartingSession", Starting)
    monkeypatch.setattr(module, "stop_on_signals", lambda _stop: None)
    with pytest.raises(PreflightError, match="it does not fit"):
        application(query("a", 1)).run(meanwhile=refuse)
    assert seen == ["starts", "looks", "closed"]
