"""Lists each view of a run once; the API, the magics, the pages and JupyterLab read this list.

To add a view, write its class in a module of this package and add an entry to `VIEWS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..formatting import naming_hosts

if TYPE_CHECKING:
    from ..model import Snapshot
    from .run_view import RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The name of a view, its class, and the data that it needs.

    Attributes
    ----------
    name
        As in ``ddt.NAME(run)``, ``%ddt_show NAME`` and the ``views`` of fault cards.
    label
        On buttons and in menus.
    shows
        What it shows, as the end of the sentence "Show …".
    view_class
        Module in this package and class, imported on first use. The class derives from `RunView`
        and is called with a snapshot; if `asks_ranks`, also with names of variables and
        ``asked_now``.
    needs
        Field of `Snapshot` that is empty if the view has nothing to show.
    or_needs
        Property of `Snapshot` that the view shows as well, and alone if a run recorded only that.
    asks_ranks
        Whether the view shows what the ranks hold, so that a session's ranks are asked for it with
        the probe named like `needs`, and for `probes`. The other views show what happened in the
        last run.
    probes
        Further probes.
    recorded_when
        Which runs record it without ``trace=True``; empty if no run does.
    below_diagnosis
        Whether it stands below the diagnosis: in ``%%ddt_debug``, in exported pages, in opened
        ``.ddt.json`` files and in JupyterLab's panel and menu.
    """

    name: str
    label: str
    shows: str
    view_class: str
    needs: str = "ranks"
    or_needs: str = ""
    asks_ranks: bool = False
    probes: tuple[str, ...] = ()
    recorded_when: str = ""
    below_diagnosis: bool = True

    def load(self) -> Any:
        """The class of the view."""
        module, name = self.view_class.split(":")
        return getattr(importlib.import_module(f".{module}", __package__), name)

    def of(
        self, snapshot: Snapshot, names: Sequence[str] = (), *, asked_now: bool = False
    ) -> RunView:
        """The view of a snapshot.

        Parameters
        ----------
        snapshot
            What was observed.
        names
            Variables to show, for views that ask the ranks; default: all.
        asked_now
            Whether the ranks were asked at their prompt, and not at the end of the cell.
        """
        view: RunView
        with naming_hosts(snapshot.hosts):  # in the flags, which a view makes first
            if self.asks_ranks:
                view = self.load()(snapshot, names, asked_now=asked_now)
            else:
                view = self.load()(snapshot)
        return view

    def is_in(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot holds something to show."""
        return self.is_whole_in(snapshot) or bool(
            self.or_needs and getattr(snapshot, self.or_needs)
        )

    def is_whole_in(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot holds what `needs` names."""
        return bool(getattr(snapshot, self.needs))

    def missing(self, snapshot: Snapshot) -> str:
        """Why there is nothing to show, and what to do; empty if there is something."""
        if self.is_in(snapshot):
            return ""
        from . import running, safe  # here, since each process that imports us reads this list

        cell = safe.one_line(snapshot.cell.title, 120)
        if reasons := running.lines(snapshot, self.needs):
            return f"{self.name} of {cell} is not known: {'; '.join(reasons)}"
        if snapshot.origin == "job":
            return f"the ranks of {cell} have recorded nothing for {self.name}"
        if snapshot.origin == "dumps":
            return f"dumps of a job do not hold what {self.name} shows"
        when = f"; a run records it {self.recorded_when}" if self.recorded_when else ""
        return (
            f"nothing was recorded for {self.name} in {cell}{when}: put "
            "%%ddt_debug on top of the cell, or ask the ranks how they are now with "
            f"%ddt_show {self.name}"
        )


VIEWS: dict[str, View] = {
    view.name: view
    for view in (
        View(
            name="stacks",
            label="Stacks",
            shows="where each rank stood at the end of a run, frame by frame",
            view_class="stacks:StacksView",
            below_diagnosis=False,  # the diagnosis shows the line of each rank
        ),
        View(
            name="placement",
            label="Placement",
            shows="the device of each parameter, buffer, optimizer state and tensor, and the parts "
            "of sharded models, rank by rank",
            view_class="placement:PlacementView",
            needs="placement",
            or_needs="shards",
            asks_ranks=True,
            probes=("partition",),
        ),
        View(
            name="memory",
            label="Memory",
            shows="the parts of each rank's memory, its limit and, for a traced run, its curve",
            view_class="memory:MemoryView",
            needs="memory",
            asks_ranks=True,
        ),
        View(
            name="partition",
            label="Partition",
            shows="which rank got which samples: overlap, gaps, padding",
            view_class="partition:PartitionView",
            needs="partition",
            asks_ranks=True,
            recorded_when="in which a loader was used or a model was trained",
        ),
        View(
            name="collectives",
            label="Collectives",
            shows="every collective of a run: operation, shape, bytes, line, and the last rank",
            view_class="collectives:CollectivesView",
        ),
        View(
            name="timeline",
            label="Timeline",
            shows="when each rank worked, waited, communicated and loaded data in a run",
            view_class="timeline:TimelineView",
        ),
        View(
            name="parity",
            label="Parity",
            shows="whether the ranks agree on parameters, gradients, optimizer state and settings",
            view_class="parity:ParityView",
            needs="parity",
            asks_ranks=True,
            recorded_when="in which a model was trained",
        ),
    )
}


def below_diagnosis() -> list[View]:
    """The views that stand below a diagnosis, in their order."""
    return [view for view in VIEWS.values() if view.below_diagnosis]
