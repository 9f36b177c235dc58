"""What every site of a consumer shares."""

from __future__ import annotations

from dataclasses import dataclass

from parallax.consumer.events import EventQueue
from parallax.consumer.ports import OffsetService
from parallax.consumer.raised import Raised
from parallax.consumer.reporting import Reporter
from parallax.consumer.settings import Settings
from parallax.consumer.start_chooser import StartChooser


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
