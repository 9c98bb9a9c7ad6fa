"""The magics of the session: each parses its line, calls the Python API and returns a view."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import line_cell_magic, line_magic, magics_class

from .. import api
from ..host.run_result import RunResult
from ..host.session import active
from ..model import Snapshot
from ..runs import view_of
from ..spelling import similar_names
from ..views import words
from ..views.displayable import Displayable, Message
from ..views.explain import page
from ..views.registry import VIEWS
from ..views.report import DisplayedReport
from ..views.run_view import RunView
from ..views.session_status import StatusView
from . import options as opt
from .base import WAYS, RunningMagics, one_line, report_of, script_of
from .config import DDT

_RESTING = "the ranks were stopped, because nobody used them; the next cell starts new ones"
_ANEW = (
    "the ranks were restarted: all their variables are gone; run the cells again that define "
    "what you need"
)


@magics_class
class DDTMagics(RunningMagics):
    """Sessions, cells, objects and views."""

    def __init__(self, shell: InteractiveShell, config: DDT) -> None:
        super().__init__(shell, config)
        config.observe(_limit_changed, ["timeout", "hang_after"])

    # -- the session ---------------------------------------------------------------------------

    @line_magic
    @opt.options(
        opt.POSITIONAL_SIZE,
        opt.WORLD_SIZE,
        opt.BACKEND,
        opt.DEVICE,
        opt.TIMEOUT,
        opt.HANG_AFTER,
        opt.MEMORY,
        opt.SEED,
        opt.NO_GROUP,
        opt.SIMULATE,
        opt.FRAMEWORK,
        opt.JOIN,
        opt.HOSTS,
        opt.SLURM,
        opt.RAY,
        opt.NODES,
        opt.WAIT,
        opt.SALLOC,
    )
    def ddt_start(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Start a session: N processes that run cells together."""
        running = active.get()
        if running is not None:
            raise UsageError(
                f"ddt_start: a session of {words.count(running.world_size, 'rank')} is running; "
                "%ddt_restart renews it, %ddt_stop ends it (before one of another kind)"
            )
        if args.number is not None:
            if args.world_size not in (None, args.number):
                raise UsageError(
                    f"ddt_start: {args.number} or {args.world_size} ranks? give one number"
                )
            args.world_size = args.number
        if args.join is None and args.ray is None and args.nnodes:
            raise UsageError("ddt_start: --nnodes is for hosts that --join, or for --ray")
        if args.salloc is not None and args.slurm is None:
            args.slurm = ""
        ways = [way for way in WAYS if getattr(args, way) is not None]
        if not ways and args.wait:
            raise UsageError(
                "ddt_start: --wait is for hosts: give --join, --hosts, --slurm, --salloc or --ray"
            )
        if len(ways) > 1:
            raise UsageError(
                f"ddt_start: --{ways[0]} and --{ways[1]} are two ways to start ranks on hosts: "
                "give one"
            )
        return StatusView(self._start(args).status())

    @line_magic
    @opt.options()
    def ddt_stop(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """End the session and all its processes."""
        session = active.get()
        if session is None:
            raise UsageError("no session is running: there is nothing to stop")
        with one_line("ddt_stop"):
            session.stop()
        return Message(f"stopped: {words.count(session.world_size, 'rank')} ended")

    @line_magic
    @opt.options()
    def ddt_restart(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Replace all ranks by fresh ones; their variables are lost."""
        session = self._session(wake=False)
        with one_line("ddt_restart"):
            session.restart()
        return StatusView(session.status(), _ANEW)

    @line_magic
    @opt.options()
    def ddt_status(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Show the ranks: process, state, memory, line."""
        with one_line("ddt_status"):
            session = self._session(wake=False)
            return StatusView(session.status(), _RESTING if session.resting else "")

    # -- running cells -------------------------------------------------------------------------

    @line_cell_magic
    @opt.options(
        opt.RANKS, opt.CELL_TIMEOUT, opt.OUT, opt.FREEZE, opt.KEEP, opt.SCRIPT, above_cell=True
    )
    def ddt(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Run the cell or a script (%ddt --script) on the ranks; a failure is diagnosed at once."""
        script = script_of(args, cell)
        if script:
            return self._run(
                self._session(), "", args, script=script, freeze=args.freeze, keep_names=args.keep
            )
        if args.keep:
            raise UsageError("ddt: --keep is for a script: %ddt --keep --script train.py")
        if cell is None:
            raise UsageError("ddt: put %%ddt on the first line of a cell, and its code below")
        return self._run(self._session(), cell, args, freeze=args.freeze)

    @line_magic
    @opt.options()
    def ddt_release(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """End a hang that %%ddt --freeze holds; the variables stay."""
        session = self._session()
        if not session.frozen:
            raise UsageError("ddt_release: no hang is held; %%ddt --freeze holds the next one")
        with one_line("ddt_release"):
            run = session.release()
        return report_of(run)

    # -- objects -------------------------------------------------------------------------------

    @line_magic
    @opt.options(opt.NAMES, opt.RANKS)
    def ddt_push(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Copy variables of the notebook to the ranks."""
        session = self._session()
        values = {name: self._variable(name) for name in args.names}
        with one_line("ddt_push"):
            sizes = session.push(args.ranks, **values)
        sent = ", ".join(f"{name} ({words.size(size)})" for name, size in sizes.items())
        ranks = range(session.world_size) if args.ranks is None else args.ranks
        return Message(f"pushed {sent} to {words.ranks(ranks)}")

    @line_magic
    @opt.options(opt.NAME, opt.RANK, opt.AS)
    def ddt_pull(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Copy a variable of one rank into the notebook."""
        session = self._session()
        with one_line("ddt_pull"):
            value = session.pull(args.name, rank=args.rank)
        target = args.as_name or args.name
        self._shell.user_ns[target] = value
        return Message(f"{target} = {args.name} of rank {args.rank} ({type(value).__name__})")

    # -- knowledge -----------------------------------------------------------------------------

    @line_cell_magic
    @opt.options(opt.QUERY, free_text="query", silenced=False)
    def ddt_explain(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Explain a symptom (D.2.1), a fault card, or what fits words; alone: list all codes.

        %%ddt_explain says what the text below it shows, such as a traceback or a log.
        """
        if cell is None:
            with one_line("ddt_explain"):
                return page(args.query)
        if args.query:
            raise UsageError("ddt_explain: words are for %ddt_explain, on a line by itself")
        if not cell.strip():
            raise UsageError("ddt_explain: paste a traceback or a log below %%ddt_explain")
        return api.diagnose_text(cell)

    @line_magic
    @opt.options(opt.VIEW, opt.VARIABLES, opt.ZOOM)
    def ddt_show(self, args: argparse.Namespace, cell: str | None = None) -> object:
        """Show one view of the last run, of a loaded or kept one, or of what the ranks hold."""
        if args.zoom and args.view != "timeline":
            raise UsageError("ddt_show: --zoom is for the timeline: %ddt_show timeline --zoom")
        if args.view not in VIEWS:
            known = ", ".join(VIEWS)
            raise UsageError(f"ddt_show: there is no view {args.view!r}; the views are: {known}")
        with one_line("ddt_show"):
            view = self._view(args.view, args.variables)
        if args.zoom and getattr(self._shell, "kernel", None) is not None:
            from ..views.timeline import TimelineView
            from ..widgets.timeline_viewer import TimelineViewer

            assert isinstance(view, TimelineView)
            return TimelineViewer(view)
        return view

    def _view(self, name: str, names: Sequence[str]) -> RunView:
        """A view of a run that a variable of the notebook holds, that was loaded, or the last."""
        held = self._shell.user_ns.get(names[0]) if len(names) == 1 else None
        if isinstance(held, Snapshot | RunResult):
            return view_of(name, held)
        if isinstance(held, DisplayedReport) and held.snapshot is not None:
            return view_of(name, held.snapshot)
        asks_ranks = VIEWS[name].asks_ranks
        if names and not asks_ranks:
            raise UsageError(f"ddt_show: {names[0]!r} is no run: %ddt_load PATH -o NAME makes one")
        if active.loaded is not None and not names:
            return view_of(name, active.loaded)
        session = self._session()
        if not asks_ranks and session.last_run is None:
            raise UsageError("ddt_show: nothing has run yet; put %%ddt on top of a cell and run it")
        return view_of(name, session, names)

    def _variable(self, name: str) -> object:
        known = self._shell.user_ns
        if name not in known:
            near = similar_names(name, known)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"ddt_push: the notebook has no variable {name!r}{hint}")
        return known[name]


def _limit_changed(change: Any) -> None:
    """``%config DDT.timeout = 20`` also applies to a session that is already running."""
    session = active.get()
    if session is not None:
        setattr(session, change.name, change.new)
