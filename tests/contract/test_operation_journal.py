from __future__ import annotations

from dataclasses import replace

import pytest

from parallax.domain.ids import GroupName
from parallax.ports.groups import OperationJournal, OperationNote, OperationPlace
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


def test_a_groups_operations_come_page_by_page(journal: OperationJournal, group: GroupName) -> None:
    notes = [note(group, at_ms, name, at_ms) for at_ms in (3, 5, 9) for name in ("x", "y")]
    for item in notes:
        journal.save_operation(item)
    ordered = sorted(notes, key=lambda item: (-item.started_at_ms, item.operation_id))
    found: list[OperationNote] = []
    place = OperationPlace(10)
    while page := journal.operation_page(group, place, 2, summarised=False):
        found += page
        place = OperationPlace(page[-1].started_at_ms, page[-1].operation_id)
    assert found == ordered


def test_a_page_with_summaries_has_the_bodies_of_what_has_none(
    journal: OperationJournal, group: GroupName
) -> None:
    older, newer = note(group, 5, "older", 1), replace(note(group, 9, "newer", 2), summary="short")
    for item in (older, newer):
        journal.save_operation(item)
    found = journal.operation_page(group, OperationPlace(10), 5, summarised=True)
    assert [(item.operation_id, item.body, item.summary) for item in found] == [
        ("newer", "", "short"),
        ("older", older.body, ""),
    ]


def test_operations_of_all_groups_come_by_time(journal: OperationJournal, group: GroupName) -> None:
    week_ms, other = 7 * 86_400_000, GroupName(unique_name("other"))
    first_ms = (100_000 + int(unique_name("x")[-6:], 16)) * week_ms  # weeks that no other test knows
    times = [first_ms, first_ms + 1, first_ms + week_ms, first_ms + 3 * week_ms]
    for number, at_ms in enumerate(times):
        of = other if number % 2 else group
        journal.save_operation(replace(note(of, at_ms, f"{group}-{number}", at_ms), summary=f"s{number}"))
    journal.save_operation(replace(note(group, times[0], f"{group}-0", times[0] + 1), summary="newest"))
    journal.save_operation(note(group, times[0], f"{group}-without", 1))
    found: list[str] = []
    place = OperationPlace(times[-1] + week_ms)
    while (page := journal.summaries(place, 3)) and page[0].started_at_ms >= first_ms:
        found += [item.summary for item in page if item.group in {group, other}]
        assert all(item.body == "" for item in page)
        place = OperationPlace(page[-1].started_at_ms, page[-1].operation_id)
    assert found == ["s3", "s2", "s1", "newest"]
