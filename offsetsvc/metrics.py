"""What the offset service counts itself; what it reads from the store is in `offsetsvc.gauges`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache

from prometheus_client import Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from offsetsvc.answers import FailoverAnswer
from offsetsvc.gauges import StoreGauges
from offsetsvc.service import UseCases
from parallax.adapters.http.metrics import process_registry
from parallax.errors import ParallaxError
from parallax.identity.identity import ASKS_NOBODY, Identity

_MOST_SERIES = 1_000
_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class ServiceMetrics:
    """Counts requests of every transport in a registry of its own."""

    def __init__(self) -> None:
        self.registry = process_registry("offsetsvc")
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

        # Looking a series up by its labels takes longer than counting in it.
        self._counter = lru_cache(_MOST_SERIES)(self._requests.labels)
        self._timer = lru_cache(_MOST_SERIES)(self._seconds.labels)
        self._outcome = lru_cache(_MOST_SERIES)(self._outcomes.labels)

    def watch(self, service: UseCases, identity: Identity = ASKS_NOBODY) -> StoreGauges:
        """Show too how old the keys are that prove who calls, and what the store holds.

        Returns:
            What reads the store; it has to be started.
        """
        settings = service.config.metrics
        gauges = StoreGauges(service, settings)
        self.registry.register(_IssuerKeys(identity, old_names=settings.old_names))
        self.registry.register(gauges)
        self.registry.register(_Unaudited(service))
        return gauges

    @contextmanager
    def request(self, transport: str, method: str) -> Iterator[None]:
        """Count and time one request; an error passes through."""
        began_s = time.perf_counter()
        try:
            with self.stream(transport, method):
                yield
        finally:
            self._timer(transport, method).observe(time.perf_counter() - began_s)

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
            self._counter(transport, method, code).inc()

    def answered(self, answers: Iterable[FailoverAnswer]) -> None:
        """Count the outcomes of answers."""
        for answer in answers:
            self._outcome(answer.outcome.name).inc()


class _IssuerKeys(Collector):
    def __init__(self, identity: Identity, *, old_names: bool) -> None:
        self._identity = identity
        self._old_names = old_names

    def collect(self) -> list[GaugeMetricFamily]:
        age = GaugeMetricFamily(
            "parallax_offsetsvc_issuer_keys_age_seconds",
            "Since the keys of the issuer of tokens were last fetched; too old, they prove nobody.",
            labels=[],
        )
        old_age = GaugeMetricFamily(
            "parallax_offsetsvc_issuer_keys_age_ms",
            "Old name of issuer_keys_age_seconds, in milliseconds.",
            labels=[],
        )
        age_ms = self._identity.keys_age_ms()
        if age_ms is not None:
            age.add_metric([], age_ms / 1_000)
            old_age.add_metric([], age_ms)
        return [age, old_age] if self._old_names else [age]


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
