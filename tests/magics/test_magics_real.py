"""The magics on real ranks, in a shell of this process."""

import os
import re
import signal
import threading
import time
from collections.abc import Iterator

import pytest
from IPython.core.error import UsageError

from ddt_notebook import diagnose
from ddt_notebook.host.session import active
from ddt_notebook.magics.failure import CellFailed

from .conftest import Notebook


@pytest.fixture
def ranks(notebook: Notebook) -> Iterator[Notebook]:
    notebook.run("%ddt_start -n 3 --hang-after 0.5")
    yield notebook
    notebook.run("%ddt_stop")


def test_a_session_from_start_to_stop(notebook: Notebook) -> None:
    assert "2 ranks · gloo" in repr(notebook.run("%ddt_start -n 2"))
    session = active.get()
    assert session is not None
    pids = session.pids
    status = repr(notebook.run("%ddt_status"))
    assert all(str(pid) in status for pid in pids)
    notebook.run("%ddt_restart")
    assert set(session.pids).isdisjoint(pids)
    assert repr(notebook.run("%ddt_stop")) == "stopped: 2 ranks ended"
    assert active.get() is None


def test_equal_output_is_shown_once(ranks: Notebook) -> None:
    shown = ranks.shown("%%ddt\nprint('hello')\nprint('rank', rank)\nworld_size")
    assert "[ranks 0-2] hello\n" in shown
    for rank in range(3):
        assert f"[rank {rank}] rank {rank}\n" in shown
    assert "[ranks 0-2] 3\n" in shown
    assert "ok · 3 ranks" in shown


def test_a_cell_runs_on_some_ranks(ranks: Notebook) -> None:
    shown = ranks.shown("%%ddt -r 0,2 -o run\nprint('here')")
    assert "[ranks 0, 2] here\n" in shown
    assert sorted(ranks.names["run"].outputs) == [0, 2]
    with pytest.raises(UsageError, match="there is no rank 7"):
        ranks.run("%%ddt -r 7\npass")


def test_variables_stay_from_cell_to_cell(ranks: Notebook) -> None:
    ranks.run("%%ddt\nvalue = rank * 10")
    assert "[rank 2] 20\n" in ranks.shown("%%ddt\nprint(value)")


def test_an_exception_is_the_finding_and_its_line_is_the_notebooks(ranks: Notebook) -> None:
    cell = "%%ddt -o run\nx = 1\nif rank == 1:\n    raise ValueError('bad batch')\ndist.barrier()"
    with pytest.raises(CellFailed) as raised:
        ranks.run(cell)
    finding = raised.value.report.findings[0]
    assert finding.ranks == [1]
    shown = ranks.shown(cell)
    assert "rank 1 raised ValueError at cell[" in shown
    assert "] line 4: bad batch" in shown
    assert "ddt_notebook/magics" not in shown
    assert not ranks.names["run"].ok
    assert "ok · 3 ranks" in ranks.shown("%%ddt\ndist.barrier()")


def test_a_hang_is_explained_and_the_variables_live_on(ranks: Notebook) -> None:
    ranks.run("%%ddt\nkept = rank")
    shown = ranks.shown("%%ddt\nif rank != 1:\n    dist.all_reduce(torch.ones(2))")
    assert (
        "hang D.2.1 or C.4 · data & model preparation, or training & evaluation · certain" in shown
    )
    assert "rank 1 never entered all_reduce #1 (2 × float32)" in shown
    assert "] line 3   dist.all_reduce(torch.ones(2))" in shown
    assert "more %ddt_explain D.2.1" in shown
    assert "rank 1 never entered" in repr(ranks.run("%ddt_debug"))
    assert "ranks 0 and 2" in repr(ranks.run("%ddt_show stacks"))
    assert "[rank 2] 2\n" in ranks.shown("%%ddt\nprint(kept)")


def test_a_frozen_hang_is_held_until_released(ranks: Notebook) -> None:
    shown = ranks.shown("%%ddt --freeze\nif rank != 1:\n    dist.all_reduce(torch.ones(2))")
    assert "the hang is held" in shown
    with pytest.raises(UsageError, match="%ddt_release"):
        ranks.run("%%ddt\npass")
    assert "rank 1 never entered" in repr(ranks.run("%ddt_release"))
    assert "ok · 3 ranks" in ranks.shown("%%ddt\ndist.barrier()")


def test_an_interrupt_ends_the_cell_and_says_where_the_ranks_stood(ranks: Notebook) -> None:
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    shown = ranks.shown("%%ddt\nimport time\nif rank == 0:\n    time.sleep(100)\ndist.barrier()")
    assert "interrupted after" in shown
    assert "] line 4   time.sleep(100)" in shown
    assert "Traceback" not in shown
    assert "ok · 3 ranks" in ranks.shown("%%ddt\ndist.barrier()")


def test_push_and_pull(ranks: Notebook) -> None:
    ranks.run("table = {'a': [1, 2]}")
    assert "to ranks 0-2" in repr(ranks.run("%ddt_push table"))
    ranks.run("%%ddt\ntable['rank'] = rank")
    ranks.run("%ddt_pull table -r 2 --as theirs")
    assert ranks.names["theirs"] == {"a": [1, 2], "rank": 2}
    with pytest.raises(UsageError, match="no_such"):
        ranks.run("%ddt_pull no_such")
    ranks.run("lock = __import__('threading').Lock()")
    with pytest.raises(UsageError, match="lock"):
        ranks.run("%ddt_push lock")


def test_the_advice_for_a_name_that_only_the_notebook_has(ranks: Notebook) -> None:
    ranks.run("lr, math = 0.1, __import__('math')")
    shown = ranks.shown("%%ddt\nx = 2 * lr")
    assert "fix  `lr` is a variable of the notebook, not of the ranks: `%ddt_push lr`" in shown
    assert "a variable of the notebook, not of the ranks" in repr(ranks.run("%ddt_debug"))
    session = active.get()
    assert session is not None
    assert "`%ddt_push lr`" in repr(diagnose(session))
    shown = ranks.shown("%%ddt -r 0,2\nif rank == 2:\n    lr")
    assert "a variable of the notebook, not of rank 2: `%ddt_push lr`" in " ".join(shown.split())
    assert "import it in a" in ranks.shown("%%ddt\nmath.pi")
    shown = ranks.shown("%%ddt\nx = 2 * In")
    assert "variable of the notebook" not in shown


def test_a_restart_loses_variables_and_shows_how_long_ranks_have_run(ranks: Notebook) -> None:
    ranks.run("%%ddt\nloss = 1")
    with pytest.raises(UsageError, match=r"no 'los' on this rank; did you mean loss\?"):
        ranks.run("%ddt_pull los")
    time.sleep(1.5)
    begin = time.monotonic()
    anew = repr(ranks.run("%ddt_restart"))
    took = time.monotonic() - begin
    assert "note the ranks were restarted: all their variables are gone" in anew
    up = re.search(r"up ([\d.]+) (ms|s)", anew)
    assert up is not None
    assert float(up[1]) / (1000 if up[2] == "ms" else 1) <= took + 0.1
    shown = " ".join(ranks.shown("%%ddt\nprint(loss)").split())
    assert "restarted since, which loses all variables" in shown


def test_debug_starts_what_it_needs(notebook: Notebook) -> None:
    shown = notebook.shown("%%ddt_debug -n 2\nprint(world_size)")
    assert "[ranks 0, 1] 2\n" in shown
    assert "ok · 2 ranks" in shown


def test_a_flood_is_cut_and_kept_whole_in_a_file(ranks: Notebook) -> None:
    shown = ranks.shown("%%ddt -r 1\nfor i in range(5000):\n    print(i)")
    lines = [line for line in shown.splitlines() if line.startswith("[rank 1]")]
    assert len(lines) == 501
    assert "more output is in " in lines[-1]
    path = lines[-1].rsplit(" ", 1)[-1]
    with open(path) as file:
        assert "4999\n" in file.read()
