"""Ranks start, keep their variables, are replaced, and leave no process behind."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

import ddt_notebook as ddt
from ddt_notebook.host import idle_ranks
from ddt_notebook.host.listeners import SilentListener, Stream
from ddt_notebook.host.rank_handle import RankHandle
from ddt_notebook.host.session import active
from ddt_notebook.wire.messages import Message, RunCell, StartStore

from .processes import REDUCE, descendants, gone


def test_a_dead_rank_is_replaced_and_its_loss_is_reported(session: ddt.Session) -> None:
    session.run("weights, history = 1, 2")
    before = session.pids
    run = session.run("import os, signal\nif rank == 1:\n    os.kill(os.getpid(), signal.SIGKILL)")
    assert run.lost == {1: ["weights", "history"]}
    assert run.snapshot.rank(1).exit_signal == signal.SIGKILL
    assert session.pids[0] == before[0]
    assert session.pids[1] != before[1]
    run = session.run(f"print('weights' in globals())\n{REDUCE}")
    assert run.outputs == {0: "True\n1.0\n", 1: "False\n1.0\n"}


def test_what_a_replaced_rank_misses_is_reported(session: ddt.Session) -> None:
    session.run("weights = 1")
    session.run("import os\nif rank == 1: os._exit(3)")
    missed = session.run("weights + 1").snapshot.notes
    assert any("rank 1 lost weights when it was replaced" in note for note in missed)
    assert not any("lost" in note for note in session.run("undefined").snapshot.notes)
    session.restart()
    assert not session.run("weights").snapshot.notes


def test_idle_ranks_stop_and_the_next_cell_starts_them_again() -> None:
    lines: list[str] = []
    with ddt.Session(2) as session:
        session.run("weights = 1")
        before = session.pids
        idle_ranks.watch(session, 0.005, lines.append)
        deadline = time.monotonic() + 60
        while not lines and time.monotonic() < deadline:
            time.sleep(0.02)
        assert gone(before)
        assert lines
        assert session.resting
        assert session.status().ranks == ()
        assert not session.alive
        run = session.run(f"print('weights' in globals())\n{REDUCE}")
        assert run.outputs == {0: "False\n1.0\n", 1: "False\n1.0\n"}
        assert any("the ranks were started again" in note for note in run.snapshot.notes)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads wake when they ask to")
def test_a_group_wakes_idle_ranks_seldom(session: ddt.Session) -> None:
    """Gloo's thread alone asks to wake 100 times a second; the rank's own clock stays exact."""
    source = """
    import os, time
    from pathlib import Path

    def wakeups():
        total = 0
        for task in Path("/proc/self/task").iterdir():
            if int(task.name) != os.getpid():  # what gloo calls its thread varies with torch
                counts = (task / "status").read_text().partition("voluntary_ctxt_switches:")[2]
                total += int(counts.split()[0])
        return total

    before = wakeups()
    assert before > 0
    time.sleep(2)
    print(wakeups() - before, Path("/proc/self/timerslack_ns").read_text().strip())
    """
    usual = Path("/proc/self/timerslack_ns").read_text().strip()
    for text in session.run(dedent(source)).outputs.values():
        woken, slack = text.split()
        assert int(woken) < 100
        assert slack == usual


def test_a_rank_killed_between_cells_is_replaced(session: ddt.Session) -> None:
    session.run("z = 1")
    os.kill(session.pids[0], signal.SIGKILL)
    assert gone(session.pids[:1])
    run = session.run(REDUCE)
    assert run.ok
    assert any("rank 0 had died and was replaced: z lost" in note for note in run.snapshot.notes)


def test_a_rank_killed_between_cells_is_replaced_though_its_end_is_reported_late(
    session: ddt.Session,
) -> None:
    """As on a busy machine, the fork server reports the end only when the cell starts."""
    session.run("z = 1")
    server = session.process_ids()[-1]
    killed = psutil.Process(session.pids[0])
    os.kill(server, signal.SIGSTOP)
    try:
        killed.kill()
        deadline = time.monotonic() + 5
        while killed.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        timer = threading.Timer(0.5, os.kill, (server, signal.SIGCONT))
        timer.start()
    run = session.run(REDUCE)
    timer.join()
    assert run.ok, run.errors
    assert any("rank 0 had died and was replaced: z lost" in note for note in run.snapshot.notes)


def test_a_hang_is_held_and_released(session: ddt.Session) -> None:
    session.run("kept = 1")
    with pytest.raises(ValueError, match=r"expected the name of a variable, but got \['kept'\]"):
        ddt.parity(session, ["kept"])  # type: ignore[arg-type]
    run = session.run("if rank == 0:\n    dist.barrier()", freeze=True)
    assert run.frozen
    assert session.frozen
    assert ddt.diagnose(run).findings[0].ranks == [1]
    ranks = session.status().ranks
    assert {rank.rank: rank.state for rank in ranks} == {0: "blocked", 1: "ready"}
    for rank in ranks:  # a fork shares most of its pages with its parent
        resident = psutil.Process(rank.pid).memory_info().rss
        assert abs(rank.memory_bytes - resident) < 0.1 * resident
        assert 0 < rank.share_bytes < rank.memory_bytes
    for refused in (lambda: session.run("1"), lambda: session.push(a=1), lambda: session.pull("a")):
        with pytest.raises(ddt.SessionError) as raised:
            refused()
        assert raised.value.reason == "held"
    released = session.release()
    assert not session.frozen
    assert released.errors[0].released
    assert session.run(f"kept\n{REDUCE}").ok
    with pytest.raises(ddt.SessionError) as raised:
        session.release()
    assert raised.value.reason == "not held"


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
    "in a FIFO": (
        "import os, tempfile\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    os.mkfifo(f'{folder}/fifo')\n"
        "    open(f'{folder}/fifo')"
    ),
    "in a subprocess": "import subprocess\nsubprocess.run(['sleep', '60'])",
}


@pytest.mark.parametrize("where", BLOCKED)
def test_an_interrupt_ends_the_cell(session: ddt.Session, where: str) -> None:
    session.run("import time")
    timer = threading.Timer(0.6, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    run = session.run(BLOCKED[where])
    timer.join()
    assert run.snapshot.outcome == "interrupted"
    assert session.run(REDUCE).ok


#: A DataLoader waits so long, usually 5 s, for each of its workers that is busy.
PATIENT = """
import time
from torch.utils.data import DataLoader, Dataset, _utils
usual, _utils.MP_STATUS_CHECK_INTERVAL = _utils.MP_STATUS_CHECK_INTERVAL, 600
class Slow(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        time.sleep(index * 600)
        return index
for batch in DataLoader(Slow(), num_workers=2):
    {}
"""


@pytest.mark.parametrize("where", ["pass", "time.sleep(60)"])
def test_an_interrupt_ends_the_busy_workers_of_a_loader(session: ddt.Session, where: str) -> None:
    session.run("import time")
    pids = session.pids
    timer = threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    run = session.run(PATIENT.format(where))
    timer.join()
    assert run.snapshot.outcome == "interrupted"
    assert session.run("_utils.MP_STATUS_CHECK_INTERVAL = usual\n" + REDUCE).ok
    assert session.pids == pids, "nobody had to be killed"


def test_an_interrupt_from_another_thread(session: ddt.Session) -> None:
    timer = threading.Timer(0.5, session.interrupt)
    timer.start()
    run = session.run("import time; time.sleep(60)")
    timer.join()
    assert run.snapshot.outcome == "interrupted"


def test_an_interrupt_while_the_cell_is_sent(
    session: ddt.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = RankHandle.command

    def interrupted(handle: RankHandle, message: Message, payload: bytes | None = None) -> int:
        if isinstance(message, RunCell) and handle.rank == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return command(handle, message, payload)

    with monkeypatch.context() as patched:
        patched.setattr(RankHandle, "command", interrupted)
        run = session.run("import time; time.sleep(60)")
    assert run.snapshot.outcome == "interrupted"
    assert session.run(REDUCE).ok


class _Faulty(SilentListener):
    def on_output(self, rank: int, stream: Stream, text: str) -> None:
        raise LookupError("a mistake in what shows the output")


def test_an_internal_error_while_a_cell_runs_ends_the_cell(session: ddt.Session) -> None:
    session.run("kept = 1")
    with pytest.raises(LookupError):
        session.run_cell("print('x')\nwhile True:\n    pass", listener=_Faulty())
    assert not session.busy
    assert session.run(f"kept\n{REDUCE}").ok


def test_a_child_of_a_rank_does_not_write_to_its_log(session: ddt.Session) -> None:
    run = session.run(
        "import os\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    dist.all_reduce(torch.ones(1), async_op=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)",
        ranks=0,
    )
    assert run.ok
    assert run.snapshot.rank(0).calls == ()


def test_restart(session: ddt.Session) -> None:
    session.run("x = 1")
    before = session.pids
    session.restart()
    assert gone(before)
    assert session.run(f"assert 'x' not in globals()\n{REDUCE}").ok


def test_a_cell_that_stops_the_parent_of_the_ranks_does_not_stop_the_next(
    session: ddt.Session,
) -> None:
    run = session.run("import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)", ranks=[0])
    assert run.ok
    session.restart()
    assert session.run(REDUCE).ok


def test_a_stopped_session_reports_it(session: ddt.Session) -> None:
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
        ({"n": 100_000}, "GB are free: start"),
        ({"timeout": 0}, "timeout must be above 0"),
        ({"memory": "lots"}, "not an amount of memory"),
        ({"start_method": "thread"}, "fork.*spawn"),
        ({"backend": "glo"}, "glo"),
    ],
)
def test_sessions_that_cannot_start_are_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(ddt.SessionError, match=text) as caught:
        ddt.Session(**{"n": 2} | options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_memory_over_the_cap_is_an_exception_in_that_rank() -> None:
    with ddt.Session(2, memory="100M") as session:
        run = session.run("x = torch.zeros(2**28) if rank == 1 else None")
        assert set(run.errors) == {1}
        assert ddt.diagnose(run).findings[0].symptom == "D.1.2"
        assert session.run(REDUCE).ok


@pytest.mark.parametrize("item", ["bytearray(50_000)", "[1.5 * len(kept)]"])
def test_memory_filled_completely_is_reported_at_once(item: str) -> None:
    cell = f"kept = []\nwhile rank == 1: kept.append({item})\n{REDUCE}"  # either part may fail
    with ddt.Session(2, memory="100M", timeout=60) as session:
        run = session.run(cell)
        (finding,) = ddt.diagnose(run).findings
        found = (finding.symptom, finding.ranks, finding.waiting)
        assert found == ("D.1.2", [1], [0]), run.errors
        unknown = [fact for fact in finding.facts if fact.kind == "line-lost-for-memory"]
        assert unknown or finding.where[1].startswith("cell[1] line 2")
        assert not run.lost
        assert session.run(f"del kept\n{REDUCE}").ok


def test_memory_that_ipython_lacks_as_well_is_reported() -> None:
    cell = f"""
import IPython.core.interactiveshell as shell
def lacks(*args, **options): raise MemoryError
if rank == 1:
    shell.ExecutionInfo = get_ipython().showtraceback = lacks
kept = []
while rank == 1: kept.append(bytearray(50_000))
{REDUCE}"""
    with ddt.Session(2, memory="100M", timeout=60) as session:
        run = session.run(cell)
        (finding,) = ddt.diagnose(run).findings
        assert (finding.symptom, finding.ranks, finding.waiting) == ("D.1.2", [1], [0]), run.errors


def test_a_group_that_memory_keeps_from_forming_is_reported() -> None:
    with ddt.Session(2, memory="100M") as session:
        pids = session.pids
        run = session.run(
            "import resource\n"
            "if rank == 1:\n"
            "    cap, _ = resource.getrlimit(resource.RLIMIT_DATA)\n"
            "    resource.setrlimit(resource.RLIMIT_DATA, (cap, cap))\n"
            "    kept = []\n"
            "    while True:\n"
            "        kept.append(bytearray(50_000))\n" + REDUCE
        )
        assert ddt.diagnose(run).findings[0].ranks == [1]
        assert session.pids == pids
        with pytest.raises(ddt.SessionError, match=r"rank 1: its memory is full.*session\.restart"):
            session.run(REDUCE)
        session.restart()
        assert session.run(REDUCE).ok


def test_an_exception_that_takes_long_to_format_is_waited_for() -> None:
    slow_to_format = (
        "import time\n"
        "class Slow(Exception):\n"
        "    def __str__(self):\n"
        "        time.sleep(0.9)\n"
        "        return 'shown'\n"
        "if rank == 1:\n"
        "    raise Slow\n" + REDUCE
    )
    with ddt.Session(3, timeout=0.5) as session:
        run = session.run(slow_to_format)
        assert run.snapshot.rank(1).state == "raised"
        (finding,) = ddt.diagnose(run).findings
        assert (finding.ranks, finding.waiting) == ([1], [0, 2])
        assert "Slow: shown" in finding.title


def test_ranks_can_be_separate_interpreters() -> None:
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
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            session.push(free_port=probe.getsockname()[1])
        assert session.run(by_hand).ok
        hung = session.run("if rank == 0:\n    dist.init_process_group('gloo')")
        assert ddt.diagnose(hung).findings[0].symptom == "B.2"
        assert session.run(forms).ok


@contextlib.contextmanager
def notebook_that_imports_torch(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process that starts a session, and its fork server, which imports torch for minutes."""
    slow = tmp_path / "slow" / "torch"
    slow.mkdir(parents=True)
    imports = tmp_path / "server"
    (slow / "__init__.py").write_text(
        "import os, pathlib, time\n"
        f"pathlib.Path({str(imports)!r}).write_text(f'{{os.getpid()}}\\n')\n"
        "time.sleep(600)\n"
    )
    (tmp_path / "files").mkdir()
    package = Path(ddt.__file__).parent.parent
    says = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    notebook = subprocess.Popen(
        [sys.executable, "-c", f"{says}\nimport ddt_notebook as ddt\nddt.Session(2)"],
        stderr=subprocess.PIPE,
        env=os.environ
        | {"PYTHONPATH": f"{package}:{slow.parent}", "TMPDIR": str(tmp_path / "files")},
    )
    server = 0
    try:
        deadline = time.monotonic() + 60
        while not (imports.exists() and imports.read_text().endswith("\n")):
            assert time.monotonic() < deadline, notebook.poll()
            time.sleep(0.02)
        server = int(imports.read_text())
        yield notebook, server
    finally:
        for pid in filter(None, (notebook.pid, server)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        notebook.communicate(timeout=30)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_notebook_that_is_killed_while_torch_is_imported(
    tmp_path: Path, number: signal.Signals
) -> None:
    with notebook_that_imports_torch(tmp_path) as (notebook, server):
        notebook.send_signal(number)
        notebook.wait(30)
        assert gone([server])
        assert not list((tmp_path / "files").iterdir())


def test_an_interrupt_ends_the_first_start_while_torch_is_imported(tmp_path: Path) -> None:
    with notebook_that_imports_torch(tmp_path) as (notebook, server):
        notebook.send_signal(signal.SIGINT)
        _, errors = notebook.communicate(timeout=60)  # torch takes ten minutes
        assert errors.decode().rstrip().endswith("KeyboardInterrupt")
        assert gone([server])
        assert not list((tmp_path / "files").iterdir())


@pytest.mark.parametrize(
    "where", ["end_ranks", "make_directory", "start_store", "_start_rank", "_await_ready"]
)
def test_an_interrupted_restart_says_how_to_go_on(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ddt.Session(2) as session:
        owner = session.pool if hasattr(session.pool, where) else session.pool.place
        step = getattr(owner, where)
        pids: list[int] = session.pids

        def interrupted(*arguments: object) -> None:
            step(*arguments)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(owner, where, interrupted)
            with pytest.raises(KeyboardInterrupt):
                session.restart()
            pids += session.pids
        with pytest.raises(ddt.SessionError, match=r"was interrupted: session\.restart\(\)"):
            session.run("1")
        session.restart()
        assert session.run(REDUCE).ok
        assert gone(pids)


def test_an_interrupt_while_the_group_is_formed_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    with ddt.Session(2) as session:

        def interrupted(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(session.pool, "command", interrupted)
            with pytest.raises(KeyboardInterrupt):
                session.run_script(script)
        with pytest.raises(ddt.SessionError, match=r"was interrupted: session\.restart\(\)"):
            session.run(REDUCE)
        session.restart()
        assert session.run(REDUCE).ok


def test_sessions_start_run_and_stop_in_threads() -> None:
    sessions: list[ddt.Session] = []
    threads = [threading.Thread(target=lambda: sessions.append(ddt.Session(2))) for _ in range(3)]
    in_threads(threads)
    assert len(sessions) == 3
    pids = [pid for session in sessions for pid in session.pids]
    ran: list[bool] = []
    in_threads(
        threading.Thread(target=lambda one=one: ran.extend(one.run(REDUCE).ok for _ in range(5)))
        for one in sessions
    )
    assert ran == [True] * 15
    killed = sessions[0].pids[1]
    os.kill(killed, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while not sessions[1].pool.place.server.ended(
        [killed]
    ):  # it receives the message of the end first
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert sessions[1].run(REDUCE).ok
    assert sessions[0].run(REDUCE).ok
    in_threads(threading.Thread(target=one.restart) for one in (sessions[0], sessions[0]))
    assert sessions[0].run(REDUCE).ok
    in_threads(threading.Thread(target=one.stop) for one in (*sessions, *sessions))
    assert gone(pids)


def test_a_thread_cannot_disturb_the_cell_of_another(session: ddt.Session) -> None:
    ran: list[ddt.RunResult] = []
    runner = threading.Thread(
        target=lambda: ran.append(session.run("import threading; threading.Event().wait()"))
    )
    runner.start()
    deadline = time.monotonic() + 30
    while not session.busy:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for request in (
        lambda: session.run("1"),
        lambda: session.pull("rank"),
        lambda: session.push(x=1),
        session.restart,
        session.release,
    ):
        with pytest.raises(ddt.SessionError, match=r"busy with cell|no hang is held"):
            request()
    session.interrupt()
    runner.join(30)
    assert [type(error).__name__ for error in ran[0].errors.values()] == ["RankError"] * 2
    assert session.run(REDUCE).ok


def test_a_forked_child_cannot_use_or_end_the_session(session: ddt.Session) -> None:
    assert session.run("kept = 5").ok
    requests = {
        "run": lambda: session.run("kept = 6"),
        "push": lambda: session.push(kept=6),
        "pull": lambda: session.pull("kept"),
        "interrupt": session.interrupt,
        "status": session.status,
        "restart": session.restart,
        "view": lambda: ddt.placement(session),
        "stop": session.stop,
    }
    for name, request in requests.items():
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(read)
                said = "nothing"
                try:
                    request()
                except BaseException as error:  # noqa: BLE001
                    said = f"{type(error).__name__}: {error}"
                os.write(write, said.encode())
            finally:
                os._exit(0)
        os.close(write)
        with open(read) as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        if name == "stop":
            assert said == "nothing"
        else:
            assert said.startswith("SessionError: this process was forked"), name
        assert session.pull("kept") == 5, name
    assert session.run(REDUCE).ok


def test_a_forked_child_that_ends_like_a_program_leaves_the_session_alone() -> None:
    program = """
        import os
        import ddt_notebook as ddt
        with ddt.Session(2) as session:
            session.run("kept = 5")
            child = os.fork()
            if child == 0:
                raise SystemExit  # leaves the with block, and calls the functions of atexit
            os.waitpid(child, 0)
            assert session.pull("kept") == 5
        """
    subprocess.run([sys.executable, "-c", dedent(program)], check=True, timeout=90)


def test_a_server_that_ends_with_a_request_unread_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ddt.Session(1) as session:
        monkeypatch.setattr(subprocess.Popen, "send_signal", lambda *_: None)  # it stays stopped
        server = session.process_ids()[-1]
        os.kill(server, signal.SIGSTOP)
        killer = threading.Timer(0.5, os.kill, (server, signal.SIGKILL))
        killer.start()
        with pytest.raises(ddt.SessionError, match="parent process"):
            session.pool.place.server.request(StartStore())
        killer.join(30)
        session.restart()  # with another server
        assert session.run(REDUCE).ok


def test_a_forked_child_starts_a_session_of_its_own(session: ddt.Session) -> None:
    assert session.run("kept = 5").ok
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with ddt.Session(2) as own:
                os.write(write, repr(own.run(REDUCE).ok).encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as pipe:
        assert pipe.read() == "True"
    os.waitpid(child, 0)
    assert session.pull("kept") == 5


def in_threads(threads: Iterable[threading.Thread]) -> None:
    started = list(threads)
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(90)
        assert not thread.is_alive()


def test_thirty_sessions_leave_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with ddt.Session(1) as first:
        server = psutil.Process(first.process_ids()[-1])
    own = psutil.Process()
    before = _left_open(own, server)
    pids = []
    for _ in range(30):
        with ddt.Session(2) as session:
            pids += session.pids
            assert session.run("pass").ok
    assert gone(pids)
    after = _left_open(own, server)
    # fewer, where something of an earlier test ended meanwhile
    assert [now for now, then in zip(after, before, strict=True) if now > then] == [], (
        before,
        after,
    )
    assert not list(tmp_path.iterdir())


def _left_open(own: psutil.Process, server: psutil.Process) -> tuple[int, int, int]:
    """Descriptors of this process and of the server, and processes below, between sessions."""
    time.sleep(0.8)
    gc.collect()
    return own.num_fds(), server.num_fds(), len(descendants([own.pid]))


LOADER = (
    "from torch.utils.data import DataLoader, TensorDataset\n"
    "data = TensorDataset(torch.arange(8.0))\n"
    "loader = DataLoader(data, num_workers=2, persistent_workers=True)\n"
    "assert sum(1 for _ in loader) == 8"
)


def test_folders_of_loader_workers_go_with_killed_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed = """
        import os, signal
        from torch.utils.data import DataLoader, TensorDataset
        batches = iter(DataLoader(TensorDataset(torch.ones(90, 9)), batch_size=1, num_workers=2))
        next(batches)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        """
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # sockets need a short path
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        with ddt.Session(2) as session:
            assert not session.run(dedent(killed)).ok
            assert session.run(REDUCE).ok
        left = {path.name for path in Path(folder).iterdir()}
    assert not {name for name in left if name.startswith(("pymp-", "ddt-"))}


def test_dataloader_workers_end_with_the_session() -> None:
    session = ddt.Session(2)
    assert session.run(LOADER).ok
    workers = descendants(session.pids)
    assert len(workers) >= 4
    session.stop()
    assert gone(workers)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_the_notebook(end: signal.Signals) -> None:
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


def test_an_internal_error_while_starting_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ddt_notebook.host import pool

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


def test_the_store_is_replaced_when_it_was_killed(session: ddt.Session) -> None:
    session.run("kept = 1")
    *_, store, _ = session.process_ids()
    os.kill(store, signal.SIGKILL)
    assert gone([store])
    run = session.run("if rank == 0:\n    dist.barrier()")
    assert ddt.diagnose(run).findings[0].ranks == [1]
    assert session.run(f"kept\n{REDUCE}").ok


def test_ranks_end_with_their_parent_and_can_be_restarted() -> None:
    with ddt.Session(2) as session:
        *others, server = session.process_ids()
        os.kill(server, signal.SIGKILL)
        assert gone(others)
        with pytest.raises(ddt.SessionError, match=r"session\.restart"):
            session.run("1")
        session.restart()
        assert session.run(REDUCE).ok
