"""What is written for clients of MirrorMaker 2."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, field_validator

from parallax.config.values import RegionKey, Section
from parallax.domain.ids import RegionName

_ALIAS = re.compile(r"[A-Za-z0-9_-]{1,64}")


class MirrorMakerExport(Section):
    """Records that MirrorMaker 2's Java client reads (docs/from-mirrormaker.md)."""

    checkpoints: bool = False
    """The sync job writes what it publishes to ``<origin>.checkpoints.internal`` of the cluster where it publishes, too."""
    heartbeats: bool = False
    """The replicator writes beats to ``heartbeats`` of each source, and copies them to ``<source>.heartbeats``."""
    alias: Mapping[RegionKey, str] = Field(default_factory=dict)
    """Regions that MirrorMaker 2's clients know by another name."""
    interval_s: Annotated[float, Field(ge=1)] = 5
    """From one round of writing to the next."""

    @field_validator("alias")
    @classmethod
    def _names(cls, alias: Mapping[str, str]) -> Mapping[str, str]:
        for name in alias.values():
            if _ALIAS.fullmatch(name) is None:
                raise ValueError(
                    f"{name!r}: an alias has letters, digits, '_' and '-' alone, for it begins topics' names before a dot"
                )
        repeated = sorted({name for name in alias.values() if list(alias.values()).count(name) > 1})
        if repeated:
            raise ValueError(f"{repeated[0]!r} stands for two regions")
        return alias

    def alias_of(self, region: RegionName) -> str:
        """What its clients call the region."""
        return self.alias.get(region, region)
