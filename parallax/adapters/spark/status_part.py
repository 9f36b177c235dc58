"""What one kind of work shows of itself in the status of a driver (`parallax.adapters.spark.status_server`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from prometheus_client.core import Metric

Taker = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""Takes what a task has posted; what it returns is the answer, None: whether the lease shall end. A `ValueError` says
that it is not what it should be."""


class StatusPart(Protocol):
    """What one kind of work shows of itself, and takes from its tasks. Used from several threads."""

    @property
    def name(self) -> str:
        """What is not ready, for /readyz."""

    @property
    def takers(self) -> Mapping[str, Taker]:
        """By path, what takes the posts of tasks."""

    def missing(self) -> Sequence[str]:
        """Why it is not ready, one line for each reason; empty if it is."""

    def troubles(self) -> Sequence[str]:
        """What does not work while the rest does, one line for each: it is ready all the same."""

    def active_leases(self) -> Sequence[str]:
        """The leases that a stop has to wait for, by name."""

    def state(self) -> Mapping[str, Any]:
        """Its keys of /status, as JSON types."""

    def collect(self) -> Iterable[Metric]:
        """Every metric with its samples."""

    def mirror_maker(self) -> Iterable[Metric]:
        """The same under MirrorMaker 2's names, for dashboards that go by those; empty if it has no such metrics."""


class SidePart:
    """A `StatusPart` of work that nobody waits for: what it shows is all that it adds.

    A part says besides: its ``name``, `troubles`, `state` and `collect`.
    """

    takers: Mapping[str, Taker] = MappingProxyType({})

    def missing(self) -> Sequence[str]:
        """None: what is copied does not wait for it."""
        return ()

    def active_leases(self) -> Sequence[str]:
        """None: a stop may end it at any moment."""
        return ()

    def mirror_maker(self) -> Iterable[Metric]:
        """None: MirrorMaker 2 has nothing like it."""
        return ()
