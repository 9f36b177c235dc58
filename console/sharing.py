"""What viewers of the same page share: it is looked at and drawn once within a few seconds, whoever asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

KEPT_S = 3.0
"""Pages ask anew every five seconds: what one viewer is shown may be as old as that, and the next look is newer."""

T = TypeVar("T")


class SharedLooks(Generic[T]):
    """Remembers what was made for a moment; what is being made is waited for, and its error is everybody's.

    So fifty viewers cost an offset service that is away one question at a time, not fifty. Safe to use from many threads.

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
            return known[1].result()
        try:
            made = make()
        except BaseException as error:
            look.set_exception(error)
            raise
        look.set_result(made)
        return made
