"""The archive of a class path, made by a real Java from the jar of Ivy."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from lab.stack.class_archive import archive_options
from lab.stack.java import Java, find_java

MAIN = "org.apache.ivy.Main"


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "ivy"
    folder.mkdir()
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    (jar,) = (Path(spec.origin).parent / "jars").glob("ivy-*.jar")
    shutil.copy(jar, folder)
    return folder


def run(java: Java, jars: Path, *options: str) -> str:
    command = [str(java.executable), *options, "-cp", f"{jars}/*", MAIN, "-version"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_first_start_lists_classes_and_the_next_maps_them(tmp_path: Path, jars: Path) -> None:
    java, cache, said = find_java(), tmp_path / "cache", list[str]()

    def options() -> list[str]:
        return archive_options(java, jars, report=said.append, cache=cache, whole_with=MAIN.replace(".", "/"))

    first = options()
    assert first[0].startswith("-XX:DumpLoadedClassList=")
    assert options() == first, "nothing was listed yet"
    run(java, jars, *first)
    second = options()
    assert second[0].startswith("-XX:SharedArchiveFile=")
    assert len(said) == 1
    assert not list(cache.glob("*.classes")), "a list that was used is removed"
    loaded = run(java, jars, *second, "-Xshare:on", "-Xlog:class+load")
    (main,) = (line for line in loaded.splitlines() if f" {MAIN} " in line)
    assert "shared objects file" in main
    assert options() == second
    assert len(said) == 1

    (jars / "another.jar").touch()
    assert options()[0].startswith("-XX:DumpLoadedClassList="), "another class path, another archive"


def test_a_list_of_a_process_that_came_to_nothing_is_not_used(tmp_path: Path, jars: Path) -> None:
    java, cache = find_java(), tmp_path / "cache"
    first = archive_options(java, jars, report=lambda _line: None, cache=cache, whole_with="not/Loaded")
    run(java, jars, *first)
    assert list(cache.glob("*.classes"))
    again = archive_options(java, jars, report=lambda _line: None, cache=cache, whole_with="not/Loaded")
    assert again == first


def test_where_no_archive_can_be_made_brokers_start_without(tmp_path: Path, jars: Path) -> None:
    java, cache, said = find_java(), tmp_path / "cache", list[str]()
    (listing,) = archive_options(java, jars, report=said.append, cache=cache)
    path = Path(listing.partition("=")[2].replace("%p", "1"))
    path.write_text("wrong/Class\n", encoding="utf-8")
    fails = tmp_path / "home"  # the same Java to look at
    (fails / "bin").mkdir(parents=True)
    (fails / "bin" / "java").write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    (fails / "bin" / "java").chmod(0o755)
    (fails / "lib").symlink_to(java.home / "lib")
    answer = archive_options(
        Java(fails, java.major_version, bundled=False),
        jars,
        report=said.append,
        cache=cache,
        whole_with="wrong/Class",
    )
    assert answer == [listing]
    assert "exit code 3" in said[-1]
    assert not path.exists(), "or every stack would try again"
