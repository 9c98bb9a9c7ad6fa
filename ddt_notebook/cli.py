"""The command ``ddt-notebook``, which offers the Python API in a shell.

Its exit status is 0 if nothing was found, 1 if something was found, and 2 if the command failed.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from . import __version__
from .agent_command import add_agent
from .api import attach, diagnose_dumps, lint, replay_view
from .argument_types import seconds, whole_number
from .classroom.grade_command import add_grade
from .demo import DemoError, run_demo, use_colour
from .diagnosis import diagnose
from .diagnosis.text import diagnose_log
from .jobs.replay import replay
from .model import DdtError
from .model.codec import FormatError
from .model.snapshot import Snapshot
from .output_encoding import never_fail, print_json
from .preflight.doctor import compare_reports, doctor
from .run_command import add_run
from .script_command import LinePrinter, add_script
from .symptoms import UnknownSymptom
from .symptoms.lessons import copy_notebooks, lesson_file, notebooks
from .views import safe
from .views.explain import page
from .views.report import DisplayedReport, show


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    never_fail(sys.stdout, sys.stderr)
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (UnknownSymptom, DdtError, DemoError) as error:
        message = str(error)
    except BrokenPipeError:  # the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    except KeyboardInterrupt:
        message = "interrupted"
    print(f"ddt-notebook: {safe.clean(message)}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ddt-notebook", description="A debugging assistant for distributed PyTorch training."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND")
    parser.set_defaults(run=lambda _: _commands(parser))

    demo = commands.add_parser("demo", help="run the quick start and print what it finds")
    demo.add_argument(
        "--html",
        type=Path,
        default=Path("demo.html"),
        metavar="PATH",
        help="where to write the executed notebook (default: %(default)s)",
    )
    demo.set_defaults(run=_demo)

    saved = commands.add_parser("diagnose", help="diagnose a saved run, a log or a text")
    saved.add_argument(
        "path",
        metavar="FILE|FOLDER|-",
        help="a saved run (.ddt.json), a log or any text; - reads stdin; a folder is analyzed",
    )
    saved.add_argument("--json", action="store_true", help="print the report as JSON")
    saved.set_defaults(run=_diagnose)

    dumps = commands.add_parser(
        "analyze",
        help="diagnose what a job left behind: Flight Recorder dumps, logs, stacks",
        description="Read a folder with any of these and report one diagnosis: Flight Recorder "
        "dumps (a job writes them with TORCH_FR_BUFFER_SIZE and TORCH_FR_DUMP_TEMP_FILE set), logs "
        "such as torchrun's --log-dir, and stacks that py-spy or faulthandler printed "
        "(rank3.txt).",
    )
    dumps.add_argument("path", type=Path, metavar="FOLDER", help="the files of one job")
    dumps.add_argument("--json", action="store_true", help="print the report as JSON")
    dumps.set_defaults(run=_analyze)

    attached = commands.add_parser(
        "attach",
        help="diagnose a running job",
        description="For a job that ddt-notebook run records, name its folder. For another job, "
        "name a process or its store: the stacks of the ranks (by py-spy) and their Flight "
        "Recorders (if the script called torch.distributed.debug.start_debug_server()) are read "
        "twice. The job is not changed.",
    )
    attached.add_argument(
        "targets",
        nargs="+",
        metavar="FOLDER|PID|HOST:PORT",
        help="process id of the launcher or of a rank, or MASTER_ADDR:MASTER_PORT of the job",
    )
    attached.add_argument(
        "--between",
        type=seconds,
        default=2.0,
        metavar="SECONDS",
        help="time between the two observations, longer than a step of the job (default: 2)",
    )
    attached.add_argument(
        "--save", type=Path, metavar="RUN.ddt.json", help="also save what was seen"
    )
    attached.add_argument("--json", action="store_true", help="print the report as JSON")
    attached.set_defaults(run=_attach)

    replayed = commands.add_parser(
        "replay",
        help="run one rank of a recorded job again, without the others",
        description="Run the script of a job that ddt-notebook run --record-inputs RANK has "
        "recorded again as that rank alone, from its start; the record gives it what it received. "
        "The exit status is 0 if the replay went as the job did.",
    )
    replayed.add_argument("path", type=Path, metavar="FOLDER", help="the folder of the job")
    replayed.add_argument("-r", "--rank", type=int, metavar="RANK", help="the rank, if several")
    replayed.add_argument("--json", action="store_true", help="print the outcome as JSON")
    replayed.set_defaults(run=_replay)

    explain = commands.add_parser("explain", help="explain a symptom or a fault")
    explain.add_argument(
        "query",
        nargs="*",
        metavar="CODE|CARD|WORDS",
        help="such as D.2.1, a fault card, or words of a message (default: all codes)",
    )
    explain.add_argument("--json", action="store_true", help="print the explanation as JSON")
    explain.set_defaults(run=_explain)

    linted = commands.add_parser("lint", help="find faults in a file without running it")
    linted.add_argument("path", metavar="FILE.py|-", help="- reads the code from stdin")
    linted.add_argument("--json", action="store_true", help="print the findings as JSON")
    linted.set_defaults(run=_lint)

    lessons = commands.add_parser(
        "lessons", help="list the notebooks, copy them to a folder, or print the path of a lesson"
    )
    which = lessons.add_mutually_exclusive_group()
    which.add_argument(
        "code", nargs="?", metavar="CODE", help="print the path of this symptom's lesson"
    )
    which.add_argument(
        "--copy", type=Path, metavar="FOLDER", help="copy them to this folder; existing files stay"
    )
    lessons.add_argument(
        "--executed",
        action="store_true",
        help="with --copy: keep the outputs below each lesson's question, to read without running",
    )
    lessons.set_defaults(run=_lessons)

    checked = commands.add_parser("doctor", help="check this machine before a job runs on it")
    checked.add_argument(
        "--hosts",
        nargs="+",
        type=Path,
        metavar="REPORT.json",
        help="compare reports of several machines, which --json prints",
    )
    checked.add_argument(
        "-n",
        dest="ranks",
        type=whole_number,
        metavar="N",
        help="ranks it has to hold (default: 4)",
    )
    checked.add_argument("--quick", action="store_true", help="do not form groups")
    checked.add_argument("--json", action="store_true", help="print the report as JSON")
    checked.set_defaults(run=_doctor)
    add_run(commands)
    add_agent(commands)
    add_script(commands)
    add_grade(commands)
    return parser


def _commands(parser: argparse.ArgumentParser) -> int:
    """Show what there is to somebody who named no command."""
    parser.print_help(sys.stderr)
    return 2


def _demo(options: argparse.Namespace) -> int:
    html = options.html.resolve()
    if not html.parent.is_dir():
        raise DemoError(f"the folder {html.parent} does not exist")
    run_demo(html)
    print(f"the executed notebook: {html}")
    return 0


def _diagnose(options: argparse.Namespace) -> int:
    if options.path == "-":
        report = show(diagnose_log(sys.stdin.buffer))
    elif options.path.endswith(".json"):
        report = _of_saved(options.path)
    elif Path(options.path).is_dir():
        report = diagnose_dumps(options.path)
    else:
        report = show(diagnose_log(options.path))
    return _report(report, as_json=options.json)


def _of_saved(path: str) -> DisplayedReport:
    snapshot = Snapshot.load(path)
    return show(diagnose(snapshot), snapshot)


def _analyze(options: argparse.Namespace) -> int:
    if options.path.name.endswith(".ddt.json"):
        return _report(_of_saved(str(options.path)), as_json=options.json)
    return _report(diagnose_dumps(options.path), as_json=options.json)


def _attach(options: argparse.Namespace) -> int:
    report = attach(*options.targets, between_s=options.between)
    if options.save is not None and report.snapshot is not None:
        report.snapshot.save(options.save)
    return _report(report, as_json=options.json)


def _replay(options: argparse.Namespace) -> int:
    replayed = replay(options.path, options.rank, listener=lambda _: LinePrinter())
    view = replay_view(replayed)
    replayed.session.stop()
    if options.json:
        print_json(view.to_json())
    else:
        print(view.to_text())
    return 0 if view.ok else 1


def _report(report: DisplayedReport, *, as_json: bool) -> int:
    if as_json:
        print_json(report.to_json())
    else:
        print(report.to_terminal(colour=use_colour(sys.stdout)))
    return 0 if report.ok else 1


def _explain(options: argparse.Namespace) -> int:
    found = page(" ".join(options.query))
    if options.json:
        print_json(found.to_json())
    else:
        print(found.to_text())
    return 0


def _lint(options: argparse.Namespace) -> int:
    if options.path == "-":
        found = lint(sys.stdin.read(), name="input")
    else:
        path = Path(options.path)
        try:
            found = lint(path)
        except UnicodeDecodeError as error:
            raise FormatError(f"{path} is not a text file: {error}") from error
    if options.json:
        print_json(found.to_json())
    else:
        print(found.to_text())
    return 1 if found.findings else 0


def _lessons(options: argparse.Namespace) -> int:
    if options.code:
        print(lesson_file(options.code))
        return 0
    if options.copy is None:
        titles = notebooks()
        width = max(map(len, titles))
        print("\n".join(f"{path:<{width}}  {title}" for path, title in titles.items()))
        return 0
    copied, kept = copy_notebooks(options.copy, executed=options.executed)
    left = f"; {len(kept)} existed already and stay" if kept else ""
    print(f"copied to {options.copy}: {copied} files{left}")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    if options.hosts:
        report = compare_reports(options.hosts)
    else:
        say = functools.partial(print, file=sys.stderr) if sys.stderr.isatty() else _say_nothing
        report = doctor(options.ranks, form_groups=not options.quick, progress=say)
    if options.json:
        print_json(report.to_json())
    else:
        print(report.to_text())
    return 0 if report.ok else 1


def _say_nothing(_: str) -> None:
    pass
