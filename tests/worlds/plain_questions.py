"""Questions to the resume rule about lineages that were made up, most of them plain."""

from __future__ import annotations

from random import Random
from typing import Any

from parallax.domain.history import History
from parallax.domain.ids import (
    ClusterName,
    Lineage,
    RegionName,
    SourceId,
    SourceOffset,
    TargetOffset,
    TopicId,
)
from parallax.domain.place import LogRange
from parallax.domain.progress import Progress, SourceHistory, SourcePosition
from tests.worlds.block_worlds import made_up


def question_of(seed: int) -> dict[str, Any]:
    """A question about lineages that need not fit together: the rule has an answer to each."""
    chance = Random(seed)
    regions = [RegionName(name) for name in "abcd"[: chance.randint(1, 3)]]
    origin, destination = ([_side(chance, region) for region in regions] for _ in range(2))
    if chance.random() < 0.05:
        del chance.choice([origin, destination])[0]
    if chance.random() < 0.05:
        regions.append(RegionName("e"))
    ends = [item.history.newest.target_end for item in (*origin, *destination) if item.history.rows]
    most = max(ends, default=TargetOffset(0)) + 3
    low = chance.choice([0, 0, chance.randint(0, most)])
    progress = None
    if chance.random() < 0.6:
        sources = [item.source for item in origin] + [SourceId(RegionName("f"), TopicId("f"))]
        moved = {
            source: _position(chance, most)
            for source in sources
            if chance.random() < (0.7 if source.region != "f" else 0.05)
        }
        progress = Progress(
            ClusterName("aggregate-a"),
            TopicId("t"),
            TargetOffset(chance.choice([0, chance.randint(0, most)])),
            moved,
        )
    return {
        "commit": TargetOffset(chance.randint(0, most)),
        "regions": regions,
        "origin": origin,
        "destination": destination,
        "destination_log": LogRange(TargetOffset(low), TargetOffset(chance.randint(low, max(low, most)))),
        "progress": progress,
    }


def _side(chance: Random, region: RegionName) -> SourceHistory:
    rows, lost = made_up(chance, 25, small=True)
    topic_id = TopicId(f"{region}-1" if chance.random() < 0.98 else chance.choice(["", f"{region}-2"]))
    history = History(Lineage(topic_id, TopicId("t")), rows, lost if chance.random() < 0.05 else ())
    closed_at = SourceOffset(chance.randint(0, 300)) if chance.random() < 0.03 else None
    return SourceHistory(SourceId(region, topic_id), history, closed_at)


def _position(chance: Random, most: int) -> SourcePosition:
    epochs = sorted(chance.choice(range(-1, 6)) for _ in range(chance.randint(0, 3)))
    ends = tuple(
        (epoch, SourceOffset(chance.randint(0, most))) for epoch in dict.fromkeys(epochs) if epoch >= 0
    )
    if ends and chance.random() < 0.1:
        epoch, start = ends[-1]
        ends = (*ends, (epoch, SourceOffset(start + chance.randint(1, 9))))
    return SourcePosition(chance.choice([-1, *epochs]), SourceOffset(chance.randint(0, most)), ends)
