"""The magics of the session: each parses its line, calls the Python API and returns a view."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class

from .. import api, taxonomy
from ..diagnose import diagnose
from ..model import Snapshot
from ..session import active, launcher
from ..session.errors import SessionError
from ..session.result import RunResult
from ..session.session import Session
from ..views import words
from ..views.bundle import Displayable, Message
from ..views.explanation import ExplanationView
from ..views.overview import Flagged, Overview
from ..views.report import DisplayedReport, show
from ..views.stacks import StacksView
from ..views.status import StatusView
from . import options as opt
from .config import DDT
from .failure import CellFailed
from .stream import OutputStreamer, live_line

#: Views of the last run, and views of what the ranks hold.
RUN_VIEWS: dict[str, Callable[[Snapshot], Displayable]] = {
    "stacks": StacksView,
    "collectives": api.collectives,
    "timeline": api.timeline,
}
RANK_VIEWS: dict[str, Callable[..., Displayable]] = {
    "placement": api.placement,
    "partition": api.partition,
    "parity": api.parity,
    "memory": api.memory,
}
#: The views that `Overview` shows.
_FLAGGED: dict[str, Callable[..., Flagged]] = {
    "placement": api.placement,
    "memory": api.memory,
    "partition": api.partition,
    "collectives": api.collectives,
    "timeline": api.timeline,
    "parity": api.parity,
}
_FIRST_STEPS = (
    "nothing has run on ranks yet: put %%ddt_debug on top of a cell to run it on 2 ranks and see\n"
    "what goes wrong, or start a session with %ddt_start -n 4 and put %%ddt on top of its cells"
)


@magics_class
class DDTMagics(Magics):
    """All magics work on the one active session of the notebook.

    Parameters
    ----------
    shell
        The notebook's shell.
    config
        The defaults that ``%config DDT`` sets.
    """

    def __init__(self, shell: InteractiveShell, config: DDT) -> None:
        super().__init__(shell)
        self._shell = shell
        self._defaults = config
        config.observe(_limit_changed, ["timeout", "hang_after"])

    # -- the session ---------------------------------------------------------------------------

    @line_magic
    @opt.options(
        opt.WORLD_SIZE,
        opt.BACKEND,
        opt.DEVICE,
        opt.TIMEOUT,
        opt.HANG_AFTER,
        opt.MEMORY,
        opt.NO_GROUP,
        opt.SIMULATE,
    )
    def ddt_start(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Start a session: N processes that run cells together."""
        running = active.get()
        if running is not None:
            raise UsageError(
                f"ddt_start: a session of {words.count(running.world_size, 'rank')} is running; "
                "%ddt_restart renews it, %ddt_stop ends it"
            )
        return StatusView(self._start(args).status())

    @line_magic
    @opt.options()
    def ddt_stop(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """End the session and all its processes."""
        session = self._session()
        with _one_line("ddt_stop"):
            session.stop()
        return Message(f"stopped: {words.count(session.world_size, 'rank')} ended")

    @line_magic
    @opt.options()
    def ddt_restart(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Replace all ranks by fresh ones; their variables are lost."""
        session = self._session()
        with _one_line("ddt_restart"):
            session.restart()
        return StatusView(session.status())

    @line_magic
    @opt.options()
    def ddt_status(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Show the ranks: process, state, memory, line."""
        with _one_line("ddt_status"):
            return StatusView(self._session().status())

    # -- running cells -------------------------------------------------------------------------

    @line_cell_magic
    @opt.options(opt.RANKS, opt.TIMEOUT, opt.OUT, opt.FREEZE)
    def ddt(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Run the cell on the ranks; a failure is diagnosed there and then."""
        if cell is None:
            raise UsageError("ddt: put %%ddt on the first line of a cell, and its code below")
        return self._run(self._session(), cell, args, freeze=args.freeze)

    @line_cell_magic
    @opt.options(opt.WORLD_SIZE, opt.RANKS, opt.TIMEOUT, opt.OUT)
    def ddt_debug(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Say what is wrong: with the last run (%ddt_debug), or with this cell (%%ddt_debug).

        Above a cell it starts a session if there is none and runs the cell with every probe on.
        """
        session = active.get()
        if cell is None:
            if any(value for option, value in vars(args).items() if option != "help"):
                raise UsageError("ddt_debug: options belong to %%ddt_debug, on top of a cell")
            if session is None or session.last_run is None:
                return Message(_FIRST_STEPS)
            return _report(session.last_run)
        if session is None:
            session = self._start(args)
        elif args.world_size not in (None, session.world_size):
            raise UsageError(
                f"ddt_debug: the session has {words.count(session.world_size, 'rank')}; "
                f"%ddt_stop ends it, then -n {args.world_size} starts another"
            )
        return self._run(session, cell, args, overview=True, trace=True)

    @line_magic
    @opt.options()
    def ddt_release(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """End a hang that %%ddt --freeze holds; the variables stay."""
        session = self._session()
        if not session.frozen:
            raise UsageError("ddt_release: no hang is held; %%ddt --freeze holds the next one")
        with _one_line("ddt_release"):
            run = session.release()
        return _report(run)

    # -- objects -------------------------------------------------------------------------------

    @line_magic
    @opt.options(opt.NAMES, opt.RANKS)
    def ddt_push(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Copy variables of the notebook to the ranks."""
        session = self._session()
        values = {name: self._variable(name) for name in args.names}
        with _one_line("ddt_push"):
            sizes = session.push(args.ranks, **values)
        sent = ", ".join(f"{name} ({words.size(size)})" for name, size in sizes.items())
        ranks = range(session.world_size) if args.ranks is None else args.ranks
        return Message(f"pushed {sent} to {words.ranks(ranks)}")

    @line_magic
    @opt.options(opt.NAME, opt.RANK, opt.AS)
    def ddt_pull(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Copy a variable of one rank into the notebook."""
        session = self._session()
        with _one_line("ddt_pull"):
            value = session.pull(args.name, rank=args.rank)
        target = args.as_name or args.name
        self._shell.user_ns[target] = value
        return Message(f"{target} = {args.name} of rank {args.rank} ({type(value).__name__})")

    # -- knowledge -----------------------------------------------------------------------------

    @line_magic
    @opt.options(opt.CODE)
    def ddt_explain(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Explain a symptom: its stage, how often the study saw it, what repaired it."""
        try:
            symptom = taxonomy.symptom(args.code)
        except taxonomy.UnknownSymptom as error:
            raise UsageError(f"ddt_explain: {error}") from error
        return ExplanationView(symptom, taxonomy.fixes(symptom.code))

    @line_magic
    @opt.options(opt.VIEW, opt.VARIABLES, opt.ZOOM)
    def ddt_show(self, args: argparse.Namespace, cell: str | None = None) -> object:
        """Show one view of the last run, or of what the ranks hold."""
        if args.zoom and args.view != "timeline":
            raise UsageError("ddt_show: --zoom is for the timeline: %ddt_show timeline --zoom")
        if args.view in RANK_VIEWS:
            with _one_line("ddt_show"):
                return RANK_VIEWS[args.view](self._session(), *args.variables)
        if args.view not in RUN_VIEWS:
            known = ", ".join([*RUN_VIEWS, *RANK_VIEWS])
            raise UsageError(f"ddt_show: there is no view {args.view!r}; there is: {known}")
        run = self._session().last_run
        if run is None:
            raise UsageError("ddt_show: nothing has run yet; put %%ddt on top of a cell and run it")
        if args.zoom and getattr(self._shell, "kernel", None) is not None:
            from ..widgets.zoom import TimelineZoom

            return TimelineZoom(api.timeline(run.snapshot), self._shell)
        return RUN_VIEWS[args.view](run.snapshot)

    # -- shared --------------------------------------------------------------------------------

    def _session(self) -> Session:
        session = active.get()
        if session is None:
            raise UsageError("no session: start one with %ddt_start -n 4 first")
        return session

    def _start(self, args: argparse.Namespace) -> Session:
        """A session from a magic's options, the rest from the defaults."""
        given = {name: value for name, value in vars(args).items() if value is not None}
        defaults = self._defaults
        with _one_line("ddt_start"), self._while_warming():
            return Session(
                given.get("world_size", defaults.ranks),
                backend=given.get("backend", defaults.backend),
                device=given.get("device", None if "simulate" in given else defaults.device),
                timeout=given.get("timeout", defaults.timeout),
                hang_after=given.get("hang_after", defaults.hang_after),
                memory=given.get("memory", defaults.memory),
                group=not given.get("no_group", False),
                simulate=given.get("simulate"),
            )

    def _while_warming(self) -> AbstractContextManager[None]:
        """The first session of a notebook waits until torch is imported: say so."""
        if launcher.is_warm() or self.shell is None:
            return nullcontext()
        return live_line(self.shell, "starting: importing torch for the ranks, once per notebook …")

    def _run(
        self,
        session: Session,
        cell: str,
        args: argparse.Namespace,
        *,
        overview: bool = False,
        **settings: Any,
    ) -> Displayable:
        running = range(session.world_size) if args.ranks is None else args.ranks
        with _one_line("ddt"):
            run = session.run(
                cell,
                ranks=args.ranks,
                timeout=args.timeout,
                cell=self._shell.displayhook.prompt_count or None,  # as Out[] shows it
                first_line=2,  # the magic itself is line 1: numbers equal the notebook's
                listener=OutputStreamer(self._shell, running, session.output_file),
                **settings,
            )
        if args.out:
            self._shell.user_ns[args.out] = run
        report = _report(run)
        shown: Displayable = report
        if overview and not run.frozen:
            shown = Overview(report, _flagged(run))
        if run.ok:
            return shown
        in_terminal = getattr(self._shell, "kernel", None) is None
        colour = self._defaults.colour and self._shell.colors.lower() != "nocolor"
        if in_terminal:
            print(report.to_terminal(colour=colour) if shown is report else shown.to_text())
        else:
            self._shell.display_pub.publish(shown._repr_mimebundle_())
        raise CellFailed(report, colour=colour)

    def _variable(self, name: str) -> object:
        known = self._shell.user_ns
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; a similar one exists: {near[0]}" if near else ""
            raise UsageError(f"ddt_push: the notebook has no variable {name!r}{hint}")
        return known[name]


def _limit_changed(change: Any) -> None:
    """``%config DDT.timeout = 20`` holds for a session that is already running, too."""
    session = active.get()
    if session is not None:
        setattr(session, change.name, change.new)


def _report(run: RunResult) -> DisplayedReport:
    killed = {report.rank for report in run.snapshot.ranks if report.killed}
    lost = [
        f"rank {rank} {'would not end and ' if rank in killed else ''}was replaced by a fresh one; "
        f"it lost {', '.join(names) if names else 'what this cell made'}"
        for rank, names in run.lost.items()
    ]
    what = "moment" if run.snapshot.outcome == "interrupted" else "hang"
    held = [f"the {what} is held: %ddt_show stacks looks at it, %ddt_release ends it"]
    return show(diagnose(run.snapshot), run.snapshot, lost + (held if run.frozen else []))


def _flagged(run: RunResult) -> dict[str, Flagged]:
    """The views of a run, less those of which nothing was recorded."""
    views = {}
    for name, view in _FLAGGED.items():
        with suppress(ValueError):
            views[name] = view(run)
    return views


@contextmanager
def _one_line(magic: str) -> Iterator[None]:
    """Turn what the session refuses into the one-line error of a magic."""
    try:
        yield
    except (SessionError, ValueError) as error:
        raise UsageError(f"{magic}: {words.one_line(str(error), 1000)}") from error
