"""Starts agents by the user's ssh, with its configuration and its agent; no password is handled.

Each agent reaches the notebook through its own ssh connection (``ssh -R``). So the notebook listens
on the loopback interface only, and the hosts need not be able to reach its machine.
"""

from __future__ import annotations

import secrets
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

from ..agent_hub import AgentHub, HostAgent
from ..errors import SessionError
from ..joining import HostWanted
from .remote_agent import agent_command, end, printed_lines

#: The first port that is tried on a host, and how many there are.
_FIRST_PORT, _PORTS = 20_000, 12_000
_OPTIONS = (
    "-T",
    *("-o", "BatchMode=yes"),  # ask nothing: nobody could answer
    *("-o", "ExitOnForwardFailure=yes"),
    *("-o", "ConnectTimeout=20"),
    *("-o", "ServerAliveInterval=5"),
    *("-o", "ServerAliveCountMax=2"),
)


class Ssh:
    """One ssh for each host.

    Parameters
    ----------
    hosts
        The hosts, as ssh knows them.
    command
        The user's ssh with options.
    """

    address = "127.0.0.1"

    def __init__(self, hosts: Sequence[HostWanted], command: Sequence[str] = ("ssh",)) -> None:
        self._hosts = [host.name for host in hosts]
        self._command = command
        self._started: dict[str, tuple[subprocess.Popen[str], IO[str]]] = {}

    def start(self, hub: AgentHub) -> None:
        """Start one agent on each host.

        Raises
        ------
        SessionError
            If there is no ssh.
        """
        for host in self._hosts:
            port = _FIRST_PORT + secrets.randbelow(_PORTS)
            said = tempfile.TemporaryFile("w+", prefix="ddt-ssh-")  # noqa: SIM115
            forward = f"{self.address}:{port}:{self.address}:{hub.port}"
            words = [*self._command, *_OPTIONS, "-R", forward, "--", host]
            script = agent_command(f"{self.address}:{port}", shlex.quote(host))
            try:
                process = subprocess.Popen(
                    # the login shell there may have a syntax of its own
                    [*words, f"exec sh -c {shlex.quote(script)}"],
                    stdin=subprocess.PIPE,
                    stdout=said,
                    stderr=said,
                    text=True,
                    start_new_session=True,  # Jupyter signals its whole process group
                )
            except OSError as error:
                raise SessionError(f"{self._command[0]} cannot be started: {error}") from error
            self._started[host] = process, said
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # its end is noticed by `failures`
                process.stdin.write(f"{hub.key.to_text()}\n")
                process.stdin.flush()

    def failures(self) -> dict[str, str]:
        """Why agents did not start, by host: the last line that ssh or the agent printed."""
        return {
            host: [f"ssh ended with exit code {process.returncode}", *printed_lines(said)][-1]
            for host, (process, said) in self._started.items()
            if process.poll() is not None
        }

    def host_of(self, agent: HostAgent) -> str:
        """The name that the user gave the host of an agent."""
        return agent.hello.label

    def stop(self) -> None:
        """End what was started."""
        end(*(process for process, _ in self._started.values()))
        for _, said in self._started.values():
            said.close()
        self._started.clear()
