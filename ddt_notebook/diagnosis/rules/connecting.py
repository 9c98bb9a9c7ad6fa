"""Why a group was not formed although each of its ranks took part, on several hosts."""

from __future__ import annotations

import re

from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.errors.pattern import Meaning

#: What gloo says when a rank does not reach another one.
_UNREACHED = re.compile(r"connectFullMesh failed|[Cc]onnect timeout|timed out connecting")
#: What the system says when no way leads to the address that another rank has announced.
_NO_WAY = re.compile(r"connect: (Network is unreachable|No route to host)")
#: The address at which a rank was awaited, if it leads to the host that connects.
_LOOPBACK = re.compile(r"(remote=|[Cc]onnect timeout )\[(127\.|::1\])")


def unconnected(context: Context) -> Meaning | None:
    """What kept ranks of different hosts from each other; None if it may have been a rank.

    A rank that has not come is no cause if each rank is known to have entered the set-up.
    """
    hosts = {host for host in context.snapshot.hosts.values() if host}
    calls = [context.last_call(rank) for rank in context.reports]
    met = {(call.op, call.kind) if call is not None else None for call in calls}
    if len(hosts) < 2 or len(met) != 1 or any(kind != "setup" for _, kind in filter(None, met)):
        return None
    said = [one.error.message for one in context.reports.values() if one.error is not None]
    if None in met:
        return None
    if any(map(_NO_WAY.search, said)):
        return Meaning("B.1", "interface-of-another-network", "likely")
    if not any(map(_UNREACHED.search, said)):
        return None
    if any(map(_LOOPBACK.search, said)):
        return Meaning("B.2", "loopback-address")
    return Meaning("B.2", "hosts-not-connected", "likely")
