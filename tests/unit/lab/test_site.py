"""The documentation site is whole: no link leads nowhere, no page is left out, and nothing comes from another host."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from lab.site import ROOT, description
from parallax.v1 import audit_pb2, moves_pb2, offsets_pb2, overview_pb2, primaries_pb2

_LOADED = re.compile(
    r'<(?:script|img|iframe)[^>]*src="([^"]+)"|<link[^>]*rel="(?:stylesheet|icon|preload)"[^>]*href="([^"]+)"'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    told: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("mkdocs")
    logger.addHandler(handler)
    try:
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder)))
    finally:
        logger.removeHandler(handler)
    assert told == []
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}
    assert "Consumers of" in (site / "index.html").read_text(encoding="utf-8")


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        loaded = [first or second for first, second in _LOADED.findall(path.read_text(encoding="utf-8"))]
        assert loaded
        for place in loaded:
            assert "//" not in place
            base = site if path.name == "404.html" else path.parent
            assert (base / place.lstrip("/").partition("?")[0]).exists(), (path, place)


@pytest.mark.parametrize("module", [offsets_pb2, primaries_pb2, audit_pb2, overview_pb2, moves_pb2])
def test_every_call_and_message_has_its_place(site: Path, module: object) -> None:
    file = module.DESCRIPTOR  # type: ignore[attr-defined]
    page = (site / "reference" / f"{Path(file.name).stem}.html").read_text(encoding="utf-8")
    names = [*file.message_types_by_name, *file.enum_types_by_name, *file.services_by_name]
    for name in names:
        assert f'id="{name.lower()}"' in page
    for service in file.services_by_name.values():
        for method in service.methods:
            assert f"<code>{method.name}</code>" in page


def test_every_url_has_its_place(site: Path) -> None:
    page = (site / "reference" / "rest.html").read_text(encoding="utf-8")
    for path, methods in description()["paths"].items():
        for method in methods:
            assert f"<code>{method.upper()} {path.replace('>', '&gt;')}</code>" in page
