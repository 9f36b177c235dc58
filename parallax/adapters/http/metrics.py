"""The metrics that every process shows of itself, and how pages are compressed: the same for all kinds of processes."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from prometheus_client import (
    CollectorRegistry,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp

_DISTRIBUTION = "parallax-kafka"

_LEAST_COMPRESSED_BYTES = 1_000
_LEVEL = 1
"""A scrape shrinks to a twentieth; the highest level takes four times as long and leaves little less."""


def process_registry(component: str) -> CollectorRegistry:
    """A registry with what every process tells of itself: memory, processor time, open files, Python, its version.

    Args:
        component: what the process is: ``replicator``, ``sync``, ``offsetsvc`` or ``console``.
    """
    # A second series for every counter, which nothing here asks for.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    build = Info("parallax_build", "What runs here; always 1.", registry=registry)
    build.info({"component": component, "version": _version()})
    return registry


def metrics_page(registry: CollectorRegistry) -> tuple[str, bytes]:
    """The registry's samples for Prometheus: their content type and the page. It takes a moment: from a thread."""
    return CONTENT_TYPE_LATEST, generate_latest(registry)


def compressed(app: ASGIApp) -> ASGIApp:
    """The application with answers of more than a packet gzipped for callers that take it."""
    return GZipMiddleware(app, minimum_size=_LEAST_COMPRESSED_BYTES, compresslevel=_LEVEL)


def _version() -> str:
    try:
        return version(_DISTRIBUTION)
    except PackageNotFoundError:  # run from a bare checkout
        return "unknown"
