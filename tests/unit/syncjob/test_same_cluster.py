"""Two aggregate clusters of the configuration that are one Kafka."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from parallax.config.config import Config
from parallax.domain.ids import ClusterName
from parallax.errors import ClusterUnavailableError, ConfigError
from syncjob import run
from syncjob.clusters import refuse_same_cluster


@dataclass
class Named:
    """A cluster with an id; without one it does not answer."""

    cluster: ClusterName
    id: str | None

    def cluster_id(self) -> str:
        if self.id is None:
            raise ClusterUnavailableError(f"{self.cluster}: no answer")
        return self.id


def clusters(*ids: str | None) -> list[Named]:
    return [Named(ClusterName(f"aggregate-{number}"), found) for number, found in enumerate(ids)]


@pytest.mark.parametrize("ids", [(), ("x",), ("x", "y", "z"), ("x", None, None), ("", "", "x")])
def test_clusters_that_are_several_or_do_not_say_are_taken(ids: tuple[str | None, ...]) -> None:
    refuse_same_cluster(clusters(*ids))


@pytest.mark.parametrize("ids", [("x", "x"), ("x", "y", "x"), (None, "x", "x")])
def test_two_that_are_one_are_refused_by_name(ids: tuple[str | None, ...]) -> None:
    first, second = (number for number, found in enumerate(ids) if found == "x")
    with pytest.raises(
        ConfigError, match=f"SAME_CLUSTER: aggregate-{first} and aggregate-{second} are one Kafka"
    ):
        refuse_same_cluster(clusters(*ids))


def test_a_sync_job_over_such_clusters_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    def same(_config: Config) -> dict[ClusterName, Named]:
        return {each.cluster: each for each in clusters("x", "x")}

    def open_stores(*_: object, **__: object) -> None:
        pytest.fail("it has begun")

    monkeypatch.setattr(run, "aggregate_clusters", same)
    monkeypatch.setattr(run, "open_client", lambda _config: None)
    monkeypatch.setattr(run, "CassandraStores", open_stores)
    aggregate = {"aggregate": {"bootstrap_servers": "127.0.0.1:1"}}
    config = Config.model_validate(
        {"regions": {"a": aggregate}, "cassandra": {"contact_points": ["127.0.0.1:1"]}}
    )
    with (
        pytest.raises(ConfigError, match="SAME_CLUSTER: aggregate-0 and aggregate-1"),
        run.open_syncer(config),
    ):
        pass
