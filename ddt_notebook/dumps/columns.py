"""The dump of one rank in columns: what many entries have in common is stored once.

A dump of 1,500 entries has 3 MB as dicts, and 20 kB like this.
"""

from __future__ import annotations

import functools
import json
import operator
import pickle
import re
import sys
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..model import flight
from ..model.codec import FormatError
from ..model.collective import Shape

_MAX_BYTES = 1 << 28
_NEEDED = frozenset({"profiling_name", "process_group", "collective_seq_id"})
#: What is read of every entry.
_FIELDS = (
    "process_group", "pg_id", "profiling_name", "is_p2p", "input_sizes", "input_dtypes",
    "output_sizes", "timeout_ms", "frames", "collective_seq_id", "retired", "state",
)  # fmt: skip
_FIELDS_OF = operator.itemgetter(*_FIELDS)
#: The number of a rank in a text; no job has ranks of more digits.
_RANK = re.compile(r"(?<!\d)\d{1,7}(?!\d)")
#: Exceptions of reading an entry whose values are not those that the recorder writes.
_STRANGE = (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError)


class StrangeEntries(FormatError):
    """A dump whose entries hold what the Flight Recorder does not write."""


class Kind(NamedTuple):
    """What entries of one rank share if they were issued in the same way.

    Attributes
    ----------
    group, description
        Name of the process group, and what torch calls it: ``"default_pg"``, ``"undefined"``.
    formation
        How many groups of this name the rank had formed before this one.
    message
        Whether it is a send or a receive.
    name
        The recorder's name: ``"nccl:all_reduce"``.
    shapes, dtypes, output_shapes, frame, caller
        As in `Call`; the frame is the user's: file, line, function.
    timeout_ms
        Time limit of the group in milliseconds, 0 if it is not known.
    """

    group: str
    description: str
    formation: int
    message: bool
    name: str
    shapes: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    output_shapes: tuple[Shape, ...]
    frame: tuple[str, int, str] | None
    caller: str | None
    timeout_ms: float


@dataclass(frozen=True, slots=True)
class Columns:
    """The content of one rank's recorder when the dump was written.

    Attributes
    ----------
    file
        Name of the file.
    kinds
        The kinds of its entries, in the order in which they first occur.
    kind_of, numbers, done
        Of each entry, oldest first: the index of its kind, the number of a collective in its group,
        and whether it has completed.
    dropped
        How many older entries the recorder had already overwritten.
    members
        Global ranks of each process group by name, if the dump contains them, as text; see
        `members_of`.
    formations
        How many groups of each name the rank formed.
    """

    rank: int
    file: str
    kinds: list[Kind]
    kind_of: array[int]
    numbers: array[int]
    done: bytes
    dropped: int
    members: dict[str, str]
    formations: dict[str, int]

    def to_bytes(self) -> bytes:
        """Plain data that `from_bytes` reads."""
        kinds = [tuple(kind) for kind in self.kinds]
        plain = (
            self.rank, self.file, kinds, self.kind_of.tobytes(), self.numbers.tobytes(), self.done,
            self.dropped, self.members, self.formations,
        )  # fmt: skip
        return pickle.dumps(plain, protocol=pickle.HIGHEST_PROTOCOL)

    @classmethod
    def from_bytes(cls, data: bytes) -> Columns:
        """The inverse of `to_bytes`; it creates plain data only."""
        rank, file, kinds, kind_of, numbers, done, dropped, members, formations = (
            flight.unpickled_quickly(data)
        )
        return cls(
            rank,
            file,
            [Kind._make(kind) for kind in kinds],
            array("I", kind_of),
            array("q", numbers),
            done,
            dropped,
            {name: sys.intern(ranks) for name, ranks in members.items()},
            formations,
        )


def read(file: Path, rank: int, unpickled: Callable[[bytes], Any] = flight.unpickled) -> Columns:
    """Read one dump.

    Parameters
    ----------
    file, rank
        The file, and the rank that wrote it.
    unpickled
        How a pickle is read: `flight.unpickled`, or quickly in a process that limits itself.

    Raises
    ------
    FormatError
        If it is not a dump, or is too large.
    StrangeEntries
        If it is one, with values that the Flight Recorder does not write.
    OSError
        If it cannot be read.
    """
    if file.stat().st_size > _MAX_BYTES:
        raise FormatError(f"larger than {_MAX_BYTES >> 20} MB")
    return parse(file.read_bytes(), rank, file.name, unpickled)


def parse(
    data: bytes, rank: int, name: str, unpickled: Callable[[bytes], Any] = flight.unpickled
) -> Columns:
    """The dump of a rank from its bytes; see `read`."""
    try:
        plain = json.loads(data) if data[:1] == b"{" else unpickled(data)
    except (*_STRANGE, pickle.UnpicklingError, EOFError, MemoryError, RecursionError) as error:
        raise FormatError(f"not a dump ({error or type(error).__name__})") from None
    if not isinstance(plain, dict) or not ("entries" in plain or "pg_config" in plain):
        raise FormatError("not a dump of the Flight Recorder")
    try:
        return _columns(plain, rank, name)
    except _STRANGE as error:
        raise StrangeEntries(str(error)) from error


def _columns(plain: dict[str, Any], rank: int, name: str) -> Columns:
    kinds: dict[Kind, int] = {}
    known: dict[Any, int] = {}
    formed: dict[str, dict[str, int]] = {}
    kind_of, numbers, done = array("I"), array("q"), bytearray()
    first: Any = None
    for entry in plain.get("entries") or ():  # large jobs have millions
        try:
            fields = _FIELDS_OF(entry)
        except (KeyError, TypeError):
            if not isinstance(entry, dict) or not entry.keys() >= _NEEDED:
                continue
            fields = tuple(map(entry.get, _FIELDS))
        (
            group, formation, name, message, sizes, dtypes, outputs, timeout_ms, frames,
            number, retired, state,
        ) = fields  # fmt: skip
        if type(group) is not tuple:
            if not isinstance(group, list):
                continue
            group = tuple(group)
        if not group:
            continue
        if first is None:
            first = entry.get("record_id", 0)
        sizes, dtypes = sizes or (), dtypes or ()
        raw = (
            group,
            formation,
            name,
            bool(message),
            timeout_ms,
            len(sizes),
            len(dtypes),
            *map(tuple, sizes),
            *dtypes,
            *map(tuple, outputs or ()),
            # frames that entries share are one object, as torch writes them
            *map(id, frames or ()),
        )
        kind = known.get(raw)
        if kind is None:
            made = _kind(entry, bool(message), formed)
            kind = known[raw] = kinds.setdefault(made, len(kinds))
        kind_of.append(kind)
        numbers.append(0 if message else int(number))
        done.append(True if retired else state == "completed")
    return Columns(
        rank=rank,
        file=name,
        kinds=list(kinds),
        kind_of=kind_of,
        numbers=numbers,
        done=bytes(done),
        dropped=_bounded(first, 2**63) if isinstance(first, int) else 0,
        members=_members(plain.get("pg_config")),
        formations={group: len(ids) for group, ids in formed.items()},
    )


def _bounded(value: int, end: int) -> int:
    if not -end < value < end:
        raise ValueError(f"a number is {value!r:.40}")
    return value


def _milliseconds(value: Any) -> float:
    if not 0 <= value < 2**63:
        raise ValueError(f"timeout_ms is {value!r:.40}")
    return float(value)


def _kind(entry: dict[str, Any], message: bool, formed: dict[str, dict[str, int]]) -> Kind:
    group, *description = map(str, entry["process_group"])
    formations = formed.setdefault(group, {})
    frames = [
        (
            str(f.get("filename", "")),
            _bounded(int(f.get("line", 0)), 2**31),
            str(f.get("name", "")),
        )
        for f in entry.get("frames") or ()
    ]
    frame, caller = flight.user_frame(frames)
    found = Kind(
        group=group,
        description=description[0] if description else "",
        formation=formations.setdefault(str(entry.get("pg_id")), len(formations)),
        message=message,
        name=str(entry["profiling_name"]),
        shapes=flight.shapes(entry.get("input_sizes") or ()),
        dtypes=flight.dtypes(entry.get("input_dtypes") or ()),
        output_shapes=flight.shapes(entry.get("output_sizes") or ()),
        frame=frame,
        caller=caller,
        timeout_ms=_milliseconds(entry.get("timeout_ms") or 0),
    )
    texts = (group, found.description, found.name, *found.dtypes, *map(str, (frame or ())))
    "".join(texts).encode()  # raises a ValueError if one cannot be saved
    if any(not 0 <= n < 2**63 for shape in (*found.shapes, *found.output_shapes) for n in shape):
        raise ValueError(f"a size is none: {found.shapes!r:.80}")
    return found


def _members(config: Any) -> dict[str, str]:
    """The ranks of each group as text, such as ``"[0, 1]"``; skip a group without ranks."""
    members: dict[str, str] = {}
    if not isinstance(config, dict):
        return members
    for name, group in config.items():
        ranks = group.get("ranks") if isinstance(group, dict) else group
        if isinstance(ranks, (list, tuple)):
            ranks = " ".join(str(int(rank)) for rank in ranks if isinstance(rank, int))
        if name and isinstance(ranks, str) and _RANK.search(ranks):
            members[str(name)] = ranks
            str(name).encode()  # raises a ValueError if it cannot be saved
    return members


@functools.lru_cache(maxsize=4096)
def members_of(ranks: str) -> tuple[int, ...]:
    """The ranks in a text, ascending; all dumps of a job hold the same texts."""
    return tuple(sorted(int(number) for number in _RANK.findall(ranks)))
