"""Rules of the house that no linter checks."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

#: A file is as long as its subject needs; beyond this it has probably more than one.
MAX_LINES = 1000
#: Absolute paths of the author's machine, and hosts from which packages are fetched.
PRIVATE = re.compile(
    r"(?<![\w./-])/(?:work|root|home|Users|farm|opt)/[\w.-]+"
    r"|\b(?:files\.pythonhosted|download\.pytorch|(?:test\.)?pypi\.org/simple|registry\.npmjs)\b"
)
#: The extras in a requirement of this package.
EXTRAS = re.compile(r"ddt-notebook\[([\w,-]+)\]")
TEXT = {".py", ".md", ".toml", ".txt", ".csv", ".css", ".ipynb", ".json", ".yml", ".yaml", ""}


def tracked(root: Path) -> list[Path]:
    """All files that are or would be committed."""
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


@functools.cache
def parsed(path: Path) -> ast.Module:
    """A file's syntax tree; several rules look at each."""
    return ast.parse(path.read_text())


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


#: Most files have no handler of everything, and need not be parsed.
_BROAD = re.compile(r"\bexcept\b[\s(]*(?::|(?:Base)?Exception\b)")


def test_every_extra_that_is_recommended_exists(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = {
        extra
        for path in tracked(root)
        if path.suffix in (".py", ".md", ".toml", ".ipynb")
        for extras_of in EXTRAS.findall(path.read_text(errors="replace"))
        for extra in extras_of.split(",")
    }
    assert {"deepspeed", "tensorflow", "megatron"} <= named
    assert named <= extras.keys()


def test_no_exception_is_swallowed(root: Path) -> None:
    silent = []
    for path in python_files(root):
        if not _BROAD.search(path.read_text()):
            continue
        for node in ast.walk(parsed(path)):
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
        if path.is_relative_to(package) and not ast.get_docstring(parsed(path))
    ]
    assert not mute


#: Functions that read an attribute by its name.
_BY_NAME = frozenset({"getattr", "hasattr", "setattr", "delattr"})
#: Names with an underscore of the standard library, and those that this package puts into others.
_NOT_OF_TORCH = re.compile(r"(?:os|sys|multiprocessing\.(?:util|process))\._|.*\._ddt_|_ddt_")


def _private_names(path: Path, own: set[str]) -> Iterator[str]:
    """Names with an underscore, of a file that imports torch, which the package does not define."""
    for node in ast.walk(parsed(path)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            private = re.match(r"_(?!_)", node.attr) and node.attr not in own
            names = [ast.unparse(node)] if private else []
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in _BY_NAME:
            given = node.args[1] if len(node.args) > 1 else None
            names = [str(given.value)] if isinstance(given, ast.Constant) else []
        for name in names:
            if re.search(r"(^|\.)_(?!_)", name) and not _NOT_OF_TORCH.match(name):
                yield f"line {getattr(node, 'lineno', 0)}: {name}"


def test_private_names_of_torch_stand_in_one_module(root: Path) -> None:
    package = root / "ddt_notebook"
    files = {
        path: path.read_text()
        for path in python_files(root)
        if path.is_relative_to(package) and not path.is_relative_to(package / "faults")
    }
    own = set()
    for path in files:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                own.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                    own.add(node.attr)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                own.add(node.target.id)
    imports = re.compile(r"(?m)^\s*(import|from) torch")
    with_torch = [path for path, text in files.items() if imports.search(text)]
    door = package / "rank" / "torch_private.py"
    found = {path: list(_private_names(path, own)) for path in with_torch}
    assert len(found.pop(door)) > 10, "the test finds nothing"
    assert not {path.name: names for path, names in found.items() if names}


def test_public_names_survive_the_import_of_subpackages() -> None:
    """No package or module has the name of a public function."""
    code = (
        "import ddt_notebook as ddt, ddt_notebook.magics.magics\n"
        "assert callable(ddt.diagnose) and callable(ddt.taxonomy)\n"
        "assert all(hasattr(ddt, name) for name in ddt.__all__)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def _imported(name: str, path: Path, known: set[str]) -> set[str]:
    """The modules of the package that one imports, in functions and for type checking, too."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            parts = {f"{module}.{alias.name}" for alias in node.names}
            found |= parts & known or {module}
    return (found & known) - {name}


def test_no_module_imports_itself_by_way_of_others(root: Path) -> None:
    package = root / "ddt_notebook"
    files = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in python_files(root)
        if path.is_relative_to(package)
    }
    imports = {name: _imported(name, path, set(files)) for name, path in files.items()}
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"a circle of imports: {' <- '.join(error.args[1])}")
