"""Hosts that are network namespaces of this machine, each with a name and a clock of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from ddt_notebook.host.join_key import JoinKey

#: By how much the clock of each host is ahead of the notebook's.
AHEAD_S = {1: 5000, 2: 1000, 3: 3000}
_AGENT = "from ddt_notebook.cli import main; raise SystemExit(main())"


def ip(*arguments: str) -> None:
    done = subprocess.run(
        ["ip", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        raise OSError(done.stderr)


def as_host(number: int, command: list[str]) -> list[str]:
    """Run a command with the name and the clock of a host."""
    clock = ["--time", "--monotonic", str(AHEAD_S[number])]
    named = f"hostname node{number}; exec {shlex.join(command)}"
    return ["unshare", "--uts", *clock, "--kill-child", "sh", "-c", named]


class Network:
    """Hosts and the notebook's machine at one switch; the addresses belong to nobody.

    RFC 2544 reserves them for tests of networks.

    Parameters
    ----------
    count
        How many hosts there are.
    before
        By the number of a host, what stands before the command of its agent.
    """

    def __init__(self, count: int = 2, before: Mapping[int, str] | None = None) -> None:
        self._numbers = range(1, count + 1)
        self._before = dict(before or {})
        mark = f"{os.getpid() % 10_000}{count}"  # a test may make two of them
        self.prefix = f"198.{16 + count}.{os.getpid() % 250}"
        self.address = f"{self.prefix}.254"
        self._switch = f"ddts{mark}"
        self.hosts = [f"ddt{mark}-{number}" for number in self._numbers]
        self.cables = [f"ddtc{mark}-{number}" for number in self._numbers]
        self.processes: list[subprocess.Popen[str]] = []
        self.names = Path(tempfile.mkdtemp(prefix="ddt-names-"), "hosts")

    def name(self, **addresses: str) -> None:
        """Write the file of names that all hosts read."""
        own = {f"node{number}": f"{self.prefix}.{number}" for number in self._numbers} | addresses
        lines = [f"{address} {name}" for name, address in {"localhost": "127.0.0.1", **own}.items()]
        self.names.write_text("\n".join(lines) + "\n")

    def make(self) -> None:
        self.name()
        ip("link", "add", self._switch, "type", "bridge")
        ip("address", "add", f"{self.address}/24", "dev", self._switch)
        ip("link", "set", self._switch, "up")
        for number, (host, cable) in enumerate(zip(self.hosts, self.cables, strict=True), 1):
            ip("netns", "add", host)
            ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", host)
            ip("link", "set", cable, "master", self._switch, "up")
            ip("-n", host, "address", "add", f"{self.prefix}.{number}/24", "dev", "eth0")
            ip("-n", host, "link", "set", "lo", "up")
            ip("-n", host, "link", "set", "eth0", "up")

    def remove(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait(60)
        for cable in self.cables:  # connections that still end would keep them for minutes
            with suppress(OSError):
                ip("link", "del", cable)
        for name in self.hosts:
            with suppress(OSError):
                ip("netns", "del", name)
        with suppress(OSError):
            ip("link", "del", self._switch)
        shutil.rmtree(self.names.parent)

    def limit_packets_of_session(self, size: str) -> None:
        """Limit the size of what the machine of the notebook and the hosts send to each other."""
        for number, host in enumerate(self.hosts, 1):
            there, here = f"{self.prefix}.{number}/32", f"{self.address}/32"
            ip("route", "replace", there, "dev", self._switch, "mtu", size)
            ip("-n", host, "route", "replace", here, "dev", "eth0", "mtu", size)

    def tc(self, number: int, *arguments: str) -> None:
        """Change how a host sends; skips the test where the system cannot."""
        command = ["ip", "netns", "exec", self.hosts[number - 1], "tc", "qdisc", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            pytest.skip(f"the system cannot limit what a host sends: {done.stderr.strip()}")

    def start_agents(self, shown: str) -> list[subprocess.Popen[str]]:
        """Run the command that a session shows on all hosts."""
        before = len(self.processes)
        command = shown.splitlines()[0].partition(": ")[2]
        variable, *words = shlex.split(command)
        assert words[:2] == ["ddt-notebook", "agent"]
        name, _, key = variable.partition("=")
        for number, host in enumerate(self.hosts, 1):
            prefix = self._before.get(number, "")
            agent = shlex.join([sys.executable, "-c", _AGENT, *words[1:]])
            named = ["sh", "-c", f"mount --bind {self.names} /etc/hosts; exec {prefix} {agent}"]
            self.processes.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", host, *as_host(number, named)],
                    # addresses have no names here, of which PyTorch would warn in each output
                    env=os.environ | {name: key, "TORCH_CPP_LOG_LEVEL": "ERROR"},
                    cwd="/",
                    text=True,
                    stderr=subprocess.DEVNULL,
                )
            )
        return self.processes[before:]


class Shown:
    """Starts the agents with the command that is shown first, and keeps what is shown last."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.command = ""
        self.last = ""

    def __call__(self, text: str) -> None:
        self.last = text
        if not self.command:
            self.command = text
            self._network.start_agents(text)

    @property
    def key(self) -> JoinKey:
        return JoinKey.from_text(self.command.partition("DDT_JOIN=")[2].split()[0])
