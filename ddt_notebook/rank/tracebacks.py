"""Exceptions and stacks of this process as plain data."""

from __future__ import annotations

import importlib.util
import itertools
import linecache
import os
import re
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from ..model import Position, RankError
from ..model.user_code import is_user_code, users_line
from . import bounded_text
from .bounded_text import TextMaker, cut, within
from .user_signals import left_out

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
#: Where Python raised in a callback of C++: pybind11 adds it to the text of the exception that it
#: passes on (pytypes.h, format_value_and_trace).
_AT = re.compile(r"\n\nAt:\n((?:  .+\(\d+\): .+\n?)+)")
_LEVEL = re.compile(r"  (.+)\((\d+)\): (.+)")
#: A Python function that raised inside of a graph of TensorFlow: the type and text of its
#: exception, and its traceback (py_func.cc). Before these, a pipeline names its step.
_IN_GRAPH = re.compile(
    r"(?:^|: )(\w+): (.*(?:\n.*)*?)\nTraceback \(most recent call last\):\n((?:.*\n)*?)\1: ",
    re.MULTILINE,
)
#: What TensorFlow writes above the message of an operation that failed in a graph.
_ABOVE = re.compile(
    r"^Graph execution error:\n\nDetected at node .*\n"
    r"(?:<stack traces unavailable>\n|(?:  .*\n|\n)*)"
)
#: And of a step of a pipeline.
_OF_STEP = re.compile(
    r"^Error in user-defined function passed to \S+ transformation with iterator: \S+: "
)
_GRAPH_LEVEL = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
#: What raised while AutoGraph made a graph: where, and the type and text of the exception.
_MAKING_GRAPH = re.compile(r"^in user code:\n\n((?:    .*\n)+)\n    ([\w.]+): ([\s\S]*)")
_MADE_LEVEL = re.compile(r'^    File "(.+)", line (\d+), in (.+?)(?:  \*+)?$', re.MULTILINE)
#: Functions that find the user's line of what failed where the traceback does not lead, given an
#: exception and its text. A framework adds one that executes graphs.
FAILED_AT: list[Callable[[BaseException, str], Position | None]] = []
#: Functions that tell the user's line that made a loader; the probe of loaders adds one.
MADE_AT: list[Callable[[object], Position | None]] = []
_IPYTHON = importlib.util.find_spec("IPython")
#: Frames in these folders are left out of stacks: those of this package, and IPython's magics.
BETWEEN = tuple(str(Path(file).parent) for file in (__file__, _IPYTHON and _IPYTHON.origin) if file)
_OWN = f"{Path(__file__).parents[1]}{os.sep}"
_MAX_FRAMES = 40
#: Levels of a traceback that are walked, and how many of the last ones may hold the loader with
#: which a library works: it asks the batch sampler, which asks a sampler, which asks a data set.
_MOST_WALKED, _NEAR = 1_000, 4
#: Lines of the user's code outside of these that are kept, too; the outermost ones.
_MOST_OUTER = 20
_MAX_TEXT = 20_000
_MAX_PRINTED = 4_000
#: Of a deeper traceback, its first and its last levels are formatted, this many of each.
_MAX_LEVELS = 20
#: Of a longer chain of exceptions, the last ones are formatted.
_MAX_CHAIN = 8
#: Of a group of more exceptions, only the group is formatted.
_MAX_GROUP = 40


def position(file: str, line: int, function: str, *, code: bool = True) -> Position:
    """A `Position` with its source line, unless it is to have no ``code``."""
    text = linecache.getline(file, line).strip() if code else ""
    return Position(file=file, line=line, function=function, code=text[:200])


def describe_error(
    error: BaseException, traceback_text: str, texts: TextMaker | None = None
) -> RankError:
    """An exception as plain data; ``texts`` bounds how long its own text may take."""
    level = error.__traceback__
    frames = within(
        bounded_text.TRACEBACK_LIMIT_S, lambda: _frames(level), lambda: _frames(level, code=False)
    )
    if isinstance(error, SyntaxError) and is_user_code(error.filename or ""):
        users = (frame for frame in frames if is_user_code(frame.file))
        frames = (*users, position(error.filename or "", error.lineno or 1, "<module>"))
    text = (texts or TextMaker()).text(error)
    if at := _AT.search(text):
        frames = _frames_of_callback(at[1]) or frames
        text = text[: at.start()]
    kind = type(error).__name__
    if of := _IN_GRAPH.search(text) if hasattr(error, "experimental_payloads") else None:
        levels = [(file, int(line), name) for file, line, name in _GRAPH_LEVEL.findall(of[3])]
        if any(is_user_code(file) for file, *_ in levels):
            kind, text, frames = of[1], of[2], _positions(levels)
    elif (failed := _failed_at(error, text)) is not None:
        frames = (*frames, position(failed.file, failed.line, failed.function))
    if hasattr(error, "experimental_payloads"):
        text = _OF_STEP.sub("", _ABOVE.sub("", text))
    if of := _MAKING_GRAPH.match(text):
        kind, text = of[2].rpartition(".")[2], textwrap.dedent(f"    {of[3]}").strip()
        levels = [(file, int(line), name) for file, line, name in _MADE_LEVEL.findall(of[1])]
        calls = [at for at, frame in enumerate(frames, 1) if is_user_code(frame.file)]
        frames = (*frames[: calls[-1] if calls else 0], *_positions(levels))
    message = _ANSI.sub("", text + _printed_by_command(error) + _loaded_from(error))
    return RankError(
        type=kind,
        message=message if len(message) <= _MAX_TEXT else message[:_MAX_TEXT] + " …",
        traceback=_ANSI.sub("", traceback_text)[-_MAX_TEXT:],
        where=users_line(frames),
        frames=frames,
        missing_name=_missing_name(error),
        made=_made(level),
    )


def _made(level: TracebackType | None) -> Position | None:
    """The line that made the loader with which a library worked when it raised."""
    frames = [frame for frame, _ in itertools.islice(traceback.walk_tb(level), _MOST_WALKED)]
    for frame in reversed(frames[-_NEAR:]):
        if is_user_code(frame.f_code.co_filename) or not MADE_AT:
            return None
        found = set()
        for one in frame.f_locals.values():
            with left_out():
                found |= {find(one) for find in MADE_AT}
        if found := found - {None}:
            return found.pop() if len(found) == 1 else None
    return None


def _failed_at(error: BaseException, text: str) -> Position | None:
    for find in FAILED_AT:
        with left_out():
            if (found := find(error, text)) is not None:
                return found
    return None


def hide_own_frames(error: BaseException) -> None:
    """Take the frames of this package out of an exception, and out of those that it followed."""
    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain and len(seen) < _MAX_FRAMES:
        one = chain.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        levels = []
        level = one.__traceback__
        while level is not None:
            levels.append(level)
            level = level.tb_next
        shown: TracebackType | None = None
        for level in reversed(levels):
            if not level.tb_frame.f_code.co_filename.startswith(_OWN):
                shown = TracebackType(shown, level.tb_frame, level.tb_lasti, level.tb_lineno)
        one.__traceback__ = shown
        chain += [one.__cause__, one.__context__]


def chain_of(error: BaseException) -> list[BaseException]:
    """An exception and those that came before it, latest first, as Python shows them."""
    found: list[BaseException] = []
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        found.append(following)
        context = None if following.__suppress_context__ else following.__context__
        following = following.__cause__ or context
    return found


def is_large(chain: list[BaseException], level: TracebackType | None) -> bool:
    """Whether a traceback is too deep, or a chain too long, to be formatted with context."""
    deep = 2 * _MAX_LEVELS + 1
    levels = [level, *(one.__traceback__ for one in chain[1 : _MAX_CHAIN + 1])]
    return (
        len(chain) > _MAX_CHAIN
        or any(map(_is_large_group, chain))
        or any(
            sum(1 for _ in itertools.islice(traceback.walk_tb(one), deep)) == deep for one in levels
        )
    )


def _is_large_group(error: BaseException) -> bool:
    """Whether an exception stands for more others than anybody reads."""
    found = [error]
    for one in found:
        if isinstance(one, BaseExceptionGroup):
            found += one.exceptions[:_MAX_GROUP]
        if len(found) > _MAX_GROUP:
            return True
    return False


def format_folded(chain: list[BaseException], level: TracebackType | None, texts: TextMaker) -> str:
    """A deep traceback or a long chain as Python would print it, shortened.

    Repeated lines are folded, as Python does. Of other deep tracebacks the middle is left out.

    Parameters
    ----------
    chain
        The result of `chain_of`.
    level
        The first level of the latest exception that is to be shown.
    texts
        Bounds how long the texts of the exceptions may take.
    """
    parts = []
    for number, error in enumerate(chain[:_MAX_CHAIN]):
        summary = _summary(error.__traceback__ if number else level)
        text = cut(texts.text(error), _MAX_PRINTED)
        parts.append(
            f"Traceback (most recent call last):\n{summary}{type(error).__name__}: {text}\n"
        )
        if number + 1 < len(chain):
            is_cause = error.__cause__ is chain[number + 1]
            parts.append(_IS_CAUSE if is_cause else _DURING_HANDLING)
    if len(chain) > _MAX_CHAIN:
        parts.append(f"[{len(chain) - _MAX_CHAIN} earlier exceptions are left out]\n")
    return "".join(reversed(parts))


_IS_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_DURING_HANDLING = "\nDuring handling of the above exception, another exception occurred:\n\n"


def _summary(level: TracebackType | None) -> str:
    """The lines of a traceback; repeated ones are folded, and the middle of a deep one left out."""
    folded: list[tuple[tuple[str, int, str], int]] = []
    for frame, line in traceback.walk_tb(level):
        key = (frame.f_code.co_filename, line, frame.f_code.co_name)
        if key[0].startswith(BETWEEN):
            continue
        if folded and folded[-1][0] == key:
            folded[-1] = key, folded[-1][1] + 1
        else:
            folded.append((key, 1))
    left_out = len(folded) - 2 * _MAX_LEVELS
    if left_out <= 0:
        return "".join(_lines(*one) for one in folded)
    first = "".join(_lines(*one) for one in folded[:_MAX_LEVELS])
    last = "".join(_lines(*one) for one in folded[-_MAX_LEVELS:])
    return f"{first}  [{left_out} more levels are left out]\n{last}"


def _lines(key: tuple[str, int, str], times: int) -> str:
    file, line, function = key
    code = linecache.getline(file, line).strip()
    shown = f"  File {file!r}, line {line}, in {function}\n" + (f"    {code}\n" if code else "")
    more = f"  [Previous line repeated {times - 1} more times]\n" if times > 1 else ""
    return shown + more


def _missing_name(error: BaseException) -> str | None:
    """The name that a NameError reports as not defined, None if there is none.

    Python also notes the name of a variable of an enclosing function that has no value yet. That
    one is defined.
    """
    if type(error) is not NameError:
        return None
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return None if frames and error.name in frames[-1].f_code.co_freevars else error.name


def _printed_by_command(error: BaseException) -> str:
    """The captured output of a command that failed; the exception's text does not contain it."""
    if not isinstance(error, subprocess.CalledProcessError):
        return ""
    printed = error.stderr or error.output or ""
    text = printed.decode(errors="replace") if isinstance(printed, bytes) else str(printed)
    return f"\n{text.strip()[-_MAX_PRINTED:]}" if text.strip() else ""


def _loaded_from(error: BaseException) -> str:
    """The file that Python imported as the package, if the error says it is not a package."""
    if not isinstance(error, ModuleNotFoundError) or "not a package" not in str(error):
        return ""
    package = (error.name or "").rpartition(".")[0]
    file = getattr(sys.modules.get(package), "__file__", None)
    return f"\n{package!r} was loaded from {file}" if file else ""


def _frames(level: TracebackType | None, *, code: bool = True) -> tuple[Position, ...]:
    found = []
    while level is not None:
        of = level.tb_frame.f_code
        found.append((of.co_filename, level.tb_lineno, of.co_name))
        level = level.tb_next
    return _positions(found, code=code)


def _frames_of_callback(listed: str) -> tuple[Position, ...]:
    """The frames that pybind11 lists, innermost first; none if none of them is the user's."""
    levels = [(file, int(line), name) for file, line, name in _LEVEL.findall(listed)]
    return _positions(levels[::-1]) if any(is_user_code(file) for file, *_ in levels) else ()


def _positions(frames: list[tuple[str, int, str]], *, code: bool = True) -> tuple[Position, ...]:
    """The user's first frame and those below it, without those of wrappers and magics."""
    users = (at for at, (file, _, _) in enumerate(frames) if is_user_code(file))
    below = [frame for frame in frames[next(users, 0) :] if not frame[0].startswith(BETWEEN)]
    # the line of the user's loop may be far outside, with a library in between
    outer = [frame for frame in below[:-_MAX_FRAMES] if is_user_code(frame[0])][:_MOST_OUTER]
    return tuple(position(*frame, code=code) for frame in (*outer, *below[-_MAX_FRAMES:]))


def current_stack(thread: int) -> tuple[Position, ...]:
    """Stack of a thread of this process, outermost first."""
    frame = sys._current_frames().get(thread)
    found = []
    while frame is not None:
        found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return _positions(found[::-1])
