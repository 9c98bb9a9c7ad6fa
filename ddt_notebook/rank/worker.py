"""A rank's process: waits for cells, runs them, tells how they ended."""

from __future__ import annotations

import builtins
import contextlib
import faulthandler
import multiprocessing.util
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

from ..model import codec
from ..model.torch_features import SIMULATED_GPUS
from ..wire.channel import Channel, Closed, Message
from ..wire.objects import CannotTravel, no_such_variable, pack_in_rank, unpack_in_rank
from ..wire.ring import RingWriter
from . import torch_private
from .group import RankGroup, pick_device, torchrun_environment
from .memory_cap import MemoryCap
from .monitor import Monitor
from .probes import automatic, checkpoints, loaders, performance, registry, training
from .probes.flight import FlightReader, torch_version
from .probes.timeline import Tracer
from .shell import RankShell, describe_error, make_shell

_MAX_NAMES = 50


def prepare() -> None:
    """What can be done once, before ranks are forked."""
    shell = make_shell()
    # a first traceback imports and parses a lot, and it is the one that a user waits for
    shell.run("import torch.distributed as dist\ndist.all_reduce(None)", 0, 1)
    shell.forget_errors()
    shell.reset(new_session=False)
    shell.user_ns["__spec__"] = None  # as in a notebook: multiprocessing looks there


class Rank:
    """One rank.

    Parameters
    ----------
    commands, questions
        Connections to the notebook: one for the main thread, one for the monitor.
    """

    def __init__(self, commands: Channel, questions: Channel) -> None:
        self._commands = commands
        spec = commands.receive()
        self._spec = spec
        self._directory = Path(spec["directory"])
        self._redirect_output()
        sys.path[:] = spec["sys_path"]
        with contextlib.suppress(OSError):
            os.chdir(spec["cwd"])
        rank, world_size = spec["rank"], spec["world_size"]
        os.environ.update(spec["environ"])
        os.environ.update(torchrun_environment(rank, world_size, spec["port"]))
        self._recording = os.environ.get("DDT_RECORDING", "on") != "off"
        self._running = False
        self._flight = FlightReader()
        self._group = RankGroup(
            rank=rank,
            world_size=world_size,
            backend=spec["backend"],
            port=spec["port"],
            timeout_s=spec["group_timeout_s"],
            formed_by_session=spec["group"],
        )
        self._group.calls.install()
        if self._recording:
            self._group.calls.attach(RingWriter(self._directory / f"rank{rank}.calls"))
            loaders.install()
            training.install()
            checkpoints.install()
        self._shell = RankShell.instance()
        self._shell.display_pub.send = self._send_display
        self._shell.on_raise = self._say_that_it_raised
        self._names_at_start: set[str] = set()
        self._fill_namespace(rank, world_size)
        self._memory = MemoryCap(spec.get("memory"))
        signal.signal(signal.SIGINT, self._on_interrupt)
        os.register_at_fork(after_in_child=self._leave_connections_in_child)
        self._questions = questions
        Monitor(questions, self._flight, self._group.sockets).start()

    def serve(self) -> None:
        """Answer commands until the notebook closes the connection or says so."""
        while True:
            try:
                message = self._commands.receive()
                if message["do"] == "exit":
                    return
                self._group.sockets.outdate(message["id"])
                answer, payload = self._answer(message)
                self._commands.send({"reply": message["id"], **answer}, payload)
                self._memory.close_reserve()
            except KeyboardInterrupt:  # came too late for the cell it was meant for
                continue
            except Closed:
                return

    # -- commands ------------------------------------------------------------------------------

    def _answer(self, message: Message) -> tuple[dict[str, Any], bytes | None]:
        try:
            match message["do"]:
                case "run":
                    return self._run(message), None
                case "form":
                    return self._form(message), None
                case "leave":
                    self._group.leave()
                    return {}, None
                case "push":
                    value = unpack_in_rank(message["payload"])
                    self._shell.user_ns[message["name"]] = value
                    return {}, None
                case "pull":
                    return {}, self._pull(message["name"])
                case "observe":
                    return self._observe(message), None
        except CannotTravel as error:
            return {"error": str(error)}, None
        except Exception as error:  # noqa: BLE001  (the notebook must hear of it)
            return {"error": f"{type(error).__name__}: {error}"}, None
        return {"error": f"unknown command {message['do']!r}"}, None

    def _run(self, message: Message) -> dict[str, Any]:
        error = None
        self._group.allow(message["group_timeout_s"])
        self._flight.begin_run()
        loaders.RECORD.begin_run()
        training.RECORD.begin_run()
        checkpoints.RECORD.begin_run()
        tracer = Tracer(self._own_variables) if message.get("trace") else None
        if tracer is not None:
            tracer.start()
        performance.RECORD.begin_run()
        started = time.monotonic()
        self._running = True
        try:
            error = self._shell.run(message["source"], message["cell"], message["first_line"])
        except BaseException as leaked:  # noqa: BLE001  (interrupted after the cell's end)
            self._memory.open_reserve()
            error = describe_error(leaked, "")
        finally:
            self._running = False
        ended = time.monotonic()
        performance.RECORD.end_run()
        loaders.RECORD.end_run(well=error is None)
        traced = tracer.stop() if tracer is not None else None
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        stacks = error is not None or tracer is not None
        return {
            "error": codec.to_plain(error),
            "started_s": started,
            "ended_s": ended,
            "flight": self._flight.drain(stacks=stacks) if self._recording else [],
            "missing_features": codec.to_plain(torch_private.missing()),
            "formed": self._group.is_formed(),
            "names": self._user_names()[:_MAX_NAMES],
            "trace": traced,
            **(self._observe_unasked(well=error is None) if self._recording else {}),
        }

    def _form(self, message: Message) -> dict[str, Any]:
        self._shell.forget_errors()
        self._group.port = message["port"]
        with self._memory.reserve():
            try:
                return {"notes": self._group.form(message["prefix"], message["generation"])}
            except (RuntimeError, MemoryError) as error:
                full = self._memory.used_up()
                if not full:
                    raise
                return {"error": f"{full} ({type(error).__name__}: {error})", "full": True}

    def _observe(self, message: Message) -> dict[str, Any]:
        what, names, options = message["what"], message["names"], message["options"]
        return registry.observe(what, self._own_variables(), names, options)

    def _observe_unasked(self, *, well: bool) -> dict[str, Any]:
        try:
            return automatic.observe(self._own_variables(), well=well)
        except Exception as error:  # noqa: BLE001  (a variable can fail in any way)
            return {"notes": [f"what was trained could not be seen: {error}"]}

    def _own_variables(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in self._shell.user_ns.items()
            if name not in self._names_at_start and not name.startswith("_")
        }

    def _pull(self, name: str) -> bytes:
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
        """Send descriptors 1 and 2 to files: a file never blocks and outlives the rank."""
        rank = self._spec["rank"]
        for descriptor, ending in ((1, "out"), (2, "err")):
            path = self._directory / f"rank{rank}.{ending}"
            opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(opened, descriptor)
            os.close(opened)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
        self._crash_file = open(self._directory / f"rank{rank}.crash", "w")  # noqa: SIM115
        faulthandler.enable(self._crash_file)

    def _fill_namespace(self, rank: int, world_size: int) -> None:
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        can_simulate = torch_private.available(SIMULATED_GPUS)
        gpus = self._spec["simulated_gpus"] if can_simulate else 0
        if gpus:
            from .probes import simulated_cuda

            simulated_cuda.install(gpus)
            self._device = torch.device("cuda", rank % gpus)
        elif self._spec["simulated_gpus"]:
            self._device = torch.device("cpu")
        else:
            self._device = pick_device(self._spec["device"], rank)
        namespace = self._shell.user_ns
        namespace.update(
            rank=rank,
            world_size=world_size,
            local_rank=rank,
            device=self._device,
            torch=torch,
            dist=dist,
            DDP=DistributedDataParallel,
        )
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
        # a DataLoader worker must not hold the connections open when this rank has died
        self._running = False
        self._group.calls.detach()
        with contextlib.suppress(OSError):
            self._commands.close()
            self._questions.close()
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    # -- while a cell runs ---------------------------------------------------------------------

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._running:
            raise KeyboardInterrupt

    def _say_that_it_raised(self) -> None:
        """An exception has left the user's code: the notebook need not free us any more."""
        self._running = False
        self._memory.open_reserve()
        with contextlib.suppress(Closed):
            self._commands.send({"raised": True})

    def _send_display(
        self,
        kind: str,
        data: dict[str, Any],
        metadata: dict[str, Any],
        transient: dict[str, Any],
        update: bool,
    ) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        message = {
            "display": kind,
            "data": _jsonable(data),
            "metadata": _jsonable(metadata),
            "transient": transient,
            "update": update,
            # so that the notebook shows it in order with the text
            "out": os.fstat(1).st_size,
            "err": os.fstat(2).st_size,
        }
        with contextlib.suppress(Closed):
            self._commands.send(message)


def _jsonable(bundle: dict[str, Any]) -> dict[str, Any]:
    """A mimebundle as the Jupyter protocol sends it: bytes in base64."""
    import base64

    return {
        key: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for key, value in bundle.items()
    }


def _no_keyboard(prompt: object = "") -> NoReturn:
    raise RuntimeError("a rank has no keyboard: set the value in the cell or send it: %ddt_push")


def _no_debugger(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("a rank has no keyboard for a debugger: print, or look at %ddt_show stacks")


def run_rank(commands: int, questions: int) -> None:
    """Be a rank on two inherited socket descriptors; does not return."""
    channels = Channel(commands), Channel(questions)
    status = 1
    try:
        rank = Rank(*channels)
        channels[0].send(
            {
                "reply": 0,
                "torch": torch_version(),
                "missing_features": codec.to_plain(torch_private.missing()),
                "device": str(rank._device),
            }
        )
        rank.serve()
        multiprocessing.util._exit_function()  # ends DataLoader workers
        status = 0
    except Closed:
        pass
    except Exception:  # noqa: BLE001  (the session reads the last line and tells it)
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    prepare()
    run_rank(int(sys.argv[1]), int(sys.argv[2]))
