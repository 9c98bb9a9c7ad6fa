"""The public functions that work on runs, snapshots, texts and codes of the taxonomy."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .diagnosis import diagnose as _diagnose
from .runs import RunLike, held_by_ranks, observe_next_run, snapshot_of, view_of
from .views.registry import VIEWS
from .views.report import DisplayedReport, show

if TYPE_CHECKING:
    from .faults import FaultCard
    from .jobs.replay import Replayed
    from .views.comparison import ComparisonView, SingleRankView
    from .views.estimate import EstimateView
    from .views.explain import ExplanationView, Page
    from .views.lint import ForeseenView
    from .views.replay import ReplayView
    from .views.run_view import RunView
    from .views.taxonomy import TaxonomyView

#: A text of more lines is a log or a traceback. The examples of the catalogue have up to three.
_LINES_OF_A_MESSAGE = 3


def diagnose(run: RunLike) -> DisplayedReport:
    """Report what went wrong in a run, cause first.

    Parameters
    ----------
    run
        The result of `Session.run`, a `Snapshot`, or a session, which stands for its last run.

    Returns
    -------
    Report
        ``findings`` is empty for a healthy run. A notebook and a terminal can display it. After
        a hang without a known reason, a note says that the session's next run observes which way
        each rank goes.

    Raises
    ------
    ValueError
        If the session has not run anything yet.
    """
    snapshot = snapshot_of(run)
    report = _diagnose(snapshot)
    return show(report, snapshot, observe_next_run(run, report))


def diagnose_text(text: str) -> DisplayedReport:
    """Report which symptoms a pasted traceback, a log or a description shows.

    Parameters
    ----------
    text
        Text of any framework, such as PyTorch, Horovod, TensorFlow, Keras, DeepSpeed, Megatron-LM
        or Colossal-AI.

    Returns
    -------
    Report
        Symptoms as findings, the most likely first; no findings if nothing is recognised.

    Raises
    ------
    TypeError
        If it is not a string.
    """
    _refuse_other_than_text("diagnose_text", text)
    from .diagnosis.text import diagnose_text as _diagnose_text

    return show(_diagnose_text(text), None)


def diagnose_dumps(path: str | Path) -> DisplayedReport:
    """Report what the files that a real job left behind show together.

    Parameters
    ----------
    path
        The folder of a job that ``ddt-notebook run`` recorded, whether it runs or has ended. Or
        one folder with any of these: the Flight Recorder's dumps, one file for each rank, as
        ``TORCH_FR_DUMP_TEMP_FILE`` names them (``…/nccl_trace_rank_0``), pickled or as JSON; logs
        of all ranks or of each one, such as torchrun's ``--log-dir``; stacks of ranks as py-spy or
        faulthandler print them (``rank3.txt``). Or one log, or one timeline of Horovod
        (``HOROVOD_TIMELINE``). Of large dumps, the snapshot holds the
        last collectives that all members of a group completed alike, and everything after the
        first difference.

    Returns
    -------
    Report
        Views such as `collectives` accept its ``snapshot``. Its ``notes`` say which files were
        used.

    Raises
    ------
    FormatError
        If there is nothing that can be used, or there are two dumps of one rank.
    OSError
        If the path cannot be read.
    """
    from .diagnosis.text import diagnose_log, job_findings
    from .diagnosis.text import diagnose_text as _diagnose_text
    from .dumps.collection import collect, is_log
    from .dumps.horovod_timeline import is_timeline, snapshot_of_timeline
    from .jobs.launches import is_recorded
    from .jobs.recorded_job import snapshot_of_folder
    from .jobs.recorder_folder import without_ranks
    from .model.codec import FormatError

    if is_recorded(Path(path)):
        recorded = snapshot_of_folder(Path(path))
        return show(_diagnose(recorded), recorded)
    if is_timeline(Path(path)):
        of_horovod = snapshot_of_timeline(Path(path))
        return show(_diagnose(of_horovod), of_horovod)
    if is_log(Path(path)):
        return show(diagnose_log(path))
    if Path(path).is_file() and is_recorded(Path(path).parent):
        raise FormatError(f"{path} is one file of a recorded job: name its folder")
    jobs = sorted(filter(is_recorded, Path(path).glob("*")), key=lambda one: one.stat().st_mtime)
    others = f" (the newest of {len(jobs)})" if len(jobs) > 1 else ""
    below = f"; there is a recorded job below it: {jobs[-1]}{others}" if jobs else ""
    unseen = without_ranks(Path(path))
    try:
        found = collect(path)
    except FormatError as error:
        raise FormatError(unseen or f"{error}{below}") from None
    if found.snapshot is None and below:
        raise FormatError(f"{path} holds logs only{below}")
    if found.snapshot is not None:
        report = replace(_diagnose(found.snapshot), log=found.log or None)
        # a process aborts itself after something that the logs may show
        explained = any(finding.cause != "native-abort" for finding in report.findings)
        said = _diagnose_text(found.text, found.log) if found.text and not explained else None
        if said is None or not said.findings:
            of_logs, hints = job_findings.merged(report.findings, found.log)
            said = replace(report, findings=of_logs, hints=[*hints, *report.hints])
        return show(said, found.snapshot)
    notes = (*found.notes, unseen) if unseen else found.notes
    return show(_diagnose_text(found.text, found.log), None, notes)


def attach(*targets: int | str, between_s: float = 2.0) -> DisplayedReport:
    """Report what can be seen of a running job.

    For a job that ``ddt-notebook run`` records, name the folder. For a job that was started without
    ddt_notebook, name its processes or its store; two observations show whether it goes on. Nothing
    in the job is changed.

    Parameters
    ----------
    targets
        The folder of a recorded job. Or process ids of the launcher (such as torchrun) or of ranks
        on this machine, whose stacks py-spy shows; or ``"HOST:PORT"`` of the job's store
        (``MASTER_ADDR:MASTER_PORT``), through which the ranks' debug servers are found.
    between_s
        Seconds between the observations: more than a step of a healthy job takes.

    Returns
    -------
    Report
        Views such as `collectives` accept its ``snapshot``; its ``notes`` say what was used, what
        is missing and how to have it next time.

    Raises
    ------
    CannotAttach
        If there is no such job, or nothing of it can be seen.
    """
    from .jobs.attach import look_at
    from .jobs.recorded_job import snapshot_of_folder

    if len(targets) == 1 and Path(str(targets[0])).is_dir():
        recorded = snapshot_of_folder(Path(str(targets[0])))
        return show(_diagnose(recorded), recorded)
    snapshot = look_at(targets, between_s).snapshot()
    return show(_diagnose(snapshot), snapshot)


def replay(folder: str | Path, rank: int | None = None) -> ReplayView:
    """Run one rank of a recorded job again, without the others.

    The job must have been recorded with ``ddt-notebook run --record-inputs RANK``. Its script runs
    from the start in a session of one rank, and what the rank received from others comes from the
    record. So run only scripts and records that you trust.

    Parameters
    ----------
    folder
        The folder of the job.
    rank
        The rank; default: the only one whose inputs were kept.

    Returns
    -------
    ReplayView
        Whether the replay went as in the job, and else at which call and line it departs. Its
        ``session`` has the variables of the script, and those of the functions in which an
        exception began; ``session.stop()`` ends it.

    Raises
    ------
    CannotReplay
        If the folder holds no inputs, or they do not fit this torch, Python or script.
    SessionError
        If the rank cannot be started.
    """
    from .jobs.replay import replay as _replay

    return replay_view(_replay(Path(folder), rank))


def replay_view(replayed: Replayed) -> ReplayView:
    """What is shown of a replay."""
    from .views.replay import ReplayView

    return ReplayView(
        replayed.outcome,
        replayed.agreement,
        error=replayed.error,
        recorded_error=replayed.recorded_error,
        script=replayed.script,
        changed=replayed.changed,
        run=replayed.run,
        session=replayed.session,
    )


def lint(source: str | os.PathLike[str], *, name: str = "", first_line: int = 1) -> ForeseenView:
    """Report the faults that the source shows, without running it.

    Parameters
    ----------
    source
        Python, with IPython's magics if it is a cell; or a `pathlib.Path` of a file. Of a file,
        the modules of its project that it imports are read, too, up to 32 of them.
    name
        Name of the source in findings; if empty, ``"cell"`` or the name of the file.
    first_line
        Number of the first line.

    Returns
    -------
    sequence of Finding
        In the order of the lines, hints (``"possible"``) at the end; empty if nothing is found.
        The first evidence of each finding names its line.

    Raises
    ------
    OSError, UnicodeDecodeError
        If the file cannot be read.
    TypeError
        If the source is neither a string nor a path.
    """
    from .diagnosis.lint import lint as _lint
    from .views.lint import ForeseenView

    file = Path(source).expanduser() if isinstance(source, os.PathLike) else None
    text = file.read_text(encoding="utf-8") if file is not None else str(source)
    if file is None:
        _refuse_other_than_text("lint", source)
    name = name or (file.name if file is not None else "cell")
    found = _lint(text, name=name, first_line=first_line, file=file)
    return ForeseenView(found, "this cell" if name == "cell" else name)


def explain(query: str = "") -> Page | DisplayedReport:
    """Return a page about a symptom or a fault, or a list if several match.

    Parameters
    ----------
    query
        A code of the taxonomy such as ``"D.2.1"``, the id of a fault card such as
        ``"collective-under-rank-condition"``, an error message, or words such as
        ``"address already in use"``. If empty, the page lists all codes. A log or a traceback of
        more than a few lines is diagnosed as by `diagnose_text`.

    Raises
    ------
    UnknownSymptom
        If there is no such code, or nothing matches the words; the text names similar ones.
    TypeError
        If it is not a string.
    """
    _refuse_other_than_text("explain", query)
    from .views.explain import page

    long = len(query.strip().splitlines()) > _LINES_OF_A_MESSAGE
    return diagnose_text(query) if long else page(query)


def taxonomy(code: str | None = None) -> TaxonomyView | ExplanationView:
    """The study's stages and symptoms with their counts, or one symptom with what repaired it.

    Parameters
    ----------
    code
        A code such as ``"D.2.1"``; default: all.

    Raises
    ------
    UnknownSymptom
        If there is no such code; the text names similar codes.
    """
    from .views.explain import symptom_page
    from .views.taxonomy import TaxonomyView

    return TaxonomyView() if code is None else symptom_page(code)


def fault_cards() -> list[FaultCard]:
    """All fault cards, by stage and id; each describes a fault, with a broken and a fixed cell."""
    from .faults import cards

    return cards()


def compare(before: RunLike, after: RunLike) -> ComparisonView:
    """Report whether the symptom of a run is gone in a later one.

    Parameters
    ----------
    before, after
        Runs, snapshots, or a session, which stands for its last run.

    Raises
    ------
    ValueError
        If the session has not run anything yet.
    """
    from .diagnosis.compare_runs import compare
    from .views.comparison import ComparisonView

    first, second = diagnose(before), diagnose(after)
    runs = snapshot_of(before), snapshot_of(after)
    return ComparisonView(compare(first, second, runs), first, second)


def single_rank(
    run: RunLike,
    source: str | None = None,
    *,
    limit: float | None = None,
) -> SingleRankView:
    """Run the cell again on one rank in a separate session, and compare.

    Distributed and ordinary faults have most symptoms in common; this comparison distinguishes
    them. The session's earlier cells run first.

    Parameters
    ----------
    run
        A run on several ranks, a snapshot of one, or a session, which stands for its last run.
    source
        A cell to run in place of the one that ran.
    limit
        Seconds that the cell may take, and also that the earlier cells may take together.

    Raises
    ------
    ValueError
        If the session has not run anything yet.
    SessionError
        If the rank cannot be started.
    """
    from .diagnosis.compare_runs import compare_alone
    from .host.rerun import run_alone
    from .views.comparison import SingleRankView

    snapshot = snapshot_of(run)
    alone = run_alone(snapshot, source, limit)
    found = compare_alone(snapshot, _diagnose(snapshot), alone.snapshot)
    return SingleRankView(found, snapshot.world_size)


def export_report(run: RunLike, path: str | Path) -> Path:
    """Write an HTML page with the diagnosis and every view that has recorded data.

    The page needs no network, and follows the reader's choice of light or dark. Where scripts run,
    it also has an interactive timeline: zoom, search, filters, and marks in the other views.

    Parameters
    ----------
    run
        A run, a snapshot, or a session, which stands for its last run.
    path
        Where to write the page; an existing file is replaced.

    Returns
    -------
    Path
        The path of the page.

    Raises
    ------
    ValueError
        If the session has not run anything yet.
    OSError
        If the file cannot be written.
    """
    from .views import exported_page

    target = Path(path)
    target.write_text(exported_page.page(snapshot_of(run)), encoding="utf-8")
    return target


def estimate(
    model: RunLike | float | str,
    ranks: int | None = None,
    *,
    optimizer: str = "AdamW",
    dtype: str = "float32",
    activations: int | str = 0,
    limit: int | str | None = None,
    mixed: bool | None = None,
) -> EstimateView:
    """Estimate whether a model fits the ranks, and what sharding or a smaller batch would change.

    Parameters
    ----------
    model
        A run in which the model was trained, or the number of its parameters, such as ``7e9`` or
        ``"7B"``. A run with ``trace=True`` also measured activations.
    ranks
        The number of ranks; default: as many as the run had.
    optimizer, dtype, activations
        With a number of parameters: the optimizer's class, the type of parameters and gradients,
        and the bytes that backward keeps, such as ``"2G"``. They depend on the batch and often need
        most of the memory; without them, only the model itself is compared with the limit.
    limit
        Memory for each rank, such as ``"16G"`` (16 times 2**30 bytes, 17.2 GB); default: the limit
        in the run.
    mixed
        With a number of parameters: whether the optimizer updates float32 copies of them and has a
        float32 state, as in training with mixed precision; default: if ``dtype`` is smaller.

    Raises
    ------
    ValueError
        If no model was observed, or the optimizer or the type is not known.
    SessionError
        If an amount of memory cannot be parsed.
    """
    from .host.limits import parse_bytes
    from .model import estimate as computed
    from .model.meetings import item_bytes
    from .views.estimate import EstimateView

    each = parse_bytes(limit) if limit is not None else None
    written = limit.strip() if isinstance(limit, str) else ""
    if ranks is not None and ranks < 1:
        raise ValueError(f"expected at least one rank, but got {ranks}")
    if isinstance(model, (int, float, str)):
        model = computed.parameter_count(model)
        size = item_bytes(dtype)
        if size is None:
            raise ValueError(f"expected a type of numbers such as float32, but got {dtype!r}")
        kept = parse_bytes(activations) if activations else 0
        mixed = size < computed.FULL_PRECISION if mixed is None else mixed
        given = (model, size, optimizer, kept, mixed)
        source = f"{model:,} parameters in {'mixed ' if mixed else ''}{dtype}, {optimizer}"
        return EstimateView(
            computed.needs_of(*given),
            ranks or 1,
            others=computed.computed_precision(*given),
            limit=each,
            shared=False,
            source=source,
            written=written,
        )
    snapshot, _ = held_by_ranks(VIEWS["memory"], model)
    if not snapshot.memory:
        raise ValueError("no memory was recorded in this run")
    largest = max(snapshot.memory, key=lambda m: m.known_bytes)
    known = largest.limits
    own = each or known.get("GPU") or known.get("rank")
    needs = computed.measured_needs(largest)
    return EstimateView(
        needs,
        ranks or len(snapshot.memory),
        others=computed.measured_precision(largest, needs),
        limit=own or known.get("cgroup", known.get("machine")),
        shared=own is None,
        source=f"measured in {snapshot.cell.title}",
        written=written,
    )


def view_function(name: str) -> Callable[..., RunView]:
    """The public function of a view, such as ``ddt.memory``, with its documentation.

    Parameters
    ----------
    name
        Name of the view in `views.registry`.
    """
    view = VIEWS[name]
    if view.asks_ranks:

        def show_view(run: RunLike, *names: str) -> RunView:
            return view_of(name, run, names)

    else:

        def show_view(run: RunLike) -> RunView:  # type: ignore[misc]
            return view_of(name, run)

    view_class = view.load()
    show_view.__name__ = show_view.__qualname__ = name
    show_view.__annotations__["return"] = view_class.__name__
    frame = inspect.getdoc(view_class.to_frame) or ""
    about = _RANKS_DOC if view.asks_ranks else _RUN_DOC
    show_view.__doc__ = about.format(
        view=view, view_class=view_class, frame=frame[:1].lower() + frame[1:]
    )
    return show_view


_RANKS_DOC = """Show {view.shows}.

Parameters
----------
run
    A run or a snapshot shows what was recorded at the end of the cell. The ranks of a session are
    asked now, and so are those of a run that did not record it, if they have run nothing after it.
names
    Variables to show, such as ``"model"`` or ``"trainer.model"``; default: all.

Returns
-------
{view_class.__name__}
    Shows itself in a notebook and in a terminal.

Raises
------
ValueError
    If nothing was recorded, and the ranks cannot be asked any more.
SessionError
    If the ranks are busy, or none of them has a variable of that name.

Notes
-----
``to_frame()`` gives {frame}
"""
_RUN_DOC = """Show {view.shows}.

Parameters
----------
run
    A run, a snapshot, or a session (its last run is meant).

Returns
-------
{view_class.__name__}
    Shows itself in a notebook and in a terminal.

Raises
------
ValueError
    If the session has not run anything yet.

Notes
-----
``to_frame()`` gives {frame}
"""


def _refuse_other_than_text(function: str, given: object) -> None:
    if not isinstance(given, str):
        raise TypeError(f"{function} takes a text, not {type(given).__name__}")
