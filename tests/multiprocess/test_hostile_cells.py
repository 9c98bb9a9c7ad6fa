"""Cells whose objects make endless texts, and cells that damage what their rank works with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ddt_notebook as ddt
from ddt_notebook.faults import loader

from .processes import gone

REDUCE = "x = torch.ones(1)\ndist.all_reduce(x)\nprint(x.item())"


@pytest.fixture(scope="module")
def session() -> Iterator[ddt.Session]:
    with ddt.Session(2) as opened:
        yield opened


def test_the_traceback_of_a_recursion_is_folded(session: ddt.Session) -> None:
    run = session.run("def f(n):\n    return f(n + 1)\nf(0)")
    error = run.errors[0]
    assert error.type == "RecursionError"
    assert "[Previous line repeated" in error.traceback
    assert error.traceback.count("return f(n + 1)") < 5


def test_of_a_deep_recursion_the_middle_is_left_out(session: ddt.Session) -> None:
    run = session.run(
        "import sys\n"
        "sys.setrecursionlimit(9000)\n"
        "def even(n):\n"
        "    odd(n + 1)\n"
        "def odd(n):\n"
        "    if n > 4000:\n"
        "        raise ValueError('deep enough')\n"
        "    even(n + 1)\n"
        "even(0)"
    )
    error = run.errors[0]
    assert "more levels are left out]" in error.traceback
    assert error.traceback.endswith("ValueError: deep enough\n")
    assert error.where is not None
    assert error.where.line == 7


def test_of_a_long_chain_of_exceptions_the_last_are_shown(session: ddt.Session) -> None:
    run = session.run(
        "latest = None\n"
        "for number in range(5000):\n"
        "    try:\n"
        "        raise ValueError(number) from latest\n"
        "    except ValueError as error:\n"
        "        latest = error\n"
        "raise latest"
    )
    error = run.errors[0]
    assert error.traceback.startswith("[4992 earlier exceptions are left out]")
    assert "ValueError: 4998" in error.traceback
    assert error.traceback.endswith("ValueError: 4999\n")
    assert session.run("del latest\n" + REDUCE).ok


ENDLESS = """
import time
class Endless({base}):
    def {name}(self):
        while True:
            try:
                time.sleep(3600)
            except {caught}:
                pass
"""


# A text that is not bounded would take as long as the test may take.
@pytest.mark.parametrize("caught", ["ValueError", "Exception"])
def test_an_exception_with_an_endless_text_is_shown_without_it(
    session: ddt.Session, caught: str
) -> None:
    source = ENDLESS.format(base="Exception", name="__str__", caught=caught) + "raise Endless"
    error = session.run(source).errors[0]
    said = "<Endless: its __str__ took longer than 2 s and was interrupted>"
    assert (error.type, error.message) == ("Endless", said)
    assert said in error.traceback
    assert session.run(REDUCE).outputs == {0: "2.0\n", 1: "2.0\n"}


def test_a_result_with_an_endless_text_is_shown_without_it(session: ddt.Session) -> None:
    source = ENDLESS.format(base="object", name="__repr__", caught="ValueError") + "Endless()"
    run = session.run(source)
    assert run.ok
    assert "<Endless: its __repr__ took longer than 2 s and was interrupted>" in run.outputs[0]


def test_an_exception_whose_text_raises_what_nobody_catches_is_shown(session: ddt.Session) -> None:
    source = (
        "class Evil(BaseException):\n"
        "    args = property(lambda self: 1 / 0)\n"
        "    def __str__(self):\n"
        "        raise self\n"
        "raise Evil"
    )
    pids = session.pids
    error = session.run(source).errors[0]
    assert (error.type, error.message) == ("Evil", "<Evil: its __str__ raised Evil>")
    assert session.run(REDUCE).ok
    assert session.pids == pids


@pytest.mark.parametrize(
    ("notes", "shown"),
    [
        ("E.__notes__ = property(lambda self: 1 / 0)", "its __notes__ raised ZeroDivisionError"),
        ("E.__notes__ = [f'note {i}' for i in range(5000)]", "4900 more notes are left out"),
    ],
)
def test_notes_of_an_exception_are_bounded(session: ddt.Session, notes: str, shown: str) -> None:
    run = session.run(f"class E(Exception):\n    pass\n{notes}\nraise E('known')")
    for error in run.errors.values():
        assert (error.type, error.message) == ("E", "known")
        assert shown in error.traceback
        assert "note 101" not in error.traceback


@pytest.mark.parametrize(
    "group",
    ["ExceptionGroup('known', [ValueError()] * 100_000)", "nested"],
)
def test_of_a_large_group_of_exceptions_the_group_is_shown(
    session: ddt.Session, group: str
) -> None:
    nests = "nested = ValueError()\nfor _ in range(2000):\n"
    nests += "    nested = ExceptionGroup('known', [nested])"
    run = session.run(f"{nests}\nraise {group}")
    for error in run.errors.values():
        assert error.type == "ExceptionGroup"
        assert "Traceback (most recent call last)" in error.traceback
        assert "line 4" in error.traceback
        assert "ExceptionGroup: known" in error.traceback
    assert not any(run.outputs.values())


#: Its file is known to a loader that does not answer.
_SLOW_LOADER = """
import time
from ddt_notebook.rank import bounded_text
bounded_text.TRACEBACK_LIMIT_S = 0.5
class Loader:
    def get_source(self, name):
        time.sleep(600)
exec(compile("def f(): 1 / 0", "/nowhere/of_loader.py", "exec"), names := {
    "__name__": "of_loader", "__loader__": Loader()})
names["f"]()
"""


def test_a_traceback_whose_lines_cannot_be_read_is_left_out(session: ddt.Session) -> None:
    try:
        run = session.run(_SLOW_LOADER)
    finally:
        session.restart()
    for error in run.errors.values():
        assert (error.type, error.message) == ("ZeroDivisionError", "division by zero")
        assert "the traceback is left out" in error.traceback
        assert error.where is not None
        assert (error.where.line, error.where.function) == (1, "f")


def test_huge_texts_are_cut(session: ddt.Session) -> None:
    run = session.run("raise ValueError('z' * 10**7)")
    assert len(run.errors[0].message) < 30_000
    run = session.run("class Huge:\n    def __repr__(self):\n        return 'y' * 10**7\nHuge()")
    assert len(run.outputs[0]) < 300_000
    assert "more characters)" in run.outputs[0]


def test_an_alarm_of_the_user_survives_a_bounded_text(session: ddt.Session) -> None:
    run = session.run(
        "import signal, time\n"
        "signal.signal(signal.SIGALRM, lambda *_: print('alarm'))\n"
        "signal.setitimer(signal.ITIMER_REAL, 3600)\n"
        "class Shown:\n"
        "    def __repr__(self):\n"
        "        return 'shown'\n"
        "Shown()"
    )
    assert "shown" in run.outputs[0]
    run = session.run("left = signal.setitimer(signal.ITIMER_REAL, 0)[0]; print(0 < left <= 3600)")
    assert run.outputs[0] == "True\n"


@pytest.mark.parametrize("word", ["quit", "exit", "quit()"])
def test_quit_ends_the_cell(session: ddt.Session, word: str) -> None:
    run = session.run(word)
    assert {error.type for error in run.errors.values()} == {"SystemExit"}
    assert session.run(REDUCE).ok


@pytest.mark.parametrize(
    "closes",
    [
        "os.close(1); os.close(2)",
        "sys.stdout = sys.stderr = None",
        "sys.stdout.close()",
        "sys.stdout.close(); os.close(2); sys.stderr = None",
    ],
)
def test_output_that_a_cell_closed_is_opened_again(session: ddt.Session, closes: str) -> None:
    pids = session.pids
    run = session.run(f"import os, sys\nif rank == 0:\n    {closes}")
    assert run.ok
    assert any("rank 0 had closed its stdout" in note for note in run.snapshot.notes)
    again = session.run("import sys\nprint('shown', file=sys.stderr)\n" + REDUCE)
    assert again.ok
    together = "".join(again.outputs[0].split())  # the two streams may come between each other
    assert together in {"2.0shown", "shown2.0"}, again.outputs
    assert again.snapshot.notes == ()
    assert session.pids == pids


@pytest.mark.parametrize(
    ("damages", "note"),
    [
        ("del torch, dist", "rank 0 had deleted torch, dist; defined again"),
        ("get_ipython().run_line_magic('reset', '-f')", "rank 0 had deleted rank, world_size, "),
        ("dist.barrier = dist.all_reduce = None", "rank 0 had replaced dist.barrier; it was put"),
        ("del dist.destroy_process_group", "had replaced dist.destroy_process_group; it was put"),
    ],
)
def test_what_cells_rely_on_is_put_back(session: ddt.Session, damages: str, note: str) -> None:
    pids = session.pids
    run = session.run(f"if rank == 0:\n    {damages}")
    assert run.ok
    assert any(note in one for one in run.snapshot.notes), run.snapshot.notes
    again = session.run(REDUCE + "\ndist.barrier()")
    assert again.outputs == {0: "2.0\n", 1: "2.0\n"}
    assert again.snapshot.notes == ()
    assert session.pids == pids


@pytest.mark.parametrize(
    ("damages", "note"),
    [
        ("del builtins.print", "rank 0 had removed built-in names (print); they were put back"),
        ("del builtins.len", "built-in names (len)"),
        ("builtins.open = builtins.__import__ = None", "built-in names (__import__, open)"),
        ("for name in [*vars(builtins)]: delattr(builtins, name)", ", abs, all, any, "),
        ("sys.modules.clear()", "rank 0 had emptied sys.modules; it was filled again"),
    ],
)
def test_what_python_itself_needs_is_put_back(
    session: ddt.Session, damages: str, note: str
) -> None:
    pids = session.pids
    run = session.run(f"import builtins, sys\nif rank == 0:\n    {damages}")
    assert any(note in one for one in run.snapshot.notes), run.snapshot.notes
    again = session.run(f"{REDUCE}\nassert len(open('/dev/null').read()) == 0\nimport wave")
    assert again.ok
    assert again.snapshot.notes == ()
    assert session.pids == pids


def test_a_built_in_function_of_the_users_own_stays(session: ddt.Session) -> None:
    """Training scripts replace ``print`` on all ranks but one."""
    assert session.run("import builtins\nplain = print\nbuiltins.print = lambda *_: None").ok
    assert session.run("print('hidden')").outputs == {0: "", 1: ""}
    assert session.run("builtins.print = plain\n" + REDUCE).outputs == {0: "2.0\n", 1: "2.0\n"}


def test_a_rank_that_can_run_no_cell_any_more_is_replaced(session: ddt.Session) -> None:
    run = session.run("import time\nif rank == 0:\n    time.monotonic = None")
    assert ddt.diagnose(run).findings[0].ranks == [0]
    note = "rank 0 could no longer run cells, so it was replaced"
    assert any(note in one for one in run.snapshot.notes)
    assert session.run(REDUCE).outputs == {0: "2.0\n", 1: "2.0\n"}


def test_a_function_that_a_cell_replaced_is_noted_once(session: ddt.Session) -> None:
    patch = "original = dist.all_reduce\ndist.all_reduce = lambda *args: original(*args)"
    (first, *_) = session.run(patch).snapshot.notes
    assert first.startswith("rank 0 has replaced dist.all_reduce by a function of its own")
    assert session.run(REDUCE).outputs == {0: "2.0\n", 1: "2.0\n"}
    assert session.run("dist.all_reduce = original").snapshot.notes == ()


def test_output_that_a_cell_redirected_stays_redirected(
    session: ddt.Session, tmp_path: Path
) -> None:
    file = tmp_path / "redirected"
    assert session.run(
        f"import sys\nif rank == 0:\n    before, sys.stdout = sys.stdout, open({str(file)!r}, 'w')"
    ).ok
    assert session.run("if rank == 0:\n    print('there')\n    sys.stdout.flush()").ok
    assert file.read_text() == "there\n"
    assert session.run("if rank == 0:\n    sys.stdout = before\n" + REDUCE).outputs[0] == "2.0\n"


def test_a_cell_that_removes_the_folder_of_the_session_ends_nothing(session: ddt.Session) -> None:
    """As ``rm -r /tmp/*`` in a terminal does."""
    folder = str(session.pool.directory)
    run = session.run(f"import shutil\nif rank == 0:\n    shutil.rmtree({folder!r})\n{REDUCE}")
    assert run.outputs == {0: "2.0\n", 1: "2.0\n"}
    run = session.run("import os\nif rank == 0:\n    os._exit(3)")  # is replaced
    assert run.snapshot.rank(0).exit_code == 3
    assert session.run(REDUCE).outputs == {0: "2.0\n", 1: "2.0\n"}


@pytest.mark.parametrize("closes", ["os.closerange(0, 1000)", "os.closerange(3, 1000)"])
def test_a_rank_that_closed_everything_is_replaced(session: ddt.Session, closes: str) -> None:
    run = session.run(f"import os\nif rank == 0:\n    {closes}")
    assert ddt.diagnose(run).findings[0].ranks == [0]
    assert session.run(REDUCE).outputs == {0: "2.0\n", 1: "2.0\n"}


@pytest.mark.parametrize(
    "writes",
    [
        "for fd in range(3, 100):\n        with suppress(OSError): os.write(fd, b'x' * 100)",
        "json.dumps = lambda *_, **__: '[\u007b'",
    ],
)
def test_a_rank_that_sends_something_else_than_messages_is_named(
    session: ddt.Session, writes: str
) -> None:
    imports = "import json, os\nfrom contextlib import suppress\n"
    run = session.run(f"{imports}if rank == 0:\n    {writes}")
    (finding,) = ddt.diagnose(run).findings
    assert (finding.kind, finding.ranks) == ("garbled", [0])
    assert "SIGKILL" not in finding.title
    assert session.run(REDUCE).outputs == {0: "2.0\n", 1: "2.0\n"}


@pytest.mark.parametrize(
    "damages",
    [
        "size = os.path.getsize(path)\n    open(path, 'r+b').write(b'\\xff' * size)",
        "os.truncate(path, 4096)",
    ],
)
def test_a_damaged_call_log_is_noted_or_its_rank_is_named(
    session: ddt.Session, damages: str
) -> None:
    log = "rank0.calls"
    path = session.pool.directory / log
    run = session.run(f"import os\npath = {str(path)!r}\nif rank == 0:\n    {damages}\n{REDUCE}")
    found = ddt.diagnose(run).findings
    assert [finding.ranks for finding in found] == [[0]] or any(
        "call log of rank 0" in note for note in run.snapshot.notes
    )
    session.restart()
    assert session.run(REDUCE).outputs == {0: "2.0\n", 1: "2.0\n"}


def test_forged_messages_change_nothing(session: ddt.Session) -> None:
    run = session.run(
        "import gc\n"
        "from ddt_notebook.wire.channel import Channel\n"
        "from ddt_notebook.wire.messages import Done\n"
        "for one in [one for one in gc.get_objects() if type(one) is Channel]:\n"
        "    for number in range(100):\n"
        "        one.send(Done(), number=number)\n"
    )
    assert run.ok
    assert session.run(REDUCE).outputs == {0: "2.0\n", 1: "2.0\n"}


@pytest.mark.parametrize(
    ("ends", "exit_code", "signal"),
    [
        ("os._exit(7)", 7, None),
        ("os._exit(0)", 0, None),
        ("signal.alarm(1); time.sleep(60)", None, 14),
    ],
)
def test_a_rank_that_ends_itself_is_named_and_replaced(
    session: ddt.Session, ends: str, exit_code: int | None, signal: int | None
) -> None:
    run = session.run(f"import os, signal, time\nif rank == 1:\n    {ends}\n{REDUCE}")
    (finding,) = ddt.diagnose(run).findings
    assert (finding.kind, finding.ranks, finding.waiting) == ("died", [1], [0])
    died = run.snapshot.rank(1)
    assert (died.exit_code, died.exit_signal) == (exit_code, signal)
    assert session.run(REDUCE).outputs == {0: "2.0\n", 1: "2.0\n"}


def test_processes_that_a_cell_spawns_are_named(session: ddt.Session) -> None:
    card = loader.card("spawn-in-a-cell")
    once = card.broken.replace("mp.spawn(train, args=(2,), nprocs=2)", "")
    run = session.run(f"{once}\nif rank == 0:\n    mp.spawn(train, args=(1,), nprocs=1)")
    (finding,) = ddt.diagnose(run).findings
    assert (finding.cause, finding.ranks) == (card.id, [0])
    assert session.run(REDUCE).outputs == {0: "2.0\n", 1: "2.0\n"}


def test_an_alarm_after_its_cell_is_reported_by_the_next(session: ddt.Session) -> None:
    before = session.pids[1]
    assert session.run("import signal\nif rank == 1:\n    signal.setitimer(0, 0.2)").ok
    assert gone([before])
    run = session.run(REDUCE)
    assert run.outputs == {0: "2.0\n", 1: "2.0\n"}
    assert any("rank 1 had died and was replaced" in note for note in run.snapshot.notes)


def test_an_object_for_which_the_rank_has_no_memory_stays_there() -> None:
    with ddt.Session(1, memory="500M") as small:
        assert small.run("kept = bytearray(300 * 2**20)").ok
        with pytest.raises(ddt.SessionError, match="memory does not hold a copy"):
            small.pull("kept")
        assert small.run("print(len(kept))").ok


@pytest.mark.parametrize("count", ["2", 2.5, True, None])
def test_a_number_of_ranks_that_is_none_is_refused_in_one_line(count: object) -> None:
    with pytest.raises(ddt.SessionError, match=r"a whole number, not .*ddt\.Session\(2\)$"):
        ddt.Session(count)  # type: ignore[arg-type]
