"""What the services install with Parallax may be used wherever Parallax may: no copyleft among it."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

LOCK = Path(__file__).parents[3] / "requirements" / "services.lock"

NAMES = re.findall(r"^([A-Za-z0-9_.-]+)==", LOCK.read_text("utf-8"), re.MULTILINE)
ELSEWHERE = {"colorama"}
"""Installed on other systems only."""


def licences_of(name: str) -> str:
    found = metadata.metadata(name)
    classified = [item for item in found.get_all("Classifier") or () if item.startswith("License")]
    return "; ".join([found.get("License-Expression") or "", *classified, (found.get("License") or "")[:60]])


@pytest.mark.parametrize("name", sorted({*NAMES} - ELSEWHERE))
def test_no_dependency_of_the_services_is_copyleft(name: str) -> None:
    licences = licences_of(name)
    assert licences.strip("; "), "it names none"
    assert not re.search(r"GPL|General Public|MPL|Mozilla|EUPL", licences), licences
