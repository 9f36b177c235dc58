"""What the store holds, as gauges: read in the background, so that a scrape costs the store nothing and waits for nobody."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nlargest

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from offsetsvc.service import UseCases
from parallax.config.config import MetricsSettings
from parallax.domain.ids import GroupName, Route
from parallax.domain.lag_verdict import LagState
from parallax.domain.primary import Assignment, Stage
from parallax.errors import ConfigError, InvariantError, ParallaxError, StoreUnavailableError
from parallax.runtime.deadline import Deadline
from parallax.v1.overview_pb2 import ListDrillsRequest

_log = structlog.get_logger(__name__)

_PREFIX = "parallax_offsetsvc_"
_READ_MS = 30_000
"""Longer than the store's own time-out may be by default: what is slow is the store's error, and says so."""
_STOPS_WITHIN_S = 5.0
_DRILLS_READ = 50
_PRIMARIES_SHARE = 0.02
"""Of the time that reading every group's decisions may take: with many groups they are read less often."""
_PRIMARIES_AGE_S = 300.0
"""However long it takes, they are read after so long."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the last reading found.

    Attributes:
        store_up: whether the store answered; None: it was not asked yet.
        freshness_ms: by route and topic; empty while the store does not answer.
        primaries: by group; None while the store does not answer.
        drills: when the newest drill of each ending began, ms of the Unix epoch.
    """

    store_up: bool | None = None
    freshness_ms: Mapping[Route, Mapping[str, int]] = field(default_factory=dict)
    primaries: Mapping[GroupName, Assignment | InvariantError] | None = None
    drills: Mapping[str, int] = field(default_factory=dict)


class StoreGauges(Collector):
    """Freshness, primaries and moves as the store has them. Used from several threads.

    Args:
        service: reads them.
        settings: how often, and how many of them a scrape shows.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        service: UseCases,
        settings: MetricsSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._settings = settings
        self._clock = clock
        self._primaries_due_s = float("-inf")
        self._seen = _Seen()
        self._was_dual_active: frozenset[GroupName] = frozenset()
        """Groups that are, or were since this process began: they keep a sample, so that an end can be seen."""
        self._failures: Counter[str] = Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics-refresh", daemon=True)

    def start(self) -> None:
        """Begin to read the store every ``metrics.refresh_interval_s``."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more; a reading under way may end by itself."""
        self._stop.set()
        self._thread.join(_STOPS_WITHIN_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.refresh()
            except Exception as error:  # noqa: BLE001 - gauges that stand still would look like a store that is well
                self._seen = _Seen()
                self._failures["INTERNAL"] += 1
                _log.error("metrics_not_refreshed", problem=repr(error))
            self._stop.wait(self._settings.refresh_interval_s)

    def refresh(self) -> None:
        """Read the store now, but for decisions that were read lately. What it can't tell has no samples until it can."""
        up = True
        freshness: dict[Route, dict[str, int]] = {}
        primaries: Mapping[GroupName, Assignment | InvariantError] | None = None
        drills: dict[str, int] = {}
        try:
            freshness = self._read_freshness()
        except ParallaxError as error:
            up = self._noted(error)
        try:
            primaries = self._read_primaries()
        except ParallaxError as error:
            up = self._noted(error) and up
        try:
            drills = self._read_drills()
        except ParallaxError as error:
            up = self._noted(error) and up
        try:
            self._service.replication.look()
        except ParallaxError as error:
            up = self._noted(error) and up
        self._service.lags.remember()
        try:
            self._service.lag_survey.look()
        except ParallaxError as error:
            up = self._noted(error) and up
        if primaries is not None:
            dual = {
                group
                for group, item in primaries.items()
                if isinstance(item, Assignment) and item.dual_active
            }
            self._was_dual_active |= dual
        self._seen = _Seen(up, freshness, primaries, drills)

    def _read_freshness(self) -> dict[Route, dict[str, int]]:
        found = self._service.mapping.routes(Deadline.after_ms(_READ_MS))
        return {
            Route.parse(route.route): {
                item.topic: item.freshness_ms for item in route.topics if item.HasField("freshness_ms")
            }
            for route in found.routes
        }

    def _read_primaries(self) -> Mapping[GroupName, Assignment | InvariantError]:
        began_s, known = self._clock(), self._seen.primaries
        if known is not None and began_s < self._primaries_due_s:
            return known
        found = self._service.primaries.all()
        rest_s = (self._clock() - began_s) / _PRIMARIES_SHARE
        often = rest_s <= self._settings.refresh_interval_s
        self._primaries_due_s = began_s + (0.0 if often else min(rest_s, _PRIMARIES_AGE_S))
        return found

    def _read_drills(self) -> dict[str, int]:
        found: dict[str, int] = {}
        request = ListDrillsRequest(limit=_DRILLS_READ)
        for drill in self._service.operations.drills(request, lambda _group: True).drills:
            if drill.ending:  # this release can read it
                found[drill.ending] = max(found.get(drill.ending, 0), drill.started_at_ms)
        return found

    def _noted(self, error: ParallaxError) -> bool:
        """Count an error; whether the store is up nevertheless."""
        self._failures[error.code] += 1
        return not isinstance(
            error, StoreUnavailableError | ConfigError
        )  # without a schema it is as good as away

    def describe(self) -> list[Metric]:
        """None: nothing else has these names, and registering must not take a reading."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The last reading."""
        seen = self._seen
        store_up = _gauge("store_up", "1 if the store answered when it was last read; no sample before.")
        if seen.store_up is not None:
            store_up.add_metric([], int(seen.store_up))
        yield store_up
        failures = CounterMetricFamily(
            f"{_PREFIX}refresh_failures_total",
            "Readings for these metrics that failed, by the error's code.",
            labels=["code"],
        )
        for code, count in sorted(dict(self._failures).items()):
            failures.add_metric([code], count)
        yield failures
        yield from self._freshness(seen.freshness_ms)
        yield from self._primaries(seen.primaries)
        drills = _gauge(
            "newest_drill_start_timestamp_seconds",
            "When the newest drill of each ending began (Unix epoch), among the last 50; no drill: no sample.",
            "ending",
        )
        for ending, started_at_ms in sorted(seen.drills.items()):
            drills.add_metric([ending], started_at_ms / 1_000)
        yield drills
        yield from self._lags()

    def _lags(self) -> Iterator[Metric]:
        counted = _gauge(
            "lag_groups",
            "Groups by what their lag says where they consume (metrics.lag_groups).",
            "cluster",
            "state",
        )
        worst = _gauge(
            "group_lag_state",
            "1 for a group whose lag says something else than OK, by what it says; no sample else.",
            "group",
            "cluster",
            "state",
        )
        found = dict(self._service.lag_survey.verdicts)
        states = {key: None if verdict is None else verdict.state for key, verdict in found.items()}
        counts = Counter((cluster, state) for (_, cluster), state in states.items())
        for cluster in sorted({cluster for _, cluster in states}):
            for state in (None, *LagState):
                counted.add_metric([cluster, _said(state)], counts[cluster, state])
        bad = [(state, key) for key, state in states.items() if state is not None and state > LagState.OK]
        most = self._settings.most_shown
        for state, (group, cluster) in sorted(bad if most is None else nlargest(most, bad)):
            worst.add_metric([group, cluster, _said(state)], 1)
        yield from (counted, worst)

    def _freshness(self, found: Mapping[Route, Mapping[str, int]]) -> Iterator[Metric]:
        of_route = _gauge(
            "route_freshness_seconds",
            "Age of the oldest newest row over a route's partitions.",
            "source",
            "target",
        )
        of_topic = _gauge(
            "freshness_seconds",
            "Age of the oldest newest row over a topic's partitions.",
            "source",
            "target",
            "topic",
        )
        old = _gauge("freshness_ms", "Old name of freshness_seconds, in milliseconds.", "route", "topic")
        for route, topics in sorted(found.items()):
            named = [route.source, route.target]
            if topics:
                of_route.add_metric(named, max(topics.values()) / 1_000)
            for topic in self._shown(topics):
                of_topic.add_metric([*named, topic], topics[topic] / 1_000)
                old.add_metric([str(route), topic], topics[topic])
        yield from (of_route, of_topic, old) if self._settings.old_names else (of_route, of_topic)

    def _shown(self, topics: Mapping[str, int]) -> list[str]:
        """Those of a route that have samples of their own: the stalest ones, in order."""
        most = self._settings.most_shown
        return sorted(topics if most is None else nlargest(most, topics, key=lambda topic: topics[topic]))

    def _primaries(self, known: Mapping[GroupName, Assignment | InvariantError] | None) -> Iterator[Metric]:
        primary = _gauge(
            "primary_groups",
            "Groups with a recorded primary, by its region and their mode.",
            "region",
            "mode",
        )
        dual = _gauge(
            "dual_active",
            "1 while regions have decided differently for a group without seeing each other: nothing is synced for it until "
            "somebody decides knowing all. 0 once that is over.",
            "group",
        )
        moving = _gauge("moving_groups", "Groups whose move has begun and not ended.")
        oldest = _gauge(
            "oldest_move_start_timestamp_seconds",
            "When the oldest move that has not ended was decided (Unix epoch); no move: no sample.",
        )
        unreadable = _gauge(
            "unreadable_primaries",
            "Groups whose decisions this release can't read; nothing is done for them.",
        )
        families = (primary, dual, moving, oldest, unreadable)
        if known is None:
            yield from families
            return
        assignments = {group: item for group, item in known.items() if isinstance(item, Assignment)}
        unreadable.add_metric([], len(known) - len(assignments))
        counts = Counter((item.decision.primary, item.decision.mode.value) for item in assignments.values())
        for (region, mode), groups in sorted(counts.items()):
            primary.add_metric([region, mode], groups)
        for group in sorted(self._was_dual_active):
            item = known.get(group)
            if not isinstance(item, InvariantError):
                dual.add_metric([group], int(item is not None and item.dual_active))
        begun = [
            item.decision.decided_at_ms
            for item in assignments.values()
            if item.decision.stage is Stage.MOVING
        ]
        moving.add_metric([], len(begun))
        if begun:
            oldest.add_metric([], min(begun) / 1_000)
        yield from families


def _said(state: LagState | None) -> str:
    return "unknown" if state is None else state.name.lower()


def _gauge(name: str, description: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{_PREFIX}{name}", description, labels=labels)
