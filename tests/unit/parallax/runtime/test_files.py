from __future__ import annotations

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from parallax.runtime import files
from parallax.runtime.files import Reread


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "number"
    path.write_text("1", encoding="utf-8")
    return path


def number_in(path: Path) -> Reread[int]:
    return Reread([path], lambda: int(path.read_text(encoding="utf-8")))


def test_a_file_is_read_again_when_it_changes_and_only_then(path: Path) -> None:
    reads = []
    number = Reread([path], lambda: reads.append(1) or int(path.read_text(encoding="utf-8")))
    assert [number.get(), number.get(), len(reads)] == [1, 1, 1]
    path.write_text("22", encoding="utf-8")
    assert [number.get(), number.get(), len(reads)] == [22, 22, 2]


def test_a_file_that_is_swapped_in_place_is_noticed(path: Path, tmp_path: Path) -> None:
    number = number_in(path)
    newer = tmp_path / "newer"
    newer.write_text("2", encoding="utf-8")
    newer.replace(path)
    assert number.get() == 2


def test_the_last_good_value_stands_while_files_do_not_fit_together(path: Path) -> None:
    number = number_in(path)
    with capture_logs() as logs:
        path.write_text("half", encoding="utf-8")
        assert [number.get(), number.get()] == [1, 1]
        path.unlink()
        assert number.get() == 1
        path.write_text("333", encoding="utf-8")
        assert number.get() == 333
    assert [entry["event"] for entry in logs] == ["files_not_usable", "files_not_usable", "files_read_again"]


def test_at_first_the_caller_learns_what_is_wrong(path: Path) -> None:
    path.write_text("none", encoding="utf-8")
    with pytest.raises(ValueError, match="none"):
        number_in(path)


def test_files_that_are_just_being_written_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_WRITTEN_WITHIN_S", 60.0)  # however slow the machine is
    path = tmp_path / "number"
    path.write_text("", encoding="utf-8")

    def read() -> int:
        content = path.read_text(encoding="utf-8")
        path.write_text("7", encoding="utf-8")
        return int(content)

    assert Reread([path], read).get() == 7


def test_files_that_stand_still_and_do_not_fit_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "number"
    path.write_text("none", encoding="utf-8")
    os.utime(path, (1_000, 1_000))
    reads = []

    def read() -> int:
        reads.append(1)
        return int(path.read_text(encoding="utf-8"))

    with pytest.raises(ValueError, match="invalid literal"):
        Reread([path], read)
    assert reads == [1]


def test_an_empty_file_is_waited_for_however_long_ago_it_was_emptied(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a disk is busy between the emptying of a file and its writing."""
    path.write_text("", encoding="utf-8")
    os.utime(path, (1_000, 1_000))
    looks = []

    def read() -> int:
        looks.append(1)
        if len(looks) == 3:
            path.write_text("12", encoding="utf-8")
            os.utime(path, (2_000, 2_000))
        return int(path.read_text(encoding="utf-8"))

    assert Reread([path], read).get() == 12
    monkeypatch.setattr(files, "_LONGEST_WAIT_S", 0.05)
    path.write_text("", encoding="utf-8")
    os.utime(path, (1_000, 1_000))
    with pytest.raises(ValueError, match="invalid literal"):
        number_in(path)


def test_a_file_that_changed_while_it_was_first_read_is_read_again_however_long_ago_that_was(
    path: Path,
) -> None:
    """As where the machine is busy: what wrote it has long been done when the failure comes to be judged."""
    path.write_text("", encoding="utf-8")
    long_ago_s = path.stat().st_mtime - 60
    os.utime(path, (long_ago_s, long_ago_s))

    def read() -> int:
        content = path.read_text(encoding="utf-8")
        path.write_text("12", encoding="utf-8")
        os.utime(path, (long_ago_s, long_ago_s))
        return int(content)

    assert Reread([path], read).get() == 12
