"""The wheel: what an installation brings, and what it does not."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (built,) = target.glob("*.whl")
    return built


def test_it_holds_the_five_packages_and_nothing_else(wheel: Path) -> None:
    files = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in files}
    (info,) = (top for top in tops if top.endswith(".dist-info"))
    assert tops - {info} == {"parallax", "replicator", "offsetsvc", "syncjob", "console"}
    code = {name for name in files if not name.startswith(info)}
    assert code == {
        str(path.relative_to(ROOT))
        for top in tops - {info}
        for path in (ROOT / top).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert "parallax/py.typed" in code


def test_installed_it_works_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    # Without the site module the .pth files stay unread, by which this environment knows the checkout.
    path = os.pathsep.join([str(site), sysconfig.get_path("purelib")])

    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-S", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    done = python("-c", "import parallax; from parallax import *; print(parallax.__file__)")
    assert Path(done.stdout.strip()).is_relative_to(site), done.stderr
    done = python("-m", "parallax", "stack", "up")
    assert (done.returncode, "needs a checkout" in done.stderr) == (1, True), done.stderr
