"""What the services install with Parallax may be used wherever Parallax may: permissive licences alone."""

from __future__ import annotations

import re
from email.message import Message
from importlib import metadata

import pytest

from requirements.licences import (
    ELSEWHERE,
    LOCK,
    PAGE,
    Locked,
    licence_of,
    locked,
    not_installed,
    not_permissive,
    page,
)

ITEMS = locked(LOCK.read_text(encoding="utf-8"))
ANY = Locked("any", "1.0", "", (), ())


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.pin)
def test_a_dependency_of_the_services_is_under_permissive_licences(item: Locked) -> None:
    assert licence_of(item), "it names none"
    assert not not_permissive(licence_of(item))


def test_the_page_tells_what_is_locked() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text), "run 'make licences'"


def test_only_what_is_not_on_every_system_is_told_by_hand() -> None:
    assert ELSEWHERE.keys() <= {item.pin for item in ITEMS if item.marker}


@pytest.mark.parametrize(
    ("headers", "licence"),
    [
        ([("License-Expression", "MIT"), ("License", "GPL")], "MIT"),
        ([("Classifier", "License :: OSI Approved :: MIT License"), ("License", "see LICENSE")], "MIT"),
        ([("License", "Apache-2.0")], "Apache-2.0"),
        ([("Classifier", "Typing :: Typed")], ""),
    ],
)
def test_the_exactest_that_the_metadata_say_counts(
    monkeypatch: pytest.MonkeyPatch, headers: list[tuple[str, str]], licence: str
) -> None:
    told = Message()
    for name, value in [("Version", "1.0"), *headers]:
        told[name] = value
    monkeypatch.setattr(metadata, "metadata", lambda _name: told)

    assert licence_of(ANY) == licence


def test_another_version_speaks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Message()
    told["Version"], told["License-Expression"] = "2.0", "MIT"
    monkeypatch.setattr(metadata, "metadata", lambda _name: told)

    assert not licence_of(ANY)


def test_what_is_locked_and_not_installed_is_told_by_its_name() -> None:
    newer = Locked("pyjwt", "0.0.1", "", (), ())
    elsewhere = Locked("parallax-nowhere", "1", "sys_platform == 'win32'", (), ())
    assert not_installed([*ITEMS, newer, elsewhere]) == ["pyjwt==0.0.1"]


@pytest.mark.parametrize(
    ("licence", "refused"),
    [
        ("MIT", set()),
        ("Apache-2.0 AND (MIT OR 0BSD)", set()),
        ("", {""}),
        ("MPL-2.0", {"MPL-2.0"}),
        ("MIT OR GPL-3.0-only", {"GPL-3.0-only"}),
        ("Apache-2.0 WITH LLVM-exception AND MIT", {"Apache-2.0 WITH LLVM-exception"}),
        (
            "MIT AND License :: OSI Approved :: GNU General Public License v3 (GPLv3)",
            {"License :: OSI Approved :: GNU General Public License v3 (GPLv3"},
        ),
    ],
)
def test_what_is_not_named_as_permissive_is_refused(licence: str, refused: set[str]) -> None:
    assert not_permissive(licence) == refused


def test_every_line_of_the_lock_is_read() -> None:
    text = LOCK.read_text(encoding="utf-8")

    assert [item.pin for item in ITEMS] == re.findall(r"^([^\s#]+==\S+)", text, re.MULTILINE)
    assert sum(len(item.hashes) for item in ITEMS) == text.count("--hash=")
    assert all(item.hashes and item.needed_by for item in ITEMS)


def test_a_line_without_a_version_is_refused() -> None:
    with pytest.raises(ValueError, match="not a line of a lock"):
        locked("colorama @ file:///tmp/colorama\n")
