"""The gallery of the guide: each view of a healthy run beside that of a broken one."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ddt_notebook as ddt
from ddt_notebook.model import Snapshot
from ddt_notebook.views import code_diff, html
from ddt_notebook.views.html import Markup
from ddt_notebook.views.registry import VIEWS
from ddt_notebook.views.report import show

FOLDER = Path(__file__).resolve().parent / "gallery"
WHICH = ("healthy", "broken")
_HEAD = """---
hide-toc: true
---

# Gallery

Each view of a healthy run, and of the same run with a fault. Real runs on four ranks were saved,
and the views were drawn from these files. A view says the same in a notebook, in a terminal and on
a page. A page that `ddt.export_report` writes also has
[an interactive timeline](views.md#the-interactive-timeline).

```{raw} html
<style>.content{flex:1;width:auto;min-width:0}</style>
```
"""
_REPAIR = """
## A hang, from the cell to the repair

"""
_ESTIMATE = """
## Estimate: whether a model fits

A bar is the memory of one rank, and `|` is what there is. 7 billion parameters in bfloat16 with
Adam do not fit into 80 GB with DDP.
"""


def pictures() -> list[dict[str, Any]]:
    """The entries of ``gallery/cells.toml``."""
    found: list[dict[str, Any]] = tomllib.loads((FOLDER / "cells.toml").read_text("utf-8"))[
        "picture"
    ]
    return found


def snapshot(picture: dict[str, Any], which: str) -> Snapshot:
    """The saved run."""
    return Snapshot.load(FOLDER / f"{picture['name']}-{which}.ddt.json")


def view(picture: dict[str, Any], which: str) -> Any:
    """The view of a saved run; for ``"diagnosis"``, the report."""
    run = snapshot(picture, which)
    if picture["view"] == "diagnosis":
        return show(ddt.diagnose(run), run)
    return VIEWS[picture["view"]].of(run)


def page() -> Iterator[str]:
    """The parts of the page, as Markdown."""
    yield _HEAD
    yield _REPAIR
    yield _raw(repair())
    for picture in pictures():
        yield f"\n## {picture['title']}\n\n{picture['words']}\n\n"
        sides = [_side(which, view(picture, which), picture[which].strip()) for which in WHICH]
        yield _beside(sides)
    yield _ESTIMATE
    small = ddt.estimate(1e9, 8, dtype="bfloat16", activations="10G", limit="80G")
    large = ddt.estimate(7e9, 8, dtype="bfloat16", activations="10G", limit="80G")
    yield _beside([_side("fits", small), _side("does not fit", large)])


def repair() -> Markup:
    """A cell that hangs, what is named, the correction, and the run of the corrected cell."""
    picture = next(one for one in pictures() if one["name"] == "hang")
    hang = view(picture, "broken")
    before, after = (
        snapshot(picture, which).cell.source.strip() for which in ("broken", "healthy")
    )
    # what is shown to run is what is proposed
    assert hang.correction.source.strip() == after
    steps = (
        ("A cell runs on four ranks, and does not end.", html.pre(before)),
        ("Two seconds later it is interrupted. The report names the cause.", hang.to_html()),
        ("%ddt_debug --fix writes the corrected cell.", code_diff.as_html(before, after)),
        ("The corrected cell runs.", view(picture, "healthy").to_html()),
    )
    return html.tag("div", *(_step(number, *step) for number, step in enumerate(steps, 1)))


def _step(number: int, title: str, shown: Markup) -> Markup:
    title = html.tag("div", html.tag("b", f"{number}  {title}"), style="margin:2px 0")
    return html.tag("div", title, shown, style="margin:0 0 1em;max-width:52em")


def _side(title: str, shown: Any, cell: str = "") -> Markup:
    code = [html.details("the cell", html.pre(cell))] if cell else []
    content = "".join([html.tag("b", title), *code, shown.to_html()])
    style = "flex:1 1 22em;min-width:0;overflow-x:auto"
    return Markup(f'<div style="{style}" tabindex="0">{content}</div>')


def _beside(sides: list[Markup]) -> str:
    both = html.tag("div", *sides, style="display:flex;flex-wrap:wrap;gap:1em 2em")
    return _raw(both)


def _raw(shown: Markup) -> str:
    # a line that begins with a fence would end the block
    return f"``````{{raw}} html\n{shown}\n``````\n"
