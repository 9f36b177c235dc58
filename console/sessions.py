"""Who is signed in at this console: sessions in memory, that end by themselves, by a sign-out, and with the process."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from console.people import Person

MOST, MOST_OF_ONE = 2_000, 20
"""Sessions; beyond that the one that began first ends, of all or of the person."""


@dataclass(frozen=True, slots=True)
class _Session:
    person: Person
    until_s: float


class Sessions:
    """Safe to use from many threads.

    Args:
        max_age_s: of a session.
        clock: seconds, monotonic.
    """

    def __init__(self, max_age_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_age_s, self._clock = max_age_s, clock
        self._lock = threading.Lock()
        self._sessions: dict[bytes, _Session] = {}
        """By a digest of their ids, in the order in which they began."""

    def begin(self, person: Person) -> str:
        """A session of somebody who has signed in.

        Returns:
            Its id, which nobody can guess.
        """
        made, now_s = secrets.token_urlsafe(32), self._clock()
        with self._lock:
            living = {key: item for key, item in self._sessions.items() if now_s < item.until_s}
            of_one = [key for key, item in living.items() if item.person.name == person.name]
            for key in of_one[: len(of_one) - MOST_OF_ONE + 1] if len(of_one) >= MOST_OF_ONE else []:
                del living[key]
            while len(living) >= MOST:
                del living[next(iter(living))]
            living[_key(made)] = _Session(person, now_s + self._max_age_s)
            self._sessions = living
        return made

    def person(self, session: str) -> Person | None:
        """Whose it is; None: there is none of that id, or it has ended."""
        key = _key(session)
        with self._lock:
            found = self._sessions.get(key)
            if found is None:
                return None
            person = found.person
            over = self._clock() >= found.until_s or (person.token is not None and person.token.refused)
            if over:
                del self._sessions[key]
        return None if over else person

    def end(self, session: str) -> None:
        """End it, if there is one."""
        with self._lock:
            self._sessions.pop(_key(session), None)


def _key(session: str) -> bytes:
    """What is compared: how long that takes tells nothing of an id."""
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).digest()
