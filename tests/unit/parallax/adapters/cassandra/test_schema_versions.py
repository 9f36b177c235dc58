"""A program over a keyspace of an older or a newer release: it goes on, or says in so many words why it can't."""

from __future__ import annotations

from typing import Any

import pytest
from cassandra import InvalidRequest
from structlog.testing import capture_logs

from parallax.adapters.cassandra.migrations import LATEST_VERSION, MIGRATIONS
from parallax.adapters.cassandra.schema import SchemaStatus, require_schema
from parallax.errors import ConfigError


class Answer(list[tuple[Any, ...]]):
    def __init__(self, names: list[str], rows: list[tuple[Any, ...]]) -> None:
        super().__init__(rows)
        self.column_names = names


class Keyspace:
    """A session over a keyspace with these steps; None: there is no such table."""

    def __init__(self, names: list[str], rows: list[tuple[Any, ...]] | None) -> None:
        self.answer = None if rows is None else Answer(names, rows)

    def execute(self, _cql: str) -> Answer:
        if self.answer is None:
            raise InvalidRequest("unconfigured table schema_version")
        return self.answer


def of(*steps: tuple[int, int | None]) -> Any:
    return Keyspace(
        ["part", "version", "needs", "of_release_2"], [("parallax", *step, "?") for step in steps]
    )


PRESENT = [(step.version, step.needs) for step in MIGRATIONS]
NEXT = LATEST_VERSION + 1


def test_the_present_schema_is_used_in_silence() -> None:
    with capture_logs() as logs:
        require_schema(of(*PRESENT), "parallax")
    assert logs == []


def test_a_newer_schema_that_only_adds_is_used() -> None:
    with capture_logs() as logs:
        require_schema(of(*PRESENT, (NEXT, 1), (NEXT + 1, LATEST_VERSION)), "parallax")
    assert [(entry["event"], entry["version"], entry["known"]) for entry in logs] == [
        ("schema_newer", NEXT + 1, LATEST_VERSION)
    ]


def test_a_newer_schema_that_older_programs_must_not_use_is_refused_by_name() -> None:
    with pytest.raises(ConfigError) as refused:
        require_schema(of(*PRESENT, (NEXT, NEXT), (NEXT + 1, 1)), "parallax")
    assert str(refused.value) == (
        f"store: keyspace 'parallax' has schema version {NEXT + 1}, which programs that know version {NEXT} can use, "
        f"and this one knows {LATEST_VERSION}: run a newer release; a schema is not taken back"
    )


@pytest.mark.parametrize(
    ("session", "said"),
    [
        (Keyspace([], None), "has no Parallax schema"),
        (of(), "has no Parallax schema"),
        (of(*PRESENT[:-1]), f"has schema version {LATEST_VERSION - 1}, this program needs {LATEST_VERSION}"),
    ],
)
def test_an_older_schema_says_what_to_run(session: Any, said: str) -> None:
    with pytest.raises(ConfigError, match="parallax schema apply") as refused:
        require_schema(session, "parallax")
    assert said in str(refused.value)


def test_a_keyspace_from_before_steps_named_what_they_need() -> None:
    rows: list[tuple[Any, ...]] = [("parallax", step.version) for step in MIGRATIONS]
    require_schema(Keyspace(["part", "version"], rows), "parallax")  # type: ignore[arg-type]


def test_no_step_needs_more_than_itself() -> None:
    assert all(1 <= step.needs <= step.version for step in MIGRATIONS)
    assert SchemaStatus("parallax", LATEST_VERSION, 1).problem == ""
