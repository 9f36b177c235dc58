"""The Java that Spark is started with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from parallax.adapters.spark.java import java_home_for_spark


def java_that_lists(folder: Path, modules: str) -> Path:
    """A home whose `java` lists these modules, and otherwise says how it was called."""
    script = folder / "a home" / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        f'#!/bin/sh\nif [ "$1" = --list-modules ]; then echo "{modules}"; else printf "%s\\n" "$@"; fi\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    return script.parent.parent


def test_a_java_with_every_module_is_started_as_it_is(tmp_path: Path) -> None:
    home = java_that_lists(tmp_path, "java.base@17 jdk.incubator.vector@17")
    with java_home_for_spark(home) as chosen:
        assert chosen == home


@pytest.mark.parametrize("last", ["org.apache.Main", "an argument  with spaces"])
def test_a_java_without_the_vector_module_is_not_asked_for_it(tmp_path: Path, last: str) -> None:
    home = java_that_lists(tmp_path, "java.base@17")
    with java_home_for_spark(home) as chosen:
        called = subprocess.run(
            [
                chosen / "bin" / "java",
                "-Xmx1g",
                "--add-modules=jdk.incubator.vector",
                "--add-opens=a/b=c",
                last,
            ],
            capture_output=True,
            text=True,
            check=True,
        )
    assert called.stdout.splitlines() == ["-Xmx1g", "--add-opens=a/b=c", last]
    assert not chosen.exists()
