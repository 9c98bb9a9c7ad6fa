"""Reads a folder of whatever a job left behind: dumps, logs and stacks, as one snapshot."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ..diagnosis.text import job, stamps
from ..diagnosis.text.lines import separate
from ..formatting import count, ranks_text
from ..model import RankError, Snapshot
from ..model.codec import FormatError
from ..model.log_facts import LogFacts
from . import files, logs, stacks
from .columns import Columns
from .evidence import Ending, Evidence

_DEPTH, _MOST_FILES = 5, 20_000
_RECORDER = "ddt_notebook_recorder.py"
_HEAD_BYTES = 1 << 16
#: The text of logs that is diagnosed if nothing else explains the failure.
_MOST_TEXT = 1 << 23
#: torchrun's ``--log-dir``: ``none_k3j/attempt_0/2/stderr.log``.
_TORCHRUN = re.compile(r"attempt_(\d{1,4})/(\d{1,6})/(?:stdout|stderr|error)\.(?:log|json)$")
_RANK = re.compile(r"rank[_-]?(\d{1,6})", re.IGNORECASE)
_NUMBER = re.compile(r"(?:^|[._-])(\d{1,5})\.[a-z]+$", re.IGNORECASE)
_STACK = re.compile(
    r"^Thread \S+ \((?:idle|active)[^)\n]*\)|^(?:Current thread|Thread) 0x[0-9a-f]+ ", re.MULTILINE
)
_OTHERS = frozenset({".py", ".ipynb", ".yaml", ".yml", ".toml", ".md", ".csv", ".pt", ".npy"})
#: A stack begins within this many characters of its file.
_STACK_HEAD = 400


@dataclass(frozen=True, slots=True)
class Collection:
    """What a folder shows of a job.

    Attributes
    ----------
    snapshot
        Dumps, stacks, exceptions and ends of processes; None if there is none of them.
    text
        What the logs say, for a diagnosis of the text.
    notes
        Which files were used and which were not; they are part of the snapshot as well.
    log
        What the logs say about the job as a whole.
    """

    snapshot: Snapshot | None
    text: str
    notes: tuple[str, ...]
    log: LogFacts


def is_log(path: Path) -> bool:
    """Whether a path is a text file that is no dump by its name."""
    if not path.is_file() or files.rank_of(path) is not None or path.suffix in _OTHERS:
        return False
    head = _head(path)
    return bool(head) and b"\0" not in head


def collect(path: str | Path) -> Collection:
    """Read a folder, or one dump.

    Raises
    ------
    FormatError
        If there is nothing that can be used, there are two dumps of one rank, or one holds what
        is never in a dump.
    OSError
        If the path cannot be read.
    """
    path = Path(path)
    path.stat()  # raises if it does not exist
    found = _sorted(path) if path.is_dir() else _Files(dumps=[path], texts=[], others=[])
    dumps, notes = _dumps(path, found)
    evidence, text, used, log = _texts(path, found, dumps)
    if not dumps and not evidence.stacks and not evidence.errors and not evidence.endings:
        if not text:
            raise FormatError(files.nothing(path, notes))
        return Collection(None, text, (*used, *notes), log)
    if used or found.others:
        kinds = [f"Flight Recorders of {ranks_text(d.rank for d in dumps)}"] if dumps else []
        notes.insert(0, "used: " + ", ".join([*kinds, *used]))
    if found.others and (used or not dumps):
        notes.append(f"not used: {_listed(found.others)}")
    evidence.dumps, evidence.notes = dumps, notes
    return Collection(evidence.snapshot(), text, tuple(notes), log)


@dataclass(slots=True)
class _Files:
    """Files by what they can be."""

    dumps: list[Path]
    texts: list[Path]
    others: list[Path]


def _sorted(folder: Path) -> _Files:
    found = _Files([], [], [])
    level: int | None = None  # of the dumps: those of attempts in folders below are others
    for depth, file in _walk(folder):
        head = _head(file)
        if file.name.endswith(".ddt.json") or file.suffix in _OTHERS:
            found.others.append(file)
        elif files.rank_of(file) is not None and _like_dump(file, head):
            level = depth if level is None else level
            (found.dumps if depth == level else found.others).append(file)
        elif b"\0" in head:
            found.others.append(file)
        elif head:
            found.texts.append(file)
    return found


def _walk(folder: Path) -> Iterable[tuple[int, Path]]:
    """Files with the depth of their folder, the nearest first; a bounded number of them."""
    folders, left = [folder], _MOST_FILES
    for depth in range(_DEPTH):
        below: list[Path] = []
        for one in folders:
            try:
                with os.scandir(one) as entries:
                    listed = sorted(entries, key=lambda entry: entry.name)
            except OSError:
                if one == folder:
                    raise
                continue  # a folder below that cannot be read
            if any(entry.name == _RECORDER for entry in listed):
                continue  # what `ddt-notebook run` put there itself
            for entry in listed:
                if entry.is_dir(follow_symlinks=False):
                    below.append(one / entry.name)
                elif entry.is_file() and left:
                    left -= 1
                    yield depth, one / entry.name
        folders = below[:_MOST_FILES]


def _head(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(_HEAD_BYTES)
    except OSError:
        return b""


def _is_stack(text: str) -> bool:
    """Whether a file begins with a stack, and was not written when a signal ended the process."""
    return "Fatal Python error" not in text and bool(_STACK.search(text[:_STACK_HEAD]))


def _text_of(file: Path) -> str:
    return _head(file).decode(errors="replace")


def _like_dump(file: Path, head: bytes) -> bool:
    """Whether a file that is named like a dump can be one, and no log or stack."""
    text = b"\0" not in head and not head.startswith((b"{", b"\x80"))
    return not text or not head or "trace" in file.name


def _dumps(path: Path, found: _Files) -> tuple[list[Columns], list[str]]:
    if not path.is_dir() or (found.dumps and not found.texts):
        return files.read(path, found.dumps)
    if not found.dumps:
        return [], []
    try:
        return files.read(path, found.dumps)
    except FormatError as error:
        if len(found.dumps) > 1:
            raise
        return [], [str(error)]


def _texts(
    path: Path, found: _Files, dumps: list[Columns]
) -> tuple[Evidence, str, list[str], LogFacts]:
    """What stacks and logs show, the text of the logs, and what was used of them."""
    whole = job.Reader()
    times: dict[int, stamps.Stamp] = {}
    errors: dict[int, RankError] = {}
    endings: dict[int, Ending] = {}
    seen: dict[int, stacks.Stack] = {}
    texts: list[str] = []
    size = 0
    of_ranks: set[int] = set()
    together = 0
    for file, rank in _with_ranks(path, found.texts):
        try:
            if file.name == "error.json":
                log = _of_error_file(file, rank)
            elif rank is not None and _is_stack(_text_of(file)):
                seen[rank] = stacks.read(_text_of(file))
                continue
            else:
                log = logs.read(file, rank, whole, file.relative_to(path).as_posix())
        except OSError:
            found.others.append(file)
            continue
        if rank is None:
            together += 1
        else:
            of_ranks.add(rank)
        errors |= log.errors
        times |= log.times
        endings |= log.endings
        seen |= log.stacks
        if size < _MOST_TEXT:
            texts.append(log.text)
            size += len(log.text)
    seen = {rank: stack for rank, stack in seen.items() if stack}
    used = [f"stacks of {ranks_text(seen)}"] if seen else []
    used += [f"logs of {ranks_text(of_ranks)}"] if of_ranks else []
    used += [f"{count(together, 'log')} of several ranks"] if together else []
    facts = whole.facts()
    errors = _timed(errors, times, facts)
    return Evidence(stacks=seen, errors=errors, endings=endings), "\n".join(texts), used, facts


def _timed(
    errors: dict[int, RankError], times: dict[int, stamps.Stamp], facts: LogFacts
) -> dict[int, RankError]:
    """The errors with their times on one clock, if all of them can be compared."""
    if len({stamp.zone for stamp in times.values()}) != 1:
        return errors
    ahead = {rank: skew.ahead_s for skew in facts.skews for rank in skew.ranks}
    return {
        rank: replace(error, at_s=times[rank].seconds - ahead.get(rank, 0.0))
        if rank in times
        else error
        for rank, error in errors.items()
    }


def _with_ranks(path: Path, texts: list[Path]) -> list[tuple[Path, int | None]]:
    """Logs and stacks with the rank that wrote them; of a restarted job, of the last attempt."""
    names = {file: file.relative_to(path).as_posix() for file in texts}
    attempts = {file: match for file, name in names.items() if (match := _TORCHRUN.search(name))}
    last = max((int(match[1]) for match in attempts.values()), default=0)
    numbered = {file: match for file in texts if (match := _NUMBER.search(file.name))}
    # the numbers of ranks are small; those of jobs and processes are not
    dense = len(numbered) > 1 and max(int(m[1]) for m in numbered.values()) < 4 * len(numbered)
    result: list[tuple[Path, int | None]] = []
    for file in texts:
        match = attempts.get(file)
        if match is not None:
            if int(match[1]) == last:
                result.append((file, int(match[2])))
            continue
        named = _RANK.search(file.name) or (numbered.get(file) if dense else None)
        result.append((file, int(named[1]) if named is not None else None))
    return result


def _of_error_file(file: Path, rank: int | None) -> logs.Log:
    """The exception in the file that torchrun's ``@record`` writes."""
    try:
        plain = json.loads(_head(file))
        text = str(plain["message"]["extraInfo"]["py_callstack"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return logs.Log()
    lines = separate(enumerate(text.splitlines(), start=1))
    return logs.of_lines(lines, rank)


def _listed(others: list[Path]) -> str:
    names = ", ".join(file.name for file in others[:3])
    return names if len(others) <= 3 else f"{names} and {len(others) - 3} more"
