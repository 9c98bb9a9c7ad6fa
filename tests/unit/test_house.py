"""Rules of the house that no linter checks."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

#: A file is as long as its subject needs; beyond this it has probably more than one.
MAX_LINES = 1000
#: Absolute paths of whoever wrote it, and hosts from which packages are fetched.
PRIVATE = re.compile(
    r"(?<![\w./-])/(?:work|root|home|Users|farm|opt)/[\w.-]+"
    r"|\b(?:files\.pythonhosted|download\.pytorch|(?:test\.)?pypi\.org/simple|registry\.npmjs)\b"
)
TEXT = {".py", ".md", ".toml", ".txt", ".csv", ".css", ".ipynb", ".json", ".yml", ".yaml", ""}


def tracked(root: Path) -> list[Path]:
    """What is or would be committed."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=root,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = listed.stdout.decode().split("\0")
    return [root / name for name in names if name and (root / name).is_file()]


def python_files(root: Path) -> list[Path]:
    return [path for path in tracked(root) if path.suffix == ".py"]


def test_every_file_has_one_purpose(root: Path) -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in python_files(root)}
    assert lengths, "no files found"
    long = [f"{path.relative_to(root)}: {n}" for path, n in lengths.items() if n >= MAX_LINES]
    assert not long


def test_nothing_names_the_machine_it_was_written_on(root: Path) -> None:
    found = [
        f"{path.relative_to(root)}: {match.group()}"
        for path in tracked(root)
        if path.suffix in TEXT and path != Path(__file__)
        for match in PRIVATE.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found


def test_no_exception_is_swallowed(root: Path) -> None:
    silent = []
    for path in python_files(root):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ExceptHandler):
                continue
            broad = node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"}
            if broad and all(isinstance(step, ast.Pass | ast.Continue) for step in node.body):
                silent.append(f"{path.relative_to(root)}:{node.lineno}")
    assert not silent


def test_every_module_says_what_it_is_for(root: Path) -> None:
    package = root / "ddt_notebook"
    mute = [
        str(path.relative_to(root))
        for path in python_files(root)
        if path.is_relative_to(package) and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not mute


def test_public_names_survive_the_import_of_subpackages() -> None:
    """No package or module has the name of a public function."""
    code = (
        "import ddt_notebook as ddt, ddt_notebook.magics.magics\n"
        "assert callable(ddt.diagnose) and callable(ddt.taxonomy)\n"
        "assert all(hasattr(ddt, name) for name in ddt.__all__)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
