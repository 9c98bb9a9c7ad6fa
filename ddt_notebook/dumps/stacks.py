"""Reads where a rank's main thread was from what py-spy, faulthandler and gdb-like tools print."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from ..model import Position

#: faulthandler: ``File "/job/train.py", line 12 in step``, innermost first.
_FAULT_FRAME = re.compile(r'^  File "([^"\n]+)", line (\d+) in (\S+)', re.MULTILINE)
_FAULT_HEAD = re.compile(
    r"^(?:Current thread|Thread) 0x[0-9a-f]+(?: \[[^\]\n]*\])? \(most recent call first\):$",
    re.MULTILINE,
)
#: py-spy: ``    load_batch (train.py:8)``, innermost first, below
#: ``Thread 71 (idle): "MainThread"``.
_SPY_HEAD = re.compile(
    r'^(?:Thread \d+|Thread 0x[0-9A-Fa-f]+) \([^)\n]*\)(?:: "([^"\n]*)")?', re.MULTILINE
)
_SPY_FRAME = re.compile(r"^ {4}(\S.*) \((.+):(\d+)\)$", re.MULTILINE)
_SPY_PROCESS = re.compile(r"^Process (\d+): ", re.MULTILINE)
_MAIN = "MainThread"
#: The most frames that are kept of a stack.
_DEEPEST = 200

Stack = tuple[Position, ...]


def read(text: str) -> Stack:
    """The Python stack of the main thread, outermost first; empty if the text holds none."""
    if text.lstrip().startswith("["):
        return _of_py_spy_json(text)
    if _FAULT_HEAD.search(text):
        return _of_faulthandler(text)
    return _of_py_spy(text)


def process(text: str) -> int | None:
    """The id of the process whose stack py-spy printed, None if the text does not say it."""
    found = _SPY_PROCESS.search(text)
    return int(found[1]) if found is not None else None


def _of_faulthandler(text: str) -> Stack:
    # the main thread comes last, unless a signal arrived in it
    parts = _FAULT_HEAD.split(text)[1:]
    heads = _FAULT_HEAD.findall(text)
    current = [p for h, p in zip(heads, parts, strict=True) if h.startswith("Current")]
    chosen = parts[-1]
    if current and not _FAULT_FRAME.search(chosen):
        chosen = current[0]
    block = chosen.split("\n\n", 1)[0]
    return _outermost_first([(f, int(line), name) for f, line, name in _FAULT_FRAME.findall(block)])


def _of_py_spy(text: str) -> Stack:
    heads = list(_SPY_HEAD.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    for head, end in zip(heads, ends, strict=False):
        if head[1] == _MAIN or len(heads) == 1:
            frames = _SPY_FRAME.findall(text[head.end() : end])
            return _outermost_first([(file, int(line), name) for name, file, line in frames])
    return ()


def _of_py_spy_json(text: str) -> Stack:
    try:
        threads = json.loads(text)
        main = next(
            (one for one in threads if one.get("thread_name") == _MAIN),
            threads[0] if threads else {},
        )
        return _outermost_first([_frame(frame) for frame in main.get("frames", ())])
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return ()


def _frame(plain: Any) -> tuple[str, int, str]:
    return str(plain["filename"]), int(plain["line"]), str(plain["name"])


def _outermost_first(frames: list[tuple[str, int, str]]) -> Stack:
    return tuple(
        Position(file=_whole(file), line=line, function=function.rpartition(".")[2] or function)
        for file, line, function in reversed(frames[:_DEEPEST])
    )


def _whole(file: str) -> str:
    """A path from which it shows whose file it is: py-spy shortens those of packages."""
    first = file.partition("/")[0].removesuffix(".py")
    shortened = first in sys.stdlib_module_names or first == "torch"
    return f"/site-packages/{file}" if shortened else file
