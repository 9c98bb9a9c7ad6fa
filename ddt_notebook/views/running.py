"""Says how the ranks of a running job were asked, and what they could not answer."""

from __future__ import annotations

from ..formatting import agree, ranks_label
from ..model import Snapshot
from ..model.running import AskedRunning, Unanswered
from . import safe, words

_ERROR = 200


def lines(snapshot: Snapshot, what: str) -> list[str]:
    """Lines for a view.

    Parameters
    ----------
    snapshot
        What was observed.
    what
        The field of `Snapshot` that the view shows.
    """
    asked = snapshot.running
    if asked is None:
        return []
    found = [_how(snapshot, asked, what)] if getattr(snapshot, what, ()) else []
    found += [_why(asked, one) for one in asked.unanswered if one.what == what]
    return [line for line in found if line]


def _how(snapshot: Snapshot, asked: AskedRunning, what: str) -> str:
    if what != "parity":
        if asked.stood:
            return "the ranks were asked while they stood still"
        return "the ranks were asked one after the other while they ran"
    at = f"after optimizer step {asked.step:,}" if asked.step is not None else ""
    parts = [f"the ranks were compared as they {'stood' if asked.stood else 'were'} {at}".rstrip()]
    parts.append("large tensors at up to 1,024 elements, gradients not at all")
    text = ", ".join(parts)
    unread = max((parity.unread for parity in snapshot.parity), default=0)
    if unread:
        text += (
            f"; the content of {words.count(unread, 'tensor')} was not read: reading a GPU has to "
            "wait for its work, and at most 2,000 tensors are read"
        )
    return text


def _why(asked: AskedRunning, one: Unanswered) -> str:
    who = ranks_label(one.ranks)
    match one.why:
        case "silent":
            return (
                f"{who} did not answer within 1 s: Python code cannot run there now, as in a C "
                "call that holds the interpreter, or the machine is overloaded"
            )
        case "elsewhere":
            return f"{who} {agree(one.ranks, 'runs', 'run')} on another host and cannot be asked"
        case "left out":
            return f"{who} {agree(one.ranks, 'was', 'were')} not asked, since the job is large"
        case "no step":
            return (
                f"no common optimizer step of {who} ended within {words.short(asked.waited_s)}; "
                "while ranks train, they are compared at the end of a step"
            )
        case "apart":
            return (
                "the ranks have ended different numbers of optimizer steps "
                f"({safe.one_line(one.detail, _ERROR)}): their parameters cannot be compared"
            )
        case "in step":
            verb = agree(one.ranks, "is", "are")
            return f"{who} {verb} inside an optimizer step: parameters cannot be compared"
        case "error":
            return f"{who} could not answer: {safe.one_line(one.detail, _ERROR)}"
