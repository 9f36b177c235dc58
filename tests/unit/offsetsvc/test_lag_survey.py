"""What the lags of many groups say, for metrics: at the one cluster where each consumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

import pytest

from offsetsvc.clusters import Clusters
from offsetsvc.gauges import StoreGauges
from offsetsvc.lag_survey import PLACES_AGE_S, LagSurvey
from parallax.config.config import MetricsSettings
from parallax.domain.commits import GroupCommit
from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    ClusterName,
    GroupName,
    RegionName,
    TargetOffset,
    TopicPartition,
)
from parallax.domain.lag_verdict import WINDOW, LagState
from parallax.domain.primary import Change
from parallax.errors import StoreUnavailableError
from parallax.runtime.deadline import Deadline
from tests.unit.offsetsvc.test_lags import Clock
from tests.worlds.offset_world import GROUP, TOPIC, World

ON_A, ON_B = ClusterName("aggregate-a"), ClusterName("aggregate-b")
OTHER = GroupName("other")
ITEM = TopicPartition(TOPIC, 0)


class Store:
    """Where groups consume, as the test says."""

    def __init__(self, places: Mapping[GroupName, ClusterName]) -> None:
        self.places = places
        self.asked = 0
        self.away = False

    def read(self) -> Mapping[GroupName, ClusterName]:
        self.asked += 1
        if self.away:
            raise StoreUnavailableError("the store is away")
        return self.places


@contextmanager
def surveyed(world: World, store: Store, clock: Clock) -> Iterator[LagSurvey]:
    with closing(Clusters(world.clusters, probe_every_ms=60_000)) as clusters:
        yield LagSurvey(store.read, clusters, world.clusters, clock)  # type: ignore[arg-type] # they are writers now


def states(survey: LagSurvey) -> dict[tuple[GroupName, ClusterName], LagState | None]:
    return {key: None if found is None else found.state for key, found in survey.verdicts.items()}


def test_each_group_is_judged_where_it_consumes_and_nowhere_else() -> None:
    world, clock = World(), Clock()
    world.let_write()
    for region in ("a", "b"):
        world.cluster(region).lay(ITEM, [0] * 10)
    world.commit("a", 2)
    world.commit("b", 2)  # published by the sync job: nobody reads there
    store = Store({GROUP: ON_A})
    with surveyed(world, store, clock) as survey:
        world.cluster("a").members[GROUP] = 1
        for _ in range(WINDOW - 1):
            survey.look()
        assert states(survey) == {(GROUP, ON_A): None}
        survey.look()
        assert states(survey) == {(GROUP, ON_A): LagState.STALL}
        world.cluster("a").members[GROUP] = 0
        survey.look()
        assert states(survey) == {(GROUP, ON_A): LagState.STOP}
        store.places = {GROUP: ON_B}  # it has moved; what was seen at a is of no use there
        clock.now_s += PLACES_AGE_S
        survey.look()
        assert states(survey) == {(GROUP, ON_B): None}
        assert store.asked == 2


def test_a_cluster_or_a_store_that_is_away_holds_up_nothing_else() -> None:
    world, clock = World(), Clock()
    world.let_write()
    for region in ("a", "b"):
        world.cluster(region).lay(ITEM, [0] * 10)
        world.commit(region, 10)
    store = Store({GROUP: ON_A, OTHER: ON_B, GroupName("elsewhere"): ClusterName("aggregate-z")})
    world.cluster("b").commits[OTHER] = world.cluster("b").commits[GROUP]
    with surveyed(world, store, clock) as survey:
        for _ in range(WINDOW):
            survey.look()
        known = {(GROUP, ON_A): LagState.OK, (OTHER, ON_B): LagState.OK}
        lost = {(GroupName("elsewhere"), ClusterName("aggregate-z")): None}
        assert states(survey) == known | lost
        store.away = True
        clock.now_s += PLACES_AGE_S
        with pytest.raises(StoreUnavailableError):
            survey.look()
        assert states(survey) == known | lost
        world.cluster("b").away = True
        with pytest.raises(StoreUnavailableError):
            survey.look()
        assert states(survey) == known | lost | {(OTHER, ON_B): None}


def test_metrics_count_groups_and_name_the_worst() -> None:
    world = World()
    world.config = world.config.model_copy(
        update={"metrics": MetricsSettings(lag_groups=(GROUP, "other"), worst=1)}
    )
    world.let_write()
    world.cluster("a").lay(ITEM, [0] * 10)
    for group, offset in ((GROUP, 2), (OTHER, 10), (GroupName("not chosen"), 2)):
        world.cluster("a").commits[group] = {ITEM: GroupCommit(TargetOffset(offset), UNKNOWN_EPOCH, "")}
    with world.service() as service:
        for group in (GROUP, OTHER, GroupName("not chosen")):
            service.primaries.set(Change(group, RegionName("a")), Deadline.after_ms(5_000))
        gauges = StoreGauges(service, world.config.metrics)
        for _ in range(WINDOW + 1):
            gauges.refresh()
        found = {
            (sample.name.removeprefix("parallax_offsetsvc_"), *sorted(sample.labels.values())): sample.value
            for family in gauges.collect()
            if "lag" in family.name
            for sample in family.samples
        }
    counts = {key: value for key, value in found.items() if value}
    assert counts == {
        ("lag_groups", "aggregate-a", "ok"): 1,
        ("lag_groups", "aggregate-a", "stop"): 1,
        ("group_lag_state", "aggregate-a", GROUP, "stop"): 1,
    }
    assert found["lag_groups", "aggregate-a", "unknown"] == 0
