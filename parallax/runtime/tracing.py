"""Spans for whoever collects them (docs/metrics.md): OpenTelemetry's API where it is installed, and nothing without it.

The API does nothing by itself. Whether spans are recorded, and where they go, is the word of whoever starts the process:
an application with an SDK of its own, or ``opentelemetry-instrument parallax serve ...``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import Any

try:
    from opentelemetry import propagate, trace
except ModuleNotFoundError:  # the base install has none
    _installed = False
else:
    _installed = True

_NOTHING = nullcontext()
_SCOPE = "parallax"

Attribute = str | int | float | bool


def span(name: str, *, kind: str = "internal", **attributes: Attribute) -> AbstractContextManager[Any]:
    """What is done within it, as a span below the present one; an error is told in it.

    Args:
        name: what is done: of few different values.
        kind: ``internal``, ``client`` or ``server``.
        attributes: dots in their names are written as ``__``.
    """
    if not _installed:
        return _NOTHING
    return trace.get_tracer(_SCOPE).start_as_current_span(
        name,
        kind=trace.SpanKind[kind.upper()],
        attributes=_dotted(attributes),
    )


def sent() -> tuple[tuple[str, str], ...]:
    """The headers that tell a service of the present span."""
    if not _installed:
        return ()
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return tuple(headers.items())


def received(
    headers: Collection[tuple[str, Any]], name: str, **attributes: Attribute
) -> AbstractContextManager[None]:
    """A service's work on a call, as a span below that of its caller.

    Args:
        headers: of the call; names in small letters.
        name: of the call.
        attributes: as in `span`.
    """
    if not _installed or (not _recorded() and not _told_by(headers)):
        return _NOTHING
    return _received(headers, name, attributes)


def _recorded() -> bool:
    """Whether somebody may record spans."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _told_by(headers: Collection[tuple[str, Any]]) -> bool:
    """Whether the caller tells of its span: it is passed on then, and logged."""
    fields = _fields()
    return any(key in fields for key, _ in headers)


@lru_cache(maxsize=1)
def _fields() -> frozenset[str]:
    return frozenset(propagate.get_global_textmap().fields)


@contextmanager
def _received(
    headers: Collection[tuple[str, Any]], name: str, attributes: Mapping[str, Attribute]
) -> Iterator[None]:
    carrier = {key: value for key, value in headers if isinstance(value, str)}
    with trace.get_tracer(_SCOPE).start_as_current_span(
        name,
        context=propagate.extract(carrier),
        kind=trace.SpanKind.SERVER,
        attributes=_dotted(attributes),
    ):
        yield


def _dotted(attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    return {name.replace("__", "."): value for name, value in attributes.items()}


def add_trace_ids(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor of structlog: which trace and span an event belongs to, if it is recorded anywhere."""
    if _installed:
        found = trace.get_current_span().get_span_context()
        if found.is_valid:
            event["trace_id"] = trace.format_trace_id(found.trace_id)
            event["span_id"] = trace.format_span_id(found.span_id)
    return event
