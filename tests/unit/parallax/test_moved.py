"""An application that imports an old path is told the new one, whichever way it imports."""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from parallax.moved import NEW_PATHS
from tests.unit.house.test_imports import PACKAGES, ROOT


@pytest.mark.parametrize("path", NEW_PATHS)
def test_an_old_path_names_the_new_one(path: str) -> None:
    with pytest.raises(ImportError, match=re.escape(NEW_PATHS[path])) as caught:
        importlib.import_module(path)
    assert caught.value.name == path
    exec(NEW_PATHS[path].removesuffix(", ..."))  # noqa: S102 - what applications are told to write works


@pytest.mark.parametrize(
    "line",
    [
        "import offsetsvc.failover_consumer",
        "from offsetsvc.failover_consumer import FailoverConsumer",
        "from offsetsvc import failover_consumer",
        "import offsetsvc.consumer.errors",
        "from offsetsvc.pb import offsets_pb2",
        "from parallax.domain.errors import ParallaxError",
        "from parallax.domain import errors",
    ],
)
def test_in_a_fresh_process(line: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", line], capture_output=True, text=True, check=False, timeout=60
    )
    last = done.stderr.splitlines()[-1]
    assert re.fullmatch(r"ImportError: [\w.]+ has moved: from parallax.* import .*", last), done.stderr


def test_modules_that_never_were_are_missing_as_ever() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("offsetsvc.failover_something")
    assert importlib.util.find_spec("parallax.nothing") is None


def test_no_page_and_no_program_names_an_old_path() -> None:
    kept = {ROOT / "CHANGELOG.md", ROOT / "parallax/moved.py", Path(__file__)}
    old = re.compile("|".join(rf"\b{re.escape(path)}\b" for path in NEW_PATHS) + r"|\bdevstack\.|\bsrc/\w")
    files = [
        path
        for pattern in ("*.md", "Makefile", "pyproject.toml", "docs/**/*.md", "compose/**/*", "proto/**/*.p*")
        for path in ROOT.glob(pattern)
    ]
    files += [path for top in PACKAGES for path in (ROOT / top).rglob("*.py")]
    assert len(files) > 100
    named = {
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in files
        if path.is_file() and path not in kept
        for match in old.finditer(path.read_text(encoding="utf-8", errors="replace"))
    }
    assert not named
