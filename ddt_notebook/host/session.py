"""A session of N ranks that keep their variables from cell to cell, and the active session."""

from __future__ import annotations

import os
import threading
import time
import tokenize
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from ..model import Cell, Snapshot
from ..model.observation import Observation
from ..wire.messages import Failed, FetchVariable
from ..wire.objects import CannotTravel, pack_for_ranks, unpack_from_rank
from . import launcher, observations
from .cell_run import CellRun
from .errors import SessionError
from .limits import (
    check_backend,
    check_framework,
    check_ranks,
    choose_ranks,
    parse_limit,
    parse_simulated,
)
from .listeners import ListenerMaker, RunListener, RunObserver, Stream, together
from .local_place import LocalPlace
from .place import Place
from .pool import PoolOptions, RankPool, group_timeout_s
from .pushed_objects import PushedObjects
from .run_result import RunResult
from .similar_cells import is_version_of
from .status import SessionStatus, session_status

#: How many cells are kept, so that their lines can be shown.
_KEPT_CELLS = 200
#: How long a thread waits for another one that starts ranks or asks them.
_THREAD_LIMIT_S = 120.0
#: The note of the first run after ``rest``.
_RESTED = (
    "the ranks were started again, because they had been stopped to free memory: run the cells "
    "again that define what you need"
)
#: The sessions of this process that still exist.
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


class Session:
    """Runs cells on ranks, each of which is a process on this machine.

    Parameters
    ----------
    n
        Number of ranks.
    backend
        Backend of the process group: ``"gloo"``, or ``"nccl"`` with one GPU for each rank.
    device
        The value of the variable ``device`` in the ranks: ``"cpu"`` (default) or ``"cuda"``.
    timeout
        The longest wait for a rank in a collective, in seconds. None: as long as PyTorch waits (30
        minutes with gloo), because a rank at work is not a hang. A cell may run for hours while it
        makes progress.
    hang_after
        When a collective can no longer complete, whatever the ranks do, it is declared hung after
        this many seconds.
    memory
        Cap on what each rank may allocate after its start, such as ``"512M"``; an allocation
        beyond it raises an exception in that rank.
    seed
        Rank r begins with the random states of this number plus r, also after a restart. By default
        they come from fresh entropy, as in processes that torchrun starts.
    group
        False leaves ``init_process_group`` to the user's cells.
    simulate
        ``"cuda:2"`` simulates two GPUs, with which a cell's device assignments can be checked.
    start_method
        ``"fork"`` (from a warm server; the default on Linux) or ``"spawn"`` (an interpreter for
        each rank; the default where CUDA is used, and on macOS).
    confined
        True lets the ranks read only Python, its libraries and the system, and write only in the
        session's folder; they can neither trace nor signal processes outside. The kernel enforces
        it (Landlock, Linux 5.13); where it cannot, this changes nothing.
    framework
        ``"tensorflow"`` prepares the ranks as workers of a TensorFlow cluster: each finds
        TensorFlow imported and its ``TF_CONFIG`` set, and no process group is formed.
    hosts
        Where the ranks run, see `ddt_notebook.host.joining`; by default on this machine.

    Raises
    ------
    SessionError
        If the ranks cannot be started; its text is one line that includes what to do.
    """

    def __init__(
        self,
        n: int = 2,
        *,
        backend: str = "gloo",
        device: str | None = None,
        timeout: float | None = None,
        hang_after: float = 2.0,
        memory: str | int | None = None,
        seed: int | None = None,
        group: bool = True,
        simulate: str | None = None,
        start_method: str | None = None,
        confined: bool = False,
        framework: str | None = None,
        hosts: Place | None = None,
    ) -> None:
        if os.name != "posix":
            raise SessionError("a session needs Linux or macOS", "on Windows use WSL2")
        if (timeout is not None and timeout <= 0) or hang_after < 0:
            raise SessionError("timeout must be above 0 and hang_after at least 0 seconds")
        if seed is not None and seed < 0:
            raise SessionError(f"seed must be a number from 0 on, not {seed}")
        if start_method not in (None, "fork", "spawn"):
            raise SessionError(f'start_method is "fork" or "spawn", not {start_method!r}')
        if framework is not None:
            check_framework(
                framework,
                on_hosts=None if hosts is None else hosts.framework,
                simulated=simulate is not None,
            )
        check_backend(backend, here=hosts is None)
        gpus = parse_simulated(simulate, backend, device)
        on_gpu = backend == "nccl" or (device or "").startswith("cuda")
        self.start_method = start_method or ("spawn" if on_gpu else launcher.default_start_method())
        if hosts is None:
            check_ranks(n, self.start_method)
        self.world_size = n
        self.backend = backend
        self.device = device or ("cuda" if backend == "nccl" else "cpu")
        if gpus:
            self.device = f"{simulate} (simulated)"
        self.timeout = timeout
        self.hang_after = hang_after
        self.framework = framework
        self.has_group = group = group and framework is None
        self.stopped = False
        #: Whether the ranks were ended until the next request; see `rest`.
        self.resting = False
        self._used_s = time.monotonic()
        self._owner = os.getpid()
        self._lock = threading.RLock()
        self.last_run: RunResult | None = None
        #: Whether the next run observes branches also where that slows the user's code.
        self.observe_branches = False
        self.pushed = PushedObjects()
        self._cells: dict[int, Cell] = {}
        #: Whether a cell has run a backward pass since the ranks were started.
        self._trained = False
        self._run: CellRun | None = None
        self._started_s = time.monotonic()
        options = PoolOptions(
            world_size=n,
            backend=backend,
            device=self.device,
            simulated_gpus=gpus,
            group=group,
            group_timeout_s=group_timeout_s(timeout, backend),
            memory=parse_limit(memory) if memory is not None else None,
            seed=seed,
            start_method=self.start_method,
            confined=confined,
            framework=framework or "",
        )
        warm = self.start_method == "fork"
        place = hosts or LocalPlace(warm=warm, framework=framework or "")
        self.pool = RankPool(options, place, self.source_line)
        try:
            self.pool.start()
        except BaseException:
            self.stop()
            raise
        if hosts is not None and all(session.stopped for session in _sessions):
            launcher.cool()  # no rank is started here
        _sessions.add(self)
        active.set(self)

    # -- start and stop ------------------------------------------------------------------------

    def restart(self) -> None:
        """Restart all ranks; their variables are lost.

        Raises
        ------
        SessionError
            If the session was stopped or runs a cell, or the ranks cannot be started.
        """
        with self._alone(self._refuse_if_running):
            self._run = None
            self._start_again()

    def rest(self) -> None:
        """End all ranks and the helpers, which frees their memory, until the next request.

        The next cell, or whatever else needs the ranks, starts new ones. Variables are lost.

        Raises
        ------
        SessionError
            If the session was stopped, runs a cell or is held in a hang.
        """
        with self._alone(wake=False):
            self.resting = True
            self.last_run = None
            self.pool.rest()
            place = self.pool.place
            others = (s for s in _sessions if s is not self and not (s.stopped or s.resting))
            if not any(s.pool.place.shares_with(place) for s in others):
                place.rest()

    def wake(self) -> None:
        """Start new ranks if `rest` has ended them.

        Raises
        ------
        SessionError
            If they cannot be started.
        """
        with self._alone():
            pass

    def _start_again(self) -> None:
        self.resting = False
        self.last_run = None
        self._cells.clear()
        self._trained = False
        self.pushed.forget()
        self._started_s = time.monotonic()
        self.pool.start()

    @property
    def idle_s(self) -> float:
        """For how long nothing has been requested of the ranks, in seconds."""
        return 0.0 if self._run is not None else time.monotonic() - self._used_s

    def stop(self) -> None:
        """End all ranks and remove the session's files; may be called again."""
        if self.stopped:
            return
        if self._inherited:
            self.stopped = True  # only here: the ranks belong to another process
            return
        # a cell that runs in another thread ends with its ranks; a start is waited for
        waited = self._run is None and self._lock.acquire(timeout=_THREAD_LIMIT_S)
        try:
            if self.stopped:
                return
            self.stopped = True
            self.pool.close()
            if active.get() is None:
                active.set(None)
        finally:
            if waited:
                self._lock.release()

    # -- cells ---------------------------------------------------------------------------------

    def run(
        self,
        source: str,
        ranks: Iterable[int] | int | None = None,
        trace: bool = False,
        *,
        timeout: float | None = None,
        freeze: bool = False,
    ) -> RunResult:
        """Run a cell on the ranks; exceptions of ranks are not raised here.

        Parameters
        ----------
        source
            Text of the cell.
        ranks
            The ranks that run it; default: all.
        trace
            Record the timeline, and add the results of all probes at the end to the snapshot. On
            Python 3.11, only such a run observes which way each rank goes, which slows the cell;
            later versions always observe it.
        timeout
            Replaces the session's timeout for this cell; None keeps it.
        freeze
            Keep a hang for inspection until `release`.

        Raises
        ------
        SessionError
            If the session is stopped, busy or held in a hang, or does not have these ``ranks``.
        """
        return self.run_cell(source, ranks, trace=trace, timeout=timeout, freeze=freeze)

    def run_cell(
        self,
        source: str,
        ranks: Iterable[int] | int | None = None,
        *,
        number: int | None = None,
        first_line: int = 1,
        trace: bool = False,
        timeout: float | None = None,
        freeze: bool = False,
        listener: RunListener | None = None,
    ) -> RunResult:
        """Run a cell for a front end that numbers its cells itself and shows output as it arrives.

        Parameters
        ----------
        source, ranks, trace, timeout, freeze
            As for `run`.
        number
            The number in ``cell[14]``; default: one more than the highest so far.
        first_line
            Line number of the first line of ``source``, as the front end shows it.
        listener
            Receives the output while the cell runs.

        Raises
        ------
        SessionError
            As for `run`.
        """
        with self._alone():
            chosen = choose_ranks(ranks, self.world_size)
            self.pool.replace_the_dead()
            cell = Cell(number=number or self._next_number, source=source, first_line=first_line)
            return self._begin(
                cell, chosen, trace=trace, timeout=timeout, freeze=freeze, listener=listener
            )

    def run_script(
        self,
        path: str | Path,
        argv: Iterable[str] = (),
        *,
        number: int | None = None,
        trace: bool = False,
        timeout: float | None = None,
        freeze: bool = False,
        keep_names: bool = False,
        replay: str = "",
        listener: RunListener | None = None,
    ) -> RunResult:
        """Run a script on all ranks as torchrun would; exceptions of ranks are not raised here.

        Each rank runs it as ``__main__``, with torchrun's environment, random states of its own,
        the script's folder first on ``sys.path``, and its project's modules reimported. No group
        is formed: the script does so itself, and its groups are destroyed at its end. Variables of
        cells stay as they are.

        Parameters
        ----------
        path
            The script, a file of Python code.
        argv
            Its arguments, without the path.
        keep_names
            Define the names of the script in the cells as well, afterwards.
        replay
            The file with what the script receives, if it runs as one rank of a recorded job.
        number, trace, timeout, freeze, listener
            As for `run_cell`.

        Raises
        ------
        SessionError
            If the file cannot be read, or as for `run`.
        """
        file = Path(path).expanduser().absolute()
        try:
            with tokenize.open(file) as opened:
                source = opened.read()
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise SessionError(f"{path}: {why}") from error
        with self._alone():
            self.pool.replace_the_dead()
            self.pool.form_group(join=False)
            cell = Cell(
                number=number or self._next_number,
                source=source,
                file=str(file),
                arguments=tuple(map(str, argv)),
            )
            return self._begin(
                cell,
                tuple(range(self.world_size)),
                trace=trace,
                timeout=timeout,
                freeze=freeze,
                listener=listener,
                keep_names=keep_names,
                replay=replay,
            )

    @property
    def _next_number(self) -> int:
        return max(self._cells, default=0) + 1

    def _begin(
        self,
        cell: Cell,
        chosen: tuple[int, ...],
        *,
        trace: bool,
        timeout: float | None,
        freeze: bool,
        listener: RunListener | None,
        keep_names: bool = False,
        replay: str = "",
    ) -> RunResult:
        """Start a cell or script and wait for its end."""
        number = cell.number
        # a script shares no names with cells
        others = [c for c in self._cells.values() if c.number != number and not c.file]
        earlier = () if cell.file else tuple(reversed(others))
        self._cells.pop(number, None)
        self._cells[number] = cell
        if len(self._cells) > _KEPT_CELLS:
            del self._cells[next(iter(self._cells))]
        is_active = active.get() is self
        self._run = CellRun(
            self.pool,
            cell,
            earlier,
            chosen,
            timeout_s=timeout or self.timeout,
            hang_after_s=self.hang_after,
            freeze=freeze,
            trace=trace,
            branches=trace or self.observe_branches,
            keep_names=keep_names,
            replay=replay,
            trained_before=self._trained and not cell.file,
            listener=together(listener, active.listeners if is_active else (), cell, chosen),
            observers=active.observers if is_active else (),
        )
        self.observe_branches = False
        self._run.start()
        return self._drive()

    def release(self) -> RunResult:
        """End a hang that ``freeze`` has kept; returns the result of the run.

        Raises
        ------
        SessionError
            If no hang is held.
        """
        with self._alone(self._refuse_if_not_held):
            assert self._run is not None
            self._run.unfreeze()
            return self._drive()

    def _drive(self) -> RunResult:
        assert self._run is not None
        run = self._run
        try:
            result = run.drive()
        finally:
            if not run.frozen:
                self._run = None
        if not result.frozen:
            result = observations.complete(self.pool, result, run.observed(), trace=run.trace)
        self._trained |= any(one.backwards for one in result.snapshot.training)
        self.last_run = result
        if active.get() is self:
            active.keep(result)
        return result

    def interrupt(self) -> None:
        """Interrupt the running cell (from another thread), or end a hang that is being held."""
        self._refuse_if_inherited()
        if self._run is None:
            return
        if self._run.frozen:
            self.release()
        else:
            self._run.interrupt()

    def freeze(self) -> None:
        """Hold the running cell as it is now (from another thread), until `release`.

        A waiting rank stays where it is. A computing rank goes on until `release` interrupts it.
        """
        if self._run is not None:
            self._run.freeze()

    # -- objects -------------------------------------------------------------------------------

    def push(
        self, ranks: Iterable[int] | int | None = None, /, **objects: object
    ) -> dict[str, int]:
        """Send objects to the ranks; returns how many bytes each took.

        Raises
        ------
        SessionError
            If an object cannot be pickled (then nothing is sent), or a rank cannot read it.
        """
        self._refuse_if_busy()
        chosen = choose_ranks(ranks, self.world_size)
        try:
            packed = {name: pack_for_ranks(name, value) for name, value in objects.items()}
        except CannotTravel as error:
            raise SessionError(str(error)) from error
        with self._alone():
            self.pushed.send(self.pool, packed, chosen, next(reversed(self._cells), 0))
        return {name: len(data) for name, data in packed.items()}

    def pull(self, name: str, rank: int = 0) -> object:
        """The value of a rank's variable: numbers, text, containers, arrays or tensors.

        Raises
        ------
        SessionError
            If there is no such variable or it is not plain data.
        """
        with self._alone():
            (chosen,) = choose_ranks(rank, self.world_size)
            answer = self.pool.command(FetchVariable(name=name), ranks=(chosen,))[chosen]
        if isinstance(answer.message, Failed):
            raise SessionError(f"rank {chosen}: {answer.message.error}")
        try:
            return unpack_from_rank(answer.payload or b"")
        except CannotTravel as error:
            raise SessionError(f"rank {chosen}: {error}") from error

    def observe(
        self, what: str | Iterable[str], names: Iterable[str] | None = None, **options: object
    ) -> dict[int, Observation]:
        """The current observations of the ranks, by rank.

        Parameters
        ----------
        what
            Names of probes, which are names of fields of `Observation`: ``"placement"``,
            ``"partition"``, ``"parity"``, ``"memory"``, ….
        names
            Variables to observe, such as ``"trainer.model"``; default: all.
        options
            Options of the probe.

        Raises
        ------
        SessionError
            If the ranks are not at their prompt, or have no such variable.
        ValueError
            If a name is not a string.
        """
        names = None if names is None else list(names)
        for name in names or ():
            if not isinstance(name, str):
                raise ValueError(f"expected the name of a variable, but got {name!r}")
        with self._alone():
            self.pool.reap()
            chosen = [what] if isinstance(what, str) else list(what)
            return observations.observe(self.pool, chosen, names, **options)

    # -- state ---------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether every rank's process runs, as the operating system reports."""
        return not (self.stopped or self.resting) and all(
            handle.process.exists for handle in self.pool.handles
        )

    @property
    def pids(self) -> list[int]:
        """Process ids of the ranks, by rank."""
        return [handle.pid for handle in self.pool.handles]

    @property
    def hosts(self) -> dict[int, str]:
        """The name of each rank's host; empty for the machine of the notebook."""
        return {handle.rank: handle.host for handle in self.pool.handles}

    def process_ids(self) -> list[int]:
        """Every process that this session uses: ranks, store and fork server."""
        return self.pool.process_ids()

    @property
    def busy(self) -> bool:
        """Whether a cell is running."""
        return self._run is not None and not self._run.frozen

    @property
    def frozen(self) -> bool:
        """Whether a hang is being held."""
        return self._run is not None and self._run.frozen

    @property
    def generation(self) -> int:
        """How often the process group has been formed."""
        return self.pool.generation

    def output_file(self, rank: int, stream: Stream) -> Path:
        """The file that contains everything that a rank has printed."""
        return self.pool.handles[rank].tails[stream].path

    def source_line(self, cell: int, line: int) -> str:
        """Text of a line of a cell that has run in this session."""
        known = self._cells.get(cell)
        return known.line(line) if known is not None else ""

    def status(self) -> SessionStatus:
        """Ask the operating system and every monitor.

        Raises
        ------
        SessionError
            If the session was stopped.
        """
        self._refuse_if_stopped()
        run = self._run
        return session_status(
            self.pool,
            running=run.unfinished if run is not None else (),
            blocked=run.blocked if run is not None and run.frozen else (),
            frozen=self.frozen,
            uptime_s=time.monotonic() - self._started_s,
        )

    # -- checks --------------------------------------------------------------------------------

    @property
    def _inherited(self) -> bool:
        """Whether this process was forked from the one that started the session."""
        return os.getpid() != self._owner

    @contextmanager
    def _alone(
        self, refuse: Callable[[], None] | None = None, *, wake: bool = True
    ) -> Iterator[None]:
        """Let one thread at a time work with the ranks.

        Parameters
        ----------
        refuse
            Raises an exception if that is not possible now; default: if the session is busy.
        wake
            Whether to start new ranks if `rest` has ended them.
        """
        check = refuse or self._refuse_if_busy
        check()
        if not self._lock.acquire(timeout=_THREAD_LIMIT_S):
            raise SessionError(
                "another thread uses the ranks", "try again when it is done", reason="busy"
            )
        try:
            check()  # the other thread may have changed that
            if self.resting and wake and refuse is None:
                self._start_again()
                self.pool.notes.append(_RESTED)
            yield
        finally:
            self._used_s = time.monotonic()
            self._lock.release()

    def _refuse_if_inherited(self) -> None:
        if self._inherited:
            raise SessionError(
                "this process was forked from the one that the ranks belong to",
                "use them there, or start a session here",
            )

    def _refuse_if_stopped(self) -> None:
        self._refuse_if_inherited()
        if self.stopped:
            raise SessionError(
                "this session was stopped", "start another with ddt.Session(4)", reason="stopped"
            )

    def _refuse_if_running(self) -> None:
        self._refuse_if_stopped()
        if self._run is not None and not self._run.frozen:
            what = f"the ranks are busy with {self._run.cell.title}"
            raise SessionError(what, "session.interrupt() ends it", reason="busy")

    def _refuse_if_not_held(self) -> None:
        self._refuse_if_stopped()
        if not self.frozen:
            raise SessionError(
                "no hang is held", "session.run(source, freeze=True) holds one", reason="not held"
            )

    def _refuse_if_busy(self) -> None:
        self._refuse_if_stopped()
        if self.frozen:
            raise SessionError(
                "the ranks are held in a hang", "session.release() ends it", reason="held"
            )
        if self.pool.failure is not None and not self.pool.place.complete:
            raise SessionError(self.pool.failure)  # restarting does not help
        if self.pool.failure is not None:
            advice = "session.restart() starts new ranks"
            raise SessionError(self.pool.failure, advice, reason="broken")
        self._refuse_if_running()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "stopped" if self.stopped else "resting" if self.resting else "ready"
        state = "held" if self.frozen else state
        return f"<Session of {self.world_size} ranks, {self.backend}, {state}>"


class ActiveSession:
    """The session that the notebook's magics use, which is the one that was started last.

    Attributes
    ----------
    observers
        Observers of the ranks' progress while cells run in it.
    listeners
        Each makes a listener for every cell that begins in it, in addition to the cell's own.
    loaded
        The run of a job or of a file that was loaded since the last cell ran; None without one.
    """

    loaded: Snapshot | None = None

    def __init__(self) -> None:
        self.observers: list[RunObserver] = []
        self.listeners: list[ListenerMaker] = []
        self._session: Session | None = None
        self._last_run: RunResult | None = None
        self._faulty_run: RunResult | None = None

    def get(self) -> Session | None:
        """The active session; None if there is none or it was stopped."""
        return None if self._session is None or self._session.stopped else self._session

    def set(self, session: Session | None) -> None:
        """Make ``session`` the active one; None for no session."""
        self._session, self.loaded = session, None

    def last_run(self) -> RunResult | None:
        """The last run in an active session, which may have ended since; None if there is none."""
        return self._last_run

    def keep(self, run: RunResult | None) -> None:
        """Make ``run`` the last run; None for no run."""
        self._last_run, self.loaded = run, None
        if run is None or self.faulty_before(run.snapshot.cell) is not None:
            self._faulty_run = None

    def faulty_run(self) -> RunResult | None:
        """The last run with findings; None if there is none or its cell was run again."""
        return self._faulty_run

    def faulty_before(self, cell: Cell) -> RunResult | None:
        """The last run with findings if ``cell`` is a version of its cell, else None."""
        faulty = self._faulty_run
        known = faulty is not None and is_version_of(cell, faulty.snapshot.cell)
        return faulty if known else None

    def keep_faulty(self, run: RunResult) -> None:
        """Make ``run`` the last run with findings."""
        self._faulty_run = run


#: The active session of this process.
active = ActiveSession()


def session_of(run: RunResult) -> Session | None:
    """The session whose last run is ``run``; None if it has run another cell or has ended."""
    return next((s for s in _sessions if s.last_run is run and not s.stopped), None)
