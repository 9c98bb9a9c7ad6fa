"""``%ddt_doctor``: what can be checked before a job runs."""

from __future__ import annotations

import argparse

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_magic, magics_class

from ..views.displayable import Displayable
from . import options as opt
from .base import one_line
from .output_stream import live_line

_RANKS = opt.Option(
    "-n",
    dest="ranks",
    type=opt.whole_number,
    metavar="N",
    help="how many ranks this machine has to hold (default: those of the session, else 4)",
)
_QUICK = opt.Option(
    "--quick", action="store_true", help="do not form a group of two processes with each backend"
)
_BANDWIDTH = opt.Option(
    "--bandwidth",
    action="store_true",
    help="measure the bandwidth between several hosts: 16 MiB each way",
)


@magics_class
class DoctorMagics(Magics):
    """The pre-flight report."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._shell = shell

    @line_magic
    @opt.options(_RANKS, _QUICK, _BANDWIDTH)
    def ddt_doctor(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Check versions, backends, environment, network, limits and the ranks before a job."""
        from ..preflight.doctor import doctor

        asking = live_line(self._shell, "checking …")
        with one_line("ddt_doctor"), asking as say:
            return doctor(
                args.ranks,
                form_groups=not args.quick,
                bandwidth=args.bandwidth,
                progress=say,
            )
