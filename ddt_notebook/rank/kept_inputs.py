"""Keeps what one rank of a job receives, so that the rank can be replayed without the others.

The record begins with the process and ends when it is full. A replay runs the script from its
start, so it needs the first stretch of a job, not the last one.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import platform
import queue
import random
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ..model.torch_features import REPLAY
from ..wire.objects import CannotTravel, pack_in_rank
from ..wire.rank_inputs import (
    INPUTS,
    InputReceived,
    InputsBegun,
    InputsFull,
    InputsWriter,
    RandomStates,
)
from . import torch_private
from .interception import GivenCall, Interception, content, why_not_kept
from .probes.flight import torch_version

#: Variables with these beginnings come from launchers, or change how torch computes. Others are
#: not kept, since they may hold passwords.
_VARIABLES = (
    *("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "NODE_RANK", "TORCH"),
    *("OMPI_COMM_WORLD_", "PMI_", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "ACCELERATE_"),
    *("OMP_", "MKL_", "CUBLAS_", "CUDA_VISIBLE_DEVICES", "GLOO_", "NCCL_", "PYTHONHASHSEED"),
)


def random_states() -> RandomStates:
    """The states of the random generators now."""
    _, numbers, gauss = random.getstate()
    numpy = sys.modules.get("numpy")
    torchs = torch.get_rng_state().numpy().tobytes().hex()
    if numpy is None:
        return RandomStates(torch=torchs, python=numbers, python_gauss=gauss)
    _, keys, position, has_gauss, its_gauss = numpy.random.get_state()
    return RandomStates(
        torch=torchs,
        python=numbers,
        python_gauss=gauss,
        numpy=tuple(keys.tolist()),
        numpy_position=int(position),
        numpy_gauss=float(its_gauss) if has_gauss else None,
    )


class InputsRecorder:
    """Waits in every process of a job until it becomes the rank whose inputs are kept.

    Parameters
    ----------
    asked
        The rank and the limit of its record, as ``RANK:BYTES``.
    """

    def __init__(self, asked: str) -> None:
        rank, _, limit = asked.partition(":")
        self._rank, self._limit = int(rank), int(limit)
        self._random = random_states()
        self._interception = Interception()
        self._writer: InputsWriter | None = None
        self._relays: dict[str, _Relay] = {}
        self._counts: dict[str, int] = {}
        if torch_private.available(REPLAY):
            self._interception.install()

    def begin(
        self,
        folder: Path,
        files: str,
        rank: int | None,
        world_size: int | None,
        arguments: Mapping[str, Any],
    ) -> None:
        """Begin to keep the inputs, if this process has the rank that was asked for.

        Parameters
        ----------
        folder, files
            The job's folder, and how this process' files in it begin.
        rank, world_size
            Its numbers; None if they are not known.
        arguments
            Those of ``init_process_group``.
        """
        if rank != self._rank or self._writer is not None:
            return
        self._writer = writer = InputsWriter(folder / f"{files}{INPUTS}", self._limit)
        try:
            writer.write(self._begun(world_size or 0, str(arguments.get("backend") or "gloo")))
        except (InputsFull, OSError) as error:
            self.end(str(error))
            return
        if not torch_private.available(REPLAY):
            self.end("this PyTorch lacks names that a replay needs")
            return
        self._interception.handler = self

    def leave(self) -> None:
        """Keep nothing in a child of this process."""
        self._interception.handler = None
        if self._writer is not None:
            self._writer.leave()

    def _begun(self, world_size: int, backend: str) -> InputsBegun:
        main = sys.modules["__main__"]
        script = str(getattr(main, "__file__", None) or "")
        spec = getattr(main, "__spec__", None)
        source = b""
        with suppress(OSError):
            source = Path(script).read_bytes()
        problem = ""
        if multiprocessing.parent_process() is not None:
            problem = "a process that multiprocessing has started is not replayed by its script"
        elif not script or not source:
            problem = "the process does not run a script"
        return InputsBegun(
            rank=self._rank,
            world_size=world_size,
            backend=backend.rpartition(":")[2],
            torch_version=torch_version(),
            python_version=platform.python_version(),
            threads=torch.get_num_threads(),
            script=str(Path(script).absolute()) if script else "",
            package=str(getattr(spec, "parent", "") or ""),
            arguments=tuple(map(str, sys.argv[1:])),
            directory=str(Path.cwd()),
            sys_path=tuple(map(str, sys.path)),
            source=hashlib.sha256(source).hexdigest(),
            environment={n: v for n, v in os.environ.items() if n.startswith(_VARIABLES)},
            random=self._random,
            problem=problem,
        )

    def end(self, reason: str) -> None:
        """Keep nothing more; the rank goes on."""
        self._interception.handler = None
        if self._writer is not None:
            self._writer.end(reason)

    # -- calls ---------------------------------------------------------------------------------

    def call(self, given: GivenCall, perform: Callable[[], Any]) -> Any:
        """Make a call, and keep its result."""
        __tracebackhide__ = True
        number = self._issue(given)
        try:
            result = perform()
        except BaseException as error:
            self._note_failure(number, error)
            raise
        finally:
            self._count(given.group)
        if number is None:
            return result
        if isinstance(result, dist.Work):
            if not given.received and not given.objects:  # a message that was sent
                self._keep(number, given, handle=True)
                return result
            return self._when_done(given, number, result)
        self._keep(number, given, returned=result if isinstance(result, int) else None)
        return result

    def ddp_call(self, given: GivenCall, perform: Callable[[], Any]) -> Any:
        """Make a call of DDP, and keep its result when it is there."""
        __tracebackhide__ = True
        number = self._issue(given)
        try:
            work = perform()
        except BaseException as error:
            self._note_failure(number, error)
            raise
        finally:
            self._count(given.group)
        return work if number is None else self._when_done(given, number, work)

    def elsewhere(self, op: str) -> None:
        """End the record: the order of the calls of two threads may be another one next time."""
        self.end(f"another thread called {op}")

    def _issue(self, given: GivenCall) -> int | None:
        """Write a call that begins; returns its number, None if the record has ended."""
        if self._writer is None or self._writer.ended:
            return None
        name = given.group.group_name
        count = torch_private.operation_count(given.group)
        if self._counts.get(name, count) != count:
            self.end("a library used the group in a way that is not recorded, such as DTensor")
            return None
        try:
            return self._writer.begin(given.call)
        except (InputsFull, OSError) as error:
            self.end(str(error))
            return None

    def _count(self, group: Any) -> None:
        """Note how many operations the group has got, to notice those of others."""
        with suppress(Exception):  # the call may have destroyed the group
            self._counts[group.group_name] = torch_private.operation_count(group)

    def _keep(
        self, number: int, given: GivenCall, *, handle: bool = False, returned: int | None = None
    ) -> None:
        """Write what a call has received."""
        tensors, payload, reason = given.received, list[Any](), why_not_kept(given.received)
        try:
            if reason:
                tensors = []
            elif given.objects is not None:
                payload = [pack_in_rank(given.objects)]
            else:
                payload = [content(tensor) for tensor in tensors]
        except CannotTravel as error:
            reason = str(error)
        self._write(
            InputReceived(
                call=number,
                dtypes=tuple(str(tensor.dtype).removeprefix("torch.") for tensor in tensors),
                shapes=tuple(tuple(tensor.shape) for tensor in tensors),
                handle=handle,
                returned=returned,
                not_kept=reason,
            ),
            payload,
        )

    def _note_failure(self, number: int | None, error: BaseException) -> None:
        if number is not None and isinstance(error, Exception):
            kind = type(error).__name__
            self._write(InputReceived(call=number, error=kind, message=str(error)))

    def _write(self, message: InputReceived, payload: Sequence[Any] = ()) -> None:
        try:
            if self._writer is not None:
                self._writer.write(message, payload)
        except (InputsFull, OSError) as error:
            self.end(str(error))

    # -- calls that return before they have happened -------------------------------------------

    def _when_done(self, given: GivenCall, number: int, work: Any) -> Any:
        """A handle that is done when the result has been kept."""
        future: torch.futures.Future[Any] = torch.futures.Future()
        if given.waits:  # messages may arrive in any order
            _Relay(self).take(given, number, work, future, last=True)
        else:
            known = self._relays.get(given.group.group_name)
            if known is None:
                known = self._relays[given.group.group_name] = _Relay(self)
            known.take(given, number, work, future)
        return torch_private.work_of_future(future)

    def arrived(self, given: GivenCall, number: int, error: BaseException | None) -> None:
        """Keep the result of a call that returned before it was there."""
        if error is None:
            self._keep(number, given, handle=True)
        else:
            kind = type(error).__name__
            self._write(InputReceived(call=number, handle=True, error=kind, message=str(error)))


class _Relay(threading.Thread):
    """Waits for the collectives of one group in their order, and keeps what they bring."""

    def __init__(self, recorder: InputsRecorder) -> None:
        super().__init__(name="ddt-inputs", daemon=True)
        self._recorder = recorder
        self._pending: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._runs = False

    def take(
        self, given: GivenCall, number: int, work: Any, future: Any, *, last: bool = False
    ) -> None:
        """Wait for one more; ``last`` for the only one."""
        self._pending.put((given, number, work, future))
        if last:
            self._pending.put(None)
        if not self._runs:
            self._runs = True
            self.start()

    def run(self) -> None:
        """Wait."""
        while (taken := self._pending.get()) is not None:
            given, number, work, future = taken
            try:
                work.wait()
            except Exception as error:  # noqa: BLE001  (whoever waits gets it)
                self._settle(given, number, error)
                future.set_exception(error)
            else:
                self._settle(given, number, None)
                future.set_result(given.received)
            del taken, given, work, future  # they keep tensors alive

    def _settle(self, given: GivenCall, number: int, error: BaseException | None) -> None:
        try:
            self._recorder.arrived(given, number, error)
        except Exception as problem:  # noqa: BLE001  (the job is worth more than its record)
            self._recorder.end(f"{type(problem).__name__}: {problem}")
