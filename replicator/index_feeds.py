"""What a shard's holder has to carry into the mapping index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from parallax.ports.index import MappingIndexWriter
from replicator.kafka.connector import Connector
from replicator.lease import Lease
from replicator.mapping.feed import IndexFeed


def feed_of(lease: Lease, connector: Connector, index: MappingIndexWriter) -> IndexFeed:
    """What the shard itself commits."""
    return IndexFeed(
        index,
        connector.run_log(lease),
        route=lease.route,
        layout=lease.layout,
        shard=lease.shard,
        clock=connector.clock,
    )


def earlier_feeds(lease: Lease, connector: Connector, index: MappingIndexWriter) -> Sequence[IndexFeed]:
    """What the shards of the layout before may have left to be indexed; each falls to one shard of this layout."""
    layout = connector.layout(lease)
    feeds = []
    for shard in range(0 if layout is None else layout.previous_shards):
        if shard % lease.shard_count == lease.shard:
            old = replace(lease, shard=shard, layout=lease.layout - 1)
            feed = feed_of(old, connector, index)
            feed.note_end(connector.run_log(old).end())
            feeds.append(feed)
    return feeds
