"""Ways to get a grade without the work, tried on the command that grades what was handed in.

All are graded by one command, which they must not stop. What cannot be kept out stands in
docs/teaching.md.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from ddt_notebook.classroom.exercise import exercise
from ddt_notebook.rank import confinement

_COMMAND = "import sys; from ddt_notebook.cli import main; sys.exit(main())"
_LIMIT_S = 600
NAME = "shared-slice"
START, SOLUTION = exercise(NAME).start, exercise(NAME).solution
#: What holds of the cell as it was handed out.
_UNREPAIRED = "samples were read by no rank"
#: What the kernel refuses only where it has Landlock.
_FILES = "PermissionError|Permission denied|refused"

#: Each cell, and what its row must say. ``{anna}`` is the notebook of another student, ``{table}``
#: the file with the grades, ``{libraries}`` the folder of the installed packages.
CHEATS = {
    "leaves with status 0": ("import os\nos._exit(0)", "died"),
    "exits": ("import sys\nsys.exit(0)", "SystemExit"),
    "exits at the end": (f"{START}\nimport atexit, os\natexit.register(os._exit, 0)", _UNREPAIRED),
    "patches the grader": (
        f"""
import ddt_notebook.classroom.behaviours as behaviours
import ddt_notebook.classroom.grade as grade
grade.Grade.passed = property(lambda self: True)
for one in vars(behaviours).values():
    if isinstance(one, behaviours.Behaviour):
        object.__setattr__(one, "check", lambda seen: "")
{START}""",
        _UNREPAIRED,
    ),
    "patches torch": (
        f"torch.equal = torch.allclose = lambda *_, **__: True\n{START}",
        _UNREPAIRED,
    ),
    "patches collectives": (f"dist.all_reduce = lambda *_, **__: None\n{START}", _UNREPAIRED),
    "patches builtins": (
        f"import builtins\nbuiltins.abs = builtins.max = lambda *_, **__: 0\n{START}",
        "",
    ),
    "patches json": ("import json\njson.dumps = lambda *_, **__: '{}'", ""),
    "traces": (
        f"import sys\nsys.settrace(lambda *_: None)\nsys.setprofile(lambda *_: None)\n{START}",
        _UNREPAIRED,
    ),
    "sets variables": (
        f"import os\nos.environ.update(DDT_RECORDING='off', WORLD_SIZE='1', RANK='0')\n{START}",
        _UNREPAIRED,
    ),
    "replaces the package on the path": (
        f"""
import pathlib, sys
package = pathlib.Path(exercise.folder, "ddt_notebook")
package.mkdir(exist_ok=True)
(package / "__init__.py").write_text("")
sys.path.insert(0, str(exercise.folder))
{START}""",
        _UNREPAIRED,
    ),
    "looks for the grader's objects": (
        """
import gc
kinds = {type(one).__name__ for one in gc.get_objects()}
raise ValueError(f"found {sorted(kinds & {'Evidence', 'ExerciseData', 'Grader', 'Answer'})}")""",
        "ValueError: found []",
    ),
    "looks at the frames below": (
        """
import sys
names, frame = set(), sys._getframe()
while frame:
    names |= set(frame.f_locals)
    frame = frame.f_back
raise ValueError(f"found {sorted(names & {'held_labels', 'seen', 'verdicts', 'grader'})}")""",
        "ValueError: found []",
    ),
    "writes to all descriptors": (
        """
import os
for descriptor in range(3, 64):
    try:
        os.write(descriptor, b'{"passed": true}\\n' * 100)
    except OSError:
        pass""",
        "",
    ),
    "closes all descriptors": (f"import os\nos.closerange(0, 64)\n{START}", ""),
    "leaves files that look like results": (
        f"""
import pathlib
for name in ("grades.csv", "results.json", "exercise.npz", f"rank{{rank}}.journal"):
    pathlib.Path(exercise.folder, name).write_text("passed")
{START}""",
        _UNREPAIRED,
    ),
    "kills the grader": ("import os\nos.kill(os.getppid(), 9)", "only signal its own"),
    "starts processes": (
        "import os\nfor _ in range(20):\n    if os.fork() == 0:\n        os._exit(0)",
        "may start at most 16 processes",
    ),
    "writes a large file": (
        "with open('large', 'wb') as file:\n    file.truncate(1 << 40)",
        "File too large",
    ),
    "prints without end": (f"for _ in range(200):\n    print('x' * 500_000)\n{START}", ""),
    # on a busy machine, the time is over first
    "fills the memory": (
        "kept = [torch.ones(1 << 26) for _ in range(64)]",
        "memory|stopped after|died",
    ),
    "never ends": ("while True:\n    pass", "it was stopped after"),
    "never ends in C": (
        "import ctypes\nctypes.PyDLL(None).sleep(600)",  # holds the interpreter's lock
        "",
    ),
    "connects": (
        "import socket\nsocket.create_connection(('192.0.2.1', 80), 1)",
        "cannot reach other machines",
    ),
}
#: What the kernel keeps out, also of code in C and of programs that a cell starts.
CONFINED = {
    "reads another submission": ("open('{anna}').read()", _FILES),
    "reads another submission by a program": (
        """
import subprocess
done = subprocess.run(["cat", "{anna}"], capture_output=True, text=True)
raise ValueError(f"cat said {done.stdout[:20]!r} {done.stderr}")""",
        "Permission denied",
    ),
    "reads another submission through a link": (
        "import os\nos.symlink('{anna}', 'link')\nopen('link').read()",
        _FILES,
    ),
    "lists the submissions": ("import os\nos.listdir(os.path.dirname('{anna}'))", _FILES),
    "empties another submission": ("open('{anna}', 'w')", _FILES),
    "deletes another submission": ("import os\nos.unlink('{anna}')", _FILES),
    "writes the grades": ("open('{table}', 'w').write('student,passed')", _FILES),
    "leaves code that Python starts with": (
        "open('{libraries}/cheat.pth', 'w').write('import os')",
        _FILES,
    ),
    "changes the package": (
        "import ddt_notebook.classroom.behaviours as b\nopen(b.__file__, 'a')",
        _FILES,
    ),
    "kills the grader in C": (
        "import ctypes, os\nassert not ctypes.CDLL(None).kill(os.getppid(), 9), 'refused'",
        _FILES,
    ),
    "writes the grader's memory": ("import os\nopen(f'/proc/{os.getppid()}/mem', 'r+b')", _FILES),
    "traces the grader": (
        "import ctypes, os\nassert not ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0), 'refused'",
        _FILES,
    ),
    "opens the grader's files": (
        "import os\nopen(f'/proc/{os.getppid()}/fd/1', 'w')",
        _FILES,
    ),
    "mounts": ("import os\nos.chroot('/proc')\nopen('{anna}')", "Error"),
}
if confinement.version():
    CHEATS |= CONFINED


def book(cell: str) -> str:
    source = f"%%ddt\n# exercise: {NAME}\n{cell}"
    return json.dumps({"cells": [{"cell_type": "code", "metadata": {}, "source": source}]})


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The row of each student, by name. Honest ones come first and last."""
    folder = tmp_path_factory.mktemp("course")
    submitted, table = folder / "submitted", folder / "grades.csv"
    anna = submitted / "=anna()" / "a.ipynb"
    libraries = sysconfig.get_path("purelib")
    cells = {"=anna()": SOLUTION}
    for name, (cell, _) in CHEATS.items():
        for word, path in (("{anna}", anna), ("{table}", table), ("{libraries}", libraries)):
            cell = cell.replace(word, str(path))
        cells[name] = cell
    paths = []
    for name, cell in (cells | {"zoe": SOLUTION}).items():
        paths.append(submitted / name / "a.ipynb")
        paths[-1].parent.mkdir(parents=True)
        paths[-1].write_text(book(cell), encoding="utf-8")
    before = [path.read_bytes() for path in paths]
    options = ["--csv", table, "--json", "--seconds", "4", "--processes", "16"]
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, "grade", *map(str, [*paths, *options])],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
        env=os.environ | {"TMPDIR": str(tmp_path_factory.mktemp("tmp"))},
    )
    assert done.returncode == 1, done.stderr
    assert [path.read_bytes() for path in paths] == before
    assert not Path(libraries, "cheat.pth").exists()
    written = list(csv.DictReader(table.open(encoding="utf-8", newline="")))
    assert written[0]["student"] == "'=anna()", "a spreadsheet would compute it"
    found: list[dict[str, Any]] = json.loads(done.stdout)
    assert [row["student"] for row in found] == [*cells, "zoe"]
    return {row["student"]: row for row in found}


@pytest.mark.timeout(_LIMIT_S)
def test_the_honest_are_graded_before_and_after_all_others(rows: dict[str, Any]) -> None:
    for name in ("=anna()", "zoe"):
        assert rows[name]["passed"], rows[name]["message"]


@pytest.mark.timeout(_LIMIT_S)
@pytest.mark.parametrize("what", CHEATS)
def test_a_cheat_gets_no_points(rows: dict[str, Any], what: str) -> None:
    row = rows[what]
    assert not row["passed"]
    assert row["points"] == 0
    assert any(part in row["message"] for part in CHEATS[what][1].split("|")), row["message"]


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t=", "\r=", " =", "\n="])
def test_a_name_is_no_formula(sign: str, tmp_path: Path) -> None:
    from ddt_notebook.classroom.submissions import Row, write_csv

    with (tmp_path / "grades.csv").open("w", encoding="utf-8", newline="") as file:
        write_csv([Row(student=f"{sign}1+1", notebook=f"{sign}2", message=f"{sign}3")], file)
    with (tmp_path / "grades.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    for name in ("student", "notebook", "message"):
        assert row[name].startswith(("'", "\N{SYMBOL FOR CARRIAGE RETURN}")), row[name]
