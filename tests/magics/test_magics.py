"""Parsing, errors and views of the magics, with a session that starts no process."""

import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.error import UsageError

from ddt_notebook.host.errors import SessionError
from ddt_notebook.host.run_result import RunResult
from ddt_notebook.host.session import active
from ddt_notebook.magics import base as module
from ddt_notebook.magics.config import DDT
from ddt_notebook.magics.debugging import DebugMagics
from ddt_notebook.magics.doctor import DoctorMagics
from ddt_notebook.magics.extension import unload_ipython_extension
from ddt_notebook.magics.failure import CellFailed
from ddt_notebook.magics.live_panel import LiveMagics
from ddt_notebook.magics.magics import DDTMagics
from ddt_notebook.magics.options import rank_list
from ddt_notebook.model import Cell, Position, RankError, RankReport, Report, Snapshot
from ddt_notebook.views.registry import VIEWS
from ddt_notebook.views.report import DisplayedReport

from .conftest import Notebook


class FakeSession:
    """Answers like a session, and remembers what it was asked."""

    def __init__(self, n: int, **settings: Any) -> None:
        if n > 64:
            raise SessionError(
                "500 ranks need more memory", "start 8 or fewer", reason="memory", fitting_ranks=8
            )
        self.world_size = n
        self.settings = settings
        self.timeout = settings["timeout"]
        self.runs: list[dict[str, Any]] = []
        self.stopped = self.frozen = self.resting = False
        self.last_run: RunResult | None = None
        self.pushed: dict[str, object] = {}
        self.fails = False
        active.set(self)  # type: ignore[arg-type]

    def run_cell(
        self, source: str, *, number: int, first_line: int, listener: Any, **rest: Any
    ) -> RunResult:
        self.runs.append({"source": source, "number": number, "first_line": first_line, **rest})
        listener.on_output(0, "stdout", "hello\n")
        listener.on_end()
        error = None
        if self.fails:
            error = RankError(
                type="ValueError",
                message="bad batch",
                traceback="ValueError Traceback\n----> 2 check()",
                where=Position(file=f"cell[{number}]", line=2),
            )
        ranks = tuple(
            RankReport(
                rank=rank,
                state="raised" if error and rank == 1 else "finished",
                error=error if rank == 1 else None,
            )
            for rank in range(self.world_size)
        )
        snapshot = Snapshot(
            cell=Cell(number=number, source=source, first_line=first_line),
            outcome="failed" if self.fails else "ok",
            ranks=ranks,
            world_size=self.world_size,
        )
        lost = {1: ["model"]} if self.fails else {}
        self.last_run = RunResult(not self.fails, {}, {}, snapshot, 0.1, lost=lost)
        return self.last_run

    def run_script(self, path: str, argv: list[str], **rest: Any) -> RunResult:
        run = self.run_cell("", first_line=1, **rest)
        self.runs[-1] |= {"script": [path, *argv]}
        return run

    def push(self, ranks: Any, /, **objects: object) -> dict[str, int]:
        self.pushed.update(objects)
        return dict.fromkeys(objects, 80)

    def pull(self, name: str, rank: int = 0) -> object:
        if name not in self.pushed:
            raise SessionError(f"rank {rank}: no variable {name!r}")
        return self.pushed[name]

    def output_file(self, rank: int, stream: str) -> Path:
        return Path(f"rank{rank}.out")

    @property
    def hosts(self) -> dict[int, str]:
        return dict.fromkeys(range(self.world_size), "")

    def status(self) -> Any:
        rank = {"pid": 4000, "alive": True, "state": "ready", "position": None}
        rank |= {"memory_bytes": 0, "share_bytes": 0}
        return SimpleNamespace(
            ranks=[
                SimpleNamespace(rank=r, host="", device="cpu", **rank)
                for r in range(self.world_size)
            ],
            world_size=self.world_size,
            versions=(),
            backend="gloo",
            has_group=True,
            simulated_gpus=0,
            framework="",
            seed=None,
            frozen=False,
            uptime_s=1.0,
            missing_features=(),
        )

    def restart(self) -> None: ...

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def fake(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> Notebook:
    monkeypatch.setattr(module, "Session", FakeSession)
    return notebook


def session() -> FakeSession:
    found = active.get()
    assert isinstance(found, FakeSession)
    return found


@pytest.mark.parametrize(
    ("text", "ranks"), [("0", (0,)), ("0,2-3", (0, 2, 3)), ("3,0-1,1", (0, 1, 3))]
)
def test_lists_of_ranks_are_parsed(text: str, ranks: tuple[int, ...]) -> None:
    assert rank_list(text) == ranks


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("%ddt_start --nporc 4", "no option --nporc"),
        ("%ddt_start --world_size 4", "did you mean --world-size"),
        ("%ddt_start -n 0", "write 1 or more"),
        ("%ddt_start -n four", "'four' is not a number of ranks"),
        ("%ddt_start -n 500", "start 8 or fewer: %ddt_start -n 8"),
        ("%ddt_start -t soon", "write seconds"),
        ("%ddt_start four", "'four' is not a number of ranks"),
        ("%ddt_start 4 5", "unexpected '5'"),
        ("%ddt_start 4 -n 2", "4 or 2 ranks"),
        ("%ddt_start -n", "expected one argument"),
        ('%ddt_start --backend "gloo', "a quotation mark is not closed"),
        ("%ddt_stop", "no session is running: there is nothing to stop"),
        ("%ddt_status", "%ddt_start -n 4 first"),
        ("%%ddt\nx = 1", "%ddt_start -n 4 first"),
        ("%%ddt -r 0,a\nx = 1", "'a' is not a rank; write a rank list like 0,2-3"),
        ("%%ddt -r 0, 1\nx = 1", "'' is not a rank"),
        ("%%ddt -r 3-1\nx = 1", "write 1-3"),
        ("%%ddt -o 2x\nx = 1", "'2x' is not the name of a variable"),
        ("%ddt print(rank)", "unexpected 'print(rank)'"),
        ("%ddt train.py --lr 0.1", "did you mean %ddt --script train.py --lr 0.1?"),
        ("%ddt", "put %%ddt on the first line of a cell"),
        ("%ddt_debug -n 4", "options belong to %%ddt_debug"),
        ("%ddt_explain D.9.9", "no symptom has the code 'D.9.9'"),
        ("%ddt_show memroy", "there is no view 'memroy'; the views are: stacks"),
        ("%ddt_release", "%ddt_start -n 4 first"),
        ("%ddt_restart", "%ddt_start -n 4 first"),
        ("%ddt_start --ranks 4", "no option --ranks; -n 4 sets how many ranks there are"),
        ("%ddt_start -r 4", "no option -r; -n 4 sets how many ranks there are"),
        ("%ddt_pull x --ranks 1", "did you mean --rank"),
        ("%ddt_show", "ddt_show: VIEW is missing: stacks, collectives, timeline"),
        ("%ddt_show --zoom", "VIEW is missing"),
        ("%ddt_push", "ddt_push: NAME is missing: variables of the notebook"),
    ],
)
def test_a_mistake_gives_one_line_that_says_what_to_do(
    fake: Notebook, line: str, says: str
) -> None:
    with pytest.raises(UsageError) as raised:
        fake.run(line)
    assert type(raised.value) is UsageError  # a subclass would be shown with its traceback
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_mistake_is_shown_without_a_traceback(fake: Notebook) -> None:
    assert fake.shown("%ddt_stop").strip().splitlines() == [
        "UsageError: no session is running: there is nothing to stop"
    ]


@pytest.mark.parametrize(
    ("reason", "magic"),
    [("stopped", "%ddt_start"), ("held", "%ddt_release"), ("broken", "%ddt_restart")],
)
def test_advice_names_magics_and_not_the_python_api(
    fake: Notebook, monkeypatch: pytest.MonkeyPatch, reason: Any, magic: str
) -> None:
    fake.run("%ddt_start -n 2")

    def refuse(*_: object, **__: object) -> None:
        raise SessionError("the fact", "session.method() helps", reason=reason)

    monkeypatch.setattr(session(), "run_cell", refuse)
    with pytest.raises(UsageError, match=f"^ddt: the fact: {magic}") as raised:
        fake.run("%%ddt\nx = 1")
    assert "session.method" not in str(raised.value)


MAGICS = sorted(
    name
    for magics in (DDTMagics, DebugMagics, DoctorMagics, LiveMagics)
    for name in magics.magics["line"]
)


@pytest.mark.parametrize("magic", MAGICS)
def test_every_magic_has_help(fake: Notebook, magic: str) -> None:
    shown = fake.shown(f"%{magic} -h")
    assert shown.startswith("%%ddt " if magic == "ddt" else f"%{magic} ")
    assert "print this text" in shown


def test_the_views_are_listed_where_none_is_named(fake: Notebook) -> None:
    shown = fake.shown("%ddt_show")
    assert all(view in shown for view in VIEWS)
    assert "NAME" not in shown


def test_start_status_stop(fake: Notebook) -> None:
    assert "3 ranks · gloo" in repr(fake.run("%ddt_start -n 3  # three ranks"))
    with pytest.raises(UsageError, match=r"3 ranks is running; %ddt_restart renews it, %ddt_stop"):
        fake.run("%ddt_start -n 2")
    with pytest.raises(UsageError, match="is not the folder of a recorded job"):
        fake.run("%ddt_replay no-such-folder")  # before it asks to end the session
    assert "4000  ready" in repr(fake.run("%ddt_status"))
    anew = repr(fake.run("%ddt_restart"))
    assert "3 ranks" in anew
    assert "all their variables are gone" in anew
    assert repr(fake.run("%ddt_stop")) == "stopped: 3 ranks ended"


def test_the_start_of_many_ranks_is_announced(
    fake: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def note(_: object, text: str) -> Any:
        said.append(text)
        return nullcontext()

    monkeypatch.setattr(module, "live_line", note)
    monkeypatch.setattr(module.launcher, "is_warm", lambda _: True)
    fake.run("%ddt_start -n 4")
    fake.run("%ddt_stop")
    assert not said
    fake.run("%ddt_start -n 64")
    assert said == ["starting 64 ranks …"]


def test_options_reach_the_session(fake: Notebook) -> None:
    fake.run(
        "%ddt_start 4 -t 20 --hang-after 1.5 --memory 512M --backend gloo --no-group "
        "--framework tensorflow"
    )
    assert session().world_size == 4
    assert session().settings == {
        "backend": "gloo",
        "device": None,
        "timeout": 20.0,
        "hang_after": 1.5,
        "seed": None,
        "memory": "512M",
        "group": False,
        "simulate": None,
        "framework": "tensorflow",
        "hosts": None,
    }


def test_simulated_gpus_take_no_default_device(fake: Notebook) -> None:
    fake.run("%config DDT.device = 'cpu'")
    fake.run("%ddt_start --simulate cuda:2")
    assert (session().settings["simulate"], session().settings["device"]) == ("cuda:2", None)


def test_config_sets_the_defaults_and_the_running_session(fake: Notebook) -> None:
    fake.run("%config DDT.timeout = 20")
    fake.run("%config DDT.ranks = 3")
    fake.run("%ddt_start")
    assert (session().world_size, session().timeout) == (3, 20.0)
    fake.run("%config DDT.timeout = 30")
    assert session().timeout == 30.0


def test_a_cell_runs_with_the_line_numbers_of_the_notebook(fake: Notebook) -> None:
    fake.run("%ddt_start -n 4")
    report = fake.run("%%ddt -r 0,2-3 -t 5 -o run\nx = '{rank}'\n")
    assert isinstance(report, DisplayedReport)
    assert report.ok
    (run,) = session().runs
    assert run == {
        "source": "x = '{rank}'\n",
        "number": 2,
        "first_line": 2,
        "ranks": (0, 2, 3),
        "timeout": 5.0,
        "freeze": False,
    }
    assert fake.names["run"] is session().last_run


@pytest.mark.parametrize(
    ("above", "line"),
    [("", 2), ("\n\n", 4), ("%%time\n", 3), ("\n%%capture --no-stderr\n", 4)],
)
def test_lines_are_counted_from_the_top_of_the_cell(fake: Notebook, above: str, line: int) -> None:
    fake.run("%ddt_start -n 2")
    fake.run(f"{above}%%ddt\nx = 1\ny = 1\n")
    assert session().runs[-1]["first_line"] == line


def test_a_cell_that_the_history_does_not_know_begins_below_its_magic(fake: Notebook) -> None:
    fake.run("%ddt_start -n 2")
    fake.run("\n\n%%ddt\nx = 1\n")
    fake.shell.run_cell("%%ddt\nz = 1\n", store_history=False)
    assert session().runs[-1]["first_line"] == 2


def test_output_is_labelled(fake: Notebook) -> None:
    fake.run("%ddt_start -n 2")
    assert fake.shown("%%ddt\nprint('hello')").startswith("[rank 0] hello\n")


def test_a_failed_cell_shows_its_diagnosis_and_raises_once(
    fake: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.run("%ddt_start -n 2")
    session().fails = True
    shown = fake.shown("%%ddt -o run\ncheck()")
    assert "note rank 1 was replaced by a fresh one; it lost model" in shown
    assert shown.count("----> 2 check()") == 1
    assert "rank 1 raised ValueError at cell[2] line 2: bad batch" in shown
    assert "ddt_notebook/magics" not in shown
    assert fake.names["run"] is session().last_run
    monkeypatch.setattr(module, "diagnose", lambda snapshot: Report(ok=False))
    with pytest.raises(CellFailed, match="failed after") as raised:
        fake.run("%%ddt\ncheck()")
    assert raised.value.report.snapshot is not None


@pytest.mark.parametrize("above", ["# my cell\n", "import time\n\n"])
@pytest.mark.parametrize("magic", ["ddt -r 0", "ddt_debug", "ddt_lint"])
def test_a_cell_magic_below_another_line_says_where_it_belongs(
    fake: Notebook, above: str, magic: str
) -> None:
    name = magic.partition(" ")[0]
    with pytest.raises(UsageError, match=f"^%%{name} must be the first line of its cell"):
        fake.run(f"{above}%%{magic}\nx = 1")
    assert fake.run("1 + 1") == 2


@pytest.mark.parametrize(
    ("cell", "similar"),
    [
        ("%ddt_strat -n 2", "%ddt_start"),
        ("%%ddt_dbug\nx = 1", "%%ddt_debug"),
        ("%ddt_zebra", ""),
        ("%tiem 1", ""),
    ],
)
def test_a_misspelt_magic_names_the_one_that_is_meant(
    fake: Notebook, cell: str, similar: str
) -> None:
    shown = fake.shown(cell)
    assert "not found" in shown
    assert re.findall("a similar magic exists: (.*)", shown) == [similar] * bool(similar)


def test_the_help_shows_the_defaults(fake: Notebook) -> None:
    shown = " ".join(fake.shown("%ddt_start -h").split())
    for name, trait in DDT.class_traits(config=True).items():
        if name not in ("colour", "widgets", "device", "idle_minutes"):
            value = trait.default_value
            rendered = "none" if value is None else f"{value:g}" if name != "backend" else value
            assert f"(default {rendered}, %config DDT.{name})" in shown
    assert "(default that of %ddt_start" in " ".join(fake.shown("%ddt -h").split())


def test_debug_starts_a_session_and_repeats_its_findings(fake: Notebook) -> None:
    assert "put %%ddt_debug on top of a cell" in repr(fake.run("%ddt_debug"))
    first = fake.run("%%ddt_debug -n 3\nx = 1")
    assert session().world_size == 3
    assert session().runs[0]["trace"] is True
    report = repr(fake.run("%ddt_debug")).partition("\n\n")[0]
    assert repr(first).startswith(report)
    with pytest.raises(UsageError, match=r"has 3 ranks; %ddt_stop ends it"):
        fake.run("%%ddt_debug -n 2\nx = 1")


def test_push_and_pull(fake: Notebook) -> None:
    fake.run("%ddt_start -n 2")
    fake.run("alpha, beta = 1, 2")
    assert (
        repr(fake.run("%ddt_push alpha beta"))
        == "pushed alpha (80 B), beta (80 B) to ranks 0 and 1"
    )
    assert repr(fake.run("%ddt_pull beta -r 1 --as gamma")) == "gamma = beta of rank 1 (int)"
    assert fake.names["gamma"] == 2
    with pytest.raises(UsageError, match=r"no variable 'alhpa'; did you mean alpha"):
        fake.run("%ddt_push alhpa")
    with pytest.raises(UsageError, match=r"ddt_pull: rank 0: no variable 'delta'"):
        fake.run("%ddt_pull delta")
    with pytest.raises(UsageError, match="write one, such as 2"):
        fake.run("%ddt_pull alpha -r 0-1")


def test_show_stacks(fake: Notebook) -> None:
    fake.run("%ddt_start -n 2")
    with pytest.raises(UsageError, match="nothing has run yet"):
        fake.run("%ddt_show stacks")
    fake.run("%%ddt\nx = 1")
    assert "ranks 0 and 1: finished the cell" in repr(fake.run("%ddt_show stacks"))


def test_explain(fake: Notebook) -> None:
    assert repr(fake.run("%ddt_explain d.2.1")).startswith("hang D.2.1 · training & evaluation")


@pytest.mark.parametrize("magic", ["ddt_explain", "ddt_debug"])
@pytest.mark.parametrize(
    "text",
    [
        "WorkNCCL(SeqNum=158, OpType=ALLREDUCE ran",
        "it's stuck in an all-reduce",
        "CUDA out of memory --local-rank=0",
    ],
)
def test_an_error_is_pasted_behind_a_magic_as_it_is(fake: Notebook, magic: str, text: str) -> None:
    shown = repr(fake.run(f"%{magic} {text}"))
    assert "hang" in shown or "out-of-memory" in shown or "memory issue" in shown


def test_an_explained_name_may_be_followed_by_a_comment(fake: Notebook) -> None:
    assert repr(fake.run("%ddt_explain D.2.1  # hang")).startswith("hang D.2.1")


def test_a_log_below_explain_is_diagnosed(fake: Notebook) -> None:
    log = "\n".join(f"[rank{step % 2}] step {step // 2} (loss 1.0" for step in range(200))
    shown = repr(fake.run(f"%%ddt_explain\n{log}\n[rank0]: StopIteration\n"))
    assert shown.startswith("iteration failure C.6")
    with pytest.raises(UsageError, match="paste a traceback or a log below %%ddt_explain"):
        fake.run("%%ddt_explain\n  \n")
    with pytest.raises(UsageError, match="words are for %ddt_explain"):
        fake.run("%%ddt_explain D.2.1\nStopIteration")


def test_a_semicolon_silences_the_view(fake: Notebook) -> None:
    assert fake.shown("%ddt_start -n 2;").strip() == ""


def test_unloading_stops_the_session_and_removes_every_name(fake: Notebook) -> None:
    fake.run("%ddt_start -n 2")
    running = session()
    unload_ipython_extension(fake.shell)
    assert running.stopped
    assert "ddt_start" not in fake.shell.magics_manager.magics["line"]
    assert "DDT" not in fake.shown("%config")


def test_a_script_and_its_arguments(fake: Notebook) -> None:
    fake.run("%ddt_start -n 2 --seed 7")
    assert session().settings["seed"] == 7
    for cell in (
        "%ddt -t 9 --script train.py --lr 0.1 -h",
        "%%ddt -t 9 --script train.py --lr\n0.1 -h  # as torchrun",
        "%ddt_debug -t 9 --script train.py --lr 0.1 -h",
    ):
        fake.run(cell)
        ran = session().runs[-1]
        assert (ran["script"], ran["timeout"]) == (["train.py", "--lr", "0.1", "-h"], 9.0)
    for cell, says in (
        ("%ddt --script", "needs a file"),
        ("%ddt -r 0 --script train.py", "leave out -r"),
        ("%%ddt --keep\npass", "--keep is for a script"),
    ):
        with pytest.raises(UsageError, match=says):
            fake.run(cell)
