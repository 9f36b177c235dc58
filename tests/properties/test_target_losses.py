"""The target loses the ends of its logs under a shard that copies: nothing is lost, nothing is copied twice.

An unclean leader election at a partition of the target throws away its tail; other routes, aborted transactions and
markers may fill the log up again before anybody looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest

from parallax.domain.ids import Lineage, TargetOffset, TopicPartition
from parallax.domain.runs import Run
from parallax.errors import InvariantError
from replicator.copying import reconcile
from replicator.copying.ports import TargetEnd
from replicator.copying.state import PartitionState
from tests.worlds.sim.doors import Faults, SimTarget
from tests.worlds.sim.kafka import OPEN
from tests.worlds.sim.world import TOPIC, SourceRecord, World

SEEDS = 160


@dataclass(slots=True)
class Told:
    """What became of the records of one life."""

    elections: int = 0
    missing: list[int] = field(default_factory=list)
    twice: list[int] = field(default_factory=list)


class LosingTarget(World):
    """A target that elects uncleanly, one record in a hundred steps; the source keeps what it has."""

    one_owner = False
    between_transactions = False
    others_write = True
    deepest = 4
    elections = 0

    def _elect_unclean(self) -> None: ...

    def _recreate(self) -> None: ...

    def _retain(self) -> None: ...

    def _write_from_elsewhere(self) -> None:
        if self.others_write:
            super()._write_from_elsewhere()

    def _kill_an_owner(self) -> None:
        if not self.one_owner:
            super()._kill_an_owner()

    def _pause_an_owner(self) -> None:
        if not self.one_owner:
            super()._pause_an_owner()

    def _start_an_owner(self) -> None:
        if not self.one_owner:
            super()._start_an_owner()

    def _something_happens(self) -> None:
        super()._something_happens()
        topic = self.target.topics.get(TOPIC)
        if topic is None or self.schedule.calm or self.random.random() > 0.01:
            return
        log = self.random.choice(topic.logs)
        busy = any(slot.transaction and slot.transaction.outcome == OPEN for slot in log.slots)
        cut = self.random.randint(max(log.start, log.end - self.deepest), log.end)
        if not (self.between_transactions and busy):
            self.elections += 1
            log.elect_unclean(cut)

    def told(self) -> Told:
        copies = Counter(
            slot.value.serial
            for log in self.target.topics[TOPIC].logs
            for slot in log.committed()
            if isinstance(slot.value, SourceRecord)
        )
        wanted = [
            record.serial
            for record in self.records
            if (of := self.aborted.get(record.serial)) is None or of.outcome == "committed"
        ]
        return Told(
            self.elections,
            [serial for serial in wanted if not copies[serial] and not self._was_gone(serial)],
            [serial for serial, count in copies.items() if count > 1],
        )

    def _was_gone(self, serial: int) -> bool:
        """Whether the source's log began above it when the world did."""
        record = self.records[serial]
        return record.offset < self.source.topics[TOPIC].logs[record.partition].start


def live(seed: int, faults: Faults | None = None, **how: int) -> Told:
    world = LosingTarget(seed, faults)
    for name, value in how.items():
        setattr(world, name, value)
    world.live(400)
    return world.told()


def lives(seeds: Iterable[int], **how: int) -> Told:
    total = Told()
    for seed in seeds:
        told = live(seed, **how)
        assert not told.missing, f"seed {seed}: {told.missing} are missing for ever"
        assert not told.twice, f"seed {seed}: {told.twice} were copied twice"
        total.elections += told.elections
    return total


@pytest.mark.parametrize("one_owner", [False, True])
@pytest.mark.parametrize("between_transactions", [False, True])
@pytest.mark.parametrize("others_write", [False, True])
def test_what_a_target_has_lost_is_copied_again_once(
    one_owner: bool,  # noqa: FBT001 - parametrised
    between_transactions: bool,  # noqa: FBT001 - parametrised
    others_write: bool,  # noqa: FBT001 - parametrised
) -> None:
    told = lives(
        range(SEEDS // 8),
        one_owner=one_owner,
        between_transactions=between_transactions,
        others_write=others_write,
    )
    assert told.elections > 0


def test_a_loss_below_where_the_present_generation_began_is_found_in_an_earlier_one() -> None:
    assert lives(range(SEEDS // 4), deepest=20).elections > 0


# --- mutants: each undoes a part, and a life shows it


def first_loss(seeds: Iterable[int], **how: int) -> int | None:
    for seed in seeds:
        try:
            told = live(seed, **how)
        except (AssertionError, InvariantError):
            return seed
        if told.missing or told.twice:
            return seed
    return None


def test_a_target_known_by_its_end_alone_loses_records(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_the_end(end: TargetEnd, target_floor: TargetOffset, leader_epoch: int) -> TargetOffset:
        del leader_epoch
        return min(end.next_offset, target_floor)

    monkeypatch.setattr(TargetEnd, "has_kept", by_the_end)
    assert first_loss(range(SEEDS)) is not None


def test_a_transaction_committed_under_another_leader_loses_records(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = SimTarget.commit
    monkeypatch.setattr(SimTarget, "commit", lambda target, entry, _epochs: commit(target, entry, {}))
    assert first_loss(range(SEEDS)) is not None


def test_going_back_in_the_present_generation_alone_loses_records(monkeypatch: pytest.MonkeyPatch) -> None:
    search = reconcile.cut_by_target

    def present_only(
        state: PartitionState, kept_to: TargetOffset, history: reconcile.RunHistory
    ) -> reconcile.Beginning:
        def rows(item: TopicPartition, lineage: Lineage) -> list[tuple[PartitionState, Run]]:
            return [(at, row) for at, row in history(item, lineage) if at.lineage == lineage]

        return search(replace(state, target_first=min(state.target_first, kept_to)), kept_to, rows)

    monkeypatch.setattr(reconcile, "cut_by_target", present_only)
    assert first_loss(range(SEEDS), deepest=20) is not None
