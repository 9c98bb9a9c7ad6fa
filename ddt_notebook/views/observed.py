"""What the views of observed things have in common: which run, which ranks, which names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

from ..model import Snapshot
from ..model.torch_features import Feature
from . import html, words
from .html import Markup


class Named(Protocol):
    """Something with the name of a variable."""

    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=Named)


def chosen(items: Iterable[N], names: Sequence[str]) -> list[N]:
    """Those that are meant by the names: a variable, or what is within it; all without names."""
    if not names:
        return list(items)
    return [item for item in items if any(_within(item.name, name) for name in names)]


def _within(full: str, name: str) -> bool:
    return full == name or full.startswith((f"{name}.", f"{name}["))


def title(view: str, snapshot: Snapshot, ranks: int) -> str:
    """``placement · after cell[3] · 4 ranks · 2026-11-20 20:01:08``."""
    parts = [view]
    if snapshot.cell.number:
        parts.append(f"after cell[{snapshot.cell.number}]")
    parts.append(words.count(ranks, "rank"))
    if snapshot.created:
        parts.append(snapshot.created[:19].replace("T", " "))
    return " · ".join(parts)


def not_seen(snapshot: Snapshot, *features: Feature) -> list[str]:
    """What a view lacks, since the ranks' PyTorch lacks a private name: a line for each feature."""
    ids = {feature.id for feature in features}
    return [str(missing) for missing in snapshot.missing_features if missing.feature in ids]


def heading(line: str) -> Markup:
    """The title in a notebook."""
    return html.line(html.tag("b", line))


def frame(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> Any:
    """A pandas DataFrame; pandas is imported when it is first wanted."""
    import pandas as pd

    return pd.DataFrame(list(rows), columns=list(columns))


def listing(items: Iterable[str], limit: int = 4) -> str:
    """Different items, the first few of them: ``cpu, cuda:0 and 2 more``."""
    unique = list(dict.fromkeys(items))
    shown = ", ".join(words.middle(item, 60) for item in unique[:limit])
    return f"{shown} and {len(unique) - limit} more" if len(unique) > limit else shown
