"""What is made of files and made anew when they change, so that keys and certificates rotate without a restart."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from parallax.errors import ConfigError

T = TypeVar("T")

_log = structlog.get_logger(__name__)

_WRITTEN_WITHIN_S = 0.3
"""Files of a rotation are written one after the other within less than this."""
_LOOK_EVERY_S, _LONGEST_WAIT_S = 0.01, 2.0

_Signature = tuple[tuple[int, int, int, int] | None, ...]
_SIZE = 3
"""Where `_signature_of` has it."""


class Reread(Generic[T]):
    """A value made of files. Safe to use from many threads.

    Files are looked at each time: that costs some microseconds. While they don't fit together, as in the middle of a
    rotation, or can't be read, the last good value stands, a warning says so, and each look tries again.

    Args:
        paths: the files.
        make: reads them; whatever it raises at the first time is the caller's, later it is logged. Files that were changed a moment
            ago may be about to be changed again: they are waited for until they stand still, and those that are empty for as long as it takes, up to two
            seconds.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]], make: Callable[[], T]) -> None:
        self._paths = [os.fspath(path) for path in paths]
        self._make = make
        self._lock = threading.Lock()
        self._warned: _Signature | None = None
        self._signature, self._value = self._first()

    def get(self) -> T:
        """The value of the files as they are now, or the last good one."""
        signature = self._look()
        with self._lock:
            if signature != self._signature:
                self._renew(signature)
            return self._value

    def _first(self) -> tuple[_Signature, T]:
        ends_at_s = time.monotonic() + _LONGEST_WAIT_S
        while True:
            signature = self._look()
            try:
                return signature, self._make()
            except Exception:
                now_s, later = time.time(), self._look()
                ages_s = [now_s - found[2] / 1e9 for found in later if found is not None]
                # What has changed since it was looked at may have done so long ago: a busy machine lets us wait, too.
                written = later != signature or any(0 <= age_s < _WRITTEN_WITHIN_S for age_s in ages_s)
                # Whoever writes a file anew empties it first, and may wait for a busy disk then.
                written = written or any(found is not None and not found[_SIZE] for found in later)
                if not written or time.monotonic() > ends_at_s:
                    raise
            time.sleep(_LOOK_EVERY_S)

    def _renew(self, signature: _Signature) -> None:
        try:
            value = self._make()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a file, those from before still stand
            if signature != self._warned:
                self._warned = signature
                _log.warning("files_not_usable", paths=self._paths, error=str(error))
            return
        # What was read may be newer than what was looked at; then the next look sees it, and reads once more.
        self._signature, self._value = signature, value
        _log.info("files_read_again", paths=self._paths)

    def _look(self) -> _Signature:
        return tuple(_signature_of(path) for path in self._paths)


def filled(path: str | os.PathLike[str]) -> bytes:
    """What a file holds, which is something: gRPC ends the whole process when it is given an empty key or certificate.

    Raises:
        ConfigError: it can't be read or holds nothing, as one does that is just being written.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if not content.strip():
        raise ConfigError(f"{path}: is empty")
    return content


def _signature_of(path: str) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - a secret that Kubernetes mounts is a link: follow it, and cheaply
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
