"""The calls that the entries of dumps record, and which of them a diagnosis needs.

What all members of a group issued and completed alike says only that it was so: of large dumps, the
last such collectives are kept, everything from the first difference on, and how many were left out.
Everything here takes time in proportion to the number of entries.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from ..model import Call, Position
from ..model.operations import SENDS, from_recorder
from .columns import Columns, Kind
from .entries import Entries, Flags, Groups, Ints

#: Dumps with fewer entries in all are kept whole: their diagnosis takes less than 1 s.
_KEEP_ALL = 50_000
#: How many collectives that all members completed alike are kept, the last ones; the same number
#: of messages for each two ranks.
_LAST = 8
#: How many call sites of each group are kept with their last collective.
_SITES = 64
_MESSAGE = re.compile(r"(send|recv) (\d+)(?:->|<-)(\d+)")


class Calls:
    """The calls that the entries of dumps record.

    Parameters
    ----------
    dumps, entries
        The dumps, ordered by rank, and their entries.
    groups
        Members of each group by name.
    """

    def __init__(self, dumps: Sequence[Columns], entries: Entries, groups: Groups) -> None:
        self._dumps, self._entries, self._groups = dumps, entries, groups
        self._models = [_model(kind, groups) for kind in entries.kinds]
        self._made: dict[tuple[int, int, int, bool], Call] = {}
        self._message = entries.by_kind([kind.message for kind in entries.kinds]).astype(np.bool_)
        names = {name: number for number, name in enumerate(groups)}
        self._group = entries.by_kind([names[kind.group] for kind in entries.kinds])
        self._sequence = entries.number.copy()
        self._valid = self._number()

    def of_each_dump(self) -> list[tuple[tuple[Call, ...], int]]:
        """For each dump the calls that are kept, oldest first, and how many are not."""
        kept = self._valid
        if len(kept) > _KEEP_ALL:
            kept = kept & (self._needed_collectives() | self._needed_messages())
        at = np.flatnonzero(kept)
        dump = self._entries.dump[at]
        columns = (self._entries.kind, self._sequence, self._entries.index, self._entries.done)
        rows: list[Any] = list(zip(*(column[at].tolist() for column in columns), strict=True))
        ends: Any = np.searchsorted(dump, np.arange(len(self._dumps) + 1)).tolist()
        many = np.bincount(self._entries.dump[self._valid], minlength=len(self._dumps)).tolist()
        return [
            (tuple(self._call(*row) for row in rows[start:end]), total - (end - start))
            for start, end, total in zip(ends[:-1], ends[1:], many, strict=True)
        ]

    def _call(self, kind: int, sequence: int, index: int, done: bool) -> Call:
        """A call; ranks that issued the same call at the same time share it."""
        key = (kind, sequence, index, done)
        if key not in self._made:
            model = self._models[kind] or {}
            status: Any = "done" if done else "pending"
            self._made[key] = Call(**model, sequence=sequence, index=index, status=status)
        return self._made[key]

    def _number(self) -> Flags:
        """Number the messages; return which entries are calls of their own."""
        entries = self._entries
        valid: Flags = np.ones(len(self._message), np.bool_)
        # the parts of a coalesced collective have the same number
        order = self._sorted(np.flatnonzero(~self._message), entries.number, self._group)
        new = _changes(order, self._group, entries.number, entries.dump)
        valid[order[~new]] = False
        # the recorder does not number messages by route
        routes: dict[Hashable, int] = {}
        peers = [
            routes.setdefault((model["group"], model["op"], model["peer"]), len(routes))
            if kind.message and model is not None
            else -1
            for kind, model in zip(entries.kinds, self._models, strict=True)
        ]
        route = entries.by_kind(peers)
        valid[self._message & (route < 0)] = False
        order = self._sorted(np.flatnonzero(self._message & valid), route, entries.dump)
        self._sequence[order] = 1 + _position(_changes(order, route, entries.dump))
        return valid

    def _sorted(self, at: Ints, *keys: Any) -> Ints:
        """Some entries, sorted by keys, the last one first; equal ones stay in their order."""
        result: Ints = at[np.lexsort([key[at] for key in keys])]
        return result

    def _needed_collectives(self) -> Flags:
        """Which entries of collectives are kept."""
        entries = self._entries
        needed: Flags = np.zeros(len(self._valid), np.bool_)
        order = self._sorted(
            np.flatnonzero(self._valid & ~self._message), entries.number, self._group
        )
        if not len(order):
            return needed
        starts = np.flatnonzero(_changes(order, self._group, entries.number))
        counts = np.diff(starts, append=len(order))
        form = self._identified([_form(model) for model in self._models])[order]
        site = self._identified([_site(model) for model in self._models])[order]
        who_where = _mixed(entries.dump[order].astype(np.uint64) << 32 | site.astype(np.uint64))
        # ranks of one collective may call it from different lines, the same ones in every step
        pattern = np.add.reduceat(who_where, starts)
        one_site = _lowest(site, starts) == _highest(site, starts)
        pattern = np.where(one_site, _lowest(site, starts).astype(np.uint64), pattern)
        expected, untouched = self._expected(order, starts)
        alike = (
            np.logical_and.reduceat(entries.done[order], starts)
            & (_lowest(form, starts) == _highest(form, starts))
            & (counts == expected)
        )
        group = self._group[order][starts]
        keep: Flags = np.ones(len(starts), np.bool_)
        for first, end in _runs(group):
            parted = np.flatnonzero(~alike[first:end])
            common = first + int(parted[0]) if len(parted) else end
            keep[first : max(first, common - _LAST)] = False
            # the last one of each site: rules look for earlier calls of a line
            _, last = np.unique(pattern[first:common][::-1], return_index=True)
            keep[common - 1 - np.sort(last)[:_SITES]] = True
        needed[order[np.repeat(keep, counts)]] = True
        # without any entry of a group, only a rank whose calls are all there is known to have none
        needed |= untouched[entries.dump] & ~self._message
        return needed

    def _expected(self, order: Ints, starts: Ints) -> tuple[Ints, Flags]:
        """How many ranks should have an entry of each collective, whose entries start at `starts`.

        A rank that has overwritten its oldest entries has none of collectives before its first.
        Also returned: which dumps have no entry in a group, although they are of members.
        """
        dumps, entries = self._dumps, self._entries
        pairs = self._group[order] * len(dumps) + entries.dump[order]
        seen, where = np.unique(pairs, return_index=True)  # the first entry, which is the oldest
        oldest = dict(zip(seen.tolist(), entries.number[order[where]].tolist(), strict=True))
        position = {dump.rank: at for at, dump in enumerate(dumps)}
        group, number = self._group[order][starts], entries.number[order][starts]
        expected: Ints = np.zeros(len(starts), np.int64)
        untouched: Flags = np.zeros(len(dumps), np.bool_)
        names = list(self._groups)
        for first, end in _runs(group):
            which = int(group[first])
            members = [position[r] for r in self._groups[names[which]] if r in position]
            late = []
            for member in members:
                since = oldest.get(which * len(dumps) + member)
                if dumps[member].dropped:
                    late.append(since if since is not None else np.iinfo(np.int64).max)
                elif since is None:
                    untouched[member] = True
            came = np.searchsorted(np.sort(np.array(late, np.int64)), number[first:end], "right")
            expected[first:end] = len(members) - len(late) + came
        return expected, untouched

    def _needed_messages(self) -> Flags:
        """Which entries of messages are kept."""
        entries = self._entries
        needed: Flags = np.zeros(len(self._valid), np.bool_)
        at = np.flatnonzero(self._valid & self._message)
        if not len(at):
            return needed
        ranks = np.array([dump.rank for dump in self._dumps], np.int64)
        sends = entries.by_kind([_is_send(model) for model in self._models]).astype(np.bool_)
        peer = entries.by_kind([_peer(model) for model in self._models])
        here = ranks[entries.dump]
        sender, receiver = np.where(sends, here, peer), np.where(sends, peer, here)
        order = self._sorted(at, self._sequence, receiver, sender, self._group)
        route = (self._group, sender, receiver)
        starts = np.flatnonzero(_changes(order, *route, self._sequence))
        counts = np.diff(starts, append=len(order))
        form = self._identified([_form(model)[1:] for model in self._models])[order]
        alike = (
            (counts == 2)
            & (np.add.reduceat(sends[order].astype(np.int64), starts) == 1)
            & np.logical_and.reduceat(entries.done[order], starts)
            & (_lowest(form, starts) == _highest(form, starts))
        )
        new = _changes(order[starts], *route)
        ends: Ints = np.append(np.flatnonzero(new)[1:], len(starts))
        until_end = ends[np.cumsum(new) - 1] - np.arange(len(starts))
        keep = ~alike | (until_end <= _LAST)
        needed[order[np.repeat(keep, counts)]] = True
        return needed

    def _identified(self, values: Sequence[Hashable]) -> Ints:
        """A number for what each entry's kind has; equal numbers mean equal values."""
        known: dict[Hashable, int] = {}
        return self._entries.by_kind([known.setdefault(value, len(known)) for value in values])


def _model(kind: Kind, groups: Groups) -> dict[str, Any] | None:
    """What calls of a kind have in common; None for a message to a rank that is not known.

    There are no times, since the clocks of several hosts do not agree.
    """
    members = groups[kind.group]
    model: dict[str, Any] = {
        "op": from_recorder(kind.name),
        "group": kind.group,
        "members": members,
        "shapes": kind.shapes,
        "dtypes": kind.dtypes,
        "output_shapes": kind.output_shapes,
        "where": _position_of(kind.frame),
        "source": "flight recorder",
        "caller": kind.caller,
    }
    if not kind.message:
        return model
    found = _MESSAGE.search(kind.name)
    if found is None or int(found[3]) >= len(members):
        return None
    # the recorder numbers ranks within the group
    return model | {"op": found[1], "kind": "p2p", "peer": members[int(found[3])]}


def _position_of(frame: tuple[str, int, str] | None) -> Position | None:
    return Position(file=frame[0], line=frame[1], function=frame[2]) if frame else None


def _form(model: dict[str, Any] | None) -> tuple[Hashable, ...]:
    """What has to be the same on all ranks that take part; see `Call.fingerprint`."""
    if model is None:
        return (None,)
    if model.get("kind") == "p2p":
        return (model["op"], model["shapes"], model["dtypes"])
    return Call(**model, index=0).fingerprint()


def _site(model: dict[str, Any] | None) -> Hashable:
    return (model["op"], model["where"], model["caller"]) if model is not None else None


def _is_send(model: dict[str, Any] | None) -> bool:
    return model is not None and model["op"] in SENDS


def _peer(model: dict[str, Any] | None) -> int:
    return -1 if model is None else model.get("peer", -1)


def _changes(order: Ints, *columns: Any) -> Flags:
    """Which entries of a sorted table differ from the one before in any of the columns."""
    new: Flags = np.ones(len(order), np.bool_)
    if len(order):
        new[1:] = False
    for column in columns:
        values = column[order]
        new[1:] |= values[1:] != values[:-1]
    return new


def _position(new: Flags) -> Ints:
    """The position of each entry since the last one at which something is new."""
    here = np.arange(len(new))
    result: Ints = here - np.maximum.accumulate(np.where(new, here, 0)) if len(new) else here
    return result


def _runs(values: Ints) -> list[tuple[int, int]]:
    """Start and end of each run of equal values."""
    starts = np.flatnonzero(np.diff(values, prepend=values[0] - 1))
    return list(zip(starts.tolist(), [*starts[1:].tolist(), len(values)], strict=True))


def _lowest(values: Ints, starts: Ints) -> Ints:
    result: Ints = np.minimum.reduceat(values, starts)
    return result


def _highest(values: Ints, starts: Ints) -> Ints:
    result: Ints = np.maximum.reduceat(values, starts)
    return result


def _mixed(values: Any) -> Any:
    """Numbers whose sums differ for different sets of values (the finalizer of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
