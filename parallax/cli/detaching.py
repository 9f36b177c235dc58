"""`--detach`: an offset service plans a move and carries it out, and the command leaves it to that."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from parallax.cli.options import PlanFormat
from parallax.cli.output import confirm_by_name, console, known, print_json
from parallax.client.client import OffsetClient
from parallax.client.json import to_json
from parallax.domain.rights import Principal
from parallax.errors import RefusedError
from parallax.v1 import moves_pb2 as pb


@dataclass(frozen=True, slots=True)
class Detached:
    """A move that a service shall carry out.

    Attributes:
        options: for `OffsetClient.plan_move`.
        operator: whose it is, and why.
        yes: don't ask for the group's name.
    """

    group: str
    options: dict[str, Any]
    operator: Principal
    yes: bool
    form: PlanFormat

    def run(self, client: OffsetClient) -> None:
        """Plan it, show that, and have it carried out.

        Raises:
            RefusedError: something forbids it, or its name was not typed.
            PlanChangedError: it changed meanwhile; nothing was done.
        """
        as_json = self.form is PlanFormat.JSON
        plan = client.plan_move(self.group, **self.options)
        gaps = [] if plan.accept_gaps else list(plan.gaps)
        refusals = [*plan.obstacles, *(f"{gap} (--accept-gaps goes on all the same)" for gap in gaps)]
        if not as_json:
            for line in _lines(plan):
                console().print(line, markup=False, highlight=False)
        if plan.arrived:
            if as_json:
                print_json({"move": None, "plan": to_json(plan)})
            return
        if refusals:
            raise RefusedError("; ".join(refusals))
        if not as_json:
            what = f"{plan.group}: {plan.origin} to {plan.target}, {plan.kind}"
            confirm_by_name(plan.group, [what], yes=self.yes)
        status = client.execute_move(plan, actor=self.operator.name, reason=self.operator.why)
        if as_json:
            print_json({"move": to_json(status), "plan": to_json(plan)})
        else:
            sys.stdout.write(f"the offset service carries it out: parallax moves watch {status.move_id}\n")


def _lines(plan: pb.PlannedMove) -> Iterator[str]:
    yield f"group {plan.group}: {plan.origin} to {plan.target}, primary in region {plan.region}, {plan.kind}"
    if plan.arrived:
        yield "the group is there already: there is nothing to do"
        return
    again = known(plan.redelivery_records if plan.HasField("redelivery_records") else None)
    yield f"  pending: {plan.pending_records} records; plain consumers read again: {again}"
    for heading, found in (
        ("it will wait", plan.waits_for),
        ("never delivered", plan.gaps),
        ("not known", plan.unknown),
        ("forbidden", plan.obstacles),
    ):
        for words in found:
            yield f"  {heading}: {words}"
