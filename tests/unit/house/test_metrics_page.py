"""docs/metrics.md names every metric that the code exports, with its type and labels, and no other."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.worlds.scrapes import exported

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(parallax_\w+)` \| (\w+) \| ([\w, ]*) ?\|", re.MULTILINE)
OLD_ROW = re.compile(r"^\| `(parallax_\w+)` \| `(parallax_\w+)`", re.MULTILINE)
NAME = re.compile(r"parallax_(?:replicator|sync|offsetsvc|console)_\w*[a-z]\b")
NEW, OLD = exported(old_names=False), exported(old_names=True)


def test_every_metric_has_its_row_with_its_type_and_its_labels_and_every_row_its_metric() -> None:
    rows = {
        name: (kind, tuple(label for label in named.strip().split(", ") if label))
        for name, kind, named in ROW.findall(PAGE)
    }
    assert rows == {name: (metric.kind, metric.labels) for name, metric in NEW.items()}


def test_every_old_name_says_what_it_is_now() -> None:
    told = dict(OLD_ROW.findall(PAGE))
    assert set(told) == set(OLD) - set(NEW)
    assert set(told.values()) <= set(NEW)
    for name, metric in OLD.items():
        if name in NEW:
            assert [label for label in metric.labels if label != "route"] == list(NEW[name].labels), name


def test_the_text_names_only_what_there_is() -> None:
    assert set(NAME.findall(PAGE)) <= set(OLD)


UNITS = ("_seconds", "_bytes", "_records", "_offsets")
ABBREVIATED = re.compile(r"_(ms|s|us|ns|milliseconds|min|minutes|h|hours|kb|mb|kib|mib|percent)(_|$)")


@pytest.mark.parametrize("name", NEW)
def test_names_are_as_prometheus_has_them(name: str) -> None:
    """The rules of ``promtool check metrics``, which `make test-rules` asks itself."""
    kind = NEW[name].kind
    assert name.endswith("_total") == (kind == "counter")
    assert not ABBREVIATED.search(name)
    assert not name.endswith(("_count", "_sum", "_bucket"))
    assert kind != "histogram" or name.endswith(UNITS)
    assert NEW[name].description
    assert not {"le", "quantile"} & set(NEW[name].labels)


def test_one_word_for_one_label() -> None:
    meanings: defaultdict[str, set[str]] = defaultdict(set)
    for metric in NEW.values():
        for label in metric.labels:
            meanings[label].add(metric.name)
    assert "route" not in meanings
    assert {"source", "target"} <= set(meanings)


@pytest.mark.parametrize("page", ["README.md", "docs/failover.md"])
def test_other_pages_lead_to_it(page: str) -> None:
    text = (Path(__file__).parents[3] / page).read_text(encoding="utf-8")
    assert "metrics.md)" in text
