"""Which archive of classes Spark's JVM is given, without Spark and without a Java."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from parallax.adapters.spark import preparing
from parallax.adapters.spark.jvm import (
    INSTALLED,
    Prepared,
    SparkJvm,
    link_home,
    place_of,
    unpacked_spark_home,
    usual_jvm,
)
from parallax.adapters.spark.preparing import Preparation, forget, prepare
from parallax.errors import RefusedError


@pytest.fixture
def java(tmp_path: Path) -> Path:
    library = tmp_path / "java" / "lib" / "server" / "libjvm.so"
    library.parent.mkdir(parents=True)
    library.write_text("this Java", encoding="utf-8")
    return tmp_path / "java"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PARALLAX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "spark"


def made(place: Prepared) -> Prepared:
    place.home.mkdir(parents=True)
    link_home(place.home)
    place.archive.touch(0o644)
    return place


def without() -> SparkJvm:
    return SparkJvm(unpacked_spark_home())


def test_an_archive_is_used_from_the_home_that_it_was_made_for(java: Path, folder: Path) -> None:
    assert usual_jvm(java) == without(), "nothing was made yet"
    place = made(place_of(java, folder))
    assert usual_jvm(java) == SparkJvm(
        place.home, (f"-XX:SharedArchiveFile={place.archive}", "-Xlog:cds=off")
    )
    assert forget() == [place.archive]
    assert usual_jvm(java) == without()


def test_another_java_does_not_use_it(java: Path, folder: Path) -> None:
    made(place_of(java, folder))
    (java / "lib" / "server" / "libjvm.so").write_text("a newer Java", encoding="utf-8")
    assert usual_jvm(java) == without()


def test_a_java_without_its_library_starts_without(folder: Path, tmp_path: Path) -> None:
    assert usual_jvm(tmp_path) == without()
    assert not folder.exists()


@pytest.mark.parametrize("part", ["folder", "home", "archive"])
def test_what_others_may_write_is_not_run(java: Path, folder: Path, part: str) -> None:
    place = made(place_of(java, folder))
    path: Path = getattr(place, part)
    path.chmod(path.stat().st_mode | 0o020)
    with capture_logs() as lines:
        assert usual_jvm(java) == without()
    (line,) = lines
    assert (line["event"], line["path"]) == ("class_archive_not_used", str(path))


def test_one_archive_is_kept_for_a_spark_and_none_of_a_spark_that_is_gone(
    java: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, gone, elsewhere = (made(Prepared(folder / name)) for name in ("other", "gone", "elsewhere"))
    for place, jars in ((gone, folder / "removed"), (elsewhere, folder)):
        (place.home / "jars").unlink()
        (place.home / "jars").symlink_to(jars)

    def make(wanted: Preparation) -> None:
        assert (wanted.place.home / "jars").samefile(INSTALLED / "jars")
        wanted.place.archive.touch(0o644)

    monkeypatch.setattr(preparing, "_make", make)
    wanted = Preparation(java, place_of(java, folder))
    prepare(wanted)
    assert wanted.ready
    assert usual_jvm(java).home == wanted.place.home
    assert not other.archive.exists()
    assert other.home.is_dir(), "a JVM that runs may still open jars there"
    assert not gone.folder.exists()
    assert elsewhere.archive.is_file()
    prepare(wanted)  # again


def test_two_do_not_make_it_at_once(java: Path, folder: Path) -> None:
    place = place_of(java, folder)
    folder.mkdir(parents=True)
    with place.folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RefusedError, match="another process makes this archive"):
            prepare(Preparation(java, place))
