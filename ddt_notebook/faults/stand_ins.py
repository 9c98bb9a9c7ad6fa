"""Cards that stand for others where a framework needs other changes than torch."""

from __future__ import annotations

from ddt_notebook.model.frameworks import described


def stand_in(cause: str, framework: str) -> str | None:
    """The id of the card of a cause in a framework; None if it is the same as for torch."""
    return described(framework).stand_ins.get(cause)
