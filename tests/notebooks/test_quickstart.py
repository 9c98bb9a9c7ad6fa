"""The main job: the quick start runs from beginning to end, without a browser."""

from __future__ import annotations

import io
import re
from pathlib import Path

import nbformat
import pytest

from ddt_notebook.demo import DemoError, find_notebook, run_demo


def test_the_notebook_is_valid_and_has_one_cell_that_is_meant_to_fail() -> None:
    book = nbformat.read(find_notebook(), as_version=4)
    nbformat.validate(book)
    failing = [c.id for c in book.cells if "raises-exception" in c.metadata.get("tags", [])]
    assert failing == ["fault"]


def test_the_quick_start_names_the_fault_and_trains_on(tmp_path: Path) -> None:
    html, stream = tmp_path / "demo.html", io.StringIO()
    run_demo(html, stream=stream)
    text = stream.getvalue()

    accuracies = [float(found) for found in re.findall(r"test accuracy (\d+\.\d)%", text)]
    assert len(accuracies) == 2
    assert min(accuracies) > 95.0

    finding = text[text.index("hang D.2.1") :]
    assert re.search(r"rank 0 never entered all_reduce", finding)
    assert re.search(r"ranks 1-3", finding)
    assert "loss_function(model(x), y).backward()" in finding
    assert re.search(r"^\s*\|?\s*fix ", finding, re.MULTILINE)
    # The cell after the hang ran in the same processes, with the variables of the one before.
    assert re.search(r"rank 0 remembers its [1-9]\d* steps", text)

    page = html.read_text(encoding="utf-8")
    assert "never entered all_reduce" in page


def make_notebook(path: Path, source: str, tags: list[str]) -> Path:
    cell = nbformat.v4.new_code_cell(source, id="only", metadata={"tags": tags})
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    return path


@pytest.mark.parametrize(
    ("source", "tags", "message"),
    [
        ("1 / 0", [], "cell 1 of book.ipynb failed: ZeroDivisionError"),
        ("1 + 1", ["raises-exception"], "'only' is there to fail, but it did not"),
    ],
)
def test_a_quick_start_that_goes_wrong_is_not_shown_as_a_success(
    tmp_path: Path, source: str, tags: list[str], message: str
) -> None:
    book = make_notebook(tmp_path / "book.ipynb", source, tags)
    html = tmp_path / "out.html"
    with pytest.raises(DemoError, match=message):
        run_demo(html, notebook=book, stream=io.StringIO())
    assert html.exists()
