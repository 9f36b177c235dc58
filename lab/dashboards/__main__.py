"""Writes the dashboards to deploy/grafana: `python -m lab.dashboards` (``--check``: is what is there up to date?)."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from lab.dashboards.board import to_json
from lab.dashboards.boards import DASHBOARDS

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana"


def files() -> Mapping[Path, str]:
    """Every file with what it has to contain."""
    return {
        FOLDER / f"{dashboard.name}.json": json.dumps(to_json(dashboard), indent=2) + "\n"
        for dashboard in DASHBOARDS
    }


def main() -> None:
    """Write the files, or say which of them is not what it should be."""
    stale = [
        path.name
        for path, text in files().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        if stale:
            sys.exit(f"deploy/grafana: not up to date: {', '.join(stale)}; run python -m lab.dashboards")
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
