"""Every committed notebook is executed, readable without running, and free of machine data."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from ddt_notebook.symptoms.lessons import notebooks, notebooks_folder

from .conftest import prose, read

NAMES = list(notebooks())
#: Students fill them in: they are there to be run, not to be read.
EXERCISES = "exercises/"
EXECUTED = [name for name in NAMES if not name.startswith(EXERCISES)]
LARGEST = 1_000_000
#: What a browser would fetch or run.
ACTIVE = re.compile(r"<script|<link|<iframe|@import|\bsrc\s*=\s*[\"']?\s*(?:https?:)?//|\bon\w+=\"")
TEMPORARY = re.compile(r"(?<![\w./-])/(?:tmp|var/folders)/|\bipykernel_\d")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def shown(name: str) -> Iterator[tuple[str, str]]:
    """Type and text of everything that the outputs of a notebook show."""
    for cell in read(notebooks_folder() / name).cells:
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                yield "text/plain", output.text
            elif output.output_type == "error":
                yield "text/plain", "\n".join([output.evalue, *output.traceback])
            else:
                yield from ((kind, str(text)) for kind, text in output.data.items())


@pytest.mark.parametrize("name", EXECUTED)
def test_it_was_executed_from_beginning_to_end(name: str) -> None:
    cells = [c for c in read(notebooks_folder() / name).cells if c.cell_type == "code"]
    counts = [cell.execution_count for cell in cells if cell.source.strip()]
    assert counts == list(range(1, len(counts) + 1))
    assert any(cell.outputs for cell in cells)


@pytest.mark.parametrize("name", EXECUTED)
def test_a_cell_fails_if_and_only_if_it_is_meant_to(name: str) -> None:
    for cell in read(notebooks_folder() / name).cells:
        failed = any(output.output_type == "error" for output in cell.get("outputs", []))
        assert failed == ("raises-exception" in cell.metadata.get("tags", [])), cell.source


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_the_machine_or_the_moment_is_kept(name: str) -> None:
    book = read(notebooks_folder() / name)
    assert "widgets" not in book.metadata
    assert not [cell.id for cell in book.cells if "execution" in cell.metadata]
    found = [match.group() for _, text in shown(name) for match in TEMPORARY.finditer(text)]
    assert not found


@pytest.mark.parametrize("name", NAMES)
def test_its_outputs_fetch_and_run_nothing(name: str) -> None:
    found = [
        match.group()
        for kind, text in shown(name)
        if kind in ("text/html", "text/markdown", "image/svg+xml")
        for match in ACTIVE.finditer(text)
    ]
    assert not found
    assert not [kind for kind, _ in shown(name) if "javascript" in kind]


@pytest.mark.parametrize("name", NAMES)
def test_every_rich_output_has_a_form_for_a_terminal(name: str) -> None:
    for cell in read(notebooks_folder() / name).cells:
        for output in cell.get("outputs", []):
            if "data" in output:
                assert str(output.data.get("text/plain", "")).strip(), cell.source


@pytest.mark.parametrize("name", NAMES)
def test_its_links_lead_somewhere(name: str) -> None:
    path = notebooks_folder() / name
    for target in LINK.findall(prose(read(path))):
        if target.startswith(("https://", "http://", "#")):
            continue
        file = target.partition("#")[0]
        assert (path.parent / file).exists(), target


@pytest.mark.parametrize("name", NAMES)
def test_it_is_no_larger_than_people_like_to_open(name: str) -> None:
    assert (notebooks_folder() / name).stat().st_size < LARGEST
