"""Matches sends with receives: by group, sender, receiver, tag and sequence number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from ddt_notebook.model import Call, RankReport
from ddt_notebook.model.operations import RECEIVES, SENDS

_Route = tuple[str, int, int, int]  #: group, sender, receiver, tag

_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
    "complex32": 4, "complex64": 8, "complex128": 16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class MessageMismatch:
    """A send and its receive that differ in size or data type."""

    sender: int
    receiver: int
    send: Call
    receive: Call
    fields: tuple[str, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted((self.sender, self.receiver)))


@dataclass(frozen=True, slots=True)
class Single:
    """A call of one rank."""

    rank: int
    call: Call


def match_messages(
    reports: Iterable[RankReport],
) -> tuple[int, list[MessageMismatch], list[Single]]:
    """Return the number of messages, those that do not fit, and calls without a counterpart."""
    sends: dict[_Route, dict[int, Single]] = defaultdict(dict)
    receives: dict[_Route, dict[int, Single]] = defaultdict(dict)
    #: Receives from any sender, by group, receiver and tag.
    from_anyone: dict[tuple[str, int, int], list[Single]] = defaultdict(list)
    for report in reports:
        for call in report.calls:
            if call.kind != "p2p" or call.sequence is None:
                continue
            single = Single(report.rank, call)
            if call.peer is None:
                from_anyone[(call.group, report.rank, call.tag)].append(single)
            elif call.op in SENDS:
                route = (call.group, report.rank, call.peer, call.tag)
                sends[route][call.sequence] = single
            elif call.op in RECEIVES:
                route = (call.group, call.peer, report.rank, call.tag)
                receives[route][call.sequence] = single
    mismatches: list[MessageMismatch] = []
    lone: list[Single] = []
    for route in sorted(sends.keys() | receives.keys()):
        group, sender, receiver, tag = route
        sent, received = sends.get(route, {}), receives.get(route, {})
        pool = from_anyone.get((group, receiver, tag), [])
        if pool:
            # it took messages of any sender before, so only their numbers can be compared
            left = sorted(sent)[len(received) :]
            lone += [received[sequence] for sequence in sorted(received)[len(sent) :]]
            lone += [sent[sequence] for sequence in left[len(pool) :]]
            del pool[: len(left)]
            continue
        for sequence in sorted(sent.keys() | received.keys()):
            send, receive = sent.get(sequence), received.get(sequence)
            if send and receive:
                fields = _message_differences(send.call, receive.call)
                if fields:
                    mismatches.append(
                        MessageMismatch(sender, receiver, send.call, receive.call, fields)
                    )
            else:
                lone += [single for single in (send, receive) if single]
    lone += [single for pool in from_anyone.values() for single in pool]
    total = sum(map(len, sends.values()))
    return total, mismatches, lone


def _message_differences(send: Call, receive: Call) -> tuple[str, ...]:
    fields = []
    sent, room = message_bytes(send), message_bytes(receive)
    if sent is not None and room is not None and sent != room:
        fields.append("size")
    if send.dtypes and receive.dtypes and send.dtypes != receive.dtypes:
        fields.append("dtype")
    return tuple(fields)


def message_bytes(call: Call) -> int | None:
    """Return the bytes that a call sends or has room for, None if its tensors are unknown."""
    if not call.shapes or len(call.shapes) != len(call.dtypes):
        return None
    sizes = [_BYTES.get(dtype) for dtype in call.dtypes]
    if None in sizes:
        return None
    return sum(prod(shape) * size for shape, size in zip(call.shapes, sizes, strict=True) if size)
