"""``%ddt_start --join`` shows the command, waits, and refuses what cannot be in one line."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError

from .conftest import Notebook


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--nnodes 2", "--nnodes is for hosts that --join, or for --ray"),
        ("--nnodes 0 --join", "'0' is not a number of hosts; write 1 or more"),
        ("--ray --slurm", "give one"),
        ("--ray --salloc --nodes=2", "give one"),
        ("--salloc --nodes=2", "salloc (cannot be started|gave no allocation)"),
        ("--wait 2", "--wait is for hosts"),
        ("--join --hosts a:2", "give one"),
        ("--join --slurm", "give one"),
        ("--hosts a:x", "is not a host with its number of ranks"),
        ("-n 3 --hosts a:2", "starts 2 ranks, not 3"),
        ("--hosts 127.0.0.1:2", "no agent could be started on 127.0.0.1: "),  # nobody listens
        ("-n 3 --nnodes 2 --join 127.0.0.1", "3 ranks do not divide among 2 hosts"),
        ("-n 2 --join 192.0.2.7", "cannot listen at"),
        ("--join 127.0.0.1 --wait 0.2 --simulate tpu:2", "'tpu:2' cannot be simulated"),
        ("--ray --framework horovod", "ranks for Horovod run on this machine only"),
        ("-n 2 --join 127.0.0.1 --wait 0.2", "0 of 2 hosts have joined; 2 missing"),
    ],
)
def test_what_cannot_be_is_refused(notebook: Notebook, line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        notebook.run(f"%ddt_start {line}")
    assert "\n" not in str(refused.value)


def test_slurm_needs_an_allocation(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_NODELIST", "SLURM_NODELIST"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match=r"in an allocation of Slurm: .* --salloc") as refused:
        notebook.run("%ddt_start --slurm")
    assert "\n" not in str(refused.value)


def test_a_terminal_shows_the_whole_command(notebook: Notebook) -> None:
    shown = notebook.shown("%ddt_start -n 2 --nnodes 1 --join 127.0.0.1 --wait 0.2")
    assert "run this once on the host: DDT_JOIN=" in shown
    assert "ddt-notebook agent 127.0.0.1:" in shown
    assert shown.count("DDT_JOIN") == 1
