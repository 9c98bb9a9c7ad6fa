"""Exceptions and stacks of this process as plain data."""

from __future__ import annotations

import importlib.util
import linecache
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path
from types import TracebackType

from ..model import Position, RankError
from ..model.user_code import is_user_code, users_line

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_IPYTHON = importlib.util.find_spec("IPython")
#: Frames in these folders are left out of stacks: those of this package, and IPython's magics.
BETWEEN = tuple(str(Path(file).parent) for file in (__file__, _IPYTHON and _IPYTHON.origin) if file)
_OWN = f"{Path(__file__).parents[1]}{os.sep}"
_MAX_FRAMES = 40
_MAX_TEXT = 20_000
_MAX_PRINTED = 4_000


def position(file: str, line: int, function: str) -> Position:
    """A `Position` with its source line."""
    code = linecache.getline(file, line).strip()
    return Position(file=file, line=line, function=function, code=code[:200])


def describe_error(error: BaseException, traceback_text: str) -> RankError:
    """An exception as plain data."""
    frames = _frames(error.__traceback__)
    if isinstance(error, SyntaxError) and is_user_code(error.filename or ""):
        users = (frame for frame in frames if is_user_code(frame.file))
        frames = (*users, position(error.filename or "", error.lineno or 1, "<module>"))
    message = _ANSI.sub("", str(error) + _printed_by_command(error) + _loaded_from(error))
    return RankError(
        type=type(error).__name__,
        message=message if len(message) <= _MAX_TEXT else message[:_MAX_TEXT] + " …",
        traceback=_ANSI.sub("", traceback_text)[-_MAX_TEXT:],
        where=users_line(frames),
        frames=frames,
        missing_name=_missing_name(error),
    )


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


def _frames(level: TracebackType | None) -> tuple[Position, ...]:
    found = []
    while level is not None:
        code = level.tb_frame.f_code
        found.append((code.co_filename, level.tb_lineno, code.co_name))
        level = level.tb_next
    return _positions(found)


def _positions(frames: list[tuple[str, int, str]]) -> tuple[Position, ...]:
    """The user's first frame and those below it, without those of wrappers and magics."""
    users = (at for at, (file, _, _) in enumerate(frames) if is_user_code(file))
    below = [frame for frame in frames[next(users, 0) :] if not frame[0].startswith(BETWEEN)]
    return tuple(position(*frame) for frame in below[-_MAX_FRAMES:])


def current_stack(thread: int) -> tuple[Position, ...]:
    """Stack of a thread of this process, outermost first."""
    frame = sys._current_frames().get(thread)
    found = []
    while frame is not None:
        found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return _positions(found[::-1])
