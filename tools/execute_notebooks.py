"""Execute notebooks in place, so that their outputs can be committed.

    python tools/execute_notebooks.py notebooks/d-training/*.ipynb
    python tools/execute_notebooks.py --table figures.json notebooks/*/*.ipynb

A cell that fails, or one tagged ``raises-exception`` that does not, leaves the notebook as it was
and ends the command with status 1. Run time, processor time and peak memory are printed for each
notebook. ``--dry-run`` with all lessons shows whether each stays below 40 s and 1.0 GB; on a busy
machine, the processor time shows what a run time is made of.
"""

from __future__ import annotations

import argparse
import re
import resource
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import nbformat
from measuring import PeakMemory
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from nbformat import NotebookNode
from tables import update
from tidying import tidy

CELL_TIMEOUT_S = 60
MEANT_TO_FAIL = "raises-exception"
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class NotebookFailedError(Exception):
    """A notebook did not run as expected; the text names the cell."""


@dataclass(frozen=True)
class Figures:
    """The time and memory of executing one notebook.

    Attributes
    ----------
    seconds
        From the start of its kernel to the end of its last cell.
    megabytes
        Peak proportional set size of the kernel and its descendants, in 10**6 bytes.
    processor_seconds
        Processor time of the kernel and of its descendants that it waited for, of all cores.
    """

    seconds: float
    megabytes: int
    processor_seconds: float


def main() -> int:
    """Execute the notebooks of the command line; return 0 if all succeeded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="+", type=Path, metavar="NOTEBOOK.ipynb")
    parser.add_argument(
        "--table", type=Path, metavar="FILE.json", help="add run time and memory to this file"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="execute and measure, but write no notebook"
    )
    options = parser.parse_args()
    failed = 0
    for path in options.notebooks:
        try:
            figures = execute(path, write=not options.dry_run)
        except NotebookFailedError as error:
            failed += 1
            print(f"{path}: {error}", file=sys.stderr)
            continue
        print(
            f"{path}: {figures.seconds:.1f} s, {figures.megabytes} MB, "
            f"processor time {figures.processor_seconds:.1f} s",
            flush=True,
        )
        if options.table:
            update(options.table, {"notebooks": {path.stem: asdict(figures)}})
    return 1 if failed else 0


def execute(path: Path, *, write: bool = True) -> Figures:
    """Execute the notebook ``path`` in its own folder and replace it by the outcome.

    Raises
    ------
    NotebookFailedError
        If a cell fails unexpectedly, does not fail although it should, or does not end.
    """
    book = nbformat.read(path, as_version=4)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        book,
        timeout=CELL_TIMEOUT_S,
        startup_timeout=CELL_TIMEOUT_S,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=False,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(path.parent.resolve())}},
    )
    began, before = time.monotonic(), _processor_seconds()
    with client.setup_kernel(), PeakMemory(client.km.provisioner.process.pid) as memory:
        for index, cell in enumerate(book.cells):
            _execute_cell(client, cell, index)
        seconds = time.monotonic() - began
    tidy(book)
    nbformat.validate(book)
    if write:
        nbformat.write(book, path)
    used = _processor_seconds() - before  # the kernel has ended: it is counted
    return Figures(round(seconds, 1), round(memory.peak / 1e6), round(used, 1))


def _processor_seconds() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def _execute_cell(client: NotebookClient, cell: NotebookNode, index: int) -> None:
    place = f"cell {index + 1} ({_first_line(cell)!r})"
    try:
        client.execute_cell(cell, index)
    except CellExecutionError as error:
        printed = "".join(o.text for o in cell.outputs if o.output_type == "stream")
        text = _ANSI.sub("", f"{printed}\n{error.traceback}")
        raise NotebookFailedError(f"{place} failed:\n{text}") from error
    except CellTimeoutError as error:
        raise NotebookFailedError(f"{place} did not end in {CELL_TIMEOUT_S} s") from error
    except RuntimeError as error:  # the kernel died
        raise NotebookFailedError(f"{place}: {error}") from error
    failed = any(output.output_type == "error" for output in cell.get("outputs", []))
    if MEANT_TO_FAIL in cell.metadata.get("tags", []) and not failed:
        raise NotebookFailedError(f"{place} is tagged {MEANT_TO_FAIL}, but did not fail")


def _first_line(cell: NotebookNode) -> str:
    return next((line for line in cell.source.splitlines() if line.strip()), "")


if __name__ == "__main__":
    sys.exit(main())
