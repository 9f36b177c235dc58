"""Rounds go on after one that failed, whatever it failed by."""

from __future__ import annotations

from collections.abc import Iterator

from structlog.testing import capture_logs

from parallax.domain.ids import ClusterName, TopicName
from parallax.domain.topic_settings import SettingFinding, SettingState
from parallax.errors import ClusterUnavailableError
from parallax.upkeep.board import UpkeepBoard
from parallax.upkeep.keeping import SETTINGS, STATES, Upkeep, keeping
from parallax.upkeep.settings import SettingsRow
from tests.support import poll_until

CLUSTER = ClusterName("aggregate-b")


def test_a_round_that_fails_is_told_and_the_next_one_comes() -> None:
    finding = SettingFinding("retention.ms", SettingState.CONFIG_DRIFT, "1", "2")
    row = SettingsRow(CLUSTER, TopicName("trips"), finding)
    seen: list[list[str]] = []
    board = UpkeepBoard(STATES)

    def rounds() -> Iterator[list[SettingsRow]]:
        """A cluster that is away, a defect, and then rounds that find the same twice."""
        yield from ([], [row], [row])

    going = rounds()

    def one() -> list[SettingsRow]:
        seen.append(list(board.troubles()))
        if len(seen) == 1:
            raise ClusterUnavailableError("aggregate-b: no answer")
        if len(seen) == 2:
            raise ZeroDivisionError("a defect")
        return next(going, [])

    with capture_logs() as logs, keeping([Upkeep(SETTINGS, CLUSTER, 0.01, lambda: one)], board):
        poll_until(lambda: len(seen) > 6, 10, "rounds")
    assert seen[1] == ["settings of aggregate-b: [CLUSTER_UNAVAILABLE] aggregate-b: no answer"]
    assert seen[2] == ["settings of aggregate-b: ZeroDivisionError('a defect')"]
    assert seen[3] == []
    assert seen[4] == seen[5] == [row.line()]
    assert seen[6] == []
    told = [entry["event"] for entry in logs]
    assert told == ["upkeep_failed", "upkeep_failed", "not_in_step"]
