"""Several threads of which one runs at a time, chosen by a seed at every call that could block."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable


class Crash(BaseException):
    """The process is gone: nothing of it may catch this or tidy up."""


def _baton() -> threading.Lock:
    """Taken by whoever waits for it. A semaphore makes a lock anew for each wait, which costs more than most steps."""
    baton = threading.Lock()
    baton.acquire()
    return baton


class Actor:
    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.name = name
        self.asleep_until = 0.0
        self.over = False
        self.doomed = False
        self.turn = _baton()
        self.work = work


class Schedule:
    """Hands one baton around. Time passes only here, so a seed decides everything."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 1_700_000_000_000.0
        self.actors: list[Actor] = []
        self.steps = 0
        self.calm = False
        self.on_step: Callable[[], None] = lambda: None
        self._running: Actor | None = None
        self._main = _baton()
        self._until: Callable[[], bool] = lambda: True
        self._bound = 0
        self._failure: BaseException | None = None

    @property
    def running(self) -> Actor | None:
        """Who has the baton; None: whoever sets the stage."""
        return self._running

    def spawn(self, name: str, work: Callable[[], None]) -> Actor:
        actor = Actor(name, work)
        self.actors.append(actor)
        threading.Thread(target=self._live, args=(actor,), name=name, daemon=True).start()
        return actor

    def run(self, until: Callable[[], bool], *, at_most_steps: int) -> None:
        """Let actors run until the condition, which is looked at whenever the baton is handed on, holds."""
        self._until, self._bound = until, self.steps + at_most_steps
        first = self._next()
        if first is not None:
            first.turn.release()
            self._main.acquire()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def step(self) -> None:
        """Called by the running actor wherever it could block: others may run first, or it may die here."""
        actor = self._running
        if actor is None:  # whoever sets the stage is never interrupted
            return
        self.steps += 1
        self.now_ms += self.random.choice((1, 3, 10, 30))
        self.on_step()
        if self.calm or self.random.random() < 0.15 or actor.asleep_until > self.now_ms:
            self._hand_on(actor)
        if actor.doomed:
            raise Crash(actor.name)

    def sleep(self, duration_ms: float) -> None:
        assert self._running is not None
        self._running.asleep_until = self.now_ms + duration_ms
        self.step()

    def _live(self, actor: Actor) -> None:
        actor.turn.acquire()
        try:
            if not actor.doomed:
                actor.work()
        except Crash:
            pass
        except BaseException as error:  # noqa: BLE001 - handed to the thread that runs the test
            self._failure = error
        actor.over = True
        self._hand_on(actor)

    def _hand_on(self, actor: Actor) -> None:
        """From one thread to the next without one between them: it may as well stay where it is."""
        following = self._next()
        if following is not actor:
            (self._main if following is None else following.turn).release()
            if not actor.over:
                actor.turn.acquire()

    def _next(self) -> Actor | None:
        """Who runs now; None: the thread that runs the test."""
        self._running = None
        if self._failure is None:
            try:
                if not self._until():
                    assert self.steps < self._bound, f"not done before step {self._bound}"
                    self._running = self._choose()
            except BaseException as error:  # noqa: BLE001 - as above: none of the actor's
                self._failure = error
        return self._running

    def _choose(self) -> Actor | None:
        alive = [actor for actor in self.actors if not actor.over]
        if not alive:
            return None
        awake = [actor for actor in alive if actor.asleep_until <= self.now_ms or actor.doomed]
        if not awake:
            first = min(alive, key=lambda actor: actor.asleep_until)
            self.now_ms = max(self.now_ms, first.asleep_until)
            awake = [first]
        return self.random.choice(awake)
