"""The process of a rank, which runs commands of the notebook and answers them."""

from __future__ import annotations

import builtins
import contextlib
import faulthandler
import functools
import multiprocessing.util
import os
import platform
import signal
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Literal, NoReturn

from ..model import Observation, RankError
from ..model.torch_features import SIMULATED_GPUS
from ..model.user_code import is_user_code
from ..wire.branch_ring import BranchRingWriter
from ..wire.channel import Channel, Closed
from ..wire.messages import (
    CellEnded,
    DisplayKind,
    DisplayShown,
    Done,
    EndRank,
    Envelope,
    ExceptionRaised,
    Failed,
    FetchVariable,
    FormGroup,
    GroupFormed,
    LeaveGroup,
    Message,
    Observe,
    Observed,
    RankReady,
    RankSpec,
    RunCell,
    StoreVariable,
)
from ..wire.objects import CannotTravel, no_such_variable, pack_in_rank, unpack_in_rank
from ..wire.recording_switch import records
from ..wire.ring import RingWriter
from . import condition_values, forked_ranks, torch_private, user_warnings
from .branch_events import ALWAYS_ON, BranchEvents
from .branch_recorder import BranchRecorder
from .callbacks import observe_callbacks
from .confinement import confine
from .frameworks import registered as frameworks
from .given_names import GivenNames, modules_at_start
from .group import RankGroup, pick_device, torchrun_environment
from .handled_errors import observe_handled_errors
from .memory_cap import MemoryCap
from .monitor import Monitor
from .output_files import OutputFiles
from .probes import (
    accumulated,
    automatic,
    builds,
    checkpoints,
    early_reads,
    ended_threads,
    evaluations,
    exchanged,
    loaders,
    performance,
    polled_files,
    registry,
    replicated,
    schedules,
    seeds,
    shown,
    simulated,
    summed_activations,
    threads,
    training,
)
from .probes.flight import FlightReader, torch_version
from .probes.timeline import Tracer
from .replayed_inputs import Replay
from .script import ImportedFiles, as_main, last_module_at_start, seed
from .shell import RankShell, make_shell
from .tracebacks import describe_error
from .uncompiled import leave_recorder_uncompiled

_MAX_NAMES = 50
#: The path of a socket has at most 107 characters; `multiprocessing` appends 18 to the folder.
_LONGEST_FOLDER = 89

#: The probes whose records begin anew with each run, in this order.
_RECORDING: tuple[Any, ...] = (
    loaders,
    training,
    checkpoints,
    evaluations,
    accumulated,
    early_reads,
    exchanged,
    shown,
    polled_files,
    ended_threads,
    threads,
    summed_activations,
    replicated,
)


def prepare() -> None:
    """Prepare what all ranks share before they are forked."""
    shell = make_shell()
    # the first traceback imports and parses many modules, for which the user would wait
    shell.run("import torch.distributed as dist\ndist.all_reduce(None)", 0, 1)
    shell.forget_errors()
    shell.reset(new_session=False)
    leave_recorder_uncompiled()
    is_user_code(__file__)  # so that the ranks share the cached facts about installed libraries
    shell.user_ns["__spec__"] = None  # multiprocessing reads it; in a notebook it is None, too
    if records():
        _install_shared_probes()
    modules_at_start()


@functools.cache
def _install_shared_probes() -> None:
    """Install the probes that replace methods of torch's classes.

    Each of these copies pages of many classes, which ranks share if it is done before they are
    forked.
    """
    for probe in (loaders, training, checkpoints, schedules):
        probe.install()


class Rank:
    """One rank.

    Parameters
    ----------
    commands, questions
        Connections to the notebook: one for the main thread, one for the monitor.
    """

    def __init__(self, commands: Channel, questions: Channel) -> None:
        self._commands = commands
        spec = commands.receive().message
        assert isinstance(spec, RankSpec)
        self._spec = spec
        self._directory = Path(spec.directory)
        _keep_sockets_in(self._directory)
        self._redirect_output()
        sys.path[:] = spec.sys_path or ("", *sys.path)
        with contextlib.suppress(OSError):
            os.chdir(spec.cwd)
        if spec.confined:
            confine(self._directory)
        rank, world_size = spec.rank, spec.world_size
        os.environ.update(spec.environ)
        os.environ.update(torchrun_environment(spec, spec.port))
        self._recording = records()
        self._running = False
        self._flight = FlightReader()
        self._group = RankGroup(spec)
        user_warnings.install()
        self._group.calls.install()
        forked_ranks.refuse(spec.world_size)
        frameworks.install(self._group.calls, spec)
        self._branches = BranchRecorder(BranchRingWriter(self._directory / f"rank{rank}.branches"))
        self._branch_events = BranchEvents(self._branches)
        observe_callbacks(self._branch_events)
        observe_handled_errors(self._branch_events)
        if self._recording:
            self._begin_recording(rank)
        self._shell = RankShell.instance()
        self._shell.display_pub.send = self._send_display
        self._shell.on_raise = self._report_exception
        self._names_at_start: set[str] = set()
        self._fill_namespace(rank, world_size)
        self._script_names: dict[str, Any] | None = None
        last_module_at_start()
        self._imported = ImportedFiles()
        self._script_imported: tuple[str, ...] = ()
        self._replay: Replay | None = None
        seed(spec.seed, rank)  # a fork shares them with the other ranks
        self._memory = MemoryCap(spec.memory)
        signal.signal(signal.SIGINT, self._on_interrupt)
        os.register_at_fork(after_in_child=self._leave_connections_in_child)
        self._questions = questions
        Monitor(questions, self._flight, self._group.sockets, self._branches).start()

    def _begin_recording(self, rank: int) -> None:
        self._group.calls.attach(RingWriter(self._directory / f"rank{rank}.calls"))
        _install_shared_probes()
        for probe in (seeds, shown, polled_files, builds):
            probe.install()
        threads.RECORD.attach(self._directory / f"rank{rank}.threads")
        ended_threads.install()
        threads.install()
        replicated.install()

    @property
    def ready(self) -> RankReady:
        """The rank's first message."""
        return RankReady(
            torch_version=torch_version(),
            device=str(self._device),
            missing_features=tuple(torch_private.missing()),
            python_version=platform.python_version(),
        )

    def serve(self) -> None:
        """Answer commands until the notebook closes the connection or ends the rank."""
        while True:
            try:
                request = self._commands.receive()
                if isinstance(request.message, EndRank):
                    return
                self._group.sockets.outdate(request.number)
                answer, payload = self._answer(request)
                self._commands.send(answer, number=request.number, payload=payload)
                self._memory.close_reserve()
            except KeyboardInterrupt:  # arrived after the end of its cell
                continue
            except Closed:
                return

    # -- commands ------------------------------------------------------------------------------

    def _answer(self, request: Envelope) -> tuple[Message, bytes | None]:
        try:
            match request.message:
                case RunCell() as command:
                    return self._run(command), None
                case FormGroup() as command:
                    return self._form(command), None
                case LeaveGroup():
                    self._group.leave()
                    return Done(), None
                case StoreVariable(name=name):
                    self._shell.user_ns[name] = unpack_in_rank(request.payload or b"")
                    return Done(), None
                case FetchVariable(name=name):
                    return Done(), self._packed(name)
                case Observe() as command:
                    return self._observe(command), None
        except CannotTravel as error:
            return Failed(error=str(error)), None
        except Exception as error:  # noqa: BLE001  (the notebook needs an answer in any case)
            broken = isinstance(request.message, RunCell) and not isinstance(error, MemoryError)
            reason: Literal["broken", "error"] = "broken" if broken else "error"
            return Failed(error=f"{type(error).__name__}: {error}", reason=reason), None
        return Failed(error=f"a rank does not answer {type(request.message).__name__}"), None

    def _run(self, command: RunCell) -> CellEnded:
        error = None
        self._script_names, self._script_imported = None, ()
        self._replay = self._shell.exited_at = None
        self._group.allow(command.group_timeout_s)
        self._flight.begin_run()
        for probe in _RECORDING:
            probe.RECORD.begin_run()
        frameworks.begin_run()
        if self._group.framework is not None:
            self._group.framework.begin_run()
        tracer = Tracer(self._spec.rank, self._own_variables) if command.trace else None
        if tracer is not None:
            tracer.start()
            if self._group.framework is not None:
                self._group.framework.begin_trace()
        performance.RECORD.begin_run()
        self._begin_branches(asked=command.branches)
        self._running = True
        try:
            if command.replay:
                error = self._run_replay(command)
            elif command.file:
                error = self._run_script(command)
            else:
                error = self._shell.run(command.source, command.cell, command.first_line)
        except BaseException as leaked:  # (interrupted after the cell's end)
            self._given.restore_python()
            self._memory.open_reserve()
            if isinstance(leaked, Exception) and not isinstance(leaked, MemoryError):
                if not self._memory.used_up(leaked):
                    raise  # what runs cells is broken
                # IPython returns what it could not make, since its own memory was lacking as well
                leaked = MemoryError()
            error = describe_error(leaked, "")
        finally:
            self._given.restore_python()
            self._running = False
            self._branch_events.stop()
            self._group.calls.branches = training.RECORD.branches = None
        ended = time.monotonic()
        performance.RECORD.end_run()
        loaders.RECORD.end_run(well=error is None)
        traced = tracer.stop() if tracer is not None else None
        if traced is not None and self._group.framework is not None:
            traced = self._group.framework.completed(traced, self._own_variables())
        restored = (*self._output.restore(), *self._given.restore())
        stacks = error is not None or tracer is not None
        observed, notes = (
            self._observe_unasked(well=error is None) if self._recording else (None, ())
        )
        return CellEnded(
            error=error,
            ended_s=ended,
            flight=self._flight.drain(stacks=stacks) if self._recording else (),
            missing_features=tuple(torch_private.missing()),
            formed=self._group.is_formed(),
            names=tuple(self._user_names()[:_MAX_NAMES]),
            recorded=traced,
            observed=observed,
            notes=(
                *notes,
                *restored,
                *simulated.take_notes(),
                *frameworks.take_notes(),
                *forked_ranks.take_notes(),
            ),
            imported=self._script_imported if command.file else self._imported.new(),
            replayed=self._replay.outcome() if self._replay is not None else None,
            exited_at=self._shell.exited_at,
        )

    def _begin_branches(self, *, asked: bool) -> None:
        self._branches.begin_run()
        condition_values.forget_sources()
        if self._recording and (ALWAYS_ON or asked):
            self._branch_events.start()
            if not self._branches.unobserved:
                self._count_branches()
        elif self._recording:
            self._branch_events.on_callbacks = self._count_branches

    def _count_branches(self) -> None:
        """Note before each call how many branch events there were."""
        self._group.calls.branches = training.RECORD.branches = self._branches

    def _run_replay(self, command: RunCell) -> RankError | None:
        """Run a script as one rank of a recorded job, and keep its variables for cells."""
        self._replay = replay = Replay(Path(command.replay))
        environment = replay.begun.environment
        with as_main(command.file, command.arguments, environment) as main, replay.serving():
            main.__package__ = replay.begun.package or None
            self._script_names = vars(main)
            error = self._shell.run_script(command.source, main)
            level = sys.last_traceback if error is not None else None
            self._shell.user_ns.update(replay.alive(vars(main), level))
        return error

    def _run_script(self, command: RunCell) -> RankError | None:
        spec = self._spec
        environment = torchrun_environment(spec, self._group.port)
        seed(spec.seed, spec.rank)
        frameworks.begin_script()
        with as_main(command.file, command.arguments, environment) as main:
            self._script_names = vars(main)
            error = self._shell.run_script(command.source, main)
            self._script_imported = ImportedFiles().new()  # gone afterwards
        if command.keep_names:
            kept = {name: v for name, v in vars(main).items() if not name.startswith("__")}
            self._shell.user_ns.update(kept)
        return error

    def _form(self, command: FormGroup) -> GroupFormed | Failed:
        self._shell.forget_errors()
        self._group.port = command.port
        with self._memory.reserve():
            try:
                notes = self._group.form(command.prefix, command.generation, join=command.join)
            except (RuntimeError, MemoryError, OSError) as error:
                full = self._memory.used_up(error)
                if not full:
                    raise
                return Failed(error=f"{full} ({type(error).__name__}: {error})", reason="memory")
        return GroupFormed(notes=tuple(notes))

    def _observe(self, command: Observe) -> Observed:
        names = list(command.names) if command.names is not None else None
        variables = self._own_variables()
        rank, framework = self._spec.rank, self._group.framework
        seen = registry.observe(rank, command.probes, variables, names, command.options)
        if framework is None or seen.observed is None:
            return seen
        return replace(seen, observed=framework.completed(seen.observed, variables, names))

    def _observe_unasked(self, *, well: bool) -> tuple[Observation | None, tuple[str, ...]]:
        rank, framework = self._spec.rank, self._group.framework
        try:
            seen, notes = automatic.observe(rank, self._own_variables(), well=well)
            names = self._own_variables()
            own = framework.observed(rank, names) if framework is not None else None
            for also in (own, frameworks.observed(rank, names)):
                if also is not None:
                    seen = seen.updated(also) if seen is not None else also
        except Exception as error:  # noqa: BLE001  (a variable may raise anything)
            return None, (f"what was trained could not be observed: {error}",)
        else:
            return seen, notes
        finally:
            training.RECORD.end_run()

    def _own_variables(self) -> dict[str, Any]:
        """The user's variables: those of the script, if one ran last."""
        at_start = self._names_at_start if self._script_names is None else ()
        return {
            name: value
            for name, value in (self._script_names or self._shell.user_ns).items()
            if name not in at_start and not name.startswith("_")
        }

    def _packed(self, name: str) -> bytes:
        namespace = self._shell.user_ns
        if name not in namespace:
            known = {known: namespace[known] for known in self._user_names()}
            raise CannotTravel(no_such_variable(name, known))
        try:
            return pack_in_rank(self._shell.user_ns[name])
        except CannotTravel as error:
            kind = type(self._shell.user_ns[name]).__name__
            raise CannotTravel(f"{name!r} ({kind}) stays on the rank: {error}") from error

    # -- setting up ----------------------------------------------------------------------------

    def _redirect_output(self) -> None:
        """Redirect descriptors 1 and 2 to files, which never block and outlive the rank."""
        rank = self._spec.rank
        self._output = OutputFiles(rank, self._directory)
        self._crash_file = open(self._directory / f"rank{rank}.crash", "w")  # noqa: SIM115
        faulthandler.enable(self._crash_file)

    def _fill_namespace(self, rank: int, world_size: int) -> None:
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        can_simulate = torch_private.available(SIMULATED_GPUS)
        gpus = self._spec.simulated_gpus if can_simulate else 0
        if gpus:
            from .probes import simulated_processes

            simulated_processes.spawn_on_ranks(rank, world_size)
            self._group.calls.simulate(gpus)
            self._device = torch.device("cuda", self._spec.local_rank % gpus)
        elif self._spec.simulated_gpus:
            self._device = torch.device("cpu")
        else:
            self._device = pick_device(self._spec.device, self._spec.local_rank)
        namespace = self._shell.user_ns
        given = {
            "rank": rank,
            "world_size": world_size,
            "local_rank": self._spec.local_rank,
            "device": self._device,
            "torch": torch,
            "dist": dist,
            "DDP": DistributedDataParallel,
        }
        namespace.update(given)
        self._given = GivenNames(rank, namespace, given)
        self._names_at_start = set(namespace)
        builtins.input = _no_keyboard
        sys.breakpointhook = _no_debugger

    def _user_names(self) -> list[str]:
        namespace = self._shell.user_ns
        return [
            name
            for name, value in namespace.items()
            if name not in self._names_at_start
            and not name.startswith("_")
            and not isinstance(value, ModuleType)
        ]

    def _leave_connections_in_child(self) -> None:
        # a DataLoader worker must not keep the connections open after this rank has died
        self._running = False
        self._group.calls.detach()
        threads.RECORD.detach()
        self._branch_events.stop()
        with contextlib.suppress(OSError):
            self._commands.close()
            self._questions.close()
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    # -- while a cell runs ---------------------------------------------------------------------

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._running:
            loaders.end_workers_soon()
            raise KeyboardInterrupt

    def _report_exception(self) -> None:
        """Report that an exception left the user's code: the notebook need not free this rank."""
        self._running = False
        self._given.restore_python()
        self._memory.open_reserve()
        with contextlib.suppress(Closed):
            self._commands.send(ExceptionRaised())

    def _send_display(
        self,
        kind: DisplayKind,
        data: dict[str, Any],
        metadata: dict[str, Any],
        transient: dict[str, Any],
        update: bool,
    ) -> None:
        self._output.flush()
        shown = DisplayShown(
            kind=kind,
            data=_jsonable(data),
            metadata=_jsonable(metadata),
            transient=transient,
            update=update,
            # so that the notebook can show it in order with the text
            stdout_bytes=self._output.size(1),
            stderr_bytes=self._output.size(2),
        )
        with contextlib.suppress(Closed):
            self._commands.send(shown)


def _jsonable(bundle: dict[str, Any]) -> dict[str, Any]:
    """A MIME bundle as the Jupyter protocol sends it, with bytes in base64."""
    import base64

    return {
        key: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for key, value in bundle.items()
    }


def _no_keyboard(prompt: object = "") -> NoReturn:
    raise RuntimeError("a rank has no keyboard: set the value in the cell, or push it to the ranks")


def _no_debugger(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("a rank has no keyboard for a debugger: print values, or look at its stack")


def _keep_sockets_in(directory: Path) -> None:
    """Have loader workers make their sockets in the session's folder.

    multiprocessing makes a folder for each worker, and a worker that is killed leaves it behind.
    """
    if len(str(directory)) <= _LONGEST_FOLDER:
        with contextlib.suppress(AttributeError, TypeError):  # not part of the documented interface
            multiprocessing.process._current_process._config["tempdir"] = str(directory)  # type: ignore[attr-defined]


def run_rank(commands: int, questions: int) -> None:
    """Run a rank, connected to the notebook by two inherited sockets; does not return."""
    channels = Channel(commands), Channel(questions)
    status = 1
    try:
        rank = Rank(*channels)
        channels[0].send(rank.ready)
        rank.serve()
        multiprocessing.util._exit_function()  # ends DataLoader workers
        status = 0
    except Closed:
        pass
    except Exception as error:  # noqa: BLE001  (the session reports any error)
        traceback.print_exc()
        sys.stderr.flush()
        with contextlib.suppress(Closed):
            channels[0].send(Failed(error=str(error)))
    finally:
        os._exit(status)


if __name__ == "__main__":
    prepare()
    run_rank(int(sys.argv[1]), int(sys.argv[2]))
