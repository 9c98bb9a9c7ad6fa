"""``%ddt_debug``: the assistant."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import line_cell_magic, magics_class

from .. import api
from ..assistant.assistant import WORDS, Assistant, fixed_cell_of
from ..assistant.checks import last_run
from ..assistant.panel import Panel
from ..assistant.view import FixedCellView
from ..diagnosis.text import diagnose_log
from ..host.run_result import RunResult
from ..host.session import active
from ..model import Cell
from ..views import words
from ..views.displayable import Displayable, Message
from ..views.explain import page
from ..views.report import show
from . import options as opt
from .base import RunningMagics, one_line, report_of, script_of
from .cell_position import first_line
from .config import DDT
from .output_stream import live_line

_FIRST_STEPS = (
    "nothing has run on ranks yet: put %%ddt_debug on top of a cell to run it on 2 ranks and see\n"
    "what goes wrong, or start a session with %ddt_start -n 4 and put %%ddt on top of its cells;\n"
    "for a fault that happened elsewhere: %ddt_debug with the text of the error, or the questions"
)
_EARLIER = "this ran before the ranks were stopped; their variables are gone"
_FAULTY = "`%ddt_debug --fix` is about {}, the last cell in which something was found"
_LEFT = "you left the assistant; %ddt_debug ask starts it again"
_LONGEST_PATH = 400
#: A symptom by its code.
_CODE = re.compile(r"[A-D](\.\d+){1,2}", re.IGNORECASE)
#: The first line of the user's corrected cell, which reports whether the symptom is gone, and that
#: of the example of a fault card.
_AGAIN, _EXAMPLE = "%%ddt_debug --again\n", "%%ddt_debug\n# an example, not your cell: {}\n"


@magics_class
class DebugMagics(RunningMagics):
    """The assistant, and the checks of code that has not run yet."""

    def __init__(self, shell: InteractiveShell, config: DDT) -> None:
        super().__init__(shell, config)
        self._assistant: Assistant | None = None

    @line_cell_magic
    @opt.options(
        opt.ABOUT,
        opt.WORLD_SIZE,
        opt.RANKS,
        opt.CELL_TIMEOUT,
        opt.OUT,
        opt.AGAIN,
        opt.SINGLE,
        opt.FIX,
        opt.SCRIPT,
        free_text="about",
    )
    def ddt_debug(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Say what is wrong: with the last run (%ddt_debug), or with this cell (%%ddt_debug).

        Above a cell it starts a session if there is none and runs the cell with every probe on.
        """
        session = active.get()
        if args.about:
            if cell is not None:
                raise UsageError("ddt_debug: words are for %ddt_debug, on a line by itself")
            return self._about(args.about)
        script = script_of(args, cell)
        if cell is None and not script:
            return self._debug_last(args)
        if args.single or args.fix:
            raise UsageError("ddt_debug: --single and --fix are about the last run: %ddt_debug")
        if session is None:
            session = self._start(args)
        elif args.world_size not in (None, session.world_size):
            raise UsageError(
                f"ddt_debug: the session has {words.count(session.world_size, 'rank')}; "
                f"%ddt_stop ends it, then -n {args.world_size} starts another"
            )
        before = self._before(cell) if args.again else None
        if cell is not None and not script:
            self._foresee(cell)
        return self._run(
            session, cell or "", args, script=script, overview=True, before=before, trace=True
        )

    def _before(self, cell: str | None) -> RunResult:
        """The run that a changed cell is compared with.

        It is the last one with findings, if it ran this cell or nothing was found in the last run.
        """
        last = _last_run("--again")
        changed = Cell(number=0, source=cell or "")
        faulty = active.faulty_before(changed)
        if faulty is None and not report_of(last).findings:
            faulty = active.faulty_run()
        return faulty or last

    def _debug_last(self, args: argparse.Namespace) -> Displayable:
        """Do what the line magic asks for: report, run again, run on one rank, or fix."""
        asked = [name for name in ("again", "single", "fix") if getattr(args, name)]
        if len(asked) > 1:
            raise UsageError(f"ddt_debug: one at a time: {' or '.join(f'--{n}' for n in asked)}")
        mine = {"help", *asked} | ({"timeout"} if args.again or args.single else set())
        mine |= {"out"} if args.again else set()
        if any(value for name, value in vars(args).items() if name not in mine):
            raise UsageError("ddt_debug: options belong to %%ddt_debug, on top of a cell")
        match asked:
            case ["again"]:
                return self._again(args)
            case ["single"]:
                with one_line("ddt_debug"):
                    return api.single_rank(_last_run("--single"), limit=args.timeout)
            case ["fix"]:
                return self._fix()
            case _:
                return self._report_or_ask()

    def _again(self, args: argparse.Namespace) -> Displayable:
        """Run the last cell again and compare."""
        session, last = self._session(), _last_run("--again")
        args.ranks = tuple(r.rank for r in last.snapshot.ranks if r.state != "idle")
        cell = last.snapshot.cell
        script = (cell.file, *cell.arguments) if cell.file else ()
        return self._run(
            session,
            cell.source,
            args,
            before=last,
            number=cell.number,
            begins_at=cell.first_line,
            script=script,
            trace=bool(last.snapshot.timeline),
        )

    def _fix(self) -> Displayable:
        """Put the cell without the fault into a new cell."""
        loaded, run = active.loaded, last_run()
        cell = self._assistant.fixed_cell if self._assistant is not None else None
        if loaded is not None:
            with one_line("ddt_debug"):
                cell = fixed_cell_of(api.diagnose(loaded))
        elif cell is None:
            run = _last_run("--fix")
            report, faulty = report_of(run), active.faulty_run()
            if faulty is not None and not (report.findings or report.hints):
                run, report = faulty, report_of(faulty)  # cells since then looked at variables
            with one_line("ddt_debug"):
                cell = fixed_cell_of(report)
            if cell.own and run is faulty is not last_run():
                cell = replace(cell, earlier=run.snapshot.cell.title)
        ran = loaded or (run.snapshot if run is not None else None)
        if cell.own and ran is not None and ran.cell.file:
            return FixedCellView(cell, placed=False)  # a script is corrected in its file
        head = _AGAIN if cell.own else _EXAMPLE.format(cell.change)
        self._shell.set_next_input(head + cell.source)
        return FixedCellView(cell, placed=True)

    # -- the assistant -------------------------------------------------------------------------

    def _report_or_ask(self) -> Displayable:
        """The findings of the last run; without findings, what it shows, and the questions."""
        if active.loaded is not None:
            return api.diagnose(active.loaded)
        run = last_run()
        if run is None:
            return self._show(Assistant.asking(Message(_FIRST_STEPS)))
        session = active.get()
        earlier = session is None or session.last_run is not run
        report = report_of(run, [_EARLIER] if earlier else [])
        faulty = active.faulty_run()
        if faulty is not None and not report.findings:
            report = replace(
                report, notes=(*report.notes, _FAULTY.format(faulty.snapshot.cell.title))
            )
        if self._has_buttons and (report.findings or report.hints):
            return self._show(Assistant.about(report, run))
        return report if report.findings else self._show(Assistant.asking(report))

    def _take(self, word: str) -> Displayable:
        """Take an answer or another word of the assistant."""
        if word == "ask":
            return self._show(Assistant.asking())
        if self._assistant is None:
            raise UsageError("ddt_debug: there is no question; %ddt_debug ask starts the questions")
        assistant = replace(self._assistant)  # a panel that is on the page keeps its own state
        with one_line("ddt_debug"):
            if word == "check":
                assistant.refresh()
                if assistant.offer:
                    print(f"check: {assistant.offer}")
                with live_line(self._shell, "checking …") as say:
                    assistant.take(word, say)
            else:
                assistant.take(word)
        return self._show(assistant)

    def _show(self, assistant: Assistant) -> Displayable:
        self._took_step(assistant)
        if assistant.left:
            return Message(_LEFT)
        if self._has_buttons:
            return Panel(assistant, self._shell, self._took_step)
        return assistant.view()

    def _took_step(self, assistant: Assistant) -> None:
        self._assistant = None if assistant.left else assistant

    def _about(self, text: str) -> Displayable:
        """What the words after the magic mean: a step, a symptom, or a text to diagnose."""
        steps = text.lower().split()
        if steps and all(word in ("ask", *WORDS) or word.isdecimal() for word in steps):
            if len(steps) > 1:
                raise UsageError(
                    f"ddt_debug: one at a time: %ddt_debug {steps[0]}, then %ddt_debug {steps[1]}"
                )
            return self._take(steps[0])
        if _CODE.fullmatch(text.strip()):
            with one_line("ddt_debug"):
                return page(text)
        path = Path(text).expanduser()
        if "\n" not in text and len(text) < _LONGEST_PATH and path.is_file():
            return show(diagnose_log(path))
        return api.diagnose_text(text)

    # -- before a cell runs --------------------------------------------------------------------

    @line_cell_magic
    @opt.options(opt.PATH, silenced=False)
    def ddt_lint(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Find faults in code without a run: in this cell (%%ddt_lint), a file, or the last run.

        Nothing is run.
        """
        if cell is not None:
            if args.path:
                raise UsageError("ddt_lint: a file is for %ddt_lint, on a line by itself")
            return api.lint(cell, first_line=first_line(self._shell, cell))
        if args.path:
            return self._lint_file(Path(args.path))
        session = active.get()
        if session is None or session.last_run is None:
            raise UsageError("ddt_lint: put %%ddt_lint on top of a cell, or name a file: FILE.py")
        last = session.last_run.snapshot.cell
        return api.lint(last.source, first_line=last.first_line)

    @staticmethod
    def _lint_file(path: Path) -> Displayable:
        try:
            return api.lint(path)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"ddt_lint: {path}: {getattr(error, 'strerror', error)}") from error

    def _foresee(self, cell: str) -> None:
        """Before a cell runs, show the faults in its code, if there are any."""
        foreseen = api.lint(cell, first_line=first_line(self._shell, cell))
        if not foreseen.findings:
            return
        if getattr(self._shell, "kernel", None) is None:
            print("before it runs:", foreseen.to_text(), sep="\n")
        else:
            self._shell.display_pub.publish(foreseen._repr_mimebundle_())


def _last_run(option: str) -> RunResult:
    run = last_run()
    if run is None:
        raise UsageError(f"ddt_debug: nothing has run yet, so {option} has nothing to work on")
    return run
