"""Which files count as the user's code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from ddt_notebook.host import session
from ddt_notebook.model.user_code import is_user_code, package_file


@pytest.mark.parametrize(
    "file",
    [
        "cell[3]",
        "<stdin>",
        "train.py",
        "/project/project/train.py",
        "/project/ddt_notebook/train.py",
        "/project/lib/pythonic/train.py",
        __file__,
    ],
)
def test_cells_and_files_of_a_project_are_the_users(file: str) -> None:
    assert is_user_code(file)


@pytest.mark.parametrize(
    "file",
    [
        "",
        "<string>",
        "<frozen runpy>",
        json.__file__,
        torch.__file__,
        pytest.__file__,
        session.__file__,
        "/srv/lib/python3.10/site-packages/accelerate/utils/operations.py",
        "/usr/lib/python3/dist-packages/torch/serialization.py",
        "/usr/lib/python3.12/json/decoder.py",
    ],
)
def test_python_and_installed_libraries_are_not(file: str) -> None:
    assert not is_user_code(file)


def test_a_folder_of_installed_packages_may_hold_the_users_files_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "somelib-1.0.dist-info"
    about.mkdir()
    (about / "RECORD").write_text("somelib/__init__.py,,\nsomelib/inner/deep.py,,\nonefile.py,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    installed = [str(tmp_path / name) for name in ("somelib/inner/deep.py", "onefile.py")]
    assert not any(map(is_user_code, installed))
    assert is_user_code(str(tmp_path / "train.py"))
    assert is_user_code(str(tmp_path / "somelibs" / "mine.py"))


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/env/lib/python3.11/site-packages/accelerate/utils/a.py", "accelerate/utils/a.py"),
        ("/usr/lib/python3/dist-packages/lightning.py", "lightning.py"),
        ("C:\\env\\Lib\\site-packages\\accelerate\\a.py", "accelerate/a.py"),
        ("/env/lib/python3.11/site-packages/torch/nn/parallel/distributed.py", None),
        ("/env/lib/python3.11/site-packages/ddt_notebook/rank/shell.py", None),
        ("/env/lib/python3.11/contextlib.py", None),
        ("/project/train.py", None),
        ("cell[1]", None),
    ],
)
def test_a_file_of_a_package_is_shown_from_its_name_on(file: str, shown: str | None) -> None:
    assert package_file(file) == shown
