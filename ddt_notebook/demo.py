"""Runs the quick start without a browser, and prints its cells in the terminal."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ddt_notebook.model.errors import DdtError

from .symptoms.lessons import notebooks_folder

if TYPE_CHECKING:
    from nbformat import NotebookNode

QUICKSTART = "00-quickstart.ipynb"
#: Every cell of the quick start needs less than a tenth of this on two cores.
CELL_TIMEOUT_S = 120
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class DemoError(DdtError):
    """The demonstration could not run, or did not do what its text describes; one line."""


def find_notebook(name: str = QUICKSTART) -> Path:
    """A notebook of the project, in a checkout or in an installed copy.

    Raises
    ------
    DemoError
        If there is no notebook of this name.
    """
    try:
        path = notebooks_folder() / name
    except FileNotFoundError as error:
        raise DemoError(str(error)) from error
    if not path.is_file():
        raise DemoError(f"this installation lacks the notebook {name}: reinstall ddt-notebook")
    return path


def use_colour(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal, and the user did not ask for plain text."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def run_demo(html: Path, *, notebook: Path | None = None, stream: TextIO | None = None) -> None:
    """Run the quick start in its own kernel, print it cell by cell, and write it as HTML.

    Parameters
    ----------
    html
        Where to write the executed notebook, also if a cell fails.
    notebook
        A notebook to run in place of the quick start.
    stream
        Where to print; standard output by default.

    Raises
    ------
    DemoError
        If a package is missing, a cell fails unexpectedly, or a cell that should fail does not.
    """
    try:
        import nbformat
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError, CellTimeoutError
        from nbconvert import HTMLExporter
    except ImportError as error:
        raise DemoError(f"the demo needs {error.name}: pip install 'ddt-notebook[demo]'") from error

    source = notebook or find_notebook()
    book = nbformat.read(source, as_version=4)
    for cell in book.cells:  # a cell that is not reached must not look as if it had run
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    teller = _Teller(stream or sys.stdout)
    with tempfile.TemporaryDirectory(prefix="ddt-demo-") as folder:
        client = NotebookClient(
            book,
            timeout=CELL_TIMEOUT_S,
            startup_timeout=CELL_TIMEOUT_S,
            kernel_name="python3",
            extra_arguments=["--log-level=ERROR"],
            resources={"metadata": {"path": folder}},
        )
        try:
            with client.setup_kernel():
                for index, cell in enumerate(book.cells):
                    teller.before(cell)
                    client.execute_cell(cell, index)
                    teller.after(cell)
                    _check(cell)
        except CellExecutionError as error:
            teller.after(book.cells[index])
            raise DemoError(f"cell {index + 1} of {source.name} failed: {error.ename}") from error
        except CellTimeoutError as error:
            raise DemoError(f"cell {index + 1} of {source.name} did not end: {error}") from error
        except RuntimeError as error:  # the kernel did not start, or died
            raise DemoError(f"no kernel to run {source.name} in: {error}") from error
        finally:
            page, _ = HTMLExporter().from_notebook_node(
                book, resources={"metadata": {"name": "ddt_notebook: quick start"}}
            )
            html.write_text(page, encoding="utf-8")


def _check(cell: NotebookNode) -> None:
    failed = any(output.output_type == "error" for output in cell.get("outputs", []))
    if _is_meant_to_fail(cell) and not failed:
        raise DemoError(f"the cell {cell.id!r} is there to fail, but it did not")


def _is_meant_to_fail(cell: NotebookNode) -> bool:
    return "raises-exception" in cell.metadata.get("tags", [])


class _Teller:
    """Prints text, code and outputs of cells so that they are distinct without colour."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.colour = use_colour(stream)
        self.width = min(shutil.get_terminal_size((100, 24)).columns, 100)

    def before(self, cell: NotebookNode) -> None:
        if cell.cell_type == "markdown":
            for paragraph in cell.source.split("\n\n"):
                self._paragraph(paragraph)
        else:
            self._print(textwrap.indent(cell.source, "    "), "2")
            self._print("")

    def after(self, cell: NotebookNode) -> None:
        expected = _is_meant_to_fail(cell)
        texts = [_text_of(output, brief=expected) for output in cell.get("outputs", [])]
        shown = "\n".join(text.rstrip() for text in texts if text.strip())
        if shown:
            text = shown if self.colour else _ANSI.sub("", shown)
            self._print("\n".join(f"  | {line}" for line in text.splitlines()))
            self._print("")

    def _paragraph(self, text: str) -> None:
        if text.startswith("#"):
            title = text.lstrip("# ")
            self._print(f"{title}\n{'=' * len(title)}", "1")
        elif text.startswith("- "):
            self._print(_plain(text))
        else:
            self._print(textwrap.fill(_plain(text), self.width, break_on_hyphens=False))
        self._print("")

    def _print(self, text: str, style: str = "") -> None:
        if style and self.colour:
            text = f"\x1b[{style}m{text}\x1b[0m"
        print(text, file=self.stream, flush=True)


def _plain(markdown: str) -> str:
    return markdown.replace("**", "")


def _text_of(output: NotebookNode, *, brief: bool) -> str:
    """The text form of an output; ``brief`` if the finding above an error suffices."""
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}" if brief else "\n".join(output.traceback)
    return str(output.data.get("text/plain", ""))
