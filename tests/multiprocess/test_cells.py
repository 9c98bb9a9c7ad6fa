"""Cells on ranks: IPython's shell, output, objects, and what a hang leaves of the group."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import ddt_notebook as ddt

from .processes import REDUCE


def test_variables_persist_and_the_group_works(session: ddt.Session) -> None:
    assert session.run("x = rank + 1").ok
    run = session.run("total = torch.tensor(x)\ndist.all_reduce(total)\nprint(total.item())")
    assert run.ok
    assert run.outputs == {0: "3\n", 1: "3\n"}
    assert not run.errors
    assert run.snapshot.outcome == "ok"
    assert len({report.pid for report in run.snapshot.ranks}) == 2


def test_a_cell_has_the_names_that_a_script_expects(session: ddt.Session) -> None:
    run = session.run(
        "import os\n"
        "assert (rank, world_size, local_rank) == (dist.get_rank(), dist.get_world_size(), rank)\n"
        "assert os.environ['RANK'] == os.environ['LOCAL_RANK'] == str(rank)\n"
        "assert os.environ['WORLD_SIZE'] == '2' and int(os.environ['MASTER_PORT'])\n"
        "assert device == torch.device('cpu') and issubclass(DDP, torch.nn.Module)"
    )
    assert run.ok, run.errors


def test_the_shell_is_ipythons(session: ddt.Session) -> None:
    run = session.run(
        "import asyncio\n"
        "await asyncio.sleep(0)\n"
        "text = !echo from a shell\n"
        "print(text[0])\n"
        "%precision 3\n"
        "from IPython.display import HTML, display\n"
        "display(HTML('<b>shown</b>'))\n"
        "1 / 3"
    )
    assert run.ok, run.errors
    assert run.outputs[1].splitlines()[0] == "from a shell"
    assert "IPython.core.display.HTML" in run.outputs[1]
    assert run.outputs[1].endswith("0.333\n")


def test_the_lines_of_a_traceback_are_the_cells(session: ddt.Session) -> None:
    session.run_cell("def helper(x):\n    return 1 / x", number=7)
    run = session.run_cell("\n\nhelper(0)", number=8, first_line=2)
    error = run.errors[0]
    assert error.type == "ZeroDivisionError"
    assert error.where is not None
    assert error.where.label == "cell[7] line 2: return 1 / x"
    assert [frame.place for frame in error.frames] == ["cell[8] line 4", "cell[7] line 2"]
    assert "Cell cell[8], line 4" in error.traceback
    assert "\x1b" not in error.traceback


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("def f(:", "SyntaxError"),
        ("  x = 1\n y = 2", "IndentationError"),
        ("import sys; sys.exit(3)", "SystemExit"),
        ("input('name? ')", "RuntimeError"),
        ("breakpoint()", "RuntimeError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ],
)
def test_the_session_continues_after_any_exception_of_a_cell(
    session: ddt.Session, source: str, kind: str
) -> None:
    run = session.run(source)
    assert not run.ok
    assert {error.type for error in run.errors.values()} == {kind}
    assert session.run(REDUCE).outputs == {0: "1.0\n", 1: "1.0\n"}


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        ('\nx = 1\nprint("x"\n\n\n', 3, "'(' was never closed"),
        ("x = 1\nfor step in range(3):\n\n  \n", 2, "expected an indented block"),
    ],
)
def test_incomplete_code_is_reported_at_its_own_line(
    session: ddt.Session, source: str, line: int, says: str
) -> None:
    error = session.run(source).errors[0]
    assert says in error.message
    assert error.where is not None
    assert (error.where.line, error.where.code) == (line, source.splitlines()[line - 1])


def test_output_of_both_streams_from_python_and_c(session: ddt.Session) -> None:
    run = session.run(
        "import os, sys\n"
        "print('python out')\n"
        "print('python err', file=sys.stderr)\n"
        "os.write(1, b'descriptor out\\n'); os.write(2, b'descriptor err\\n')\n"
        "os.system('echo child out; echo child err >&2')",
        ranks=1,
    )
    assert set(run.outputs) == {1}
    for text in ("python", "descriptor", "child"):
        assert f"{text} out\n" in run.outputs[1]
        assert f"{text} err\n" in run.outputs[1]


def test_a_flood_is_bounded_and_kept_in_its_file(session: ddt.Session) -> None:
    run = session.run("for i in range(400_000):\n    print('line', i)\nprint('the end')", ranks=0)
    assert run.ok
    assert len(run.outputs[0]) < 300_000
    assert run.outputs[0].endswith("the end\n")
    whole = session.output_file(0, "stdout").read_text()
    assert whole.count("\n") == 400_001


def test_a_cell_on_some_ranks(session: ddt.Session) -> None:
    assert set(session.run("y = 5", ranks=[1]).outputs) == {1}
    run = session.run("print('y' in globals())")
    assert run.outputs == {0: "False\n", 1: "True\n"}
    refused = (([2], "ranks 0 to 1"), ([], "no rank"), ([-1], "no rank -1"), (["0"], "'0'"))
    for wrong, text in refused:
        with pytest.raises(ddt.SessionError, match=text):
            session.run("1", ranks=wrong)  # type: ignore[arg-type]


def test_objects_are_pushed_and_pulled(session: ddt.Session) -> None:
    offset = 3
    sizes = session.push(numbers=[1, 2], add=lambda value: value + offset)
    assert set(sizes) == {"numbers", "add"}
    assert all(size > 0 for size in sizes.values())
    session.run(
        "import numpy\n"
        "result = {'sum': add(numbers[0]), 't': torch.full((2, 3), float(rank)),\n"
        "          'half': torch.ones(2, dtype=torch.bfloat16), 'array': numpy.arange(3)}\n"
        "net = torch.nn.Linear(2, 1)\n"
        "state = net.state_dict()"
    )
    pulled = session.pull("result", rank=1)
    assert isinstance(pulled, dict)
    assert pulled["sum"] == 4
    assert pulled["t"].tolist() == [[1.0] * 3] * 2
    assert str(pulled["half"].dtype) == "torch.bfloat16"
    assert pulled["array"].tolist() == [0, 1, 2]
    assert list(session.pull("state")) == ["weight", "bias"]  # type: ignore[call-overload]
    with pytest.raises(ddt.SessionError, match=r"'net' \(Linear\).*state_dict"):
        session.pull("net")
    with pytest.raises(ddt.SessionError, match=r"no 'missing'.*numbers"):
        session.pull("missing")
    with pytest.raises(ddt.SessionError, match=r"'lock'.*cannot be pickled.*nothing was sent"):
        session.push(good=1, lock=threading.Lock())
    assert session.run("'good' in globals()").outputs[0] == "False\n"


def test_forming_a_second_group_is_explained(session: ddt.Session) -> None:
    run = session.run("dist.init_process_group('gloo')")
    assert "has formed the process group already" in run.errors[0].message
    assert "without a group" in run.errors[0].message
    assert session.run("dist.destroy_process_group()").ok
    assert session.run(REDUCE).ok


def test_a_ddp_model_survives_a_hang(session: ddt.Session) -> None:
    train = "loss = model(torch.ones(2, 4)).sum()\nloss.backward()"
    assert session.run(f"model = DDP(torch.nn.Linear(4, 4))\n{train}").ok
    hung = session.run(f"if rank == 0:\n    {train.replace(chr(10), chr(10) + '    ')}")
    assert hung.errors
    assert hung.snapshot.trained_before
    again = session.run(f"{train}\nloss.item()")
    assert again.ok, again.errors
    assert any("DDP" in note for note in again.snapshot.notes)


def test_a_group_from_before_a_hang_is_explained(session: ddt.Session) -> None:
    session.run("pair = dist.new_group([0, 1])")
    session.run("if rank == 0:\n    dist.barrier()")
    run = session.run("dist.all_reduce(torch.ones(1), group=pair)")
    assert "this process group is gone" in run.errors[0].message


def test_an_exception_inside_a_magic_fails_the_cell_at_the_line_of_the_file(
    session: ddt.Session, tmp_path: Path
) -> None:
    file = tmp_path / "part.py"
    file.write_text("import os\nif os.environ['RANK'] == '1':\n    {}['lr']\n")
    for cell in (f"%run {file}", f"%time import runpy; runpy.run_path('{file}')"):
        run = session.run(f"{cell}\nprint('went on')")
        assert "went on" in run.outputs[0]
        assert "went on" not in run.outputs[1]
        assert (run.errors[1].type, list(run.errors)) == ("KeyError", [1])
        where = run.errors[1].where
        assert where is not None
        assert (where.file, where.line) == (str(file), 3)
        assert "interactiveshell" not in run.errors[1].traceback
    assert session.run("%run -m no_such_module").errors


def test_a_cell_that_exits_in_a_handler_shows_what_it_has_handled(session: ddt.Session) -> None:
    """Programs of hydra print what went wrong and exit with 1."""
    cell = "import sys\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    sys.exit(1)"
    error = session.run(cell).errors[0]
    assert error.type == "ZeroDivisionError"
    assert error.where is not None
    assert error.where.line == 3
    assert "1 / 0" in error.traceback
    without = cell.replace("sys.exit(1)", "raise SystemExit(1) from None")
    assert session.run(without).errors[0].type == "SystemExit"


def test_a_script_that_exits_fails_the_cell_unless_its_status_is_0(
    session: ddt.Session, tmp_path: Path
) -> None:
    file = tmp_path / "exits.py"
    file.write_text("import sys\nsys.exit(int(sys.argv[1]))\n")
    assert session.run(f"%run {file} 0\nprint('went on')").outputs == dict.fromkeys(
        (0, 1), "went on\n"
    )
    assert session.run(f"%run {file} 1").errors[0].type == "SystemExit"
    assert session.run(f"%run -e {file} 1").ok
    path = f"import runpy, sys; sys.argv = ['', '0']; runpy.run_path('{file}')"
    assert session.run(path).ok
    assert session.run(path.replace("'0'", "'3'")).errors
