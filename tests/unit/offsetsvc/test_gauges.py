"""What the store holds is read in the background: a scrape asks nobody."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from offsetsvc.gauges import StoreGauges
from parallax.config.config import MetricsSettings
from parallax.domain.ids import GroupName, RegionName
from parallax.domain.primary import Assignment, Mode, PrimaryDecision, Stage
from parallax.errors import ConfigError, DeadlineError, InvariantError, ParallaxError, StoreUnavailableError
from parallax.v1 import offsets_pb2 as pb
from parallax.v1 import overview_pb2
from tests.support import poll_until

GROUP = GroupName("billing")


def assignment(stage: Stage = Stage.SETTLED, *rivals: PrimaryDecision, at_ms: int = 5_000) -> Assignment:
    return Assignment(decision(stage, at_ms), rivals)


def decision(stage: Stage = Stage.SETTLED, at_ms: int = 5_000, number: int = 7) -> PrimaryDecision:
    here = RegionName("a")
    return PrimaryDecision(GROUP, number, Mode.ACTIVE_PASSIVE, here, None, stage, None, here, at_ms)


class Store:
    """As much of a service as the gauges read; what it holds, or raises, is the test's."""

    def __init__(self) -> None:
        self.topics: dict[str, int | None] = {"trips": 300, "orders": 200}
        self.known: dict[GroupName, Any] = {}
        self.error: ParallaxError | None = None
        self.asked = 0
        self.drills: list[overview_pb2.DrillSummary] = []
        self.operations = SimpleNamespace(drills=self._drills)
        self.mapping = SimpleNamespace(routes=self._routes)
        self.primaries = SimpleNamespace(all=self._all)
        self.replication = SimpleNamespace(look=self._remember)
        self.lags = SimpleNamespace(remember=lambda: None)
        self.lag_survey = SimpleNamespace(look=lambda: None, verdicts={})
        self.remembered = 0

    def _routes(self, _deadline: object) -> pb.ListRoutesResponse:
        self._answer()
        topics = [pb.RouteTopic(topic=topic, freshness_ms=age) for topic, age in self.topics.items()]
        return pb.ListRoutesResponse(
            routes=[pb.RouteInfo(route="a->b", topics=topics), pb.RouteInfo(route="b->a")]
        )

    def _remember(self) -> None:
        if self.error is not None:
            raise self.error
        self.remembered += 1

    def _all(self) -> dict[GroupName, Any]:
        self._answer()
        return dict(self.known)

    def _drills(self, _request: object, _shown: object) -> overview_pb2.ListDrillsResponse:
        self._answer()
        return overview_pb2.ListDrillsResponse(drills=self.drills)

    def _answer(self) -> None:
        self.asked += 1
        if self.error is not None:
            raise self.error


def gauges_of(store: Store, **settings: Any) -> StoreGauges:
    service: Any = store
    return StoreGauges(service, MetricsSettings(**settings))


def scraped(gauges: StoreGauges) -> dict[str, float]:
    return {
        ",".join((sample.name.removeprefix("parallax_offsetsvc_"), *sample.labels.values())): sample.value
        for family in gauges.collect()
        for sample in family.samples
    }


def test_a_scrape_reads_nothing() -> None:
    store = Store()
    gauges = gauges_of(store)
    assert scraped(gauges) == {}
    gauges.refresh()
    asked = store.asked
    found = [scraped(gauges) for _ in range(3)][-1]
    assert store.asked == asked
    assert found["freshness_seconds,a,b,trips"] == 0.3
    assert found["freshness_ms,a->b,trips"] == 300
    assert found["route_freshness_seconds,a,b"] == 0.3
    assert "route_freshness_seconds,b,a" not in found  # nothing was copied: not 0


def test_the_store_is_read_again_and_again_until_it_is_stopped() -> None:
    store = Store()
    gauges = gauges_of(store, refresh_interval_s=0.1)
    gauges.start()
    try:
        poll_until(lambda: store.asked >= 6, 10, "three readings")
    finally:
        gauges.stop()
    asked = store.asked
    assert scraped(gauges)["store_up"] == 1
    assert store.asked == asked


@pytest.mark.parametrize(
    ("error", "up"),
    [
        (StoreUnavailableError("away"), 0),
        (ConfigError("no schema"), 0),
        (InvariantError("B: a row"), 1),
        (DeadlineError("too many topics"), 1),
    ],
)
def test_the_store_is_down_for_its_own_errors_alone(error: ParallaxError, up: int) -> None:
    store = Store()
    gauges = gauges_of(store)
    gauges.refresh()
    store.error = error
    gauges.refresh()
    found = scraped(gauges)
    assert found["store_up"] == up
    assert found[f"refresh_failures_total,{error.code}"] == 4
    assert not any(name.startswith(("freshness", "moving_groups")) for name in found)
    store.error = None
    gauges.refresh()
    assert scraped(gauges)["store_up"] == 1


def test_an_error_of_ours_leaves_nothing_that_looks_well() -> None:
    store = Store()
    gauges = gauges_of(store, refresh_interval_s=0.1)
    gauges.start()
    try:
        poll_until(lambda: scraped(gauges).get("store_up"), 10, "a reading")
        store.error = ZeroDivisionError()  # type: ignore[assignment]
        poll_until(lambda: scraped(gauges).get("refresh_failures_total,INTERNAL"), 10, "the failure")
        assert "store_up" not in scraped(gauges)
        store.error = None
        poll_until(lambda: scraped(gauges).get("store_up"), 10, "the next reading")
    finally:
        gauges.stop()


def test_dual_active_is_1_and_then_0() -> None:
    store = Store()
    gauges = gauges_of(store)
    store.known = {GROUP: assignment()}
    gauges.refresh()
    assert "dual_active,billing" not in scraped(gauges)
    store.known = {GROUP: assignment(Stage.SETTLED, decision(number=6))}
    gauges.refresh()
    assert scraped(gauges)["dual_active,billing"] == 1
    store.known = {GROUP: InvariantError("of a newer release")}
    gauges.refresh()
    assert "dual_active,billing" not in scraped(gauges)
    store.known = {}
    gauges.refresh()
    assert scraped(gauges)["dual_active,billing"] == 0


def test_moves_are_counted_and_the_oldest_says_since_when() -> None:
    store = Store()
    gauges = gauges_of(store)
    store.known = {
        GroupName("one"): assignment(Stage.MOVING, at_ms=9_000),
        GroupName("two"): assignment(Stage.MOVING, at_ms=4_000),
        GroupName("old"): assignment(at_ms=1_000),
    }
    gauges.refresh()
    found = scraped(gauges)
    assert (found["moving_groups"], found["oldest_move_start_timestamp_seconds"]) == (2, 4)
    store.known = {GroupName("old"): assignment()}
    gauges.refresh()
    assert scraped(gauges)["moving_groups"] == 0
    assert "oldest_move_start_timestamp_seconds" not in scraped(gauges)


def test_the_newest_drill_of_each_ending_says_when_it_began() -> None:
    store = Store()
    gauges = gauges_of(store)
    gauges.refresh()
    assert not any(name.startswith("newest_drill") for name in scraped(gauges))
    store.drills = [
        overview_pb2.DrillSummary(ending="failed", started_at_ms=9_000),
        overview_pb2.DrillSummary(ending="passed", started_at_ms=7_000),
        overview_pb2.DrillSummary(ending="passed", started_at_ms=3_000),
        overview_pb2.DrillSummary(started_at_ms=9_500, problem="of a newer release"),
    ]
    gauges.refresh()
    found = {name: value for name, value in scraped(gauges).items() if name.startswith("newest_drill")}
    assert found == {
        "newest_drill_start_timestamp_seconds,failed": 9,
        "newest_drill_start_timestamp_seconds,passed": 7,
    }


def test_of_many_topics_the_stalest_have_samples_and_the_route_counts_all() -> None:
    store = Store()
    store.topics = {f"topic-{number:04}": number for number in range(2_000)}
    gauges = gauges_of(store, worst=3, old_names=False)
    gauges.refresh()
    found = scraped(gauges)
    named = [name for name in found if name.startswith("freshness_seconds")]
    assert named == [f"freshness_seconds,a,b,topic-{number}" for number in (1997, 1998, 1999)]
    assert found["route_freshness_seconds,a,b"] == 1.999
    assert not any("_ms" in name for name in found)
    none = gauges_of(store, partitions="none")
    none.refresh()
    assert not any(name.startswith("freshness") for name in scraped(none))


class TestManyGroups:
    """Reading all decisions may take two hundredths of the time."""

    @pytest.fixture
    def read(self) -> Any:
        store, now = Store(), SimpleNamespace(s=0.0, takes_s=0.0, reads=0)
        store.known = {GROUP: assignment()}

        def read_all() -> dict[GroupName, Any]:
            now.reads += 1
            now.s += now.takes_s
            return store._all()

        store.primaries = SimpleNamespace(all=read_all)
        service: Any = store
        gauges = StoreGauges(service, MetricsSettings(refresh_interval_s=15), lambda: now.s)

        def reads_of_rounds(count: int) -> int:
            before = now.reads
            for _ in range(count):
                began_s = now.s
                gauges.refresh()
                now.s = began_s + 15
            return now.reads - before

        return SimpleNamespace(store=store, now=now, of_rounds=reads_of_rounds, gauges=gauges)

    def test_what_is_quick_is_read_each_time(self, read: Any) -> None:
        read.now.takes_s = 0.29
        assert read.of_rounds(10) == 10

    def test_what_is_slow_is_read_less_often(self, read: Any) -> None:
        read.now.takes_s = 0.89
        assert read.of_rounds(12) == 4, "each 45 s"

    def test_what_is_very_slow_is_read_every_five_minutes(self, read: Any) -> None:
        read.now.takes_s = 14.0
        assert read.of_rounds(40) == 2

    def test_what_could_not_be_read_is_read_again_at_once(self, read: Any) -> None:
        read.now.takes_s = 5.0
        read.store.error = StoreUnavailableError("no answer")
        assert read.of_rounds(3) == 3
        read.store.error = None
        assert read.of_rounds(3) == 1
