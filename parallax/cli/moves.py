"""`parallax moves`: the moves that were made; `moves watch` follows one, whoever carries it out."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from parallax.cli import completion, lists
from parallax.cli.connecting import connect
from parallax.cli.options import (
    TIMEOUT_MS,
    AuthorityOption,
    JsonOption,
    ServiceOption,
    ServicesConfigOption,
    TimeoutOption,
    with_default,
)
from parallax.cli.output import print_json
from parallax.client.client import OffsetClient
from parallax.client.json import to_json
from parallax.errors import InvariantError, NotFoundError, UnreadableRowError
from parallax.failover.background import SILENT_MS
from parallax.failover.desk import MoveState
from parallax.failover.orders import order_of

_LOOK_EVERY_S = 0.5
_NEWEST = 20
"""So many of a group's newest moves may be the one that is followed."""
_LISTED = 100
"""So many of all groups' newest moves may be the one of an id: as many as a list prints."""

app = typer.Typer(cls=with_default("list"), help="List moves, and follow one.")
app.command("list")(lists.moves)


@app.command("watch")
def watch(
    move: Annotated[
        str,
        typer.Argument(
            help="The id that --detach or the list has printed, or a group: its newest move.",
            autocompletion=completion.groups,
        ),
    ],
    config: ServicesConfigOption = None,
    service: ServiceOption = None,
    tls_ca: AuthorityOption = None,
    timeout_ms: TimeoutOption = TIMEOUT_MS,
    as_json: JsonOption = False,
) -> None:
    """Follow a move until it has ended, whoever carries it out; exit code 1 unless the group has arrived.

    Interrupted, it ends alone: the move goes on.
    """
    with connect(config, service, tls_ca, timeout_ms) as client:
        try:
            seen = followed(look_at(client, move), _silent if as_json else _say)
        except KeyboardInterrupt:
            sys.stderr.write("the move goes on\n")
            raise typer.Exit(1) from None
    if as_json:
        print_json(seen.values)
    else:
        number = f"; fencing number {seen.fencing_number}" if seen.fencing_number else ""
        problem = f": {seen.problem}" if seen.problem else ""
        sys.stdout.write(f"{seen.state.value.replace('_', ' ')}{number}{problem}\n")
    if seen.state not in {MoveState.MOVED, MoveState.ALREADY_THERE}:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class SeenMove:
    """How far a move is.

    Attributes:
        state: whether it goes on.
        told: moments (ms of the Unix epoch; 0: not known) and words of what it has done, the oldest first.
        problem: what stopped it; empty otherwise.
        fencing_number: 0: it has decided nothing.
        values: as the service tells it.
    """

    state: MoveState
    told: tuple[tuple[int, str], ...]
    problem: str
    fencing_number: int
    values: Any


def look_at(client: OffsetClient, move: str) -> Callable[[], SeenMove]:
    """Looks at a move: by its id or that of the journal, or at what is the newest move of a group now.

    Raises:
        NotFoundError: it is no id of a move, and no group that was ever moved.
    """
    try:
        group = order_of(move).move.group
    except NotFoundError:
        newest = list(client.list_moves(move, limit=1).moves)
        if not newest:
            newest = [item for item in client.list_moves(limit=_LISTED).moves if item.move_id == move]
        if not newest:
            raise NotFoundError(
                f"{move!r} is no id of a move, and no group of that name was ever moved: parallax moves lists them"
            ) from None
        of, found = newest[0].group, newest[0].move_id
        return lambda: _by_group(client, of, found)
    return lambda: _by_id(client, group, move)


def followed(
    look: Callable[[], SeenMove],
    say: Callable[[int, str], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> SeenMove:
    """How a move has ended; says what it does as it comes.

    One that is planned and that nobody begins is waited for no longer than one whose process is silent.

    Args:
        look: tells how far it is.
        say: gets moments and words.
        clock: seconds, monotonic.
        wait: waits so many seconds.
    """
    began_s = clock()
    said: set[tuple[int, str]] = set()
    while True:
        seen = look()
        for at_ms, words in seen.told:
            if (at_ms, words) not in said:
                say(at_ms, words)
        said.update(seen.told)
        waits = seen.state is MoveState.PLANNED and clock() - began_s < SILENT_MS / 1_000
        if not waits and seen.state is not MoveState.RUNNING:
            return seen
        wait(_LOOK_EVERY_S)


def _state(word: str) -> MoveState:
    try:
        return MoveState(word)
    except ValueError:
        raise InvariantError(
            f"the service tells of a state that this release does not know: {word!r}"
        ) from None


def _by_id(client: OffsetClient, group: str, move_id: str) -> SeenMove:
    status = client.get_move(group, move_id)
    events = tuple((event.at_ms, event.words) for event in status.events)
    steps = ((0, status.step),) if status.step else ()
    return SeenMove(
        _state(status.state), events or steps, status.problem, status.fencing_number, to_json(status)
    )


def _by_group(client: OffsetClient, group: str, move_id: str) -> SeenMove:
    found = next(
        (item for item in client.list_moves(group, limit=_NEWEST).moves if item.move_id == move_id), None
    )
    if found is None:
        raise NotFoundError(f"group {group!r}: its move {move_id} is not among the newest any more")
    if not found.state:
        raise UnreadableRowError(f"group {group!r}: {found.problem}")
    told = ((0, found.step),)
    return SeenMove(_state(found.state), told, found.problem, found.fencing_number, to_json(found))


def _say(at_ms: int, words: str) -> None:
    at = f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%H:%M:%S}Z " if at_ms else ""
    sys.stdout.write(f"{at}{words}\n")
    sys.stdout.flush()


def _silent(_at_ms: int, _words: str) -> None:
    pass
