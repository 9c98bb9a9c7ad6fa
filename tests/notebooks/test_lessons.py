"""Each named symptom and each fault of part E has a lesson that can be read from end to end."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from ddt_notebook.symptoms import lessons, symptom, symptoms

from .conftest import FENCE, prose, read, sections

HEADINGS = [
    "The cell that fails",
    "Predict",
    "Observe",
    "Why",
    "The fix",
    "The fixed run",
    "On a real cluster",
    "Tell it apart",
    "References",
]
PATHS = {
    known.code: path for known in symptoms() if (path := lessons.lesson(known.code)) is not None
}
#: Part E, by the code in the name of the file.
TODAY = {Path(path).name.split("-")[0]: path for path in lessons.lessons_of_today()}
ALL = PATHS | TODAY
#: An image of a lesson: its description and its file.
PICTURE = re.compile(r"!\[([^\]]*)\]\(\.\./pictures/([\w.-]+)\)")
#: A row that quotes the sources of PyTorch: the file below the folder torch, and the words there.
SOURCE = re.compile(
    r"\]\(https://github\.com/pytorch/pytorch/blob/v[\d.]+/torch/([^)]+)\)"
    r" \| (`{1,2}) ?(.+?) ?\2 \|$",
    re.MULTILINE,
)


def text_of(cells: list) -> str:
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


@pytest.mark.parametrize("code", ALL)
def test_the_lesson_has_all_its_parts_in_order(folder: Path, code: str) -> None:
    book = read(folder / ALL[code])
    title = book.cells[0].source.splitlines()[0]
    subject = "" if code in TODAY else symptom(code).title
    assert title.lower().startswith(f"# {code} {subject}".lower())
    assert [name for name in sections(book) if name] == HEADINGS


@pytest.mark.parametrize("code", ALL)
def test_the_reader_is_asked_before_the_answer_is_shown(folder: Path, code: str) -> None:
    parts = sections(read(folder / ALL[code]))
    choices = re.findall(r"^(?:[-*]|\d\.|\w[.)]) ", text_of(parts["Predict"]), re.MULTILINE)
    assert len(choices) >= 3
    everything = prose(read(folder / ALL[code]))
    assert everything.index("## Predict") < everything.index("<details>")
    assert everything.count("<details>") == everything.count("</details>")


@pytest.mark.parametrize("code", ALL)
def test_the_reason_is_drawn_and_the_fix_is_a_diff(folder: Path, code: str) -> None:
    parts = sections(read(folder / ALL[code]))
    why = text_of(parts["Why"])
    views = [cell for cell in parts["Why"] if cell.source.startswith("%ddt_show ")]
    shown = PICTURE.findall(why)
    assert shown or views or "\n|---|" in why
    assert all((folder / "pictures" / file).is_file() for _, file in shown)
    assert all(len(described) >= 40 for described, _ in shown)
    assert "" not in [kind for kind, _ in FENCE.findall(why)], "drawn with letters"
    diffs = [body for kind, body in FENCE.findall(text_of(parts["The fix"])) if kind == "diff"]
    assert any(re.search(r"^[-+]", body, re.MULTILINE) for body in diffs)


@pytest.mark.parametrize("code", ALL)
def test_the_fault_and_its_repair_are_run(folder: Path, code: str) -> None:
    book = read(folder / ALL[code])
    parts = sections(book)
    code_cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert any(cell.source.startswith("%%ddt") for cell in code_cells)
    fixed = [cell for cell in parts["The fixed run"] if cell.cell_type == "code"]
    assert any(cell.outputs for cell in fixed)
    assert any(re.search(r"^\s*(assert|print)\b", cell.source, re.MULTILINE) for cell in fixed)
    checked = [c for c in code_cells if "nbval-check-output" in c.metadata.get("tags", [])]
    assert checked
    assert not any("NBVAL" in cell.source for cell in code_cells), "tags are for tests, not readers"
    assert all(cell.outputs for cell in checked)
    assert "%ddt_stop" in code_cells[-1].source


@pytest.mark.parametrize("code", ALL)
def test_the_reader_can_read_on(folder: Path, code: str) -> None:
    parts = sections(read(folder / ALL[code]))
    assert re.search(r"\]\(https://[\w.-]+/", text_of(parts["References"]))
    assert "%ddt_explain" in text_of(parts["References"]) + text_of(parts["Tell it apart"])


@pytest.mark.parametrize("code", ALL)
def test_all_lessons_are_written_in_one_way(folder: Path, code: str) -> None:
    book = read(folder / ALL[code])
    text = re.sub(
        r"\]\([^)]*\)|\n\| what this lesson says.*?\n\n", "]", prose(book), flags=re.DOTALL
    )
    first = " ".join(book.cells[0].source.split())
    kind = "Outside of the study" if code in TODAY else "Stage: "
    stated = re.search(rf"\*{kind}[^*]* · (\d+) minutes · \d ranks[^*]*\*", first)
    assert stated, first
    # a reader with another first language reads about 100 words in a minute
    assert int(stated[1]) >= len(re.findall(r"\w+", text)) / 110
    assert "<summary><b>The answer</b></summary>" in text
    assert "**Now break it differently.**" in text
    assert "| looks like it |" not in text


def test_lessons_of_part_e_are_numbered_and_outside_of_the_study(folder: Path) -> None:
    assert list(TODAY) == [f"E.{number}" for number in range(1, len(TODAY) + 1)]
    assert TODAY
    for path in TODAY.values():
        assert "*Outside of the study" in read(folder / path).cells[0].source


def test_there_is_no_lesson_on_anything_else(folder: Path) -> None:
    found = {
        path.relative_to(folder).as_posix()
        for name in lessons.lesson_folders()
        for path in (folder / name).glob("*.ipynb")
    }
    assert found == set(ALL.values())


def test_words_quoted_from_the_sources_of_pytorch_are_there(folder: Path) -> None:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.submodule_search_locations
    torch = Path(spec.submodule_search_locations[0])
    quoted = 0
    for path in ALL.values():
        for file, _, words in SOURCE.findall(prose(read(folder / path))):
            places = (torch / file, torch / "include" / "torch" / file)
            text = next(place for place in places if place.is_file()).read_text("utf-8")
            assert words in text, f"{path}: {file} has no {words!r}"
            quoted += 1
    assert quoted
