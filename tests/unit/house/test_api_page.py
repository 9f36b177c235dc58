"""docs/api.md names every call, every error and every route, as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from offsetsvc.metrics import ServiceMetrics
from offsetsvc.transport.rest import create_app
from parallax.client.status import CLASSES, CODE_KEY, STATUSES
from parallax.v1 import audit_pb2, moves_pb2, offsets_pb2, overview_pb2, primaries_pb2
from tests.worlds.offset_world import World

PAGE = (Path(__file__).parents[3] / "docs/api.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", CLASSES)
def test_every_error_is_told_with_its_statuses(code: str) -> None:
    status = STATUSES[CLASSES[code]]

    assert f"| `{code}` | `{status.grpc.name}` | {status.http} |" in PAGE


def test_no_other_error_is_told() -> None:
    assert set(re.findall(r"^\| `(\w+)` \| `\w+` \| \d+ \|", PAGE, re.MULTILINE)) == set(CLASSES)
    assert f"`{CODE_KEY}`" in PAGE


def test_every_url_is_told() -> None:
    with World().service() as service:
        app = create_app(service, ServiceMetrics())
    urls = {
        f"{method.upper()} {path}"
        for path, operations in app.openapi()["paths"].items()
        for method in operations
    }
    bare = {path for path in (app.docs_url, app.redoc_url, app.openapi_url) if path is not None}
    hidden = {
        route.path for route in app.routes if isinstance(route, APIRoute) and not route.include_in_schema
    }

    assert not {url for url in urls if f"`{url}`" not in PAGE}
    assert not {path for path in bare if f"`{path}`" not in PAGE}
    assert not {path for path in hidden | {"/metrics"} if f"`GET {path}`" not in PAGE}
    told = set(re.findall(r"`((?:GET|PUT|POST|DELETE) /[^`]*)`", PAGE))
    assert told - urls == {"GET /metrics"}


def test_every_call_is_told() -> None:
    files = (offsets_pb2, primaries_pb2, audit_pb2, overview_pb2, moves_pb2)
    for file in (module.DESCRIPTOR for module in files):
        for service in file.services_by_name.values():
            assert f"| `{service.full_name}` |" in PAGE
            for method in service.methods:
                assert f"| `{method.name}` |" in PAGE
