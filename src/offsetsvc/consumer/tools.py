"""What every site of a consumer shares."""

from __future__ import annotations

from dataclasses import dataclass

from offsetsvc.consumer.choose import StartChooser
from offsetsvc.consumer.events import EventQueue
from offsetsvc.consumer.ports import OffsetService
from offsetsvc.consumer.raised import Raised
from offsetsvc.consumer.report import Reporter
from offsetsvc.consumer.settings import Settings


@dataclass(frozen=True, slots=True)
class Tools:
    """What every site of a consumer shares.

    Attributes:
        owner: the application's consumer, handed to its callbacks.
    """

    owner: object
    settings: Settings
    service: OffsetService
    chooser: StartChooser
    reporter: Reporter
    events: EventQueue
    raised: Raised
