"""The layout of a route, as its record in `parallax.layouts` says it (`replicator.kafka.layout`)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

from parallax.domain.ids import TopicId, TopicName
from parallax.errors import ConfigError

LAYOUTS_TOPIC = TopicName("parallax.layouts")
FORMAT = 1
"""Of layout records; a greater one is a newer release's."""


@dataclass(frozen=True, slots=True)
class LayoutRecord:
    """A route's layout.

    Attributes:
        layout: its number, growing.
        shards: into how many shards it cuts the route.
        settled: whether every shard's first snapshot is written; leases start only then.
        run_log: the topic that holds the shards' states; under another one they would all begin anew.
        run_log_id: that topic's id: another topic of the same name holds none of them.
        previous_shards: how many the layout before had; 0 for the first.
        topics: which topics the route's replicator chose when it last began (`topics_chosen`); empty: not known.
        format: of the record.
    """

    layout: int
    shards: int
    settled: bool
    run_log: str
    run_log_id: TopicId
    previous_shards: int = 0
    topics: str = ""
    format: int = FORMAT

    @property
    def is_rebuilt(self) -> bool:
        """Whether a rebuild of the run log has announced it and has not settled it: no other change keeps the number of shards."""
        return not self.settled and self.shards == self.previous_shards

    @property
    def copied_as(self) -> tuple[int, int]:
        """Number and shards of the layout whose shards hold the newest states: the one before, until this one is settled."""
        return (self.layout, self.shards) if self.settled else (self.layout - 1, self.previous_shards)

    def encoded(self) -> bytes:
        """The record's value."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decoded(cls, value: bytes) -> LayoutRecord:
        """The record of a value that `encoded` made.

        Raises:
            ConfigError: the value is something else, or of a newer format.
        """
        try:
            values = {"run_log_id": "", **json.loads(value)}
            record = cls(**{field.name: values[field.name] for field in fields(cls) if field.name in values})
        except (ValueError, TypeError) as error:
            raise ConfigError(f"a record of {LAYOUTS_TOPIC} can't be read: {value!r}: {error}") from error
        if record.format > FORMAT:
            raise ConfigError(
                f"a record of {LAYOUTS_TOPIC} has format {record.format}: a newer release wrote it: {value!r}"
            )
        return record
