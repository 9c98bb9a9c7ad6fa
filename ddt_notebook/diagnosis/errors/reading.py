"""Distinguishes a rank's own exceptions from those that a peer caused, and reads chains."""

from __future__ import annotations

import re

from ddt_notebook.model import Position, RankError
from ddt_notebook.model.user_code import is_user_code

_BROKEN_CONNECTION = re.compile(
    r"Connection (was likely )?closed by (remote )?peer|Connection reset by peer|Broken pipe"
    r"|Application timeout caused pair closure|Timed out waiting \d+ ?ms"
    r"|failed to pass monitoredBarrier|Socket Timeout|Connection refused"
    r"|Interrupted system call|wait timeout after|[Tt]imed out after .* waiting for clients"
    r"|client socket has timed out|Detected at least one rank that exhausted inputs"
    r"|remote process exited or there was a network error|NCCL communicator was aborted"
    r"|Horovod has been shut down|the session ended this wait",
)
_TIMEOUT = re.compile(r"[Tt]imed out|[Tt]imeout")
#: Types that torch.distributed and Horovod raise for trouble with peers. ConnectionError is not
#: among them: the user's own download can raise it, and it is then the cause.
_COMMUNICATION_TYPES = frozenset(
    {
        "RuntimeError",
        "DistBackendError",
        "DistNetworkError",
        "DistStoreError",
        "DistError",
        "HorovodInternalError",
    }
)
#: What a traceback prints between one exception and the next.
_CHAIN = re.compile(
    r"\n+During handling of the above exception, another exception occurred:\n+"
    r"|\n+The above exception was the direct cause of the following exception:\n+"
)
_HEADLINE = re.compile(r"^(\w+) +Traceback \(most recent call last\)", re.MULTILINE)
#: The heading of a frame: ``Cell cell[3], line 5`` or ``File /srv/job/train.py:46, in main()``.
_FRAME = re.compile(
    r"^(?:Cell (cell\[\d+\]), line (\d+)|File (.+?):(\d+)(?:, in .*)?$)", re.MULTILINE
)
#: Only gloo writes this into the text of a chain of exceptions.
_TRANSPORT = "gloo/transport/tcp"


def is_peer_error(error: RankError) -> bool:
    """Whether the exception only reports that another rank or the session closed the connection."""
    if error.released:
        return True
    if error.type in _COMMUNICATION_TYPES and _BROKEN_CONNECTION.search(error.message):
        return True
    # Raised while a peer error was handled, or from a peer error.
    return _TRANSPORT in error.traceback and bool(_BROKEN_CONNECTION.search(error.traceback))


def first_of_chain(error: RankError) -> RankError | None:
    """Return the first exception of the chain that led to this one, None without a chain."""
    first, *later = _CHAIN.split(error.traceback)
    headline = _HEADLINE.search(first)
    if not later or headline is None:
        return None
    kind = headline.group(1)
    _, _, message = first.rpartition(f"\n{kind}: ")
    return RankError(
        type=kind, message=message.strip(), traceback=first, where=_innermost_of_user(first)
    )


def _innermost_of_user(traceback: str) -> Position | None:
    frames = (
        (cell or file, cell_line or line)
        for cell, cell_line, file, line in _FRAME.findall(traceback)
    )
    lines = [Position(file=file, line=int(line)) for file, line in frames if is_user_code(file)]
    return lines[-1] if lines else None


def is_timeout(error: RankError) -> bool:
    """Whether a wait ended because of its time limit."""
    return bool(_TIMEOUT.search(error.message))
