"""What a dashboard is, and how Grafana imports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS = 24


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a panel.

    Attributes:
        legend: labels in double braces.
    """

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel.

    Attributes:
        unit: Grafana's word for it: ``s``, ``bytes``, ``short``.
        kind: ``timeseries``, ``stat`` or ``table``.
        limit: from this value on a stat is red; None: it has no colour.
        low_is_bad: red below ``limit`` instead.
        meaning: shown at the panel's title.
    """

    title: str
    queries: Sequence[Query]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 12
    limit: float | None = None
    low_is_bad: bool = False
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard.

    Attributes:
        by_route: whether it has the variables ``source`` and ``target``.
    """

    name: str
    title: str
    panels: Sequence[Panel]
    by_route: bool = field(default=False)


def to_json(dashboard: Dashboard) -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    variables = [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}]
    if dashboard.by_route:
        variables += [_variable(name) for name in ("source", "target")]
    return {
        "uid": f"parallax-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["parallax"],
        "editable": False,
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": variables},
        "links": [
            {
                "type": "dashboards",
                "tags": ["parallax"],
                "title": "Parallax",
                "asDropdown": True,
                "keepTime": True,
            }
        ],
        "panels": list(_placed(dashboard.panels)),
    }


def _variable(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "label": name.capitalize(),
        "datasource": _SOURCE,
        "query": f"label_values(parallax_replicator_route_lag_records, {name})",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _placed(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    placed, x, y, height = [], 0, 0, 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > _COLUMNS:
            x, y, height = 0, y + height, 0
        tall = 4 if panel.kind == "stat" else 8
        place = {"x": x, "y": y, "w": panel.width, "h": tall}
        placed.append({"id": number, "gridPos": place, **_panel(panel)})
        x, height = x + panel.width, max(height, tall)
    return placed


def _panel(panel: Panel) -> dict[str, Any]:
    table = panel.kind == "table"
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.meaning,
        "datasource": _SOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                **({"format": "table", "instant": True} if table else {}),
            }
            for number, query in enumerate(panel.queries)
        ],
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, **_thresholds(panel)},
            "overrides": [],
        },
        **({"transformations": _NO_TIME} if table else {}),
    }


_NO_TIME = [{"id": "organize", "options": {"excludeByName": {"Time": True, "Value": True}}}]


def _thresholds(panel: Panel) -> dict[str, Any]:
    if panel.limit is None:
        return {}
    first, then = ("red", "green") if panel.low_is_bad else ("green", "red")
    steps = [{"color": first, "value": None}, {"color": then, "value": panel.limit}]
    return {"color": {"mode": "thresholds"}, "thresholds": {"mode": "absolute", "steps": steps}}
