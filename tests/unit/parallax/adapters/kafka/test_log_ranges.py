"""Log ranges asked for together: whoever asks about a topic next finds his answer there already."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from parallax.adapters.kafka import cluster as module
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.config.config import Cluster
from parallax.domain.ids import ClusterName, TargetOffset, TopicName, TopicPartition
from parallax.domain.place import LogRange
from parallax.errors import ClusterUnavailableError

TRIPS = [TopicPartition(TopicName("trips"), number) for number in range(4)]
OTHER = TopicPartition(TopicName("other"), 0)


class Brokers:
    """What is asked of them, with a clock that a test sets; ``meanwhile`` runs while they answer."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.asked: list[set[TopicPartition]] = []
        self.leaderless: set[TopicPartition] = set()
        self.left_out: set[TopicPartition] = set()
        self.meanwhile: Callable[[], object] = lambda: None

    def do(self, ask: Callable[[Any], Any]) -> Any:
        return ask(self)

    def answer(self, items: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        assert len(set(items)) == len(items)
        self.asked.append(set(items))
        if self.leaderless.intersection(items):
            raise ClusterUnavailableError("a leader is away")
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return {item: self.range_now() for item in items if item.partition < 3 and item not in self.left_out}

    def range_now(self) -> LogRange:
        """The end tells when it was asked for."""
        return LogRange(TargetOffset(0), TargetOffset(int(self.now_s * 1_000)))


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    found = Brokers()
    monkeypatch.setattr(module, "Links", lambda *_args, **_kwargs: found)
    monkeypatch.setattr(module, "read_log_ranges", lambda link, items, **_how: link.answer(items))
    return found


def reader(brokers: Brokers, cache_ms: int = 200) -> KafkaCluster:
    return KafkaCluster(
        ClusterName("aggregate-a"),
        Cluster(bootstrap_servers="127.0.0.1:1"),
        timeout_ms=1_000,
        cache_ms=cache_ms,
        clock=lambda: brokers.now_s,
    )


def test_what_was_wanted_lately_is_asked_for_with_the_next_one_of_its_topic(brokers: Brokers) -> None:
    cluster = reader(brokers)
    for partition in (TRIPS[0], TRIPS[1], OTHER):
        cluster.log_ranges([partition])
    brokers.now_s += 0.3
    assert cluster.log_ranges([TRIPS[2]]) == {TRIPS[2]: brokers.range_now()}
    assert brokers.asked[3:] == [{TRIPS[0], TRIPS[1], TRIPS[2]}]
    at_s = brokers.now_s
    brokers.now_s += 0.1
    assert cluster.log_ranges(TRIPS[:2])[TRIPS[1]].high_watermark == int(at_s * 1_000)
    assert len(brokers.asked) == 4


@pytest.mark.parametrize("fresh", [True, False])
def test_one_that_is_named_twice_is_asked_for_once(brokers: Brokers, *, fresh: bool) -> None:
    """A broker refuses a request that names a partition twice, and the whole cluster would be taken for away."""
    assert reader(brokers).log_ranges([TRIPS[0], TRIPS[1], TRIPS[0]], fresh=fresh).keys() == set(TRIPS[:2])


def test_what_nobody_wants_any_more_is_left_alone(brokers: Brokers) -> None:
    cluster = reader(brokers)
    for _ in range(4):
        cluster.log_ranges([TRIPS[0]])
        brokers.now_s += 0.9
    # Being asked for together with another one does not count as being wanted.
    cluster.log_ranges([TRIPS[1]])
    for _ in range(4):
        brokers.now_s += 0.9
        cluster.log_ranges([TRIPS[1]])
    assert {TRIPS[0], TRIPS[1]} in brokers.asked
    assert brokers.asked[-1] == {TRIPS[1]}


def test_whoever_needs_the_end_of_now_is_not_answered_from_memory(brokers: Brokers) -> None:
    cluster = reader(brokers)
    cluster.log_ranges(TRIPS[:2])
    brokers.now_s += 0.1
    assert cluster.log_ranges([TRIPS[0]]) != {TRIPS[0]: brokers.range_now()}
    assert cluster.log_ranges([TRIPS[0]], fresh=True) == {TRIPS[0]: brokers.range_now()}
    assert cluster.log_ranges([TRIPS[0]]) == {TRIPS[0]: brokers.range_now()}
    assert brokers.asked == [set(TRIPS[:2]), {TRIPS[0]}]


def test_partitions_that_do_not_exist_are_left_out(brokers: Brokers) -> None:
    cluster = reader(brokers)
    assert set(cluster.log_ranges(TRIPS)) == set(TRIPS[:3])
    assert cluster.log_ranges([TRIPS[3]]) == {}


def test_while_one_asks_for_many_another_asks_for_his_own(brokers: Brokers) -> None:
    cluster = reader(brokers)
    before = cluster.log_ranges([TRIPS[0]])
    brokers.now_s += 0.3
    found: list[Mapping[TopicPartition, LogRange]] = []
    brokers.meanwhile = lambda: found.append(cluster.log_ranges(TRIPS[:2]))
    now = cluster.log_ranges([TRIPS[0]])
    assert now != before
    # An older end would be taken for the end of what the group can have read.
    assert found == [dict.fromkeys(TRIPS[:2], brokers.range_now())]
    assert brokers.asked == [{TRIPS[0]}, {TRIPS[0]}, {TRIPS[0], TRIPS[1]}]


def test_a_partition_whose_leader_is_away_fails_nobody_who_did_not_ask_for_it(brokers: Brokers) -> None:
    cluster = reader(brokers)
    for partition in TRIPS[:2]:
        cluster.log_ranges([partition])
    brokers.leaderless = {TRIPS[0]}
    for _ in range(3):
        brokers.now_s += 0.3
        assert cluster.log_ranges([TRIPS[1]]) == {TRIPS[1]: brokers.range_now()}
    # It was tried once with the other one, and then left to those who want it.
    assert brokers.asked[2:] == [{TRIPS[0], TRIPS[1]}, {TRIPS[1]}, {TRIPS[1]}, {TRIPS[1]}]
    with pytest.raises(ClusterUnavailableError):
        cluster.log_ranges([TRIPS[0]])


def test_a_partition_that_gets_no_leader_holds_up_others_once(brokers: Brokers) -> None:
    cluster = reader(brokers)
    for partition in TRIPS[:2]:
        cluster.log_ranges([partition])
    brokers.left_out = {TRIPS[0]}
    for _ in range(2):
        brokers.now_s += 0.3
        assert cluster.log_ranges([TRIPS[1]]) == {TRIPS[1]: brokers.range_now()}
    assert brokers.asked[2:] == [{TRIPS[0], TRIPS[1]}, {TRIPS[1]}]


def test_without_a_memory_each_call_asks_for_its_own(brokers: Brokers) -> None:
    cluster = reader(brokers, cache_ms=0)
    for _ in range(2):
        cluster.log_ranges([TRIPS[0]])
        cluster.log_ranges([TRIPS[1]])
    assert brokers.asked == [{TRIPS[0]}, {TRIPS[1]}] * 2


def test_a_cluster_that_did_not_answer_is_not_held_by_its_own_failure() -> None:
    """Else its connections would stay until the collector looks at objects as old as it is."""

    class Away:
        def do(self, _ask: Callable[[Any], Any]) -> Any:
            raise ClusterUnavailableError("no broker answers")

    some = KafkaCluster(ClusterName("aggregate-a"), Cluster(bootstrap_servers="unused:1"), timeout_ms=1_000)
    some._links = Away()  # type: ignore[assignment] # all of it that is used
    gone = weakref.ref(some)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(ClusterUnavailableError):
            some.topics()
        del some
        gc.collect(0)  # what the call itself has left
        assert gone() is None
    finally:
        gc.enable()
