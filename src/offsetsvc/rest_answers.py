"""Answers of REST with their JSON schemas."""

from __future__ import annotations

from typing import Any

from fastapi import Response
from fastapi.responses import JSONResponse
from google.protobuf.message import Message

from offsetsvc.json_form import schema_of, to_json


def json_answer(message: Message) -> Response:
    """A message as an answer."""
    return JSONResponse(to_json(message))


def described(answer: type[Message]) -> dict[str, Any]:
    """What a route says of an answer that is a message."""
    return with_schema(schema_of(answer.DESCRIPTOR))


def with_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """What a route says of an answer with that schema."""
    content = {"application/json": {"schema": schema}}
    return {
        "response_class": JSONResponse,
        "responses": {200: {"description": "The answer.", "content": content}},
    }
