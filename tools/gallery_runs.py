"""Runs the cells of the gallery on real ranks and saves what was observed.

python tools/gallery_runs.py            # all pictures
python tools/gallery_runs.py memory     # some

``make docs`` draws the saved runs; run this after a change of what a run observes.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import tidying

import ddt_notebook as ddt

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "gallery"
RANKS = 4
#: Seconds after which a run is given up.
LIMIT_S = 60


def record(picture: dict[str, Any], which: str) -> Path:
    """Run one cell in a session of its own; returns the file."""
    options = {name: picture[name] for name in ("simulate", "memory") if name in picture}
    with ddt.Session(RANKS, timeout=LIMIT_S, seed=1, **options) as session:
        run = session.run(picture[which].strip(), trace=picture.get("trace", False))
    path = FOLDER / f"{picture['name']}-{which}.ddt.json"
    run.snapshot.save(path)
    path.write_text(tidying.scrub(path.read_text(encoding="utf-8")), encoding="utf-8")
    return path


def main(names: list[str]) -> None:
    """Record the named pictures; without names, all."""
    pictures = tomllib.loads((FOLDER / "cells.toml").read_text(encoding="utf-8"))["picture"]
    for picture in pictures:
        if names and picture["name"] not in names:
            continue
        for which in ("healthy", "broken"):
            path = record(picture, which)
            print(path.name, f"{path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
