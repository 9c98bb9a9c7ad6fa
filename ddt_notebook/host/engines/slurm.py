"""Starts agents by ``srun``, one on each node of an allocation of Slurm.

The notebook runs in the allocation, or ``salloc`` asks for one.
"""

from __future__ import annotations

import os
import re
import select
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO

from ..agent_hub import AgentHub, HostAgent
from ..errors import SessionError
from ..join_key import VARIABLE
from ..joining import LIMIT_S, HostWanted, Say, own_address
from .remote_agent import agent_command, end, printed_lines

_ANSWER_LIMIT_S = 30.0
#: What ``salloc`` sets for the steps of a job, and what would give an agent one rank's share only.
_OF_TASKS = (
    *("SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU", "SLURM_TRES_PER_TASK"),
    *("SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_EXACT"),
    *("SLURM_NTASKS_PER_SOCKET", "SLURM_NTASKS_PER_CORE"),
    *("SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SLURM_MEM_PER_NODE"),
)
_REPEATED = re.compile(r"(\d+)(?:\(x(\d+)\))?")
#: Prints the variables of an allocation, and keeps it until the notebook closes the pipe or ends.
_KEEP = r"env -0; printf '\0'; exec cat >/dev/null"
_LOOK_EVERY_S = 0.5
_ENDED = re.compile(r"srun: error: (?P<host>\S+): tasks? [\d,-]+: (?P<how>.+)")


class Allocation:
    """An allocation that ``salloc`` gives for a session.

    Parameters
    ----------
    options
        The options of ``salloc``.
    limit_s
        How long to wait for it, in seconds.
    say
        Receives what ``salloc`` prints while it waits.

    Attributes
    ----------
    environment
        The variables that Slurm sets in it.

    Raises
    ------
    SessionError
        If there is no salloc, it refuses, or it does not give an allocation in time.
    """

    def __init__(
        self,
        options: Sequence[str],
        *,
        limit_s: float = LIMIT_S,
        say: Say = lambda text: None,
    ) -> None:
        self.environment: dict[str, str] = {}
        self._said = tempfile.TemporaryFile("w+", prefix="ddt-salloc-")  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                ["salloc", *options, "sh", "-c", _KEEP],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                text=True,
                start_new_session=True,  # Jupyter signals its whole process group
            )
        except OSError as error:
            self._said.close()
            raise SessionError(f"salloc cannot be started: {error}") from error
        try:
            self.environment = self._variables(limit_s, say)
        except BaseException:
            self.release()
            raise

    def _variables(self, limit_s: float, say: Say) -> dict[str, str]:
        """Wait for the allocation, and read its variables."""
        until_s = time.monotonic() + limit_s
        output = self._process.stdout
        assert output is not None
        got = b""
        while not got.endswith(b"\0\0"):
            if select.select([output], [], [], _LOOK_EVERY_S)[0]:
                part = os.read(output.fileno(), 1 << 16)
                if not part:
                    raise SessionError(f"salloc gave no allocation: {self._last()}")
                got += part
            else:
                say(f"waiting for Slurm: {self._last()}")
            if time.monotonic() > until_s:
                raise SessionError(f"no allocation came within {limit_s:.0f} s: {self._last()}")
        pairs = (one.partition("=") for one in got.decode(errors="replace").split("\0"))
        return {name: value for name, _, value in pairs if name.startswith("SLURM")}

    def _last(self) -> str:
        """The last line that salloc printed, without the one that names its help."""
        said = [line for line in printed_lines(self._said) if not line.startswith("Try ")]
        return [f"exit code {self._process.poll()}", *said][-1]

    def release(self) -> None:
        """Give it back, or stop waiting for it."""
        if not self.environment:  # salloc itself waits, and reads nothing
            self._process.terminate()
        end(self._process)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._said.close()


class Slurm:
    """The nodes of an allocation.

    Parameters
    ----------
    ranks
        How many ranks to start, the same number on each node; None for what the allocation says:
        its tasks, else one for each GPU, else one for each task's share of the CPUs.
    address
        Where the notebook listens; empty for its address in the network of the nodes.
    allocation
        The allocation, which is released when the session stops; None for that in which the
        notebook runs.

    Attributes
    ----------
    hosts
        The nodes, and how many ranks each one starts.

    Raises
    ------
    SessionError
        If this is no allocation, or the ranks do not divide among its nodes.
    """

    def __init__(
        self, ranks: int | None = None, address: str = "", allocation: Allocation | None = None
    ) -> None:
        self._allocation = allocation
        self._variables = os.environ | (allocation.environment if allocation is not None else {})
        nodes = self._variables.get("SLURM_JOB_NODELIST") or self._variables.get("SLURM_NODELIST")
        self._job = self._variables.get("SLURM_JOB_ID") or self._variables.get("SLURM_JOBID")
        if not nodes or not self._job:
            raise SessionError(
                "this notebook does not run in an allocation of Slurm",
                "ask for one: %ddt_start --salloc --nodes=2 --ntasks-per-node=4",
            )
        names = _hostnames(nodes)
        counts = ranks_of_nodes(self._variables, len(names), ranks)
        self.hosts = [HostWanted(name, each) for name, each in zip(names, counts, strict=True)]
        self.address = address or _address_towards(names)
        self._started: tuple[subprocess.Popen[str], IO[str]] | None = None

    def start(self, hub: AgentHub) -> None:
        """Start one agent on each node.

        Raises
        ------
        SessionError
            If there is no srun.
        """
        number = str(len(self.hosts))
        words = [
            *("srun", "--overlap", "--nodes", number, "--ntasks", number),
            # an agent's ranks use all that the job has on its node
            *("--ntasks-per-node=1", "--cpu-bind=none", "--mem=0"),
            # the others stay if one is lost
            *("--kill-on-bad-exit=0", "--wait=0", "--export=ALL"),
        ]
        shell = agent_command(f"{hub.address}:{hub.port}", '"$SLURMD_NODENAME"')
        own = {name: value for name, value in self._variables.items() if name not in _OF_TASKS}
        said = tempfile.TemporaryFile("w+", prefix="ddt-srun-")  # noqa: SIM115
        try:
            process = subprocess.Popen(
                [*words, "sh", "-c", shell],
                env=own | {VARIABLE: hub.key.to_text()},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                text=True,
                start_new_session=True,  # Jupyter signals its whole process group
            )
        except OSError as error:
            said.close()
            raise SessionError(f"srun cannot be started: {error}") from error
        self._started = process, said

    def failures(self) -> dict[str, str]:
        """Why agents did not start, by what srun calls the node."""
        if self._started is None:
            return {}
        process, said = self._started
        ended = process.poll() is not None
        lines = printed_lines(said)
        own = [line for line in lines if not line.startswith(("srun:", "slurmstepd:"))]
        found = {}
        for line in lines:
            if match := _ENDED.fullmatch(line.strip()):
                found[match["host"]] = f"{own[-1]} ({match['how']})" if own else match["how"]
        if not found and ended:
            why = lines[-1] if lines else f"srun ended with exit code {process.returncode}"
            found[f"the nodes of job {self._job}"] = why
        return found

    def host_of(self, agent: HostAgent) -> str:
        """The name of an agent's node."""
        return agent.hello.label

    def stop(self) -> None:
        """End what was started."""
        if self._started is not None:
            process, said = self._started
            end(process)
            said.close()
            self._started = None
        if self._allocation is not None:
            self._allocation.release()
            self._allocation = None


def ranks_of_nodes(
    environment: Mapping[str, str], nodes: int, ranks: int | None = None
) -> list[int]:
    """How many ranks each node of an allocation starts.

    Parameters
    ----------
    environment
        The environment variables of the allocation.
    nodes
        How many nodes it has.
    ranks
        How many ranks the user wants; None for no wish.

    Raises
    ------
    SessionError
        If the ranks do not divide among the nodes, or nothing says how many there are.
    """
    if ranks is not None:
        if ranks % nodes or ranks < 1:
            raise SessionError(
                f"{ranks} ranks do not divide among the {nodes} nodes of this allocation",
                f"start {nodes} or a multiple of it",
            )
        return [ranks // nodes] * nodes
    each = environment.get("SLURM_NTASKS_PER_NODE", "")
    if each.isdecimal() and int(each):
        return [int(each)] * nodes
    if environment.get("SLURM_NTASKS"):
        tasks = _repeated(environment.get("SLURM_TASKS_PER_NODE", ""))
        if len(tasks) == nodes:
            return tasks
    gpus = environment.get("SLURM_GPUS_PER_NODE", "").rpartition(":")[2]
    if not gpus and nodes == 1:
        gpus = environment.get("SLURM_GPUS_ON_NODE", "")
    if gpus.isdecimal() and int(gpus):
        return [int(gpus)] * nodes
    cpus = _repeated(environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
    share = environment.get("SLURM_CPUS_PER_TASK", "1")
    if len(cpus) == nodes and share.isdecimal() and int(share):
        return [max(1, one // int(share)) for one in cpus]
    raise SessionError("nothing says how many ranks this allocation is for", "give -n")


def _repeated(text: str) -> list[int]:
    """The numbers in ``"4(x2),3"``; empty if it is no such text."""
    found: list[int] = []
    for part in text.split(","):
        match = _REPEATED.fullmatch(part)
        if match is None or int(match[1]) < 1:
            return []
        found += [int(match[1])] * int(match[2] or 1)
    return found


def _hostnames(nodes: str) -> list[str]:
    """The nodes in ``"node[1-2,7]"``."""
    try:
        done = subprocess.run(
            ["scontrol", "show", "hostnames", nodes],
            capture_output=True,
            text=True,
            timeout=_ANSWER_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SessionError(f"scontrol does not tell the nodes of this job: {error}") from error
    names = done.stdout.split()
    if done.returncode or not names:
        said = " ".join(done.stderr.split())[:300] or f"exit code {done.returncode}"
        raise SessionError(f"scontrol does not tell the nodes of this job: {said}")
    return names


def _address_towards(names: list[str]) -> str:
    """The address of this machine in the network of these nodes."""
    for name in names:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((name, 9))  # sends nothing
            except OSError:
                continue
            address = str(probe.getsockname()[0])
        if not address.startswith("127."):
            return address
        if len(names) == 1:  # the only node is this machine, which need not be in a network
            return address
    return own_address()
