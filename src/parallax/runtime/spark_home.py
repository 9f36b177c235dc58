"""A home for a local Spark whose Python workers import PySpark as it is installed, not from a zip file."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path

_NEEDED = ("bin", "jars")
_held: dict[Path, tempfile.TemporaryDirectory[str]] = {}


def installed_spark() -> Path:
    """The folder of the installed `pyspark` package, which is a Spark home too."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:  # pragma: no cover - whoever asks has imported it
        raise ImportError("pyspark is not installed")
    return Path(found.origin).parent


def unpacked_spark_home(installed: Path) -> Path:
    """A Spark home that has what the installed one has, but no `python/lib/pyspark.zip`.

    Spark puts that archive before everything else on the path of each Python process it starts, and Python keeps no
    bytecode of what it imports from an archive: each process compiled PySpark anew, which took 2.0 instead of 0.7
    CPU seconds; an application with two regions starts nine such processes one after another. Where the archive is
    missing they import the installed package, which is the same code.

    The folder is kept until this process ends.
    """
    if installed not in _held:
        folder = tempfile.TemporaryDirectory(prefix="parallax-spark-", ignore_cleanup_errors=True)
        for name in _NEEDED:
            (Path(folder.name) / name).symlink_to(installed / name, target_is_directory=True)
        _held[installed] = folder
    return Path(_held[installed].name)
