"""An active/active application: every region computes the same, and the holder of the fencing number publishes it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from parallax.domain.ids import RegionName
from tests.support import poll_until
from tests.worlds.live import Live
from tests.worlds.live_clients import Member
from tests.worlds.live_judgement import Record, check_once, wait_for

KEYS = 7
_LOOK_EVERY_S = 0.02


def key_of(record: Record) -> int:
    """The key that a record counts for."""
    return record[1] % KEYS


class Published(NamedTuple):
    """One result as it went out: so many records with this key."""

    key: int
    count: int
    region: str
    number: int


class StaleNumberError(Exception):
    """Somebody with a higher fencing number has taken over."""


class Outlet:
    """What results are published into. As it must (docs/decisions/0009), it refuses lower numbers than it has seen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._highest = 0
        self.published: list[Published] = []

    def take_over(self, number: int) -> Counter[int]:
        """Refuse lower numbers from now on; the highest count published so far, by key.

        Raises:
            StaleNumberError: a higher one has taken over.
        """
        with self._lock:
            self._admit(number)
            found: Counter[int] = Counter()
            for item in self.published:
                found[item.key] = max(found[item.key], item.count)
            return found

    def publish(self, item: Published) -> None:
        """Let a result out.

        Raises:
            StaleNumberError: as `take_over`.
        """
        with self._lock:
            self._admit(item.number)
            self.published.append(item)

    def _admit(self, number: int) -> None:
        if number < self._highest:
            raise StaleNumberError
        self._highest = number

    def faults(self) -> list[tuple[int, list[int]]]:
        """Keys of which a count is missing, came twice or came out of order, with their counts."""
        by_key: dict[int, list[int]] = {}
        for item in self.published:
            by_key.setdefault(item.key, []).append(item.count)
        return [(key, found) for key, found in by_key.items() if found != list(range(1, len(found) + 1))]


class Publisher:
    """One region's instance: counts records by key, publishes each count while its region holds the number.

    Args:
        member: reads the region's aggregate cluster.
        region: the region.
        outlet: where results go.
    """

    def __init__(self, member: Member, region: str, outlet: Outlet) -> None:
        self.counts: Counter[int] = Counter()
        self.refused = 0
        self._member = member
        self._region = RegionName(region)
        self._outlet = outlet
        self._number = 0
        self._published: Counter[int] = Counter()
        self._counted = 0
        self._held = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def hold(self) -> None:
        """Publish nothing for a while, as a process that hangs; it goes on counting."""
        self._held.set()

    def go_on(self) -> None:
        """Publish again."""
        self._held.clear()

    def close(self) -> None:
        """End."""
        self._ended.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_EVERY_S):
            new = self._member.delivered[self._counted :]
            self.counts.update(key_of(record) for record in new)
            self._counted += len(new)
            primary = self._member.consumer.primary
            if not self._held.is_set() and primary is not None and primary.is_primary(self._region):
                self._publish(primary.decision.fencing_number)

    def _publish(self, number: int) -> None:
        try:
            if number != self._number:
                self._published = self._outlet.take_over(number)
                self._number = number
            for key, count in self.counts.items():
                for next_count in range(self._published[key] + 1, count + 1):
                    self._outlet.publish(Published(key, next_count, self._region, number))
                    self._published[key] = next_count
        except StaleNumberError:
            self.refused += 1


class Application:
    """The instances of all regions, and the outlet of their results.

    Args:
        live: the world.
        group: an active/active group.
        services: by region, whose offset services its instance knows, the first one first.
    """

    def __init__(self, live: Live, group: str, services: Mapping[str, str]) -> None:
        self.outlet = Outlet()
        self._live = live
        self._group = group
        self._members = {
            region: Member(live, group, region, services=known) for region, known in services.items()
        }
        self.publishers = {
            region: Publisher(member, live.names[region], self.outlet)
            for region, member in self._members.items()
        }

    def wait_for_commits(self, region: str, acknowledged: Mapping[str, int]) -> None:
        """Wait until the region's instance has had every record, and its cluster knows it.

        What it had after its last commit comes again when its cluster has been away for longer than its session.
        """
        member = self._members[region]
        wait_for([member], acknowledged)

        def known() -> bool:
            committed = self._live.committed(self._group, region)
            return all(committed.get(place, 0) >= offset for place, offset in member.next_offsets.items())

        poll_until(known, 30, "commits of all that was delivered")

    def wait_for_results(self, region: str) -> None:
        """Wait until the region publishes."""
        name = self._live.names[region]
        poll_until(
            lambda: bool(self.outlet.published) and self.outlet.published[-1].region == name,
            30,
            f"results of {region}",
        )

    def check(self, acknowledged: Mapping[str, int], holders: str) -> None:
        """Every region has computed the same, and each result went out once.

        Args:
            acknowledged: how many records each stream has.
            holders: the regions that held the number, one after the other.
        """
        for member in self._members.values():
            check_once([member], acknowledged)
        wanted = Counter(key_of((stream, n)) for stream, end in acknowledged.items() for n in range(end))
        states = [publisher.counts for publisher in self.publishers.values()]
        poll_until(lambda: all(state == wanted for state in states), 30, "equal counts")
        poll_until(lambda: len(self.outlet.published) >= wanted.total(), 30, "every result")
        assert self.outlet.faults() == []
        assert len(self.outlet.published) == wanted.total()
        numbers = sorted({(item.number, item.region) for item in self.outlet.published})
        assert [region for _, region in numbers] == [self._live.names[region] for region in holders]

    def close(self) -> None:
        """End."""
        for publisher in self.publishers.values():
            publisher.close()
        for member in self._members.values():
            member.close()
