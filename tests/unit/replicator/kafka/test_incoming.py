"""Whoever follows the run logs of incoming routes says so when it can't any more: records wait for what it tells."""

from __future__ import annotations

from contextlib import closing
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.domain.ids import ClusterName, TopicName
from parallax.errors import ClusterUnavailableError, ParallaxError
from replicator.copying.session_end import SessionError
from replicator.kafka.incoming import _Follower
from tests.support import poll_until

CLUSTER = ClusterName("aggregate-a")


class Door:
    """A cluster that answers as it is told to."""

    def __init__(self, *answers: Exception) -> None:
        self._answers = iter(answers)

    def log_ranges(self, *_: object, **__: object) -> dict[Any, Any]:
        answer = next(self._answers, None)
        if answer is not None:
            raise answer
        return {}


def follower(door: Door, settings: dict[str, Any]) -> _Follower:
    """One that expects a run log that is not there yet."""
    return _Follower(
        CLUSTER, settings, cast("KafkaCluster", door), {}, [TopicName("parallax.runs.b")], lambda *_: None
    )


def problem(found: _Follower) -> ParallaxError | None:
    try:
        found.settled()
    except ParallaxError as error:
        return error
    return None


NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


@pytest.mark.parametrize(
    ("door", "settings", "told"),
    [
        (Door(RuntimeError("nobody thought of this")), NOWHERE, "nobody thought of this"),
        (Door(), {"no.such.setting": "x"}, "no.such.setting"),
    ],
)
def test_a_defect_ends_the_session_by_name(door: Door, settings: dict[str, Any], told: str) -> None:
    with capture_logs() as logs, closing(follower(door, settings)) as found:
        found.request(1)
        error = poll_until(lambda: problem(found), 10, "it is told that the run logs are followed no more")
        assert told in str(error)
        assert CLUSTER in str(error)
    if "no.such.setting" not in settings:
        assert isinstance(error, SessionError)
        assert [line["event"] for line in logs] == ["incoming_run_logs_failed"]


def test_a_cluster_that_is_away_for_a_moment_ends_nothing() -> None:
    with closing(follower(Door(ClusterUnavailableError("no answer")), NOWHERE)) as found:
        found.request(1)
        assert poll_until(found.settled, 10, "all is known") == 1
