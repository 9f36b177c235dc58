"""What the syncjob's holder tells the driver after each cycle. Losing a report must not hurt.

Like the leases of the replicator it says its whole state each time, with counters since it began.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from parallax.adapters.spark.reporting import Newest

REPORTS_PATH = "/sync-reports"

CYCLES = "cycles"
"""Of the counts: cycles that were good."""
FAILED_CYCLES = "failed_cycles"
FAILED_GROUPS = "failed_groups"


class Driver(Protocol):
    """Takes reports (`replicator.leases.reporter.StatusTarget`). Picklable."""

    def request(self, method: str, path: str, body: str | None = None) -> Mapping[str, Any]:
        """Ask; an `OSError`, `http.client.HTTPException` or `ValueError` says that it did not work."""


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a holder has done since it began.

    Attributes:
        attempt: names the holder; the next one has another name, and counts from 0.
        counts: of cycles, failed cycles, and what `CycleReport.counts` names, over all cycles.
        problem: why the last cycle failed; empty if it was good.
    """

    attempt: str
    counts: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """The report as JSON types."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SyncReport:
        """The report that ``to_json`` wrote.

        Raises:
            ValueError: it is none.
        """
        try:
            counts = {str(name): int(count) for name, count in values["counts"].items()}
            return cls(str(values["attempt"]), counts, str(values["problem"]))
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a report of the syncjob: {error!r}") from error


class Teller:
    """Tells the driver how far one holder is: a cycle never waits for it.

    Args:
        driver: who is told; None: nobody.
    """

    def __init__(self, driver: Driver | None) -> None:
        self._attempt = uuid.uuid4().hex
        self._newest: Newest[SyncReport] | None = None
        if driver is not None:
            self._newest = Newest(lambda report: _post(driver, report), repr(driver))

    def __call__(self, counts: Mapping[str, int], problem: str) -> None:
        """Tell what was done so far, and why the last cycle failed."""
        if self._newest is not None:
            self._newest.put(SyncReport(self._attempt, dict(counts), problem))

    def close(self) -> None:
        """Wait a moment until the last report is delivered."""
        if self._newest is not None:
            self._newest.close()


def _post(driver: Driver, report: SyncReport) -> None:
    driver.request("POST", REPORTS_PATH, json.dumps(report.to_json()))
