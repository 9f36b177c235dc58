"""What the offset service counts itself; what it reads from the store is in `offsetsvc.gauges`.

Several processes that answer at one address count in files of a folder that they share (Prometheus' multiprocess mode), and the first of
them shows the sums.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from types import TracebackType

from prometheus_client import Counter, Histogram, values
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from offsetsvc.answers import FailoverAnswer
from offsetsvc.gauges import StoreGauges
from offsetsvc.service import UseCases
from parallax.adapters.http.metrics import process_registry
from parallax.domain.outcome import Outcome
from parallax.errors import ParallaxError
from parallax.identity.identity import ASKS_NOBODY, Identity

_MOST_SERIES = 1_000
_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def count_in(directory: Path) -> None:
    """Let this process keep whatever it counts from now on in files there, one of its own for each kind: nothing was counted before."""
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(directory)
    values.ValueClass = values.MultiProcessValue()  # type: ignore[no-untyped-call]


class ServiceMetrics:
    """Counts requests of every transport in a registry of its own.

    Args:
        counted_in: the folder of all processes' counts (`count_in`), of which sums are shown; None: this process is the only one.
    """

    def __init__(self, counted_in: Path | None = None) -> None:
        self.registry = process_registry("offsetsvc")
        if counted_in is not None:
            MultiProcessCollector(self.registry, str(counted_in))  # type: ignore[no-untyped-call]
        registry = self.registry if counted_in is None else None
        self._requests = Counter(
            "parallax_offsetsvc_requests",
            "Requests, by what became of them: OK or the code of the error.",
            ["transport", "method", "code"],
            registry=registry,
        )
        self._seconds = Histogram(
            "parallax_offsetsvc_request_duration_seconds",
            "From the request to its answer; streams, which last as long as they please, are not timed.",
            ["transport", "method"],
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self._outcomes = Counter(
            "parallax_offsetsvc_outcomes",
            "Failover offsets answered, one for each partition, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self._unaudited = Counter(
            "parallax_offsetsvc_unaudited_reports",
            "Reports that changed nothing of what is recorded as a move: they are not audited one by one.",
            ["method"],
            registry=registry,
        )

        # Looking a series up by its labels takes longer than counting in it.
        self._counter = lru_cache(_MOST_SERIES)(self._requests.labels)
        self._timer = lru_cache(_MOST_SERIES)(self._seconds.labels)
        self._outcome = lru_cache(_MOST_SERIES)(lambda outcome: self._outcomes.labels(outcome.name))

    def hear(self, service: UseCases) -> None:
        """Count too what the service tells of reports."""
        service.moves.tell_unaudited = lambda call: self._unaudited.labels(call).inc()

    def watch(self, service: UseCases, identity: Identity = ASKS_NOBODY) -> StoreGauges:
        """Count what the service tells, and show too how old the keys are that prove who calls, and what the store holds.

        Returns:
            What reads the store; it has to be started.
        """
        self.hear(service)
        settings = service.config.metrics
        gauges = StoreGauges(service, settings)
        self.registry.register(_IssuerKeys(identity, old_names=settings.old_names))
        self.registry.register(gauges)
        return gauges

    def request(self, transport: str, method: str) -> AbstractContextManager[None]:
        """Count and time one request; an error passes through."""
        return _Counted(self._counter, transport, method, self._timer(transport, method))

    def refusals(self, transport: str, method: str) -> AbstractContextManager[None]:
        """Count a request that is not let in; the error passes through, and a request that is let in is counted later."""
        return _Refused(self._counter, transport, method)

    def stream(self, transport: str, method: str) -> AbstractContextManager[None]:
        """Count one request for a stream once it has ended; an error passes through.

        It is not timed: a watch lasts for seconds by design, and would look like a slow answer.
        """
        return _Counted(self._counter, transport, method)

    def answered(self, answers: Iterable[FailoverAnswer]) -> None:
        """Count the outcomes of answers."""
        for answer in answers:
            self._outcome(answer.outcome).inc()

    def mapped(self, outcomes: Mapping[Outcome, int]) -> None:
        """Count answers by outcome."""
        for outcome, count in outcomes.items():
            self._outcome(outcome).inc(count)


class _Counted:
    """Counts a request by what becomes of it. No generator: it is made for each call of thousands a second."""

    __slots__ = ("_began_s", "_counter", "_method", "_timer", "_transport")

    def __init__(
        self,
        counter: Callable[[str, str, str], Counter],
        transport: str,
        method: str,
        timer: Histogram | None = None,
    ) -> None:
        self._counter = counter
        self._transport = transport
        self._method = method
        self._timer = timer
        self._began_s = time.perf_counter()

    def __enter__(self) -> None:
        """The request begins."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            code = "OK"
        elif isinstance(error, ParallaxError):
            code = error.code
        else:  # or the caller of a stream went away
            code = "CANCELLED" if issubclass(kind, GeneratorExit) else "INTERNAL"
        if self._timer is not None:
            self._timer.observe(time.perf_counter() - self._began_s)
        self._counter(self._transport, self._method, code).inc()


class _Refused(_Counted):
    __slots__ = ()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ParallaxError):
            super().__exit__(kind, error, trace)


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
