"""What is run on each host, and how it ends; a shell takes the place of ssh."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddt_notebook.host.agent_hub import AgentHub
from ddt_notebook.host.engines import remote_agent
from ddt_notebook.host.engines.ssh import Ssh
from ddt_notebook.host.joining import parse_hosts

_LIMIT_S = 60.0
#: Each host ends when all have been told to.
_ENDS_LAST = """
while [ "$1" != -- ]; do shift; done
cat > {folder}/said-$2
touch {folder}/told-$2
until [ -e {folder}/told-a ] && [ -e {folder}/told-b ]; do sleep 0.02; done
touch {folder}/ended-$2
"""
_KEEPS_COMMAND = """
for last; do :; done
printf %s "$last" > {folder}/command
"""


@pytest.fixture(scope="module")
def hub() -> Iterator[AgentHub]:
    made = AgentHub("127.0.0.1")
    yield made
    made.close()


def test_all_hosts_are_told_to_end_before_one_is_awaited(
    hub: AgentHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_agent, "_END_LIMIT_S", 20.0)
    engine = Ssh(parse_hosts("a,b"), ("sh", "-c", _ENDS_LAST.format(folder=tmp_path), "ssh"))
    engine.start(hub)
    engine.stop()
    assert {"ended-a", "ended-b"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("shell", ["sh", "csh", "fish"])
def test_any_login_shell_can_run_the_command(
    hub: AgentHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    python = tmp_path / "my python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    engine = Ssh(parse_hosts("a"), ("sh", "-c", _KEEPS_COMMAND.format(folder=tmp_path), "ssh"))
    engine.start(hub)
    engine.stop()
    command = (tmp_path / "command").read_text()
    assert command.startswith("exec sh -c ")  # known to every shell
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    told = subprocess.run(
        [shell, "-c", command], capture_output=True, text=True, timeout=_LIMIT_S, check=True
    )
    assert told.stdout.split()[-4] == "agent"
    assert told.stdout.split()[-2:] == ["--label", "a"]


@pytest.mark.parametrize("there", [True, False])
def test_a_host_without_the_package_is_told_what_to_install(
    hub: AgentHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    python = tmp_path / "python"
    if there:  # an interpreter without any package
        python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
        python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    engine = Ssh(parse_hosts("a"), ("sh", "-c", 'for last; do :; done; eval "$last"', "ssh"))
    engine.start(hub)
    deadline = time.monotonic() + _LIMIT_S
    try:
        while not (failed := engine.failures()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        engine.stop()
    assert "install ddt_notebook there" in failed["a"]
    assert ("No module named" in failed["a"]) == there
