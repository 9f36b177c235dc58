"""The local stack with its services: memory, readiness, and what is left after their death."""

from __future__ import annotations

import http.client

from tests.support import Stack
from tests.worlds.processes import family, memory_bytes, still_running

MEMORY_BOUND_BYTES = 6 * 1024**3


def pids(stack: Stack) -> dict[str, int]:
    return {process["name"]: process["pid"] for process in stack.status()["processes"]}


def test_all_services_are_ready(stack: Stack) -> None:
    states = {process["name"]: process["state"] for process in stack.status()["processes"]}
    assert states.keys() >= {"offsetsvc-a", "offsetsvc-b", "spark"}
    assert set(states.values()) == {"ready"}
    for addresses in stack.status()["regions"].values():
        connection = http.client.HTTPConnection(addresses["rest"].removeprefix("http://"), timeout=5)
        connection.request("GET", "/readyz")
        assert connection.getresponse().status == 200
        connection.close()


def test_two_regions_with_all_services_fit_into_six_gibibytes(stack: Stack) -> None:
    resident = {name: memory_bytes(pid) for name, pid in pids(stack).items()}
    assert sum(resident.values()) < MEMORY_BOUND_BYTES, resident


def test_a_killed_spark_application_leaves_nothing_and_returns(stack: Stack) -> None:
    application = family(pids(stack)["spark"])
    assert len(application) > 1
    stack.kill("spark")
    assert not still_running(application)
    stack.start("spark")
    states = {process["name"]: process["state"] for process in stack.status()["processes"]}
    assert states["spark"] == "ready"
