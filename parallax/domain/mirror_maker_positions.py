"""What Kafka Connect keeps for MirrorMaker 2: how far each partition is copied, and which of its parts run.

Both lie in compacted topics at the cluster that it copies to, as JSON. A position is that of the last record which it knows to be
copied (Kafka's `MirrorSourceTask`), where everything here is a next offset.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from parallax.domain.ids import SourceOffset, TopicName, TopicPartition, next_offset
from parallax.errors import ConfigError

KeyedRecord = tuple[bytes | None, bytes | None]
"""Key and value."""

SOURCE_CONNECTOR = "MirrorSourceConnector"
"""What a dedicated MirrorMaker 2 calls the connector that copies."""
_AT_REST = "STOPPED"
"""The state in which a connector has no tasks. One that is PAUSED keeps them, with what they have not recorded yet."""


@dataclass(frozen=True, slots=True)
class MirrorMakerWorkers:
    """Where the workers keep what they know of one flow.

    Attributes:
        group: by which the workers share their work.
        connector: the name of the connector that copies.
        alias: what it calls the source.
        offsets_topic: of its positions.
        status_topic: of what runs.
    """

    group: str
    connector: str
    alias: str
    offsets_topic: TopicName
    status_topic: TopicName


@dataclass(frozen=True, slots=True)
class RecordedPositions:
    """What is recorded of one connector.

    Attributes:
        positions: by partition, as it is called at the source: everything below was copied.
        others: whose positions lie there besides, as ``connector (alias)``.
    """

    positions: Mapping[TopicPartition, SourceOffset]
    others: frozenset[str] = field(default_factory=frozenset)


def recorded_positions(records: Iterable[KeyedRecord], connector: str, alias: str) -> RecordedPositions:
    """The positions of a connector, by the records of the topic that Connect keeps them in.

    Args:
        records: in the order of the log; of a key the last one counts.
        connector: its name.
        alias: what it calls the source.

    Raises:
        ConfigError: one of its own records can't be read.
    """
    positions: dict[TopicPartition, SourceOffset] = {}
    others: set[str] = set()
    for key, value in records:
        whose = _read(key)
        match whose:
            case [str(name), {"cluster": str(cluster), "topic": str(topic), "partition": int(partition)}]:
                pass
            case _:
                continue  # of a connector that is none of MirrorMaker 2's
        if (name, cluster) != (connector, alias):
            others.add(f"{name} ({cluster})")
            continue
        item = TopicPartition(TopicName(topic), partition)
        positions.pop(item, None)
        if value is not None:
            positions[item] = SourceOffset(next_offset(_offset(item, value)))
    return RecordedPositions(positions, frozenset(others))


def parts_at_work(records: Iterable[KeyedRecord], connector: str) -> list[str]:
    """The parts of a connector that may still copy, each with its state, by the records of Connect's topic of statuses.

    One that was deleted has no state any more, and one that is STOPPED no tasks.
    """
    found: dict[str, str] = {}
    for key, value in records:
        part = _part(key, connector)
        if part is not None:
            told = _read(value)
            found[part] = str(told.get("state", "")) if isinstance(told, dict) else ""
    return [f"{part} is {state}" for part, state in sorted(found.items()) if state not in {"", _AT_REST}]


def _part(key: bytes | None, connector: str) -> str | None:
    text = (key or b"").decode(errors="replace")
    if text == f"status-connector-{connector}":
        return "the connector"
    number = text.removeprefix(f"status-task-{connector}-")
    return f"task {number}" if number != text and number.isdecimal() else None


def _offset(item: TopicPartition, value: bytes) -> int:
    told = _read(value)
    offset = told.get("offset") if isinstance(told, dict) else None
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise ConfigError(f"the position that MirrorMaker 2 has recorded of {item} can't be read: {value!r}")
    return offset


def _read(text: bytes | None) -> Any:
    try:
        return json.loads(text or b"null")
    except ValueError:
        return None
