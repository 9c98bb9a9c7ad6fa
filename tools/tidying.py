"""Removes from an executed notebook everything that depends on the machine or the moment."""

from __future__ import annotations

import re
import site
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
#: Random ids of nbformat and JupyterLab.
_RANDOM_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){0,3}(-[0-9a-f]{12})?")
_WIDGET = "application/vnd.jupyter.widget-view+json"


def tidy(book: NotebookNode) -> None:
    """Strip times, widget state and random ids from ``book``, and paths of this machine."""
    book.metadata = NotebookNode(
        kernelspec={"display_name": "Python 3", "language": "python", "name": "python3"},
        language_info={"file_extension": ".py", "mimetype": "text/x-python", "name": "python"},
    )
    for number, cell in enumerate(book.cells, start=1):
        if _RANDOM_ID.fullmatch(cell.get("id", "")):
            cell.id = f"cell-{number:02}"
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = list(_merged(_tidied(o) for o in cell.outputs if not _is_blank(o)))


def scrub(text: str) -> str:
    """Replace the machine's part of each path in ``text`` by ``…``."""
    for pattern, replacement in _patterns():
        text = pattern.sub(replacement, text)
    return text


def _patterns() -> Iterator[tuple[re.Pattern[str], str]]:
    """Longest paths first, since an environment is often in the repository or the home."""
    packages = {*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_path("purelib")}
    for folder in sorted(_as_written(packages), key=len, reverse=True):
        yield re.compile(re.escape(folder) + r"/(?=\w)"), ""  # "torch/nn/modules/module.py"
        yield re.compile(re.escape(folder) + r"\b"), "…/site-packages"
    for folder in _as_written({sysconfig.get_path("stdlib")}):
        yield re.compile(re.escape(folder) + r"(?=/|\b)"), f"…/{Path(folder).name}"
    for prefix in sorted(_as_written({sys.prefix, sys.base_prefix}), key=len, reverse=True):
        if prefix != "/usr":  # every machine has it
            yield re.compile(re.escape(prefix) + r"(?=/|\b)"), "…"
    for folder in _as_written({str(ROOT)}):
        yield re.compile(re.escape(folder) + r"(?=/|\b)"), "…"
    for folder in _as_written({tempfile.gettempdir()}):
        yield re.compile(re.escape(folder) + r"/[\w.-]+"), "…"
    yield re.compile(re.escape(str(Path.home())) + r"(?=/|\b)"), "~"


def _as_written(paths: set[str]) -> list[str]:
    """Paths in the forms in which they appear: in full, resolved, and with ``~`` for the home."""
    home = str(Path.home())
    found = {path.rstrip("/") for path in paths} | {str(Path(path).resolve()) for path in paths}
    short = {"~" + path[len(home) :] for path in found if path.startswith(home + "/")}
    return sorted(found | short)


def _tidied(output: NotebookNode) -> NotebookNode:
    output.pop("transient", None)
    if "data" in output:
        output.data.pop(_WIDGET, None)
    return _scrubbed(output)


def _scrubbed(plain: object) -> object:
    if isinstance(plain, str):
        return scrub(plain)
    if isinstance(plain, dict):
        return NotebookNode({key: _scrubbed(value) for key, value in plain.items()})
    if isinstance(plain, list):
        return [_scrubbed(value) for value in plain]
    return plain


def _is_blank(output: NotebookNode) -> bool:
    """Whether the output is an empty display, such as that of finished progress."""
    return output.output_type == "display_data" and not any(
        value.strip() if isinstance(value, str) else value for value in output.data.values()
    )


def _merged(outputs: Iterator[NotebookNode]) -> Iterator[NotebookNode]:
    """Join consecutive pieces of one stream, since their boundaries depend on timing."""
    held: NotebookNode | None = None
    for output in outputs:
        if held is None:
            held = output
        elif held.output_type == output.output_type == "stream" and held.name == output.name:
            held.text += output.text
        else:
            yield held
            held = output
    if held is not None:
        yield held
