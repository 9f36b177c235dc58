"""The page that describes REST: made here from the OpenAPI description, without scripts and without anything from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import HTMLResponse

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #222 }
code, pre { font-family: ui-monospace, monospace }
h2 { border-bottom: 1px solid #ccc; margin-top: 2.5rem }
details { border: 1px solid #ddd; border-radius: 4px; margin: .5rem 0; padding: .5rem .8rem }
summary { cursor: pointer }
summary b { display: inline-block; width: 3.5rem; color: #06c }
td, th { padding: .15rem 1rem .15rem 0; text-align: left; vertical-align: top }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""A browser runs and loads nothing for this page but the one style that it brings along."""

_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


def docs_route(app: FastAPI) -> APIRouter:
    """``/docs`` over the application's own description."""
    router = APIRouter()

    @router.get("/docs", include_in_schema=False)
    def docs() -> Response:
        return HTMLResponse(page(app.openapi()), headers=_HEADERS)

    return router


def page(description: Mapping[str, Any]) -> str:
    """The page of an OpenAPI description."""
    info = description["info"]
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in info["description"].strip().split("\n\n"))
    by_tag: dict[str, list[str]] = {}
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append(
                "".join(_operation(method, path, operation, description))
            )
    calls = "".join(f"<h2>{escape(tag)}</h2>{''.join(items)}" for tag, items in by_tag.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(info["title"])}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(info['title'])}</h1>{paragraphs}"
        f'<p>For machines: <a href="openapi.json">openapi.json</a>.</p>{calls}</body></html>'
    )


def _operation(
    method: str, path: str, operation: Mapping[str, Any], description: Mapping[str, Any]
) -> Iterator[str]:
    yield f"<details><summary><b>{escape(method.upper())}</b> <code>{escape(path)}</code></summary>"
    yield f"<p>{escape(operation.get('description', ''))}</p>"
    rows = [
        (
            item["name"],
            f"{item['in']}{', required' if item.get('required') else ''}",
            item.get("description", ""),
        )
        for item in operation.get("parameters", ())
    ]
    rows += [(name, "body", _kind(schema)) for name, schema in _body(operation, description).items()]
    yield _table(("parameter", "where", "meaning"), rows)
    answers = [
        (status, ", ".join(answer.get("content", {})), answer["description"])
        for status, answer in operation["responses"].items()
    ]
    yield _table(("status", "type", "meaning"), answers)
    yield "</details>"


def _body(operation: Mapping[str, Any], description: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a request's body."""
    if "requestBody" not in operation:
        return {}
    name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    fields: Mapping[str, Any] = description["components"]["schemas"][name]["properties"]
    return fields


def _kind(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    return str(schema.get("const", schema.get("type", "")))


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    if not rows:
        return ""
    lines = [f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows]
    return f"<table>{''.join(lines)}</table>"
