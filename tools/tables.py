"""Updates the file of measured figures from which the guide's table is made."""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any


def update(table: Path, figures: dict[str, Any]) -> None:
    """Merge ``figures`` into the file, one level deep, and record the machine."""
    known = json.loads(table.read_text(encoding="utf-8")) if table.exists() else {}
    for key, value in figures.items():
        known[key] = {**known.get(key, {}), **value} if isinstance(value, dict) else value
    known["machine"] = (
        f"{os.cpu_count()} cores, Python {platform.python_version()}, torch {version('torch')}"
    )
    if "notebooks" in known:
        known["notebooks"] = dict(sorted(known["notebooks"].items()))
    table.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
