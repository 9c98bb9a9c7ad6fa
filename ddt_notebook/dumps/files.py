"""Finds the files that PyTorch's Flight Recorder left behind, one for each rank.

The files are not trusted. A pickled dump may contain plain data only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..model.codec import FormatError
from .columns import Columns, StrangeEntries
from .readers import read_all

#: ``nccl_trace_rank_3``, ``comm_lib_trace_rank_3``, ``rank3.json``
_NAME = re.compile(r"(?P<prefix>.*?)(?P<rank>\d{1,7})(?:\.(?:json|pkl|pickle|bin))?")


def rank_of(file: Path) -> int | None:
    """The rank whose dump a file can be by its name, None if it is not named like a dump."""
    named = _NAME.fullmatch(file.name)
    return int(named["rank"]) if named is not None else None


def read(path: Path, files: Sequence[Path]) -> tuple[list[Columns], list[str]]:
    """Read the dumps of a folder or in one file, ordered by rank; also return what is unreadable.

    Parameters
    ----------
    path
        The folder or the file that was named.
    files
        The files in it.

    Raises
    ------
    FormatError
        If there is no dump, there are two of one rank, or one holds what is never in a dump.
    """
    ranks = [(file, rank) for file in files if (rank := rank_of(file)) is not None]
    if not ranks and not path.is_dir():
        raise FormatError(
            f"expected a dump, whose name ends with the number of its rank, but got "
            f"{path.name}; `ddt-notebook diagnose` reads logs and saved runs"
        )
    dumps: dict[int, Columns] = {}
    notes = []
    for (file, _), dump in zip(ranks, read_all(ranks), strict=True):
        if isinstance(dump, StrangeEntries):
            raise FormatError(
                f"the dumps in {path} hold what the Flight Recorder does not write ({dump})"
            )
        if isinstance(dump, FormatError):
            notes.append(f"{file.name} was left out: {dump}")
            continue
        if dump.rank in dumps:
            raise FormatError(
                f"{dumps[dump.rank].file} and {file.name} are both of rank {dump.rank}: name a "
                "folder that holds the dumps of one job only"
            )
        dumps[dump.rank] = dump
    if not dumps:
        raise FormatError(nothing(path, notes))
    return [dumps[rank] for rank in sorted(dumps)], notes


def nothing(path: Path, notes: Sequence[str]) -> str:
    """The message for a folder without any dump."""
    why = f" ({notes[0]})" if notes else ""
    return (
        f"{path} holds no record of a rank and no Flight Recorder dump{why}; "
        "`ddt-notebook run` records the ranks of a job, and a job with NCCL writes dumps where "
        "TORCH_FR_DUMP_TEMP_FILE says (default ~/.cache/torch/comm_lib_trace_rank_)"
    )
