"""Every mutant dies: one protection undone on purpose, and the simulation finds the harm in a bounded number of lives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from offsetsvc.resume.commits import Commits as ServiceCommits
from parallax.domain.ids import UNKNOWN_EPOCH, TopicPartition
from replicator import shard as shard_module
from replicator.copying import ledger as ledger_module
from replicator.copying import reconcile as reconcile_module
from replicator.copying import session as session_module
from replicator.copying.kept import UndoneRecords
from replicator.copying.ports import ReadFrom
from replicator.copying.state import fold
from replicator.kafka import layout as layout_module
from replicator.kafka.layout_record import LAYOUTS_TOPIC
from replicator.mapping.feed import IndexFeed
from syncjob import active, rewinds
from tests.worlds.deadly import Mutants, deadly_first, death
from tests.worlds.sim.doors import SimConnector, SimTarget
from tests.worlds.sim.kafka import OPEN, Cluster, Log
from tests.worlds.sim.run import play, problem_of
from tests.worlds.sim.world import World

SEEDS = 300

MUTANTS = Mutants()


@MUTANTS.add
def no_fencing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new owner neither ends the transaction of the one before nor keeps it from beginning others."""

    def wrong(cluster: Cluster, transactional_id: str) -> int:
        cluster._producers.setdefault(transactional_id, (0, None))
        return 0

    monkeypatch.setattr(Cluster, "initialise", wrong)


@MUTANTS.add
def watermark_outside_of_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    right = SimTarget.commit

    def wrong(target: SimTarget, entries: Any, logs: Any) -> Any:
        if target._acknowledged:
            return right(target, entries, logs)
        log = target._cluster.topics[target._run_log].logs[target._shard]
        return [log.append(entry) for entry in entries]

    monkeypatch.setattr(SimTarget, "commit", wrong)


@MUTANTS.add
def last_stable_offset_for_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    right = SimTarget.ends

    def wrong(target: SimTarget, partitions: Any, *, patient: bool = False) -> Any:
        found = right(target, partitions, patient=patient)
        logs = {item: target._cluster.topics[item.topic].logs[item.partition] for item in found}
        return {
            item: replace(end, next_offset=min(end.next_offset, logs[item].stable_end))
            for item, end in found.items()
        }

    monkeypatch.setattr(SimTarget, "ends", wrong)


@MUTANTS.add
def position_of_an_open_transaction_in_a_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The position is where reading is, not what is settled."""

    def wrong(session: session_module.ShardSession, item: TopicPartition) -> int:
        settled = session._ledger.states[item].source_next
        return max(settled, session._reading.get(item, settled))

    monkeypatch.setattr(session_module.ShardSession, "_position", wrong)
    monkeypatch.setattr(ledger_module.Ledger, "holds", lambda *_: False)


@MUTANTS.add
def source_leader_epochs_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    right = session_module.read_from

    def wrong(*arguments: Any) -> ReadFrom:
        return replace(right(*arguments), leader_epoch=UNKNOWN_EPOCH)

    monkeypatch.setattr(session_module, "read_from", wrong)


@MUTANTS.add
def lost_range_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    right = reconcile_module.lose

    def wrong(*arguments: Any) -> Any:
        return replace(right(*arguments), lost=())

    monkeypatch.setattr(reconcile_module, "lose", wrong)


@MUTANTS.add
def topic_ids_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile_module, "_ids", lambda _lineage: ("", ""))


@MUTANTS.add
def gap_in_the_feed_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IndexFeed, "note_end", lambda *_: None)


@MUTANTS.add
def no_layout_but_the_last_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a layout has left to be indexed is lost with the next change."""
    right = IndexFeed._is_due
    monkeypatch.setattr(
        IndexFeed, "_is_due", lambda feed, at, entry: entry.layout == feed._key[1] and right(feed, at, entry)
    )


@MUTANTS.add
def commit_believed_without_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner whose transaction was aborted by another one takes it for committed."""
    right = SimTarget._mine

    def wrong(target: SimTarget) -> Any:
        transaction = target._transaction
        return right(target) if transaction is None or transaction.outcome == OPEN else transaction

    monkeypatch.setattr(SimTarget, "_mine", wrong)


@MUTANTS.add
def leader_epochs_of_the_target_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the target kept is not asked for: a lost tail shows only where its end lies too low."""
    right = SimTarget.ends

    def wrong(target: SimTarget, partitions: Any, *, patient: bool = False) -> Any:
        found = right(target, partitions, patient=patient)
        return {item: replace(end, kept_to=None) for item, end in found.items()}

    monkeypatch.setattr(SimTarget, "ends", wrong)


def topic_ids_of_the_target_not_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written to a topic made anew is committed under the lineage of the one before."""
    right = SimTarget._confirm

    def wrong(target: SimTarget, logs: Any) -> None:
        topics = target._cluster.topics
        present = {
            item: replace(log, topic_id=topics[item.topic].topic_id) if item.topic in topics else log
            for item, log in logs.items()
        }
        right(target, present)

    monkeypatch.setattr(SimTarget, "_confirm", wrong)


@MUTANTS.add
def another_run_log_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run log without a snapshot, under whatever id, is taken for that of a new route."""

    def credulous(reader: Any, shard: Any, *, known_end: int = 0, unexplained: Any) -> Any:
        del shard, known_end, unexplained
        end = reader.end()
        return fold({}, [entry for _, entry in reader.read(reader.start(), end) if entry is not None]), end

    def layout(connector: SimConnector, lease: Any) -> Any:
        known = right(connector, lease)
        topic = connector._target.topics[known.run_log]
        return replace(known, run_log_id=topic.topic_id)

    right = SimConnector.layout
    monkeypatch.setattr(SimConnector, "layout", layout)
    monkeypatch.setattr(shard_module, "load_states", credulous)
    monkeypatch.setattr(shard_module._Holder, "_refuse_truncated", lambda *_: None)


DRIVER_SEEDS = range(100, 500)
"""A driver that dies within the one step that matters is rare: one life in a hundred."""


def settled_record_outside_of_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that dies in between leaves a layout that is settled, and has no snapshots."""
    right = layout_module.Writer.commit

    def wrong(writer: layout_module.Writer, records: Any) -> None:
        written = list(records)
        for settles in (True, False):
            part = [record for record in written if (record[0] == LAYOUTS_TOPIC) is settles]
            if part:
                right(writer, part)

    monkeypatch.setattr(layout_module.Writer, "commit", wrong)


def problem_beside(seed: int, *rare: str) -> str:
    """Of a life in which these rare things may happen, and no others."""
    return problem_of(World(seed, only=rare))


def driver_problem(seed: int) -> str:
    """Of a life in which the layout is changed, drivers die, and nothing else is rare."""
    return problem_beside(seed, "kill_a_driver", "resharding")


def test_whatever_becomes_of_drivers_the_layout_and_its_snapshots_are_one() -> None:
    assert not [seed for seed in DRIVER_SEEDS[:40] if driver_problem(seed)]


RECREATION_SEEDS = range(300)
"""A topic that is made anew between a survey and a commit is rare as well."""


def test_a_topic_made_anew_that_is_taken_for_the_one_before_dies(
    monkeypatch: pytest.MonkeyPatch, record_property: Callable[..., None]
) -> None:
    assert not [seed for seed in RECREATION_SEEDS[:20] if problem_beside(seed, "target_recreation")]
    topic_ids_of_the_target_not_confirmed(monkeypatch)
    problem = death(
        "topic_made_anew_taken_for_the_one_before",
        RECREATION_SEEDS,
        lambda seed: problem_beside(seed, "target_recreation"),
        record_property,
    )
    assert problem.startswith(("AssertionError", "InvariantError")), "the mutant survived"


def test_a_layout_that_is_settled_before_its_snapshots_dies(
    monkeypatch: pytest.MonkeyPatch, record_property: Callable[..., None]
) -> None:
    settled_record_outside_of_the_transaction(monkeypatch)
    name = "settled_record_outside_of_the_transaction"
    problem = death(name, DRIVER_SEEDS, driver_problem, record_property)
    assert problem.startswith("AssertionError"), f"the mutant survived {len(DRIVER_SEEDS)} lives"


LEADER_SEEDS = range(300)
LEADER_MUTANTS = Mutants()


@LEADER_MUTANTS.add
def undone_transactions_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that was committed, and that another one's marker aborts where its own is lost, counts as kept."""
    monkeypatch.setattr(UndoneRecords, "__call__", lambda *_: False)


@LEADER_MUTANTS.add
def joined_transactions_committed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has joined a transaction that was told to be committed, where its marker is lost, comes to life with it."""
    monkeypatch.setattr(Log, "goes_on", lambda *_: False)


def leader_problem(seed: int) -> str:
    """Of a life in which the target loses its tail now and then, markers among it, and nothing else is rare."""
    return problem_beside(seed, "unclean_target_election")


def test_whatever_markers_a_target_loses_nothing_is_lost_or_comes_to_life() -> None:
    assert not [seed for seed in LEADER_SEEDS[:40] if leader_problem(seed)]


@pytest.mark.parametrize("name", LEADER_MUTANTS)
def test_mutant_of_lost_markers_dies(
    name: str, monkeypatch: pytest.MonkeyPatch, record_property: Callable[..., None]
) -> None:
    LEADER_MUTANTS[name](monkeypatch)
    problem = death(name, LEADER_SEEDS, leader_problem, record_property)
    assert problem.startswith("AssertionError"), f"mutant {name} survived {len(LEADER_SEEDS)} lives"


GROUP_SEEDS = 300
GROUP_MUTANTS = Mutants()


@GROUP_MUTANTS.add
def progress_kept_after_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a group's last move left counts on, though it was set back since."""
    monkeypatch.setattr(rewinds, "_ends_progress", lambda *_: False)
    monkeypatch.setattr(rewinds, "_is_set_back", lambda *_: False)
    monkeypatch.setattr(rewinds, "_is_below_what_was_seen", lambda *_: False)
    monkeypatch.setattr(ServiceCommits, "went_back", lambda *_: False)


@GROUP_MUTANTS.add
def a_reset_undone_by_the_cluster_that_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active, "_by_setting_back", lambda *_: None)


def group_problem(seed: int) -> str:
    """Of a life in which a group is set back and deleted as well, and nothing else is rare."""
    both, kind = ("a", "b"), ("skips", "plain")[seed % 2]
    rare = ("group_reset", "group_deleted", "slow_store")
    return problem_of(World(seed, sources=both, targets=both, group=kind, only=rare))


def test_whatever_happens_a_group_that_was_set_back_reads_again() -> None:
    assert not [seed for seed in range(40) if group_problem(seed)]


@pytest.mark.parametrize("name", GROUP_MUTANTS)
def test_mutant_of_groups_dies(
    name: str, monkeypatch: pytest.MonkeyPatch, record_property: Callable[..., None]
) -> None:
    GROUP_MUTANTS[name](monkeypatch)
    problem = death(name, range(GROUP_SEEDS), group_problem, record_property)
    assert problem.startswith("AssertionError"), f"mutant {name} survived {GROUP_SEEDS} lives"


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_dies(
    name: str, monkeypatch: pytest.MonkeyPatch, record_property: Callable[..., None]
) -> None:
    MUTANTS[name](monkeypatch)
    seeds = deadly_first(name, range(SEEDS))
    dead = next((outcome for seed in seeds if (outcome := play(seed)).problem), None)
    assert dead is not None, f"mutant {name} survived {SEEDS} lives"
    record_property("seed", dead.seed)
    record_property("problem", dead.problem)
    assert dead.problem.startswith(("AssertionError", "InvariantError")), "the mutant itself is broken"
