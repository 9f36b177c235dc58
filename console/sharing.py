"""What viewers of the same page share: it is looked at and drawn once within a few seconds, whoever asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from copy import copy
from typing import Generic, TypeVar

from parallax.errors import ParallaxError

KEPT_S = 3.0
"""Pages ask anew every five seconds: what one viewer is shown may be as old as that, and the next look is newer."""

T = TypeVar("T")


class SharedLooks(Generic[T]):
    """Remembers what was made for a moment; what is being made is waited for, and its error is that of all who wait.

    So fifty viewers cost an offset service that is away one question at a time, not fifty. An error is not remembered: a service that
    let one question wait may answer the next. Safe to use from many threads.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._looks: dict[Hashable, tuple[float, Future[T]]] = {}

    def get(self, key: Hashable, make: Callable[[], T], *, anew: bool) -> T:
        """What was made for the key within `KEPT_S`, or is being made; or what is made now.

        Args:
            key: what it depends on.
            make: makes it.
            anew: make it in any case, for others to share: who opens a page may just have changed something.
        """
        now_s = self._clock()
        with self._lock:
            self._looks = {
                old: (since_s, look)
                for old, (since_s, look) in self._looks.items()
                if now_s - since_s < KEPT_S or not look.done()
            }
            known = self._looks.get(key)
            if known is None or anew:
                look: Future[T] = Future()
                self._looks[key] = (now_s, look)
        if known is not None and not anew:
            return _of_another(known[1])
        try:
            made = make()
        except BaseException as error:
            with self._lock:
                if self._looks.get(key) == (now_s, look):
                    del self._looks[key]
            look.set_exception(error)
            raise
        look.set_result(made)
        return made


def _of_another(look: Future[T]) -> T:
    """What another viewer's look has shown, or fails by."""
    try:
        return look.result()
    except ParallaxError as error:
        # Of each viewer its own: a traceback would grow with everyone who raises it.
        raise copy(error) from error
