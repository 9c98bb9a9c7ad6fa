"""Records the ranks of a job of Horovod, which ``horovodrun`` or a person has started.

Here Horovod meets and waits by itself, as it would without a recorder. A process becomes a rank
when it calls ``hvd.init()``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..user_signals import let_through
from .horovod import PACKAGE, Horovod, _Form

_RANK, _SIZE = "HOROVOD_RANK", "HOROVOD_SIZE"
_OTHER_PLACE = (
    "Horovod was initialised again and gave this process another place among its ranks: what it "
    "did from then on is not recorded"
)


class HorovodJob(Horovod):
    """Horovod in a process of a job, which is recorded and not changed.

    Parameters
    ----------
    become_rank
        Is called with what a rank of ``torch.distributed`` would give ``init_process_group``.
    """

    def __init__(self, become_rank: Callable[[dict[str, Any]], object]) -> None:
        super().__init__()
        self._become_rank = become_rank
        self._is_rank = False
        self._notes: list[str] = []

    def take_notes(self) -> list[str]:
        """Notes for the user since the last call."""
        notes, self._notes = self._notes, []
        return notes

    # -- what passes through Horovod's library --------------------------------------------------

    def initialised(self, members: Sequence[int], function: Callable[[], Any], plain: bool) -> Any:
        """Make this process a rank, record ``hvd.init()`` and make it."""
        __tracebackhide__ = True
        assert self._calls is not None
        if self._library is None or self._library.is_initialised():
            return function()
        rank, size = _number(_RANK), _number(_SIZE)
        if rank is None or size is None:  # only Horovod will know, once it has asked MPI
            result = function()
        else:
            self._begin(rank, size)
            result = self._calls.record(self._record_of_init(members), function, PACKAGE)
        place = self._library.place()
        self._begin(*place)
        if place != (self._rank, self._world_size):  # an elastic job has lost or got ranks
            self._notes.append(_OTHER_PLACE)
            self._calls.detach()
        return result

    def _begin(self, rank: int, size: int) -> None:
        """Become a rank, unless this process is one."""
        if not self._is_rank:
            self._is_rank = True
            self._rank, self._world_size = rank, size
            self._become_rank({"rank": rank, "world_size": size})

    def _form(self, op: str, args: Sequence[Any]) -> tuple[_Form, Sequence[torch.Tensor]] | None:
        try:
            return super()._form(op, args)
        except Exception as error:  # noqa: BLE001  (the call itself may succeed)
            assert self._calls is not None
            let_through(error)
            self._calls.problem = f"{type(error).__name__}: {error}"
            return None

    def _taken(self, handle: int, poll: Callable[[int], int], wait: Callable[[int], Any]) -> Any:
        return wait(handle)


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else None
