"""What can happen in a simulated world, how often, and what is left out for now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.worlds.sim.group import GroupLife
    from tests.worlds.sim.world import World

_HOUR_MS = 3_600_000
_STEPS_MS = (_HOUR_MS, -_HOUR_MS, 15 * 24 * _HOUR_MS, -15 * 24 * _HOUR_MS)
_MOST_OWNERS_PER_ROUTE = 3


@dataclass(frozen=True, slots=True)
class Action:
    """Something that happens.

    Attributes:
        do: does it, and says what it was; empty: nothing came of it.
        rare: takes part in half of the worlds only, so that it meets others in every combination.
    """

    name: str
    weight: float
    do: Callable[[World], str]
    rare: bool = True


BOTH_LOST = "run_log_loss_beside_unclean_target_election"
SWITCHED_OFF: dict[str, str] = {
    BOTH_LOST: "what a target has kept is told by entries that are lost, too",
    "run_log_cut": "rows of entries that are lost reach the index when the next owner has read where the run log ends",
}
"""Actions that take no part, by name, each with the reason."""


NOT_WITH_GROUPS = frozenset(
    {"target_retention", "unclean_target_election", "target_recreation", "run_log_deleted"}
)
"""Actions for which the group would have to behave as a consumer whose log changes under it."""


def chosen_actions(
    random: Random, apart: Random, only: Sequence[str] | None, *, with_group: bool
) -> list[Action]:
    """Those that take part in a world; ``only`` names the rare ones among them. Whether newer ones do is drawn apart."""
    found = [action for action in ONLY_BY_NAME if only is not None and action.name in only]
    found += [item for item in APART if (apart.random() < 0.5 if only is None else item.name in only)]
    for action in (*ACTIONS, *(GROUP_ACTIONS if with_group else ())):
        drawn = random.random() < 0.5
        if with_group and action.name in NOT_WITH_GROUPS:
            continue
        if action.rare and (action.name not in only if only is not None else not drawn):
            continue
        if action.name in SWITCHED_OFF and (only is None or action.name not in only):
            continue
        found.append(action)
    return found


# --- processes ---------------------------------------------------------------------------------------------------


def _pause_an_owner(world: World) -> str:
    owners = world.owners()
    if not owners:
        return ""
    owner, pause_ms = world.random.choice(owners), world.random.choice((200, 2_000))
    owner.actor.asleep_until = world.schedule.now_ms + pause_ms
    return f"{owner.lease} for {pause_ms} ms"


def _pause_a_process(world: World) -> str:
    """Whichever it is, also one that is changing the layout or filling the index."""
    alive = [actor for actor in world.schedule.actors if not actor.over]
    actor, pause_ms = world.random.choice(alive), world.random.choice((200, 2_000))
    actor.asleep_until = world.schedule.now_ms + pause_ms
    return f"{actor.name} for {pause_ms} ms"


def _kill_an_owner(world: World) -> str:
    owners = world.owners()
    if not owners:
        return ""
    owner = world.random.choice(owners)
    owner.actor.doomed = True
    return str(owner.lease)


def _kill_a_driver(world: World) -> str:
    """Whatever it was about to do to the layout; half of the time its host is gone, with every lease that is held there."""
    drivers = [(life, actor) for life in world.lives for actor in life.drivers()]
    if not drivers:
        return ""
    life, driver = world.random.choice(drivers)
    driver.doomed = True
    if world.random.random() < 0.5:
        return driver.name
    for owner in life.owners:
        owner.actor.doomed = True
    return f"{driver.name}, with its host"


def _start_an_owner(world: World) -> str:
    life = world.random.choice(world.lives)
    layout = life.layout()
    if layout is None or not layout.settled:
        life.plan(life.shards if layout is None else layout.shards)
        return f"a driver of {life.route}"
    if layout.previous_shards and world.random.random() < 0.2:
        layout = life.stale_layout(layout)
    shard = world.random.randrange(layout.shards)
    if sum(owner.lease.shard == shard for owner in life.owners if not owner.over) >= 2:
        return ""
    life.own(layout, shard)
    return f"{life.route} shard {shard}"


def _step_a_clock(world: World) -> str:
    owners = world.owners()
    if not owners:
        return ""
    owner, step_ms = world.random.choice(owners), world.random.choice(_STEPS_MS)
    owner.clock.stepped_ms += step_ms
    return f"{owner.lease} by {step_ms / _HOUR_MS:+.0f} h"


def _reshard(world: World) -> str:
    life = world.random.choice(world.lives)
    shards = world.random.choice((1, 2, 3))
    life.plan(shards)
    return f"{life.route} into {shards}"


def _slow_store(world: World) -> str:
    for_ms = world.random.choice((500, 3_000, 10_000))
    world.index.away_until_ms = world.schedule.now_ms + for_ms
    return f"away for {for_ms} ms"


# --- run logs ----------------------------------------------------------------------------------------------------


def _delete_run_log(world: World) -> str:
    life = world.random.choice(world.lives)
    topic = life.aggregate.cluster.topics.get(life.run_log)
    if topic is None or (life.aggregate.has_lost_a_tail and BOTH_LOST in SWITCHED_OFF):
        return ""
    life.harm_run_log({log: (log.start, log.end) for log in topic.logs})
    del life.aggregate.cluster.topics[life.run_log]
    life.aggregate.cluster.create(life.run_log, len(topic.logs))
    return f"{life.run_log} deleted and created again"


def _cut_run_log(world: World) -> str:
    life = world.random.choice(world.lives)
    topic = life.aggregate.cluster.topics.get(life.run_log)
    if topic is None:
        return ""
    log = world.random.choice(topic.logs)
    end, cut = log.end, world.random.randint(max(log.start, log.end - 6), log.end)
    life.harm_run_log({log: (cut, end)})
    log.elect_unclean(cut)
    return f"{life.run_log}: {end} -> {cut}"


def _trim_run_log(world: World) -> str:
    life = world.random.choice(world.lives)
    topic = life.aggregate.cluster.topics.get(life.run_log)
    if topic is None or (life.aggregate.has_lost_a_tail and BOTH_LOST in SWITCHED_OFF):
        return ""
    log = world.random.choice(topic.logs)
    start = world.random.randint(log.start, log.stable_end)
    life.harm_run_log({log: (log.start, start)})
    log.retain_from(start)
    return f"{life.run_log} begins at {start} of {log.end}"


def _rebuild_run_log(world: World) -> str:
    """Mostly of a route that stands still: of others it finds nothing to do."""
    life = world.random.choice(world.lives)
    if not life.refused and world.random.random() < 0.8:
        return ""
    anew = world.random.random() < 0.2
    life.rebuild(anew=anew)
    return f"{life.route}{', beginning anew' if anew else ''}"


def _elect_target_unclean(world: World) -> str:
    if BOTH_LOST in SWITCHED_OFF and any(life.run_log_harmed for life in world.lives):
        return ""
    return world.random.choice(world.aggregates).elect_unclean()


def _freeze_target(world: World) -> str:
    """Mostly for less than clients wait: what was under way is done, and answered late."""
    aggregate, for_ms = world.random.choice(world.aggregates), world.random.choice((500, 5_000))
    aggregate.cluster.frozen_until_ms = world.schedule.now_ms + for_ms
    return f"{aggregate.region} for {for_ms} ms"


def _leave_markers_out(world: World) -> str:
    """Sooner or later; once in the life of a cluster, for two that hang of one producer can't be told apart."""
    aggregate = world.random.choice(world.aggregates)
    if aggregate.has_forgotten:
        return ""
    aggregate.has_forgotten = True
    aggregate.cluster.dies_in = world.random.choice((0, 2, 5, 10, 20))
    aggregate.cluster.leaves_out = lambda: world.random.random() < 0.6
    return f"{aggregate.region}: of decision {aggregate.cluster.dies_in} from now"


ONLY_BY_NAME = (Action("markers_left_out", 8, _leave_markers_out),)
"""Takes part in worlds that name it: others go on as they were when it was added."""

APART = (Action("target_frozen", 1, _freeze_target),)
"""Take part in half of the worlds as other rare ones do; those without them go on as they were when these were added."""

ACTIONS = (
    Action("produce", 40, lambda world: world.random.choice(world.regionals).produce(), rare=False),
    Action(
        "begin_transaction",
        12,
        lambda world: world.random.choice(world.regionals).begin_transaction(),
        rare=False,
    ),
    Action(
        "end_transaction",
        12,
        lambda world: world.random.choice(world.regionals).end_transaction(),
        rare=False,
    ),
    Action(
        "write_from_elsewhere",
        12,
        lambda world: world.random.choice(world.aggregates).write_from_elsewhere(),
        rare=False,
    ),
    Action(
        "lose_connection", 3, lambda world: world.random.choice(world.regionals).lose_connection(), rare=False
    ),
    Action("pause_an_owner", 4, _pause_an_owner, rare=False),
    Action("kill_an_owner", 3, _kill_an_owner, rare=False),
    Action("kill_a_driver", 2, _kill_a_driver),
    Action("start_an_owner", 4, _start_an_owner, rare=False),
    Action("pause_a_process", 3, _pause_a_process),
    Action("source_retention", 2, lambda world: world.random.choice(world.regionals).retain()),
    Action("source_election", 2, lambda world: world.random.choice(world.regionals).elect()),
    Action("unclean_source_election", 2, lambda world: world.random.choice(world.regionals).elect_unclean()),
    Action("source_recreation", 1, lambda world: world.random.choice(world.regionals).recreate()),
    Action("target_retention", 1, lambda world: world.random.choice(world.aggregates).retain()),
    Action("target_election", 2, lambda world: world.random.choice(world.aggregates).elect()),
    Action("unclean_target_election", 2, _elect_target_unclean),
    Action("target_recreation", 1, lambda world: world.random.choice(world.aggregates).recreate()),
    Action("clock_step", 2, _step_a_clock),
    Action("slow_store", 1, _slow_store),
    Action("resharding", 1.5, _reshard),
    Action("run_log_deleted", 0.5, _delete_run_log),
    Action("run_log_cut", 0.5, _cut_run_log),
    Action("run_log_trimmed", 1, _trim_run_log),
    Action("run_log_rebuilt", 3, _rebuild_run_log),
)
"""Everything that can happen; a weight is relative to the others that take part."""


# --- groups ------------------------------------------------------------------------------------------------------


def _of_group(method: Callable[[GroupLife], str]) -> Callable[[World], str]:
    def do(world: World) -> str:
        assert world.group is not None
        return method(world.group)

    return do


GROUP_ACTIONS = (
    Action("group_consumes", 30, _of_group(lambda group: group.consume()), rare=False),
    Action("group_commits", 15, _of_group(lambda group: group.commit()), rare=False),
    Action("group_moves", 8, _of_group(lambda group: group.move()), rare=False),
    Action("group_learns", 8, _of_group(lambda group: group.refresh()), rare=False),
    Action("sync_cycle", 15, _of_group(lambda group: group.sync()), rare=False),
    Action("group_begins_anew", 4, _of_group(lambda group: group.restart())),
    Action("group_deleted", 2, _of_group(lambda group: group.delete())),
    Action("group_reset", 2, _of_group(lambda group: group.reset())),
    Action(
        "service_clock_step",
        2,
        lambda world: _of_group(lambda group: group.step_a_clock(world.random.choice(_STEPS_MS)))(world),
    ),
)
"""What happens in a world with a group besides."""
