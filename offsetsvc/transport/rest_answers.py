"""Answers of REST with their JSON schemas."""

from __future__ import annotations

from typing import Any

from fastapi import Response
from fastapi.responses import JSONResponse
from google.protobuf.message import Message

from offsetsvc.transport.rest_problems import problems
from parallax.client.json import schema_of, to_json


def json_answer(message: Message) -> Response:
    """A message as an answer."""
    return JSONResponse(to_json(message))


def described(answer: type[Message], *errors: int) -> dict[str, Any]:
    """What a route says of an answer that is a message, and of the statuses of its errors besides 500."""
    return with_schema(schema_of(answer.DESCRIPTOR), *errors)


def with_schema(schema: dict[str, Any], *errors: int) -> dict[str, Any]:
    """What a route says of an answer with that schema, and of the statuses of its errors besides 500."""
    content = {"application/json": {"schema": schema}}
    return {
        "response_class": JSONResponse,
        "responses": {200: {"description": "The answer.", "content": content}, **problems(*errors, 500)},
    }
