"""Everything that is printed reaches a stream that cannot encode every character."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ddt_notebook as ddt
from ddt_notebook import output_encoding

RUN = Path(__file__).parents[1] / "fixtures" / "one-rank-skips-all-reduce.ddt.json"
COMMANDS = """
import sys
from ddt_notebook.cli import main

for command in ("diagnose", RUN), ("explain",), ("explain", "D.2.1"), ("lessons",), ("lint", "-"):
    assert main(command) in (0, 1), command
for command in ("--help",), ("run", "--help"), ("grade", "--help"):
    try:
        main(command)
    except SystemExit as ended:
        assert ended.code == 0
"""
VIEWS = """
import ddt_notebook as ddt
from ddt_notebook.model import Snapshot
from ddt_notebook.views.registry import VIEWS

snapshot = Snapshot.load(RUN)
shown = [view.of(snapshot) for view in VIEWS.values() if view.is_in(snapshot)]
assert len(shown) > 2
print(ddt.diagnose(snapshot), *shown, ddt.explain("D.2.1"), ddt.taxonomy(), sep="\\n")
print(repr(ddt.explain("A.1")))
"""
#: An ASCII stream, and the C locale of a Python that may not replace it by UTF-8.
NARROW = {
    "stream": {"PYTHONIOENCODING": "ascii"},
    "locale": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


def printed(program: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", f"RUN = {str(RUN)!r}\n{program}"],
        input=b"x = 1\n",
        env=os.environ | {"PYTHONPATH": str(Path(ddt.__file__).parents[1])} | environment,
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode("ascii")


@pytest.mark.parametrize("environment", NARROW.values(), ids=NARROW)
@pytest.mark.parametrize("program", [COMMANDS, VIEWS], ids=["commands", "views"])
def test_nothing_fails_in_ascii(program: str, environment: dict[str, str]) -> None:
    said = printed(program, environment)
    assert "rank 1 never entered all_reduce #68 (4 x float32)" in said
    assert "hang D.2.1 - training & evaluation" in said


def test_json_is_escaped_and_not_changed() -> None:
    program = "from ddt_notebook.cli import main\nassert main(['diagnose', '--json', RUN]) == 1"
    plain = json.loads(printed(program, NARROW["stream"]))
    assert "4 × float32" in plain["findings"][0]["title"]


def test_text_that_can_be_shown_stays() -> None:
    assert output_encoding.printable("4 × float32 · µs é") == "4 × float32 · µs é"
