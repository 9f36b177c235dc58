"""JSON of the answers that REST alone gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import Response
from fastapi.responses import JSONResponse
from google.protobuf.message import Message

from offsetsvc.answers import Basis
from offsetsvc.lookups import WatermarkView
from offsetsvc.positions import ClusterPositions, PositionView
from offsetsvc.transport.rest_problems import problems
from parallax.client.json import schema_of, to_json
from parallax.domain.ids import GroupName

_NUMBER = {"type": "integer"}
_TEXT = {"type": "string"}
_NUMBER_OR_NULL = {"anyOf": [_NUMBER, {"type": "null"}]}
_TEXT_OR_NULL = {"anyOf": [_TEXT, {"type": "null"}]}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


WATERMARKS_SCHEMA = _object(
    {
        "watermarks": {
            "type": "array",
            "items": _object(
                {
                    "lineage": _TEXT,
                    "source_next_offset": _NUMBER,
                    "target_end": _NUMBER,
                    "last_record_end": _NUMBER,
                    "source_leader_epoch": _NUMBER,
                    "committed_at_ms": _NUMBER,
                    "age_ms": _NUMBER,
                    "closed": {"type": "boolean"},
                }
            ),
        }
    }
)


READINESS_SCHEMA = _object(
    {
        "status": {"enum": ["ready", "not ready"]},
        "dependencies": {"type": "object", "additionalProperties": _TEXT},
    }
)


POSITIONS_SCHEMA = _object(
    {
        "group": _TEXT,
        "clusters": {
            "type": "array",
            "items": _object(
                {
                    "cluster": _TEXT,
                    "failure": _TEXT_OR_NULL,
                    "positions": {
                        "type": "array",
                        "items": _object(
                            {
                                "topic": _TEXT,
                                "partition": _NUMBER,
                                "next_offset": _NUMBER_OR_NULL,
                                "basis": {
                                    "anyOf": [{"enum": [item.value for item in Basis]}, {"type": "null"}]
                                },
                                "observed_at_ms": _NUMBER_OR_NULL,
                                "low_watermark": _NUMBER_OR_NULL,
                                "high_watermark": _NUMBER_OR_NULL,
                                "lag_offsets": _NUMBER_OR_NULL,
                                "published_offset": _NUMBER_OR_NULL,
                                "published_outcome": _TEXT_OR_NULL,
                                "published_at_ms": _NUMBER_OR_NULL,
                            }
                        ),
                    },
                }
            ),
        },
    }
)


def watermark_json(view: WatermarkView) -> dict[str, Any]:
    """How far one lineage has come."""
    return {
        "lineage": str(view.lineage),
        "source_next_offset": view.row.source_end,
        "target_end": view.row.target_end,
        "last_record_end": view.row.last_record_end,
        "source_leader_epoch": view.row.source_leader_epoch,
        "committed_at_ms": view.committed_at_ms,
        "age_ms": view.age_ms,
        "closed": view.closed,
    }


def positions_json(group: GroupName, clusters: Sequence[ClusterPositions]) -> dict[str, Any]:
    """A group's positions on every cluster."""
    return {
        "group": group,
        "clusters": [
            {
                "cluster": item.cluster,
                "failure": item.failure,
                "positions": [_position(view) for view in item.positions],
            }
            for item in clusters
        ],
    }


def _position(view: PositionView) -> dict[str, Any]:
    log = view.log
    known = log is not None and view.next_offset is not None
    return {
        "topic": view.topic_partition.topic,
        "partition": view.topic_partition.partition,
        "next_offset": view.next_offset,
        "basis": None if view.basis is None else view.basis.value,
        "observed_at_ms": view.observed_at_ms,
        "low_watermark": None if log is None else log.low_watermark,
        "high_watermark": None if log is None else log.high_watermark,
        "lag_offsets": max(0, log.high_watermark - (view.next_offset or 0)) if log and known else None,
        "published_offset": view.published_offset,
        "published_outcome": None if view.published_outcome is None else view.published_outcome.name,
        "published_at_ms": view.published_at_ms,
    }


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
