"""Structured logs: events with fields, for people on a terminal and as JSON for machines."""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logging(*, json: bool = False, level: int = logging.INFO) -> None:
    """Set up structlog for a process. Called once, by composition roots.

    Args:
        json: one JSON object a line; otherwise only if standard error is not a terminal.
        level: the least severe level to show.
    """
    as_json = json or not sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.dict_tracebacks
            if as_json
            else structlog.processors.ExceptionPrettyPrinter(),
            structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
