"""A session: N ranks that keep their variables from cell to cell."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any, Self

import psutil

from ..model import Cell, Position
from . import active, launcher
from .channel import Closed
from .errors import SessionError
from .limits import check_ranks, parse_bytes
from .listener import RunListener, SilentListener, Stream
from .objects import CannotTravel, pack_for_ranks, unpack_from_rank
from .ranks import RankHandle
from .result import RunResult
from .run import CellRun

_READY_LIMIT_S = 60.0
_FORM_LIMIT_S = 8.0
_STOP_LIMIT_S = 1.0
_ANSWER_LIMIT_S = 30.0
_KEPT_CELLS = 200
#: The backend's own limit is only a net below the session's.
_GROUP_TIMEOUT_FACTOR, _GROUP_TIMEOUT_EXTRA_S = 3, 30


@dataclass(frozen=True, slots=True)
class RankStatus:
    """One rank as the operating system and its monitor tell of it."""

    rank: int
    pid: int
    alive: bool
    state: str
    position: Position | None
    memory_bytes: int
    generation: int


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """What `Session.status` found."""

    ranks: tuple[RankStatus, ...]
    world_size: int
    backend: str
    has_group: bool
    frozen: bool
    uptime_s: float
    output_directory: Path


class Session:
    """Real processes, one for each rank, on this machine.

    Parameters
    ----------
    n
        Number of ranks.
    backend
        Of the process group: ``"gloo"``, or ``"nccl"`` with one GPU for each rank.
    device
        What the variable ``device`` is in the ranks: ``"cpu"`` (default) or ``"cuda"``.
    timeout
        The longest that a rank is waited for in a collective, in seconds. A cell may run for hours
        while it makes progress.
    hang_after
        When a collective can no longer complete, it is declared hung after this many seconds.
    memory
        Cap on what each rank may allocate beyond its start, such as ``"512M"``; going over it is
        an exception in that rank.
    group
        False leaves ``init_process_group`` to the user's cells.
    start_method
        ``"fork"`` (from a warm server; the default on Linux) or ``"spawn"`` (an interpreter for
        each rank; where CUDA is used, and elsewhere than on Linux).

    Raises
    ------
    SessionError
        If the ranks cannot be started; one line that says what to do.
    """

    def __init__(
        self,
        n: int = 2,
        *,
        backend: str = "gloo",
        device: str | None = None,
        timeout: float = 10.0,
        hang_after: float = 2.0,
        memory: str | int | None = None,
        group: bool = True,
        start_method: str | None = None,
    ) -> None:
        if os.name != "posix":
            raise SessionError("sessions need Linux or macOS; on Windows use WSL2")
        if timeout <= 0 or hang_after < 0:
            raise SessionError("timeout must be above 0 and hang_after at least 0 seconds")
        if start_method not in (None, "fork", "spawn"):
            raise SessionError(f'start_method is "fork" or "spawn", not {start_method!r}')
        on_gpu = backend == "nccl" or (device or "").startswith("cuda")
        default_method = "spawn" if on_gpu else launcher.default_start_method()
        self.start_method = start_method or default_method
        check_ranks(n, self.start_method)
        self.world_size = n
        self.backend = backend
        self.device = device or ("cuda" if backend == "nccl" else "cpu")
        self.timeout = timeout
        self.hang_after = hang_after
        self.memory = parse_bytes(memory) if memory is not None else None
        self.has_group = group
        self.generation = 0
        self.stopped = False
        self.last_run: RunResult | None = None
        self.torch_version = ""
        self.flight_available = True
        self.notes: list[str] = []
        self.handles: list[RankHandle] = []
        self._cells: dict[int, Cell] = {}
        self._run: CellRun | None = None
        self._started_s = time.monotonic()
        self._directory = Path(tempfile.mkdtemp(prefix="ddt-"))
        self._server = launcher.server(warm=self.start_method == "fork")
        self._store_pid = 0
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        active.set(self)

    # -- life ----------------------------------------------------------------------------------

    def _start(self) -> None:
        store = self._server.request({"do": "store"})
        self._store_pid, self._port = store["pid"], store["port"]
        self.handles = [self._start_rank(rank) for rank in range(self.world_size)]
        self._await_ready()
        self.form_group()

    def _start_rank(self, rank: int) -> RankHandle:
        spec = {
            "rank": rank,
            "world_size": self.world_size,
            "directory": str(self._directory),
            "port": self._port,
            "backend": self.backend,
            "device": self.device,
            "group": self.has_group,
            "group_timeout_s": self.group_timeout_s,
            "memory": self.memory,
            "cwd": os.getcwd(),
            "sys_path": sys.path,
            "environ": _users_environment(),
        }
        return RankHandle(self._server, fork=self.start_method == "fork", spec=spec)

    def _await_ready(self) -> None:
        waiting = [handle for handle in self.handles if not handle.ready]
        deadline = time.monotonic() + _READY_LIMIT_S
        while waiting:
            self.reap()
            for handle in waiting:
                if not handle.alive:
                    said = handle.tails["stderr"].read_all().strip().splitlines()
                    raise SessionError(
                        f"rank {handle.rank} ended while starting: "
                        f"{said[-1] if said else f'exit status {handle.exit_status}'}"
                    )
                if handle.commands.poll():
                    with suppress(Closed):
                        handle.became_ready(handle.commands.receive(), self.source_line)
                        self.torch_version = handle.torch_version
                        self.flight_available &= handle.flight_available
            waiting = [handle for handle in waiting if not handle.ready]
            if time.monotonic() > deadline:
                raise SessionError(f"rank {waiting[0].rank} did not start in {_READY_LIMIT_S:.0f} s")
            wait_for([handle.commands for handle in waiting], timeout=0.1)

    def form_group(self) -> None:
        """Form the group under a fresh prefix; a rank that cannot join is replaced once."""
        for attempt in range(2):
            self.generation += 1
            prefix = f"ddt/{self.generation}/{secrets.token_hex(16)}"
            what = {"do": "form", "prefix": prefix, "generation": self.generation}
            answers = self.command_all(what, limit_s=_FORM_LIMIT_S)
            for handle in self.handles:
                if handle.recorder is not None:
                    handle.recorder.new_generation()
            bad = {r: a["error"] for r, a in answers.items() if "error" in a}
            if not bad:
                self.notes += sorted({note for a in answers.values() for note in a["notes"]})
                return
            if attempt:
                rank, text = next(iter(bad.items()))
                raise SessionError(f"the process group could not be formed: rank {rank}: {text}")
            unanswered = [rank for rank, text in bad.items() if text.startswith("no answer")]
            self.replace(unanswered)

    def replace(self, ranks: Iterable[int]) -> dict[int, list[str]]:
        """Start new processes for these ranks; returns the names of the variables each lost."""
        lost = {}
        for rank in ranks:
            old = self.handles[rank]
            lost[rank] = old.names
            old.signal(signal.SIGKILL)
            old.close()
            self.handles[rank] = self._start_rank(rank)
        self._await_ready()
        return lost

    def restart(self) -> None:
        """Start all ranks anew; their variables are lost."""
        self._refuse_if_stopped()
        self._end_ranks()
        self._run = None
        self.last_run = None
        self._cells.clear()
        if not self._server.usable:
            self._server = launcher.server(warm=self.start_method == "fork")
        self._directory.mkdir(mode=0o700, exist_ok=True)
        self._start()

    def stop(self) -> None:
        """End all ranks and remove the session's files; twice does no harm."""
        if self.stopped:
            return
        self.stopped = True
        self._end_ranks()
        if self._server.usable:
            with suppress(SessionError):
                self._server.request({"do": "remove", "directory": str(self._directory)})
        shutil.rmtree(self._directory, ignore_errors=True)
        if active.get() is None:
            active.set(None)

    def _end_ranks(self) -> None:
        handles = self.handles
        for handle in handles:
            handle.command({"do": "exit"})
        self._await_ends(handles, _STOP_LIMIT_S)
        for handle in handles:
            handle.signal(signal.SIGCONT)
            handle.signal(signal.SIGKILL)
        self._await_ends(handles, _STOP_LIMIT_S)
        for handle in handles:
            handle.close()
        if self._store_pid:
            with suppress(ProcessLookupError):
                os.kill(self._store_pid, signal.SIGKILL)
            self._store_pid = 0
        self.handles = []

    def _await_ends(self, handles: list[RankHandle], limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while any(handle.alive for handle in handles) and time.monotonic() < deadline:
            if not self._server.usable:
                return
            wait_for([self._server], timeout=0.05)
            self.reap()

    def reap(self) -> None:
        """Note which ranks have ended."""
        by_pid = {handle.pid: handle for handle in self.handles}
        for pid, status in self._server.deaths():
            if pid in by_pid:
                by_pid[pid].exit_status = status
            elif pid == self._store_pid:
                self._store_pid = 0
        if not self._server.usable:
            for handle in self.handles:
                if handle.exit_status is None:
                    handle.exit_status = -signal.SIGKILL

    # -- cells ---------------------------------------------------------------------------------

    def run(
        self,
        source: str,
        ranks: Iterable[int] | int | None = None,
        trace: bool = False,
        *,
        timeout: float | None = None,
        freeze: bool = False,
        cell: int | None = None,
        first_line: int = 1,
        listener: RunListener | None = None,
    ) -> RunResult:
        """Run a cell on the ranks; never raises for what a rank did.

        Parameters
        ----------
        source
            Text of the cell.
        ranks
            Where to run it; default: everywhere.
        trace
            Reserved for timeline and memory by kind; the other probes are always on.
        timeout
            Instead of the session's, for this cell.
        freeze
            Keep a hang for inspection until `release`.
        cell, first_line
            The number in ``cell[14]`` and the line number of the source's first line, as the
            notebook shows them; default: the session's own count, and 1.
        listener
            Is told of output while the cell runs.

        Raises
        ------
        SessionError
            If the session is stopped, busy or held in a hang, or ``ranks`` is no choice of ranks.
        """
        self._refuse_if_busy()
        chosen = self._choose(ranks)
        self._replace_the_dead()
        number = cell if cell is not None else max(self._cells, default=0) + 1
        ran = Cell(number=number, source=source, first_line=first_line)
        earlier = tuple(reversed([c for c in self._cells.values() if c.number != number]))
        self._cells.pop(number, None)
        self._cells[number] = ran
        if len(self._cells) > _KEPT_CELLS:
            del self._cells[next(iter(self._cells))]
        self._run = CellRun(
            self,
            ran,
            earlier,
            chosen,
            timeout_s=timeout or self.timeout,
            freeze=freeze,
            listener=listener or SilentListener(),
        )
        return self._drive()

    def release(self) -> RunResult:
        """End a hang that was kept by ``freeze``; returns the run with how it ended."""
        if self._run is None or not self._run.frozen:
            raise SessionError("no hang is being held; %%ddt --freeze holds one")
        self._run.unfreeze()
        return self._drive()

    def _drive(self) -> RunResult:
        assert self._run is not None
        try:
            self.last_run = self._run.drive()
        finally:
            if not self._run.frozen:
                self._run = None
        return self.last_run

    def interrupt(self) -> None:
        """Interrupt the running cell (from another thread), or end a hang that is being held."""
        if self._run is None:
            return
        if self._run.frozen:
            self.release()
        else:
            self._run.interrupt()

    # -- objects -------------------------------------------------------------------------------

    def push(self, ranks: Iterable[int] | int | None = None, /, **objects: object) -> dict[str, int]:
        """Send objects to the ranks; returns how many bytes each took.

        Raises
        ------
        SessionError
            If an object cannot be pickled (nothing is sent then), or a rank cannot read it.
        """
        self._refuse_if_busy()
        chosen = self._choose(ranks)
        try:
            packed = {name: pack_for_ranks(name, value) for name, value in objects.items()}
        except CannotTravel as error:
            raise SessionError(str(error)) from error
        for name, data in packed.items():
            answers = self.command_all({"do": "push", "name": name}, data, ranks=chosen)
            for rank, answer in answers.items():
                if "error" in answer:
                    raise SessionError(f"rank {rank} could not take {name!r}: {answer['error']}")
        return {name: len(data) for name, data in packed.items()}

    def pull(self, name: str, rank: int = 0) -> object:
        """A rank's variable: numbers, text, containers, arrays and tensors.

        Raises
        ------
        SessionError
            If there is no such variable or it is not plain data.
        """
        self._refuse_if_busy()
        (chosen,) = self._choose(rank)
        answer = self.command_all({"do": "pull", "name": name}, ranks=(chosen,))[chosen]
        if "error" in answer:
            raise SessionError(f"rank {chosen}: {answer['error']}")
        try:
            return unpack_from_rank(answer["payload"])
        except CannotTravel as error:
            raise SessionError(f"rank {chosen}: {error}") from error

    def command_all(
        self,
        what: dict[str, Any],
        payload: bytes | None = None,
        *,
        ranks: Iterable[int] | None = None,
        limit_s: float = _ANSWER_LIMIT_S,
    ) -> dict[int, dict[str, Any]]:
        """Send a command to ranks that wait for one, and collect their answers within a limit."""
        handles = [self.handles[r] for r in (range(self.world_size) if ranks is None else ranks)]
        numbers = {handle.rank: handle.command(what, payload) for handle in handles}
        answers: dict[int, dict[str, Any]] = {}
        deadline = time.monotonic() + limit_s
        while len(answers) < len(handles):
            waiting = [handle for handle in handles if handle.rank not in answers]
            ready = wait_for([h.commands for h in waiting] + [self._server], timeout=0.1)
            for handle in waiting:
                if handle.commands in ready:
                    with suppress(Closed):
                        message = handle.commands.receive()
                        if message.get("reply") == numbers[handle.rank]:
                            answers[handle.rank] = message
            self.reap()
            late = time.monotonic() > deadline
            for handle in waiting:
                if handle.rank not in answers and (late or not handle.alive):
                    answers[handle.rank] = {"error": f"no answer within {limit_s:.0f} s"}
        return answers

    # -- state ---------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether every rank's process runs, as the operating system says."""
        return not self.stopped and all(psutil.pid_exists(pid) for pid in self.pids)

    @property
    def pids(self) -> list[int]:
        """Process ids of the ranks, by rank."""
        return [handle.pid for handle in self.handles]

    def process_ids(self) -> list[int]:
        """Every process that this session uses: ranks, store and fork server."""
        return [*self.pids, *filter(None, [self._store_pid]), self._server.pid]

    @property
    def busy(self) -> bool:
        """Whether a cell is running."""
        return self._run is not None and not self._run.frozen

    @property
    def frozen(self) -> bool:
        """Whether a hang is being held."""
        return self._run is not None and self._run.frozen

    @property
    def group_timeout_s(self) -> float:
        """The limit that the backend itself is given."""
        return self.timeout * _GROUP_TIMEOUT_FACTOR + _GROUP_TIMEOUT_EXTRA_S

    @property
    def server(self) -> launcher.ForkServerHandle:
        """The fork server."""
        return self._server

    @property
    def run_number(self) -> int | None:
        """Number of the cell that runs, None if none does."""
        return self._run.cell.number if self._run is not None else None

    def output_file(self, rank: int, stream: Stream) -> Path:
        """The file that holds all that a rank has printed."""
        return self.handles[rank].tails[stream].path

    def source_line(self, cell: int, line: int) -> str:
        """Text of a line of a cell that ran in this session."""
        known = self._cells.get(cell)
        return known.line(line) if known is not None else ""

    def status(self) -> SessionStatus:
        """Ask the operating system and every monitor."""
        self._refuse_if_stopped()
        self.reap()
        for handle in self.handles:
            handle.ask("status")
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            waiting = [h for h in self.handles if h.alive and h.silent_s > 0]
            if not waiting:
                break
            for channel in wait_for([h.questions for h in waiting], timeout=0.1):
                handle = next(h for h in waiting if h.questions is channel)
                with suppress(Closed):
                    handle.take_answer(handle.questions.receive())
        return SessionStatus(
            ranks=tuple(self._rank_status(handle) for handle in self.handles),
            world_size=self.world_size,
            backend=self.backend,
            has_group=self.has_group,
            frozen=self.frozen,
            uptime_s=time.monotonic() - self._started_s,
            output_directory=self._directory,
        )

    def _rank_status(self, handle: RankHandle) -> RankStatus:
        busy = self._run is not None and handle.rank in self._run.unfinished
        if not handle.alive:
            state = "died"
        elif handle.stopped:
            state = "stopped"
        elif handle.silent_s > 0:
            state = "silent"
        elif busy:
            state = "blocked" if self.frozen else "running"
        else:
            state = "ready"
        return RankStatus(
            rank=handle.rank,
            pid=handle.pid,
            alive=handle.alive and psutil.pid_exists(handle.pid),
            state=state,
            position=handle.status.position if busy and handle.status else None,
            memory_bytes=handle.status.memory_bytes if handle.status else 0,
            generation=self.generation,
        )

    # -- checks --------------------------------------------------------------------------------

    def _choose(self, ranks: Iterable[int] | int | None) -> tuple[int, ...]:
        if ranks is None:
            return tuple(range(self.world_size))
        chosen = sorted({ranks} if isinstance(ranks, int) else set(ranks))
        if not chosen:
            raise SessionError("no rank was chosen: leave ranks out to run on all")
        for rank in chosen:
            if isinstance(rank, bool) or not isinstance(rank, int):
                raise SessionError(f"{rank!r} is no rank number")
            if not 0 <= rank < self.world_size:
                raise SessionError(
                    f"there is no rank {rank}: this session has ranks 0 to {self.world_size - 1}"
                )
        return tuple(chosen)

    def _refuse_if_stopped(self) -> None:
        if self.stopped:
            raise SessionError("this session was stopped: %ddt_start begins a new one")

    def _refuse_if_busy(self) -> None:
        self._refuse_if_stopped()
        if self.frozen:
            raise SessionError("the ranks are held in a hang: %ddt_release ends it, then go on")
        if self._run is not None:
            raise SessionError(
                f"the ranks are busy with cell[{self._run.cell.number}]: interrupt it first"
            )

    def _replace_the_dead(self) -> None:
        """Ranks that died between cells (killed from outside) are replaced before the next one."""
        self.reap()
        dead = [handle.rank for handle in self.handles if not handle.alive]
        if dead and not self._server.usable:
            raise SessionError("the ranks were killed from outside: %ddt_restart starts them anew")
        if dead:
            lost = self.replace(dead)
            self.form_group()
            for rank, names in lost.items():
                what = f": {', '.join(names)} lost" if names else ""
                self.notes.append(f"rank {rank} had died and was replaced{what}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "stopped" if self.stopped else "held" if self.frozen else "ready"
        return f"<Session of {self.world_size} ranks, {self.backend}, {state}>"


def _users_environment() -> dict[str, str]:
    """The notebook's environment, less what a rank must keep as its parent process had it."""
    kept = ("OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "TORCH_", "MPLBACKEND")
    return {name: value for name, value in os.environ.items() if not name.startswith(kept)}
