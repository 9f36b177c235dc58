"""`failover --promote` and `failback --demote`: who may produce at a standby, as the last step of a move to it or back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from parallax.cli import acl
from parallax.cli.options import PlanFormat
from parallax.cli.output import console
from parallax.cli.rows import OutputFormat
from parallax.config.config import Config
from parallax.domain.rights import Principal
from parallax.errors import ParallaxError
from parallax.upkeep.access import AccessRow


@dataclass(frozen=True, slots=True)
class Promotion:
    """The step.

    Attributes:
        config: everything.
        region: whose aggregate cluster is the standby.
        operator: whose word it is.
        back: take away what was allowed, instead of allowing what is withheld.
    """

    config: Config
    region: str
    operator: Principal
    back: bool = False

    @property
    def words(self) -> str:
        """What it does, for whoever is asked before."""
        what = "what a promotion has allowed" if self.back else "what is withheld from producers"
        return f"{what} at region {self.region} is {'taken away' if self.back else 'allowed'}"

    def plan(self) -> Promoted:
        """The rules that would change; nothing does."""
        return self._done(execute=False)

    def carry_out(self) -> Promoted:
        """Change them. Groups have moved by then: what goes wrong is told, and is no error of theirs."""
        return self._done(execute=True)

    def left(self, problem: str) -> Promoted:
        """It was not taken."""
        return Promoted(self, problem=problem, well=False)

    def _done(self, *, execute: bool) -> Promoted:
        try:
            if self.back:
                rows = acl.demotion(self.config, self.region, None, self.operator, execute=execute)
            else:
                rows, _ = acl.promotion(self.config, self.region, None, self.operator, execute=execute)
        except ParallaxError as error:
            return self.left(f"[{error.code}] {error}")
        return Promoted(self, rows, well=not execute or all(row.applied for row in rows))


@dataclass(frozen=True, slots=True)
class Promoted:
    """The rules that the step changes, or has changed.

    Attributes:
        rules: each with what becomes of it.
        problem: why nothing is known of them; empty: it is.
        well: whether nothing went wrong.
    """

    of: Promotion
    rules: Sequence[AccessRow] = field(default_factory=tuple)
    problem: str = ""
    well: bool = True

    def to_json(self) -> dict[str, Any]:
        """As JSON types."""
        return {
            "demotion" if self.of.back else "promotion": {
                "region": self.of.region,
                "rules": [row.to_json() for row in self.rules],
                "problem": self.problem,
            }
        }

    def show(self, form: PlanFormat) -> None:
        """Write it below what is told of groups."""
        if form is PlanFormat.MARKDOWN:
            sys.stdout.write(
                "\n".join(["", "## Rules of access", "", f"- {self.of.words}", *self._lines(), ""])
            )
            return
        console().print(f"{self.of.words}:", markup=False)
        if self.problem:
            console().print(self.problem, style="bold red", markup=False)
        else:
            acl.listing("nothing to do").write([row.to_json() for row in self.rules], OutputFormat.TABLE)

    def _lines(self) -> list[str]:
        if self.problem:
            return [f"- **{self.problem}**"]
        return [f"- `{row.line()}`" for row in self.rules] or ["- nothing to do"]
