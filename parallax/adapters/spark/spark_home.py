"""A home for a local Spark whose Python workers import PySpark as it is installed, not from a zip file."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import pyspark

INSTALLED = Path(pyspark.__file__).parent
"""The installed `pyspark` package, which is a Spark home too."""

_NEEDED = ("bin", "jars")


def unpacked_spark_home() -> Path:
    """A Spark home that has what the installed one has, but no `python/lib/pyspark.zip`.

    Spark puts that archive before everything else on the path of each Python process it starts, and Python keeps no
    bytecode of what it imports from an archive: each process compiled PySpark anew, which took 2.0 instead of 0.7
    CPU seconds; an application with two regions starts nine such processes one after another. Where the archive is
    missing they import the installed package, which is the same code.

    The folder is kept until this process ends.
    """
    return Path(_folder().name)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="parallax-spark-", ignore_cleanup_errors=True)
    for name in _NEEDED:
        (Path(folder.name) / name).symlink_to(INSTALLED / name, target_is_directory=True)
    return folder
