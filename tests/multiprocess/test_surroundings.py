"""Sessions in odd surroundings: they start, or one line says what to change."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import ddt_notebook
from ddt_notebook.host import surroundings

START = """
import ddt_notebook as ddt
try:
    with ddt.Session(2) as session:
        print(session.run("x = torch.ones(1)\\ndist.all_reduce(x)\\nprint(x.item())").outputs)
except ddt.SessionError as error:
    print(error)
"""


def start(folder: Path, before: str = "", **environment: str) -> str:
    """What a process prints that starts a session in this folder."""
    parent = str(Path(ddt_notebook.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", before + START],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": parent} | environment,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    return done.stdout.strip() or done.stderr


def test_files_of_the_working_folder_do_not_stop_the_ranks(tmp_path: Path) -> None:
    for name in ("queue", "logging", "torch", "numpy"):
        (tmp_path / f"{name}.py").write_text("x = 1\n")
    assert start(tmp_path) == r"{0: '2.0\n', 1: '2.0\n'}"


def test_a_network_interface_that_does_not_exist_is_named(tmp_path: Path) -> None:
    said = start(tmp_path, GLOO_SOCKET_IFNAME="eth9nine")
    assert said.endswith("this machine has no network interface eth9nine: unset it")
    assert len(said.splitlines()) == 1


def test_a_limit_on_the_size_of_files_is_named(tmp_path: Path) -> None:
    before = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\n"
    assert start(tmp_path, before, PYTHONDONTWRITEBYTECODE="1").endswith(
        "files may have at most 8192 bytes here: raise the limit (ulimit -f unlimited)"
    )


@pytest.mark.parametrize("error", ["rank 0: ValueError: x", "rank 0 ended: exit status 1"])
def test_nothing_is_advised_without_a_reason(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    assert surroundings.advice(error) == ""


def test_a_limit_is_named_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    said = surroundings.advice("OSError: [Errno 24] Too many open files")
    assert f"at most {limit} files open" in said
