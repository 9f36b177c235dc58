"""The Spark home by which Python workers import the installed PySpark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from parallax.adapters.spark.session import INSTALLED, unpacked_spark_home


def imported_by_a_worker_of(home: Path) -> str:
    """Where PySpark comes from on the path that Spark gives to a Python process."""
    archives = [home / "python" / "lib" / name for name in ("pyspark.zip", "py4j-src.zip")]
    return subprocess.run(
        [sys.executable, "-c", "import pyspark; print(pyspark.__file__)"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, archives))},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_workers_import_the_installed_package() -> None:
    assert "pyspark.zip" in imported_by_a_worker_of(INSTALLED)
    assert imported_by_a_worker_of(unpacked_spark_home()) == str(INSTALLED / "__init__.py")


def test_a_home_has_what_the_launcher_needs_and_is_made_once() -> None:
    home = unpacked_spark_home()
    assert os.access(home / "bin" / "spark-submit", os.X_OK)
    assert list((home / "jars").glob("spark-core_*.jar"))
    assert unpacked_spark_home() == home
