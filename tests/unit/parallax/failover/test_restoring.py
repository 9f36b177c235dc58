"""What a cluster that comes back still lacks: told by route and partition, and waited for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
from rich.console import Console

from parallax.cli.restore import show, values_of
from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    RegionName,
    Route,
    SourceOffset,
    TopicId,
    aggregate_cluster,
    region_of,
)
from parallax.errors import ClusterUnavailableError, DeadlineError, RefusedError, UnknownRegionError
from parallax.failover.restoring import Coming, Restoring, all_is_there
from parallax.failover.timekeeper import StoppedError, Timekeeper
from parallax.ports.clusters import ClusterReader
from tests.worlds.offset_world import TOPIC
from tests.worlds.own_world import OwnWorld, Slot

X, Y = RegionName("x"), RegionName("y")


class Returned:
    """x was away, and producers wrote to y meanwhile; whatever happens while somebody waits is the test's."""

    def __init__(self, graph: str = "two-way") -> None:
        self.world = OwnWorld(0, graph, told=True)
        self.while_waiting: Callable[[], object] = lambda: None
        self.now_s = 0.0
        self.time = Timekeeper(lambda: 0, wait=self._wait, clock=lambda: self.now_s)
        self.restoring = Restoring(
            self.world.config,
            lambda cluster: cast("ClusterReader", self.world.clusters[aggregate_cluster(region_of(cluster))]),
            self.world.index,
            self.time,
        )

    def _wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.while_waiting()

    def produce(self, region: str, count: int) -> None:
        log = self.world.log(aggregate_cluster(RegionName(region)))
        log.slots += [Slot((region, number), log.epoch, produced=True) for number in range(count)]
        self.world._set_ends()

    def copy(self, route: str, most: int = 10**6) -> None:
        (copier,) = (item for item in self.world.copiers if str(item.item.route) == route)
        self.world.draw.seed(1)  # nobody writes in between
        self.world._copy(copier, most)
        self.world._watermark(copier)
        self.world._tell(everything=True)
        self.world._set_ends()

    def left(self) -> list[Coming]:
        return self.restoring.left(self.restoring.routes(X))

    def wait(self, items: list[Coming]) -> list[Coming]:
        return self.restoring.wait(items, lambda _items: None, patience_ms=5_000)


def test_what_was_produced_meanwhile_is_left_until_it_is_copied() -> None:
    returned = Returned()
    returned.produce("x", 5)
    returned.copy("x->y")
    returned.produce("y", 4)
    (item,) = returned.left()
    assert (str(item.route), item.position, item.offsets) == (
        "y->x",
        0,
        10,
    )  # five copies, a marker, four own records
    returned.copy("y->x", 8)
    (item,) = returned.left()
    assert item.offsets == 2
    assert values_of("x", [item])["offsets_left"] == 2
    returned.copy("y->x")
    (item,) = returned.left()
    assert item.offsets == 0


def test_it_waits_for_the_end_of_its_beginning_and_can_be_begun_again() -> None:
    returned = Returned()
    returned.produce("y", 4)
    items = returned.left()
    returned.time.stop.set()
    with pytest.raises(StoppedError):
        returned.wait(items)
    returned.time.stop.clear()

    def one_comes_and_two_are_written() -> None:
        returned.copy("y->x", 1)
        returned.produce("y", 2)

    returned.while_waiting = one_comes_and_two_are_written
    (item,) = returned.wait(returned.left())
    assert (item.end, item.offsets, returned.now_s) == (4, 0, 4.0)
    (item,) = returned.left()
    assert item.offsets == 8


def test_where_nothing_comes_it_says_where_to_look() -> None:
    returned = Returned()
    returned.produce("y", 4)
    with pytest.raises(DeadlineError, match=r"nothing came by y->x for 5 s, and 4 offsets are left"):
        returned.wait(returned.left())


def test_without_a_route_back_it_says_which_one_to_add() -> None:
    standby = Returned("standby that nobody writes to")
    with pytest.raises(RefusedError, match="add 'y->x' to 'routes', make the region a 'cluster'"):
        standby.restoring.routes(X, Y)
    with pytest.raises(RefusedError, match="no route leads from another region to x"):
        standby.restoring.routes(X)
    with pytest.raises(UnknownRegionError):
        standby.restoring.routes(RegionName("z"))


def test_retention_at_the_source_and_a_topic_created_anew_count_from_where_they_begin() -> None:
    returned = Returned()
    returned.produce("y", 6)
    returned.copy("y->x")
    returned.world.log(aggregate_cluster(Y)).low = 2
    returned.world._set_ends()
    infos = returned.world.clusters[aggregate_cluster(Y)].infos
    assert [item.offsets for item in returned.left()] == [0]
    for name, info in list(infos.items()):
        infos[name] = type(info)(info.topic, type(info.topic_id)("another"), info.partitions)
    assert [item.offsets for item in returned.left()] == [4]


def test_what_the_cluster_has_lost_is_left_again() -> None:
    """What an earlier incarnation or lineage of the copy had tells nothing of what is there now."""
    returned = Returned()
    returned.produce("y", 6)
    returned.copy("y->x")
    (copier,) = (item for item in returned.world.copiers if str(item.item.route) == "y->x")
    assert [item.offsets for item in returned.left()] == [0]
    del returned.world.log(aggregate_cluster(X)).slots[4:]
    returned.world._begin_again(copier, 4, lost_epoch=1)
    returned.world._tell(everything=True)
    assert [item.offsets for item in returned.left()] == [2]

    infos = returned.world.clusters[aggregate_cluster(X)].infos
    ((name, info),) = infos.items()
    infos.clear()  # it has come back empty, and its replicator has not begun
    assert [item.offsets for item in returned.left()] == [6]
    infos[name] = type(info)(name, TopicId("made anew"), info.partitions)
    assert [item.offsets for item in returned.left()] == [6]
    returned.world.log(aggregate_cluster(X)).slots.clear()
    copier.lineage = copier.lineage._replace(target_topic_id=TopicId("made anew"))
    returned.world._begin_again(copier, 0, UNKNOWN_EPOCH)
    returned.copy("y->x", 5)
    assert [item.offsets for item in returned.left()] == [1]


def test_a_lineage_without_rows_has_come_to_where_it_began() -> None:
    returned = Returned()
    returned.produce("y", 6)
    returned.copy("y->x")
    (record,) = returned.world.index.lineages(Route(Y, X), TOPIC)
    anew = record.lineage._replace(generation=1)
    later = replace(
        record, lineage=anew, sequence=1, source_first=SourceOffset(4), version=record.version + 1
    )
    returned.world.index.write_lineages([later])
    assert [item.offsets for item in returned.left()] == [2]


def test_a_cluster_that_loses_what_it_had_while_it_is_waited_for_is_not_complete() -> None:
    returned = Returned()
    returned.produce("y", 4)
    returned.copy("y->x", 3)
    infos = returned.world.clusters[aggregate_cluster(X)].infos
    returned.while_waiting = infos.clear
    with pytest.raises(DeadlineError, match="4 offsets are left"):
        returned.wait(returned.left())


def test_a_partition_without_a_leader_is_not_known_to_be_there() -> None:
    returned = Returned()
    returned.produce("y", 4)
    returned.copy("y->x", 1)
    ranges = returned.world.clusters[aggregate_cluster(Y)].ranges
    leader = dict(ranges)
    ranges.clear()
    items = returned.left()
    assert [(item.end, item.offsets) for item in items] == [(None, None)]
    assert not all_is_there(items)
    values = values_of("x", items)
    assert (values["offsets_left"], values["unknown_partitions"]) == (0, 1)
    assert values["partitions"][0]["offsets_left"] is None
    out = Console(record=True, width=160)
    show("x", items, out)
    text = out.export_text()
    assert "everything" not in text
    assert f"not known is what is left of {TOPIC}-0 of y: no leader" in text
    with pytest.raises(DeadlineError, match=rf"{TOPIC}-0 of y has no leader that tells how much it holds"):
        returned.wait(items)

    returned.while_waiting = lambda: ranges.update(leader)
    with pytest.raises(DeadlineError, match="3 offsets are left: does the replicator"):
        returned.wait(items)

    def elected_and_copied() -> None:
        ranges.update(leader)
        returned.copy("y->x", 1)

    returned.while_waiting = elected_and_copied
    assert all_is_there(returned.wait(items))


def test_a_cluster_that_is_away_for_a_moment_is_waited_for() -> None:
    returned = Returned()
    returned.produce("y", 4)
    items = returned.left()
    target = returned.world.clusters[aggregate_cluster(X)]
    looks = iter((True, True, False))

    def away_at_first() -> None:
        target.away = next(looks, False)
        returned.copy("y->x", 2)

    returned.while_waiting = away_at_first
    assert all_is_there(returned.wait(items))
    target.away = True
    with pytest.raises(ClusterUnavailableError):
        returned.left()
    returned.while_waiting = lambda: None
    with pytest.raises(DeadlineError, match=r"Run this again then: \[CLUSTER_UNAVAILABLE\] aggregate-x"):
        returned.wait(items)


def test_people_read_it_by_topic() -> None:
    returned = Returned()
    returned.produce("y", 4)
    out = Console(record=True, width=120)
    show("x", returned.left(), out)
    returned.copy("y->x")
    show("x", returned.left(), out)
    text = out.export_text()
    assert "not yet at x" in text
    assert "deletes nothing" in text
    assert "x: everything is at aggregate-x" in text
