"""A cluster that is away costs one time-out, not one for each call, and is asked again once it answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from offsetsvc.clusters import Clusters
from parallax.domain.ids import ClusterName, TopicName
from parallax.errors import ClusterUnavailableError
from tests.support import poll_until
from tests.worlds.offset_world import FakeCluster

A = ClusterName("aggregate-a")
B = ClusterName("aggregate-b")


@pytest.fixture
def readers() -> dict[ClusterName, FakeCluster]:
    return {A: FakeCluster(A), B: FakeCluster(B)}


def clusters_of(readers: dict[ClusterName, FakeCluster], probe_every_ms: float) -> Iterator[Clusters]:
    clusters = Clusters(readers, probe_every_ms=probe_every_ms)
    yield clusters
    clusters.close()


@pytest.fixture
def patient(readers: dict[ClusterName, FakeCluster]) -> Iterator[Clusters]:
    yield from clusters_of(readers, 60_000)


@pytest.fixture
def eager(readers: dict[ClusterName, FakeCluster]) -> Iterator[Clusters]:
    yield from clusters_of(readers, 2)


def test_after_a_failure_nobody_else_waits_for_the_cluster(
    patient: Clusters, readers: dict[ClusterName, FakeCluster]
) -> None:
    readers[A].away = True
    with pytest.raises(ClusterUnavailableError):
        patient.ask(A, lambda reader: reader.topics())
    readers[A].away = False  # not known before a probe has said so
    with pytest.raises(ClusterUnavailableError):
        patient.ask(A, lambda reader: reader.topics())
    assert patient.view(A).topic_id(TopicName("trips")) is None
    assert readers[A].asked == 1
    assert patient.ask(B, lambda reader: reader.topics()) == {}


def test_a_cluster_that_answers_a_probe_is_asked_again(
    eager: Clusters, readers: dict[ClusterName, FakeCluster]
) -> None:
    readers[A].away = True
    with pytest.raises(ClusterUnavailableError):
        eager.ask(A, lambda reader: reader.topics())
    poll_until(lambda: readers[A].asked > 3, 10, "probes of a cluster that is away")
    readers[A].away = False
    poll_until(lambda: eager.view(A).topic_id(TopicName("trips")) == "", 10, "the cluster is asked again")
    asked = readers[A].asked
    assert eager.ask(A, lambda reader: reader.topics()) == {}
    assert readers[A].asked == asked + 1


def test_it_can_fail_again(eager: Clusters, readers: dict[ClusterName, FakeCluster]) -> None:
    for _ in range(2):
        readers[A].away = True
        with pytest.raises(ClusterUnavailableError):
            eager.ask(A, lambda reader: reader.topics())
        readers[A].away = False
        poll_until(lambda: eager.view(A).topic_id(TopicName("trips")) == "", 10, "the cluster is back")


def test_a_probe_that_meets_a_defect_is_told_of_and_the_next_one_comes(
    eager: Clusters, readers: dict[ClusterName, FakeCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("nobody thought of this")

    readers[A].away = True
    with monkeypatch.context() as defect, capture_logs() as logs:
        defect.setattr(readers[A], "topics", broken)
        with pytest.raises(ClusterUnavailableError):
            eager.ask(A, lambda reader: reader.log_ranges([]))
        poll_until(lambda: len(logs) > 1, 10, "a second probe")
    assert {(line["event"], line["log_level"]) for line in logs} == {("probe_failed", "error")}
    assert all(isinstance(line["exc_info"], RuntimeError) for line in logs)
    readers[A].away = False
    poll_until(lambda: eager.view(A).topic_id(TopicName("trips")) == "", 10, "the cluster is asked again")


def test_one_that_no_thread_can_be_had_to_probe_is_asked_by_the_next_caller(
    patient: Clusters, readers: dict[ClusterName, FakeCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    readers[A].away = True
    with monkeypatch.context() as defect, capture_logs() as logs:
        defect.setattr(threading.Thread, "start", none_left)
        with pytest.raises(ClusterUnavailableError):
            patient.ask(A, lambda reader: reader.topics())
    assert [line["event"] for line in logs] == ["probe_failed"]
    readers[A].away = False
    assert patient.ask(A, lambda reader: reader.topics()) == {}
