"""``%ddt_load`` and ``%ddt_attach``: diagnose jobs outside this notebook, and saved runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_magic, magics_class

from .. import api
from ..model import DdtError, Snapshot
from ..model.codec import FormatError
from ..views.report import DisplayedReport
from . import options as opt

_PATH = opt.Option(
    "path", metavar="PATH", help="a folder of dumps, logs and stacks, or a saved run (.ddt.json)"
)
_OUT = opt.Option(
    "-o",
    "--out",
    type=opt.name,
    metavar="NAME",
    help="variable that receives the snapshot, for views such as ddt.collectives(NAME)",
)
_TARGETS = opt.Option(
    "targets",
    nargs="+",
    metavar="FOLDER|PID|HOST:PORT",
    help="folder of a recorded job, process id of a launcher or a rank, or "
    "MASTER_ADDR:MASTER_PORT of the job",
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
        """Diagnose what a real job left behind (dumps, logs, stacks), or a run that was saved."""
        path = Path(args.path).expanduser()
        try:
            if path.name.endswith(".ddt.json"):
                report = api.diagnose(Snapshot.load(path))
            else:
                report = api.diagnose_dumps(path)
        except FormatError as error:
            raise UsageError(f"ddt_load: {error}") from None
        except OSError as error:
            raise UsageError(f"ddt_load: {path}: {error.strerror}") from None
        if args.out:
            self._shell.user_ns[args.out] = report.snapshot
        return report

    @line_magic
    @opt.options(_TARGETS, _OUT)
    def ddt_attach(self, args: argparse.Namespace, cell: str | None = None) -> DisplayedReport:
        """Diagnose a running job, recorded or started without ddt_notebook."""
        try:
            report = api.attach(*args.targets)
        except DdtError as error:
            raise UsageError(f"ddt_attach: {error}") from None
        if args.out:
            self._shell.user_ns[args.out] = report.snapshot
        return report
