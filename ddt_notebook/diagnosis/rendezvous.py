"""Compares how the ranks tried to join the group, and finds where they disagree."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Literal, TypeVar

from ddt_notebook.model import Call, Rendezvous, Snapshot
from ddt_notebook.model.frameworks import is_meeting
from ddt_notebook.model.rendezvous import complete_groups

from .errors import is_peer_error

Kind = Literal["number", "outside", "size", "address", "file", "store", "unserved", "unreachable"]
_Value = TypeVar("_Value", bound=Hashable)
#: The server of a second rank 0 finds the port in use.
_PORT_TAKEN = "EADDRINUSE"


@dataclass(frozen=True, slots=True)
class Discord:
    """Why a group could not form, according to what its ranks announced.

    Attributes
    ----------
    kind
        ``"number"``: two ranks announced the same rank number. ``"outside"``: a rank announced a
        number that the group does not have. ``"size"``: the ranks announced different world sizes.
        ``"address"``: they wait at different addresses. ``"file"``: the file at which they meet
        holds data of an earlier run. ``"store"``: the store holds addresses of an earlier group.
        ``"unserved"``: the launcher serves the store at another address, and no rank serves one.
        ``"unreachable"``: no rank can connect to the address.
    culprits
        Ranks of the session whose announcement differs from the rest.
    joined
        The calls of all ranks that took part, by rank of the session.
    """

    kind: Kind
    culprits: tuple[int, ...]
    joined: Mapping[int, Call]

    def said(self, rank: int) -> Rendezvous:
        """Return what a rank announced."""
        return self.joined[rank].rendezvous or Rendezvous()


def discord(snapshot: Snapshot) -> Discord | None:
    """Return why the ranks could not form a group; None if they formed it or agree."""
    joined = _last_attempt(snapshot)
    taken = _port_taken(snapshot, joined)
    if taken is None:
        return None  # a rank failed for another reason
    said = {rank: call.rendezvous for rank, call in joined.items() if call.rendezvous is not None}
    said = {rank: one for rank, one in said.items() if one.address and one.world_size}
    by_address: dict[str, dict[int, Rendezvous]] = defaultdict(dict)
    for rank, one in said.items():
        by_address[one.address][rank] = one
    unfit = [ranks for ranks in by_address.values() if not complete_groups(ranks.values())]
    for ranks in unfit:
        found = _among(ranks, snapshot.world_size)
        if found is not None:
            kind, culprits = found
            calls = {rank: joined[rank] for rank in ranks}
            done = all(call.status == "done" for call in joined.values())
            # a group that forms in spite of this is out of step from its first collective on
            return Discord(kind, culprits, calls) if kind == "size" or not done else None
    if taken or snapshot.outcome == "ok" or all(c.status == "done" for c in joined.values()):
        return None  # another program uses the port, or the group formed
    if len(unfit) > 1:
        places = {rank: one.address for ranks in unfit for rank, one in ranks.items()}
        home = next((said[rank].address for rank in places if said[rank].rank == 0), None)
        return Discord("address", _odd(places, home), {rank: joined[rank] for rank in places})
    return _unfit_place(joined, said) if len(by_address) == 1 else None


def _port_taken(snapshot: Snapshot, joined: Mapping[int, Call]) -> bool | None:
    """Whether a rank found the port in use; None if one failed for another reason."""
    failed = {rank for rank, call in joined.items() if call.status == "failed"}
    errors = [report.error for report in snapshot.ranks if report.rank in failed]
    own = [error for error in errors if error is not None and not is_peer_error(error)]
    return None if any(_PORT_TAKEN not in error.message for error in own) else bool(own)


def _among(ranks: Mapping[int, Rendezvous], world_size: int) -> tuple[Kind, tuple[int, ...]] | None:
    """Return what is wrong with the numbers of the ranks that met at one address."""
    sizes = {rank: one.world_size or 0 for rank, one in ranks.items()}
    others = tuple(rank for rank, size in sizes.items() if size != world_size)
    if len(others) == len(sizes):  # no rank announced the size of the session
        others = _odd(sizes, None)
    outside = tuple(r for r, one in ranks.items() if (one.rank or 0) >= (one.world_size or 0))
    repeated = _repeated({rank: one.rank for rank, one in ranks.items()})
    found: list[tuple[Kind, tuple[int, ...]]] = [
        ("size", others),
        ("outside", outside),
        ("number", repeated),
    ]
    return next((one for one in found if one[1]), None)


def _last_attempt(snapshot: Snapshot) -> dict[int, Call]:
    """Return the calls of the last attempt to form a group, by rank."""
    made: dict[int, dict[int, Call]] = defaultdict(dict)
    for report in snapshot.ranks:
        for call in report.calls:
            if is_meeting(call.op) and call.sequence is not None:
                made[call.sequence][report.rank] = call
    return made[max(made)] if made else {}


def _odd(values: Mapping[int, _Value], expected: _Value | None) -> tuple[int, ...]:
    """Return the ranks whose value is not the most frequent; in a tie the expected one counts."""
    counts = Counter(values.values())
    if len(counts) < 2:
        return ()
    usual, most = counts.most_common(1)[0]
    if expected is not None and counts[expected] == most:
        usual = expected
    return tuple(rank for rank, value in values.items() if value != usual)


def _repeated(numbers: Mapping[int, int | None]) -> tuple[int, ...]:
    """Return the ranks whose number another rank also announced."""
    counts = Counter(numbers.values())
    doubles = [rank for rank, n in numbers.items() if n is not None and counts[n] > 1]
    return tuple(rank for rank in doubles if numbers[rank] != rank) or tuple(doubles)


def _unfit_place(joined: Mapping[int, Call], said: Mapping[int, Rendezvous]) -> Discord | None:
    """Return why a rendezvous failed, if all ranks met at one address with different numbers."""
    if len(said) < len(joined) or not complete_groups(said.values()):
        return None
    address = next(iter(said.values())).address
    if address.startswith("file://"):
        # data that the first rank found there cannot come from a peer in this run
        first = min(joined, key=lambda rank: joined[rank].entered_s or inf)
        return Discord("file", (), dict(joined)) if said[first].left_over else None
    if any(one.left_over for one in said.values()):
        return Discord("store", (), dict(joined))
    if all(one.served_at for one in said.values()):
        return Discord("unserved", (), dict(joined))
    host = address.rpartition(":")[0]
    return Discord("unreachable", (), dict(joined)) if not host.startswith("127.") else None
