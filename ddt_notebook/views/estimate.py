"""Whether a model fits the ranks, and what sharding or a smaller batch would change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from itertools import groupby
from typing import Any

from ..model.estimate import Needs, Plan, plans
from . import dataframe, html, sparklines, terminal, words
from .displayable import Displayable
from .html import Markup

_HEAD = ("", "change", "model", "activations", "process", "each rank", "all", "fits")
_BATCHES = {1.0: "", 0.5: "half batch"}
#: Length of the longest bar, in characters.
_BAR = 48
#: A limit that is more than this many times the largest plan is not drawn.
_FARTHEST = 4
#: Letters that are white, since black ones are hard to read on their colour.
_INKS = {"p": "#FFFFFF"}
#: The parts of a bar: fields of `Needs`, sign, word and colour.
_PARTS = (
    (("parameters", "buffers"), "p", "parameters", "#0072B2"),
    (("gradients", "buckets"), "g", "gradients", "#56B4E9"),
    (("optimizer_state",), "o", "optimizer", "#CC79A7"),
    (("base",), "s", "process", "#999999"),
    (("activations",), "a", "activations", "#009E73"),
)
#: Activations that may be kept or not.
_PERHAPS, _PERHAPS_COLOUR = "?", "#F0E442"
_NAMES = {"FSDP": "FSDP = ZeRO-3"}
#: The units in which `parse_bytes` reads an amount.
_POWERS = {"K": "2¹⁰", "M": "2²⁰", "G": "2³⁰", "T": "2⁴⁰"}


class EstimateView(Displayable):
    """Bytes of each rank for several ways to train a model.

    Parameters
    ----------
    needs
        Of one rank with DDP.
    ranks
        How many.
    others
        Plans with another precision.
    limit
        Bytes that there are: for all ranks together, or for each.
    shared
        Whether the ranks share the limit.
    source
        Where the numbers come from.
    written
        The limit as somebody wrote it, such as ``"80G"``.
    """

    __slots__ = ("limit", "needs", "plans", "ranks", "shared", "source", "written")

    def __init__(
        self,
        needs: Needs,
        ranks: int,
        *,
        others: Iterable[Plan] = (),
        limit: int | None,
        shared: bool,
        source: str,
        written: str = "",
    ) -> None:
        self.needs = needs
        self.ranks = ranks
        self.limit = limit
        self.shared = shared
        self.source = source
        self.written = written
        self.plans = list(plans(needs, ranks, others))

    def left(self, plan: Plan) -> int | None:
        """Bytes that a plan leaves on each rank; negative if it does not fit, None if no limit.

        If it is not known how many activations it keeps, it is what the fewest would leave.
        """
        return None if self._each is None else self._each - plan.least

    @property
    def _each(self) -> int | None:
        """The limit of one rank."""
        if self.limit is None:
            return None
        return self.limit // (self.ranks if self.shared else 1)

    def fits(self, plan: Plan) -> bool | None:
        """Whether a plan fits the limit.

        None if there is no limit, or if it depends on activations whose size is not known.
        """
        left = self.left(plan)
        if left is None or (left >= 0 and not plan.needs.activations):
            return None
        if left >= 0 and left < plan.needs.total - plan.least:
            return None
        return left >= 0

    def to_text(self) -> str:
        """The table in columns."""
        lines = [self._title(), *terminal.wrap("", self._verdict())]
        lines += terminal.columns(self._rows(), self._head(), range(2, 6 + self._has_base))
        bars = self._bars()
        width = max(len(name) for name, _ in bars)
        lines += [f"  {name:<{width}}  {_signs(bar)}" for name, bar in bars]
        lines += terminal.wrap("", self._legend())
        return "\n".join([*lines, *terminal.wrap("", self._note())])

    def to_html(self) -> str:
        """The table as HTML."""
        return html.view(
            html.heading(self._title()),
            html.line(self._verdict()),
            html.tag("div", html.table(self._rows(), self._head()), role="plans"),
            html.table([(name, _coloured(bar)) for name, bar in self._bars()]),
            html.line(self._legend()),
            html.line(self._note()),
        )

    def to_frame(self) -> Any:
        """One row for each plan, as a pandas DataFrame; all sizes are bytes of one rank.

        - ``sharding``: what spreads the model over the ranks, such as ``"DDP"``
        - ``batch``: size of the batch as a part of the present one
        - ``change``: what else is done in another way, such as ``"checkpointing"``; else empty
        - ``parameters``, ``gradients``, ``optimizer_state``, ``buffers``, ``buckets``: of the model
        - ``activations``: what the forward pass keeps for backward, at most
        - ``base``: the process without a model
        - ``total``: the sum of these
        - ``least``: the same with the fewest activations that the change may keep
        - ``fits``: whether that is within the limit; None without a limit, and if it depends on
          activations whose size is not known
        """
        names = [field.name for field in fields(Needs)]
        rows = [
            {"sharding": plan.sharding, "batch": plan.batch, "change": plan.change}
            | {name: getattr(plan.needs, name) for name in names}
            | {"total": plan.needs.total, "least": plan.least, "fits": self.fits(plan)}
            for plan in self.plans
        ]
        columns = ("sharding", "batch", "change", *names, "total", "least", "fits")
        return dataframe.frame(rows, columns)

    def _title(self) -> str:
        return f"memory estimate · {words.count(self.ranks, 'rank')} · {self.source}"

    def _verdict(self) -> str:
        first = self.plans[0]
        known = bool(first.needs.activations)
        least = "" if known else " for the model alone"
        needed = f"DDP needs {words.size(first.needs.total)} on each rank{least}"
        if self.limit is None:
            return needed
        each = "for all ranks" if self.shared else "for each"
        room = f"{_as_written(self.limit, self.written)} {each}"
        # a way whose activations are not known exactly is not recommended
        known_ways = (plan for plan in self.plans if not plan.change)
        fitting = next((plan for plan in known_ways if self._may_fit(plan)), None)
        if fitting is first and known:
            return f"it fits: {needed}, and {room} is available"
        if fitting is first:
            return (
                f"the model fits if its activations do: {needed} and {room} is available, which "
                f"leaves {words.size(self.left(first) or 0)} on each rank"
            )
        if fitting is None:
            return f"it does not fit: {needed}, {room} is available; none of these ways is enough"
        batch = "" if fitting.batch == 1 else " and half the batch"
        way = f"{_NAMES.get(fitting.sharding, fitting.sharding)}{batch}"
        if known:
            return f"it does not fit: {needed}, {room} is available; {way} would fit"
        left = words.size(self.left(fitting) or 0)
        return (
            f"it does not fit: {needed}, {room} is available; {way} would leave {left} for "
            "activations"
        )

    def _may_fit(self, plan: Plan) -> bool:
        left = self.left(plan)
        return left is not None and left >= 0

    def _word(self, plan: Plan) -> str:
        left = self.left(plan)
        if left is None:
            return ""
        if left < 0:
            return "no"
        if plan.least_activations is not None and self.fits(plan) is None:
            return f"if ≤ {words.size(left + plan.least_activations)}"
        return "yes" if plan.needs.activations else f"if ≤ {words.size(left)}"

    @property
    def _has_base(self) -> bool:
        return bool(self.needs.base)

    def _head(self) -> tuple[str, ...]:
        return tuple(name for name in _HEAD if name != "process" or self._has_base)

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                plan.sharding,
                plan.change or _BATCHES.get(plan.batch, f"batch × {plan.batch:g}"),
                words.size(plan.needs.total - plan.needs.activations - plan.needs.base),
                _activations(plan),
                *([words.size(plan.needs.base)] if self._has_base else []),
                _at_most(plan, plan.needs.total),
                _at_most(plan, plan.needs.total * self.ranks),
                self._word(plan),
            )
            for plan in self.plans
        ]

    def _bars(self) -> list[tuple[str, list[tuple[str, int]]]]:
        """For each plan with the present batch, its parts in characters, and the limit's place.

        The limit is the part with the sign ``"|"``; what stands behind it does not fit. It is left
        out where it is far beyond all plans.
        """
        shown = [plan for plan in self.plans if plan.batch == 1]
        longest = max(plan.needs.total for plan in shown)
        limit = self._drawn_limit()
        return [(_way(plan), _bar(plan, max(longest, limit or 0), limit)) for plan in shown]

    def _drawn_limit(self) -> int | None:
        largest = max(plan.needs.total for plan in self.plans)
        near = self._each is not None and self._each <= _FARTHEST * largest
        return self._each if near else None

    def _legend(self) -> str:
        parts = [
            f"{sign} {word}"
            for names, sign, word, _ in _PARTS
            if any(getattr(self.needs, name) for name in names)
        ]
        if any(plan.least_activations is not None for plan in self.plans):
            parts.append(f"{_PERHAPS} activations that may be kept or not")
        return " · ".join(
            [*parts, *(["| what there is"] if self._drawn_limit() is not None else [])]
        )

    @staticmethod
    def _note() -> str:
        return (
            "ZeRO-1 splits the optimizer state over the ranks, ZeRO-2 the gradients too, FSDP and "
            "ZeRO-3 also the parameters, of which they gather a layer at a time: add the largest "
            "layer. Activation checkpointing repeats a part of the forward pass instead of "
            "keeping all activations; how many it keeps depends on what is checkpointed. With "
            "mixed precision the optimizer keeps a float32 copy of each parameter, so it saves "
            "activations only. Temporary tensors, the allocator's gaps and the CUDA context are "
            "not counted"
        )


def _way(plan: Plan) -> str:
    """``DDP, checkpointing``."""
    name = _NAMES.get(plan.sharding, plan.sharding)
    return f"{name}, {plan.change}" if plan.change else name


def _activations(plan: Plan) -> str:
    return _at_most(plan, plan.needs.activations) if plan.needs.activations else "?"


def _at_most(plan: Plan, size: int) -> str:
    return f"{'' if plan.least_activations is None else '≤ '}{words.size(size)}"


def _as_written(limit: int, written: str) -> str:
    """``80G (85.9 GB, since G is 2³⁰ bytes)``: what somebody wrote is in powers of two."""
    size = words.size(limit)
    unit = written.upper().removesuffix("B").removesuffix("I")[-1:]
    if unit not in _POWERS:
        return size
    return f"{written} ({size}, since {unit} is {_POWERS[unit]} bytes)"


def _bar(plan: Plan, longest: int, limit: int | None) -> list[tuple[str, int]]:
    signs, done = "", 0
    for names, sign, _, _ in _PARTS:
        done += sum(getattr(plan.needs, name) for name in names)
        signs = signs.ljust(round(_BAR * done / longest), sign)
    least = round(_BAR * plan.least / longest)
    signs = signs[:least] + _PERHAPS * (len(signs) - least)
    if limit is not None:
        at = round(_BAR * limit / longest)
        signs = f"{signs[:at]:<{at}}|{signs[at:]}"
    return [(sign, len(list(run))) for sign, run in groupby(signs)]


def _signs(bar: list[tuple[str, int]]) -> str:
    return "".join(sign * length for sign, length in bar)


def _coloured(bar: list[tuple[str, int]]) -> Markup:
    colours = {sign: colour for _, sign, _, colour in _PARTS} | {_PERHAPS: _PERHAPS_COLOUR}
    return sparklines.painted(_signs(bar), colours, _INKS)
