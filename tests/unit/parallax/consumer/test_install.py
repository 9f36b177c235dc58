"""A consumer application installs the base dependencies only: no PySpark, no Cassandra driver, no web framework."""

from __future__ import annotations

import subprocess
import sys

import pytest

EXTRAS = (
    "cassandra",
    "fastapi",
    "pandas",
    "pyarrow",
    "pydantic",
    "pyspark",
    "rich",
    "typer",
    "yaml",
)

PROGRAM = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[2:]:
            raise ModuleNotFoundError(f"{name} is not part of the base install")

sys.meta_path.insert(0, Absent())
exec(f"from {sys.argv[1]} import *")  # every public name
"""


@pytest.mark.parametrize(
    "module",
    [
        "parallax",
        "parallax.testing",
        "parallax.client.client",
        "parallax.consumer.consumer",
        "parallax.producer.producer",
    ],
)
def test_the_base_install_is_enough(module: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, module, *EXTRAS],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert answer.returncode == 0, answer.stderr
