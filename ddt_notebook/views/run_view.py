"""The base of all views of a run: title, flags, and rows as a DataFrame or as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from ..formatting import naming_hosts
from ..model import Snapshot
from ..model.torch_features import Feature
from . import dataframe, flags, html, running, safe, terminal, words
from .displayable import Displayable
from .flags import Flag
from .html import Markup


class RunView(Displayable):
    """Base of the views of a run, which `registry` lists.

    Parameters
    ----------
    snapshot
        What was observed.
    asked_now
        Whether the ranks were asked at their prompt; else they reported at the end of the cell.

    Attributes
    ----------
    flags
        The flags of the view, the most severe first. Subclasses fill it.
    """

    __slots__ = ("asked_now", "flags", "snapshot")

    #: Name of the view, as in ``%ddt_show NAME``.
    name: ClassVar[str]
    #: Names of the columns of `to_frame`.
    columns: ClassVar[tuple[str, ...]]

    def __init__(self, snapshot: Snapshot, *, asked_now: bool = False) -> None:
        self.snapshot = snapshot
        self.asked_now = asked_now
        self.flags: list[Flag] = []

    def to_text(self) -> str:
        """The title, the flags and the tables, 80 columns wide."""
        with naming_hosts(self.snapshot.hosts):
            above = [self._title(), *flags.to_text(self.flags, self._healthy())]
            asked = [row for line in self._how_asked() for row in terminal.wrap("", line)]
            return "\n".join([*above, *self._text(), *asked])

    def to_html(self) -> str:
        """The title, the flags and the tables."""
        with naming_hosts(self.snapshot.hosts):
            above = [html.heading(self._title()), *flags.to_html(self.flags, self._healthy())]
            return html.view(*above, *self._html(), *map(html.line, self._how_asked()))

    def to_json(self) -> dict[str, Any]:
        """The view's name, its flags, and its rows by column as plain data."""
        return {
            "view": self.name,
            "cell": self.snapshot.cell.number,
            "flags": [dataclasses.asdict(flag) for flag in self.flags],
            "rows": self._rows_with_hosts(),
        }

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame; subclasses document the columns.

        If the ranks were on several hosts, ``host`` follows ``rank``.
        """
        columns = list(self.columns)
        if "rank" in columns and self._on_several_hosts:
            columns.insert(columns.index("rank") + 1, "host")
        return dataframe.frame(self._rows_with_hosts(), columns)

    @property
    def _on_several_hosts(self) -> bool:
        return len({host for host in self.snapshot.hosts.values() if host}) > 1

    def _rows_with_hosts(self) -> list[dict[str, Any]]:
        rows, hosts = self._records(), self.snapshot.hosts
        if self._on_several_hosts:
            return [
                row | {"host": hosts.get(row["rank"], "")} if "rank" in row else row for row in rows
            ]
        return rows

    def unseen(self) -> str:
        """Why the view has nothing to judge; empty if it has."""
        return ""

    def _title(self) -> str:
        """``placement · after cell[3] · 4 ranks · 2026-11-20 20:01:08``."""
        parts: list[str] = [self.name]
        if self.snapshot.cell.number:
            parts.append(f"after {safe.one_line(self.snapshot.cell.title, 120)}")
        parts.append(words.count(self._ranks(), "rank"))
        if self.asked_now:
            parts.append("asked now")
        elif self._how_asked():
            parts.append(f"while it ran, {self.snapshot.created[:19].replace('T', ' ')}")
        elif self.snapshot.created:
            parts.append(self.snapshot.created[:19].replace("T", " "))
        return " · ".join(parts)

    def _how_asked(self) -> list[str]:
        """How the ranks of a running job were asked for what the view shows."""
        return running.lines(self.snapshot, self.name)

    def _ranks(self) -> int:
        """Number of ranks that the view shows."""
        return len(self.snapshot.ranks)

    def _not_observed(self, *features: Feature) -> list[str]:
        """A line for each feature that the view lacks because PyTorch lacks a private name."""
        ids = {feature.id for feature in features}
        return [
            str(missing) for missing in self.snapshot.missing_features if missing.feature in ids
        ]

    def _healthy(self) -> str:
        """The line of a view without flags, which states what was checked."""
        raise NotImplementedError

    def _text(self) -> Iterable[str]:
        """Lines below the flags."""
        raise NotImplementedError

    def _html(self) -> Iterable[Markup]:
        """Elements below the flags."""
        raise NotImplementedError

    def _records(self) -> list[dict[str, Any]]:
        """The rows of `to_frame`."""
        raise NotImplementedError


class Named(Protocol):
    """Something with the name of a variable."""

    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=Named)


def chosen(items: Iterable[N], names: Sequence[str]) -> list[N]:
    """The items that the names select: a variable or a part of it; without names, all."""
    if not names:
        return list(items)
    return [item for item in items if any(_within(item.name, name) for name in names)]


def _within(full: str, name: str) -> bool:
    return full == name or full.startswith((f"{name}.", f"{name}["))
