"""The bill of materials holds every line of the lock, as `make sbom` writes it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from requirements.licences import LOCK, ROOT, licence_of, locked

TEXT = LOCK.read_text(encoding="utf-8")
HTMX = "pkg:npm/htmx.org@2.0.11"
"""What the console brings with it, in no lock."""


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> Any:
    out: Path = tmp_path_factory.mktemp("bill") / "sbom.json"
    command = [sys.executable, "-m", "requirements.sbom", "--out", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120)
    return json.loads(out.read_text(encoding="utf-8"))


def test_every_line_of_the_lock_is_in_it_once(bill: Any) -> None:
    purls = Counter(each["purl"] for each in bill["components"])

    assert purls == {
        f"pkg:pypi/{name}@{version}": 1
        for name, version in re.findall(r"^([^\s#]+)==(\S+)", TEXT, re.MULTILINE)
    } | {HTMX: 1}


def test_every_hash_of_the_lock_is_in_it(bill: Any) -> None:
    hashes = Counter(each["content"] for component in bill["components"] for each in component["hashes"])

    (vendored,) = (each for each in bill["components"] if each["purl"] == HTMX)
    assert vendored["licenses"] == [{"license": {"id": "0BSD"}}]
    file = ROOT / "console" / "static" / "htmx.min.js"
    assert [each["content"] for each in vendored["hashes"]] == [sha256(file.read_bytes()).hexdigest()]
    hashes -= Counter(each["content"] for each in vendored["hashes"])
    assert hashes == Counter(re.findall(r"--hash=sha256:(\w+)", TEXT))


def test_each_has_its_licence_and_marker(bill: Any) -> None:
    told = {
        f"{each['name']}=={each['version']}": (
            [
                choice.get("expression") or next(iter(choice["license"].values()))
                for choice in each["licenses"]
            ],
            [prop["value"] for prop in each.get("properties", ())],
        )
        for each in bill["components"]
        if each["purl"] != HTMX
    }

    assert told == {
        item.pin: ([licence_of(item)], [item.marker] if item.marker else []) for item in locked(TEXT)
    }


def test_what_needs_what_leads_from_parallax_to_all_of_it(bill: Any) -> None:
    below = {each["ref"]: each.get("dependsOn", []) for each in bill["dependencies"]}
    reached: set[str] = set()
    waiting = ["parallax"]
    while waiting:
        ref = waiting.pop()
        if ref not in reached:
            reached.add(ref)
            waiting += below[ref]
    assert reached - {"parallax"} == {each["bom-ref"] for each in bill["components"]}
