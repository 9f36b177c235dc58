from __future__ import annotations

import pytest

from parallax.domain.ids import GroupName
from parallax.ports.groups import OperationJournal, OperationNote
from tests.support import unique_name


@pytest.fixture
def group() -> GroupName:
    return GroupName(unique_name("group"))


def note(group: GroupName, started_at_ms: int, name: str, version: int) -> OperationNote:
    return OperationNote(group, started_at_ms, name, version, f'{{"of": "{name}", "version": {version}}}')


def test_the_newest_operation_comes_first(journal: OperationJournal, group: GroupName) -> None:
    for item in (note(group, 5, "x", 50), note(group, 9, "y", 90), note(group, 5, "w", 51)):
        journal.save_operation(item)
    assert list(journal.operations(group)) == [
        note(group, 9, "y", 90),
        note(group, 5, "w", 51),
        note(group, 5, "x", 50),
    ]
    assert journal.operations(GroupName(unique_name("other"))) == []


def test_the_newest_note_stays(journal: OperationJournal, group: GroupName) -> None:
    for version in (7, 9, 8):
        journal.save_operation(note(group, 5, "x", version))
    assert list(journal.operations(group)) == [note(group, 5, "x", 9)]
