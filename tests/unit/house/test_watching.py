"""deploy/: every query names metrics, labels and values that the code has; every alert has its tests and its runbook."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.dashboards.__main__ import FOLDER, files
from lab.dashboards.board import Dashboard, to_json
from lab.dashboards.boards import DASHBOARDS
from parallax.adapters.http.metrics import process_registry
from parallax.errors import ParallaxError
from replicator.lease import PartitionStatus
from syncjob.decide import UNPUBLISHABLE, Reason
from syncjob.status import FAILED_GROUPS
from tests.worlds.scrapes import exported

ROOT = Path(__file__).parents[3]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((PROMETHEUS / "rules.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDED = {rule["record"]: rule["expr"] for rule in RULES if "record" in rule}
TESTS = yaml.safe_load((PROMETHEUS / "rules-test.yaml").read_text(encoding="utf-8"))["tests"]
RUNBOOK = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
METRICS = exported(old_names=False)

FUNCTIONS = {
    *("absent", "avg", "count", "deriv", "histogram_quantile", "label_values", "max", "max_over_time", "min"),
    *("rate", "sum", "time", "topk", "vector"),
    *("and", "by", "group_left", "on", "or"),
}
OF_THE_SCRAPE = {"instance", "job"}
PROCESS = {sample.name for family in process_registry("test").collect() for sample in family.samples} - set(
    METRICS
)
"""Of the client's own."""

SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
GROUPING = re.compile(r"\b(?:by|on|group_left|without|ignoring)\s*\(([^)]*)\)")


def codes(error: type[ParallaxError]) -> Iterator[str]:
    yield error.code
    for below in error.__subclasses__():
        yield from codes(below)


VALUES = {
    ("parallax_replicator_route_partitions", "status"): {status.value for status in PartitionStatus},
    ("parallax_sync_unpublished_groups", "reason"): {reason.value for reason in UNPUBLISHABLE}
    | {FAILED_GROUPS},
    ("parallax_sync_decisions_total", "reason"): {reason.value for reason in Reason},
    ("parallax_offsetsvc_requests_total", "code"): {*codes(ParallaxError), "OK", "CANCELLED"},
}


def labels_of(name: str) -> set[str] | None:
    """The labels of a metric or of a recorded series; None: there is none of that name."""
    if name in RECORDED:
        grouped = {label.strip() for found in GROUPING.findall(RECORDED[name]) for label in found.split(",")}
        return grouped - {"le", ""}
    if name in PROCESS:
        return OF_THE_SCRAPE
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    if base != name and base in METRICS and METRICS[base].kind == "histogram":
        return {*METRICS[base].labels, "le"} | OF_THE_SCRAPE
    if name in METRICS and METRICS[name].kind != "histogram":
        return {*METRICS[name].labels} | OF_THE_SCRAPE
    return None


def mistakes(expr: str) -> list[str]:
    """What a query names that there is not."""
    found: list[str] = []
    for name, matchers in SELECTOR.findall(expr):
        known = labels_of(name)
        if known is None:
            continue  # it is found below
        pairs = MATCHER.findall(matchers)
        if MATCHER.sub("", matchers).strip(" ,"):
            found.append(f"matchers that are none: {matchers}")
        for label, _, wanted in pairs:
            if label not in known:
                found.append(f"{name} has no label {label}")
            possible = VALUES.get((name, label))
            if possible is not None and wanted != ".*":
                never = [
                    value
                    for value in wanted.split("|")
                    if not any(re.fullmatch(value, item) for item in possible)
                ]
                found += [f"{name}: {label} is never {value}" for value in never]
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]', "", expr)
    grouped = {label.strip() for inner in GROUPING.findall(bare) for label in inner.split(",")} - {""}
    words = re.findall(
        r"(?<![\w:.])[a-zA-Z_:][\w:]*", GROUPING.sub(lambda match: match[0].split("(")[0], bare)
    )
    names = [word for word in words if word not in FUNCTIONS]
    found += [f"no metric {name}" for name in names if labels_of(name) is None]
    all_labels = set().union(*(labels_of(name) or set() for name in names))
    found += [f"no metric here has the label {label}" for label in sorted(grouped - all_labels)]
    return found


QUERIES = {
    f"{dashboard.name}: {panel.title}: {query.expr}": query
    for dashboard in DASHBOARDS
    for panel in dashboard.panels
    for query in panel.queries
}


@pytest.mark.parametrize("where", QUERIES)
def test_dashboards_ask_for_what_there_is(where: str) -> None:
    query = QUERIES[where]
    assert mistakes(query.expr) == []
    for label in re.findall(r"\{\{(\w+)\}\}", query.legend):
        grouped = {name.strip() for found in GROUPING.findall(query.expr) for name in found.split(",")}
        names = re.findall(r"parallax:[\w:]+", query.expr)
        assert label in grouped.union(*(labels_of(name) or set() for name in names), OF_THE_SCRAPE)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_rules_ask_for_what_there_is(rule: dict[str, Any]) -> None:
    assert mistakes(rule["expr"]) == []


@pytest.mark.parametrize(
    ("expr", "mistake"),
    [
        ("sum(parallax_replicator_made_up)", "no metric parallax_replicator_made_up"),
        ("sum by (topics) (parallax_replicator_epoch)", "no metric here has the label topics"),
        ('parallax_replicator_epoch{topic="x"}', "parallax_replicator_epoch has no label topic"),
        (
            'parallax_replicator_route_partitions{status="stoped"}',
            "parallax_replicator_route_partitions: status is never stoped",
        ),
        ("parallax_replicator_index_lag_ms", "no metric parallax_replicator_index_lag_ms"),
        (
            "parallax_replicator_replication_latency_seconds > 1",
            "no metric parallax_replicator_replication_latency_seconds",
        ),
        ("avg_by(parallax_replicator_epoch)", "no metric avg_by"),
        ("parallax:made_up:max", "no metric parallax:made_up:max"),
    ],
)
def test_a_query_that_asks_for_what_there_is_not_is_found(expr: str, mistake: str) -> None:
    assert mistakes(expr) == [mistake]


def test_every_metric_is_shown_somewhere() -> None:
    shown = " ".join([*QUERIES, *(rule["expr"] for rule in RULES)])
    unseen = {name for name in METRICS if name not in shown}
    assert unseen == {
        "parallax_replicator_records_total",  # of one partition: to be asked for by hand
        "parallax_replicator_bytes_total",
        "parallax_replicator_partition_stopped",
    }


def test_the_dashboards_that_are_committed_are_those_that_the_code_writes() -> None:
    assert {path: path.read_text(encoding="utf-8") for path in FOLDER.glob("*")} == files()


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
def test_panels_lie_beside_each_other(dashboard: Dashboard) -> None:
    places = [panel["gridPos"] for panel in json.loads(json.dumps(to_json(dashboard)))["panels"]]
    taken = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_a_severity_and_a_runbook_with_what_to_do(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"docs/alerts.md#{name.lower()}"
    (section,) = re.findall(rf"^## {name}\n\n(.*?)(?=^## |\Z)", RUNBOOK, re.MULTILINE | re.DOTALL)
    assert section.startswith(f"*{rule['labels']['severity'].capitalize()}")
    assert len(section.split()) > 20


def test_the_runbook_has_no_alert_that_is_gone() -> None:
    assert re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE) == list(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_tried_at_its_bound(name: str) -> None:
    """`make test-rules` plays them; here they are counted."""
    ours = [test for test in TESTS if test["name"].startswith(f"{name} ")]
    seen = [
        {sample["labels"] for sample in check.get("exp_samples") or ()}
        for test in ours
        for check in test["promql_expr_test"]
    ]
    assert {f'{{alertname="{name}"}}'} in seen
    assert set() in seen
    assert any("quiet at its bound" in test["name"] for test in ours)
