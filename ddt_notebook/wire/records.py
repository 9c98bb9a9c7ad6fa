"""The record of one call of ``torch.distributed``, and its encoding in the ring.

A `CallRecord` is written before every call, so it has to be fast and small. Its encoding is
positional and binary, and what equal calls share is encoded once. Values that repeat from call to
call (names of operations, files, functions, dtypes, and the members of a process group, which may
be hundreds of ranks) are written once to a table after the ring's slots, and the record contains
their offsets in the table.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from json import dumps

from ..model import Position, Rendezvous
from ..model.codec import from_plain, parse
from ..model.collective import CallKind, Shape

#: Version of the layout of the ring and of its records. Change it with either of them; a reader
#: rejects a ring that has another version.
VERSION = 7

_KINDS: tuple[CallKind, ...] = ("collective", "p2p", "setup")
_OUTSIDE, _ASYNCHRONOUS = 1, 2
#: What differs from call to call: number, operations before the call, branch events before the
#: call, and their hash.
COUNTS = struct.Struct("<3qQ")
Counts = tuple[int, int, int, int]
#: What equal calls share. Kind, flags, and how many shapes, dtypes and output shapes follow.
#: Offsets in the table: operation, group, reduce-op, detail, file, function, callers, library,
#: rendezvous, ranks of a new group.
#: Line, root, peer, tag, seconds after which the call gives up; 0 stands for never.
_FIXED = struct.Struct("<5B10IIiiqf")
_FIXED_AT = COUNTS.size
_TENSORS_AT = _FIXED_AT + _FIXED.size
#: Stand for "none" where a number may be missing.
_NO_RANK = -(1 << 31)
NO_NUMBER = -(1 << 63)
NO_COUNTS: Counts = (NO_NUMBER, -1, NO_NUMBER, 0)
#: Name of a group in the table that only lists the ranks of a new group.
_NEW = "new"


@dataclass(frozen=True, slots=True)
class Group:
    """A process group.

    Attributes
    ----------
    name
        Name of the group in torch; the default group is ``"0"``. Empty if there is none.
    members
        Global ranks, ascending. Empty if they are not known.
    """

    name: str
    members: tuple[int, ...] = ()

    def __hash__(self) -> int:
        # every recorded call hashes its group; hashing hundreds of members would be slow
        return hash(self.name)


NO_GROUP = Group("")


@dataclass(slots=True, kw_only=True)
class CallRecord:
    """What is known about a call before it is made.

    Attributes
    ----------
    op, kind
        As in `Call`.
    group
        The group on which the call is made.
    outside
        True if the caller is not a member of the group, so that torch does nothing.
    number
        Number of a point-to-point call with this group, direction, peer and tag, or of a set-up
        call with this name. None for collectives, which the reader numbers, except for those of
        Horovod.
    operations_before
        How many operations had been issued to the group's backend before the call; -1 if unknown.
    reduce_op, detail, root, peer, tag, shapes, dtypes, output_shapes, asynchronous, rendezvous,
    new_members
        As in `Call`.
    gives_up_after_s
        As in `Call`; 0 if it does not.
    branches_before, branch_hash
        As in `Call`.
    file, line, function
        The user's line that makes the call; ``file`` is empty if there is none.
    callers
        The lines that led there, as `encode_callers` writes them; empty if there are none.
    library
        Path within torch of the library that makes the call, None if the user's line does.
        Of a library outside torch, its whole path.
    """

    op: str
    kind: CallKind = "collective"
    group: Group = NO_GROUP
    outside: bool = False
    number: int | None = None
    operations_before: int = -1
    reduce_op: str | None = None
    detail: str | None = None
    root: int | None = None
    peer: int | None = None
    tag: int = 0
    shapes: tuple[Shape, ...] = ()
    dtypes: tuple[str, ...] = ()
    output_shapes: tuple[Shape, ...] = ()
    file: str = ""
    line: int = 0
    function: str = "<module>"
    callers: str = ""
    library: str | None = None
    asynchronous: bool = False
    gives_up_after_s: float = 0.0
    rendezvous: Rendezvous | None = None
    new_members: tuple[int, ...] = ()
    branches_before: int | None = None
    branch_hash: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightEntry:
    """A collective as PyTorch's Flight Recorder records it.

    Attributes
    ----------
    group
        Name of the process group.
    number
        How many operations had been issued to the group's backend when this one was added,
        including messages between two ranks.
    op, shapes, dtypes, output_shapes
        As in `Call`.
    done
        Whether it is complete.
    created_ns
        When it was added, on the wall clock in nanoseconds.
    where
        The user's line that led to it, without its source text; None if it was not looked up.
    library
        The library that issued it, as in ``Call.caller``; None if it was not looked up.
    on_device
        Whether the device runs it later than it was issued, so that `done` is the device's.
    members
        Members of the group. A message holds them once: in its first entry of a group that is not
        the default one.
    """

    group: str
    number: int
    op: str
    shapes: tuple[Shape, ...] = ()
    dtypes: tuple[str, ...] = ()
    output_shapes: tuple[Shape, ...] = ()
    done: bool = True
    created_ns: int = 0
    where: Position | None = None
    library: str | None = None
    on_device: bool = False
    members: tuple[int, ...] = ()


def with_members(
    entries: Iterable[FlightEntry], members: Mapping[str, tuple[int, ...]]
) -> tuple[FlightEntry, ...]:
    """Entries of which the first of each group holds the group's members."""
    left = dict(members)
    return tuple(
        replace(entry, members=found) if (found := left.pop(entry.group, ())) else entry
        for entry in entries
    )


def shared_key(call: CallRecord) -> Hashable:
    """What calls with the same result of `encode_shared` have in common."""
    return (
        call.op, call.group, call.line, call.file, call.function, call.callers, call.library,
        call.kind,
        call.shapes, call.dtypes, call.output_shapes, call.reduce_op, call.asynchronous,
        call.root, call.peer, call.tag, call.outside, call.rendezvous,
        call.new_members, call.detail, call.gives_up_after_s,
    )  # fmt: skip


def counts(call: CallRecord) -> Counts:
    """What differs from one call to the next that is otherwise the same."""
    number, branches = call.number, call.branches_before
    return (
        NO_NUMBER if number is None else number,
        call.operations_before,
        NO_NUMBER if branches is None else branches,
        call.branch_hash,
    )


def encode_shared(
    call: CallRecord,
    text_at: Callable[[str | None], int],
    callers_at: Callable[[str], int],
    group_at: Callable[[Group], int],
    room: int,
) -> bytes:
    """Encode what equal calls share; a training loop makes the same few calls again and again.

    Parameters
    ----------
    call
        What to encode.
    text_at, callers_at, group_at
        Return the offset of a text, of callers or of a group in the table; 0 stands for none.
    room
        The available number of bytes, with those for `COUNTS`. Shapes that do not fit are left out,
        outputs first.
    """
    room -= COUNTS.size
    meeting = call.rendezvous
    shapes, dtypes, outputs = call.shapes, call.dtypes, call.output_shapes
    tensors = _encode_tensors(shapes, dtypes, outputs, text_at)
    while len(tensors) > room - _FIXED.size:
        shapes, outputs = (shapes, ()) if outputs else ((), ())
        tensors = _encode_tensors(shapes, dtypes, outputs, text_at)
    return (
        _FIXED.pack(
            _KINDS.index(call.kind),
            call.outside * _OUTSIDE | call.asynchronous * _ASYNCHRONOUS,
            len(shapes),
            len(dtypes),
            len(outputs),
            text_at(call.op),
            group_at(call.group),
            text_at(call.reduce_op),
            text_at(call.detail),
            text_at(call.file),
            text_at(call.function),
            callers_at(call.callers),
            text_at(call.library),
            text_at(dumps(asdict(meeting))) if meeting is not None else 0,
            group_at(Group(_NEW, call.new_members)) if call.new_members else 0,
            call.line,
            _NO_RANK if call.root is None else call.root,
            _NO_RANK if call.peer is None else call.peer,
            call.tag,
            call.gives_up_after_s,
        )
        + tensors
    )


def _encode_tensors(
    shapes: Sequence[Shape],
    dtypes: Sequence[str],
    outputs: Sequence[Shape],
    text_at: Callable[[str | None], int],
) -> bytes:
    if not shapes and not dtypes and not outputs:
        return b""
    dims = [len(shape) for shape in shapes] + [len(shape) for shape in outputs]
    sizes = [size for shape in shapes for size in shape]
    sizes += [size for shape in outputs for size in shape]
    names = [text_at(dtype) for dtype in dtypes]
    return struct.pack(f"<{len(dims)}B{len(sizes)}q{len(names)}I", *dims, *sizes, *names)


def decode(
    data: bytes, text_of: Callable[[int], str], group_of: Callable[[int], Group]
) -> CallRecord:
    """Build the record from its `COUNTS` and what `encode_shared` returned.

    Raises
    ------
    ValueError, struct.error
        If the bytes are not a record, for instance because they were overwritten during the read.
    """
    number, operations_before, branches, branch_hash = COUNTS.unpack_from(data)
    kind, flags, shapes, dtypes, outputs, *rest = _FIXED.unpack_from(data, _FIXED_AT)
    op, group, reduce_op, detail, file, function, callers, library, meeting, new, *others = rest
    line, root, peer, tag, gives_up_after_s = others
    count = shapes + outputs
    dims = data[_TENSORS_AT : _TENSORS_AT + count]
    numbers = struct.unpack_from(f"<{sum(dims)}q{dtypes}I", data, _TENSORS_AT + count)
    sizes = []
    at = 0
    for length in dims:
        sizes.append(numbers[at : at + length])
        at += length
    return CallRecord(
        op=text_of(op),
        kind=_KINDS[kind],
        group=group_of(group) if group else NO_GROUP,
        outside=bool(flags & _OUTSIDE),
        number=None if number == NO_NUMBER else number,
        operations_before=operations_before,
        reduce_op=text_of(reduce_op) if reduce_op else None,
        detail=text_of(detail) if detail else None,
        root=None if root == _NO_RANK else root,
        peer=None if peer == _NO_RANK else peer,
        tag=tag,
        shapes=tuple(sizes[:shapes]),
        dtypes=tuple(text_of(at) for at in numbers[at:]),
        output_shapes=tuple(sizes[shapes:]),
        file=text_of(file),
        line=line,
        function=text_of(function),
        callers=text_of(callers) if callers else "",
        library=text_of(library) if library else None,
        asynchronous=bool(flags & _ASYNCHRONOUS),
        gives_up_after_s=gives_up_after_s,
        rendezvous=from_plain(Rendezvous, parse(text_of(meeting))) if meeting else None,
        new_members=group_of(new).members if new else (),
        branches_before=None if branches == NO_NUMBER else branches,
        branch_hash=branch_hash,
    )


@dataclass(frozen=True, slots=True)
class Callers:
    """The lines that led to a call, innermost first, as columns."""

    files: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()
    functions: tuple[str, ...] = ()


def encode_callers(callers: Sequence[tuple[str, int, str]]) -> str:
    """Encode files, lines and functions for the table."""
    return dumps(asdict(Callers(*zip(*callers, strict=True)))) if callers else ""


def decode_callers(text: str) -> Iterator[tuple[str, int, str]]:
    """The inverse of `encode_callers`.

    Raises
    ------
    FormatError
        If the text is something else, since the file was damaged.
    """
    known = from_plain(Callers, parse(text))
    return zip(known.files, known.lines, known.functions, strict=False)


_GROUP_SIZES = struct.Struct("<II")


def encode_group(group: Group) -> bytes:
    """Encode a group for the table."""
    name = group.name.encode()
    sizes = _GROUP_SIZES.pack(len(name), len(group.members))
    return sizes + name + struct.pack(f"<{len(group.members)}I", *group.members)


def decode_group(data: bytes) -> Group:
    """The inverse of `encode_group`."""
    length, count = _GROUP_SIZES.unpack_from(data)
    name = data[_GROUP_SIZES.size : _GROUP_SIZES.size + length].decode()
    return Group(name, struct.unpack_from(f"<{count}I", data, _GROUP_SIZES.size + length))
