from __future__ import annotations

from dataclasses import replace

import pytest

from parallax.domain.audit import AuditEntry, AuditStage
from parallax.domain.ids import GroupName
from parallax.domain.rights import Principal, ProvenBy
from parallax.errors import InvalidNameError
from parallax.ports.audit import AuditLog, AuditQuery
from tests.support import unique_name

DAY_MS = 86_400_000
NOON_MS = 19_675 * DAY_MS + DAY_MS // 2
ENTRY = AuditEntry(
    "act",
    NOON_MS,
    AuditStage.INTENDED,
    Principal("spiffe://bank/ünïcode", ProvenBy.CERTIFICATE),
    "SetPrimary",
    GroupName("replaced"),
    {"primary": "a"},
    {"primary": "b", "cluster": "aggregate-b"},
    'for "tests"',
    "a",
    "offsetsvc@host:1",
    "",
)


@pytest.fixture
def group() -> GroupName:
    return GroupName(unique_name("group"))


def query(group: GroupName | None = None, **values: object) -> AuditQuery:
    made = AuditQuery(NOON_MS - 3 * DAY_MS, NOON_MS + 3 * DAY_MS, 1_000, group)
    return replace(made, **values)  # type: ignore[arg-type] # by name


def read(audit: AuditLog, asked: AuditQuery) -> list[AuditEntry | None]:
    return [row.entry for row in audit.page(asked).rows]


def test_entries_are_read_as_they_were_appended_the_newest_first(audit: AuditLog, group: GroupName) -> None:
    """Also those of one millisecond, and those of several days."""
    made = [
        replace(ENTRY, group=group, at_ms=at_ms, act_id=str(number))
        for number, at_ms in enumerate([NOON_MS - DAY_MS, NOON_MS, NOON_MS, NOON_MS, NOON_MS + DAY_MS])
    ]
    audit.append(made[:2])
    audit.append(made[2:])

    assert read(audit, query(group)) == made[::-1]
    assert [row.at_ms for row in audit.page(query(group)).rows] == [item.at_ms for item in made[::-1]]
    assert {row.group for row in audit.page(query(group)).rows} == {group}
    assert read(audit, query(GroupName(unique_name("other")))) == []


def test_a_time_is_from_a_moment_up_to_another(audit: AuditLog, group: GroupName) -> None:
    made = [replace(ENTRY, group=group, at_ms=NOON_MS + number) for number in range(4)]
    audit.append(made)

    found = read(audit, query(group, since_ms=NOON_MS + 1, until_ms=NOON_MS + 3))

    assert found == [made[2], made[1]]


def test_pages_follow_each_other_without_a_gap(audit: AuditLog, group: GroupName) -> None:
    """More entries than one read of the store brings, on two days."""
    made = [
        replace(ENTRY, group=group, at_ms=NOON_MS + (number // 250) * DAY_MS + number, act_id=str(number))
        for number in range(500)
    ]
    audit.append(made)
    found: list[AuditEntry | None] = []
    before = ""
    while True:
        page = audit.page(query(group, limit=70, before=before))
        assert len(page.rows) <= 70
        found += [row.entry for row in page.rows]
        before = page.next_before
        if not before:
            break

    assert found == made[::-1]


@pytest.mark.parametrize("reads", [1, 2])
def test_a_page_that_ends_when_it_has_cost_enough_says_where_the_next_one_goes_on(
    audit: AuditLog, group: GroupName, reads: int
) -> None:
    """Days without an entry, one with more than a read brings, and one with none that is wanted."""
    days = [0] * 3 + [-1] * 450 + [-3] * 5 + [-4] * 2
    made = [
        replace(
            ENTRY,
            group=group,
            at_ms=NOON_MS + day * DAY_MS - number,
            act_id=str(number),
            call="drill" if day == -3 else "SetPrimary",
        )
        for number, day in enumerate(days)
    ]
    audit.append(made[::-1])
    found: list[AuditEntry | None] = []
    before, pages = "", 0
    while pages == 0 or before:
        left = [False] * (reads - 1)
        page = audit.page(
            query(
                group,
                since_ms=NOON_MS - 6 * DAY_MS,
                call="SetPrimary",
                before=before,
                enough=lambda left=left: left.pop() if left else True,
            )
        )
        found += [row.entry for row in page.rows]
        before, pages = page.next_before, pages + 1
        assert pages < 30

    assert pages > 1
    assert found == [entry for entry in made if entry.call == "SetPrimary"]


def test_what_may_not_be_shown_is_not_among_them(audit: AuditLog, group: GroupName) -> None:
    principal = Principal(unique_name("someone"), ProvenBy.TOKEN)
    other = GroupName(unique_name("group"))
    made = [
        replace(ENTRY, group=of, at_ms=NOON_MS + number, principal=principal)
        for number, of in enumerate([group, other, group, other])
    ]
    audit.append(made)

    asked = query(principal=principal.name, shown=lambda name: name == group, limit=2)
    assert read(audit, asked) == [made[2], made[0]]
    assert read(audit, replace(asked, group=other)) == []


def test_entries_of_many_groups_are_one_log(audit: AuditLog) -> None:
    principal = Principal(unique_name("someone"), ProvenBy.TOKEN)
    made = [
        replace(ENTRY, group=GroupName(unique_name("group")), at_ms=NOON_MS + number, principal=principal)
        for number in range(40)
    ]
    audit.append(made)
    other = replace(ENTRY, group=made[0].group, principal=replace(principal, name="somebody else"))
    audit.append([other])

    assert read(audit, query(principal=principal.name)) == made[::-1]
    assert read(audit, query(principal=principal.name, limit=7)) == made[:-8:-1]
    assert sorted(read(audit, query(made[0].group)), key=str) == sorted([made[0], other], key=str)


def test_a_page_begins_at_a_row(audit: AuditLog) -> None:
    with pytest.raises(InvalidNameError, match="no row of the audit"):
        audit.page(query(before="yesterday"))
