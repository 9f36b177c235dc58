"""Regions in memory, to test how an application gets along with moves: no broker, no offset service (docs/testing.md).

The `FailoverConsumer` is the real one. What it stands on is played: aggregate clusters that hold the same records in
different orders, consumers of them as librdkafka behaves, and an offset service that answers by looking at the records.
"""

from parallax.testing.cluster import MemoryCluster, MemoryConsumer, RecordContent, SourceRecord
from parallax.testing.regions import MemoryRegions, read
from parallax.testing.service import MemoryDecisions, MemoryService, MemorySkips

__all__ = [
    "MemoryCluster",
    "MemoryConsumer",
    "MemoryDecisions",
    "MemoryRegions",
    "MemoryService",
    "MemorySkips",
    "RecordContent",
    "SourceRecord",
    "read",
]
