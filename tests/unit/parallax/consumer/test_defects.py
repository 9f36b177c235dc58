"""What a consumer does in the background goes on after an error that nobody expected: its application would never know otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from parallax.consumer import following, skip_watcher
from parallax.consumer.following import Follower
from parallax.consumer.reporting import Report, Reporter
from parallax.consumer.skip_watcher import SkipWatcher
from parallax.domain.ids import TargetOffset, TopicId
from parallax.domain.metadata import CommittedMetadata
from parallax.v1 import offsets_pb2 as pb
from parallax.v1 import primaries_pb2
from tests.support import poll_until


class BrokenOnce:
    """A service whose first answer nobody can make anything of."""

    def __init__(self, then: Any) -> None:
        self.asked = 0
        self._then = then

    def watch_primary(self, _group: str) -> BrokenOnce:
        return self._again()

    def watch_skips(self, *_: object, **__: object) -> BrokenOnce:
        return self._again()

    def report_positions(self, *_: object, **__: object) -> None:
        next(iter(self._again()))

    def _again(self) -> BrokenOnce:
        self.asked += 1
        return self

    def __iter__(self) -> Iterator[Any]:
        if self.asked == 1:
            raise RuntimeError("nobody thought of this")
        yield self._then

    def close(self) -> None: ...


def errors(logs: list[Any]) -> list[str]:
    return [line["event"] for line in logs if line["log_level"] == "error"]


def test_it_hears_of_later_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_WATCH_AGAIN_S", 0.01)
    decided = primaries_pb2.Primary(group="g")
    follower = Follower(cast("Any", BrokenOnce(decided)), "g")
    with capture_logs() as logs:
        follower.start()
        poll_until(lambda: follower.current is not None, 10, "a decision")
        follower.close()
    assert errors(logs) == ["following_failed"]


def test_it_learns_what_may_be_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skip_watcher, "_AGAIN_AFTER_S", 0.01)
    watcher = SkipWatcher(cast("Any", BrokenOnce(pb.SkipUpdate())), "b", from_region="a")
    skipping = CommittedMetadata(0, TopicId("id"), TargetOffset(0), {})
    with capture_logs() as logs:
        watcher.open(("trips", 0), skipping, 0)
        learned = poll_until(watcher.take, 10, "an update")
        watcher.close()
    assert [item.key for item in learned] == [("trips", 0)]
    assert errors(logs) == ["watch_skips_failed"]


def test_it_reports_again() -> None:
    service = BrokenOnce(None)
    report = Report("a", [pb.PartitionPosition(topic="trips", partition=0, next_offset=1)])
    reporter = Reporter(cast("Any", service), "g", lambda: report, interval_s=0.01)
    with capture_logs() as logs:
        reporter.start()
        poll_until(lambda: service.asked > 2, 10, "further reports")
        reporter.close()
    assert errors(logs) == ["report_positions_failed"]
