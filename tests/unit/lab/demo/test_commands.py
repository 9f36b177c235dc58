from __future__ import annotations

from pathlib import Path

import pytest

from lab.demo.commands import Commands, shortest
from lab.stack.errors import StackError


def test_a_command_that_fails_says_which_and_where_its_log_is(tmp_path: Path) -> None:
    commands = Commands(tmp_path / "missing.yaml", tmp_path / "commands.err")
    with pytest.raises(StackError, match="`parallax routes` failed with exit code 1") as raised:
        commands.run("routes")
    assert "commands.err" in str(raised.value)
    assert "missing.yaml" in (tmp_path / "commands.err").read_text(encoding="utf-8")


def test_paths_are_told_as_one_would_type_them() -> None:
    assert shortest(Path.cwd() / "build" / "demo") == Path("build/demo")
    assert shortest(Path("/elsewhere/demo")) == Path("/elsewhere/demo")
