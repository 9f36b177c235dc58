"""The list of rights, and the page that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from parallax.domain.acls import (
    NEEDS,
    Acl,
    AclNames,
    ClusterKind,
    Operation,
    Pattern,
    Process,
    Resource,
    acls_of,
    table,
)

PAGE = Path(__file__).parents[4] / "docs" / "security.md"


@pytest.mark.parametrize("kind", ["regional", "aggregate"])
def test_the_page_shows_the_list(kind: ClusterKind) -> None:
    """Where it fails: `python -c 'from parallax.domain.acls import *; print(table("regional"))'`, and "aggregate"."""
    assert f"\n{table(kind)}\n" in PAGE.read_text(encoding="utf-8")


def test_no_right_stands_there_twice() -> None:
    keys = [(need.process, need.cluster, need.resource, need.names, need.operation) for need in NEEDS]
    assert len(set(keys)) == len(keys)


def test_describe_is_not_named_where_another_right_implies_it() -> None:
    implying = {Operation.READ, Operation.WRITE, Operation.ALTER}
    for need in NEEDS:
        if need.operation is Operation.DESCRIBE and not need.without:
            beside = {
                other.operation
                for other in NEEDS
                if (other.process, other.cluster, other.resource, other.names)
                == (need.process, need.cluster, need.resource, need.names)
                and not other.without
            }
            assert not beside & implying, need


def test_who_runs_two_processes_has_the_rights_of_both_once() -> None:
    names = {name: [Pattern("x")] for name in AclNames}
    both = acls_of({Process.OPERATOR, Process.DRILL}, "aggregate", names)
    assert len(both) == len(set(both))
    assert set(both) == {
        *acls_of({Process.OPERATOR}, "aggregate", names),
        *acls_of({Process.DRILL}, "aggregate", names),
    }
    assert Acl(Resource.GROUP, Pattern("x"), Operation.READ) in both
