"""The command ``ddt-notebook script``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from .demo import use_colour
from .diagnosis import diagnose
from .host.errors import SessionError
from .host.listeners import DisplayMessage, SilentListener, Stream
from .host.session import Session
from .output_encoding import print_json
from .views.line_buffer import LineBuffer
from .views.report import show


def add_script(commands: Any) -> None:
    """Declare the command on the parser of ``ddt-notebook``."""
    command = commands.add_parser(
        "script",
        help="run a script on ranks as torchrun does, and diagnose the run",
        description="Run a training script on ranks of this machine as torchrun does, and print "
        "what is found. The exit status is 0 if the script ran well and nothing was found.",
    )
    command.add_argument("-n", dest="n", type=int, default=2, metavar="N", help="ranks (default 2)")
    command.add_argument("--backend", default="gloo", metavar="NAME", help="default %(default)s")
    command.add_argument("--simulate", metavar="cuda:N", help="pretend that there are N GPUs")
    command.add_argument("-t", "--timeout", type=float, metavar="SECONDS", help="of a collective")
    command.add_argument("--hang-after", type=float, default=2.0, metavar="SECONDS")
    command.add_argument("--memory", metavar="SIZE", help="limit of each rank, such as 512M")
    command.add_argument(
        "--seed", type=int, metavar="N", help="rank r begins with random states of N + r"
    )
    command.add_argument(
        "--trace", action="store_true", help="run with every probe: timeline, memory, branches"
    )
    command.add_argument("--save", type=Path, metavar="RUN.ddt.json", help="save what was observed")
    command.add_argument("--json", action="store_true", help="print the report as JSON")
    command.add_argument("file", metavar="FILE.py")
    command.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARG")
    command.set_defaults(run=_script)


class LinePrinter(SilentListener):
    """Prints the ranks' lines as they arrive, with the rank in front, as torchrun's logs have."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[int, Stream], LineBuffer] = {}

    def on_output(self, rank: int, stream: Stream, text: str) -> None:
        buffer = self._buffers.setdefault((rank, stream), LineBuffer())
        for line in buffer.feed(text):
            print(f"[rank{rank}]: {line}", file=sys.stderr, flush=True)

    def on_display(self, rank: int, message: DisplayMessage) -> None:
        self.on_output(rank, "stdout", f"{message.data.get('text/plain', '')}\n")

    def on_end(self) -> None:
        for (rank, _), buffer in self._buffers.items():
            for line in buffer.finish():
                print(f"[rank{rank}]: {line}", file=sys.stderr)


def _script(options: argparse.Namespace) -> int:
    if not Path(options.file).is_file():
        raise SessionError(f"{options.file} is not a file")
    with Session(
        options.n,
        backend=options.backend,
        simulate=options.simulate,
        timeout=options.timeout,
        hang_after=options.hang_after,
        memory=options.memory,
        seed=options.seed,
    ) as session:
        run = session.run_script(
            options.file, options.arguments, trace=options.trace, listener=LinePrinter()
        )
    if options.save is not None:
        run.snapshot.save(options.save)
    for rank, error in run.errors.items():
        if not error.released:
            print(f"[rank{rank}]: {error.traceback}", file=sys.stderr)
    report = show(diagnose(run.snapshot), run.snapshot)
    if options.json:
        print_json(report.to_json())
    else:
        print(report.to_terminal(colour=use_colour(sys.stdout)))
    return 0 if run.ok and report.ok else 1
