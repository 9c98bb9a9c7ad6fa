"""Whether a model fits the ranks, and what sharding or a smaller batch would change."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ..model.estimate import Needs, Plan, plans
from . import dataframe, html, terminal, words
from .displayable import Displayable

_HEAD = ("", "batch", "model", "activations", "process", "each rank", "all ranks", "fits")
_BATCHES = {1.0: "as it is", 0.5: "half"}


class EstimateView(Displayable):
    """Bytes of each rank for several ways to train a model.

    Parameters
    ----------
    needs
        Of one rank with DDP.
    ranks
        How many.
    limit
        Bytes that there are: for all ranks together, or for each.
    shared
        Whether the ranks share the limit.
    source
        Where the numbers come from.
    """

    __slots__ = ("limit", "needs", "plans", "ranks", "shared", "source")

    def __init__(
        self, needs: Needs, ranks: int, *, limit: int | None, shared: bool, source: str
    ) -> None:
        self.needs = needs
        self.ranks = ranks
        self.limit = limit
        self.shared = shared
        self.source = source
        self.plans = list(plans(needs, ranks))

    def fits(self, plan: Plan) -> bool | None:
        """Whether a plan fits the limit, None if there is none."""
        if self.limit is None:
            return None
        needed = plan.needs.total * (self.ranks if self.shared else 1)
        return needed <= self.limit

    def to_text(self) -> str:
        """The table in columns."""
        lines = [self._title(), *terminal.wrap("", self._verdict())]
        lines += terminal.columns(self._rows(), _HEAD, (2, 3, 4, 5, 6))
        return "\n".join([*lines, *terminal.wrap("", self._note())])

    def to_html(self) -> str:
        """The table as HTML."""
        return html.view(
            html.heading(self._title()),
            html.line(self._verdict()),
            html.table(self._rows(), _HEAD),
            html.line(self._note()),
        )

    def to_frame(self) -> Any:
        """One row for each plan, as a pandas DataFrame; all sizes are bytes of one rank.

        - ``sharding``: what spreads the model over the ranks, such as ``"DDP"``
        - ``batch``: size of the batch as a part of the present one
        - ``parameters``, ``gradients``, ``optimizer_state``, ``buffers``, ``buckets``: of the model
        - ``activations``: what the forward pass keeps for backward
        - ``base``: the process without a model
        - ``total``: the sum of these
        - ``fits``: whether that is within the limit; None without a limit
        """
        names = [field.name for field in fields(Needs)]
        rows = [
            {"sharding": plan.sharding, "batch": plan.batch}
            | {name: getattr(plan.needs, name) for name in names}
            | {"total": plan.needs.total, "fits": self.fits(plan)}
            for plan in self.plans
        ]
        return dataframe.frame(rows, ("sharding", "batch", *names, "total", "fits"))

    def _title(self) -> str:
        return f"memory estimate · {words.count(self.ranks, 'rank')} · {self.source}"

    def _verdict(self) -> str:
        first = self.plans[0]
        needed = f"DDP needs {words.size(first.needs.total)} on each rank"
        if self.limit is None:
            return needed
        room = f"{words.size(self.limit)} {'for all ranks' if self.shared else 'for each'}"
        if self.fits(first):
            return f"it fits: {needed}, and {room} is available"
        fitting = next((plan for plan in self.plans if self.fits(plan)), None)
        if fitting is None:
            return f"it does not fit: {needed}, {room} is available; none of these ways is enough"
        batch = "" if fitting.batch == 1 else " and half the batch"
        way = f"{fitting.sharding}{batch}"
        return f"it does not fit: {needed}, {room} is available; {way} would fit"

    def _rows(self) -> list[tuple[str, ...]]:
        words_of = {True: "yes", False: "no", None: ""}
        return [
            (
                plan.sharding,
                _BATCHES.get(plan.batch, f"× {plan.batch:g}"),
                words.size(plan.needs.total - plan.needs.activations - plan.needs.base),
                words.size(plan.needs.activations),
                words.size(plan.needs.base),
                words.size(plan.needs.total),
                words.size(plan.needs.total * self.ranks),
                words_of[self.fits(plan)],
            )
            for plan in self.plans
        ]

    @staticmethod
    def _note() -> str:
        return (
            "ZeRO-1 splits the optimizer state over the ranks, ZeRO-2 the gradients too, FSDP "
            "(ZeRO-3) also the parameters, of which it gathers a layer at a time: add the largest "
            "layer. Temporary tensors are not counted"
        )
