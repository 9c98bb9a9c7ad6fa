"""Records a rank of a job that was started in a shell; ``ddt-notebook run`` brings it in.

Unlike a rank of a session, it changes nothing that the user's code does: no time limits, no random
states, no errors, no sockets. A process becomes a rank when it calls ``init_process_group``; the
launcher, the workers of loaders and other processes of the job write nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import functools
import os
import signal
import socket
import stat
import struct
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from multiprocessing.util import Finalize
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import psutil
import torch.distributed as dist

from ..model import Position, RankError
from ..model.rank import WaitsFor
from ..model.torch_features import SIMULATED_GPUS
from ..wire import job_files
from ..wire.branch_ring import BranchRingWriter
from ..wire.channel import Channel
from ..wire.messages import CellEnded
from ..wire.rank_inputs import VARIABLE as KEEP_INPUTS
from ..wire.ring import RingWriter
from . import torch_private, user_warnings
from .branch_events import ALWAYS_ON, BranchEvents
from .branch_recorder import BranchRecorder
from .callbacks import observe_callbacks
from .frameworks import registered as frameworks
from .handled_errors import observe_handled_errors
from .kept_inputs import InputsRecorder
from .monitor import Monitor
from .probes import (
    accumulated,
    automatic,
    builds,
    checkpoints,
    drawn,
    early_reads,
    ended_threads,
    evaluations,
    exchanged,
    loaders,
    performance,
    polled_files,
    replicated,
    schedules,
    seeds,
    shown,
    simulated,
    summed_activations,
    threads,
    training,
)
from .probes.calls import CallLog
from .probes.flight import FlightReader, torch_version
from .probes.running import RunningProbes
from .script import ImportedFiles, last_module_at_start
from .tracebacks import describe_error, hide_own_frames
from .training_thread import CURRENT
from .uncompiled import leave_recorder_uncompiled

if TYPE_CHECKING:
    from .frameworks.framework import Framework

#: The longest path of a unix socket, with the zero at its end.
_LONGEST_SOCKET_PATH = 108
#: How many processes may ask at the same time.
_MOST_CONNECTIONS = 8
_PEER = struct.Struct("3i")
#: The variables in which launchers pass the host and the port at which ranks find each other.
_MEETINGS = (
    ("MASTER_ADDR", "MASTER_PORT"),
    ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"),
)
#: A rank that catches exceptions of calls again and again notes only this many of them.
_MOST_FAILURES = 20


class JobRecorder:
    """Waits in every process of a job until the process becomes a rank.

    Parameters
    ----------
    folder
        The job's folder.
    note_failure
        Is called with the folder and the error if the process cannot be recorded.
    """

    installed: JobRecorder | None = None

    def __init__(self, folder: str, note_failure: Callable[[str, BaseException], None]) -> None:
        self._folder, self._note_failure = folder, note_failure
        self._log = CallLog(None)
        self._rank: RecordedRank | None = None
        #: Those of which this process is a worker without forming a group of torch, by name.
        self._frameworks: dict[str, Framework] = {}
        asked = os.environ.get(KEEP_INPUTS)
        #: It is below the log of calls, which takes its functions for torch's.
        self._inputs = InputsRecorder(asked) if asked else None
        self._report = sys.excepthook

    @classmethod
    def install(cls, folder: str, note_failure: Callable[[str, BaseException], None]) -> None:
        """Wrap the functions of ``torch.distributed``, once in a process."""
        if cls.installed is not None or not dist.is_available():
            return
        cls.installed = recorder = cls(folder, note_failure)
        last_module_at_start()
        recorder._log.init_hook = recorder._before_init
        user_warnings.install()
        recorder._log.install()
        frameworks.watch_job(recorder._log, recorder._before_init)
        builds.install()  # a process may build before it forms a group
        builds.RECORD.tell(recorder._note_build)
        gpus = int(os.environ.get(job_files.SIMULATED) or 0)
        if gpus and torch_private.available(SIMULATED_GPUS):
            recorder._log.simulate(gpus)
        recorder._report, sys.excepthook = sys.excepthook, recorder._note_early_error
        os.register_at_fork(after_in_child=recorder._forget_in_child)

    @classmethod
    def record_worker(cls, framework: str) -> None:
        """Record this process as a rank of a framework; see `Framework.watch_job`."""
        recorder = cls.installed
        if recorder is not None and framework not in recorder._frameworks:
            recorder._frameworks[framework] = made = frameworks.make(framework)
            begin = functools.partial(recorder._before_init, framework=framework)
            made.watch_job(recorder._log, begin)
            frameworks.add(made)

    def _before_init(
        self, arguments: dict[str, Any], framework: str = ""
    ) -> AbstractContextManager[None]:
        if self._rank is None:
            try:
                self._rank = RecordedRank(Path(self._folder), self._log, arguments, framework)
                if self._inputs is not None and not framework:
                    files = f"{socket.gethostname()}-{os.getpid()}"
                    self._inputs.begin(Path(self._folder), files, *_numbers(arguments), arguments)
            except Exception as error:  # noqa: BLE001  (the job must run without a record)
                self._log.detach()
                self._remove_files()  # the disk may be full
                self._note_failure(self._folder, error)
        return contextlib.nullcontext()

    def _note_build(self, waits_for: WaitsFor, file: str, held_by: int | None) -> None:
        """Write that this process builds an extension or waits for one, until it has ended."""
        noted = Path(self._folder, f"{socket.gethostname()}-{os.getpid()}.build")
        with contextlib.suppress(OSError):
            if not waits_for:
                noted.unlink(missing_ok=True)
                return
            pid = os.getpid()
            build = job_files.Build(pid=pid, waits_for=waits_for, file=file, held_by=held_by)
            job_files.write(noted, build)

    def _remove_files(self) -> None:
        """Remove what this process has written, since it cannot be recorded."""
        with contextlib.suppress(OSError):
            for file in Path(self._folder).glob(f"{socket.gethostname()}-{os.getpid()}.*"):
                file.unlink()

    def _note_early_error(
        self, kind: type[BaseException], error: BaseException, level: TracebackType | None
    ) -> None:
        """Record a rank that an exception ends before it has formed a group."""
        if self._rank is None and _is_launched():
            self._before_init({})
            if self._rank is not None:
                self._rank.note_end(error)
        self._report(kind, error, level)

    def _forget_in_child(self) -> None:
        """A child of a rank, such as a loader's worker, must not write to the rank's files."""
        if self._rank is not None:
            self._rank.leave()
            self._rank = None
        if self._inputs is not None:
            self._inputs.leave()


class RecordedRank:
    """The record of this process.

    Parameters
    ----------
    folder
        The job's folder.
    log
        Gets the calls.
    arguments
        Those of ``init_process_group``.
    framework
        See `job_files.RankStarted`.
    """

    def __init__(
        self,
        folder: Path,
        log: CallLog,
        arguments: Mapping[str, Any],
        framework: str = "",
    ) -> None:
        host, self._pid = socket.gethostname(), os.getpid()
        self._files = folder / f"{host}-{self._pid}"
        self._log = log
        self._ended = False
        self._leaving: BaseException | None = None  # what sys.exit() was called for
        self._exited_at: Position | None = None  # where it was called without an error
        self._left_after = 0  # how many calls were written then
        self._error: RankError | None = None
        self._failures = 0
        self._monitors: list[Monitor] = []
        self._imported = ImportedFiles()
        self._flight = FlightReader()
        self._running = RunningProbes()
        self._branches = BranchRecorder(BranchRingWriter(self._path("branches"), reserve=True))
        self._events = BranchEvents(self._branches)
        observe_callbacks(self._events)
        observe_handled_errors(self._events)
        self._calls = RingWriter(self._path("calls"), reserve=True)
        self._follow_training()
        #: Where the user's faulthandler writes, and from where on.
        self._errors = _own_errors() if faulthandler.is_enabled() else ("", 0)
        self._crash_file = self._note_signals()
        self._server = self._listen()
        for probe in (
            loaders,
            seeds,
            training,
            checkpoints,
            schedules,
            shown,
            replicated,
            polled_files,
        ):
            probe.install()
        threads.RECORD.attach(self._path("threads"))
        ended_threads.install()
        threads.install()
        leave_recorder_uncompiled()
        self._begin_run()
        self._note_end()
        rank, size = _numbers(arguments)
        self._rank = rank or 0
        script = getattr(sys.modules.get("__main__"), "__file__", None) or ""
        started = job_files.RankStarted(
            rank=rank,
            world_size=size,
            host=host,
            pid=self._pid,
            born_s=psutil.Process().create_time(),
            generation=int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0),
            job=_job(arguments),
            allocation=job_files.allocation(os.environ),
            launcher=_launcher(),
            backend=str(arguments.get("backend") or ""),
            script=str(Path(script).absolute()) if script else "",
            arguments=tuple(map(str, sys.argv[1:])),
            directory=str(Path.cwd()),
            socket=self._server.getsockname() if self._server is not None else "",
            started_s=time.monotonic(),
            wall_s=time.time(),
            torch_version=torch_version(),
            missing_features=tuple(torch_private.missing()),
            branches=log.branches is not None,
            simulated_gpus=simulated.simulated_gpus(),
            framework=framework,
            errors=self._errors[0],
            errors_from=self._errors[1],
        )
        log.failure_hook = self._note_failed_call
        log.attach(self._calls)
        job_files.write(self._path("rank"), started)

    def _path(self, ending: str) -> Path:
        return self._files.with_name(f"{self._files.name}.{ending}")

    def _begin_run(self) -> None:
        for probe in (loaders, training, checkpoints, evaluations, accumulated, exchanged):
            probe.RECORD.begin_run()
        for probe in (performance, replicated, summed_activations, polled_files):
            probe.RECORD.begin_run()
        for probe in (shown, ended_threads, threads, early_reads):
            probe.RECORD.begin_run()
        frameworks.begin_run()
        self._branches.begin_run()
        if ALWAYS_ON or os.environ.get(job_files.BRANCHES) == "1":
            self._events.start(sys._getframe())
            if not self._branches.unobserved:
                self._count_branches()
        else:
            self._events.on_callbacks = self._count_branches

    def _count_branches(self) -> None:
        """Note before each call how many branch events there were."""
        self._log.branches = training.RECORD.branches = self._branches

    def _follow_training(self) -> None:
        """Record the thread that forms the group, until training goes on in another one."""
        CURRENT.follow()
        self._branches.follow()
        CURRENT.has_begun = lambda: training.RECORD.backwards > 0 or self._log.has_calls()
        CURRENT.is_in_call = lambda: self._log.in_call
        CURRENT.moved, CURRENT.ended = self._follow, self._end_training

    def _follow(self, left: FrameType | None) -> None:
        """Record the current thread from here on."""
        for one in _OF_ONE_THREAD:
            if one.thread is not None:
                one.thread = CURRENT.ident
        self._log.follow()
        self._branches.follow()
        self._events.follow(sys._getframe(), left)
        if self._error is not None and not self._ended:
            # the one before was ended by an exception, and the program goes on
            self._error = None
            self._path("end").unlink(missing_ok=True)

    def _end_training(self, error: BaseException | None) -> None:
        """Write that the training function has ended, for which a launcher started a thread."""
        if os.getpid() != self._pid:
            return
        if error is not None:
            self._note_error(error)
        CURRENT.moved = CURRENT.ended = None
        self._end()
        for monitor in self._monitors:  # as if the process had ended, which the launcher ends
            monitor.leave()

    def leave(self) -> None:
        """Stop recording, in a child of this process."""
        self._log.detach()
        threads.RECORD.detach()
        self._log.failure_hook = None
        self._log.branches = training.RECORD.branches = None
        self._events.stop()
        if self._server is not None:
            self._server.close()

    # -- the end ---------------------------------------------------------------------------------

    def _note_signals(self) -> Any:
        """Let faulthandler write what ends the process, if the user does not use it already."""
        if faulthandler.is_enabled():
            return None
        file = self._path("crash").open("w")
        faulthandler.enable(file)
        # a launcher sends SIGTERM to the other ranks when one has failed
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            # the stacks of other threads, which go on meanwhile, cannot be read safely
            faulthandler.register(signal.SIGTERM, file, all_threads=False, chain=True)
        return file

    def _note_end(self) -> None:
        report, leave, leave_now = sys.excepthook, sys.exit, os._exit

        def excepthook(
            kind: type[BaseException], error: BaseException, level: TracebackType | None
        ) -> None:
            self.note_end(error)
            with contextlib.suppress(Exception):  # the user reads a traceback as without us
                hide_own_frames(error)
                level = error.__traceback__
            report(kind, error, level)

        def exit_(code: Any = None) -> Any:
            # torch.multiprocessing writes an exception to a file and then leaves with status 1
            raised = _raised_at(SystemExit(code), sys._getframe(1))
            if code not in (None, 0):
                self._leaving = sys.exc_info()[1] or raised
            elif CURRENT.is_current:
                self._exited_at = describe_error(raised, "").where
            self._left_after = self._calls.written
            leave(code)

        def leave_at_once(code: int) -> Any:
            if os.getpid() == self._pid and code == 0:
                self._end()
            elif os.getpid() == self._pid:
                with contextlib.suppress(OSError):
                    self._path("exit").write_text(str(code))
            leave_now(code)

        def threads_excepthook(args: threading.ExceptHookArgs) -> None:
            if args.exc_value is not None and CURRENT.is_current:
                self.note_end(args.exc_value)
            report_thread(args)

        report_thread: Callable[[threading.ExceptHookArgs], object] = threading.excepthook
        threading.excepthook = threads_excepthook
        sys.excepthook, sys.exit = excepthook, exit_
        os._exit = leave_at_once  # type: ignore[assignment]
        atexit.register(self._end)
        Finalize(None, self._end, exitpriority=100)  # children of multiprocessing skip atexit

    def _note_failed_call(self, error: BaseException, ended_s: float) -> None:
        """Write that an exception left a call, and when.

        A launcher may end this process before the exception has left the user's code.
        """
        self._failures += 1
        if self._failures > _MOST_FAILURES or os.getpid() != self._pid:
            return
        inside = error.__traceback__
        with contextlib.suppress(Exception):
            try:
                frame: FrameType | None = sys._getframe(1)
                level = inside
                while frame is not None:
                    level = TracebackType(level, frame, frame.f_lasti, frame.f_lineno)
                    frame = frame.f_back
                error.__traceback__ = level
                text = "".join(traceback.format_exception(error))
                described = describe_error(error, text)
            finally:
                error.__traceback__ = inside
            failed = CellEnded(error=described, ended_s=ended_s)
            job_files.write(self._path("failure"), failed)

    def note_end(self, error: BaseException) -> None:
        """Write that an exception ends this process."""
        self._note_error(error)
        if os.getpid() == self._pid and not self._ended:
            # the launcher may end this process as soon as another one has failed
            with contextlib.suppress(Exception):
                ended_s = time.monotonic()
                flight = self._flight.drain(stacks=True)
                early = CellEnded(error=self._error, ended_s=ended_s, flight=flight)
                job_files.write(self._path("end"), early)

    def _note_error(self, error: BaseException) -> None:
        if os.getpid() != self._pid or self._error is not None:
            return
        with contextlib.suppress(Exception):
            self._error = describe_error(error, "".join(traceback.format_exception(error)))

    def _end(self) -> None:
        """Write what this process observed; its last act."""
        if self._ended or os.getpid() != self._pid:
            return
        self._ended = True
        ended_s = time.monotonic()
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, SystemExit):
            self._note_error(error)
        if self._leaving is not None and self._left_after == self._calls.written:
            self._note_error(self._leaving)  # nothing has caught the SystemExit
        self._events.stop()
        self._log.branches = training.RECORD.branches = None
        with contextlib.suppress(Exception):
            job_files.write(self._path("end"), self._report(ended_s))
        self._log.detach()
        if self._server is not None:
            with contextlib.suppress(OSError):
                Path(self._server.getsockname()).unlink()

    def _report(self, ended_s: float) -> CellEnded:
        observed = None
        notes: list[str] = []
        well = self._error is None
        try:
            performance.RECORD.end_run()
            loaders.RECORD.end_run(well=well)
            names = vars(sys.modules["__main__"])
            mine = {name: value for name, value in names.items() if not name.startswith("_")}
            rank = dist.get_rank() if dist.is_initialized() else self._rank
            observed, found = automatic.observe(rank, mine, well=well)
            notes += found
            own = frameworks.observed(rank, mine)
            if own is not None:
                observed = own if observed is None else observed.updated(own)
        except Exception as error:  # noqa: BLE001  (a variable may raise anything)
            notes.append(f"what was trained could not be observed: {error}")
        notes += [*simulated.take_notes(), *frameworks.take_notes()]
        if self._log.problem:
            notes.append(f"a call could not be recorded: {self._log.problem}")
        return CellEnded(
            error=self._error,
            ended_s=ended_s,
            flight=self._flight.drain(stacks=not well),
            missing_features=tuple(torch_private.missing()),
            formed=dist.is_initialized(),
            observed=observed,
            notes=tuple(notes),
            imported=self._imported.new(),
            exited_at=self._exited_at if self._left_after == self._calls.written else None,
        )

    # -- questions -------------------------------------------------------------------------------

    def _listen(self) -> socket.socket | None:
        """Begin to answer on a unix socket that only this user may use."""
        path = str(self._path("sock"))
        if len(path.encode()) >= _LONGEST_SOCKET_PATH:
            path = f"{tempfile.mkdtemp(prefix='ddt-')}/sock"  # its mode is 0700
        server = socket.socket(socket.AF_UNIX)
        try:
            server.bind(path)
            Path(path).chmod(0o600)
            server.listen(_MOST_CONNECTIONS)
        except OSError:  # such as on a file system without sockets: the files remain
            server.close()
            return None
        threading.Thread(target=self._serve, args=(server,), name="ddt-job", daemon=True).start()
        return server

    def _serve(self, server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            self._monitors = [monitor for monitor in self._monitors if monitor.is_alive()]
            if len(self._monitors) >= _MOST_CONNECTIONS or not _is_own(connection):
                connection.close()
                continue
            # each connection gets the entries that are new to it
            flight = FlightReader()
            monitor = Monitor(
                Channel(connection),
                flight,
                None,
                self._branches,
                ends_rank=False,
                running=lambda asked: self._running.answer(self._rank, asked),
            )
            self._monitors.append(monitor)
            monitor.start()


#: What is recorded of one thread only.
_OF_ONE_THREAD = (
    training.RECORD,
    accumulated.RECORD,
    drawn.RECORD,
    early_reads.RECORD,
    exchanged.RECORD,
    replicated.RECORD,
    shown.RECORD,
    summed_activations.RECORD,
)


def _raised_at(error: BaseException, frame: FrameType) -> BaseException:
    """The exception, as if it had been raised in a frame."""
    return error.with_traceback(TracebackType(None, frame, frame.f_lasti, frame.f_lineno))


def _own_errors() -> tuple[str, int]:
    """The file to which standard error goes, and its size; empty unless it is this process's own.

    Ray gives each worker such a file. One that the parent writes to, too, is that of several ranks.
    """
    with contextlib.suppress(OSError):
        link = Path("/proc/self/fd/2")
        state, parents = link.stat(), Path(f"/proc/{os.getppid()}/fd/2").stat()
        if stat.S_ISREG(state.st_mode) and not os.path.samestat(state, parents):
            return str(link.readlink()), state.st_size
    return "", 0


def _is_own(connection: socket.socket) -> bool:
    """Whether the same user, or root, asks."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the socket's mode decides
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return _PEER.unpack(data)[1] in (os.getuid(), 0)


def _numbers(arguments: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The rank and the number of ranks, as passed to ``init_process_group`` or by a launcher."""
    query = parse_qs(urlsplit(str(arguments.get("init_method") or "")).query)
    found: list[int | None] = []
    ranks, sizes, _ = zip(*job_files.NUMBERS, strict=True)
    for name, variables in (("rank", ranks), ("world_size", sizes)):
        candidates = [arguments.get(name), *query.get(name, ()), *map(os.environ.get, variables)]
        numbers = (int(c) for c in candidates if c is not None and str(c).lstrip("-").isdigit())
        found.append(next((number for number in numbers if number >= 0), None))
    return found[0], found[1]


def _is_launched() -> bool:
    """Whether a launcher has numbered this process, and not one that started this one."""
    rank, _ = _numbers({})
    try:
        parent = psutil.Process().parent()
        above = parent.environ() if parent is not None else {}
    except psutil.Error:
        return False
    names = [rank for rank, _, _ in job_files.NUMBERS]
    return rank is not None and not any(name in above for name in names)


def _launcher() -> str:
    """What started this process, by a variable that it sets; empty if that is not known."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return "torchrun"
    names = (name for rank, _, name in job_files.NUMBERS if name and rank in os.environ)
    found = next(names, "")
    return job_files.RAY if not found and job_files.RAY_VARIABLE in os.environ else found


def _job(arguments: Mapping[str, Any]) -> str:
    """What the ranks of one job share: torchrun's run id, or where they meet."""
    run = os.environ.get("TORCHELASTIC_RUN_ID")
    if run:
        return run
    method = str(arguments.get("init_method") or "env://")
    if method.startswith("env://"):
        known = (names for names in _MEETINGS if names[1] in os.environ)
        address, port = next(known, _MEETINGS[0])
        return f"{os.environ.get(address, '')}:{os.environ.get(port, '')}"
    return method.partition("?")[0]
