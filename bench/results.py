"""Rounds as they were measured, kept in files so that a row can be gone on with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

Better = Literal["higher", "lower", "none"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of one round.

    Attributes:
        name: of the figure; the report has a row of that name.
        unit: of its value.
        better: which direction is good.
        value: the figure.
    """

    name: str
    unit: str
    better: Better
    value: float


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one side.

    Attributes:
        side: who was measured; ``limit`` for the broker's own speed.
        number: from 1.
        measures: what came out.
        details: more about it, for people.
    """

    side: str
    number: int
    measures: tuple[Measure, ...]
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Round:
        """The inverse of ``asdict``."""
        measures = tuple(Measure(**item) for item in values["measures"])
        return cls(values["side"], values["number"], measures, values["details"])


class RoundStore:
    """The rounds of one row, in a file that is replaced with each further one.

    Rounds of another definition (another commit, other settings) are forgotten: figures of different things are never
    mixed.

    Args:
        directory: of all rows.
        row: the row's name.
        definition: everything that the figures depend on, as JSON types.
        resume: go on with what the file holds.
    """

    def __init__(self, directory: Path, row: str, definition: Mapping[str, Any], *, resume: bool) -> None:
        self._path = directory / f"{slug(row)}.json"
        self._row = row
        self._definition = definition
        self._fingerprint = sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()
        self.rounds: list[Round] = []
        if resume and self._path.is_file():
            document = json.loads(self._path.read_text(encoding="utf-8"))
            if document["fingerprint"] == self._fingerprint:
                self.rounds = [Round.from_json(item) for item in document["rounds"]]

    def has(self, side: str, number: int) -> bool:
        """Whether that round was measured before."""
        return any(item.side == side and item.number == number for item in self.rounds)

    def add(self, item: Round) -> None:
        """Keep a further round."""
        self.rounds.append(item)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        document = {
            "row": self._row,
            "fingerprint": self._fingerprint,
            "definition": self._definition,
            "rounds": [asdict(found) for found in self.rounds],
        }
        draft = self._path.with_suffix(".tmp")
        draft.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        draft.replace(self._path)


def slug(name: str) -> str:
    """A name as a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def by_measure(rounds: Iterable[Round]) -> dict[str, dict[str, list[Measure]]]:
    """The measures of some rounds by name, then by side, in the order of their first appearance."""
    found: dict[str, dict[str, list[Measure]]] = {}
    for item in rounds:
        for measure in item.measures:
            found.setdefault(measure.name, {}).setdefault(item.side, []).append(measure)
    return found
