"""Ranks start, keep their variables, are replaced, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import ddt_notebook as ddt
from ddt_notebook.session import active

REDUCE = "total = torch.tensor(float(rank))\ndist.all_reduce(total)\ntotal.item()"


def gone(pids: list[int], within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while any(psutil.pid_exists(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def descendants(pids: list[int]) -> list[int]:
    return [child.pid for pid in pids for child in psutil.Process(pid).children(recursive=True)]


def session_directories() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).glob("ddt-*") if path.is_dir()}


@pytest.fixture
def session() -> Iterator[ddt.Session]:
    made = ddt.Session(2)
    pids = made.pids
    yield made
    made.stop()
    assert gone([*pids, *made.pids])


def test_variables_persist_and_the_group_works(session: ddt.Session) -> None:
    assert session.run("x = rank + 1").ok
    run = session.run("total = torch.tensor(x)\ndist.all_reduce(total)\nprint(total.item())")
    assert run.ok
    assert run.outputs == {0: "3\n", 1: "3\n"}
    assert not run.errors
    assert run.snapshot.outcome == "ok"
    assert len({report.pid for report in run.snapshot.ranks}) == 2


def test_the_names_that_a_script_expects(session: ddt.Session) -> None:
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
    session.run("def helper(x):\n    return 1 / x", cell=7)
    run = session.run("\n\nhelper(0)", cell=8, first_line=2)
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
def test_whatever_a_cell_raises_the_session_goes_on(
    session: ddt.Session, source: str, kind: str
) -> None:
    run = session.run(source)
    assert not run.ok
    assert {error.type for error in run.errors.values()} == {kind}
    assert session.run(REDUCE).outputs == {0: "1.0\n", 1: "1.0\n"}


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
    for wrong, text in (([2], "ranks 0 to 1"), ([], "no rank"), ([-1], "no rank -1"), (["0"], "'0'")):
        with pytest.raises(ddt.SessionError, match=text):
            session.run("1", ranks=wrong)  # type: ignore[arg-type]


def test_objects_travel(session: ddt.Session) -> None:
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
    with pytest.raises(ddt.SessionError, match="no 'missing'.*numbers"):
        session.pull("missing")
    with pytest.raises(ddt.SessionError, match="'lock'.*cannot be pickled.*nothing was sent"):
        session.push(good=1, lock=threading.Lock())
    assert session.run("'good' in globals()").outputs[0] == "False\n"


def test_forming_a_second_group_is_explained(session: ddt.Session) -> None:
    run = session.run("dist.init_process_group('gloo')")
    assert "has formed the process group already" in run.errors[0].message
    assert "--no-group" in run.errors[0].message
    assert session.run("dist.destroy_process_group()").ok
    assert session.run(REDUCE).ok


def test_a_ddp_model_survives_a_hang(session: ddt.Session) -> None:
    train = "loss = model(torch.ones(2, 4)).sum()\nloss.backward()"
    assert session.run(f"model = DDP(torch.nn.Linear(4, 4))\n{train}").ok
    assert session.run(f"if rank == 0:\n    {train.replace(chr(10), chr(10) + '    ')}").errors
    again = session.run(f"{train}\nloss.item()")
    assert again.ok, again.errors
    assert any("DDP" in note for note in again.snapshot.notes)


def test_a_group_from_before_a_hang_is_explained(session: ddt.Session) -> None:
    session.run("pair = dist.new_group([0, 1])")
    session.run("if rank == 0:\n    dist.barrier()")
    run = session.run("dist.all_reduce(torch.ones(1), group=pair)")
    assert "this process group is gone" in run.errors[0].message


def test_a_dead_rank_is_replaced_and_its_loss_is_told(session: ddt.Session) -> None:
    session.run("weights, history = 1, 2")
    before = session.pids
    run = session.run("import os, signal\nif rank == 1:\n    os.kill(os.getpid(), signal.SIGKILL)")
    assert run.lost == {1: ["weights", "history"]}
    assert run.snapshot.rank(1).exit_signal == signal.SIGKILL
    assert session.pids[0] == before[0]
    assert session.pids[1] != before[1]
    run = session.run(f"print('weights' in globals())\n{REDUCE}")
    assert run.outputs == {0: "True\n1.0\n", 1: "False\n1.0\n"}


def test_a_rank_killed_between_cells_is_replaced(session: ddt.Session) -> None:
    session.run("z = 1")
    os.kill(session.pids[0], signal.SIGKILL)
    assert gone(session.pids[:1])
    run = session.run(REDUCE)
    assert run.ok
    assert any("rank 0 had died and was replaced: z lost" in note for note in run.snapshot.notes)


def test_a_hang_is_held_and_released(session: ddt.Session) -> None:
    session.run("kept = 1")
    run = session.run("if rank == 0:\n    dist.barrier()", freeze=True)
    assert run.frozen
    assert session.frozen
    assert ddt.diagnose(run).findings[0].ranks == [1]
    states = {rank.rank: rank.state for rank in session.status().ranks}
    assert states == {0: "blocked", 1: "ready"}
    for refused in (lambda: session.run("1"), lambda: session.push(a=1), lambda: session.pull("a")):
        with pytest.raises(ddt.SessionError, match="%ddt_release"):
            refused()
    released = session.release()
    assert not session.frozen
    assert released.errors[0].released
    assert session.run(f"kept\n{REDUCE}").ok
    with pytest.raises(ddt.SessionError, match="no hang is being held"):
        session.release()


BLOCKED = {
    "in a collective": "if rank == 0:\n    dist.barrier()\nelse:\n    time.sleep(60)",
    "in a collective, all": "dist.barrier() if rank else dist.all_reduce(torch.ones(1))",
    "in time.sleep": "time.sleep(60)",
    "in a Python loop": "while True:\n    pass",
    "in C code that keeps the interpreter": "sum(range(10**14))",
    "where interrupts are swallowed": (
        "def stubborn():\n"
        "    while True:\n"
        "        try:\n"
        "            time.sleep(60)\n"
        "        except BaseException:\n"
        "            pass\n"
        "stubborn()"
    ),
}


@pytest.mark.parametrize("where", BLOCKED)
def test_an_interrupt_ends_the_cell(session: ddt.Session, where: str) -> None:
    session.run("import time")
    timer = threading.Timer(0.6, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    began = time.monotonic()
    run = session.run(BLOCKED[where])
    timer.join()
    assert time.monotonic() - began < 0.6 + 4.0  # a guard; the benchmarks measure it
    assert run.snapshot.outcome == "interrupted"
    assert session.run(REDUCE).ok


def test_an_interrupt_from_another_thread(session: ddt.Session) -> None:
    timer = threading.Timer(0.5, session.interrupt)
    timer.start()
    run = session.run("import time; time.sleep(60)")
    timer.join()
    assert run.snapshot.outcome == "interrupted"


def test_restart(session: ddt.Session) -> None:
    session.run("x = 1")
    before = session.pids
    session.restart()
    assert gone(before)
    assert session.run(f"assert 'x' not in globals()\n{REDUCE}").ok


def test_a_stopped_session_says_so(session: ddt.Session) -> None:
    session.stop()
    session.stop()
    assert not session.alive
    assert active.get() is None
    for refused in (lambda: session.run("1"), session.restart, session.status):
        with pytest.raises(ddt.SessionError, match="was stopped"):
            refused()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"n": 0}, "at least 1 rank"),
        ({"n": 100_000}, "GB are free: start at most"),
        ({"timeout": 0}, "timeout must be above 0"),
        ({"memory": "lots"}, "no amount of memory"),
        ({"start_method": "thread"}, "fork.*spawn"),
        ({"backend": "glo"}, "glo"),
    ],
)
def test_what_cannot_be_started(options: dict[str, object], text: str) -> None:
    with pytest.raises(ddt.SessionError, match=text) as caught:
        ddt.Session(**{"n": 2} | options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_memory_over_the_cap_is_an_exception_in_that_rank() -> None:
    with ddt.Session(2, memory="100M") as session:
        run = session.run("x = torch.zeros(2**28) if rank == 1 else None")
        assert set(run.errors) == {1}
        assert ddt.diagnose(run).findings[0].symptom == "D.1.2"
        assert session.run(REDUCE).ok


def test_ranks_that_are_interpreters_of_their_own() -> None:
    with ddt.Session(2, start_method="spawn") as session:
        pids = session.pids
        assert session.run(REDUCE).outputs == {0: "1.0\n", 1: "1.0\n"}
        run = session.run("kept = 1\nif rank == 0:\n    dist.barrier()")
        assert ddt.diagnose(run).findings[0].ranks == [1]
        assert session.run(f"kept\n{REDUCE}").ok
    assert gone(pids)


def test_cells_form_the_group_themselves() -> None:
    forms = "dist.init_process_group('gloo')\n" + REDUCE + "\ndist.destroy_process_group()"
    by_hand = (
        "import os, socket\n"
        "os.environ['MASTER_ADDR'] = 'localhost'\n"
        "os.environ['MASTER_PORT'] = str(free_port)\n"
        "dist.init_process_group('gloo', rank=rank, world_size=world_size)\n"
        + REDUCE
        + "\ndist.destroy_process_group()"
    )
    with ddt.Session(2, group=False) as session:
        assert not session.run("dist.is_initialized()").errors
        for _ in range(2):
            assert session.run(forms).ok
        with __import__("socket").socket() as probe:
            probe.bind(("127.0.0.1", 0))
            session.push(free_port=probe.getsockname()[1])
        assert session.run(by_hand).ok
        hung = session.run("if rank == 0:\n    dist.init_process_group('gloo')")
        assert ddt.diagnose(hung).findings[0].symptom == "B.2"
        assert session.run(forms).ok


def test_a_hundred_sessions_leave_nothing() -> None:
    with ddt.Session(1) as first:
        server = psutil.Process(first.process_ids()[-1])
    own = psutil.Process()
    time.sleep(0.8)  # until the first one's remains are buried
    before = own.num_fds(), server.num_fds(), len(descendants([own.pid])), session_directories()
    pids = []
    for _ in range(100):
        with ddt.Session(2) as session:
            pids += session.pids
            assert session.run("pass").ok
    assert gone(pids)
    time.sleep(0.8)
    after = own.num_fds(), server.num_fds(), len(descendants([own.pid])), session_directories()
    assert after[:3] == before[:3]
    assert not after[3] - before[3]


LOADER = (
    "from torch.utils.data import DataLoader, TensorDataset\n"
    "loader = DataLoader(TensorDataset(torch.arange(8.0)), num_workers=2, persistent_workers=True)\n"
    "assert sum(1 for _ in loader) == 8"
)


def test_dataloader_workers_end_with_the_session() -> None:
    session = ddt.Session(2)
    assert session.run(LOADER).ok
    workers = descendants(session.pids)
    assert len(workers) >= 4
    session.stop()
    assert gone(workers)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_the_notebook(end: signal.Signals) -> None:
    script = (
        "import ddt_notebook as ddt, psutil\n"
        "session = ddt.Session(3)\n"
        f"assert session.run({LOADER!r}).ok\n"
        "ids = session.process_ids()\n"
        "ids += [c.pid for p in session.pids for c in psutil.Process(p).children(recursive=True)]\n"
        "print(*ids, session.status().output_directory, flush=True)\n"
        "session.run('if rank:\\n    dist.barrier()\\nwhile True:\\n    pass', timeout=60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    *pids, directory = process.stdout.readline().split()
    time.sleep(0.5)
    process.send_signal(end)
    process.wait(5.0)
    process.stdout.close()
    assert gone([int(pid) for pid in pids])
    assert not Path(directory).exists()


def test_an_error_of_our_own_while_starting_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from ddt_notebook.session import pool

    seen: list[int] = []

    def fail(self: pool.RankPool) -> None:
        seen.extend(handle.pid for handle in self.handles)
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(pool.RankPool, "form_group", fail)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        ddt.Session(2)
    assert len(seen) == 2
    assert gone(seen)
    assert active.get() is None
