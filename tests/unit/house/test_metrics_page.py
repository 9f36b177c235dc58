"""docs/metrics.md names every metric that the code exports, with its type and labels, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import yaml
from prometheus_client.core import Metric

from offsetsvc.metrics import ServiceMetrics
from parallax.errors import StoreUnavailableError
from replicator.leases.board import ProgressBoard
from replicator.leases.claims import Claims
from replicator.leases.status import LEASE_LABELS, LEASE_METRICS, PARTITION_LABELS, PREFIX, ReplicationStatus
from syncjob.decide import Reason
from syncjob.status import SyncBoard

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(parallax_\w+)` \| (\w+) \| ([\w, ]*) ?\|", re.MULTILINE)
NAME = re.compile(r"parallax_(?:replicator|sync|offsetsvc)_\w*[a-z]\b")


def away(*_: Any) -> NoReturn:
    raise StoreUnavailableError("nobody answers")


def families() -> Iterator[Metric]:
    yield from ReplicationStatus(ProgressBoard([]), Claims([])).collect()
    yield from SyncBoard(1_000).collect()
    metrics = ServiceMetrics()
    service: Any = SimpleNamespace(
        mapping=SimpleNamespace(routes=away),
        primaries=SimpleNamespace(all=away),
        moves=SimpleNamespace(unaudited=dict),
    )
    metrics.watch(service)
    yield from metrics.registry.collect()


def exported() -> dict[str, str]:
    """Name as scraped, and type."""
    return {f"{item.name}_total" if item.type == "counter" else item.name: item.type for item in families()}


def labels() -> dict[str, tuple[str, ...]]:
    """The labels of those whose families tell them."""
    told = {item.name: tuple(getattr(item, "_labelnames", ())) for item in families()}
    return {name: told[name.removesuffix("_total")] for name in exported()}


def rows() -> dict[str, tuple[str, tuple[str, ...]]]:
    return {
        name: (kind, tuple(label for label in named.strip().split(", ") if label))
        for name, kind, named in ROW.findall(PAGE)
    }


def test_every_metric_has_its_row_and_every_row_its_metric() -> None:
    assert {name: kind for name, (kind, _) in rows().items()} == exported()


def test_the_rows_name_the_labels() -> None:
    found = {name: told for name, (_, told) in rows().items()}
    of_requests = {
        "parallax_offsetsvc_requests_total": ("transport", "method", "code"),
        "parallax_offsetsvc_request_duration_seconds": ("transport", "method"),
        "parallax_offsetsvc_outcomes_total": ("outcome",),
    }
    metrics = ServiceMetrics()
    for metric in (metrics._requests, metrics._seconds, metrics._outcomes):
        scraped = metric._name + ("_total" if metric._type == "counter" else "")
        assert of_requests[scraped] == metric._labelnames
    assert found == labels() | of_requests
    assert {found[PREFIX + metric.name] for metric in LEASE_METRICS} == {LEASE_LABELS}
    assert found[f"{PREFIX}records_total"] == PARTITION_LABELS


def test_the_text_and_the_rules_name_only_what_there_is() -> None:
    assert set(NAME.findall(PAGE)) == set(exported())


def test_the_rules_are_yaml_and_name_reasons_that_there_are() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (group,) = yaml.safe_load(block)["groups"]
    assert all(rule["alert"].startswith("Parallax") and rule["expr"] for rule in group["rules"])
    (reasons,) = re.findall(r'reason=~"([^"]+)"', block)
    assert set(reasons.split("|")) <= {reason.value for reason in Reason}


@pytest.mark.parametrize("page", ["README.md", "docs/failover.md"])
def test_other_pages_lead_to_it(page: str) -> None:
    text = (Path(__file__).parents[3] / page).read_text(encoding="utf-8")
    assert "metrics.md)" in text
