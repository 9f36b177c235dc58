"""The offset service's metrics, declared once."""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from offsetsvc.answers import FailoverAnswer
from offsetsvc.service import UseCases
from parallax.domain.primary import Assignment, Stage
from parallax.errors import ParallaxError
from parallax.identity.identity import ASKS_NOBODY, Identity
from parallax.runtime.deadline import Deadline

_SCRAPE_MS = 2_000
"""Freshness is read from the index at each scrape; a store that is away must not hold the scrape up."""

_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class ServiceMetrics:
    """Counts requests of every transport in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "parallax_offsetsvc_requests",
            "Requests, by what became of them: OK or the code of the error.",
            ["transport", "method", "code"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "parallax_offsetsvc_request_duration_seconds",
            "From the request to its answer; streams, which last as long as they please, are not timed.",
            ["transport", "method"],
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        self._outcomes = Counter(
            "parallax_offsetsvc_outcomes",
            "Failover offsets answered, one for each partition, by outcome.",
            ["outcome"],
            registry=self.registry,
        )

    def watch(self, service: UseCases, identity: Identity = ASKS_NOBODY) -> None:
        """Add the gauges that are read from the service, and of who proves who calls, at each scrape."""
        self.registry.register(_IssuerKeys(identity))
        self.registry.register(_Freshness(service))
        self.registry.register(_Primaries(service))
        self.registry.register(_Unaudited(service))

    @contextmanager
    def request(self, transport: str, method: str) -> Iterator[None]:
        """Count and time one request; an error passes through."""
        began_s = time.perf_counter()
        try:
            with self.stream(transport, method):
                yield
        finally:
            self._seconds.labels(transport, method).observe(time.perf_counter() - began_s)

    @contextmanager
    def refusals(self, transport: str, method: str) -> Iterator[None]:
        """Count a request that is not let in; the error passes through, and a request that is let in is counted later."""
        try:
            yield
        except ParallaxError:
            with self.stream(transport, method):
                raise

    @contextmanager
    def stream(self, transport: str, method: str) -> Iterator[None]:
        """Count one request for a stream once it has ended; an error passes through.

        It is not timed: a watch lasts for seconds by design, and would look like a slow answer.
        """
        code = "INTERNAL"
        try:
            yield
            code = "OK"
        except ParallaxError as error:
            code = error.code
            raise
        except GeneratorExit:  # the caller of a stream went away
            code = "CANCELLED"
            raise
        finally:
            self._requests.labels(transport, method, code).inc()

    def answered(self, answers: Iterable[FailoverAnswer]) -> None:
        """Count the outcomes of answers."""
        for answer in answers:
            self._outcomes.labels(answer.outcome.name).inc()


class _IssuerKeys(Collector):
    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    def collect(self) -> list[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "parallax_offsetsvc_issuer_keys_age_ms",
            "Since the keys of the issuer of tokens were last fetched; too old, they prove nobody.",
            labels=[],
        )
        age_ms = self._identity.keys_age_ms()
        if age_ms is not None:
            family.add_metric([], age_ms)
        return [family]


class _Freshness(Collector):
    def __init__(self, service: UseCases) -> None:
        self._service = service

    def describe(self) -> list[GaugeMetricFamily]:
        """Names only: registering must not ask the store."""
        return self._families()

    def collect(self) -> list[GaugeMetricFamily]:
        freshness, store_up = families = self._families()
        try:
            routes = self._service.mapping.routes(Deadline.after_ms(_SCRAPE_MS))
        except ParallaxError:
            store_up.add_metric([], 0)
            return families
        store_up.add_metric([], 1)
        for route in routes.routes:
            for item in route.topics:
                if item.HasField("freshness_ms"):
                    freshness.add_metric([route.route, item.topic], item.freshness_ms)
        return families

    @staticmethod
    def _families() -> list[GaugeMetricFamily]:
        return [
            GaugeMetricFamily(
                "parallax_offsetsvc_freshness_ms",
                "Age of the oldest newest row over a topic's partitions.",
                labels=["route", "topic"],
            ),
            GaugeMetricFamily(
                "parallax_offsetsvc_store_up", "1 if the store answered this scrape.", labels=[]
            ),
        ]


class _Primaries(Collector):
    def __init__(self, service: UseCases) -> None:
        self._service = service

    def describe(self) -> list[GaugeMetricFamily]:
        """Names only: registering must not ask the store."""
        return self._families()

    def collect(self) -> list[GaugeMetricFamily]:
        primary, dual, moving, unreadable = families = self._families()
        try:
            known = self._service.primaries.all()
        except ParallaxError:  # parallax_offsetsvc_store_up says so
            return families
        assignments = {group: item for group, item in known.items() if isinstance(item, Assignment)}
        unreadable.add_metric([], len(known) - len(assignments))
        counts = Counts((item.decision.primary, item.decision.mode.value) for item in assignments.values())
        for (region, mode), groups in sorted(counts.items()):
            primary.add_metric([region, mode], groups)
        for group, item in assignments.items():
            if item.dual_active:
                dual.add_metric([group], item.decision.fencing_number)
        moving.add_metric([], sum(item.decision.stage is Stage.MOVING for item in assignments.values()))
        return families

    @staticmethod
    def _families() -> list[GaugeMetricFamily]:
        return [
            GaugeMetricFamily(
                "parallax_offsetsvc_primary_groups",
                "Groups with a recorded primary, by its region and their mode.",
                labels=["region", "mode"],
            ),
            GaugeMetricFamily(
                "parallax_offsetsvc_dual_active",
                "A group for which regions decided differently without seeing each other; the value is the "
                "fencing number that wins. Nothing is synced for it until somebody decides knowing all.",
                labels=["group"],
            ),
            GaugeMetricFamily(
                "parallax_offsetsvc_moving_groups", "Groups whose move has begun and not ended.", labels=[]
            ),
            GaugeMetricFamily(
                "parallax_offsetsvc_unreadable_primaries",
                "Groups whose decisions this release can't read; nothing is done for them.",
                labels=[],
            ),
        ]


class _Unaudited(Collector):
    def __init__(self, service: UseCases) -> None:
        self._service = service

    def collect(self) -> list[CounterMetricFamily]:
        family = CounterMetricFamily(
            "parallax_offsetsvc_unaudited_reports",
            "Reports that changed nothing of what is recorded as a move: they are not audited one by one.",
            labels=["method"],
        )
        for method, count in sorted(self._service.moves.unaudited().items()):
            family.add_metric([method], count)
        return [family]
