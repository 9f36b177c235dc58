"""Java's properties files, as Java reads them."""

from __future__ import annotations

import pytest

from parallax.config.properties import LoginModule, Property, read_login_module, read_properties


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=b", [("a", "b")]),
        ("a = b = c", [("a", "b = c")]),
        ("  a:b\n\n# c=d\n!e=f", [("a", "b")]),
        ("a b c", [("a", "b c")]),
        ("a\t=\tb ", [("a", "b ")]),
        ("a", [("a", "")]),
        ("a=b\\\n   c\\\n  d\ne=f", [("a", "bcd"), ("e", "f")]),
        ("a=b\\\\\nc=d", [("a", "b\\"), ("c", "d")]),
        ("a\\ b\\=c=\\td\\u0041\\q", [("a b=c", "\tdAq")]),
        ("a=b\\\n#c", [("a", "b#c")]),
        ("a=1\r\nb=2\rc=3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("a=x\\", [("a", "x")]),
        ("topics=pay\\\\..*", [("topics", "pay\\..*")]),
    ],
)
def test_keys_and_values(text: str, pairs: list[tuple[str, str]]) -> None:
    assert [(item.key, item.value) for item in read_properties(text)] == pairs


def test_lines_are_those_where_a_key_begins() -> None:
    assert read_properties("# x\na=b\\\n c\n\nd=e\n") == [Property("a", "bc", 2), Property("d", "e", 5)]


@pytest.mark.parametrize(
    ("text", "module"),
    [
        (
            'x.y.Plain required username="u" password="p=\\"q;\\"";',
            LoginModule("Plain", {"username": "u", "password": 'p="q;"'}),
        ),
        ("Plain REQUIRED username='u'", LoginModule("Plain", {"username": "u"})),
        ("a.b.IAM required;", LoginModule("IAM", {})),
        (
            "a.b.Krb required useKeyTab=true keyTab=/x;",
            LoginModule("Krb", {"useKeyTab": "true", "keyTab": "/x"}),
        ),
        ("${env:JAAS}", None),
        ("", None),
    ],
)
def test_login_modules(text: str, module: LoginModule | None) -> None:
    assert read_login_module(text) == module
