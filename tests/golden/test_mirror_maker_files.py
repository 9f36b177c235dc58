"""Files such as people have for MirrorMaker 2, and what `parallax import mm2` makes of each.

`python -m tests.golden.test_mirror_maker_files` writes what is expected anew, to be reviewed and committed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from parallax.config.config import Config
from parallax.config.mirror_maker import import_mirror_maker

FOLDER = Path(__file__).parent / "mirror_maker"
FILES = sorted(FOLDER.glob("*.properties"))


def said_of(path: Path) -> str:
    """What is said of each key, and the configuration."""
    found = import_mirror_maker(path.read_text(encoding="utf-8"))
    lines = [
        f"{'-' if key.line is None else key.line} {key.key}: {key.ruling.verdict.value}"
        + (f" -> {key.ruling.to}" if key.ruling.to else "")
        + (f" ({key.ruling.why})" if key.ruling.why else "")
        for key in found.keys
    ]
    return "\n".join([*lines, "", yaml.safe_dump(found.values, sort_keys=False, width=120)])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_key_is_told_and_the_configuration_loads(path: Path) -> None:
    assert said_of(path) == path.with_suffix(".expected").read_text(encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    found = import_mirror_maker(text)
    Config.model_validate(found.values)
    lines = [
        number
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and line.lstrip()[0] not in "#!"
    ]
    joined = {number + 1 for number, line in enumerate(text.splitlines(), 1) if line.endswith("\\")}
    assert [key.line for key in found.keys if key.line is not None] == [n for n in lines if n not in joined]


def test_there_are_enough_of_them() -> None:
    assert len(FILES) >= 12


if __name__ == "__main__":
    for file in FILES:
        file.with_suffix(".expected").write_text(said_of(file), encoding="utf-8")
