"""Ranks that meet by the name of a tensor, as those of Horovod: the names, and who has joined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .collective import Call

#: The call with which a rank ends its share of the steps: it takes part in what the others still
#: call, until all have called it.
JOIN = "join"
_AFTER, _UNNAMED = " after ", "noname"


def group_name(op: str, tensor: str, members: Iterable[int] | None, rounds: Iterable[str]) -> str:
    """``allreduce.weight``, the name of the group that stands for the name of a tensor.

    Parameters
    ----------
    members
        The ranks of a process set; None for the set of all ranks.
    rounds
        What has begun the counts of all names anew: ``"join"`` or ``"init"``, in order.
    """
    of = "" if members is None else f" of process set {','.join(map(str, members))}"
    counts = Counter(rounds)
    after = ", ".join(f"{n} × {what}" if n > 1 else what for what, n in counts.items())
    return f"{op}.{tensor or _UNNAMED}{of}{_AFTER if after else ''}{after}"


def tensor_of(call: Call) -> str:
    """``weight``, the name by which ranks meet in a call; empty if the call gave none."""
    tensor = call.group.removeprefix(f"{call.op}.")
    return "" if tensor.partition(" ")[0] == _UNNAMED else tensor


def is_unnamed(call: Call) -> bool:
    """Whether a call meets others by the number of the rank's operations, as one without a name.

    Such numbers have gaps: the rank's other operations take some, too.
    """
    return call.group.startswith(f"{call.op}.") and not tensor_of(call)


def has_joined(call: Call, calls: Iterable[Call]) -> bool:
    """Whether the rank that made ``calls`` takes part in ``call`` by having joined."""
    by_name = call.group.startswith(f"{call.op}.") and call.op != JOIN
    return by_name and any(
        one.op == JOIN and _round(one.group) == _round(call.group) for one in calls
    )


def _round(group: str) -> str:
    return group.rpartition(_AFTER)[2] if _AFTER in group else ""
