"""Who may look at the wall clock: moments that are stored come of the store's (`parallax.adapters.cassandra.clock`)."""

from __future__ import annotations

import re

from tests.unit.house.test_imports import MODULES, within

WALL_CLOCK = re.compile(r"\bwall_clock_ms\b|\btime\.time(_ns)?\(|\bdatetime\.(now|utcnow|today)\b")

REASONS_TO_LOOK_AT_IT = {
    "console.app": "how long ago something was, for who reads it; nothing is decided by it",
    "parallax.adapters.kafka.tokens": "tokens hold until a time, which the issuer counts from when it was asked",
    "parallax.cli.audit_log": "how long ago somebody means, who asks a service; nothing is stored",
    "parallax.cli.doctor": "compares it with the store's",
    "parallax.cli.failover_command": "when a ticket was written, for who reads it; nothing is stored",
    "parallax.identity.certificates": "certificates hold until a date",
    "parallax.upkeep.heartbeats": "a beat tells when it was written, to readers on other machines",
    "parallax.upkeep.settings": "which records a shorter retention takes, which goes by the brokers' time; nothing is stored",
    "parallax.producer.delivery": "a record bears its producer's time",
    "parallax.runtime.deadline": "tells it",
    "parallax.runtime.files": "whether a file was changed a moment ago, which its system counts by it; nothing is stored",
    "parallax.testing.regions": "a record bears its producer's time",
    "replicator.kafka.run_log": "when an entry was committed: how old answers are, and in which hour and day the index keeps its "
    "rows, so that a wrong clock makes answers early; and leases, which are bounded by an epoch",
    "replicator.leases.holding": "leases are bounded by an epoch, whatever clocks say",
    "replicator.leases.query": "leases are bounded by an epoch, whatever clocks say",
    "replicator.leases.retention": "how old what is not copied is, which brokers count by records' times; nothing is stored",
    "syncjob.query": "leases are bounded by an epoch, whatever clocks say",
}


def test_a_module_that_looks_at_the_wall_clock_has_a_reason() -> None:
    found = {
        name
        for name, path in MODULES.items()
        if not within(name, "lab") and WALL_CLOCK.search(path.read_text(encoding="utf-8"))
    }
    assert found == set(REASONS_TO_LOOK_AT_IT)
