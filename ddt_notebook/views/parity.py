"""Do the ranks agree: parameters, buffers, gradients, optimizer state and settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..model import Snapshot
from ..model.parity import Disagreement, ParityItem, ParityRole, ValueDifference, disagreements
from . import flags, html, observed, table, text, words
from .bundle import Displayable
from .html import Markup
from .parity_flags import as_join_allows, disagreement_text, first_difference, owner
from .parity_flags import flags as find_flags

#: Rows of the summary, and of the list of what differs.
ROWS = 24
DIFFERING = 60

_HEAD = ("of", "what", "number", "equal", "differ on")
_DIFFERING_HEAD = ("what", "role", "ranks", "first difference", "largest difference")
_NOUNS = {"state": "optimizer state", "random": "random generator"}


class ParityView(Displayable):
    """What is equal on all ranks, and what is not.

    Parameters
    ----------
    snapshot
        With its ``parity``.
    names
        Variables to show; default: all.
    """

    __slots__ = ("_differing", "_parities", "flags", "snapshot")

    def __init__(self, snapshot: Snapshot, names: Sequence[str] = ()) -> None:
        self.snapshot = snapshot
        self._parities = [
            replace(parity, items=tuple(observed.chosen(parity.items, names)))
            for parity in snapshot.parity
        ]
        self._differing = disagreements(self._parities)
        self.flags = find_flags(self._parities, self._differing)

    def to_text(self) -> str:
        """What differs, then what was compared, 80 columns wide."""
        lines = [self._title(), *flags.to_text(self.flags, self._healthy())]
        if rows := self._rows():
            lines += table.columns(rows, _HEAD, (2, 3))
        for found in self._told()[:8]:
            lines += text.wrap("", disagreement_text(found, self._difference(found)))
        return "\n".join(lines)

    def to_html(self) -> str:
        """The same, with all that differs on a click."""
        parts: list[str] = [observed.heading(self._title())]
        parts += flags.to_html(self.flags, self._healthy())
        if rows := self._rows():
            parts.append(html.table(rows, _HEAD))
        if self._differing:
            parts.append(self._everything())
        return html.view(*parts)

    def to_frame(self) -> Any:
        """A pandas DataFrame with one row for each item of each rank."""
        columns = ("rank", "name", "role", "kind", "part", "value", "equal")
        different = {(found.name, found.role) for found in self._differing}
        rows = [
            {
                "rank": parity.rank,
                "name": item.name,
                "role": item.role,
                "kind": item.kind,
                "part": item.part,
                "value": item.value,
                "equal": (item.name, item.role) not in different,
            }
            for parity in self._parities
            for item in parity.items
        ]
        return observed.frame(rows, columns)

    def _title(self) -> str:
        return observed.title("parity", self.snapshot, len(self._parities))

    def _told(self) -> list[Disagreement]:
        return [
            found
            for found in self._differing
            if found.role != "random" and not as_join_allows(found, self._parities)
        ]

    def _healthy(self) -> str:
        if len(self._parities) < 2:
            return "there is only one rank: nothing to compare"
        items = {item.name for p in self._parities for item in p.items if item.role != "random"}
        items -= {f.name for f in self._differing if as_join_allows(f, self._parities)}
        if not items:
            return "no rank holds a module or an optimizer in its variables"
        several = words.count(len(items), "thing")
        return f"the ranks agree on {several}: parameters, buffers, optimizer state and settings"

    def _rows(self) -> list[tuple[str, ...]]:
        """One row for each object and role."""
        holders = Counter(
            (item.name, item.part) for parity in self._parities for item in parity.items
        )
        known: dict[tuple[str, ParityRole], dict[tuple[str, str], ParityItem]] = {}
        for parity in self._parities:
            for item in parity.items:
                of = known.setdefault((owner(item.name, item.role), item.role), {})
                of[item.name, item.part] = item
        differing = {(owner(f.name, f.role), f.role): set[str]() for f in self._differing}
        ranks = {key: set[int]() for key in differing}
        for found in self._differing:
            differing[owner(found.name, found.role), found.role].add(found.name)
            ranks[owner(found.name, found.role), found.role].update(found.deviating)
        joined = {
            (owner(f.name, f.role), f.role)
            for f in self._differing
            if as_join_allows(f, self._parities)
        }
        rows: list[tuple[str, ...]] = []
        for (name, role), items in known.items():
            different = differing.get((name, role), set())
            several = {item_name for item_name, part in items if holders[item_name, part] > 1}
            alone = len({item_name for item_name, _ in items} - several - different)
            note = words.ranks(ranks[name, role]) if different else ""
            if (name, role) in joined:
                note += ", as join() allows"
            if alone and not note:
                note = "no part is on two ranks" if not several else f"{alone:,} not compared"
            cells = (f"{len({n for n, _ in items}):,}", f"{len(several - different):,}", note)
            rows.append((name, _NOUNS.get(role, role), *cells))
        if len(rows) > ROWS:
            rows = [*rows[:ROWS], (f"and {len(rows) - ROWS} more", "", "", "", "")]
        return rows

    def _difference(self, found: Disagreement) -> ValueDifference | None:
        """The largest one that was measured."""
        measured = [
            difference
            for parity in self._parities
            for difference in parity.differences
            if difference.name == found.name
        ]
        return max(measured, key=lambda d: (d.largest is None, d.largest or 0.0), default=None)

    def _everything(self) -> Markup:
        rows = []
        for found in self._differing[:DIFFERING]:
            difference = self._difference(found)
            groups = " | ".join(words.rank_list(ranks) for ranks in found.groups.values())
            rows.append(
                (
                    html.name(found.name),
                    _NOUNS.get(found.role, found.role),
                    groups,
                    first_difference(found, difference),
                    _largest(difference),
                )
            )
        if len(self._differing) > DIFFERING:
            rest = f"and {len(self._differing) - DIFFERING:,} more: to_frame()"
            rows.append((html.escape(rest), "", "", "", ""))
        summary = f"all that differs ({len(self._differing):,})"
        return html.details(summary, html.table(rows, _DIFFERING_HEAD))


def _largest(difference: ValueDifference | None) -> str:
    if difference is None:
        return ""
    if difference.largest is None:
        return "not a number"
    return f"{difference.largest:.3g}"
