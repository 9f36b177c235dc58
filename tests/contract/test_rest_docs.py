"""REST's own page: nothing from elsewhere, nothing that runs, every call on it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator

import httpx
import pytest

from offsetsvc.transport.rest_docs import page
from tests.worlds.offset_servers import serving
from tests.worlds.offset_world import World


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with serving(World()) as served, served.http() as client:
        yield client


def test_the_page_names_every_call_and_refers_to_nothing_outside(http: httpx.Client) -> None:
    answer = http.get("/docs")
    description = http.get("/openapi.json").json()

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    for path in description["paths"]:
        assert path.replace(">", "&gt;") in answer.text
    references = re.findall(r"""(?:src|href|action|data|url)\s*[=(]\s*["']?([^"')> ]*)""", answer.text)
    assert references == ["openapi.json"]
    assert http.get(f"/{references[0]}").status_code == 200
    assert "//" not in answer.text.replace("&#x27;", "")
    assert "<script" not in answer.text


def test_its_policy_lets_a_browser_load_and_run_nothing_but_its_own_style(http: httpx.Client) -> None:
    answer = http.get("/docs")
    (style,) = re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()

    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        "style-src": f"'sha256-{digest}'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/redoc", "/docs/oauth2-redirect"])
def test_there_is_no_page_that_loads_scripts_from_elsewhere(http: httpx.Client, path: str) -> None:
    assert http.get(path).status_code == 404


def test_text_of_the_description_is_text_on_the_page() -> None:
    evil = "<script>alert(1)</script>"
    operation = {
        "tags": [evil],
        "description": evil,
        "parameters": [{"name": evil, "in": "query", "description": evil}],
        "responses": {"200": {"description": evil}},
    }
    made = page({"info": {"title": evil, "description": evil}, "paths": {f"/{evil}": {"get": operation}}})

    assert "<script" not in made
