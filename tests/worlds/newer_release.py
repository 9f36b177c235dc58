"""What a newer release leaves in the stores, and stores that this one reads it from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.memory.cql import MemoryKeyspace, WrittenStores


def worlds_on(monkeypatch: pytest.MonkeyPatch) -> MemoryKeyspace:
    """Worlds made from here on keep groups, primaries and operations as the real adapters write them, in this keyspace."""
    keyspace = MemoryKeyspace()
    stores = WrittenStores(keyspace)
    monkeypatch.setattr("tests.worlds.offset_world.MemoryGroupStore", lambda: stores.groups)
    monkeypatch.setattr("tests.worlds.offset_world.MemoryPrimaryStore", lambda: stores.primaries)
    monkeypatch.setattr("tests.worlds.failover_bench.MemoryOperationJournal", lambda: stores.operations)
    return keyspace


def newer(text: str, **values: Any) -> str:
    """The text as a newer release would have written it."""
    return json.dumps({**json.loads(text), **values})


def of_group(keyspace: MemoryKeyspace, table: str, group: str) -> list[tuple[Any, ...]]:
    """The keys of a group's rows in a table, by key."""
    return sorted(key for key in keyspace.bodies(table) if key[0] == group)


def rewrite_all(
    keyspace: MemoryKeyspace, table: str, group: str, **values: Any
) -> dict[tuple[Any, ...], str]:
    """All rows of a group in a table, now as a newer release would have written them; what then stands there."""
    for key in of_group(keyspace, table, group):
        keyspace.rewrite(table, key, newer(keyspace.bodies(table)[key], **values))
    return {key: body for key, body in keyspace.bodies(table).items() if key[0] == group}
