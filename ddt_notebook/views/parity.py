"""Compares parameters, buffers, gradients, optimizer state and settings of the ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..diagnosis.communication import hold_parts
from ..formatting import listing
from ..model import Snapshot
from ..model.parity import (
    Disagreement,
    ParityItem,
    ParityRole,
    RankParity,
    ValueDifference,
    disagreements,
)
from . import html, safe, steps_grid, terminal, words
from .flags import Flag, ordered
from .html import Markup
from .run_view import RunView, chosen
from .source_positions import group
from .steps_grid import Grid

#: Rows of the summary, and of the list of what differs.
ROWS = 24
DIFFERING = 60

_HEAD = ("of", "what", "number", "equal", "differ on")
_DIFFERING_HEAD = ("what", "role", "ranks", "first difference", "largest difference")
_NOUNS = {"state": "optimizer state", "random": "random generator"}
_PLURALS = {
    "parameter": "parameters",
    "buffer": "buffers",
    "gradient": "gradients",
    "state": "entries of the state",
    "setting": "settings",
}

_DIVIDES = (
    "the parameters agree after the steps, so the optimizer may divide the work among the ranks"
)
_ROLES = {
    "parameter": "parameters",
    "buffer": "buffers",
    "state": "optimizer state",
    "setting": "settings",
}
_PARTS = "the ranks exchange activations, so each may hold a part of one model"


class Measured(NamedTuple):
    """How the values of a tensor on a rank differ from those of another one."""

    rank: int
    difference: ValueDifference

    @property
    def size(self) -> tuple[bool, float]:
        """For the largest one of several; one that is no number is the largest."""
        largest = self.difference.largest
        return largest is None, largest or 0.0


class ParityView(RunView):
    """Shows what is equal on all ranks, and what is not.

    Parameters
    ----------
    snapshot
        With its ``parity``.
    names
        Variables to show; default: all.
    asked_now
        Whether the ranks were asked at their prompt, and not at the end of the cell.
    """

    __slots__ = ("_differing", "_names", "_parities")

    name = "parity"
    columns = ("rank", "name", "role", "kind", "part", "value", "equal")

    def __init__(
        self, snapshot: Snapshot, names: Sequence[str] = (), *, asked_now: bool = False
    ) -> None:
        super().__init__(snapshot, asked_now=asked_now)
        self._names = names
        self._parities = [
            replace(parity, items=tuple(chosen(parity.items, names))) for parity in snapshot.parity
        ]
        self._differing = disagreements(self._parities)
        self.flags = _find_flags(
            self._parities,
            self._differing,
            parts=self._are_parts(),
            hooked=_hooked(snapshot),
            stepped=_stepped(snapshot),
        )

    def _are_parts(self) -> bool:
        """Whether the ranks may hold different parts of one model."""
        if not self._differing:
            return False
        items = self._parities[0].items
        shapes = [item.kind.partition(" ")[2] for item in items if item.role == "parameter"]
        return hold_parts(self.snapshot.ranks, shapes)

    def _text(self) -> list[str]:
        lines: list[str] = []
        if rows := self._rows():
            lines += terminal.columns(rows, _HEAD, (2, 3))
        for grid in self._grids():
            lines += steps_grid.as_text(grid)
        for found in self._reported()[:8]:
            lines += terminal.wrap("", _disagreement_text(found, self._difference(found)))
        return lines

    def _html(self) -> list[Markup]:
        parts = []
        if rows := self._rows():
            parts.append(html.table(rows, _HEAD))
        for grid in self._grids():
            parts += steps_grid.as_html(grid)
        if self._differing:
            parts.append(self._everything())
        return parts

    def to_frame(self) -> Any:
        """One row for each item of each rank, as a pandas DataFrame.

        - ``rank``: global rank
        - ``name``: such as ``"model.fc1.weight"`` or ``"optimizer.lr[0]"``
        - ``role``: ``"parameter"``, ``"buffer"``, ``"gradient"``, ``"state"`` (of an optimizer),
          ``"setting"`` or ``"random"`` (the state of a random generator)
        - ``kind``: type and shape of a tensor, such as ``"float32 10×20"``
        - ``part``: of a sharded tensor, which part the rank holds; only equal parts are compared
        - ``value``: fingerprint of a tensor's content, 16 hexadecimal digits; text of a setting
        - ``equal``: whether all ranks that have the item agree on it
        """
        return super().to_frame()

    def _records(self) -> list[dict[str, Any]]:
        different = {(found.name, found.role) for found in self._differing}
        return [
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

    def _ranks(self) -> int:
        return len(self._parities)

    def _reported(self) -> list[Disagreement]:
        return [
            found
            for found in self._differing
            if found.role != "random" and not _as_join_allows(found, self._parities)
        ]

    def _healthy(self) -> str:
        if len(self._parities) < 2:
            return "there is only one rank: nothing to compare"
        holders = _holders(self._parities)
        compared = [
            item
            for parity in self._parities
            for item in parity.items
            if item.role != "random" and holders[item.name, item.part] > 1
        ]
        items = {item.name for item in compared}
        items -= {f.name for f in self._differing if _as_join_allows(f, self._parities)}
        if not items:
            return "no rank holds a module or an optimizer in its variables"
        several = words.count(len(items), "thing")
        roles = {item.role for item in compared}
        what = listing(name for role, name in _ROLES.items() if role in roles)
        return f"the ranks agree on {several}: {what}"

    def _rows(self) -> list[tuple[str, ...]]:
        """One row for each object and role."""
        holders = _holders(self._parities)
        known: dict[tuple[str, ParityRole], dict[tuple[str, str], ParityItem]] = {}
        for parity in self._parities:
            for item in parity.items:
                of = known.setdefault((_owner(item.name, item.role), item.role), {})
                of[item.name, item.part] = item
        differing = {(_owner(f.name, f.role), f.role): set[str]() for f in self._differing}
        ranks = {key: set[int]() for key in differing}
        for found in self._differing:
            differing[_owner(found.name, found.role), found.role].add(found.name)
            ranks[_owner(found.name, found.role), found.role].update(found.deviating)
        joined = {
            (_owner(f.name, f.role), f.role)
            for f in self._differing
            if _as_join_allows(f, self._parities)
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

    def _grids(self) -> list[Grid]:
        """The course of the run; none if the ranks were asked afterwards or for some variables."""
        if self.asked_now or self._names:
            return []
        sizes = {
            found.name: _largest(difference)
            for found in self._differing
            if (difference := self._difference(found)) is not None
        }
        return steps_grid.grids(self.snapshot, sizes)

    def _difference(self, found: Disagreement) -> Measured | None:
        """The largest one that was measured."""
        measured = [
            Measured(parity.rank, difference)
            for parity in self._parities
            for difference in parity.differences
            if difference.name == found.name
        ]
        return max(measured, key=lambda m: m.size, default=None)

    def _everything(self) -> Markup:
        rows = []
        for found in self._differing[:DIFFERING]:
            difference = self._difference(found)
            groups = " | ".join(words.ranks_cell(ranks) for ranks in found.groups.values())
            rows.append(
                (
                    html.name(found.name),
                    _NOUNS.get(found.role, found.role),
                    groups,
                    _first_difference(found, difference),
                    _largest(difference),
                )
            )
        if len(self._differing) > DIFFERING:
            rest = f"and {len(self._differing) - DIFFERING:,} more: to_frame()"
            rows.append((html.escape(rest), "", "", "", ""))
        summary = f"all that differs ({len(self._differing):,})"
        return html.details(summary, html.table(rows, _DIFFERING_HEAD))


def _holders(parities: Sequence[RankParity]) -> Counter[tuple[str, str]]:
    """How many ranks hold each part of each item; what only one of them holds is not compared."""
    return Counter((item.name, item.part) for parity in parities for item in parity.items)


def _largest(measured: Measured | None) -> str:
    if measured is None:
        return ""
    if measured.difference.largest is None:
        return "not a number"
    return f"{measured.difference.largest:.3g}"


def _owner(name: str, role: str) -> str:
    """The variable that an item belongs to: ``"model"`` of ``"model.fc1.weight"``."""
    if role == "random":
        return "random state"
    if role == "state":
        return name.partition(".state.")[0]
    if role == "setting":
        return name.rpartition(".")[0]
    return name.partition(".")[0]


def _as_join_allows(found: Disagreement, parities: Sequence[RankParity]) -> bool:
    """Whether these gradients followed ``join()``: ranks with less data then keep older ones."""
    return found.role == "gradient" and _of_joined(found.name, parities)


def _of_joined(name: str, parities: Sequence[RankParity]) -> bool:
    """Whether a gradient or an optimizer's state belongs to a model that ran inside ``join()``."""
    joined = tuple(f"{model}." for parity in parities for model in parity.joined)
    return name.rpartition(".state.")[2].startswith(joined)


def _find_flags(
    parities: Sequence[RankParity],
    differing: Sequence[Disagreement],
    *,
    parts: bool,
    hooked: Collection[str],
    stepped: bool,
) -> list[Flag]:
    """One flag for each object and role that differs, the most severe first.

    Parameters
    ----------
    parts
        Whether the ranks may hold different parts of one model.
    hooked
        Models with a communication hook.
    stepped
        Whether every rank took optimizer steps in the run, after which copies with unequal
        gradients or states are unequal, too, unless the program brings them together.
    """
    wrapped = {name for parity in parities for name in parity.wrapped}
    copied = {name for parity in parities for name in parity.synchronized_buffers}
    measured = {d.name: Measured(parity.rank, d) for parity in parities for d in parity.differences}
    trained = {item.name for parity in parities for item in parity.items if item.role == "gradient"}
    equal = _equal_parameters(parities, differing)
    #: Objects of which it is known what each rank holds, so that only equal parts were compared.
    divided = {_owner(i.name, i.role) for parity in parities for i in parity.items if i.part}
    found = []
    for (name, role), members in group(differing, lambda d: (_owner(d.name, d.role), d.role)):
        first = members[0]
        # different random numbers on each rank are legitimate, and often wanted
        if role == "random" or _as_join_allows(first, parities):
            continue
        ranks = sorted({rank for member in members for rank in member.deviating})
        if role == "setting":
            found += [Flag("error", _disagreement_text(member, None)) for member in members]
            continue
        if len(members) == 1:
            text = _disagreement_text(first, measured.get(first.name))
        else:
            what = f"{len(members):,} {_PLURALS[role]} of {safe.middle(name, 60)}"
            text = f"{what} differ on {words.ranks(ranks)}, first "
            text += _disagreement_text(first, measured.get(first.name))
        if role == "state" and all(_of_joined(member.name, parities) for member in members):
            why = "join() makes parameters equal at its end, but not the optimizer's state"
            found.append(Flag("warning", f"{text}; {why}"))
            continue
        if role == "gradient" and name in hooked:
            found.append(Flag("hint", f"{text}; a communication hook may average them in part"))
            continue
        brought = role == "state" or (role == "gradient" and name not in wrapped)
        if stepped and brought and all(_parameter_of(member) in equal for member in members):
            found.append(Flag("hint", f"{text}; {_DIVIDES}"))
            continue
        kept_equal = name in wrapped or (role == "state" and bool(wrapped))
        if parts and not kept_equal:
            found.append(Flag("hint", text if name in divided else f"{text}; {_PARTS}"))
            continue
        found.append(_judged(role, text, kept_equal, name in copied, bool(trained)))
    different = {member.name for member in differing}
    return ordered([*found, *_not_finite(parities, different)])


def _hooked(snapshot: Snapshot) -> frozenset[str]:
    """The models in DDP whose gradients a communication hook combines."""
    trained = (model for one in snapshot.training for model in one.models)
    return frozenset(model.name for model in trained if model.communication_hook)


def _stepped(snapshot: Snapshot) -> bool:
    """Whether every rank stepped each of its optimizers in the run."""
    steps = [[one.steps for one in training.optimizers] for training in snapshot.training]
    return len(steps) > 1 and all(own and min(own) > 0 for own in steps)


def _parameter_of(found: Disagreement) -> str:
    """The parameter to which a gradient or an entry of an optimizer's state belongs."""
    if found.role == "gradient":
        return found.name.removesuffix(".grad")
    return found.name.partition(".state.")[2].rpartition(".")[0]


def _equal_parameters(
    parities: Sequence[RankParity], differing: Sequence[Disagreement]
) -> frozenset[str]:
    """The parameters that are equal on all ranks."""
    named = [{x.name for x in parity.items if x.role == "parameter"} for parity in parities]
    shared = set.intersection(*named) if named else set()
    return frozenset(shared - {found.name for found in differing})


def _not_finite(parities: Sequence[RankParity], different: Collection[str]) -> list[Flag]:
    """Flags for parameters and buffers that are nan or inf on all ranks alike.

    Gradients are left out: a gradient scaler expects nan and inf, and skips the step. So is inf in
    buffers, because masks consist of it.
    """
    odd = [
        (parity.rank, item)
        for parity in parities
        for item in parity.items
        if item.name not in different
        and (
            (item.role == "parameter" and item.not_finite)
            or (item.role == "buffer" and item.not_finite == "nan")
        )
    ]
    found = []
    for (name, role), members in group(odd, lambda m: (_owner(m[1].name, m[1].role), m[1].role)):
        ranks = sorted({rank for rank, _ in members})
        names = list(dict.fromkeys(item.name for _, item in members))
        values = " or ".join(sorted({item.not_finite for _, item in members}, reverse=True))
        what = f"{safe.middle(names[0], 80)} holds {values}"
        if len(names) > 1:
            what = f"{len(names):,} {_PLURALS[role]} of {safe.middle(name, 60)} hold {values}"
        everywhere = len(ranks) == len(parities) > 1
        if everywhere:
            what += " on every rank, so their agreement has no meaning"
        found.append(Flag("warning", what if everywhere else f"{what} on {words.ranks(ranks)}"))
    return found


def _judged(role: str, text: str, wrapped: bool, copied: bool, trained: bool) -> Flag:
    """The flag; its severity depends on whether something should have kept the ranks equal."""
    if role == "buffer" and copied:
        return Flag("hint", f"{text}; DDP copies rank 0's at the next forward pass in training")
    if role == "gradient" and not wrapped:
        return Flag("warning", f"{text}; nothing averages them over the ranks")
    if role == "parameter" and not wrapped:
        advice = "the model is not wrapped in DDP or FSDP" if trained else "load or seed them alike"
        return Flag("warning", f"{text}; {advice}")
    return Flag("error" if wrapped else "warning", text)


def _disagreement_text(found: Disagreement, difference: Measured | None) -> str:
    """``model.fc1.weight: rank 1 differs from rank 0 …``."""
    name = safe.middle(found.name, 80)
    if "" in found.groups:
        lacking = found.groups[""]
        return f"{name} exists on {words.ranks(found.agreeing)}, but not on {words.ranks(lacking)}"
    return f"{name}: {_first_difference(found, difference)}" + _how_far(difference)


def _first_difference(found: Disagreement, measured: Measured | None) -> str:
    """The first place where two ranks differ, or what each group of ranks has."""
    kinds = list(dict.fromkeys(found.kinds))
    groups = list(found.groups.items())
    if len(kinds) > 1:
        return ", ".join(
            f"{kind or 'absent'} on {words.ranks(ranks)}"
            for kind, (_, ranks) in zip(found.kinds[:4], groups[:4], strict=True)
        )
    if measured is not None:
        difference = measured.difference
        if not difference.count:
            return "equal values in different bits (such as 0.0 and -0.0)"
        at = f"[{', '.join(map(str, difference.first))}]"
        here, there = (
            safe.middle(difference.here, 24),
            safe.middle(difference.there, 24),
        )
        return (
            f"element {at} is {there} on {words.ranks((difference.reference,))}, but {here} on "
            f"{words.ranks((measured.rank,))}"
        )
    if found.role == "setting" or kinds[0].endswith("scalar"):
        return ", ".join(
            f"{safe.middle(value, 40)} on {words.ranks(ranks)}" for value, ranks in groups[:4]
        ) + (f" and {len(groups) - 4} more values" if len(groups) > 4 else "")
    verb = "differs" if len(found.deviating) == 1 else "differ"
    return f"{words.ranks(found.deviating)} {verb} from {words.ranks(found.agreeing)}"


def _how_far(measured: Measured | None) -> str:
    if measured is None or not measured.difference.count:
        return ""
    difference = measured.difference
    share = f"{difference.count:,} of {words.count(difference.elements, 'element')} differ"
    if difference.largest is None:
        return f" ({share}, some are not finite)"
    return f" ({share}, by up to {difference.largest:.3g})"
