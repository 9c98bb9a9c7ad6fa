"""Scripts run on ranks as torchrun would run them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import ddt_notebook as ddt
from ddt_notebook.cli import main

HELPER = """
import torch
import torch.distributed as dist

def total(value):
    x = torch.tensor([float(value)])
    dist.all_reduce(x)
    return x.item()
"""
TRAIN = """
import os
import sys
import torch
import torch.distributed as dist
from helper import total

def main(fault):
    if fault == "raises" and os.environ["RANK"] == "1":
        int("bad batch")
    if fault == "handles" and os.environ["RANK"] == "1":
        try:
            int("bad batch")
        except ValueError as error:  # as hydra does
            print(error)
            sys.exit(1)
    dist.init_process_group("gloo")
    print(total(1), sys.argv[1:], os.environ["LOCAL_RANK"], hasattr(sys, "ps1"))
    if fault == "leaves" and dist.get_rank() == 1:
        return
    if fault == "skips":
        try:
            total(int("bad batch" if dist.get_rank() == 1 else "1"))
        except ValueError as error:
            print("left out:", error)
    if fault == "quits" and dist.get_rank() == 1:
        sys.exit(0)
    dist.barrier()
    if fault == "exits":
        sys.exit()

if __name__ == "__main__":
    assert __file__ == sys.argv[0] and sys.path[0] == os.path.dirname(__file__)
    assert sys.modules["__main__"].main is main
    torch.manual_seed(int(os.environ["RANK"]))
    os.environ["MADE_BY_SCRIPT"] = "1"
    model = torch.nn.Linear(2, 2)
    main(sys.argv[1])
"""
SPAWNS = """
import multiprocessing
import os

def child():
    print(__name__, os.environ["RANK"], "TORCHELASTIC_USE_AGENT_STORE" in os.environ, flush=True)

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=child)
    process.start()
    process.join()
    raise SystemExit(process.exitcode)
"""


@pytest.fixture(scope="module")
def session() -> Iterator[ddt.Session]:
    with ddt.Session(2, timeout=20.0, hang_after=0.5) as session:
        yield session


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text(HELPER)
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


def test_a_script_runs_as_main_and_leaves_the_cells_alone(
    session: ddt.Session, script: Path
) -> None:
    session.run("model = DDP(torch.nn.Linear(3, 1))\nmain = None")
    run = session.run_script(script, ["works", "--lr", "0.1"])
    assert run.ok, run.errors
    assert run.outputs == {
        rank: f"2.0 ['works', '--lr', '0.1'] {rank} False\n" for rank in range(2)
    }
    assert (run.snapshot.cell.file, run.snapshot.cell.arguments[0]) == (str(script), "works")
    assert not ddt.diagnose(run).findings
    after = session.run(
        "import os, sys\n"
        "print(main, model.module.in_features, dist.is_initialized(),"
        " 'MADE_BY_SCRIPT' in os.environ, 'helper' in sys.modules)\n"
        "model(torch.ones(1, 3)).sum().backward()"
    )
    assert after.outputs == dict.fromkeys((0, 1), "None 3 True False False\n")
    assert session.run_script(script, ["exits"], keep_names=True).ok
    assert session.run("print(model.in_features)").outputs[1] == "2\n"


def test_a_project_that_was_edited_is_imported_again(session: ddt.Session, script: Path) -> None:
    assert session.run_script(script, ["works"]).ok
    helper = script.parent / "helper.py"
    helper.write_text(HELPER.replace("x.item()", "x.item() + 40"))
    os.utime(helper, (1, 1))  # a file system may keep times in whole seconds
    assert session.run_script(script, ["works"]).outputs[0].startswith("42.0")


def test_processes_that_a_script_spawns_inherit_no_store(
    session: ddt.Session, tmp_path: Path
) -> None:
    path = tmp_path / "spawns.py"
    path.write_text(SPAWNS)
    run = session.run_script(path)
    assert run.ok, run.errors
    assert run.outputs == {rank: f"__mp_main__ {rank} False\n" for rank in range(2)}


def test_a_fault_in_a_script_is_found_at_its_lines(session: ddt.Session, script: Path) -> None:
    for how in ("raises", "handles"):
        run = session.run_script(script, [how])
        (finding,) = ddt.diagnose(run).findings
        assert (finding.kind, finding.ranks) == ("raised", [1])
        assert (finding.places[1].file, finding.places[1].code) == (
            str(script),
            'int("bad batch")',
        )
        assert "shell.py" not in run.errors[1].traceback
    hung = session.run_script(script, ["leaves"])
    (finding,) = ddt.diagnose(hung).findings
    assert (finding.kind, finding.ranks, finding.waiting) == ("never-entered", [1], [0])
    assert finding.cause == "early-exit-on-rank-condition"
    assert {place.code for place in finding.places.values()} == {
        'if fault == "leaves" and dist.get_rank() == 1:',
        "dist.barrier()",
    }
    (finding,) = ddt.diagnose(session.run_script(script, ["quits"])).findings
    assert (finding.cause, finding.ranks, finding.places[1].code) == (
        "process-exit",
        [1],
        "sys.exit(0)",
    )
    (finding,) = ddt.diagnose(session.run_script(script, ["skips"])).findings
    assert finding.cause == "exception-swallowed"
    (parted,) = [fact for fact in finding.facts if fact.kind == "parted"]
    assert parted.place is not None
    assert parted.place.code == "except ValueError as error:"
    assert {way: ranks for way, ranks, _ in parted.values["sides"]} == {
        "caught ValueError": (1,),
        "not-raised": (0,),
    }


def test_a_file_that_cannot_be_read_is_refused(session: ddt.Session, tmp_path: Path) -> None:
    with pytest.raises(ddt.SessionError, match=r"missing\.py: No such file"):
        session.run_script(tmp_path / "missing.py")


def test_random_states_differ_unless_they_are_given(script: Path) -> None:
    source = "import numpy, random\nstate = (torch.rand(1).item(), numpy.random.rand(), "
    states = []
    with ddt.Session(2, seed=7) as session:
        for _ in range(2):
            session.run(source + "random.random())")
            states.append([session.pull("state", rank) for rank in range(2)])
            session.restart()
        assert states[0] == states[1]
        assert states[0][0] != states[0][1]
    with ddt.Session(2) as session:
        session.run(source + "random.random())")
        states.append([session.pull("state", rank) for rank in range(2)])
    assert all(a != b for a, b in zip(states[2][0], states[2][1], strict=True))  # type: ignore[call-overload]
    assert states[2] != states[0]


def test_the_command_runs_a_script_and_reports(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = script.parent / "run.ddt.json"
    command = ["script", "-n", "2", "--hang-after", "0.5", "--save", str(saved), str(script)]
    assert main([*command, "works", "--lr", "1"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("ok")
    assert "[rank1]: 2.0 ['works', '--lr', '1'] 1 False" in printed.err
    assert main([*command, "leaves"]) == 1
    finding = ddt.diagnose(ddt.Snapshot.load(saved)).findings[0]
    assert (finding.kind, finding.ranks) == ("never-entered", [1])


def test_the_reason_of_a_hang_is_found_in_an_imported_file(
    session: ddt.Session, script: Path
) -> None:
    helper = script.parent / "helper.py"
    helper.write_text(
        HELPER.replace("    dist.all", "    if dist.get_rank() == 0:\n        dist.all")
    )
    run = session.run_script(script, ["works"])
    assert [(Path(file.path), file.changed) for file in run.snapshot.files] == [
        (helper, False),
        (script, False),
    ]
    finding = ddt.diagnose(run).findings[0]
    assert finding.cause == "collective-under-rank-condition"
    again = ddt.Snapshot.from_json(run.snapshot.to_json())
    helper.unlink()
    assert again == run.snapshot
    assert (finding.places[0].file, finding.places[0].line) == (str(helper), 8)
    assert ddt.diagnose(again).findings[0].where == finding.where
