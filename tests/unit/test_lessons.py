"""The paths of the lessons, and how users copy them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ddt_notebook.cli import main
from ddt_notebook.model import Finding, Report
from ddt_notebook.symptoms import UnknownSymptom, lessons, symptoms
from ddt_notebook.views import report_text
from ddt_notebook.views.explain import symptom_page
from ddt_notebook.views.report import show


@pytest.mark.parametrize(
    ("code", "path"),
    [
        ("A.1", "a-package/A.1-installation-build-failure.ipynb"),
        ("b.2", "b-communication/B.2-hang-timeout.ipynb"),
        ("C.7", "c-data-and-model/C.7-partition-error.ipynb"),
        ("D.2.1", "d-training/D.2.1-hang.ipynb"),
        ("D.2.2", "d-training/D.2.2-unexpected-parallelization-device.ipynb"),
    ],
)
def test_a_symptom_names_its_lesson(code: str, path: str) -> None:
    assert lessons.lesson(code) == path


def test_only_the_symptoms_without_a_name_have_no_lesson() -> None:
    without = {known.code for known in symptoms() if lessons.lesson(known.code) is None}
    assert without == {"C.8", "D.1.11", "D.2.6"}
    assert len(symptoms()) - len(without) == 27


def test_an_unknown_symptom_has_no_lesson() -> None:
    with pytest.raises(UnknownSymptom):
        lessons.lesson("E.1")


def test_explanations_and_findings_name_the_lesson() -> None:
    path = "d-training/D.2.1-hang.ipynb"
    page = symptom_page("D.2.1")
    assert path in page.to_text()
    assert path in page.to_html()
    assert page.to_json()["lesson"] == path
    assert symptom_page("D.2.6").to_json()["lesson"] is None
    assert "lesson" not in symptom_page("D.2.6").to_text()

    found = Finding(symptom="D.2.1", stage="training & evaluation", title="rank 0 stays away")
    report = Report(ok=False, findings=[found])
    assert path in report_text.report(report)
    assert path in show(report).to_html()


@pytest.mark.parametrize(
    ("current", "address"),
    [("notebooks", "d-training/D.2.1-hang.ipynb"),
     ("notebooks/c-data-and-model", "../d-training/D.2.1-hang.ipynb"),
     (".", None)],
)  # fmt: skip
def test_a_finding_links_the_lesson_beside_the_notebook(
    current: str, address: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for folder in ("c-data-and-model", "d-training"):
        (tmp_path / "notebooks" / folder).mkdir(parents=True)
    (tmp_path / "notebooks" / "d-training" / "D.2.1-hang.ipynb").touch()
    monkeypatch.chdir(tmp_path / current)
    found = Finding(symptom="D.2.1", stage="training & evaluation", title="rank 0 stays away")
    page = show(Report(ok=False, findings=[found])).to_html()
    assert re.findall(r'<a href="([^"]*)">', page) == ([address] if address else [])
    assert ("<a href=" in symptom_page("D.2.1").to_html()) is (address is not None)


def test_the_list_begins_with_the_quick_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lessons"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("00-quickstart.ipynb")
    assert first.endswith("Quick start: a training run that hangs, and how to find out why")
    hang = next(i for i, line in enumerate(rest) if line.startswith("d-training/D.2.1-hang"))
    assert all(not line.startswith(("a-", "b-", "c-")) for line in rest[hang:])


def test_a_copy_does_not_overwrite_existing_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "00-quickstart.ipynb"
    mine.write_text("mine")
    assert main(["lessons", "--copy", str(tmp_path)]) == 0
    assert mine.read_text() == "mine"
    assert "1 existed already" in capsys.readouterr().out
    copied = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.ipynb")}
    assert copied == set(lessons.notebooks())
    assert not [p for p in tmp_path.rglob("*") if p.name.startswith(".")]


def test_a_copy_for_learners_does_not_give_the_answer_away(tmp_path: Path) -> None:
    source = lessons.notebooks_folder()
    lessons.copy_notebooks(tmp_path / "learn")
    lessons.copy_notebooks(tmp_path / "read", executed=True)
    for path in lessons.notebooks():
        text = (source / path).read_text(encoding="utf-8")
        assert (tmp_path / "read" / path).read_text(encoding="utf-8") == text
        cells = json.loads((tmp_path / "learn" / path).read_text(encoding="utf-8"))["cells"]
        asked = [i for i, c in enumerate(cells) if "".join(c["source"]).startswith("## Predict")]
        if not path.startswith(lessons.lesson_folders()):
            assert json.loads(text)["cells"] == cells
            continue
        (at,) = asked
        code = Path(path).name.split("-")[0]
        assert cells[at + 1]["source"] == f"%ddt_predict {code}"
        assert not any(cell.get("outputs") for cell in cells[at:])
        assert any(cell.get("outputs") for cell in cells[:at])
        assert len(cells) == len(json.loads(text)["cells"]) + 1


def test_what_a_user_saves_in_a_checkout_is_no_lesson(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = lessons.notebooks()
    checkout = tmp_path / "checkout"
    lessons.copy_notebooks(checkout / "notebooks", executed=True)
    hang = (
        checkout
        / "notebooks"
        / lessons.lesson_file("D.2.1").relative_to(lessons.notebooks_folder())
    )
    for name in ("Untitled.ipynb", "d-training/mine.ipynb", "ddt-notebook/d-training/copy.ipynb"):
        mine = checkout / "notebooks" / name
        mine.parent.mkdir(parents=True, exist_ok=True)
        mine.write_bytes(hang.read_bytes())
    inside = checkout / "ddt_notebook" / "symptoms" / "lessons.py"
    monkeypatch.setattr(lessons, "__file__", str(inside))
    assert lessons.notebooks() == expected
    lessons.copy_notebooks(tmp_path / "copy")
    copied = {
        p.relative_to(tmp_path / "copy").as_posix() for p in tmp_path.rglob("copy/**/*.ipynb")
    }
    assert copied == set(expected)


def test_an_installation_without_notebooks_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lessons, "__file__", str(tmp_path / "package" / "taxonomy" / "lessons.py"))
    assert main(["lessons"]) == 2
    assert "lacks its notebooks" in capsys.readouterr().err


def test_without_a_command_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "diagnose a running job" in capsys.readouterr().err


def test_the_command_says_where_a_lesson_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lessons", "d.2.1"]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path.is_absolute()
    assert path.is_file()
    assert path.name == "D.2.1-hang.ipynb"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("D.2", "near it: D.2.1"),
        ("hang", "codes run from"),
        ("D.2.6", "no lesson on D.2.6"),
        ("e.99", "part E has E.1 to E.1"),
    ],
)
def test_an_unknown_lesson_is_reported_in_one_line(
    code: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lessons", code]) == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert message in shown.err
    assert shown.err.count("\n") == 1
