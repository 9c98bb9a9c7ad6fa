"""Starts, groups, replaces and ends the processes of a session: its ranks and its store."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any

from ..model import RankReport
from ..model.clock import Clock
from ..model.torch_features import MissingFeature
from ..wire.channel import Closed
from ..wire.messages import (
    CutSockets,
    EndRank,
    Envelope,
    Failed,
    FormGroup,
    GroupFormed,
    Message,
    RankReady,
    RankSpec,
)
from . import limits, surroundings
from .call_log_reader import SourceLine
from .errors import SessionError
from .local_place import LocalPlace
from .place import HostProcess, Place, StartedStore
from .rank_handle import RankHandle
from .source_files import SourceFiles

_READY_LIMIT_S = 60.0
_FORM_LIMIT_S = 8.0
_STOP_LIMIT_S = 1.0
_ANSWER_LIMIT_S = 30.0
#: The fork server reports an end within milliseconds, and later on a busy machine.
_REPORT_LIMIT_S = 5.0
#: How long PyTorch waits in a collective by default (``torch.distributed.constants``).
_PYTORCH_S, _PYTORCH_NCCL_S = 1800.0, 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """The options that all ranks have in common.

    Attributes
    ----------
    world_size, backend, device
        See `Session`.
    simulated_gpus
        How many GPUs are simulated; 0 for none.
    group
        False leaves the group to the user's cells.
    group_timeout_s
        The timeout of the backend itself, in seconds.
    memory
        Cap on what each rank may allocate, in bytes.
    seed
        Where the random states of the ranks begin; see `Session`.
    start_method
        ``"fork"`` or ``"spawn"``.
    confined
        Whether the kernel keeps the ranks from the user's files; see `Session`.
    framework
        The framework for which the ranks are prepared; empty for none.
    """

    world_size: int
    backend: str
    device: str
    simulated_gpus: int
    group: bool
    group_timeout_s: float
    memory: int | None
    seed: int | None
    start_method: str
    confined: bool
    framework: str = ""


@dataclass(frozen=True, slots=True)
class HostVersions:
    """The versions that the ranks of a host have; empty if they are not known."""

    host: str
    python: str
    torch: str


class RankPool:
    """The ranks of a session.

    Parameters
    ----------
    options
        Their options.
    place
        Where they run.
    source_line
        Returns the text of a line of a cell.
    """

    def __init__(self, options: PoolOptions, place: Place, source_line: SourceLine) -> None:
        self.options = options
        #: The fork server makes it, so that it removes it whenever the notebook is killed.
        self.directory = Path(surroundings.temporary_folder(), f"ddt-{secrets.token_hex(8)}")
        self.handles: list[RankHandle] = []
        self.generation = 0
        self.notes: list[str] = []
        self.failure: str | None = None
        self.source_files = SourceFiles()
        #: Names of variables that each rank lost when it was replaced.
        self._lost: dict[int, set[str]] = {}
        self._source_line = source_line
        self._store: StartedStore | None = None
        self.place = place

    def start(self) -> None:
        """End the ranks that run, start the store and all ranks, and form the group.

        Raises
        ------
        SessionError
            If one of these steps fails.
        """
        with self._changing("the start of the ranks"):
            self.end_ranks()
            self.place.open()
            self.place.make_directory(self.directory)
            self.notes.clear()
            self._lost.clear()
            self.source_files.forget()
            self._store = self.place.start_store(self.directory)
            self._start_ranks()
            self._await_ready()
            self.form_group()

    @contextmanager
    def _changing(self, what: str) -> Iterator[None]:
        """Note why the ranks cannot run a cell, if this is left before its end."""
        self.failure = f"{what} was interrupted"
        try:
            yield
        except SessionError as error:
            if not error.advice:
                error = _with_advice(error)
            self.failure = str(error)
            raise error from error.__cause__
        self.failure = None

    def _start_ranks(self) -> None:
        """Start all ranks, on several machines at the same time."""
        ranks = range(self.options.world_size)
        if self.place.machines == 1:
            for rank in ranks:
                self.handles.append(self._start_rank(rank))
            return
        # imports `queue`, of which a local session's folder may have another one
        from concurrent.futures import ThreadPoolExecutor, wait

        starters = ThreadPoolExecutor(self.place.machines, "ddt-start")
        try:
            started = [starters.submit(self._start_rank, rank) for rank in ranks]
            wait(started)
        finally:  # an interrupt does not wait for them: the place ends what they start
            starters.shutdown(wait=False, cancel_futures=True)
        # those that have started are ended if another one has not
        self.handles += [one.result() for one in started if one.exception() is None]
        for one in started:
            one.result()

    def _start_rank(self, rank: int) -> RankHandle:
        if not self.directory.exists():  # such as after `rm -r /tmp/*`
            self.place.make_directory(self.directory)
        options = self.options
        assert self._store is not None
        spec = RankSpec(
            rank=rank,
            world_size=options.world_size,
            local_rank=rank,
            local_world_size=options.world_size,
            directory=str(self.directory),
            store_address=self._store.address,
            port=self._store.port,
            backend=options.backend,
            device=options.device,
            simulated_gpus=options.simulated_gpus,
            group=options.group,
            group_timeout_s=options.group_timeout_s,
            memory=options.memory,
            seed=options.seed,
            confined=options.confined,
            framework=options.framework,
        )
        started = self.place.start_rank(spec, fork=options.start_method == "fork")
        return RankHandle(rank, started)

    def _await_ready(self) -> None:
        waiting = [handle for handle in self.handles if not handle.ready]
        deadline = time.monotonic() + _READY_LIMIT_S
        while waiting:
            self.reap()
            for handle in waiting:
                self._take_start(handle)
            waiting = [handle for handle in waiting if not handle.ready]
            if waiting and time.monotonic() > deadline:
                raise SessionError(
                    f"rank {waiting[0].rank} did not start within {_READY_LIMIT_S:.0f} s"
                )
            channels: list[Any] = [handle.commands for handle in waiting]
            wait_for(channels, timeout=0.1)

    def _take_start(self, handle: RankHandle) -> None:
        """Process the first message of a rank that starts, or the end of its process."""
        first: Message | None = None
        if handle.commands.poll():
            with suppress(Closed):
                first = handle.commands.receive().message
        if isinstance(first, RankReady):
            handle.became_ready(first, self._source_line)
        elif isinstance(first, Failed):
            raise SessionError(f"rank {handle.rank} could not start: {first.error}")
        elif not handle.alive:
            said = handle.tails["stderr"].read_all().strip().splitlines()
            why = said[-1] if said else f"exit status {handle.exit_status}"
            raise SessionError(f"rank {handle.rank} ended while starting: {why}")

    def form_group(self, *, join: bool = True) -> None:
        """Form the group under a new prefix; ranks that do not answer are replaced once.

        Parameters
        ----------
        join
            False only to leave all groups, before a script that forms its own.

        Raises
        ------
        SessionError
            If it cannot be formed.
        """
        with self._changing("the forming of the process group"):
            self._form_group(join=join)

    def _form_group(self, *, join: bool) -> None:
        self.reap()
        if self._store is None:  # killed from outside
            self._store = self.place.start_store(self.directory)
        for attempt in range(2):
            self.generation += 1
            prefix = f"ddt/{self.generation}/{secrets.token_hex(16)}"
            port = self._store.port
            form = FormGroup(prefix=prefix, generation=self.generation, port=port, join=join)
            answers = self.command(form, limit_s=_FORM_LIMIT_S, together=True)
            for handle in self.handles:
                if handle.recorder is not None:
                    handle.recorder.new_generation()
            failed = {r: a.message for r, a in answers.items() if isinstance(a.message, Failed)}
            if not failed:
                formed = [a.message for a in answers.values() if isinstance(a.message, GroupFormed)]
                self.notes += sorted({note for message in formed for note in message.notes})
                return
            full = [rank for rank, answer in failed.items() if answer.reason == "memory"]
            if attempt or full:
                rank = (full or list(failed))[0]
                local = isinstance(self.place, LocalPlace)
                raise SessionError(
                    f"the process group of {len(self.handles)} ranks could not be formed: "
                    f"rank {rank}: {failed[rank].error}",
                    "" if full or not local else limits.fewer_ranks(len(self.handles)),
                )
            self.replace(rank for rank, answer in failed.items() if answer.reason == "no answer")

    def renew(self, dead: Iterable[int]) -> dict[int, list[str]]:
        """Replace dead ranks and form the group again after a run; returns the result of `replace`.

        If that fails, ``failure`` contains the reason, and the ranks must be restarted.
        """
        try:
            with self._changing("the replacement of ranks"):
                lost = self.replace(dead)
                self.form_group()
        except SessionError:
            return {rank: [] for rank in dead}
        return lost

    def replace(self, ranks: Iterable[int]) -> dict[int, list[str]]:
        """Start new processes for these ranks; returns the names of variables that each lost."""
        lost = {}
        for rank in ranks:
            old = self.handles[rank]
            lost[rank] = list(old.names)
            self._lost.setdefault(rank, set()).update(old.names)
            old.signal(signal.SIGKILL)
            old.close()
            self.handles[rank] = self._start_rank(rank)
        self._await_ready()
        return lost

    def missed(self, reports: Iterable[RankReport]) -> list[str]:
        """Notes on variables that ranks lacked because they had been replaced."""
        found = []
        for report in reports:
            name = report.error.undefined_name if report.error is not None else ""
            if name in self._lost.get(report.rank, ()):
                found.append(
                    f"rank {report.rank} lost {name} when it was replaced: run the cell that "
                    f"makes it once more on all ranks, or push it to all of them (%ddt_push {name})"
                )
        return found

    def replace_the_dead(self) -> None:
        """Replace ranks that died between cells (killed from outside), before the next one.

        Raises
        ------
        SessionError
            If there is no fork server to start them.
        """
        self._await_reports()
        dead = [handle.rank for handle in self.handles if not handle.alive]
        if dead and not self.place.usable:
            advice = "session.restart() starts new ranks"
            raise SessionError("the ranks were killed from outside", advice, reason="broken")
        if dead:
            with self._changing("the replacement of ranks"):
                lost = self.replace(dead)
                self.form_group()
            for rank, names in lost.items():
                what = f": {', '.join(names)} lost" if names else ""
                self.notes.append(f"rank {rank} had died and was replaced{what}")

    def command(
        self,
        message: Message,
        payload: bytes | None = None,
        *,
        ranks: Iterable[int] | None = None,
        limit_s: float = _ANSWER_LIMIT_S,
        together: bool = False,
    ) -> dict[int, Envelope]:
        """Send a command to ranks at their prompt, and collect their answers within a limit.

        A rank that died or took too long gets a `Failed` answer with reason ``"no answer"``. With
        ``together``, the ranks wait for each other: if one fails, the others are freed.
        """
        handles = self.handles if ranks is None else [self.handles[rank] for rank in ranks]
        numbers = {handle.rank: handle.command(message, payload) for handle in handles}
        answers: dict[int, Envelope] = {}
        deadline = time.monotonic() + limit_s
        while len(answers) < len(handles):
            waiting = [handle for handle in handles if handle.rank not in answers]
            waited: list[Any] = [self.place, *(h.commands for h in waiting)]
            ready: list[Any] = wait_for(waited, timeout=0.1)
            for handle in waiting:
                if handle.commands in ready:
                    with suppress(Closed):
                        answer = handle.receive(handle.commands)
                        if answer.number == numbers[handle.rank]:
                            answers[handle.rank] = answer
            self.reap()
            if together and any(isinstance(a.message, Failed) for a in answers.values()):
                for handle in waiting:
                    handle.ask(CutSockets())
            over = time.monotonic() > deadline
            for handle in waiting:
                if handle.rank not in answers and (over or not handle.alive):
                    text = "it died" if not handle.alive else f"no answer within {limit_s:.0f} s"
                    answers[handle.rank] = Envelope(Failed(error=text, reason="no answer"))
        return answers

    def reap(self) -> None:
        """Note which processes have ended."""
        by_process = {_key(handle.process): handle for handle in self.handles}
        store = [self._store.process] if self._store is not None else []
        if not by_process and not store:
            return  # at rest, when the fork server may have ended, too
        processes = [*(handle.process for handle in self.handles), *store]
        for process, status in self.place.ended(processes).items():
            if process in by_process:
                by_process[process].exit_status = status
            else:
                self._store = None
        if not self.place.usable:  # its children ended with it
            for handle in self.handles:
                if handle.exit_status is None:
                    handle.exit_status = -signal.SIGKILL

    def _await_reports(self) -> None:
        """Wait until the fork server has reported the end of each rank that has ended."""
        self.reap()
        deadline = time.monotonic() + _REPORT_LIMIT_S
        while any(handle.ending for handle in self.handles):
            if time.monotonic() > deadline:
                return
            wait_for([self.place.fileno()], timeout=0.05)
            self.reap()

    def end_ranks(self) -> None:
        """End every rank and the store."""
        for handle in self.handles:
            handle.command(EndRank())
        self._await_ends()
        for handle in self.handles:
            handle.signal(signal.SIGCONT)
            handle.signal(signal.SIGKILL)
        self._await_ends()
        for handle in self.handles:
            handle.close()
        if self._store is not None:
            self._store.process.signal(signal.SIGKILL)
            self._store = None
        self.handles = []

    def rest(self) -> None:
        """End every rank and the store until `start`; this counts as another generation."""
        self.end_ranks()
        self.generation += 1

    def close(self) -> None:
        """End everything and remove the session's files."""
        self.end_ranks()
        self.place.remove_directory(self.directory)
        self.place.close()

    def _await_ends(self) -> None:
        deadline = time.monotonic() + _STOP_LIMIT_S
        while any(handle.alive for handle in self.handles) and time.monotonic() < deadline:
            wait_for([self.place.fileno()], timeout=0.05)
            self.reap()

    @property
    def missing_features(self) -> tuple[MissingFeature, ...]:
        """The features that are off on any rank, each once."""
        return tuple(dict.fromkeys(m for h in self.handles for m in h.missing_features))

    @property
    def versions(self) -> tuple[HostVersions, ...]:
        """The versions on each host, in the order of the ranks."""
        return tuple(
            dict.fromkeys(
                HostVersions(handle.host, handle.python_version, handle.torch_version)
                for handle in self.handles
            )
        )

    @property
    def clocks(self) -> Mapping[int, Clock]:
        """The clock of each rank's host."""
        return {handle.rank: handle.clock for handle in self.handles}

    def process_ids(self) -> list[int]:
        """Process ids of ranks, store and fork server, as far as they run on this machine."""
        processes = [handle.process for handle in self.handles]
        processes += [self._store.process] if self._store is not None else []
        return [*(p.pid for p in processes if not p.host), *self.place.process_ids()]


def group_timeout_s(timeout_s: float | None, backend: str) -> float:
    """The limit of the process group itself.

    Parameters
    ----------
    timeout_s
        The session's limit, which is shorter and ends a wait before that of the group; None for
        PyTorch's own.
    backend
        Name of the backend, on which PyTorch's limit depends.
    """
    if timeout_s is not None:
        return 3 * timeout_s + 30
    return _PYTORCH_NCCL_S if "nccl" in backend else _PYTORCH_S


def _with_advice(error: SessionError) -> SessionError:
    advice = surroundings.advice(error.fact)
    return SessionError(error.fact, advice, reason=error.reason, fitting_ranks=error.fitting_ranks)


def _key(process: HostProcess) -> tuple[str, int]:
    return process.host, process.pid
