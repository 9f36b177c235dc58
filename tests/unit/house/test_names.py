"""Names: one public class of a name, no module without a reason to be alone, nothing that still says an old path."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections import defaultdict

import pytest

from tests.unit.house.test_imports import MODULES, ROOT, within

SHORT_LINES = 50
"""A module below is a fragment of its neighbours, unless it has a reason to be alone."""

REASONS_TO_BE_ALONE = {
    "lab.dashboards.__main__": "python -m lab.dashboards",
    "lab.stack.guard": "run as a script, with the standard library alone",
    "lab.stack.steering.sitecustomize": "Python runs it by its name, before anything else",
    "parallax.__main__": "python -m parallax",
    "parallax.cli.connecting": "what completes names needs it, and the options need that",
    "parallax.client.kafka_error": "consumer and producer share it, and what both may import is core and client",
    "parallax.client.pages": "commands and the console share it, and what both may import of lists is the client",
    "parallax.config.mirror_maker_export": "a section of its own, as each part of the file that is about one thing has a module",
    "parallax.config.pace": "what a word of the configuration stands for, which those who copy share with it",
    "parallax.domain.outcome": "the words of answers, which every layer knows",
    "parallax.picture.text": "what all pictures write with, and pages that show names",
    "parallax.moved": "goes with the next release",
    "parallax.adapters.spark.daemon": "run by Spark as a module, before anything else may be imported",
}

OLD_WORDS = re.compile(
    r"devstack|gen_protos|src/(parallax|replicator|offsetsvc|syncjob|failover)|offsetsvc[./]pb\b|replicator[./](pb|batches)\b"
    r"|\b(parallax\.runtime\.config|parallax\.domain\.errors|parallax\.decision_ports|parallax\.index_ports)\b",
    re.IGNORECASE,
)
MAY_SAY_OLD_WORDS = {
    "CHANGELOG.md",
    "parallax/moved.py",
    "tests/unit/house/test_names.py",
    "tests/unit/parallax/test_moved.py",
}


def test_no_two_public_classes_of_one_name() -> None:
    places = defaultdict(list)
    for name, path in MODULES.items():
        if within(name, "parallax.v1"):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


def test_a_short_module_has_a_reason_to_be_alone() -> None:
    short = {
        name
        for name, path in MODULES.items()
        if path.name != "__init__.py"
        and not within(name, "parallax.v1")
        and path.read_text(encoding="utf-8").count("\n") < SHORT_LINES
    }
    assert short == set(REASONS_TO_BE_ALONE)


def tracked_files() -> list[str]:
    listed = subprocess.run(
        [shutil.which("git") or "git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return listed.stdout.splitlines()


@pytest.mark.parametrize("kind", [".py", ".md", ".toml", ".yaml", ".proto", "Makefile", "Dockerfile", "run"])
def test_nothing_says_an_old_path(kind: str) -> None:
    found = [
        f"{file}:{number}: {line.strip()}"
        for file in tracked_files()
        if file.endswith(kind) and file not in MAY_SAY_OLD_WORDS
        for number, line in enumerate((ROOT / file).read_text(encoding="utf-8").splitlines(), 1)
        if OLD_WORDS.search(line)
    ]
    assert found == []


PAGES = [file for file in tracked_files() if file.endswith(".md") and file != "CHANGELOG.md"]
PATH = re.compile(
    r"`((?:parallax|replicator|offsetsvc|syncjob|lab|tests|docs|proto|compose)/[\w./]*\w|\w+/[\w/]+\.py)/?`"
)


@pytest.mark.parametrize("page", PAGES)
def test_the_files_that_a_page_names_are_there(page: str) -> None:
    named = PATH.findall((ROOT / page).read_text(encoding="utf-8"))
    assert [path for path in named if not (ROOT / path).exists()] == []
