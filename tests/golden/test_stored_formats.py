"""What was ever stored is read as it was meant, and nothing that is stored changes without a number that says so."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from parallax.domain.formats import FORMAT
from parallax.errors import ConfigError, MetadataError, ParallaxError, UnreadableRowError
from tests.golden import stored_formats
from tests.golden.stored_formats import (
    FORMATS,
    StoredFormat,
    additions_only,
    kept,
    main,
    problem,
    sets,
    written,
)
from tests.unit.house.test_imports import MODULES, within

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
BY_FILE = {item.file: item for item in FORMATS}
JSON = [item for item in FORMATS if item.file.endswith(".json")]


def name_of(item: StoredFormat) -> str:
    return item.file


@pytest.mark.parametrize("number", sets())
@pytest.mark.parametrize("item", FORMATS, ids=name_of)
def test_every_kept_file_is_read_as_it_was_meant(item: StoredFormat, number: int) -> None:
    files = kept(number)
    if item.file not in files:
        assert all(item.file not in kept(older) for older in sets() if older < number), "a kept file went"
        return
    assert item.read(files[item.file]) == item.expected_of(number)


def test_the_newest_set_is_what_the_present_code_writes() -> None:
    newest = sets()[-1]
    for name, raw in written().items():
        assert kept(newest)[name] == raw, (
            f"{name} changed: `make formats`, and docs/formats.md says what it asks"
        )
    assert kept(newest).keys() == written().keys()


@pytest.mark.parametrize("item", FORMATS, ids=name_of)
def test_from_set_to_set_names_were_added_or_the_number_grew(item: StoredFormat) -> None:
    files = [kept(number)[item.file] for number in sets() if item.file in kept(number)]
    numbers = [item.number(raw) for raw in files]
    assert numbers == sorted(numbers)
    assert [found for older, newer in pairwise(files) if (found := problem(item, older, newer))] == []


# --- a change turns it red --------------------------------------------------------------------------------------------


def changed(values: dict[str, Any], how: str) -> dict[str, Any]:
    name = next(name for name in values if name != FORMAT)
    if how == "renamed":
        return {f"new_{name}" if key == name else key: value for key, value in values.items()}
    return {**values, name: "something else"}


@pytest.mark.parametrize("how", ["renamed", "of another meaning"])
@pytest.mark.parametrize("item", JSON, ids=name_of)
def test_a_change_without_a_number_of_its_own_is_refused(
    item: StoredFormat,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = item.write(item.value)
    after = json.dumps(changed(json.loads(before), how)).encode()
    assert item.file in problem(item, before, after)
    numbered = json.dumps({**json.loads(after), FORMAT: item.number(before) + 1}).encode()
    assert problem(item, before, numbered) == ""
    added = json.dumps({**json.loads(before), "something_new": 1}).encode()
    assert problem(item, before, added) == ""

    # The command keeps no such set; it does if the number has grown.
    monkeypatch.setattr(stored_formats, "SETS", tmp_path)
    assert main() == 0
    for raw, status in ((after, 1), (numbered, 0), (numbered, 0)):
        patched = [
            replace(other, write=lambda _, raw=raw: raw) if other is item else other for other in FORMATS
        ]
        monkeypatch.setattr(stored_formats, "FORMATS", tuple(patched))
        assert main() == status, capsys.readouterr().out
    assert sets() == [1, 2]


@pytest.mark.parametrize("name", ["committed_metadata.txt", "run_log_entry.binpb"])
def test_bytes_that_change_are_refused_too(name: str) -> None:
    item = BY_FILE[name]
    before = item.write(item.value)
    if name == "committed_metadata.txt":
        other = replace(item.value, fencing_number=5)
    else:
        other = type(item.value)()
        other.CopyFrom(item.value)
        other.partitions[0].ClearField("source_next")
    assert name in problem(item, before, item.write(other))


def test_what_was_said_stays_said() -> None:
    assert additions_only({"a": [{"b": 1}]}, {"a": [{"b": 1, "c": 2}], "d": 3})
    assert not additions_only({"a": [1]}, {"a": [1, 2]})
    assert not additions_only({"a": 1}, {"b": 1})


# --- what a newer release writes --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Newer:
    file: str
    values: dict[str, Any]
    refused: type[ParallaxError] | None
    says: str = ""


NEXT = [
    *(
        Newer(
            item.file,
            {FORMAT: 2},
            ConfigError if item.file == "layouts.json" else UnreadableRowError,
            "format 2",
        )
        for item in JSON
    ),
    *(Newer(item.file, {"something_new": {"a": [1]}}, None) for item in JSON),
    Newer("group_published.json", {"outcome": "NEW_WORD"}, UnreadableRowError, "NEW_WORD"),
    Newer("primary_decisions.json", {"mode": "new_word"}, UnreadableRowError, "new_word"),
    Newer("primary_decisions.json", {"stage": "new_word"}, UnreadableRowError, "new_word"),
    Newer("operations_move.json", {"kind": "new_word"}, UnreadableRowError, "new_word"),
    Newer("operations_move.json", {"step": "new_word"}, UnreadableRowError, "new_word"),
    Newer("audit.json", {"stage": "new_word"}, UnreadableRowError, "new_word"),
    Newer("audit.json", {"proven_by": "new_word"}, UnreadableRowError, "new_word"),
    Newer("operations_by_week.json", {"step": "new_word"}, UnreadableRowError, "new_word"),
    Newer("group_status.json", {"outcome": "NEW_WORD"}, UnreadableRowError, "NEW_WORD"),
    Newer("replicator_partitions.json", {"state": []}, UnreadableRowError, "partitions"),
    Newer("operations_drill.json", {"ending": "new_word"}, UnreadableRowError, "new_word"),
]


@pytest.mark.parametrize("case", NEXT, ids=lambda case: f"{case.file} {case.values}")
def test_what_a_newer_release_writes_is_read_or_refused_by_name(case: Newer) -> None:
    item = BY_FILE[case.file]
    raw = json.dumps({**json.loads(item.write(item.value)), **case.values}).encode()
    if case.refused is None:
        assert item.read(raw) == item.value
        return
    with pytest.raises(case.refused, match=case.says):
        item.read(raw)


def test_metadata_of_a_newer_release_is_refused_by_its_number() -> None:
    item = BY_FILE["committed_metadata.txt"]
    with pytest.raises(MetadataError, match="version '2': this release reads 1"):
        item.read(item.write(item.value).replace(b"plx1.", b"plx2."))


def test_fields_that_a_newer_release_adds_to_the_run_log_are_passed_over() -> None:
    item = BY_FILE["run_log_entry.binpb"]
    unknown = b"\xfa\x07\x03new"  # field 127, three bytes
    assert item.details(item.write(item.value) + unknown) == item.details(item.write(item.value))


def test_text_without_a_number_is_of_the_first_format() -> None:
    for item in JSON:
        values = json.loads(item.write(item.value))
        assert values.pop(FORMAT) == item.number(json.dumps(values).encode()) == 1
        assert item.read(json.dumps(values).encode()) == item.value


# --- completeness -----------------------------------------------------------------------------------------------------


def test_whoever_writes_a_numbered_text_has_a_fixture() -> None:
    writers = {
        (name, node.name)
        for name, path in MODULES.items()
        if not within(name, "lab")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        and any(
            isinstance(call, ast.Call) and getattr(call.func, "id", "") == "stored_text"
            for call in ast.walk(node)
        )
    }
    # The layout's record numbers itself; lineages belong to the index, which can be built anew.
    assert len(writers) == len(JSON) - 1 + 1, writers


def test_the_page_tells_of_every_format_with_its_number() -> None:
    told = dict(re.findall(r"^\| `([^`]+)` \|.*\| (\d+) \|", PAGE, re.MULTILINE))
    for item in FORMATS:
        name = item.file.partition(".")[0]
        assert told[name] == str(item.number(item.write(item.value))), name
