"""The image for Binder: everything that is needed, nothing for GPUs, and a server that stops."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

PINNED = re.compile(r"^  - ([\w-]+)=([\d.]+)$", re.MULTILINE)
TORCH = re.compile(r"^  - pytorch-cpu>=([\d.]+),<=([\d.]+)$", re.MULTILINE)


@pytest.fixture
def binder(root: Path) -> Path:
    return root / "binder"


def pins(binder: Path) -> dict[str, str]:
    return dict(PINNED.findall((binder / "environment.yml").read_text()))


def test_the_image_has_what_the_project_and_its_notebooks_need(root: Path, binder: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["lab"], *extras["demo"]]
    names = {re.match(r"[\w-]+", one)[0] for one in needed}  # type: ignore[index]
    assert names - {"torch"} <= set(pins(binder))


def test_its_torch_is_supported_and_no_newer_than_what_is_tested(root: Path, binder: Path) -> None:
    found = TORCH.findall((binder / "environment.yml").read_text())
    oldest = re.findall(r'"torch>=([\d.]+),<3"', (root / "pyproject.toml").read_text())
    tested = re.findall(r"^torch==(.+)$", (root / "constraints.txt").read_text(), re.MULTILINE)
    assert found == [(oldest[0], tested[0])]


def test_everything_else_is_pinned(binder: Path) -> None:
    lines = (binder / "environment.yml").read_text().partition("dependencies:\n")[2].splitlines()
    left = [line for line in lines if not PINNED.match(line) and not TORCH.match(line)]
    assert left == ["  - pip"]


@pytest.mark.parametrize("name", ["postBuild", "start"])
def test_the_scripts_can_be_run(binder: Path, name: str) -> None:
    script = binder / name
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True, timeout=20)


def test_a_container_starts_with_one_thread_for_each_rank(binder: Path) -> None:
    script = "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['DDT_IDLE_MINUTES'])"
    done = subprocess.run(
        [binder / "start", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert done.stdout.split() == ["1", "10"]


@pytest.mark.parametrize(("minutes", "seconds"), [(None, 600), ("3", 180), ("0", 0)])
def test_what_is_idle_is_stopped(
    binder: Path, monkeypatch: pytest.MonkeyPatch, minutes: str | None, seconds: int
) -> None:
    monkeypatch.delenv("DDT_IDLE_MINUTES", raising=False)
    if minutes is not None:
        monkeypatch.setenv("DDT_IDLE_MINUTES", minutes)
    c = SimpleNamespace(
        MappingKernelManager=SimpleNamespace(),
        TerminalManager=SimpleNamespace(),
        ServerApp=SimpleNamespace(),
    )
    path = binder / "jupyter_server_config.py"
    runpy.run_path(str(path), init_globals={"get_config": lambda: c})
    assert c.MappingKernelManager.cull_idle_timeout == seconds
    assert c.TerminalManager.cull_inactive_timeout == seconds
    assert c.ServerApp.shutdown_no_activity_timeout == seconds
    assert 1 <= c.MappingKernelManager.cull_interval <= max(1, seconds)
    assert not c.MappingKernelManager.cull_connected
    assert not c.MappingKernelManager.cull_busy


def test_a_reader_s_first_session_would_work(binder: Path) -> None:
    done = subprocess.run(
        [sys.executable, binder / "warm.py"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    import torch

    if torch.version.cuda is None:
        assert done.returncode == 0, done.stderr
        assert "ready: torch" in done.stdout
    else:
        assert "built for CUDA" in done.stderr


def test_the_repository_is_named_in_one_place(root: Path) -> None:
    tool = runpy.run_path(str(root / "tools" / "badge.py"))
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    found = [
        link
        for page in pages
        for link in re.findall(r"https://mybinder\.org/v2/[^\s)]+", page.read_text())
    ]
    assert set(found) <= {tool["link"]()}
    first_page = root / tool["FIRST_PAGE"].removeprefix("lab/tree/")
    assert first_page.is_file()
