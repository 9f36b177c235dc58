"""Rounds of upkeep, again and again, from a thread for each target and kind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import structlog

from parallax.config.config import Config
from parallax.domain.access_rules import AccessState
from parallax.domain.ids import ClusterName, RegionName, aggregate_cluster
from parallax.domain.topic_settings import SettingState
from parallax.errors import ParallaxError, RefusedError
from parallax.upkeep.access import AccessKeeper
from parallax.upkeep.board import UpkeepBoard, UpkeepRow
from parallax.upkeep.heartbeats import HeartbeatKeeper
from parallax.upkeep.settings import SettingsKeeper

_log = structlog.get_logger(__name__)

SETTINGS = "settings"
ACCESS = "access"
HEARTBEATS = "heartbeats"
CANARY = "canary"
RETENTION = "retention"
STATES = {
    SETTINGS: [state.value for state in SettingState if state is not SettingState.CHANGE],
    ACCESS: [state.value for state in AccessState if state not in (AccessState.ADD, AccessState.REMOVE)],
    HEARTBEATS: [],
    CANARY: [],
    RETENTION: [],
}
"""By kind of upkeep, the words of what may not be in step."""
_LAST_WITHIN_S = 1.0

Round = Callable[[], Sequence[UpkeepRow]]


class PartlyDoneError(RefusedError):
    """A round that had to leave something as it is.

    Attributes:
        rows: what it has done, or found, all the same.
    """

    def __init__(self, message: str, rows: Sequence[UpkeepRow]) -> None:
        super().__init__(message)
        self.rows = rows


@dataclass(frozen=True)
class Upkeep:
    """One kind of upkeep of one target.

    Attributes:
        opened: makes its round; called in the thread that keeps it.
    """

    kind: str
    cluster: ClusterName
    interval_s: float
    opened: Callable[[], Round]


def upkeeps(config: Config, targets: Collection[RegionName]) -> list[Upkeep]:
    """What the configuration wants to be kept in step at these targets."""
    settings, access, export = config.topics.config_sync, config.topics.acl_sync, config.mm2_export
    kinds = (
        (SETTINGS, settings.enabled, settings.interval_s, _settings_round),
        (ACCESS, access.enabled, access.interval_s, _access_round),
        (HEARTBEATS, export.heartbeats, export.interval_s, _heartbeats_round),
    )
    return [
        Upkeep(kind, aggregate_cluster(target), interval_s, partial(opened, config, target))
        for kind, wanted, interval_s, opened in kinds
        if wanted
        for target in targets
    ]


def _settings_round(config: Config, target: RegionName) -> Round:
    keeper = SettingsKeeper(config, target)
    return lambda: keeper.carry_out(keeper.plan())


def _access_round(config: Config, target: RegionName) -> Round:
    keeper = AccessKeeper(config, target)

    def go() -> Sequence[UpkeepRow]:
        plan = keeper.plan()
        rows = keeper.carry_out(plan)
        if plan.unreadable:
            raise PartlyDoneError(plan.problem(), rows)
        return rows

    return go


def _heartbeats_round(config: Config, target: RegionName) -> Round:
    keeper = HeartbeatKeeper(config, target)

    def go() -> Sequence[UpkeepRow]:
        keeper.round()
        return ()

    return go


@contextmanager
def keeping(items: Collection[Upkeep], board: UpkeepBoard) -> Iterator[None]:
    """Keep them in step while it is open. A cluster that is away holds nothing else up."""
    stop = threading.Event()
    threads = [
        threading.Thread(target=_keep, args=(item, board, stop), name=f"upkeep-{item.kind}", daemon=True)
        for item in items
    ]
    for item, thread in zip(items, threads, strict=True):
        board.expect(item.kind, item.cluster)
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(_LAST_WITHIN_S)


def _keep(item: Upkeep, board: UpkeepBoard, stop: threading.Event) -> None:
    round_of_upkeep: Round | None = None
    told: set[str] = set()
    problem = ""
    while not stop.is_set():
        try:
            round_of_upkeep = round_of_upkeep or item.opened()
            rows = round_of_upkeep()
        except ParallaxError as error:
            if isinstance(error, PartlyDoneError):
                board.changed(item.kind, item.cluster, error.rows)
                told = _tell(item, error.rows, told)
            said = f"[{error.code}] {error}"
            board.failed(item.kind, item.cluster, said)
            if not problem:
                _log.warning("upkeep_failed", kind=item.kind, cluster=item.cluster, problem=said)
            problem = said
        except Exception as error:  # noqa: BLE001 - the next round may be spared it
            board.failed(item.kind, item.cluster, repr(error))
            _log.error("upkeep_failed", kind=item.kind, cluster=item.cluster, exc_info=error)
            round_of_upkeep = None
        else:
            problem = ""
            board.good(item.kind, item.cluster, rows)
            told = _tell(item, rows, told)
        stop.wait(item.interval_s)


def _tell(item: Upkeep, rows: Sequence[UpkeepRow], before: set[str]) -> set[str]:
    """Log what was changed, and what is newly not in step; the lines of the latter."""
    lines = set()
    for row in rows:
        if row.applied:
            _log.info("kept_in_step", kind=item.kind, **row.to_json())
            continue
        lines.add(row.line())
        if row.line() not in before:
            _log.warning("not_in_step", kind=item.kind, **row.to_json())
    return lines
