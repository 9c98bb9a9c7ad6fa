"""Reads the files that PyTorch's Flight Recorder left behind, one for each rank.

The files are not trusted. A pickled dump may contain plain data only.
"""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..model import flight
from ..model.codec import FormatError

#: ``nccl_trace_rank_3``, ``comm_lib_trace_rank_3``, ``rank3.json``
_NAME = re.compile(r"(?P<prefix>.*?)(?P<rank>\d{1,7})(?:\.(?:json|pkl|pickle|bin))?")
_MAX_BYTES = 1 << 28
_NEEDED = ("profiling_name", "process_group", "collective_seq_id")


@dataclass(frozen=True, slots=True)
class Dump:
    """The content of one rank's recorder when the dump was written.

    Attributes
    ----------
    entries
        The entries, oldest first, with torch's own names.
    dropped
        How many older entries the recorder had already overwritten.
    members
        Global ranks of each process group by name, if the dump contains them.
    """

    rank: int
    path: Path
    entries: tuple[dict[str, Any], ...]
    dropped: int
    members: dict[str, tuple[int, ...]]


def read(path: str | Path) -> tuple[list[Dump], list[str]]:
    """Read the dumps in a folder or in one file, ordered by rank; also return what is unreadable.

    Raises
    ------
    FormatError
        If there is no dump, or there are two of one rank.
    OSError
        If the path cannot be read.
    """
    path = Path(path)
    path.stat()  # raises if it does not exist
    files = sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path]
    dumps: dict[int, Dump] = {}
    notes = []
    for file in files:
        named = _NAME.fullmatch(file.name)
        if named is None:
            if file == path:
                raise FormatError(
                    f"expected a dump, whose name ends with the number of its rank, but got "
                    f"{file.name}; `ddt-notebook diagnose` reads logs and saved runs"
                )
            continue
        try:
            dump = _read(file, int(named["rank"]))
        except FormatError as error:
            notes.append(f"{file.name} was left out: {error}")
            continue
        if dump.rank in dumps:
            first = dumps[dump.rank].path.name
            raise FormatError(
                f"{first} and {file.name} are both of rank {dump.rank}: name a "
                "folder that holds the dumps of one job only"
            )
        dumps[dump.rank] = dump
    if not dumps:
        why = f" ({notes[0]})" if notes else ""
        raise FormatError(
            f"no Flight Recorder dump in {path}{why}; a job writes them with "
            "TORCH_FR_BUFFER_SIZE and TORCH_FR_DUMP_TEMP_FILE set"
        )
    return [dumps[rank] for rank in sorted(dumps)], notes


def _read(file: Path, rank: int) -> Dump:
    if file.stat().st_size > _MAX_BYTES:
        raise FormatError(f"larger than {_MAX_BYTES >> 20} MB")
    data = file.read_bytes()
    try:
        plain = json.loads(data) if data[:1] == b"{" else flight.unpickled(data)
    except (
        ValueError,
        pickle.UnpicklingError,
        EOFError,
        IndexError,
        KeyError,
        AttributeError,
        TypeError,
        MemoryError,
        OverflowError,
    ) as error:
        raise FormatError(f"not a dump ({error or type(error).__name__})") from None
    entries = plain.get("entries") if isinstance(plain, dict) else None
    if not isinstance(plain, dict) or not ("entries" in plain or "pg_config" in plain):
        raise FormatError("not a dump of the Flight Recorder")
    usable = tuple(e for e in entries or () if _is_entry(e))
    first = usable[0].get("record_id") if usable else 0
    dropped = first if isinstance(first, int) else 0
    return Dump(rank, file, usable, dropped, _members(plain.get("pg_config")))


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or any(key not in entry for key in _NEEDED):
        return False
    group = entry["process_group"]
    return isinstance(group, (list, tuple)) and bool(group)


def _members(config: Any) -> dict[str, tuple[int, ...]]:
    """Convert ``{"0": {"ranks": "[0, 1]"}}`` to members by name; skip a group without ranks."""
    members: dict[str, tuple[int, ...]] = {}
    if not isinstance(config, dict):
        return members
    for name, group in config.items():
        ranks = group.get("ranks") if isinstance(group, dict) else group
        if isinstance(ranks, str):
            ranks = [int(number) for number in re.findall(r"\d+", ranks)]
        if name and isinstance(ranks, (list, tuple)) and ranks:
            members[str(name)] = tuple(sorted(int(r) for r in ranks if isinstance(r, int)))
    return members
