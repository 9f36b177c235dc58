"""What commands change at brokers on an operator's word: kept before it is changed, with what became of it after."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from parallax.adapters.cassandra.stores import CassandraStores
from parallax.config.config import Config
from parallax.domain.audit import NO_GROUP
from parallax.domain.rights import Principal
from parallax.ports.audit import Auditor
from parallax.runtime.process import process_name


class BrokerChange(Protocol):
    """Something that is to be changed, or was."""

    @property
    def what(self) -> str:
        """What it is, and where."""

    @property
    def before(self) -> str:
        """What is there before."""

    @property
    def after(self) -> str:
        """What shall be there after."""

    @property
    def state(self) -> str:
        """How it is, as a word."""

    @property
    def applied(self) -> bool:
        """Whether it was changed."""

    def line(self) -> str:
        """It for people."""


Change = TypeVar("Change", bound=BrokerChange)


@contextmanager
def open_auditor(config: Config) -> Iterator[Auditor]:
    """Keeps in the store; it is asked when there is something to keep."""
    with CassandraStores(config.cassandra, config.index, audit=config.audit) as stores:
        yield Auditor(stores.audit, stores.clock.now_ms, process=process_name("parallax"))


def carried_out(
    auditor: Auditor,
    operator: Principal,
    command: str,
    planned: Sequence[Change],
    carry_out: Callable[[], Sequence[Change]],
) -> Sequence[Change]:
    """Change it, and keep whose word it was from before the first change. Where nothing is planned nothing is kept.

    Args:
        auditor: keeps it.
        operator: whose word it is.
        command: for the audit.
        planned: what is to be changed.
        carry_out: changes it; returns what was changed, and what was not.

    Raises:
        StoreUnavailableError: it could not be kept, and nothing was changed.
        ParallaxError: whatever ``carry_out`` raises.
    """
    if not planned:
        return carry_out()
    wanted = {item.what: item.after for item in planned}
    with auditor.act(
        operator,
        command,
        NO_GROUP,
        before={item.what: item.before for item in planned},
        after=wanted,
    ) as act:
        found = carry_out()
        tried = [item for item in found if item.what in wanted]
        act.after = {item.what: item.state for item in tried}
        act.problem = "; ".join(item.line() for item in tried if not item.applied)
    return found
