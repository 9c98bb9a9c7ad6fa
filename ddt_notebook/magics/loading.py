"""``%ddt_load``, ``%ddt_attach``, ``%ddt_replay``: jobs outside this notebook, and saved runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_magic, magics_class

from .. import api
from ..host.session import active
from ..jobs.replay import inputs_of, is_replay, replay
from ..model import DdtError, Snapshot
from ..model.codec import FormatError
from ..views import words
from ..views.replay import ReplayView
from ..views.report import DisplayedReport
from . import options as opt
from .base import one_line
from .output_stream import OutputStreamer

_PATH = opt.Option(
    "path",
    metavar="PATH",
    help="a folder of dumps, logs and stacks, a log, or a saved run (.ddt.json)",
)
_OUT = opt.Option(
    "-o",
    "--out",
    type=opt.name,
    metavar="NAME",
    help="variable that receives the snapshot, for %%ddt_show collectives NAME later on",
)
_TARGETS = opt.Option(
    "targets",
    nargs="+",
    metavar="FOLDER|PID|HOST:PORT",
    help="folder of a recorded job, process id of a launcher or a rank, or "
    "MASTER_ADDR:MASTER_PORT of the job",
)
_FOLDER = opt.Option("folder", metavar="FOLDER", help="the folder of the job")
_RANK = opt.Option(
    "-r", "--rank", type=opt.one_rank, metavar="RANK", help="the rank, if several were recorded"
)
_REPLAY_OUT = opt.Option(
    "-o", "--out", type=opt.name, metavar="NAME", help="variable that receives the outcome"
)


@magics_class
class LoadMagics(Magics):
    """Reports on runs outside this notebook."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._shell = shell

    @line_magic
    @opt.options(_PATH, _OUT)
    def ddt_load(self, args: argparse.Namespace, cell: str | None = None) -> DisplayedReport:
        """Diagnose what a real job left behind (dumps, logs, stacks), or a run that was saved.

        %ddt_show then shows its views, until a cell runs.
        """
        path = Path(args.path).expanduser()
        try:
            if path.name.endswith(".ddt.json"):
                report = api.diagnose(Snapshot.load(path))
            else:
                report = api.diagnose_dumps(path)
        except FormatError as error:
            raise UsageError(f"ddt_load: {error}") from None
        except OSError as error:
            raise UsageError(f"ddt_load: {error.filename or path}: {error.strerror}") from None
        return self._loaded(report, args)

    @line_magic
    @opt.options(_FOLDER, _RANK, _REPLAY_OUT)
    def ddt_replay(self, args: argparse.Namespace, cell: str | None = None) -> ReplayView:
        """Run one rank of a recorded job again, without the others; its variables stay alive.

        The job must have been recorded by ddt-notebook run --record-inputs RANK. The script runs in
        a session of one rank, whose cells (%%ddt) then see its variables. The next replay ends it.
        """
        running = active.get()
        folder = Path(args.folder).expanduser()
        with one_line("ddt_replay"):
            inputs_of(folder, args.rank)  # a mistake must not cost the variables
        if running is not None and not is_replay(running):
            raise UsageError(
                f"ddt_replay: a session of {words.count(running.world_size, 'rank')} is running; "
                "%ddt_stop ends it"
            )
        with one_line("ddt_replay"):
            if running is not None:
                running.stop()
            replayed = replay(
                folder,
                args.rank,
                listener=lambda session: OutputStreamer(self._shell, (0,), session.output_file),
            )
        view = api.replay_view(replayed)
        if args.out:
            self._shell.user_ns[args.out] = view
        return view

    @line_magic
    @opt.options(_TARGETS, _OUT)
    def ddt_attach(self, args: argparse.Namespace, cell: str | None = None) -> DisplayedReport:
        """Diagnose a running job, recorded or started without ddt_notebook.

        %ddt_show then shows its views, until a cell runs.
        """
        try:
            report = api.attach(*args.targets)
        except DdtError as error:
            raise UsageError(f"ddt_attach: {error}") from None
        return self._loaded(report, args)

    def _loaded(self, report: DisplayedReport, args: argparse.Namespace) -> DisplayedReport:
        """Keep the run for %ddt_show and %ddt_debug, and for the variable that was named."""
        active.loaded = report.snapshot
        if args.out:
            self._shell.user_ns[args.out] = report.snapshot
        return report
