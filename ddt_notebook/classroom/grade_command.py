"""The command ``ddt-notebook grade``."""

from __future__ import annotations

import argparse
import functools
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ddt_notebook.host.errors import SessionError
from ddt_notebook.host.limits import parse_bytes

from ..argument_types import seconds
from ..output_encoding import print_json
from ..rank import confinement
from ..views import safe
from .sandbox import leave_network


def add_grade(commands: Any) -> None:
    """Declare the command on the parser of ``ddt-notebook``."""
    graded = commands.add_parser(
        "grade",
        help="grade the exercises in notebooks that were handed in",
        description="Run each exercise cell on fresh ranks with data of the grader, and grade what "
        "it does. Other cells of the notebooks run only with --helper-cells.",
    )
    graded.add_argument(
        "notebooks",
        nargs="+",
        type=Path,
        metavar="NOTEBOOK.ipynb|FOLDER",
        help="a notebook, or a folder: all notebooks in and below it",
    )
    graded.add_argument(
        "--helper-cells",
        action="store_true",
        help="if a cell uses a name that is not defined, run it again after the cells above it "
        "that define what it uses; they are graded as one program, within the same limits",
    )
    graded.add_argument("--csv", type=Path, metavar="PATH", help="write the results to a CSV file")
    graded.add_argument("--json", action="store_true", help="print the results as JSON")
    graded.add_argument(
        "--seconds",
        type=seconds,
        default=30.0,
        help="time limit of a cell (default: %(default)s)",
    )
    graded.add_argument(
        "--memory",
        default="1G",
        metavar="SIZE",
        help="memory limit of a rank (default %(default)s)",
    )
    graded.add_argument(
        "--processes",
        type=_count,
        default=16,
        metavar="N",
        help="number of processes that a rank may start (default: %(default)s)",
    )
    graded.set_defaults(run=grade)


def grade(options: argparse.Namespace) -> int:
    """Grade the notebooks, print and write the results; return 0 if all passed."""
    parse_bytes(options.memory)
    enclosed = leave_network()  # before an import could start a thread

    from .grader import Limits, processes_allowed
    from .submissions import notebooks_in, regrade, student_of, write_csv

    def report(*words: str) -> None:
        print(*map(safe.one_line, words), file=sys.stderr)

    report(f"network: {_NETWORK[enclosed]}")
    report(f"files: {_FILES[bool(confinement.version())]}")
    counted = "" if processes_allowed(0) is None else ", and RLIMIT_NPROC"
    report(
        f"each rank: memory {options.memory} (RLIMIT_DATA), {options.processes} child processes "
        f"(audit hook{counted}); each cell: {options.seconds:g} s"
    )
    limits = Limits(seconds=options.seconds, memory=options.memory, processes=options.processes)
    if options.csv is not None and not options.csv.resolve().parent.is_dir():
        raise SessionError(f"{options.csv}: this folder does not exist")
    paths = [path for given in options.notebooks for path in notebooks_in(given)]
    _warn_of_namesakes([student_of(path) for path in paths], paths, report)
    rows = []
    say = functools.partial(report, "grading")
    for row in regrade(paths, limits, say, helper_cells=options.helper_cells):
        rows.append(row)
        if not options.json:
            held = f"{row.held} of {row.behaviours} behaviours hold" if row.behaviours else ""
            result = "passed" if row.passed else held or "not graded"
            names = f"{row.student}  {row.exercise or row.notebook}"
            print(f"{safe.one_line(names)}  {result}", flush=True)
            if row.message:
                print(f"  {safe.clean(row.message)}", flush=True)
    if options.csv is not None:
        with open(options.csv, "w", encoding="utf-8", newline="") as file:
            write_csv(rows, file)
    if options.json:
        print_json([asdict(row) for row in rows])
    return 0 if all(row.passed for row in rows) else 1


def _warn_of_namesakes(
    students: Sequence[str], notebooks: Sequence[Path], report: Callable[[str], None]
) -> None:
    """Warn of several notebooks with the same name and student: they probably have several."""
    named = Counter(zip(students, (path.name for path in notebooks), strict=True))
    for (name, file), number in named.items():
        if number > 1:
            report(
                f"{number} notebooks {file} seem to be from {name!r}: put them below "
                "submitted/STUDENT/, or name them after the students"
            )


_FILES = {
    True: "a cell reads Python and the system, and writes its own folder (Landlock)",
    False: "those of your user (the kernel has no Landlock)",
}
_NETWORK = {
    True: "none; the ranks run in a network namespace with only a loopback interface",
    False: "Python refuses connections to other machines (audit hook); the system permits no "
    "network namespace",
}


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number: write 0 or more")
    return int(text)
