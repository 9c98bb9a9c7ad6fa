"""``%ddt_debug``: the assistant."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import line_cell_magic, magics_class

from .. import api
from ..diagnosis.text import diagnose_log
from ..host import active
from ..host.result import RunResult
from ..host.session import Session
from ..views import words
from ..views.bundle import Displayable, Message
from ..views.pages import page
from ..views.report import show
from . import options as opt
from .config import DDT
from .correcting import correct
from .guide import Guide
from .place import first_line
from .running import RunningMagics, one_line

_FIRST_STEPS = (
    "nothing has run on ranks yet: put %%ddt_debug on top of a cell to run it on 2 ranks and see\n"
    "what goes wrong, or start a session with %ddt_start -n 4 and put %%ddt on top of its cells;\n"
    "for a fault that happened elsewhere: %ddt_debug and the text of the error, or the questions"
)
_EARLIER = "this was run before the ranks were stopped; their variables are gone"
_LONGEST_PATH = 400
#: A symptom by its code.
_CODE = re.compile(r"[A-D](\.\d+){1,2}", re.IGNORECASE)


@magics_class
class DebugMagics(RunningMagics):
    """Findings, questions, and what to do about them."""

    def __init__(self, shell: InteractiveShell, config: DDT) -> None:
        super().__init__(shell, config)
        self._guide = Guide(shell, config)

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
        free_text="about",
    )
    def ddt_debug(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Say what is wrong: with the last run (%ddt_debug), or with this cell (%%ddt_debug).

        Above a cell it starts a session if there is none and runs the cell with every probe on.
        """
        session = active.get()
        if args.about:
            if cell is not None:
                raise UsageError("ddt_debug: words are for %ddt_debug, on a line of its own")
            return self._about(args.about)
        if cell is None:
            return self._debug_last(session, args)
        if args.single or args.fix:
            raise UsageError("ddt_debug: --single and --fix are about the last run: %ddt_debug")
        if session is None:
            session = self._start(args)
        elif args.world_size not in (None, session.world_size):
            raise UsageError(
                f"ddt_debug: the session has {words.count(session.world_size, 'rank')}; "
                f"%ddt_stop ends it, then -n {args.world_size} starts another"
            )
        before = self._last_run(session, "--again") if args.again else None
        self._foresee(cell)
        return self._run(session, cell, args, overview=True, before=before, trace=True)

    def _debug_last(self, session: Session | None, args: argparse.Namespace) -> Displayable:
        """What the line magic does: report, run again, run on one rank, or correct."""
        asked = [name for name in ("again", "single", "fix") if getattr(args, name)]
        if len(asked) > 1:
            raise UsageError(f"ddt_debug: one at a time: {' or '.join(f'--{n}' for n in asked)}")
        mine = {"help", *asked} | ({"timeout"} if args.again or args.single else set())
        mine |= {"out"} if args.again else set()
        others = [name for name, value in vars(args).items() if value and name not in mine]
        if others:
            raise UsageError("ddt_debug: options belong to %%ddt_debug, on top of a cell")
        if not asked:
            return self._report_or_ask(session)
        if args.again:
            session = self._session()
        if args.fix and (given := self._guide.repair()) is not None:
            return given
        last = self._last_run(session, f"--{asked[0]}")
        if args.single:
            with one_line("ddt_debug"):
                return api.single_rank(last, limit=args.timeout)
        if args.fix:
            return correct(self._shell, self._report(last))
        assert session is not None  # --again is what is left
        args.ranks = tuple(r.rank for r in last.snapshot.ranks if r.state != "idle")
        cell = last.snapshot.cell
        return self._run(
            session,
            cell.source,
            args,
            before=last,
            number=cell.number,
            begins_at=cell.first_line,
            trace=bool(last.snapshot.timeline),
        )

    def _report_or_ask(self, session: Session | None) -> Displayable:
        """The findings of the last run; where there are none, questions below what it tells."""
        run, notes = session.last_run if session is not None else None, []
        if run is None:
            run, notes = active.last_run(), [_EARLIER]
        if run is None:
            return self._guide.open(Message(_FIRST_STEPS))
        report = self._report(run, notes)
        if self._guide.has_buttons and (report.findings or report.hints):
            return self._guide.discuss(report, run)
        return report if report.findings else self._guide.open(report)

    @staticmethod
    def _last_run(session: Session | None, option: str) -> RunResult:
        run = session.last_run if session is not None else active.last_run()
        if run is None:
            raise UsageError(f"ddt_debug: nothing has run yet, so that {option} has nothing to see")
        return run

    @line_cell_magic
    @opt.options(opt.PATH, silenced=False)
    def ddt_lint(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Say what the code alone lets foresee: of this cell (%%ddt_lint), a file, or the last run.

        Nothing is run.
        """
        if cell is not None:
            if args.path:
                raise UsageError("ddt_lint: a file is for %ddt_lint, on a line of its own")
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
            source = path.expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"ddt_lint: {path}: {getattr(error, 'strerror', error)}") from error
        return api.lint(source, name=path.name)

    def _foresee(self, cell: str) -> None:
        """Before a cell runs: what its code alone lets foresee; nothing if that is nothing."""
        foreseen = api.lint(cell, first_line=first_line(self._shell, cell))
        if not foreseen.findings:
            return
        if getattr(self._shell, "kernel", None) is None:
            print("before it runs:", foreseen.to_text(), sep="\n")
        else:
            self._shell.display_pub.publish(foreseen._repr_mimebundle_())

    def _about(self, text: str) -> Displayable:
        """What the words after the magic ask for: an answer, a symptom, or a text to diagnose."""
        word = text.strip().lower()
        if self._guide.understands(word):
            return self._guide.say(word)
        if _CODE.fullmatch(text.strip()):
            with one_line("ddt_debug"):
                return page(text)
        path = Path(text).expanduser()
        if "\n" not in text and len(text) < _LONGEST_PATH and path.is_file():
            return show(diagnose_log(path))
        return api.diagnose_text(text)
