"""Writes the menu of views into the JupyterLab extension's settings schema, from the registry.

JupyterLab reads menus from a static file. ``make extension`` runs this before it builds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ddt_notebook.views.registry import below_diagnosis

SCHEMA = Path(__file__).parents[1] / "extension" / "schema" / "plugin.json"


def items() -> list[dict[str, Any]]:
    """The menu's entries."""
    return [
        {
            "command": "ddt-notebook:show-view",
            "args": {"view": view.name, "label": view.label},
            "rank": rank,
        }
        for rank, view in enumerate(below_diagnosis(), 1)
    ]


def main() -> None:
    """Replace the entries in the schema."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    (menu,) = schema["jupyter.lab.menus"]["main"]
    (submenu,) = [item["submenu"] for item in menu["items"] if item.get("type") == "submenu"]
    submenu["items"] = items()
    text = json.dumps(schema, indent=2, ensure_ascii=False)
    SCHEMA.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
