"""Queries are kept running, and ended on demand."""

from __future__ import annotations

import threading

import pytest

from parallax.adapters.spark.supervisor import STEADY_AFTER_S, QueryPlan, Supervisor, first_lines
from parallax.errors import ClusterUnavailableError, ConfigError
from parallax.runtime.retry import RetryPolicy


class FakeQuery:
    def __init__(self) -> None:
        self.isActive = True
        self.status = {"isTriggerActive": True}
        self.error: Exception | None = None
        self.stopped = False

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.isActive, self.stopped = False, True

    def end(self, error: Exception | None = None) -> None:
        self.isActive, self.error = False, error


class World:
    """A clock, and the queries that were started."""

    def __init__(self, *, ends_by_itself: bool = False) -> None:
        self.now_s = 0.0
        self.started: list[FakeQuery] = []
        self.refusals: list[Exception] = []
        policy = RetryPolicy(first_wait_ms=1_000, longest_wait_ms=4_000)
        plan = QueryPlan("replicate-b", self.start, ends_by_itself)
        self.supervisor = Supervisor([plan], policy, clock=lambda: self.now_s)

    def start(self) -> FakeQuery:
        if self.refusals:
            raise self.refusals.pop(0)
        self.started.append(FakeQuery())
        return self.started[-1]

    def seconds_until_start(self, number: int) -> float:
        """Let time pass until the query number ``number`` has started."""
        before_s = self.now_s
        while len(self.started) < number:
            self.now_s += 0.1
            self.supervisor.step()
            assert self.now_s < before_s + 60
        return self.now_s - before_s


class TestSupervisor:
    def test_a_failed_query_starts_again_after_growing_waits(self) -> None:
        world = World()
        world.seconds_until_start(1)
        waits = []
        for number in (2, 3, 4, 5):
            world.started[-1].end(RuntimeError("executor lost"))
            waits.append(world.seconds_until_start(number))
        assert 0.5 <= waits[0] <= 1.3
        assert 2.0 <= waits[3] <= 4.3
        assert world.supervisor.state()[0]["restarts"] == 4

    def test_a_query_that_ran_for_long_begins_with_the_shortest_wait_again(self) -> None:
        world = World()
        world.seconds_until_start(1)
        for number in (2, 3, 4):
            world.started[-1].end(RuntimeError("executor lost"))
            world.seconds_until_start(number)
        world.now_s += STEADY_AFTER_S + 1
        world.started[-1].end(RuntimeError("executor lost"))
        assert world.seconds_until_start(5) <= 1.3

    def test_a_cluster_that_is_away_is_waited_for(self) -> None:
        world = World()
        world.refusals = [ClusterUnavailableError("aggregate-b: no answer")] * 3
        world.seconds_until_start(1)
        assert world.supervisor.state()[0]["restarts"] == 0

    def test_any_other_refusal_is_final(self) -> None:
        world = World()
        world.refusals = [ConfigError("no such thing")]
        with pytest.raises(ConfigError):
            world.supervisor.step()

    def test_a_query_that_ends_by_itself_is_done(self) -> None:
        world = World(ends_by_itself=True)
        assert world.supervisor.step()
        world.started[0].end()
        assert not world.supervisor.step()

    def test_a_query_that_should_go_on_is_started_again_even_if_it_ended_well(self) -> None:
        world = World()
        world.seconds_until_start(1)
        world.started[0].end()
        world.seconds_until_start(2)
        assert len(world.started) == 2

    def test_queries_begin_one_after_the_other(self) -> None:
        first, second = FakeQuery(), FakeQuery()
        first.status["isTriggerActive"] = False
        started = []

        def start(query: FakeQuery) -> FakeQuery:
            started.append(query)
            return query

        supervisor = Supervisor([QueryPlan("1", lambda: start(first)), QueryPlan("2", lambda: start(second))])
        supervisor.step()
        supervisor.step()
        assert started == [first]
        first.status["isTriggerActive"] = True
        supervisor.step()
        assert started == [first, second]

    def test_stop_ends_the_run_and_then_the_queries(self) -> None:
        world = World()
        stop = threading.Event()
        world.supervisor.run(stop, each_time=stop.set)
        assert world.started[0].isActive
        world.supervisor.stop_all()
        assert world.started[0].stopped

    def test_a_long_message_is_cut_to_its_beginning(self) -> None:
        assert first_lines("why\n\n=== plan ===\nmore\nstill more") == "why\n=== plan ==="
