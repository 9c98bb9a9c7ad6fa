"""The IPython shell inside a rank: the same magics, display and tracebacks as in the notebook."""

from __future__ import annotations

import argparse
import gc
import runpy
import sys
import traceback
import warnings
from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import Any

from IPython.core.compilerop import CachingCompiler
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.formatters import PlainTextFormatter
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Any as AnyTrait
from traitlets.config import Config

from ..model import Position, RankError
from . import bounded_text
from .bounded_text import TextMaker, within
from .tracebacks import BETWEEN, chain_of, describe_error, format_folded, is_large


class CellCompiler(CachingCompiler):
    """Names cells ``cell[14]`` in tracebacks, stacks and PyTorch's Flight Recorder."""

    number = 0

    def __init__(self) -> None:
        super().__init__()
        # otherwise an open bracket is "incomplete input" at the last line instead of at its own
        self.reset_compiler_flags()

    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
        """The file name that the cell's code objects carry."""
        return f"cell[{self.number}]"

    def format_code_name(self, name: str) -> tuple[str, str] | None:
        """The label of a cell in tracebacks."""
        return ("Cell", name) if name.startswith("cell[") else None


class _Publisher(DisplayPublisher):
    send = AnyTrait()

    def publish(
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        *,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **_: Any,
    ) -> None:
        """Send rich output to the notebook."""
        if self.send:
            self.send("display", data, metadata or {}, transient or {}, update)

    def clear_output(self, wait: bool = False) -> None:
        """Clear this rank's output in the notebook."""
        if self.send:
            self.send("clear", {"wait": wait}, {}, {}, False)


class _ResultHook(DisplayHook):
    def write_output_prompt(self) -> None:
        """Print nothing: results have the rank's label instead of a prompt."""

    def write_format_data(self, format_dict: dict[str, Any], md_dict: Any = None) -> None:
        """Send the value of the cell's last line to the notebook."""
        send = self.shell.display_pub.send
        if send:
            send("result", format_dict, md_dict or {}, {}, False)


class _ResultText(PlainTextFormatter):
    def __call__(self, obj: Any) -> Any:
        """The text of a result, made in a bounded time."""

        def repr(subject: Any) -> Any:  # noqa: A001  (a note on a slow one says which it was)
            return super(_ResultText, self).__call__(subject)

        return TextMaker().text(obj, repr)


class _Told:
    """Stands for an exception whose text has been made."""

    def __init__(self, text: str, notes: object) -> None:
        self._text = text
        self.__notes__ = notes

    def __str__(self) -> str:
        return self._text


class RankShell(InteractiveShell):
    """Runs cells, and keeps tracebacks instead of printing them."""

    #: Makes the texts of the cell's exceptions.
    _texts = TextMaker()
    #: The user's line at which the last script ended itself without an error.
    exited_at: Position | None = None

    def init_display_formatter(self) -> None:
        """Bound how long the text of a result takes."""
        super().init_display_formatter()
        formatter = _ResultText(parent=self.display_formatter)
        self.display_formatter.formatters["text/plain"] = formatter

    def init_traceback_handlers(self, custom_exceptions: Any) -> None:
        """Bound how long the texts of exceptions take in tracebacks."""
        super().init_traceback_handlers(custom_exceptions)
        formatter = self.InteractiveTB
        format_exception = formatter.format_exception

        def bounded(kind: Any, error: Any) -> Any:
            told = _Told(self._texts.text(error), self._texts.notes_of(error))
            return format_exception(kind, told)

        formatter.format_exception = bounded  # type: ignore[method-assign]

    def ask_exit(self) -> None:
        """End the cell for ``quit`` and ``exit``, as Python does without IPython."""
        raise SystemExit

    def init_history(self) -> None:
        """Disable the history: it would open a database in each rank."""
        super().init_history()
        self.history_manager.enabled = False

    on_raise: Callable[[], None] | None = None

    def init_prompts(self) -> None:
        """Set no ``sys.ps1``: libraries refuse to start ranks from an interactive interpreter."""

    def safe_execfile(self, fname: Any, *where: Any, **options: Any) -> None:
        """Run a file for ``%run`` and raise what it raises; IPython would only print it."""
        try:
            super().safe_execfile(fname, *where, **options | {"raise_exceptions": True})
        except SystemExit:
            if not options.get("exit_ignore"):
                raise

    def safe_run_module(self, mod_name: Any, where: dict[str, Any]) -> None:
        """Run a module for ``%run -m``, as `safe_execfile` runs a file."""
        try:
            where.update(runpy.run_module(str(mod_name), run_name="__main__", alter_sys=True))
        except SystemExit as exit_:
            if exit_.code:
                raise

    def showtraceback(self, exc_tuple: Any = None, *args: Any, **kwargs: Any) -> None:
        """Report that an exception left the cell, then format it, which may take a while."""
        if self.on_raise is not None:
            self.on_raise()
        kind, error, level = exc_tuple or sys.exc_info()
        shown_level = _without_magics(level)
        shown: Any = (kind, error, shown_level)

        def show() -> None:
            chain = chain_of(error) if error is not None else []
            if is_large(chain, shown_level):
                self._showtraceback(kind, error, [format_folded(chain, shown_level, self._texts)])
            else:
                super(RankShell, self).showtraceback(shown, *args, **kwargs)

        def show_without_lines() -> None:
            text = f"{kind.__name__}: {self._texts.text(error)}"
            why = "[the traceback is left out, because its lines could not be read in time]"
            self._showtraceback(kind, error, [text, why])

        within(bounded_text.TRACEBACK_LIMIT_S, show, show_without_lines)

    def forget_errors(self) -> None:
        """Drop the exceptions kept for a debugger: their frames keep stores and sockets alive.

        Frames are cleared before they are dropped. A DataLoader's iterator that only the garbage
        collector finds would take seconds to end its workers.
        """
        result = self.last_execution_result
        kept = [getattr(sys, "last_value", None), getattr(self.InteractiveTB, "evalue", None)]
        if result is not None:
            kept += [result.error_in_exec, result.error_before_exec]
        seen: set[int] = set()
        for error in kept:
            while error is not None and id(error) not in seen:
                seen.add(id(error))
                traceback.clear_frames(error.__traceback__)
                for frame, _ in traceback.walk_tb(error.__traceback__):
                    _ = frame.f_locals  # updates the copy that formatting made
                error = error.__cause__ or error.__context__
        self._texts = TextMaker()
        sys.last_type = sys.last_value = sys.last_traceback = None
        if sys.version_info >= (3, 12):
            sys.last_exc = None
        self.last_execution_result = None
        for formatter in (self.InteractiveTB, self.SyntaxTB):
            for name in ("etype", "value", "evalue", "tb"):
                if hasattr(formatter, name):
                    setattr(formatter, name, None)
        gc.collect()

    def _showtraceback(self, etype: Any, evalue: Any, stb: Any) -> None:
        self.last_traceback_text = "" if etype is SystemExit else "\n".join(stb)

    def transform_cell(self, raw_cell: str) -> str:
        """Transform a cell as IPython does, but keep leading blank lines, and so the line numbers.

        Blank lines at the end are dropped; otherwise Python would report an unfinished block there.
        """
        body: str = super().transform_cell(raw_cell).rstrip() + "\n"
        stripped = raw_cell.lstrip()
        blank = raw_cell[: len(raw_cell) - len(stripped)].count("\n")
        return "\n" * (blank + self.first_line - 1) + body

    def run(self, source: str, number: int, first_line: int) -> RankError | None:
        """Run one cell and return the exception that left it.

        Parameters
        ----------
        source
            Text of the cell.
        number
            The number in ``cell[14]``.
        first_line
            Line number of its first line.
        """
        self.first_line = first_line
        self.compile.number = number
        self.last_traceback_text = ""
        self._texts = TextMaker()
        outcome = self.run_cell(source, store_history=False)
        error = outcome.error_before_exec or outcome.error_in_exec
        if error is not None and _is_end_of_script(error):
            self.exited_at = describe_error(error, "").where
            return None
        if error is None:
            return None
        if (handled := _why_it_exits(error)) is not None:
            error = handled
            self.showtraceback((type(error), error, error.__traceback__), tb_offset=0)
        return describe_error(error, self.last_traceback_text, self._texts)

    def run_script(self, source: str, main: ModuleType) -> RankError | None:
        """Run a script in its module and return the exception that left it.

        ``sys.exit()`` with status 0 or none ends it as its last line would; ``exited_at`` is then
        the user's line that led there.
        """
        self.last_traceback_text = ""
        self.exited_at = None
        self._texts = TextMaker()
        try:
            exec(compile(source, main.__file__ or "", "exec", dont_inherit=True), main.__dict__)  # noqa: S102
        except BaseException as error:  # noqa: BLE001  (what ends a script ends no rank)
            if isinstance(error, SystemExit) and not error.code:
                self.exited_at = describe_error(error, "").where
                return None
            level = error.__traceback__.tb_next if error.__traceback__ is not None else None
            if (handled := _why_it_exits(error)) is not None:
                error, level = handled, handled.__traceback__
            self.showtraceback((type(error), error, level), tb_offset=0)
            return describe_error(error, self.last_traceback_text, self._texts)
        return None


def make_shell() -> RankShell:
    """The shell of this process. It starts no thread, so it can be created before a fork."""
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.compiler_class = CellCompiler
    config.InteractiveShell.xmode = "Context"
    shell = RankShell.instance(
        config=config, display_pub_class=_Publisher, displayhook_class=_ResultHook
    )
    shell.compiler_class = CellCompiler
    shell.compile = CellCompiler()
    shell.first_line = 1
    warnings.filterwarnings("ignore", message="To exit: use")  # users do not exit from a rank
    shell.last_traceback_text = ""
    return shell


def _is_end_of_script(error: BaseException | None) -> bool:
    """Whether a script that ``runpy`` ran ended with ``sys.exit()`` or ``sys.exit(0)``."""
    frames = traceback.walk_tb(error.__traceback__) if isinstance(error, SystemExit) else ()
    ended = any(frame.f_code.co_filename == "<frozen runpy>" for frame, _ in frames)
    return ended and isinstance(error, SystemExit) and not error.code


def _why_it_exits(error: BaseException) -> BaseException | None:
    """The exception that a program handled as it ended itself, as programs of hydra do.

    A parser of arguments ends the script, too, but the handler is the parser's own.
    """
    exits = isinstance(error, SystemExit) and not error.__suppress_context__
    parsing = isinstance(error.__context__, argparse.ArgumentError)
    return error.__context__ if exits and not parsing else None


def _without_magics(level: TracebackType | None) -> TracebackType | None:
    """A traceback without IPython's frames between those of the user, as of ``%run``."""
    levels: list[TracebackType] = []
    while level is not None:
        if not levels or not level.tb_frame.f_code.co_filename.startswith(BETWEEN):
            levels.append(level)
        level = level.tb_next
    for one in reversed(levels):
        level = TracebackType(level, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return level
